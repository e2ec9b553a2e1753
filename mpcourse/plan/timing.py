"""How long a pipeline of very many micro-batches takes: the replay of a few, and the steady state."""

from collections.abc import Sequence

from mpcourse.pipeline import Costs, interleaved_one_f_one_b, replay

EQUAL = 1e-9  # relative: of two steady states


def makespan(
    stages: int, microbatches: int, chunks: int, forward: Sequence[float], backward: Sequence[float],
    transfer: Sequence[float],
) -> float:  # fmt: skip
    """Seconds of (interleaved) 1F1B from the first start to the last end, as `mpcourse.pipeline.replay` has them.

    forward, backward: of a micro-batch on each part of the model, in its order, stages * chunks of them. transfer: over
    each cut between parts. Of many micro-batches fewer are replayed: three numbers of them, each larger by as many as
    there are stages. Where the second step takes as long as the first, and no less than the busiest stage computes in
    it, the pipeline is steady, and each further step takes as long.
    """
    busiest = max(sum(forward[s::stages]) + sum(backward[s::stages]) for s in range(stages))

    def replayed(count: int) -> float:
        costs = Costs(forward, backward, transfer=transfer)
        return replay(interleaved_one_f_one_b(stages, count, chunks), costs).makespan

    first, later = stages + microbatches % stages, 2 * stages
    while first + 2 * stages < microbatches:
        a, b, c = (replayed(first + i * stages) for i in range(3))
        steady = abs((c - b) - (b - a)) <= EQUAL * c
        if steady and c - b >= stages * busiest * (1 - EQUAL):
            return c + (microbatches - first - 2 * stages) // stages * (c - b)
        first, later = first + later, 2 * later
    return replayed(microbatches)


def least(stages: int, microbatches: int, chunks: int, forward: Sequence[float], backward: Sequence[float]) -> float:
    """A time that `makespan` is never below: what each stage does, and what must come before its first and after its
    last action."""
    found = 0.0
    for s in range(stages):
        work = microbatches * (sum(forward[s::stages]) + sum(backward[s::stages]))
        around = sum(forward[:s]) + sum(backward[:s])
        # Until its first gradient comes back a stage has no more to do than the forwards that 1F1B allows it.
        later = sum(forward[s + 1 :]) + sum(backward[s + 1 :]) if chunks == 1 else 0.0
        wait = max(0.0, later - (stages - 1 - s) * forward[s])
        found = max(found, work + around + wait)
    return found


def in_flight(stages: int, microbatches: int, chunks: int, stage: int) -> float:
    """The most micro-batches whose activations a stage of (interleaved) 1F1B holds; one of a chunk is 1 / chunks."""
    if chunks == 1:
        return min(microbatches, stages - stage)
    rounds = max(1, microbatches // stages)
    group = microbatches // rounds + (microbatches % rounds > 0)  # the first one, as interleaved_one_f_one_b makes it
    ahead = (chunks - 1) * group + 2 * (stages - 1 - stage)
    return min(microbatches * chunks, ahead + 1) / chunks
