"""Bytes of weights, gradients and optimizer state: the closed forms against the memory trace of a plain step."""

import pytest
import torch
from torch import nn

from mpcourse.common.errors import UserError
from mpcourse.plan.states import BLOCK, MOMENTS, PRECISIONS, states
from mpcourse.virtual import virtual_gpus

TORCHS = {
    "sgd": lambda p: torch.optim.SGD(p, 0.1),
    "momentum": lambda p: torch.optim.SGD(p, 0.1, momentum=0.9),
    "adam": torch.optim.Adam,
    "adamw": torch.optim.AdamW,
}


class EightBit:
    """AdamW whose moments are 8-bit numbers, with a float32 scale for each block of them."""

    def __init__(self, parameters, rate=1e-3, betas=(0.9, 0.999)):
        self.parameters, self.rate, self.betas, self.state = list(parameters), rate, betas, {}

    def step(self):
        for p in self.parameters:
            if p not in self.state:
                self.state[p] = [self.packed(torch.zeros_like(p, dtype=torch.float32)) for _ in self.betas]
            first, second = (self.unpacked(kept, p) for kept in self.state[p])
            g = p.grad.float()
            first, second = (
                b * m + (1 - b) * x for b, m, x in zip(self.betas, (first, second), (g, g * g), strict=True)
            )
            with torch.no_grad():
                p -= self.rate * (first / (second.sqrt() + 1e-8)).to(p.dtype)
            self.state[p] = [self.packed(first), self.packed(second)]

    def packed(self, x):
        blocks = nn.functional.pad(x.flatten(), (0, -x.numel() % BLOCK)).view(-1, BLOCK)
        scale = blocks.abs().amax(1, keepdim=True).clamp(min=1e-12) / 127
        return (blocks / scale).round().to(torch.int8), scale

    def unpacked(self, kept, like):
        return (kept[0] * kept[1]).flatten()[: like.numel()].view(like.shape)


class Masters:
    """An optimizer of float32 copies of weights in half precision."""

    def __init__(self, parameters, make):
        self.parameters = list(parameters)
        self.masters = [nn.Parameter(p.detach().float()) for p in self.parameters]
        self.inner = make(self.masters)

    def step(self):
        for p, master in zip(self.parameters, self.masters, strict=True):
            master.grad = p.grad.float()
        self.inner.step()
        with torch.no_grad():
            for p, master in zip(self.parameters, self.masters, strict=True):
                p.copy_(master)
                master.grad = None


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("optimizer", MOMENTS)
def test_a_plain_step_holds_what_the_closed_form_says(precision, optimizer):
    half = precision in ("mixed", "half")
    make = EightBit if optimizer == "adamw8bit" else TORCHS[optimizer]
    with virtual_gpus(1, "A100-SXM4", dry=True) as box:
        before = box.ledger.used[0]
        with torch.device("vgpu:0"):
            model = nn.Sequential(nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 999))
        model.to(torch.bfloat16 if half else torch.float32)
        count = sum(p.numel() for p in model.parameters())
        opt = Masters(model.parameters(), make) if precision == "mixed" else make(model.parameters())
        x = torch.empty(8, 1024, dtype=torch.bfloat16 if half else torch.float32, device="vgpu:0")
        for _ in range(2):
            with torch.autocast("vgpu", torch.bfloat16, enabled=precision == "autocast"):
                loss = model(x).square().mean()
            loss.backward()
            opt.step()
        del loss, x
        workspaces = box.ledger.kinds(0).get("workspaces", 0)
        found = (box.ledger.used[0] - before - workspaces) / count
    assert found == pytest.approx(states(precision, optimizer).whole, rel=0.02)


def test_adam_in_mixed_precision_has_16_bytes_and_any_name_is_checked():
    assert states().whole == 16 and states(gradient=4).whole == 18
    assert states("half", "adamw").whole == 8 and states("float32", "sgd").whole == 8
    with pytest.raises(UserError, match="--optimizer lion: choose from sgd"):
        states(optimizer="lion")
    with pytest.raises(UserError, match="--precision fp8: choose from mixed"):
        states("fp8")
