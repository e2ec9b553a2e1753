"""A learner's function on virtual ranks: what is counted, what is explained, and which rank it was."""

import io
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from mpcourse.course.check.answer import Answer, beginning
from mpcourse.course.check.rules import Finding
from mpcourse.course.check.status_page import HasStatusPage
from mpcourse.course.check.wrong import Wrong
from mpcourse.virtual.ranks import ClusterError, Topology, VirtualRun, run
from mpcourse.virtual.ranks.mpi import as_mpi4py
from mpcourse.virtual.ranks.refused import NotOffered

SIZES = (2, 3, 4, 7, 1)  # alone a rank makes mistakes that tell less
LIMIT = 1.5  # seconds that all ranks of a run may compute; right answers take milliseconds
PRINTED = 20_000  # characters that are kept of what a rank prints
LINK = "10 GbE"
MAX_POLLS = 5_000  # a loop that polls without success reaches this well before LIMIT, also on a slow machine


class OnVirtualRank(Exception):
    """`error` was raised on virtual rank `rank` of `size`; rank is None for what concerns all of them.

    printed: what ranks printed before, as (rank, text).
    """

    def __init__(self, error: BaseException, answer: Answer, rank: int | None, size: int, printed: list) -> None:
        super().__init__(str(error))
        self.error, self.answer, self.rank, self.size, self.printed = error, answer, rank, size, printed


def only_real_ranks_judge(error: BaseException) -> bool:
    """Return whether the answer called what mpi4py has and virtual ranks do not: then real ranks alone judge it."""
    error = error.error if isinstance(error, OnVirtualRank) else error
    return isinstance(error, NotOffered) and error.in_mpi4py


@dataclass(frozen=True)
class Ran:
    """A call of the learner's function, or a program of several, on virtual ranks.

    given: the arguments after `comm`, by rank, as the call left them; of a program of several calls, what the check
    says. results: what it returned, by rank.
    """

    run: VirtualRun
    given: list[tuple]
    results: list[Any]
    _answers: list[Answer]
    _printed: list[tuple[int, str]]

    @property
    def source(self) -> str:
        """The text of the learner's file."""
        return self._answers[0].path.read_text()

    def wrong(self, rank: int | None, asked: str, got: str, why: str = "") -> OnVirtualRank:
        """Make the error to raise: what is wrong on `rank`, with the line where its call returned; None: on no one.

        asked, got: what the task wants and what the learner's code did, each a phrase of one line.
        why: the misconception that most likely lies behind it; empty where none is known.
        """
        answer = self._answers[rank or 0]
        return OnVirtualRank(Wrong(asked, got, why), answer, rank, self.run.size, self._printed)

    def demand(self, finding: Finding | None) -> None:
        """Raise OnVirtualRank for what was found wrong; None: nothing was."""
        if finding:
            raise self.wrong(*finding)


def virtually(
    answer: Answer,
    comm: HasStatusPage,
    function: str | Callable[[int], str],
    size: int,
    arguments: Callable[[int], tuple],
    changes: Callable[[tuple], tuple],
    late: Sequence[float] | None = None,
    link: str | Topology = LINK,
    eager: int = 0,
    comm_of: Callable[[Any], Any] = lambda comm: comm,
) -> Ran:
    """Call `function(comm, *arguments(rank))` of the learner's file on each of `size` virtual ranks.

    function: its name, or the name by rank, where ranks have different parts to play. changes: of a rank's arguments,
    those that may change. late: by how many seconds each rank begins late. link, eager: as `run` takes them.
    comm_of: what a rank is given in the place of its communicator. Else as on_each, which raises for what goes wrong.
    """
    given = [arguments(rank) for rank in range(size)]

    def program(own: Answer, comm: Any) -> Any:
        rank = comm.rank
        comm.compute(late[rank] if late else 0.0)
        name = function if isinstance(function, str) else function(rank)
        return own.call(name, comm_of(comm), *given[rank], changes=changes(given[rank]))

    return on_each(answer, comm, program, size, given, link, eager)


def on_each(
    answer: Answer,
    comm: HasStatusPage,
    program: Callable[[Answer, Any], Any],
    size: int,
    given: Sequence[tuple] = (),
    link: str | Topology = LINK,
    eager: int = 0,
) -> Ran:
    """Run `program(own, comm)` on each of `size` virtual ranks: any calls of the learner's file, which is `own`.

    Each rank loads the file for itself, as a process does, so that ranks share no variables. comm: the real one, on
    which each such run counts as progress. given: what `Ran.given` is to tell. link, eager: as `run` takes them. Raises
    OnVirtualRank for what goes wrong, on a rank or between them.
    """
    comm.status_page.write("running", comm.rank)
    answers = [answer] * size
    failed: dict[int, BaseException] = {}
    began = beginning()

    def on_rank(comm: Any) -> Any:
        rank = comm.rank
        try:
            pages.mine.rank = rank  # of this thread
            own = answers[rank] = Answer.load(answer.path, modules=pages.modules, forbidden=answer.forbidden)
            own.limit, own.since = LIMIT, began
            return program(own, comm)
        except BaseException as error:
            failed[rank] = error
            raise

    with _Pages(size) as pages, as_mpi4py():
        try:
            done = run(on_rank, size, link, eager=eager, max_polls=MAX_POLLS)
        except BaseException as error:
            vars(error).pop("__notes__", None)  # they say which rank it was
            rank = next((r for r, e in failed.items() if e is error and not isinstance(e, ClusterError)), None)
            raise OnVirtualRank(error, answers[rank or 0], rank, size, pages.written()) from error
    # A judge of the results that meets something unexpected can say what it was.
    answer.result, answer.line = next(((a.result, a.line) for a in answers if a.result), (answer.result, answer.line))
    return Ran(done, list(given), done.results, answers, pages.written())


class _Modules(ModuleType):
    """The entry in sys.modules for the learner's file, which each virtual rank has loaded for itself.

    There pickling finds the rank's own classes.
    """

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.__dict__["mine"] = threading.local()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["mine"].module, name)


class _Pages(io.TextIOBase):
    """Stands in for sys.stdout and keeps what each virtual rank prints. Others print as they did."""

    def __init__(self, size: int) -> None:
        self.pages: list[list[str]] = [[] for _ in range(size)]
        self.left = [PRINTED] * size
        self.mine = threading.local()
        self.modules = _Modules("the answer")

    def __enter__(self) -> "_Pages":
        self.before, sys.stdout = sys.stdout, self
        return self

    def __exit__(self, *args: object) -> None:
        sys.stdout = self.before

    def write(self, text: str) -> int:
        rank = getattr(self.mine, "rank", None)
        if rank is None:
            return self.before.write(text)
        self.pages[rank].append(text[: self.left[rank]])
        self.left[rank] -= len(self.pages[rank][-1])
        return len(text)

    def flush(self) -> None:
        self.before.flush()

    def written(self) -> list[tuple[int, str]]:
        return [(rank, "".join(page)) for rank, page in enumerate(self.pages) if any(page)]
