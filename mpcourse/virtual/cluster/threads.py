"""How ranks take turns: each is a thread in the middle of its program, and exactly one runs at a time.

Threads, and not greenlets or generators: torch keeps grad mode and the state of a backward pass by thread, so that each
rank has its own as a process has, and may wait for a message in the middle of a backward pass.
"""

import _thread
import random
import sys
import threading
from collections.abc import Callable
from typing import Any

import numpy as np

DEFAULT_SEED = 67280421310721  # of torch's generator in a process in which nobody has chosen one
HUB = -1  # who starts the ranks, and goes on when all have ended


class Turns:
    """A thread for each rank. Who has the turn gives it to another one, and sleeps until somebody gives it back."""

    def run(
        self, size: int, first: int, body: Callable[[int], int], interrupted: Callable[[BaseException], None]
    ) -> None:
        """Run `body(rank)` for each rank, beginning with `first`; when it ends, the turn goes to whom it returns.

        Returns when somebody gives the turn to HUB. interrupted: told of a Ctrl-C, after which ranks are to end by
        themselves; the second Ctrl-C does not wait for that.
        """
        self.idents = [0] * size
        self.locks = [_thread.allocate_lock() for _ in range(size + 1)]  # the last is the hub's
        for lock in self.locks:
            lock.acquire()
        torch = loaded_torch()
        grad = torch is not None and torch.is_grad_enabled()

        def main(rank: int) -> None:
            self.idents[rank] = _thread.get_ident()
            self.locks[rank].acquire()
            if torch is not None:
                torch.set_grad_enabled(grad)
            self.locks[body(rank)].release()

        threads = [threading.Thread(target=main, args=(r,), daemon=True, name=f"rank {r}") for r in range(size)]
        for thread in threads:
            thread.start()
        self.locks[first].release()
        try:
            self.locks[HUB].acquire()
        except KeyboardInterrupt as error:
            interrupted(error)
            self.locks[HUB].acquire()
        for thread in threads:
            thread.join()

    def foreign(self, rank: int) -> bool:
        """Whether another thread than that of rank `rank` asks this."""
        return self.idents[rank] != _thread.get_ident()

    def switch(self, me: int, to: int) -> None:
        """Let rank `to` go on; returns when somebody lets `me` go on."""
        self.locks[to].release()
        self.locks[me].acquire()


def loaded_torch() -> Any:
    """The module torch where somebody has imported it, else None: ranks that send arrays start without it."""
    torch = sys.modules.get("torch")
    return torch if hasattr(torch, "default_generator") else None


class Numbers:
    """Random numbers of torch, numpy and Python, which each rank has for itself as a process has."""

    def __init__(self, size: int) -> None:
        torch = loaded_torch()
        self.states = [torch and torch.default_generator.get_state()] * size  # torch's begin alike, numpy's do not
        seeds = np.random.SeedSequence(torch.initial_seed() if torch else DEFAULT_SEED).spawn(size)
        self.numpy: list[Any] = [np.random.MT19937(seed) for seed in seeds]
        self.python = [random.Random(int(seed.generate_state(1)[0])).getstate() for seed in seeds]

    def leave(self, rank: int) -> None:
        self.python[rank] = random.getstate()
        if torch := loaded_torch():
            self.states[rank] = torch.default_generator.get_state()

    def enter(self, rank: int) -> None:
        self.give_back(rank)
        random.setstate(self.python[rank])
        np.random.mtrand.set_bit_generator(self.numpy[rank])

    def give_back(self, rank: int) -> None:
        """Torch's state alone."""
        if torch := loaded_torch():
            state = self.states[rank]
            if state is None:  # another rank imported torch: here, too, it begins as in a new process
                state = torch.Generator().manual_seed(DEFAULT_SEED).get_state()
            torch.default_generator.set_state(state)
