"""A pool of tasks: ranks take them from a list until it is empty. Rank 0 hands them out, and works as well."""

import time
from collections.abc import Callable, Iterator, Sequence

from mpcourse.common.comm import Comm
from mpcourse.virtual import mpi_of

ASK, ANSWER = 1, 2  # tags
NAP = 0.002  # seconds between two checks of a rank that has nothing else to do

Work = Callable[[int], Iterator[None]]


def run_tasks(comm: Comm, tasks: Sequence[int], work: Work, done: Callable[[int], None] = lambda task: None) -> None:
    """Do every task once, on one of the ranks. All ranks call it, with the same tasks.

    work: does a task, and yields now and then; rank 0 answers the others only there, so it needs no thread. done:
    called on rank 0 with each task that is finished. Tasks are handed out one by one, in their order, because they
    differ in length, and so do cores: with a list that was divided in advance, some ranks would wait at the end. One
    rank alone takes all tasks. Errors of `work` pass through, and the caller must then end the other ranks.
    """
    if comm.rank:
        _work_for(comm, work)
        return
    left = iter(tasks)
    free = comm.size - 1  # ranks that do not know yet that nothing is left

    def answer() -> None:
        nonlocal free
        status = mpi_of(comm).Status()
        while comm.Iprobe(tag=ASK, status=status):
            finished = comm.recv(source=status.source, tag=ASK)
            if finished is not None:
                done(finished)
            task = next(left, None)
            comm.send(task, dest=status.source, tag=ANSWER)
            free -= task is None

    while (task := next(left, None)) is not None:
        for _ in work(task):
            answer()
        done(task)
    while free:
        answer()
        time.sleep(NAP)


def _work_for(comm: Comm, work: Work) -> None:
    finished = None
    while True:
        comm.send(finished, dest=0, tag=ASK)
        while not comm.Iprobe(source=0, tag=ANSWER):  # a blocking receive would keep this core busy
            time.sleep(NAP)
        task = comm.recv(source=0, tag=ANSWER)
        if task is None:
            return
        for _ in work(task):
            pass
        finished = task
