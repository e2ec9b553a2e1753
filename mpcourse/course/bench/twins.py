"""What lesson 12 sets side by side: a step of training by this course's library and by torch's own, in one run."""

from collections.abc import Iterator

from mpcourse.course.bench.over_ranks import measured
from mpcourse.course.bench.record import Record

# Name, and the width and the batch of a transformer's MLP block or of a chain of layers.
CASES = [(way, width, 128) for way in ("data parallel", "tensor parallel", "pipeline") for width in (128, 512)]


def twins(runs: int = 5, np: int = 2) -> Iterator[Record]:
    """Time a step of SGD, one thread and one core a rank, float32; ours and theirs take turns.

    data parallel: DistributedDataParallel; tensor parallel: DTensor by parallelize_module; pipeline: Schedule1F1B with
    4 micro-batches. Theirs sends over gloo. After each run the parameters of both are compared.
    """
    cases = [[*case, runs] for case in CASES]
    for measurement in measured("mpcourse.course.bench.twins_ranks", cases, np, keep_memory=True):
        way, width, batch, _ = measurement["case"]
        case = f"{way}, width {width}, batch {batch}"
        for side in ("ours", "torch"):
            yield Record(f"{case}: {side}", [1e3 * s for s in measurement["seconds"][side]], "ms")
        yield Record(f"{case}: torch / ours", measurement["ratios"], "times")
        yield Record(f"{case}: parameters differ by", [measurement["difference"]], "relative", 1e-4)
