"""How ranks take turns: each is a thread in the middle of its program, and exactly one runs at a time.

They are threads, not greenlets or generators, because torch keeps grad mode and the state of a backward pass by thread.
So each rank has its own, as a process has, and may wait for a message in the middle of a backward pass.
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

DEFAULT_SEED = 67280421310721  # of torch's generator in a process that has chosen no seed
HUB = -1  # the thread that starts the ranks, and continues when all have ended


LOOK = 1.0  # seconds between two checks of the ranks

Looked = Callable[[list[int], int], int | None]


class Turn:
    """What one thread waits for until another one releases it. since: when it began to wait; None: it runs."""

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
    """A thread for each rank. The thread that has the turn passes it to another one, and sleeps until it comes back."""

    def run(
        self,
        size: int,
        first: int,
        body: Callable[[int], int],
        interrupted: Callable[[BaseException], None],
        looked: Looked,
    ) -> None:
        """Run `body(rank)` for each rank, beginning with `first`; `body` returns the rank that gets the turn next.

        Returns when the turn is given to HUB. interrupted: called on a Ctrl-C, after which ranks should end by
        themselves; the second Ctrl-C does not wait for that. looked: called now and then with the ranks that are alive,
        and how often in a row all of them waited for a turn that none of them has; returns the rank that should get it,
        or None.
        """
        self.idents, self.speakers = [0] * size, [0] * size  # threads of ranks; threads that may send and receive
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
        """Wait until the turn is given to HUB, and check now and then whether any rank still can."""
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
        """Return whether another thread than that of rank `rank` asks, or a rank that may not communicate any more."""
        return self.speakers[rank] != _thread.get_ident()

    def switch(self, me: int, to: int) -> None:
        """Let rank `to` go on; return when `me` may go on."""
        self.locks[to].release()
        self.locks[me].acquire()


def loaded_torch() -> Any:
    """Return the module torch if it was imported, else None: ranks that send arrays start without it."""
    torch = sys.modules.get("torch")
    return torch if hasattr(torch, "default_generator") else None


class Words(ISeedSequence):
    """What numpy's Mersenne Twister begins with, made once.

    `generate_state` takes longer than everything else in a rank's start.
    """

    def __init__(self, seed: np.random.SeedSequence) -> None:
        self.words = seed.generate_state(624)

    def generate_state(self, n_words: int, dtype: Any = np.uint32) -> np.ndarray:
        return self.words


@functools.lru_cache(maxsize=64)
def first_numbers(seed: int, rank: int) -> tuple[Words, tuple]:
    """Return what numpy's generator of a rank begins with, and the state of Python's."""
    own = np.random.SeedSequence(seed, spawn_key=(rank,))
    return Words(own), random.Random(int(own.generate_state(1)[0])).getstate()


class Numbers:
    """Random numbers of torch, numpy and Python; each rank has its own, as a process has."""

    def __init__(self, size: int) -> None:
        torch = loaded_torch()
        self.states = [torch_state()] * size  # torch's begin with the same state, numpy's do not
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
    """Return the state of torch's generator, or None if torch was not imported."""
    torch = loaded_torch()
    return torch and torch.default_generator.get_state()


def set_torch_state(state: Any) -> None:
    """Set torch's generator, if there is one, to what `torch_state` has returned."""
    if torch := loaded_torch():
        if state is None:  # another rank imported torch; here it begins as in a new process, too
            state = torch.Generator().manual_seed(DEFAULT_SEED).get_state()
        torch.default_generator.set_state(state)
