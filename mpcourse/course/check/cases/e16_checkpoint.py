"""What e16_checkpoint is asked: one rank writes a checkpoint, no rank reads it too early, and killed jobs lose none.

The fault is rebuilt from https://github.com/NVIDIA/apex/issues/886 (ilkarman, June 2020): with the test
`local_rank == 0`, "one process per node" was "writing to the same location", and torch.load said "storage has wrong
size". In https://github.com/kakaobrain/scrl/issues/5 (May 2021) all ranks of one node wrote the best checkpoint. In
https://github.com/allenai/OLMo/pull/234 (drschwenk, July 2023) a checkpoint was "sometimes read before all nodes are
finished writing", and in https://github.com/pytorch/pytorch/pull/84881 (awgu, September 2022) it was removed too early.
"""

import functools
import itertools
import os
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
import torch._dynamo  # what torch.optim imports at its first use, which takes seconds: here, before the clock starts
from torch import nn

from mpcourse.common.words import counted
from mpcourse.course.check.answer import Answer
from mpcourse.course.check.cases.clinic import demand_diagnosis
from mpcourse.course.check.cases.on_models import SIZES, on_real, on_virtual, one_line
from mpcourse.course.check.facts.files import Event, Files
from mpcourse.course.check.facts.messages import SLACK, THROUGH_WORLD, Sent, counting, other_than_world
from mpcourse.course.check.facts.ranks import turned
from mpcourse.course.check.rules import Finding, Test, judge, rules, tests
from mpcourse.course.check.status_page import HasStatusPage
from mpcourse.course.check.virtual_run import OnVirtualRank, on_each
from mpcourse.course.check.wrong import Wrong, short
from mpcourse.virtual.ranks import ClusterError

if TYPE_CHECKING:
    from mpcourse.course.check.traced_mpi import TracedComm

STEPS = (9, 10, 11)  # of the saves; as texts, they are in another order
CALLS = 3
DAMAGED = 300  # bytes: a file that holds a state is larger, and one that holds a name is not
DELAYS = ((1, 1, 1, 1), (100, 0, 0, 0), (0, 100, 200, 300), (0, 300, 200, 100))  # of ranks, in seconds
NODES = ((4, 2), (3, 1), (2, 1), (4, 3), (3, 2), (2, 2), (1, 1))  # ranks, and those on a node

REFUTED = {
    "damage": "In ranks.log, the md5 of the file stays the same in later jobs. And damage changes single bytes, but in "
    "parts.txt a whole header is at another place than the directory says. According to strace.txt, which rank "
    "wrote this header, and which rank wrote the directory?",
    "full": "A full disk makes write() fail, and torch.save raises an error then. In strace.txt all calls succeed, and "
    "the file is as large as the one of the same step in one.log.",
    "killed": "The job that saved it ended by itself, as its last line in ranks.log says, and in strace.txt each file "
    "that is opened is also closed.",
    "readers": "In ranks.log, the job that wrote the file had ended before the next one began to load it, and each "
    "later job fails in the same way.",
    "version": "All jobs print the same version of PyTorch in ranks.log, and with it they have loaded a file before.",
}


def check(answer: Answer, comm: "TracedComm") -> None:
    """Check the answer on real ranks; every rank must call this."""
    for ranks, per_node in itertools.product((comm, turned(comm)), (1, 2)):
        with tempfile.TemporaryDirectory() as own:
            files = Files(Path(ranks.bcast(own)))
            program, judged = functools.partial(_program, files, per_node), functools.partial(_judge, per_node)
            with files.watched():
                on_real(answer, ranks, program, judged)


def check_virtually(answer: Answer, comm: HasStatusPage) -> None:
    """Check the answer on virtual ranks; one process calls this."""
    demand_diagnosis(answer, "writers", REFUTED)
    for (size, per_node), delays in itertools.product(NODES, DELAYS):
        with tempfile.TemporaryDirectory() as folder:
            _on_slow_files(answer, comm, size, per_node, Files(Path(folder), delays))
    for size, per_node in ((4, 2), (2, 1)):
        _killed(answer, comm, size, per_node)
    with tempfile.TemporaryDirectory() as folder:
        _damaged(answer, comm, Files(Path(folder)))
    for size in SIZES:
        with tempfile.TemporaryDirectory() as folder:
            on_virtual(answer, comm, size, functools.partial(_trains, Path(folder)), _judge_training)


