"""Peaks of virtual GPUs beside an independent count of live storages, and the page that tells of them."""

import re
import sys
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from mpcourse.common.errors import UserError
from mpcourse.models import ResNet50, UNet3D, mlp
from mpcourse.virtual import virtual_gpus
from mpcourse.virtual.gpus import autocast, cost, dispatch
from tests.conftest import ROOT
from tests.validation.anatomy import ROWS
from tests.validation.anatomy import predicted as predicted_of_bert
from tests.validation.memory import KINDS, beside, both, measured, memory, predicted
from tests.validation.memory_autocast import autocast_as_cuda
from tests.validation.memory_models import MODELS
from tests.validation.memory_table import BEGIN, END, off, row, with_table
from tests.validation.memory_tracker import tracking
from tests.validation.truth import Language

PAGE = (ROOT / "docs/virtual_gpus.md").read_text()


class Named(nn.Module):
    """A network as the library's are: it takes its batch by name, and returns an object with logits."""

    def __init__(self, net):
        super().__init__()
        self.net = net

    def forward(self, x):
        return SimpleNamespace(logits=self.net(x))

    def gradient_checkpointing_enable(self, options):
        for name, block in list(self.net.named_children()):
            setattr(self.net, name, Checkpointed(block, options))


class Checkpointed(nn.Module):
    def __init__(self, block, options):
        super().__init__()
        self.block, self.options = block, options

    def forward(self, *args):
        return torch.utils.checkpoint.checkpoint(self.block, *args, **self.options)


@dataclass(frozen=True)
class Own:
    make_net: Any
    shape: tuple[int, ...]
    words: bool = False
    head: str = ""

    def make(self):
        return Named(self.make_net())

    def batch(self, device, dtype, size):
        dtype = torch.int64 if self.words else dtype
        return {"x": torch.zeros(size, *self.shape[1:], dtype=dtype, device=device)}

    def output(self, net, batch):
        return net(**batch).logits


def dropped():
    return nn.Sequential(nn.Linear(256, 512), nn.Dropout(0.1), nn.GELU(), nn.LayerNorm(512), nn.Linear(512, 64))


def gated():
    return nn.Sequential(nn.Linear(256, 512), nn.SiLU(), nn.Linear(512, 512), nn.SiLU(), nn.Linear(512, 64))


class Heads(nn.Module):
    """Blocks that normalize by RMS norm and attend, their heads before their steps."""

    def __init__(self):
        super().__init__()
        self.norms = nn.ModuleList(nn.RMSNorm(64) for _ in range(2))
        self.qkv = nn.ModuleList(nn.Linear(64, 192) for _ in range(2))
        self.out = nn.ModuleList(nn.Linear(64, 64) for _ in range(2))

    def forward(self, x):
        for norm, qkv, out in zip(self.norms, self.qkv, self.out, strict=True):
            q, k, v = (t.contiguous() for t in qkv(norm(x)).view(*x.shape[:2], 3, 4, 16).permute(2, 0, 3, 1, 4))
            y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + out(y.transpose(1, 2).flatten(2))
        return x


OWN = {
    "gated": Own(gated, (512, 256)),
    "heads": Own(Heads, (8, 64, 64)),
    "mlp": Own(mlp, (100, 784)),
    "dropout": Own(dropped, (512, 256)),
    "resnet": Own(ResNet50, (2, 3, 64, 64)),
    "unet": Own(UNet3D, (2, 1, 16, 16, 16)),
    "language": Own(lambda: Language(500, 64, 2), (4, 32), True),
}


# Not all have checkpoints: blocks may be called in another order, or change in place what another one has saved.
CASES = [(name, kind) for name in OWN for kind in KINDS if kind != "checkpoints" or name in ("mlp", "dropout")]


@pytest.mark.parametrize(("name", "kind"), CASES)
def test_the_peak_of_a_virtual_gpu_is_that_of_an_independent_count(name, kind):
    ours, theirs = both(OWN[name], kind)
    assert ours == pytest.approx(theirs, rel=0.01) and theirs > 2**18


