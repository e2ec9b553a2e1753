"""Published times of training steps on one GPU, each beside what a virtual one takes.

docs/virtual_gpus.md says which tables these are. No number of a virtual GPU is fitted to them. A step is forward, loss,
backward and update, with the batch on the GPU. Mixed precision is autocast to float16 with a loss scale. Float32 on an
A100 is TF32, in products, too, as in NVIDIA's containers.

`python -m tests.validation step-times --page docs/virtual_gpus.md` writes the table of that page.
"""

import contextlib
import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from mpcourse.common.errors import UserError
from mpcourse.common.provenance import versions
from mpcourse.course.bench.record import Record
from mpcourse.models import ResNet50
from mpcourse.virtual import GPUS, virtual_gpus
from tests.validation.memory_models import load_torchvision
from tests.validation.memory_table import between
from tests.validation.step_models import GNMT, SSD300, BertLarge, NNUNet

MARKS = "<!-- steps: made by tests/validation/step_times.py -->", "<!-- end of steps -->"
WITHIN = 0.25


def _timm(name: str) -> nn.Module:
    load_torchvision()  # which timm imports
    import timm
    from timm.layers import set_fused_attn

    set_fused_attn(False)  # when the tables were made there was none
    return timm.create_model(name)


@dataclass(frozen=True)
class Setting:
    """How a network was trained.

    make: the network; its forward gives logits, or the loss. shape: of one example. tokens: it holds such.
    optimizer: a name of torch.optim. every: steps whose gradients are added up before an update.
    last: in which precisions images are channels last. counted: what an example counts for.
    """

    make: Callable[[], nn.Module]
    shape: tuple[int, ...] = (3, 224, 224)
    tokens: bool = False
    optimizer: str = "SGD"
    every: int = 1
    last: str = "mixed"
    counted: int = 1


