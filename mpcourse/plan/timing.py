"""How long a pipeline of very many micro-batches takes: the replay of a few, and the steady state."""

from collections.abc import Sequence

from mpcourse.pipeline import Costs, Execution, interleaved_one_f_one_b, replay

EQUAL = 1e-9  # tolerance for two times, relative to the whole


def makespan(
    stages: int, microbatches: int, chunks: int, forward: Sequence[float], backward: Sequence[float],
    transfer: Sequence[float],
) -> float:  # fmt: skip
    """Return the seconds of (interleaved) 1F1B from first start to last end, as `mpcourse.pipeline.replay` gives them.

    stages: their number.
    microbatches: their number.
    chunks: parts of the model on each stage.
    forward, backward: seconds of a micro-batch on each part of the model, in its order, stages * chunks of them.
    transfer: seconds over each cut between parts.

    Of many micro-batches fewer are replayed, until the pipeline is steady. Then the time of a number of further
    micro-batches is known, and the rest is a multiple of it.
    """
    costs = Costs(forward, backward, transfer=transfer)

    def replayed(count: int) -> Execution:
        return replay(interleaved_one_f_one_b(stages, count, chunks), costs)

    count = (5 if chunks == 1 else 8) * stages
    while count + stages < microbatches:
        done = replayed(count)
        if (steady := _steady(done, chunks)) is not None:
            period, seconds = steady
            times, rest = divmod(microbatches - count, period)
            return (replayed(count + rest) if rest else done).makespan + times * seconds
        count *= 2
    return replayed(microbatches).makespan


def _steady(done: Execution, chunks: int) -> tuple[int, float] | None:
    """Return after how many micro-batches everything repeats, and how much later; None where nothing does yet.

    Up to its last forward, a stage's list is the beginning of its list for more micro-batches. An action begins when
    the latest of some earlier ones has ended, and none of these is further back than the micro-batches in flight. So
    if, on all stages, all actions of that span begin by the same time later than those of `period` micro-batches
    before, all later ones will. Usually each micro-batch repeats the one before. But where messages between stages take
    longer than the stages between them compute, the micro-batches in flight between two stages set the pace, and these
    repeat together.
    """
    stages, whole = len(done.stages), done.makespan
    starts = []
    for row in done.stages:
        last = max(i for i, timed in enumerate(row) if timed.action.kind == "F")
        starts.append([timed.start for timed in row[: last + 1]])
    window = 4 * chunks * stages  # actions: a forward and a backward of each chunk, 2 micro-batches per stage
    unit = 1 if chunks == 1 else stages
    for period in range(unit, stages * unit + 1, unit):
        back = 2 * chunks * period
        if any(len(row) < window + back for row in starts):
            return None
        seconds = starts[0][-1] - starts[0][-1 - back]
        if all(
            abs(row[-i] - row[-i - back] - seconds) <= EQUAL * whole for row in starts for i in range(1, window + 1)
        ):
            return period, seconds
    return None


def least(stages: int, microbatches: int, chunks: int, forward: Sequence[float], backward: Sequence[float]) -> float:
    """Return a lower bound of `makespan`: each stage's work, and what must come before and after it.

    stages: their number.
    microbatches: their number.
    chunks: parts of the model on each stage.
    forward, backward: seconds of a micro-batch on each part of the model, in its order, stages * chunks of them.
    """
    bound = 0.0
    for s in range(stages):
        work = microbatches * (sum(forward[s::stages]) + sum(backward[s::stages]))
        around = sum(forward[:s]) + sum(backward[:s])
        # Until its first gradient comes back, a stage has only the forwards that 1F1B allows it.
        later = sum(forward[s + 1 :]) + sum(backward[s + 1 :]) if chunks == 1 else 0.0
        wait = max(0.0, later - (stages - 1 - s) * forward[s])
        bound = max(bound, work + around + wait)
    return bound


def in_flight(stages: int, microbatches: int, chunks: int, stage: int) -> float:
    """Return the most micro-batches whose activations a stage of (interleaved) 1F1B holds.

    stages: their number.
    microbatches: their number.
    chunks: parts of the model on each stage; one chunk of a micro-batch counts 1 / chunks.
    stage: its number, from 0.
    """
    if chunks == 1:
        return min(microbatches, stages - stage)
    rounds = max(1, microbatches // stages)
    group = microbatches // rounds + (microbatches % rounds > 0)  # the first group of interleaved_one_f_one_b
    ahead = (chunks - 1) * group + 2 * (stages - 1 - stage)
    return min(microbatches * chunks, ahead + 1) / chunks