def _wrong(finding: Finding, answer: Answer, size: int) -> OnVirtualRank:
    return OnVirtualRank(Wrong(*finding[1:]), answer, finding.rank, size, [])


def _state(rank: int, step: int) -> dict[str, Any]:
    """Return what a rank saves. Its size differs from rank to rank."""
    model = {"weight": torch.arange(5.0) / step, "steps": torch.tensor(step)}
    log = [f"step {i} on rank {rank}" for i in range(step + 7 * (rank % 3))]
    return {"model": model, "optimizer": {"momentum": [0.1 * step, None]}, "step": step, "log": log}


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, torch.Tensor) or isinstance(b, torch.Tensor):
        return type(a) is type(b) and a.dtype == b.dtype and torch.equal(a, b)
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(_same(a[key], b[key]) for key in a)
    return bool(a == b)


# -- saves and loads, with files that are slow on some ranks --


class Seen(NamedTuple):
    """What load returned on a rank, first and after each save; what save and load sent; what the rank did to files."""

    got: Sequence[Any]
    sent: Sequence[tuple[str, Sent]]
    events: Sequence[Event]


def _program(files: Files, per_node: int, own: Answer, comm: Any) -> Seen:
    given = other_than_world(comm)
    files.on_rank(given)
    got, sent = [], []

    def call(name: str, *args: Any) -> Any:
        since = counting(given)
        result = own.call(name, given, *args, changes=args)
        sent.append((name, since()))
        return result

    got.append(call("load", files.folder))
    for step in STEPS:
        call("save", comm.rank % per_node, files.folder, _state(comm.rank, step))
        got.append(call("load", files.folder))
    return Seen(got, sent, [event for event in files.events if event.rank == comm.rank])


def _on_slow_files(answer: Answer, comm: HasStatusPage, size: int, per_node: int, files: Files) -> None:
    try:
        with files.watched():
            seen = on_each(answer, comm, functools.partial(_program, files, per_node), size)
    except OnVirtualRank as error:  # what ranks did to files says more
        finding = judge([*SHARED, GONE], InFiles(size, per_node, files.events))
        asked = f"{_on(size, per_node)}, to save and load"
        if finding is None and isinstance(error.error, ClusterError):
            finding = Finding(error.rank, asked, one_line(error.error), STUCK)
        if finding is None and isinstance(error.error, Wrong):
            finding = Finding(error.rank, asked, error.error.got, LOOP)
        if finding is None:
            raise
        raise _wrong(finding, error.answer, size) from error
    seen.demand(_judge(per_node, seen.results, files.events))


def _on(size: int, per_node: int) -> str:
    return f"{counted(size, 'rank')}, {per_node} on a node"


@dataclass(frozen=True)
class InFiles:
    """What all ranks did to files. On virtual ranks, events are in their order in time."""

    size: int
    per_node: int
    events: Sequence[Event]

    case = property(lambda self: _on(self.size, self.per_node))
    writers = property(lambda self: sorted({e.rank for e in self.events if e.kind != "read"}))
    listed = property(lambda self: " and ".join(f"rank {rank}" for rank in self.writers))

    @property
    def overlaps(self) -> Iterator[tuple[str, str, int, int]]:
        """What a rank does while another one writes the same file: "open" or "read", the file, and both ranks."""
        writing: dict[str, int] = {}
        for e in self.events:
            if e.kind in ("open", "read") and writing.get(e.name, e.rank) != e.rank:
                yield e.kind, e.name, e.rank, writing[e.name]
            if e.kind == "open":
                writing[e.name] = e.rank
            if e.kind == "close":
                writing.pop(e.name, None)

    together = property(lambda self: next((each for each in self.overlaps if each[0] == "open"), None))
    early = property(lambda self: next(self.overlaps, None))

    @property
    def again(self) -> str:
        """The first file that several ranks write or replace; empty for none."""
        by: dict[str, set[int]] = {}
        for e in self.events:
            if e.kind in ("open", "rename"):
                by.setdefault(e.to or e.name, set()).add(e.rank)
        return next((name for name, ranks in by.items() if len(ranks) > 1), "")

    others = property(lambda self: len(self.writers) > 1)

    @property
    def gone(self) -> tuple[str, int, int] | None:
        """A file that was to be read after it had been removed, and the ranks that did so."""
        removed: dict[str, int] = {}
        for e in self.events:
            if e.kind == "read" and e.name in removed:
                return e.name, e.rank, removed[e.name]
            if e.kind == "remove":
                removed[e.name] = e.rank
        return None


