"""Published tables of pipelines, replayed on virtual GPUs: ours beside theirs, row by row."""

from collections.abc import Iterator

from mpcourse.course.bench.record import Record
from mpcourse.data.published import PIPELINE_TUTORIAL, TORCHGPIPE_RESNET101, TORCHGPIPE_UNET
from mpcourse.models.flat import flat_resnet101, flat_unet
from mpcourse.pipeline.tables import replayed_rates, slowed_to_the_tutorial, tutorial_seconds
from mpcourse.virtual import GPUS

PROMISE = 15.0  # percent by which the tutorial's ratios to one GPU may be off, for its four numbers
PROMISED = ("model parallel", 12, 20)


def pipelines(runs: int = 1) -> Iterator[Record]:
    """Predict PyTorch's tutorial, with one fitted efficiency, and torchgpipe's speedups, with none.

    Virtual time is arithmetic, so one run is all that there is.
    """
    gpu = slowed_to_the_tutorial(GPUS["Tesla P100-SXM2"], "NVLink 1")
    published: dict[int | str, float] = {"single": PIPELINE_TUTORIAL.single}
    published |= {"model parallel": PIPELINE_TUTORIAL.model_parallel} | PIPELINE_TUTORIAL.pipelined
    predicted = tutorial_seconds(gpu, "NVLink 1", list(published))
    for run, seconds in published.items():
        what = f"tutorial, {run if isinstance(run, str) else f'splits of {run}'}"
        yield Record(f"{what}: ours (published {seconds:g})", [predicted[run]])
        if run != "single":
            off = 100 * abs(predicted[run] / predicted["single"] / (seconds / published["single"]) - 1)
            yield Record(f"{what}: ratio to one GPU off by", [off], "%", PROMISE if run in PROMISED else None)
    for name, make, table in (
        ("ResNet-101", flat_resnet101, TORCHGPIPE_RESNET101),
        ("U-Net", flat_unet, TORCHGPIPE_UNET),
    ):
        alone, *rates = replayed_rates(make, table, "Tesla P40", "PCIe 3.0 x16")
        yield Record(f"torchgpipe, {name}: one P40 (published {table.alone.rate:g})", [alone], "examples/s")
        for rate, row in zip(rates, table.rows, strict=True):
            theirs = row.rate / table.alone.rate
            what = f"torchgpipe, {name}: speedup of pipeline-{len(row.balance)} (published {theirs:.3f})"
            yield Record(what, [rate / alone], "times")
