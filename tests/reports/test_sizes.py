"""How large is it, and how much memory does it take? Public questions, with the numbers that answered them."""

import pytest
import torch
from torch import nn

from mpcourse.grid import Shape, transformer
from mpcourse.models import ResNet50
from mpcourse.models.gpt import Block
from mpcourse.predict import predict
from mpcourse.virtual import virtual_gpus
from mpcourse.zero.model_states import held

GB = 1e9
SMALL = Shape(vocabulary=50257, length=1024, width=768, heads=12, layers=12)


def parameters(shape):
    with torch.device("meta"):
        return sum(p.numel() for p in transformer(shape).parameters())


def test_gpt_2_small_has_124_million_parameters_with_its_tied_head():
    """124 439 808 with a head of 38 597 376 inside: the head is the embedding, and is counted once.

    https://github.com/huggingface/transformers/issues/14960 and
    https://github.com/TransformerLensOrg/TransformerLens/issues/903
    """
    assert parameters(SMALL) == 124_439_808
    assert SMALL.vocabulary * SMALL.width == 38_597_376


@pytest.mark.parametrize(
    ("shape", "wanted"),
    [
        (Shape(50257, 1024, 1024, 16, 24), 354_823_168),
        (Shape(20573, 1024, 1024, 16, 24), 324_426_752),
        (Shape(50257, 1024, 1280, 20, 36), 774_030_080),
    ],
)
def test_gpt_2_medium_and_large_have_what_their_checkpoints_say(shape, wanted):
    """A Japanese model of 24 layers with another vocabulary was documented as one of 20; its file has 4 bytes each.

    https://github.com/tanreinama/gpt2-japanese/issues/6 and https://github.com/openai/gpt-2/issues/209
    """
    assert parameters(shape) == wanted


def test_resnet_50_takes_8_gflop_which_are_4_billion_multiplications_and_additions():
    """Is it 3.8, 4.1 or 8.2 GFLOP? 4.09 billion multiply-adds, and two operations each.

    https://github.com/sovrasov/flops-counter.pytorch/issues/76 and
    https://github.com/sovrasov/flops-counter.pytorch/issues/16
    """
    counted = 0

    def count(layer, given, output):
        nonlocal counted
        if isinstance(layer, nn.Conv2d):
            counted += output.numel() * layer.in_channels // layer.groups * layer.kernel_size[0] * layer.kernel_size[1]
        elif isinstance(layer, nn.Linear):
            counted += output.numel() * layer.in_features

    with virtual_gpus(1, dry=True) as box, torch.no_grad():
        model = ResNet50().to("vgpu:0")
        for layer in model.modules():
            layer.register_forward_hook(count)
        box.reset()
        model(torch.randn(1, 3, 224, 224, device="vgpu:0"))
        billed = sum(event.flops for event in box.events)
    assert billed == 2 * counted and round(counted / 1e9, 2) == 4.09


def test_batch_norm_and_relu_are_not_among_those_operations():
    """Training costs three forwards: 24.6 GFLOP were taken for ResNet-50's forward pass, and then divided by 3.

    The first layer's backward pass is without a gradient of the image, so it is a little less.
    https://github.com/Eric-mingjie/rethinking-network-pruning/issues/31
    """
    (device,) = predict(ResNet50, [1, 3, 224, 224]).devices
    first = 2 * 112 * 112 * 64 * 3 * 7 * 7
    assert device.flops == 3 * 8_178_368_512 - first


@pytest.mark.parametrize(
    ("asked", "weight", "gradient", "state", "gigabytes"),
    [
        ("parameters, momentums and gradients in float32", 4, 4, 8, 112),
        ("AdamW's two moments alone", 0, 0, 8, 56),
        ("weights and moments, gradients as they come", 4, 0, 8, 84),
        ("float16 with a float32 copy", 2, 2, 12, 112),
    ],
)
def test_seven_billion_parameters(asked, weight, gradient, state, gigabytes):
    """How much memory does it take to train 7 billion parameters with AdamW?

    https://github.com/Alpha-VLLM/LLaMA2-Accessory/issues/85, https://github.com/meta-llama/llama/issues/342,
    https://github.com/AI-Hypercomputer/maxtext/issues/606, https://github.com/lm-sys/FastChat/issues/1110
    """
    found = held(7e9, 0, 1, weight=weight, gradient=gradient, state=state)
    assert sum(found.values()) == gigabytes * GB


def test_thirteen_billion_parameters_have_156_gb_of_optimizer_state():
    """13 billion parameters do not fit two GPUs of 80 GB: 12 bytes each are the optimizer's, with the float32 copy.

    https://github.com/Alpha-VLLM/LLaMA2-Accessory/issues/26
    """
    assert held(13e9, 1, 1)["optimizer state"] == 156 * GB
    assert sum(held(13e9, 3, 2).values()) > 80 * GB > sum(held(13e9, 3, 4).values())


def test_a_step_with_adam_keeps_16_bytes_a_parameter():
    """Why does a model of 1 GB not train on a GPU of 3 GB? Gradients and two moments are as large as it each.

    https://github.com/deepspeedai/DeepSpeed/issues/4527
    """
    numbers = 3 * (512 * 512 + 512)
    (device,) = predict(
        lambda: nn.Sequential(*[nn.Linear(512, 512) for _ in range(3)]), [1, 512], optimizer="adam"
    ).devices
    kept = {kind: device.kept[kind] / numbers for kind in ("parameters", "gradients", "optimizer state")}
    assert kept == {"parameters": 4, "gradients": 4, "optimizer state": 8}


def test_activations_of_a_transformer_layer_are_what_autograd_saves():
    """Documentation and paper give two formulas for a layer's activations; which one is right?

    Neither: it depends on the layer's operations. On the CPU torch tells which tensors they save for backward.
    https://github.com/deepspeedai/DeepSpeed/issues/1861
    """
    block, again = (Block(Shape(vocabulary=64, length=256, width=256, heads=4, layers=1)) for _ in range(2))
    x, saved = torch.randn(4, 256, 256, requires_grad=True), {}

    def note(tensor):
        storage = tensor.untyped_storage()
        saved[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        output = block(x)
    for given in (x, *block.parameters()):
        saved.pop(given.untyped_storage().data_ptr(), None)

    with virtual_gpus(1, dry=True) as box:
        again, x = again.to("vgpu:0"), torch.randn(4, 256, 256, device="vgpu:0", requires_grad=True)
        before = box.ledger.used[0]
        there = again(x)
        kept = box.ledger.used[0] - before - box.ledger.kinds(0)["workspaces"]
        numbers = 16  # seed and offset of dropout's random numbers: CUDA's attention keeps them without dropout, too
        assert kept == sum(saved.values()) + output.nbytes + numbers
        del there
