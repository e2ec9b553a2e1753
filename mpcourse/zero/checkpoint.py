"""Snapshots of sharded training: each rank writes its own part, and any number of ranks can resume from all parts."""

import re
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch

from mpcourse.common.files import remove_parts, write_atomically
from mpcourse.data_parallel.random_state import random_state, set_random_state
from mpcourse.data_parallel.together import Result, together
from mpcourse.zero.optimizer import ShardedOptimizer


class Snapshot(NamedTuple):
    """The identity of a snapshot.

    step: updates before it.
    run: the run's own name, letters and digits.
    ranks: number of ranks that wrote a part each.
    """

    step: int
    run: str
    ranks: int

    def file(self, rank: int) -> str:
        """Return the file name of one rank's part.

        rank: the rank whose part it is, 0 to ranks - 1.
        """
        return f"step{self.step:08d}-{self.run}-rank{rank}of{self.ranks}.pt"


class ShardedCheckpointer:
    """Saves and restores a sharded optimizer's run. All ranks make one together, and make the same calls.

    sharded: of any stage; its communicators are used.
    folder: one that all ranks see; it is made where it does not exist.
    keep: number of snapshots that stay, 1 or more. Older ones are removed once a newer one is whole.

    A snapshot consists of one file per rank, and counts once all of them exist. A file gets its name only when all of
    it is on the disk. So a run that is killed at any time leaves earlier snapshots as they were. Each run's files have
    their own name, so parts of two runs are never taken for one snapshot.
    Where the optimizer has `replicas`, the ranks of the first group write. Raises ValueError for a keep below 1.
    """

    def __init__(self, sharded: ShardedOptimizer, folder: str | Path, keep: int = 2) -> None:
        if keep < 1:
            raise ValueError(f"keep={keep}: at least one snapshot must stay")
        self.sharded, self.folder, self.keep = sharded, Path(folder), keep
        self.comm, self.replicas = sharded.comm, sharded.replicas
        self.writes = self.replicas is None or self.replicas.rank == 0
        self.folder.mkdir(parents=True, exist_ok=True)
        self.run = self._gather(secrets.token_hex(4))[0]
        if self.writes and self.comm.rank == 0:
            remove_parts(self.folder, "step*.pt")
        self._gather(None)  # no rank writes before these are gone

    def save(self, step: int, **position: Any) -> None:
        """Write a snapshot. All ranks call it.

        step: updates before it.
        position: what else is needed to continue, the same on all ranks: numbers, text, tensors, lists and dicts of
        them, e.g. epoch=3, scheduler=scheduler.state_dict().

        The random numbers of Python, numpy and torch of each rank are saved, too.
        If this rank fails, it raises its error, and the others raise RankFailed.
        """
        snapshot = Snapshot(step, self.run, self.comm.size)

        def write() -> None:
            part = {"position": position, "part": self.sharded.state_dict(), "random": random_state()}
            path = self.folder / snapshot.file(self.comm.rank)
            write_atomically(path, lambda file: torch.save(part, file), sync=True)

        self._together("save", write if self.writes else _nothing)
        self._together("remove", self._remove_old if self.writes and self.comm.rank == 0 else _nothing)

    def resume(self) -> dict[str, Any] | None:
        """Restore the latest whole snapshot, of any number of ranks. Return its position, with "step", or None.

        All ranks call it. Parameters, state and options become those that were saved, bit for bit; random numbers, too,
        where as many ranks saved them and there are no replicas. Raises ValueError, on every rank, for a snapshot of
        other parameters. If this rank fails otherwise, it raises its error, and the others raise RankFailed.
        """
        latest: Snapshot | None = self._gather(self._together("look for", lambda: max(self._whole(), default=None)))[0]
        if latest is None:
            return None
        paths = [self.folder / latest.file(rank) for rank in range(latest.ranks)]
        parts = self._together("read", lambda: [torch.load(path, weights_only=True, mmap=True) for path in paths])
        self.sharded.load_state_dicts([each["part"] for each in parts])
        if latest.ranks == self.comm.size and self.replicas is None:
            set_random_state(parts[self.comm.rank]["random"])
        return {**parts[0]["position"], "step": latest.step}

    def _whole(self) -> list[Snapshot]:
        """Return the snapshots whose parts all exist."""
        parts: dict[Snapshot, set[int]] = {}
        for path in self.folder.iterdir():
            if match := re.fullmatch(r"step(\d+)-(\w+)-rank(\d+)of(\d+)\.pt", path.name):
                step, run, rank, ranks = match.groups()
                parts.setdefault(Snapshot(int(step), run, int(ranks)), set()).add(int(rank))
        return sorted(snapshot for snapshot, ranks in parts.items() if len(ranks) == snapshot.ranks)

    def _remove_old(self) -> None:
        """Remove snapshots that are older than the `keep` latest whole ones, and snapshots that were never whole."""
        stay = self._whole()[-self.keep :]
        for path in self.folder.glob("step*.pt"):
            if not any(path.name == snapshot.file(rank) for snapshot in stay for rank in range(snapshot.ranks)):
                path.unlink()

    def _gather(self, own: Any) -> list[Any]:
        """Return what each rank gives, including those of the replicas' groups, the first group first."""
        inside = self.comm.allgather(own)
        groups = [inside] if self.replicas is None else self.replicas.allgather(inside)
        return [each for group in groups for each in group]

    def _together(self, doing: str, call: Callable[[], Result]) -> Result:
        """Return what `call` returns. Where it raises on one rank, the others raise RankFailed."""
        return together(self._gather, f"{doing} its snapshot", call)


def _nothing() -> None:
    """Do nothing: the part of a rank that does not write."""
