"""How ranks take turns: each is a thread in the middle of its program, and exactly one runs at a time.

Threads, and not greenlets or generators: torch keeps grad mode and the state of a backward pass by thread, so that each
rank has its own as a process has, and may wait for a message in the middle of a backward pass.
"""

import _thread
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

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
        self.locks = [_thread.allocate_lock() for _ in range(size + 1)]  # the last is the hub's
        for lock in self.locks:
            lock.acquire()
        grad = torch.is_grad_enabled()

        def main(rank: int) -> None:
            self.locks[rank].acquire()
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

    def switch(self, me: int, to: int) -> None:
        """Let rank `to` go on; returns when somebody lets `me` go on."""
        self.locks[to].release()
        self.locks[me].acquire()


class Numbers:
    """Random numbers of torch and numpy, which each rank has for itself as a process has."""

    def __init__(self, size: int) -> None:
        self.torch = torch.default_generator
        self.states = [self.torch.get_state()] * size  # torch's begin alike in all processes, numpy's do not
        seeds = np.random.SeedSequence(self.torch.initial_seed()).spawn(size)
        self.numpy: list[Any] = [np.random.MT19937(seed) for seed in seeds]

    def leave(self, rank: int) -> None:
        self.states[rank] = self.torch.get_state()

    def enter(self, rank: int) -> None:
        self.torch.set_state(self.states[rank])
        np.random.mtrand.set_bit_generator(self.numpy[rank])