_B0 = Setting(partial(_timm, "efficientnet_b0"), optimizer="RMSprop")
_B4 = Setting(partial(_timm, "efficientnet_b4"), (3, 380, 380), optimizer="RMSprop")
SETTINGS = {
    "ResNet-50": Setting(ResNet50),
    "ResNeXt-101": Setting(partial(_timm, "resnext101_32x4d")),
    "SE-ResNeXt-101": Setting(partial(_timm, "seresnext101_32x4d")),
    "EfficientNet-B0": _B0,
    "EfficientNet-B4": _B4,
    "EfficientNet-WideSE-B0": _B0,  # wider squeezes cost next to nothing
    "EfficientNet-WideSE-B4": _B4,
    "SSD300": Setting(SSD300, (3, 300, 300), last="all"),
    "BERT-large, 128 tokens": Setting(partial(BertLarge, True), (128,), True, "AdamW", every=64),
    "BERT-large, 512 tokens": Setting(partial(BertLarge, True), (512,), True, "AdamW", every=64),
    "BERT-large, SQuAD": Setting(partial(BertLarge, False), (384,), True, "AdamW"),
    "nnU-Net 2-D": Setting(partial(NNUNet, 2), (4, 192, 160), optimizer="Adam", last=""),
    "nnU-Net 3-D": Setting(partial(NNUNet, 3), (4, 128, 128, 128), optimizer="Adam"),
    # Sentences of WMT16 are taken to have 27 tokens in both languages, and batches to hold no padding.
    "GNMT": Setting(GNMT, (27,), True, "Adam", counted=2 * 27),
}
# Network; GPU; batch and rate (examples a second; GNMT: tokens) in full precision, and in mixed precision.
NVIDIA = """
ResNet-50; A100-SXM4; 256 938; 256 2470
ResNet-50; Tesla V100-SXM2-16GB; 112 367; 256 1200
ResNet-50; Tesla V100-SXM2; 112 356; 256 1156
ResNeXt-101; A100-SXM4; 128 456; 128 1211
ResNeXt-101; Tesla V100-SXM2-16GB; 64 147; 128 587
ResNeXt-101; Tesla V100-SXM2; 64 144; 128 565
SE-ResNeXt-101; A100-SXM4; 128 395; 128 855
SE-ResNeXt-101; Tesla V100-SXM2-16GB; 64 132; 112 443
SE-ResNeXt-101; Tesla V100-SXM2; 64 130; 112 427
EfficientNet-B0; A100-SXM4; 256 1078; 256 2489
EfficientNet-B4; A100-SXM4; 64 157; 128 331
EfficientNet-WideSE-B0; A100-SXM4; 256 1078; 256 2512
EfficientNet-WideSE-B4; A100-SXM4; 64 157; 128 331
EfficientNet-B0; Tesla V100-SXM2-16GB; 64 655; 128 1301
EfficientNet-B4; Tesla V100-SXM2-16GB; 16 83; 32 204
EfficientNet-WideSE-B0; Tesla V100-SXM2-16GB; 64 655; 128 1299
EfficientNet-WideSE-B4; Tesla V100-SXM2-16GB; 16 83; 32 204
EfficientNet-B0; Tesla V100-SXM2; 128 646; 256 1401
EfficientNet-B4; Tesla V100-SXM2; 32 36; 64 89
EfficientNet-WideSE-B0; Tesla V100-SXM2; 128 281; 256 603
EfficientNet-WideSE-B4; Tesla V100-SXM2; 32 36; 64 89
SSD300; A100-SXM4; 64 364.27; 64 662.91
SSD300; A100-SXM4; 128 377.18; 128 724.41
SSD300; Tesla V100-SXM2-16GB; 32 107.22; 32 296.80
SSD300; Tesla V100-SXM2-16GB; ; 64 322.81
BERT-large, 128 tokens; A100-SXM4; 128 317; 256 580
BERT-large, 512 tokens; A100-SXM4; 16 110; 32 210
BERT-large, SQuAD; A100-SXM4; 32 61.5; 32 110.5
BERT-large, 128 tokens; Tesla V100-SXM2; 32 50; 64 224
BERT-large, 512 tokens; Tesla V100-SXM2; 4 19; 8 75
BERT-large, SQuAD; Tesla V100-SXM2; 8 12; 16 52
nnU-Net 2-D; A100-SXM4; 32 732.22; 32 1040.58
nnU-Net 2-D; A100-SXM4; 64 797.37; 64 1238.68
nnU-Net 2-D; A100-SXM4; 128 838.38; 128 1345.29
nnU-Net 3-D; A100-SXM4; 1 9.66; 1 24.61
nnU-Net 3-D; A100-SXM4; 2 11.27; 2 27.48
nnU-Net 3-D; A100-SXM4; 4 12.22; 4 29.96
nnU-Net 2-D; Tesla V100-SXM2; 32 310.21; 32 561.6
nnU-Net 2-D; Tesla V100-SXM2; 64 326.02; 64 657.91
nnU-Net 2-D; Tesla V100-SXM2; 128 332.81; 128 706.92
nnU-Net 3-D; Tesla V100-SXM2; 1 2.07; 1 11.38
nnU-Net 3-D; Tesla V100-SXM2; 2 2.51; 2 12.34
GNMT; A100-SXM4-40GB; 128 83214; 128 140909
GNMT; Tesla V100-SXM2-16GB; 128 21860; 128 76438
GNMT; Tesla V100-SXM2; 128 25583; 128 87829
"""
# timm's name; batch, size of its images, and images a second, in mixed precision and channels last on an RTX 3090.
TIMM = """
tinynet_e; 512 106 11915.85
ghostnet_050; 512 224 3670.99
mobilenetv2_075; 512 224 2609.91
resnet34; 512 224 2036.51
resnetrs50; 512 160 1686.45
sedarknet21; 512 256 1401.98
cs3darknet_focus_l; 384 256 1216.61
resnet50t; 384 224 1076.81
dpn68; 384 224 992.27
nf_seresnet50; 384 224 892.73
convnext_tiny_hnf; 256 224 819.46
skresnet50d; 256 224 739.17
xcit_nano_12_p16_384_dist; 256 384 671.72
dla102x; 192 224 598.42
mobilevitv2_150; 128 256 533.38
tf_efficientnetv2_s_in21ft1k; 128 300 488.77
cs3se_edgenet_x; 192 256 457.05
vit_base_patch16_224_sam; 192 224 392.92
regnetz_b16_evos; 128 224 347.19
swinv2_cr_small_224; 128 224 299.81
tf_efficientnet_b4_ap; 64 380 242.14
swinv2_cr_base_224; 96 224 213.21
repvgg_b1g4; 512 224 167.59
convnext_base_384_in22ft1k; 48 384 115.58
deit3_base_patch16_384; 32 384 93.5
efficientnet_b6; 16 528 64.08
tf_efficientnet_b7_ap; 8 600 37.27
convmixer_1536_20; 48 224 20.83
"""
# What the tables themselves say against some of their rows, whatever ours are.
DOUBTS = {
    ("EfficientNet-B4", "Tesla V100-SXM2"): "8 GPUs are 17.6 times as fast",
    ("EfficientNet-WideSE-B0", "Tesla V100-SXM2"): "8 GPUs are 17.5 times as fast",
    ("EfficientNet-WideSE-B4", "Tesla V100-SXM2"): "8 GPUs are 17.6 times as fast",
    ("BERT-large, 512 tokens", "A100-SXM4"): "more tokens a second than at 128: they are shorter",
    ("BERT-large, 512 tokens", "Tesla V100-SXM2"): "more tokens a second than at 128: they are shorter",
}


@dataclass(frozen=True)
class Row:
    """A published step: of a network, on a GPU, with so many examples; rate: examples a second."""

    network: str
    setting: Setting
    gpu: str
    batch: int
    rate: float
    mixed: bool

    @property
    def precision(self) -> str:
        """Return the name that the page's table gives it."""
        return "mixed" if self.mixed else "TF32" if GPUS[self.gpu].tf32 else "float32"

    @property
    def doubt(self) -> str:
        """Return what its own table says against it."""
        return DOUBTS.get((self.network, self.gpu), "")


