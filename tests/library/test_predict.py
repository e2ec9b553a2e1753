"""Prediction of a person's own model: bytes that follow from arithmetic, cuts, and what is said of what cannot be."""

import json

import pytest
import torch
from torch import nn

from mpcourse.common.errors import UserError
from mpcourse.models import ResNet50, UNet3D, mlp
from mpcourse.predict import OPTIMIZERS, find_maker, predict
from mpcourse.predict.place import moved
from mpcourse.virtual import GPUS
from mpcourse.zero.model_states import held, sent
from tests.course.test_cli import assert_one_line_error

MiB = 2**20
NUMBERS = 20 * 30 + 30 + 30 * 5 + 5  # of an mlp([20, 30, 5])


def small():
    return mlp([20, 30, 5])


class Language(nn.Module):
    """(batch, length) of tokens -> a dict of logits. Its blocks stand in a ModuleList."""

    def __init__(self, tied=False):
        super().__init__()
        self.embedding = nn.Embedding(50, 8)
        self.position = nn.Parameter(torch.zeros(1, 8))
        self.blocks = nn.ModuleList(nn.Linear(8, 8) for _ in range(3))
        self.head = nn.Linear(8, 50, bias=False)
        if tied:
            self.head.weight = self.embedding.weight

    def forward(self, tokens):
        x = self.embedding(tokens) + self.position
        for block in self.blocks:
            x = block(input=x)
        return {"loss": None, "logits": self.head(x)}


@pytest.mark.parametrize(("optimizer", "states"), [("sgd", 0), ("momentum", 1), ("adam", 2), ("adamw", 2)])
def test_a_step_keeps_gradients_like_the_parameters_and_the_optimizers_state(optimizer, states):
    (device,) = predict(small, [7, 20], optimizer=optimizer).devices
    assert device.kept["parameters"] == device.kept["gradients"] == 4 * NUMBERS
    assert device.kept.get("optimizer state", 0) == states * 4 * NUMBERS == OPTIMIZERS[optimizer][1] * 4 * NUMBERS
    assert device.peak["parameters"] == 4 * NUMBERS


def test_what_nvidia_smi_shows_is_reserved_and_context_and_never_less_than_allocated():
    found = predict(small, [7, 20], "A100-SXM4")
    (device,) = found.devices
    assert device.allocated == sum(device.peak.values()) <= device.reserved
    assert device.total == device.reserved + device.context and device.context == GPUS["A100-SXM4"].context
    assert device.capacity == 80 * 2**30 and device.fits and found.fits
    assert found.seconds > 0 and 0 < device.busy <= 1 and found.copies == {} and found.cut == []


def test_the_batch_lies_on_the_first_device_with_its_bytes():
    assert predict(small, [7, 20]).devices[0].peak["inputs"] == 4 * 7 * 20
    assert predict(Language, [7, 20], tokens=50).devices[0].peak["inputs"] == 8 * 7 * 20


def test_resnet50_cut_after_layer2_is_the_published_split():
    found = predict(ResNet50, [10, 3, 1024, 1024], gpus=2, cut=["layer2"])
    held = [d.allocated - d.peak.get("workspaces", 0) for d in found.devices]
    assert [round(nbytes / MiB) for nbytes in held] == [13566, 4780]
    assert sum(d.kept["parameters"] for d in found.devices) == 4 * 25_557_032
    assert found.devices[1].children == ["layer3", "layer4", "avgpool", "fc"]
    crossing = 4 * 10 * 512 * 128 * 128
    assert found.copies == {"vgpu:0 -> vgpu:1": crossing, "vgpu:1 -> vgpu:0": crossing}
    assert found.across_cut == 2 * crossing and not found.chosen


def test_a_list_of_tensors_crosses_whole():
    found = predict(UNet3D, [2, 1, 8, 8, 8], gpus=2, cut=["encoder"])
    assert found.across_cut == 2 * 4 * 2 * (32 * 8**3 + 64 * 4**3 + 128 * 2**3)


def test_the_blocks_of_a_module_list_can_be_cut_between():
    found = predict(Language, [3, 4], gpus=3, cut=["blocks.0", "blocks.1"], tokens=50)
    assert [d.children for d in found.devices] == [["embedding", "blocks.0"], ["blocks.1"], ["blocks.2", "head"]]
    assert found.across_cut == 2 * 2 * 4 * 3 * 4 * 8
    assert found.devices[0].kept["parameters"] == 4 * (50 * 8 + 8 + 8 * 8 + 8)


