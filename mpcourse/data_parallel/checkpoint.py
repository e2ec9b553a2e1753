"""Snapshots of a run over ranks.

Each rank writes its own snapshot, atomically. Resuming finds the latest snapshot that all ranks have.
"""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import torch

from mpcourse.common.files import remove_parts, write_atomically
from mpcourse.data_parallel.communicator import Communicator
from mpcourse.data_parallel.random_state import random_state, set_random_state
from mpcourse.data_parallel.together import together


class Stateful(Protocol):
    """What a snapshot can hold: an object with a state, like torch's modules and optimizers."""

    def state_dict(self) -> dict[str, Any]:
        """Return everything that is needed to continue, as torch.save writes it."""
        ...

    def load_state_dict(self, state_dict: dict[str, Any]) -> Any:
        """Continue from a state.

        state_dict: what `state_dict` returned.
        """
        ...


class Checkpointer:
    """Saves and restores the parts of a run. All ranks make one together, and make the same calls.

    communicator: its ranks take part in the run.
    folder: one that all ranks see, or one on each machine.
    keep: number of snapshots that stay, 1 or more. Older ones are removed once all ranks have a newer one.
    what: by name, objects with state_dict and load_state_dict: model, optimizer, scheduler, sampler.

    The random numbers of Python, numpy and torch are saved, too.
    Raises ValueError where keep is below 1.
    """

    def __init__(self, communicator: Communicator, folder: str | Path, keep: int = 2, **what: Stateful) -> None:
        if keep < 1:
            raise ValueError(f"keep={keep}: at least one snapshot must stay")
        self.communicator, self.folder, self.keep, self.what = communicator, Path(folder), keep, what
        self.folder.mkdir(parents=True, exist_ok=True)
        remove_parts(self.folder, f"step*-rank{communicator.rank}of{communicator.size}.pt")

    def save(self, step: int, **position: int | float | str) -> None:
        """Write a snapshot. All ranks call it.

        step: updates so far, 0 or more, the same on all ranks.
        position: what else is needed to continue, e.g. epoch=3.

        A run that is killed at any time leaves earlier snapshots as they were.
        Raises ValueError for a step below 0, or where ranks give different steps. A rank on which anything else fails
        raises its error, and the others raise RankFailed.
        """
        if step < 0:
            raise ValueError(f"step={step}: a run has made 0 updates or more")
        steps = [own for (own,) in self.communicator.exchange("saves a snapshot", step)]
        if len(set(steps)) > 1:
            raise ValueError(f"ranks save different steps: {steps}")

        def write() -> list[int]:
            state = {
                "step": step,
                "position": position,
                "what": {name: each.state_dict() for name, each in self.what.items()},
                "random": random_state(),
            }
            self._write(state, self._path(step))
            return self._steps()

        self._forget(self._together("save", write))

    def _together(self, doing: str, call: Callable[[], Any]) -> list[Any]:
        """Return what `call` returns on each rank, by rank. If it raises on one rank, the others raise RankFailed."""
        gather = self.communicator.comm.allgather
        return gather(together(gather, f"{doing} its snapshot", call))

    def _write(self, state: dict[str, Any], path: Path) -> None:
        write_atomically(path, lambda file: torch.save(state, file), sync=True)

    def resume(self) -> dict[str, Any] | None:
        """Restore the latest snapshot that all ranks have. All ranks call it.

        Returns its position, with "step", or None where there is no snapshot.
        Raises ValueError, on every rank, for a snapshot of another number of ranks, or of other things than this run's.
        A rank on which anything else fails raises its error, and the others raise RankFailed.
        """
        self.communicator.exchange("resumes")
        by_rank = self._together("look for", lambda: (self._steps(), self._sizes()))
        common = set.intersection(*(set(steps) for steps, _ in by_rank))
        if not common:
            sizes = sorted(set().union(*(sizes for _, sizes in by_rank)))
            if sizes:
                raise ValueError(
                    f"{self.folder} holds snapshots of runs over {', '.join(map(str, sizes))} ranks, and this one has "
                    f"{self.communicator.size}: start as many, or take another folder"
                )
            return None
        state: dict[str, Any] = {}

        def read() -> list[str]:
            state.update(torch.load(self._path(max(common)), weights_only=True))
            return sorted(set(state["what"]) ^ set(self.what))

        others = self._together("read", read)
        if other := next((names for names in others if names), None):
            raise ValueError(
                f"the snapshot holds {', '.join(state['what'])}; it and this run differ in {', '.join(other)}"
            )

        def restore() -> None:
            for name, each in self.what.items():
                each.load_state_dict(state["what"][name])
            set_random_state(state["random"])

        self._together("restore", restore)
        return {**state["position"], "step": state["step"]}

    def _path(self, step: int) -> Path:
        rank, size = self.communicator.rank, self.communicator.size
        return self.folder / f"step{step:08d}-rank{rank}of{size}.pt"

    def _steps(self) -> list[int]:
        """Return the steps for which this rank has a snapshot."""
        rank, size = self.communicator.rank, self.communicator.size
        names = (re.fullmatch(rf"step(\d+)-rank{rank}of{size}\.pt", path.name) for path in self.folder.iterdir())
        return sorted(int(match[1]) for match in names if match)

    def _sizes(self) -> set[int]:
        names = (re.fullmatch(r"step\d+-rank\d+of(\d+)\.pt", path.name) for path in self.folder.iterdir())
        return {int(match[1]) for match in names if match} - {self.communicator.size}

    def _forget(self, everyones: list[list[int]]) -> None:
        """Remove this rank's snapshots that are older than the `keep` latest snapshots that all ranks have."""
        common = sorted(set.intersection(*map(set, everyones)))
        for step in self._steps():
            if len(common) >= self.keep and step < common[-self.keep]:
                self._path(step).unlink()