@dataclass(frozen=True)
class Facts:
    """What was seen on one rank, and which of its loads is looked at: the first is before any save."""

    everyone: Sequence[Seen]
    per_node: int
    rank: int
    at: int

    size = property(lambda self: len(self.everyone))
    case = property(lambda self: _on(self.size, self.per_node))
    step = property(lambda self: (0, *STEPS)[self.at])
    wanted = property(lambda self: _state(0, self.step) if self.at else None)
    asked = property(lambda self: _saved(0, self.step) if self.at else "None, before the first save,")
    seen = property(lambda self: self.everyone[self.rank])
    got = property(lambda self: self.seen.got[self.at])
    shown = property(lambda self: _saved(*self.of) if self.of else _described(self.got))
    other = property(lambda self: not _same(self.got, self.wanted))
    none = property(lambda self: self.got is None)

    @property
    def of(self) -> tuple[int, int] | None:
        """The rank and the step of the state that was loaded."""
        known = itertools.product(range(self.size), STEPS)
        return next((of for of in known if _same(self.got, _state(*of))), None)

    older = property(lambda self: self.of and self.of[1] < self.step)
    newer = property(lambda self: self.of and self.of[1] > self.step)
    owner = property(lambda self: self.of and self.of[0])

    all_sent = property(lambda self: [(name, sent) for name, sent in self.seen.sent if sent])
    sent = property(lambda self: next((sent for _, sent in self.all_sent if sent.world), None))
    busy = property(lambda self: next(((n, s) for n, s in self.all_sent if len(s.calls) > CALLS), None))
    calls = property(lambda self: ", ".join(self.busy[1].calls))
    heavy = property(lambda self: next((s for n, s in self.all_sent if n == "save" and s.nbytes > SLACK), None))


def _saved(rank: int, step: int) -> str:
    return f"the state of rank {rank}, saved in step {step},"


def _described(got: Any) -> str:
    if isinstance(got, dict) and "step" in got:
        return f"the checkpoint of step {got['step']}"
    return got if isinstance(got, str) else short(got)


def _judge(per_node: int, everyone: Sequence[Seen], events: Sequence[Event] = ()) -> Finding | None:
    """Judge what ranks have seen. events: in their order in time, where it is known."""
    files = InFiles(len(everyone), per_node, events or [event for seen in everyone for event in seen.events])
    facts = itertools.product(range(len(STEPS) + 1), range(len(everyone)))
    values = (Facts(everyone, per_node, rank, at) for at, rank in facts)
    return judge(SHARED, files) or judge(VALUES, *values) or judge(MORE_FILES, files)


# -- a job that is killed while it saves, and a file that is damaged --


def _job(answer: Answer, comm: HasStatusPage, files: Files, size: int, per_node: int, *steps: int) -> list:
    """Run a job that loads a checkpoint and then saves some; return what it loaded, by rank."""

    def program(own: Answer, comm: Any) -> Any:
        files.on_rank(comm)
        got = own.call("load", comm, files.folder)
        for step in steps:
            state = _state(comm.rank, step)
            own.call("save", comm, comm.rank % per_node, files.folder, state, changes=(state,))
        return got

    with files.watched():
        return on_each(answer, comm, program, size).results


@dataclass(frozen=True)
class AfterKill:
    """What the next job loads.

    before: names of files before the save in which the job was killed. events: what it did then. got: by rank; of an
    error, its text. doing: the call that raised it.
    """

    before: Sequence[str]
    events: Sequence[Event]
    got: Sequence[Any]
    doing: str = ""

    killed = f"a job that was killed while it saved step {STEPS[1]}"
    old, new = STEPS[:2]
    shown = property(lambda self: " and ".join(dict.fromkeys(map(_described, self.got))))
    lost = property(lambda self: not any(all(_same(got, _state(0, step)) for got in self.got) for step in STEPS[:2]))
    left = property(lambda self: self.doing.startswith("save"))
    emptied = property(lambda self: self._first("open"))
    removed = property(lambda self: self._first("remove"))

    def _first(self, kind: str) -> str:
        return next((e.name for e in self.events if e.kind == kind and e.name in self.before), "")