def test_cuts_are_taken_in_the_models_order():
    found = predict(Language, [3, 4], gpus=3, cut=["blocks.1", "blocks.0"], tokens=50)
    assert found.devices[1].children == ["blocks.1"]


def test_without_a_cut_the_fullest_device_holds_as_little_as_any_cut_lets_it():
    def make():  # dearest in the middle
        return nn.Sequential(*(nn.Linear(n, m) for n, m in [(8, 8), (8, 2000), (2000, 2000), (2000, 8), (8, 8)]))

    found = predict(make, [16, 8], gpus=2, optimizer="adam")
    fullest = [
        max(d.allocated for d in predict(make, [16, 8], gpus=2, optimizer="adam", cut=[str(i)]).devices)
        for i in range(4)
    ]
    assert found.chosen and max(d.allocated for d in found.devices) == min(fullest) < max(fullest)


def test_what_forward_leaves_behind_counts_in_choosing_the_cut():
    found = predict(ResNet50, [10, 3, 256, 256], gpus=2)
    assert found.cut == ["layer1"]  # by weights alone it would be layer3


def test_what_does_not_fit_is_answered_with_what_it_would_need():
    def wide():
        return nn.Linear(40_000, 40_000, bias=False)

    found = predict(wide, [1, 40_000], "GTX 1080", optimizer="adam")
    (device,) = found.devices
    assert not found.fits and not device.fits and found.seconds is None and device.busy is None
    assert device.allocated > 4 * 4 * 40_000**2 > device.capacity == 8 * 2**30
    assert found.out_of_memory.startswith("vgpu:0 is out of memory: 5.96 GiB asked")
    assert "parameters (40000, 40000)" in found.out_of_memory


def test_only_the_device_that_is_too_small_does_not_fit():
    def make():
        return nn.Sequential(nn.Linear(10, 10), nn.Linear(10, 10**9, bias=False))

    assert [d.fits for d in predict(make, [1, 10], gpus=2, cut=["0"]).devices] == [True, False]


class Fragments(nn.Linear):
    """13 GiB at its fullest, of which 11 find no place: 2 lie in the segment of the 12 that were freed."""

    def forward(self, x):
        for gib in (12, 2, 11):
            held = torch.empty(gib, 2**28, device=x.device)
            if gib == 2:
                kept = held
            del held
        return super().forward(x) + 0 * kept[:1, :1]


def test_memory_in_pieces_does_not_fit_though_there_would_be_enough():
    found = predict(lambda: Fragments(2, 2), [2, 2])
    assert found.devices[0].allocated < 13.1 * 2**30 and not found.devices[0].fits and not found.fits


def test_a_model_larger_than_this_machine_is_no_matter():
    def vast():
        return nn.Linear(10**6, 10**6)

    assert predict(vast, [1, 10**6]).devices[0].kept["parameters"] == 4 * (10**12 + 10**6)


def test_a_model_that_reads_values_while_it_is_built_is_built_on_the_cpu():
    def make():
        return nn.Sequential(nn.Linear(4, 4), nn.Dropout(torch.linspace(0, 0.5, 3)[1].item()))

    assert predict(make, [2, 4]).devices[0].kept["parameters"] == 4 * 20


def test_arguments_move_in_whatever_holds_them():
    given = {"a": [torch.ones(2), (torch.ones(1), "text")], "b": None}
    there = moved(given, torch.device("meta"))
    assert there["a"][0].is_meta and there["a"][1][0].is_meta and there["a"][1][1] == "text" and there["b"] is None


