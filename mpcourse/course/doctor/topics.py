"""Examine every topic once, each after the topics that it depends on."""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

from mpcourse.common import launch
from mpcourse.course.doctor import leftovers, machine, mpi, slots, start, strays, subprocesses
from mpcourse.course.doctor.finding import Finding, guarded

TOPICS = (
    *("Python", "torch", "CPU cores", "threads", "memory"),
    *("mpi4py", "mpirun", "match", "slots", "root", "round trip", "strays", "shared memory"),
)
T = TypeVar("T")


def examine() -> list[Finding]:
    """Examine this machine: one Finding for each of TOPICS. Takes a few seconds, and leaves no process behind."""
    with ThreadPoolExecutor() as pool:
        # Importing torch takes a second. All else goes on meanwhile, but for the ranks: they are timed, and so alone.
        torch = pool.submit(subprocesses.ask, machine.TORCH_PROGRAM, 60)
        mpi4py = pool.submit(subprocesses.ask, mpi.MPI4PY_PROGRAM, 20)
        mpirun = _settled(launch.mpirun)
        looks = {
            "Python": machine.python,
            "threads": machine.threads,
            "memory": machine.memory,
            "strays": strays.strays,
            "shared memory": leftovers.leftovers,
            "mpirun": lambda: mpi.mpirun(mpirun),
            "mpi4py": lambda: mpi.mpi4py(mpi4py),
            "torch": lambda: machine.torch(torch),
            "CPU cores": lambda: machine.cores(torch),
        }
        findings = {topic: guarded(topic, look) for topic, look in looks.items()}
    findings |= _ranks(mpirun, mpi4py)
    return [findings[topic] for topic in TOPICS]


def _ranks(mpirun: "Future[launch.Mpirun]", mpi4py: "Future[dict[str, Any]]") -> dict[str, Finding]:
    if missing := "mpirun" if mpirun.exception() else "mpi4py" if mpi4py.exception() else "":
        value, advice = f"not examined, because {missing} is missing", f"first mend `{missing}`"
        return {topic: Finding(topic, value, "problem", advice) for topic in ("match", "slots", "root", "round trip")}
    launcher = mpirun.result()
    started = _settled(start.start)  # not in a thread: Ctrl-C must end the ranks at once
    looks = {
        "match": lambda: start.match(started.result(), launcher, mpi4py),
        "slots": lambda: slots.slots(launcher, started.result()),
        "root": lambda: mpi.root(launcher),
        "round trip": lambda: start.round_trip(started.result()),
    }
    return {topic: guarded(topic, look) for topic, look in looks.items()}


def _settled(make: Callable[[], T]) -> "Future[T]":
    """Call `make()` now, and keep its result or error for every topic that asks for it."""
    settled: Future[T] = Future()
    try:
        settled.set_result(make())
    except Exception as error:
        settled.set_exception(error)
    return settled
