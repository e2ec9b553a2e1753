"""How ranks take turns: each is a thread in the middle of its program, and exactly one runs at a time.

Threads, and not greenlets or generators: torch keeps grad mode and the state of a backward pass by thread, so that each
rank has its own as a process has, and may wait for a message in the middle of a backward pass.
"""

import _thread
import functools
import random
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.random.bit_generator import ISeedSequence

DEFAULT_SEED = 67280421310721  # of torch's generator in a process in which nobody has chosen one
HUB = -1  # who starts the ranks, and goes on when all have ended


LOOK = 1.0  # seconds between two looks at the ranks

Looked = Callable[[list[int], int], int | None]


class Turn:
    """What one thread waits for until another one releases it. since: from when on it has waited; None: it runs."""

    def __init__(self) -> None:
        self.lock = _thread.allocate_lock()
        self.lock.acquire()
        self.since: float | None = None
        self.release = self.lock.release

    def acquire(self, timeout: float = -1) -> bool:
        self.since = time.monotonic()
        got = self.lock.acquire(timeout=timeout)
        self.since = None
        return got


class Turns:
    """A thread for each rank. Who has the turn gives it to another one, and sleeps until somebody gives it back."""

    def run(
        self,
        size: int,
        first: int,
        body: Callable[[int], int],
        interrupted: Callable[[BaseException], None],
        looked: Looked,
    ) -> None:
        """Run `body(rank)` for each rank, beginning with `first`; when it ends, the turn goes to whom it returns.

        Returns when somebody gives the turn to HUB. interrupted: told of a Ctrl-C, after which ranks are to end by
        themselves; the second Ctrl-C does not wait for that. looked: told now and then of the ranks that are alive, and
        how often in a row all of them waited for a turn that none of them has; returns who is to have it, or None.
        """
        self.idents, self.speakers = [0] * size, [0] * size  # the threads of ranks; those that may speak
        self.locks = [Turn() for _ in range(size + 1)]  # the last is the hub's
        torch = loaded_torch()
        grad = torch is not None and torch.is_grad_enabled()

        def main(rank: int) -> None:
            self.idents[rank] = self.speakers[rank] = _thread.get_ident()
            self.locks[rank].acquire()
            if torch is not None:
                torch.set_grad_enabled(grad)
            self.locks[body(rank)].release()

        threads = [threading.Thread(target=main, args=(r,), daemon=True, name=f"rank {r}") for r in range(size)]
        for thread in threads:
            thread.start()
        self.locks[first].release()
        try:
            self._until_all_have_ended(threads, looked)
        except KeyboardInterrupt as error:
            interrupted(error)
            self._until_all_have_ended(threads, looked)
        for thread in threads:
            thread.join()

    def _until_all_have_ended(self, threads: list[threading.Thread], looked: Looked) -> None:
        """Wait until somebody gives the turn to HUB, and look now and then whether anybody still can."""
        before: list[float | None] = []
        idle = 0
        while not self.locks[HUB].acquire(LOOK):
            alive = [rank for rank, thread in enumerate(threads) if thread.is_alive()]
            now = [turn.since if turn.lock.locked() else None for turn in map(self.locks.__getitem__, alive)]
            idle = idle + 1 if now == before and None not in now else 0
            before = now
            if (to := looked(alive, idle)) is not None:
                self.locks[to].release()

    def foreign(self, rank: int) -> bool:
        """Whether another thread than that of rank `rank` asks this, or a rank that may not speak any more."""
        return self.speakers[rank] != _thread.get_ident()

    def switch(self, me: int, to: int) -> None:
        """Let rank `to` go on; returns when somebody lets `me` go on."""
        self.locks[to].release()
        self.locks[me].acquire()


def loaded_torch() -> Any:
    """The module torch where somebody has imported it, else None: ranks that send arrays start without it."""
    torch = sys.modules.get("torch")
    return torch if hasattr(torch, "default_generator") else None


class Words(ISeedSequence):
    """What numpy's Mersenne Twister begins with, made once: `generate_state` takes longer than all else in a rank's
    start.
    """

    def __init__(self, seed: np.random.SeedSequence) -> None:
        self.words = seed.generate_state(624)

    def generate_state(self, n_words: int, dtype: Any = np.uint32) -> np.ndarray:
        return self.words


@functools.lru_cache(maxsize=64)
def first_numbers(seed: int, rank: int) -> tuple[Words, tuple]:
    """What numpy's generator of a rank begins with, and the state of Python's."""
    own = np.random.SeedSequence(seed, spawn_key=(rank,))
    return Words(own), random.Random(int(own.generate_state(1)[0])).getstate()


class Numbers:
    """Random numbers of torch, numpy and Python, which each rank has for itself as a process has."""

    def __init__(self, size: int) -> None:
        torch = loaded_torch()
        self.states = [torch_state()] * size  # torch's begin alike, numpy's do not
        first = [first_numbers(torch.initial_seed() if torch else DEFAULT_SEED, rank) for rank in range(size)]
        self.numpy: list[Any] = [np.random.MT19937(words) for words, _ in first]  # type: ignore[arg-type]
        self.python = [state for _, state in first]

    def leave(self, rank: int) -> None:
        self.python[rank] = random.getstate()
        self.states[rank] = torch_state()

    def enter(self, rank: int) -> None:
        set_torch_state(self.states[rank])
        random.setstate(self.python[rank])
        np.random.mtrand.set_bit_generator(self.numpy[rank])


def torch_state() -> Any:
    """The state of torch's generator; None where nobody has imported torch."""
    torch = loaded_torch()
    return torch and torch.default_generator.get_state()


def set_torch_state(state: Any) -> None:
    """Give torch's generator, if there is one, what `torch_state` has returned."""
    if torch := loaded_torch():
        if state is None:  # another rank imported torch: here, too, it begins as in a new process
            state = torch.Generator().manual_seed(DEFAULT_SEED).get_state()
        torch.default_generator.set_state(state)