def rows() -> Iterator[Row]:
    """Yield all rows of both tables, in their order."""
    for line in NVIDIA.strip().splitlines():
        network, gpu, *found = (part.strip() for part in line.split(";"))
        for mixed, pair in enumerate(found):
            if pair:
                batch, rate = pair.split()
                yield Row(network, SETTINGS[network], gpu, int(batch), float(rate), bool(mixed))
    for line in TIMM.strip().splitlines():
        network, figures = line.split(";")
        batch, size, rate = figures.split()
        make = partial(_timm, network.removesuffix("_sam"))  # which only names weights
        yield Row(network, Setting(make, (3, int(size), int(size))), "RTX 3090", int(batch), float(rate), True)


def predicted(row: Row) -> float:
    """Predict the examples (of GNMT: tokens) a second of the row's step on its virtual GPU."""
    s, shape = row.setting, (row.batch, *row.setting.shape)
    layouts = {4: torch.channels_last, 5: torch.channels_last_3d}
    layout = layouts.get(len(shape)) if s.last == "all" or (row.mixed and s.last == "mixed") else None
    with virtual_gpus(1, row.gpu, dry=True, record=False) as box, torch.device("vgpu:0"), _tf32():
        net: Any = s.make().to("vgpu:0").train()
        x = torch.zeros(shape, dtype=torch.int64 if s.tokens else torch.float32)
        if layout is not None:
            net, x = net.to(memory_format=layout), x.to(memory_format=layout)
        momentum = {"momentum": 0.9} if s.optimizer in ("SGD", "RMSprop") else {}
        optimizer = getattr(torch.optim, s.optimizer)(net.parameters(), lr=0.1, **momentum)
        scaler = torch.amp.GradScaler("vgpu", enabled=row.mixed)

        def learn() -> None:
            with torch.autocast("vgpu", torch.float16, enabled=row.mixed):
                out = net(x)
                out = out[0] if isinstance(out, tuple | list) else out
                loss = out if out.dim() == 0 else F.cross_entropy(out, torch.zeros_like(out[:, 0], dtype=torch.int64))
            scaler.scale(loss).backward()

        def update() -> None:
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()

        def seconds(run: Callable[[], None]) -> float:
            start = box.synchronize()
            run()
            return box.synchronize() - start

        learn()
        update()  # makes the optimizer's state
        return row.batch * s.counted / (seconds(learn) + seconds(update) / s.every)


@contextlib.contextmanager
def _tf32() -> Iterator[None]:
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def step_times(runs: int = 1) -> Iterator[Record]:
    """Compare all rows with the published ones. Virtual time is exact, so one run is enough.

    Raises UserError where the library of some networks is not installed.
    """
    try:
        load_torchvision()
        import timm  # noqa: F401
    except ImportError:
        raise UserError("some networks are timm's: pip install -c constraints.txt '.[models]'") from None
    found = [(row, predicted(row) / row.rate) for row in rows()]
    for row, ratio in found:
        what = f"{row.network}, {row.gpu.removeprefix('Tesla ')}, batch {row.batch}, {row.precision}"
        yield Record(f"{what}: ours against published", [ratio], "x")
    yield Record("median of ours against published", [statistics.median(r for _, r in found)], "x")
    yield Record(f"rows within {WITHIN:.0%}", [100 * _near([r for _, r in found])], "%")


def _near(ratios: list[float]) -> float:
    return sum(abs(ratio - 1) <= WITHIN for ratio in ratios) / len(ratios)


def table(found: list[tuple[Row, float]]) -> Iterator[str]:
    """Yield the lines of the page's table, and what they come to."""
    yield "| network | GPU | batch | precision | published | virtual | ratio |"
    yield "|---" * 7 + "|"
    for row, ratio in found:
        gpu = row.gpu.removeprefix("Tesla ")
        doubt = f" ({row.doubt})" if row.doubt else ""
        miss = f"**{ratio:.2f}**" if abs(ratio - 1) > WITHIN else f"{ratio:.2f}"
        figures = f"{row.rate:g} | {ratio * row.rate:.4g} | {miss}{doubt}"
        yield f"| {row.network} | {gpu} | {row.batch} | {row.precision} | {figures} |"
    yield ""
    for what, ratios in (
        ("All", [r for _, r in found]),
        ("Without the rows that their own tables contradict", [r for row, r in found if not row.doubt]),
    ):
        yield (
            f"{what}: {len(ratios)} rows, median {statistics.median(ratios):.2f}, {_near(ratios):.0%} of them within "
            f"{WITHIN:.0%}, from {min(ratios):.2f} to {max(ratios):.2f}."
        )
    used = ", ".join(f"{name} {version}" for name, version in versions("torch", "timm").items())
    yield f"{used}."


def write(page: Path) -> None:
    """Write the table between its markers in a page."""
    lines = list(table([(row, predicted(row) / row.rate) for row in rows()]))
    page.write_text(between(page.read_text(), *MARKS, lines))