@pytest.mark.parametrize(
    ("make", "batch", "arguments", "phrases"),
    [
        (small, [7, 20], {"gpus": 0}, ["--gpus 0", "at least one"]),
        (small, [7, 20], {"gpus": 5}, ["4 children (0, 1, 2, 3)"]),
        (small, [7, 20], {"gpus": 2, "cut": ["x"]}, ["no child 'x'", "the model has 0, 1, 2, 3"]),
        (small, [7, 20], {"gpus": 2, "cut": ["3"]}, ["nothing comes after '3'", "one of 0, 1, 2"]),
        (small, [7, 20], {"gpus": 3, "cut": ["1", "1"]}, ["'1' twice"]),
        (small, [7, 20], {"cut": ["1"]}, ["2 parts for --gpus 1", "--gpus 2"]),
        (small, [7, 20], {"gpus": 3, "cut": ["1"]}, ["2 parts for --gpus 3"]),
        (small, [7, 20], {"gpu": "P100"}, ["unknown GPU 'P100'", "Tesla P100-SXM2"]),
        (small, [7, 20], {"link": "rope"}, ["unknown link 'rope'", "NVLink 1"]),
        (small, [7, 0], {}, ["--batch 7 0"]),
        (small, [2**40, 2**40], {}, ["--batch", "overflow"]),
        (small, [7, 21], {}, ["a step of Sequential on a 7x21 batch failed", "RuntimeError", "21"]),
        (Language, [7, 2], {}, ["test_predict.py:", "float32"]),
        (Language, [7, 2], {"tokens": 51}, ["--tokens 51", "50 rows"]),
        (Language, [7, 2], {"tokens": 0}, ["--tokens 0"]),
        (lambda: Language(tied=True), [7, 2], {"tokens": 50, "gpus": 2}, ["embedding and head share a parameter"]),
        (nn.ReLU, [2], {}, ["ReLU has no parameter to train"]),
        (lambda: 3, [2], {}, ["must return a torch.nn.Module", "int"]),
        (lambda: 1 / 0, [2], {}, ["failed: ", "test_predict.py:", "ZeroDivisionError: division by zero"]),
        (lambda: Ends(3), [2], {}, ["int64", "no backward"]),
        (lambda: Ends(1), [2], {}, ["holds no tensor"]),
        (lambda: Ends(2), [2], {}, ["test_predict.py:", "tolist()"]),
    ],
)
def test_what_cannot_be_predicted_says_why_in_one_line(make, batch, arguments, phrases):
    with pytest.raises(UserError) as caught:
        predict(make, batch, **arguments)
    assert "\n" not in str(caught.value)
    for phrase in phrases:
        assert phrase in str(caught.value)


class Ends(nn.Module):
    """1: returns no tensor. 2: reads a value. 3: returns integers."""

    def __init__(self, how):
        super().__init__()
        self.how, self.inner = how, nn.Linear(2, 2)

    def forward(self, x):
        y = self.inner(x)
        return {1: lambda: ["none"], 2: lambda: y * len(y.sum(0).tolist()), 3: lambda: y.argmax(0, keepdim=True)}[
            self.how
        ]()


@pytest.fixture
def model_file(tmp_path):
    (tmp_path / "helper.py").write_text("WIDTH = 30\n")
    file = tmp_path / "model.py"
    file.write_text(
        "from torch import nn\nfrom helper import WIDTH\nsomething = 3\n"
        "def make_model():\n    return nn.Sequential(nn.Linear(20, WIDTH), nn.Linear(WIDTH, 5))\n"
        "def huge():\n    return nn.Sequential(nn.Linear(50_000, 50_000), nn.Linear(50_000, 50_000))\n"
        "def needs(n):\n    return nn.Linear(n, n)\n"
    )
    return file


def test_the_command_predicts_a_file_of_ones_own(cli, model_file):
    model_file.write_text(model_file.read_text() + "print('hello')\n")
    done = cli("predict", f"{model_file}:make_model", "--batch", 7, 20, "--gpus", 2, "--cut", 0, "--json")
    told = json.loads(done.stdout)  # what the file prints does not mix with it
    assert done.returncode == 0 and told["fits"] and told["across_cut"] == 2 * 4 * 7 * 30
    assert [d["kept"]["parameters"] for d in told["devices"]] == [4 * (20 * 30 + 30), 4 * (30 * 5 + 5)]


def test_a_model_that_reads_values_is_told_what_the_command_lacks(cli, model_file):
    model_file.write_text(
        model_file.read_text()
        + "class Reads(nn.Linear):\n    def forward(self, x):\n"
        + "        return super().forward(x) * int((x > 0).sum())\ndef reads():\n    return Reads(20, 5)\n"
    )
    done = cli("predict", f"{model_file}:reads", "--batch", 7, 20)
    assert_one_line_error(done, "model.py:12", "needs a value, and this command runs a model without data")
    assert "dry" not in done.stderr


