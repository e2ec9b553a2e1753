"""GradScaler on virtual GPUs: it scales, finds infinities, skips steps, and counts without data."""

import io

import pytest
import torch
from torch import nn

from mpcourse.virtual import virtual_gpus
from tests.virtual.test_mixed_precision import FP16, X


def scaled_step(scaler, model, optimizer, factor=1.0):
    x = torch.ones(3, 6).to("vgpu:0")
    optimizer.zero_grad()
    with torch.autocast("vgpu", dtype=FP16):
        loss = model(x).float().mean() * factor
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()


def test_gradients_that_overflow_in_half_precision_skip_the_step():
    with virtual_gpus(1):
        model = nn.Linear(6, 2).to("vgpu:0")
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        scaler = torch.amp.GradScaler("vgpu", init_scale=2.0**10, growth_interval=3)
        before = model.weight.detach().clone()
        scaled_step(scaler, model, optimizer, 1e3)  # 1e3 * 1024 / 6 is beyond 65504
        assert model.weight.grad.isinf().any() and torch.equal(model.weight, before)
        assert scaler.get_scale() == 512 and scaler.state_dict()["_growth_tracker"] == 0
        for _ in range(3):
            scaled_step(scaler, model, optimizer)
        assert not torch.equal(model.weight, before) and scaler.get_scale() == 1024
        assert torch.allclose(model.weight.grad, torch.full((2, 6), 0.5, device="vgpu:0"))  # unscaled again


def test_the_scaler_is_kept_and_loaded_and_clips_what_is_unscaled():
    for dry in (False, True):
        with virtual_gpus(1, dry=dry):
            model = nn.Linear(6, 2).to("vgpu:0")
            optimizer = torch.optim.AdamW(model.parameters(), fused=False)
            scaler = torch.amp.GradScaler("cuda", init_scale=64.0, growth_interval=2)
            assert scaler.is_enabled() and scaler.get_scale() == 64
            for _ in range(3):
                scaled_step(scaler, model, optimizer)
            assert scaler.get_scale() == 128 and scaler.state_dict()["_growth_tracker"] == 1
            other = torch.amp.GradScaler("vgpu")
            other.load_state_dict(scaler.state_dict())
            with torch.autocast("vgpu"):
                loss = model(X.to("vgpu:0")).mean()
            other.scale(loss).backward()
            other.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            other.step(optimizer)
            other.update()
            assert other.get_scale() == 256
            buffer = io.BytesIO()
            torch.save(other.state_dict(), buffer)


def test_the_step_waits_for_the_check_for_infinities():
    for dry in (False, True):
        with virtual_gpus(1, dry=dry) as box:
            model = nn.Linear(6, 2).to("vgpu:0")
            optimizer = torch.optim.SGD(model.parameters(), 0.1)
            scaled_step(torch.amp.GradScaler("vgpu"), model, optimizer)
            waits = [e.name for e in box.events if e.kind == "wait"]
            assert waits[-1] == "_local_scalar_dense"
            with pytest.warns(UserWarning, match="holds no data") if dry else torch.no_grad():
                X.to("vgpu:0").sum().item()