def _killed(answer: Answer, comm: HasStatusPage, size: int, per_node: int) -> None:
    """Kill a job at each change that it makes to a file when it saves, and start the next one."""
    for killed_at in itertools.count():
        with tempfile.TemporaryDirectory() as folder:
            files = Files(Path(folder), killed_at=killed_at)
            _job(answer, comm, Files(files.folder), size, per_node, STEPS[0])
            before = os.listdir(folder)
            try:
                _job(answer, comm, files, size, per_node, STEPS[1])
            except OnVirtualRank:
                if not files.dead:
                    raise
            try:
                facts = AfterKill(before, files.events, _job(answer, comm, Files(files.folder), 3, 2, STEPS[2]))
            except OnVirtualRank as error:
                text = one_line(error.error).replace(f"{folder}{os.sep}", "")
                facts = AfterKill(before, files.events, [text], error.answer.doing)
            if finding := judge(KILLED, facts):
                raise _wrong(finding, answer, size)
        if not files.dead:
            return


def _damaged(answer: Answer, comm: HasStatusPage, files: Files) -> None:
    _job(answer, comm, Files(files.folder), 3, 3, STEPS[0])
    old = {path: path.read_bytes() for path in files.folder.rglob("*") if path.is_file()}
    _job(answer, comm, files, 3, 3, STEPS[1])
    for path in files.folder.rglob("*"):
        if path.is_file() and path.stat().st_size > DAMAGED and path.read_bytes() != old.get(path):
            os.truncate(path, path.stat().st_size // 2)
    try:
        got = _job(answer, comm, Files(files.folder), 3, 3)[0]
    except OnVirtualRank as error:
        if isinstance(error.error, Wrong):
            raise
        return
    asked, why = f"an error, as the file of step {STEPS[1]} is damaged", ANEW if got is None else OLDER
    raise _wrong(Finding(0, asked, _described(got), why), answer, 3)


# -- the whole training --

RATE, MOMENTUM, EVERY, JOBS = 0.1, 0.5, 2, (5, 7)


def _batches(rank: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    draw = np.random.default_rng(rank)
    return [(torch.from_numpy(draw.standard_normal((4, 3))), torch.ones(4, 1).double()) for _ in range(JOBS[-1])]


def _trains(folder: Path, own: Answer, comm: Any) -> tuple[np.ndarray, Any]:
    """Train in two jobs; return the weights at the end, and what train returned."""
    for steps in JOBS:
        model = nn.Linear(3, 1, bias=False).double()
        nn.init.zeros_(model.weight)
        optimizer = torch.optim.SGD(model.parameters(), RATE, MOMENTUM)
        given = comm, comm.rank % 2, folder, model, optimizer, _batches(comm.rank)[:steps], EVERY
        log = own.call("train", *given)
    return model.weight.detach().numpy().copy(), log


def _judge_training(everyone: Sequence[tuple[np.ndarray, Any]]) -> Finding | None:
    size, logs = len(everyone), [list[str]() for _ in everyone]
    w = speed = np.zeros(3)
    for step, batches in enumerate(zip(*map(_batches, range(size)), strict=True), 1):
        gradients: list[np.ndarray] = []
        for (x, y), log in zip(batches, logs, strict=True):
            error = x.numpy() @ w - y.numpy()[:, 0]
            log.append(f"step {step}: loss {(error**2).mean():.4g} on rank {len(gradients)}")
            gradients.append(2 * error @ x.numpy() / len(x))
        speed = MOMENTUM * speed + np.mean(gradients, 0)
        w = w - RATE * speed
    saved = JOBS[0] // EVERY * EVERY
    for rank, (weights, log) in enumerate(everyone):
        of = f"{counted(size, 'rank')} after two jobs of {JOBS[0]} and {JOBS[1] - saved} steps"
        if not np.allclose(weights, w, rtol=1e-9, atol=1e-12):
            return Finding(rank, f"the weights {w} of {of}", f"other weights, {weights[0]}", WEIGHTS)
        if log != (expected := logs[0][:saved] + logs[rank][saved:]):
            return Finding(rank, f"the log {short(expected)} of {of}", f"another log, {short(log)}", LOG)
    return None


# -- what is said --

STUCK = "All ranks have to make the same calls: a rank that writes nothing also comes to each barrier and broadcast."
LOOP = (
    "A rank that waits for another one does so in a call of comm, such as a barrier. A loop that looks for a file or a "
    "lock does not end if the rank was killed that should make or remove it. And a lock lets ranks write the same "
    "checkpoint one after the other: one rank of all is to write it."
)
OLDER = (
    "An older checkpoint was loaded in its place. The job then repeats steps that were done before, and its user does "
    "not learn that a file is damaged. An error says so."
)
ANEW = "The training begins anew, and all of its work is lost. An error says that the file is damaged."
WEIGHTS = (
    "The second job goes on from the checkpoint of the first, and ends with the weights of one long job. For this, "
    "model, optimizer and step are loaded, and the gradients are averaged over all ranks."
)
LOG = "The log begins with the log in the checkpoint, which is that of rank 0, and goes on with this rank's steps."
SHARED = [
    Test(
        "together",
        lambda f: f.together,
        "one rank to write {together[1]}, with {case}",
        "rank {together[2]} opened it to write while rank {together[3]} was still writing the same file",
        "Each of them empties the file and writes all of it. Where their states differ, the file becomes a mixture of "
        "both, and even if they are the same, it is incomplete when one of them has finished. One rank of all is to "
        "write it.",
    ),
    Test(
        "again",
        lambda f: f.again,
        "one rank to write {again}, with {case}",
        "{listed} have written the same file",
        "Locks, waits and names of their own only let ranks write one after the other. They write the same "
        "checkpoint several times, and the last state stays, whichever this is. One rank of all is to write it.",
    ),
    Test(
        "early",
        lambda f: f.early,
        "a complete {early[1]} to be read, with {case}",
        "rank {early[2]} opened it while rank {early[3]} was still writing it",
        "A file is there as soon as it is opened, and complete when it is closed. Another rank may read it after a "
        "barrier or a broadcast to which the writer comes when it has closed the file.",
    ),
]
GONE = Test(
    "gone",
    lambda f: f.gone,
    "{gone[0]} to be there when rank {gone[1]} reads it, with {case}",
    "rank {gone[2]} had removed it before",
    "An old checkpoint may be removed when all ranks have read it, and when the new one is complete and has its name.",
)
MORE_FILES = [
    Test(
        "others",
        lambda f: f.others,
        "one rank to change files, with {case}",
        "{listed} have done so",
        "Each of them writes a file of its own. The checkpoint is the state of rank 0, and more files only take time "
        "and space on the disk.",
    ),
]
VALUES = [
    THROUGH_WORLD,
    Test(
        "other",
        lambda f: f.other,
        "{asked} from load, with {case}",
        "{shown} on rank {rank}",
        rules(
            none="This is not the newest checkpoint, which was saved just before. Either load returns it on some ranks "
            "only, or this rank did not wait until its file was complete.",
            older="This is not the newest checkpoint. All ranks need the same one, so they have to wait until its file "
            "is complete, and take the largest step, as a number.",
            newer="This was the newest checkpoint a little later. While this rank was about to read, rank 0 had "
            "already saved the next one in its place. Before that, all ranks have to have read.",
            owner="That is the state of rank {owner}. The ranks have different logs, and the checkpoint is the state "
            "of rank 0.",
            otherwise="All that is in the state of rank 0 comes back from load, as it was.",
        ),
    ),
    Test(
        "busy",
        lambda f: f.busy,
        "at most three collective calls in a call of {busy[0]}",
        "{calls} on rank {rank}",
        "Each call lets all ranks wait for the slowest. One barrier or broadcast between writing and reading is "
        "enough.",
    ),
    Test(
        "heavy",
        lambda f: f.heavy,
        "at most a few bytes between ranks in a call of save",
        "{heavy.by} on rank {rank}",
        "Rank 0 has all that the checkpoint holds, so no state is sent when it is saved.",
    ),
]
KILLED = tests(
    lost=(
        "to load step {old} or step {new} and go on, after {killed}",
        "{shown}",
        rules(
            left="What the killed job has left in the folder must not keep the next job from saving. There may be a "
            "file that is only half written.",
            emptied="{emptied} is emptied before its new contents are complete. Write them under another name. "
            "os.replace then puts the complete file in its place, in one step.",
            removed="{removed} is removed before the new file has its name. os.replace does both in one step.",
            otherwise="The new checkpoint is named, or found, before all of it is written. First write all of it, then "
            "say that it is there.",
        ),
    ),
)