def test_the_table_says_what_is_held_whether_it_fits_and_what_is_not_predicted(cli, model_file):
    shown = cli("predict", f"{model_file}:make_model", "--batch", 7, 20, "--gpus", 2).stdout
    for phrase in ("vgpu:1", "parameters", "as nvidia-smi shows it", "yes", "Cut after 0, chosen", "A step of sgd"):
        assert phrase in shown
    assert "cross the cut" in shown and "Not predicted: cuDNN's workspaces" in shown


def test_the_command_says_what_the_gpu_reaches(cli, model_file):
    asked = ("predict", f"{model_file}:make_model", "--batch", 7, 20)
    told = json.loads(cli(*asked, "--json").stdout)
    rate = told["devices"][0]["flops"] / told["seconds"]
    assert told["peak"] == GPUS[told["gpu"]].flops
    said = f"That is {rate / 1e12:.3g} TFLOP/s, {rate / told['peak']:.0%} of the peak, and {7 / told['seconds']:.4g} "
    assert said + "examples/s" in cli(*asked).stdout


def test_out_of_memory_is_an_answer_with_status_1(cli, model_file):
    done = cli("predict", f"{model_file}:huge", "--batch", 1, 50000)
    assert done.returncode == 1 and "does not fit" in done.stdout and "Traceback" not in done.stderr
    assert "vgpu:0 is out of memory" in done.stdout and "parameters (50000, 50000)" in done.stdout
    told = json.loads(cli("predict", f"{model_file}:huge", "--batch", 1, 50000, "--json").stdout)
    assert told["fits"] is False and told["seconds"] is None


@pytest.mark.parametrize(
    ("spec", "phrases"),
    [
        ("model.py", ["names no function", "model.py:make_model"]),
        ("nosuch.py:f", ["nosuch.py is not a file"]),
        ("model.py:f", ["no function 'f'", "make_model, huge, needs"]),
        ("model.py:something", ["no function 'something'"]),
    ],
)
def test_a_wrong_name_of_a_model_says_what_is_wrong_with_it(model_file, monkeypatch, spec, phrases):
    monkeypatch.chdir(model_file.parent)
    with pytest.raises(UserError) as caught:
        find_maker(spec)
    for phrase in phrases:
        assert phrase in str(caught.value)


@pytest.mark.parametrize(
    ("text", "phrase"),
    [
        ("x = 1\ndef f(:\n", "own.py:2: SyntaxError"),
        ("\n\nimport nosuch\n", "own.py:3: ModuleNotFoundError: No module named 'nosuch'"),
        ("raise SystemExit(3)\n", "own.py:1: SystemExit: 3"),
    ],
)
def test_a_file_that_cannot_be_run_is_blamed_by_its_line(tmp_path, monkeypatch, text, phrase):
    (tmp_path / "own.py").write_text(text)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError) as caught:
        find_maker("own.py:f")
    assert phrase in str(caught.value)


def test_on_the_command_line_each_is_one_line_with_status_2(cli, model_file):
    assert_one_line_error(cli("predict", model_file, "--batch", 1), "names no function")
    assert_one_line_error(cli("predict", f"{model_file}:needs", "--batch", 1), "needs() failed: TypeError", "'n'")
    assert_one_line_error(cli("predict", f"{model_file}:make_model", "--batch", "x"), "--batch", "--help")


def wide_layers():
    """Sixteen square layers: 16 x 400 x 400 parameters."""
    return nn.Sequential(*[nn.Linear(400, 400, bias=False) for _ in range(16)])


@pytest.mark.parametrize("stage", [1, 2, 3])
def test_one_of_many_ranks_holds_and_sends_what_zeros_closed_forms_say(stage):
    parameters, ranks = 16 * 400**2, 64
    found = predict(wide_layers, [1, 400], optimizer="adam", zero=stage, ranks=ranks)
    wanted = held(parameters, stage, ranks, weight=4, gradient=4, state=8)
    kept = found.devices[0].kept
    # After the step stages 2 and 3 keep the shards of gradients, and stage 3 nothing of a whole layer.
    assert {kind: kept[kind] for kind in wanted} == wanted
    assert sum(found.sent.values()) == 4 * sent(parameters, stage, ranks)
    assert (found.zero, found.ranks) == (stage, ranks) and found.fits


def test_a_model_that_fits_only_in_stage_3_is_told_so():
    def large():  # 34 GB in float32
        return nn.Sequential(*[nn.Linear(2**14, 2**14, bias=False) for _ in range(32)])

    told = {stage: predict(large, [1, 2**14], zero=stage, ranks=32) for stage in (2, 3)}
    assert not told[2].fits and "vgpu:0 is out of memory: a Tesla P100-SXM2 has 16.00 GiB" in told[2].out_of_memory
    assert told[3].fits and told[3].seconds > 0


