"""Share among checks of data parallelism: run a program of calls on virtual ranks, then on real ones, and judge it."""

import functools
import itertools
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from mpcourse.common.words import counted
from mpcourse.course.check.answer import Answer
from mpcourse.course.check.facts.ranks import turned
from mpcourse.course.check.rules import Finding
from mpcourse.course.check.status_page import HasStatusPage
from mpcourse.course.check.virtual_run import LINK, OnVirtualRank, Ran, on_each
from mpcourse.course.check.wrong import Wrong
from mpcourse.virtual.ranks import ClusterError, Topology, VirtualRun

if TYPE_CHECKING:
    from mpcourse.course.check.traced_mpi import TracedComm

SIZES = (3, 2, 4, 1)  # two ranks show less than three; alone a rank makes mistakes that tell less

Program = Callable[[Answer, Any], Any]  # of the learner's file and a communicator; returns facts that can be pickled

# What a mistake in the learner's code raises when it meets what it has not thought of.
_STUMBLES = (RuntimeError, AttributeError, TypeError, ValueError, LookupError, ArithmeticError)


Judge = Callable[[Sequence[Any]], Finding | None]  # of all ranks' facts


class Case:
    """One input of an exercise, for any number of ranks.

    sizes: numbers of virtual ranks. link: their network.
    """

    sizes: Sequence[int] = SIZES
    link: str | Topology = LINK

    def program(self, own: Answer, comm: Any) -> Any:
        """Run the learner's code on one rank and return what was seen, which can be pickled."""
        raise NotImplementedError

    def findings(self, seen: Sequence[Any]) -> Iterable[Finding | None]:
        """Look for what is wrong with what all ranks have seen. The first finding counts."""
        raise NotImplementedError

    def judge(self, seen: Sequence[Any]) -> Finding | None:
        """Return what is wrong with what all ranks have seen."""
        return next((finding for finding in self.findings(seen) if finding), None)

    def judge_run(self, run: VirtualRun) -> Finding | None:
        """Return what is wrong with the messages of a virtual run whose results are right."""
        return None

    def stumbled(self, size: int) -> tuple[str, str] | None:
        """Return what was asked, and why an answer that was right before stumbles over this case; see `on_virtual`."""
        return None


def all_on_virtual(answer: Answer, comm: HasStatusPage, cases: Iterable[Case]) -> None:
    """Judge each case on virtual ranks of each of its sizes; one process calls this. Raises OnVirtualRank."""
    for case in cases:
        for size in case.sizes:
            ran = on_virtual(answer, comm, size, case.program, case.judge, case.stumbled(size), case.link)
            ran.demand(case.judge_run(ran.run))


def all_on_real(answer: Answer, comm: "TracedComm", cases: Sequence[Case]) -> None:
    """Judge each case on the real ranks of `comm`, then on those of another communicator. All of them must call this.

    Raises Wrong.
    """
    for ranks in (comm, turned(comm)):
        for case in cases:
            on_real(answer, ranks, case.program, case.judge)


def on_virtual(
    answer: Answer,
    comm: HasStatusPage,
    size: int,
    program: Program,
    judge: Judge,
    stumbled: tuple[str, str] | None = None,
    link: str | Topology = LINK,
) -> Ran:
    """Run `program` on `size` virtual ranks and judge their facts; what came of it. Raises OnVirtualRank.

    stumbled: what was asked, and why an answer that was right before would now raise an exception or make ranks wait
    for each other. None: such errors are shown as they are. link: as `run` takes it.
    """
    try:
        ran = on_each(answer, comm, program, size, link=link)
    except OnVirtualRank as error:
        if stumbled is None or not is_stumble(error.error):
            raise
        asked, why = stumbled
        wrong = Wrong(asked, one_line(error.error), why)
        raise OnVirtualRank(wrong, error.answer, error.rank, error.size, error.printed) from error
    if finding := judge(ran.results):
        raise ran.wrong(*finding)
    return ran


def on_real(answer: Answer, comm: "TracedComm", program: Program, judge: Judge) -> None:
    """Run `program` on the real ranks of `comm` and judge their facts. All of them must call this.

    Raises Wrong on the rank that the finding names, on all where it names none.
    """
    from mpi4py import MPI  # this makes a process a rank

    facts = MPI.Intracomm(comm).allgather(program(answer, comm))
    finding = judge(facts)
    if finding and finding.rank in (None, comm.rank):
        raise Wrong(finding.asked, finding.got, finding.why)


def each_on_virtual(
    answer: Answer,
    comm: HasStatusPage,
    cases: Iterable[Any],
    program: Callable,
    judge: Callable,
    asked: str,
    sizes: Sequence[int] = SIZES,
) -> list[Ran]:
    """Run `program(case, own, comm)` for each case on each number of virtual ranks; judge(case, facts) judges it.

    case: `why` an answer that was right until then now raises an exception or makes ranks wait; empty: for no reason
    that has to do with it. asked: then what was asked, with {case} and {ranks}, how many.
    """
    rans = []
    for case, size in itertools.product(cases, sizes):
        stumbled = (asked.format(case=case, ranks=counted(size, "rank")), case.why) if case.why else None
        its_program, its_judge = functools.partial(program, case), functools.partial(judge, case)
        rans.append(on_virtual(answer, comm, size, its_program, its_judge, stumbled))
    return rans


def each_on_real(answer: Answer, comm: "TracedComm", cases: Iterable[Any], program: Callable, judge: Callable) -> None:
    """Do so on the real ranks of `comm`, and on those of a communicator that has them in another order."""
    for ranks, case in itertools.product((comm, turned(comm)), cases):
        on_real(answer, ranks, functools.partial(program, case), functools.partial(judge, case))


def same_bits(rows: Mapping[str, Sequence[np.ndarray | None]]) -> Finding | None:
    """Find what differs between ranks in any bit. rows: by name, each rank's numbers; None where it has none."""
    for name, (zero, *others) in rows.items():
        for rank, got in enumerate(others, start=1):
            if zero is None or got is None or np.array_equal(got, zero):
                continue
            i = int(np.flatnonzero(got != zero)[0])
            why = (
                "Rounding depends on the order of additions, and copies of a model that differ by a bit drift apart. "
                "Let all ranks add in one order: Allreduce does, and so does a sum over what allgather brings."
            )
            text = f"{zero.flat[i].item()!r} on rank 0, {got.flat[i].item()!r} on rank {rank}"
            return Finding(rank, f"the same bits of {name} on all ranks", text, why)
    return None


def is_stumble(error: BaseException) -> bool:
    """Return whether an error may come from a case that the learner did not think of, not from missing code."""
    return isinstance(error, _STUMBLES) and not isinstance(error, NotImplementedError)


def one_line(error: BaseException) -> str:
    """Put an error on one line; where ranks wait for each other, say who waits in which call."""
    if isinstance(error, ClusterError) and error.waits:
        return "ranks that wait without end: " + ", ".join(f"rank {w.rank} in {w.call}" for w in error.waits)
    first = re.sub(r" \([\w.-]+\.py:\d+\)|, [\w.-]+\.py:\d+", "", (str(error).splitlines() or [""])[0])
    first = first if len(first) < 200 else first.partition(". ")[0]
    return first if isinstance(error, ClusterError) else f"{type(error).__name__}: {first}"


def attribute(owner: Any, name: str, what: str, why: str) -> Any:
    """`owner.name`; Wrong where it has none. what: how to call the owner in the message."""
    try:
        return getattr(owner, name)
    except AttributeError:
        raise Wrong(f"{what} to have {name}", f"none: {type(owner).__name__} has no attribute {name!r}", why) from None