def test_the_count_sees_an_operation_that_a_box_takes_apart_though_cuda_has_a_kernel(monkeypatch):
    def taken_apart(func, key):
        return key == "CompositeImplicitAutograd" and cost._has_kernel_before(func, key)

    monkeypatch.setattr(cost, "_has_kernel_before", cost._has_kernel, raising=False)
    monkeypatch.setattr(cost, "_has_kernel", taken_apart)
    monkeypatch.setattr(dispatch, "_known", {})
    ours, theirs = both(OWN["gated"], "train")
    assert ours > 1.1 * theirs


class Repeated(nn.Module):
    """One layer, whose weight is used eight times."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(512, 512)

    def forward(self, x):
        for _ in range(8):
            x = self.layer(x).relu()
        return x


class Forgetful(dict):
    def __setitem__(self, key, value):
        pass


def test_the_count_sees_that_a_box_casts_a_weight_at_each_use(monkeypatch):
    model = Own(Repeated, (64, 512))
    ours, theirs = both(model, "autocast")
    assert ours == pytest.approx(theirs, rel=0.001)
    monkeypatch.setattr(autocast._casts, "of", Forgetful())
    ours, theirs = both(model, "autocast")
    assert ours > 1.1 * theirs


@pytest.mark.parametrize("kind", ["train", "autocast"])
def test_what_is_measured_on_a_device_is_the_run_that_is_predicted(kind):
    ours, workspaces = predicted(OWN["language"], kind, "H200-SXM")
    with virtual_gpus(1, "H200-SXM"):
        peak = measured(OWN["language"], kind, torch.device("vgpu:0"))
    assert ours <= peak < ours + 0.05 * (ours - workspaces)  # the allocator rounds up


class AtOnce:
    """A process that measures, but in this one; `made` counts them."""

    made = 0

    def __init__(self, workers, context):
        AtOnce.made += 1

    def submit(self, function, *args):
        return SimpleNamespace(result=lambda: function(*args))

    def shutdown(self):
        pass


def test_a_gpu_is_compared_model_by_model_and_an_error_of_one_is_a_row(monkeypatch):
    off = {"exact": 0, "near": 1.9, "far": 2.1, "out": torch.OutOfMemoryError("no room"), "last": 0}
    off["wrong"] = RuntimeError("CUDA error: device-side assert triggered\nSearch for it")

    def measure(model, kind, device):
        if isinstance(off[model.head], Exception):
            raise off[model.head]
        return predicted(model, kind, "H200-SXM")[0] / (1 + off[model.head] / 100)

    models = [replace(OWN["mlp"], head=head) for head in ("exact", "near", "wrong", "far", "out", "last")]
    values = {"MODELS": models, "measured": measure, "ProcessPoolExecutor": AtOnce}
    for name, value in values.items():
        monkeypatch.setattr(sys.modules[beside.__module__], name, value)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "NVIDIA H200")
    records = list(beside(torch.device("cuda:0")))
    assert [r.what.split(",")[0] for r in records] == [m.head for m in models for _ in range(2)]
    assert [r.kept for r in records[::2]] == [True, True, False, False, True, True]
    assert "train: RuntimeError: CUDA error: device-side assert triggered" in records[4].what
    assert records[8].promise is None and AtOnce.made == 5  # a new process after each of the four errors


def dtype_of(run):
    """Return the dtype of a result, or None where torch refuses arguments of two dtypes."""
    try:
        return run().dtype
    except RuntimeError:
        return None


def dtypes(x, weight):
    """Return the dtypes of results in a region of autocast, of `x` in bfloat16 and `weight` in float32."""
    with torch.autocast(x.device.type, torch.bfloat16):
        results = {
            "lower precision": x @ weight, "float32": F.layer_norm(x, [4]), "float32 result": x.softmax(-1),
            "asked for": x.sum(0, dtype=torch.float64), "none": x + 1, "within another": F.cross_entropy(x, x),
            "the CPU's alone": F.pad(x, (1, 1), "reflect"),
        }  # fmt: skip
        found = {name: t.dtype for name, t in results.items()} | {
            "widest": dtype_of(lambda: torch.dot(x[0], weight[0]))
        }
        with torch.autocast(x.device.type, enabled=False):
            return found | {"nested": dtype_of(lambda: x @ weight)}


def test_autocast_in_the_count_casts_as_on_a_virtual_gpu_and_leaves_that_of_the_cpu_alone():
    x, weight = torch.ones(4, 4, dtype=torch.bfloat16), torch.ones(4, 4)
    before = dtypes(x, weight)
    with autocast_as_cuda():
        counted = dtypes(x, weight)
    assert dtypes(x, weight) == before != counted
    with virtual_gpus(1):
        assert dtypes(x.to("vgpu:0"), weight.to("vgpu:0")) == counted
    assert counted["widest"] == counted["float32"] == torch.float32 and counted["nested"] is None


def test_the_count_is_of_storages_that_are_alive():
    with tracking() as tracker:
        a = torch.zeros(1000)
        b = a[:10].view(2, 5)
        del a
        assert tracker.held == 4000
        c = b + 1
        assert (tracker.held, tracker.most) == (4040, 4040)
        del b, c
        assert (tracker.held, tracker.most) == (0, 4040)


def test_the_page_has_every_model_within_two_percent_in_each_kind_of_run():
    rows = PAGE.split(BEGIN)[1].split(END)[0].strip().splitlines()
    assert [line.split("|")[1].strip() for line in rows[2:-2]] == [model.head for model in MODELS]
    assert len({(model.library, model.head) for model in MODELS}) == len(MODELS) >= 45
    for line in rows[2:-2]:
        offs = re.findall(r"[\d.]+ \((\S+?)(?: %)?\)", line)
        assert len(offs) == len(KINDS)
        assert all(abs(float(each)) <= 2 for each in offs)
    assert re.search(r"torch [\d.]+\S*, transformers [\d.]+", rows[-1])


def test_the_page_counts_its_rows_of_an_h200_and_names_each_that_is_off_by_more_than_two_percent():
    section = PAGE.split("### Forty-four public models")[1].split("\n## ")[0]
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in section.splitlines() if line.startswith("| ")]
    assert [name for name, *_ in rows[1:]] == [m.head for m in MODELS if m.library != "diffusers"]
    for column, kind in enumerate(("train", "autocast"), start=1):
        offs = {row[0]: re.search(r"\(([^ )]+)", row[column]) for row in rows[1:]}
        misses = {name: abs(float(found[1])) for name, found in offs.items() if found}
        far = [name for name, each in misses.items() if each > 2]
        assert f"{len(misses) - len(far)} of {len(misses)}" in section and max(misses.values()) < 5
        assert re.search(rf"^- {kind}: ([^.]+)\.$", section, re.MULTILINE)[1].split() == ", ".join(far).split()


@pytest.mark.parametrize("head", ["BertForMaskedLM", "LlamaForCausalLM", "ResNetForImageClassification"])
def test_the_page_says_what_the_command_finds(head):
    pytest.importorskip("transformers", reason="pip install -c constraints.txt -e '.[models]' makes this one run")
    (model,) = (m for m in MODELS if m.head == head)
    assert row(head, [both(model, "train")])[:-1] in PAGE


def test_the_page_says_what_the_anatomy_of_bert_is_found_to_be():
    pytest.importorskip("transformers", reason="pip install -c constraints.txt -e '.[models]' makes this one run")
    mib, rate = predicted_of_bert(ROWS[2])
    assert f"| 6775 | {mib:.0f} | -1 % | 5.99 | {rate:.2f} |" in PAGE


def test_a_table_is_written_between_its_markers():
    assert off(1000, 1000) == "0" and off(1019, 1000) == "+1.90 %" and off(990, 1000) == "-1.00 %"
    text = with_table(f"a\n{BEGIN}\nold\n{END}\nb", [row("m", [(2**20, 2**20)] * len(KINDS))])
    assert "| m | 1.00 (0) |" in text and "old" not in text and text.startswith("a\n") and text.endswith("\nb")
    with pytest.raises(ValueError, match="once"):
        with_table("nothing", [])


def test_without_the_library_the_command_says_how_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(UserError, match=r"\[models\]"):
        list(memory())