def test_the_command_tells_what_one_rank_of_zero_holds(cli, model_file):
    command = ("predict", f"{model_file}:make_model", "--batch", 7, 20, "--optimizer", "adam")
    shown = cli(*command, "--zero", 3, "--ranks", 8).stdout
    assert "one of 8 ranks at ZeRO stage 3. In a step it sends" in shown and "by all-gather" in shown
    assert_one_line_error(cli(*command, "--zero", 3), "--zero 3 needs --ranks")
    assert_one_line_error(cli(*command, "--zero", 3, "--ranks", 10**9), "--ranks 1000000000", "1 to 1000000")
    assert_one_line_error(cli(*command, "--zero", 4), "--zero 4", "1, 2 and 3")
    assert_one_line_error(cli(*command, "--ranks", 2), "--ranks 2")
    assert_one_line_error(cli(*command, "--zero", 1, "--ranks", 4, "--gpus", 2), "leave --gpus 2 out")


def test_two_cards_without_peers_are_joined_by_the_host_and_the_prediction_says_so():
    link = {gpu: predict(small, [7, 20], gpu, 2).link for gpu in ("RTX 3090", "GTX 1080 Ti", "A100-SXM4")}
    assert link == {"RTX 3090": "through the host", "GTX 1080 Ti": "NVLink 1", "A100-SXM4": "NVLink 1"}
    assert predict(small, [7, 20], "RTX 3090", 2, link="NVLink 3").link == "NVLink 3"


class Several(Language):
    """Takes tokens, a mask and labels by name, and asks whether the mask hides anything, as libraries do."""

    def forward(self, tokens, mask=None, labels=None):
        if mask is not None and not (mask == 1).all():
            tokens = tokens * mask
        logits = super().forward(tokens)["logits"]
        loss = None if labels is None else torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten())
        return {"loss": loss, "logits": logits}


def named(size):
    ids = torch.zeros(size, 4, dtype=torch.int64)
    return {"tokens": ids, "mask": torch.ones_like(ids), "labels": ids}


@pytest.mark.parametrize("gpus", [1, 2])
def test_inputs_of_any_number_come_from_a_function(gpus):
    found = predict(Several, [6], "A100-SXM4", inputs=named)
    assert found.loss == "the model's own" and found.fits and found.devices[0].peak["inputs"] == 3 * 6 * 4 * 8
    cut = ["blocks.1"] * (gpus - 1)
    positional = predict(Several, [6], "A100-SXM4", gpus, cut=cut, inputs=lambda size: (named(size)["tokens"],))
    assert positional.loss == "cross-entropy in float32" and len(positional.devices) == gpus


@pytest.mark.parametrize(("precision", "weight"), [("float32", 4), ("autocast", 4), ("half", 2)])
def test_precision_decides_the_bytes_of_weights_and_activations(precision, weight):
    def wide():
        return mlp([20, 512, 512, 512, 5])

    count = sum(p.numel() for p in wide().parameters())
    found, plain = (
        predict(wide, [4096, 20], "A100-SXM4", optimizer="adam", precision=p).devices[0] for p in (precision, "float32")
    )
    assert found.kept["parameters"] == found.kept["gradients"] == weight * count
    assert found.kept["optimizer state"] == 2 * weight * count
    assert (found.peak["activations"] < 0.8 * plain.peak["activations"]) == (precision != "float32")


def test_a_wrong_precision_or_shape_beside_a_function_is_told():
    with pytest.raises(UserError, match="--precision int4: choose from float32, autocast, half"):
        predict(small, [7, 20], precision="int4")
    with pytest.raises(UserError, match="--batch is a number of examples"):
        predict(Several, [6, 4], inputs=named)


def test_the_command_says_what_it_assumes(cli, model_file):
    model_file.write_text(model_file.read_text() + "import torch\ndef batch(n):\n    return torch.ones(n, 20)\n")
    shown = cli("predict", f"{model_file}:make_model", "--inputs", "batch", "--batch", 7, "--precision", "autocast")
    assert "Assumed: autocast, loss: cross-entropy in float32." in shown.stdout and " ms. " in shown.stdout
