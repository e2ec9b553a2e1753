"""Plans with the host's memory, against the memory trace of plain steps that use it."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from mpcourse.plan import Asked, Candidate, Input, Layers, Machines, Pricing, plan
from mpcourse.plan.configuration import configured
from mpcourse.plan.price import HOST_MEMORY
from mpcourse.virtual import GPUS, virtual_gpus
from mpcourse.virtual.specs import find_link
from tests.library.test_predict import assert_one_line_error

WIDTH, BLOCKS, BATCH = 1024, 6, 512


def blocks():
    return nn.Sequential(
        *(nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH)) for _ in range(BLOCKS))
    )


@pytest.fixture(scope="module")
def pricing():
    layers = Layers(blocks, Input((WIDTH,), False), replace(GPUS["A100-SXM4"], by_shape=True))
    return Pricing(layers, Machines.named(1, "A100-SXM4"), BATCH)


def closed_form(pricing, offload, recompute):
    memory = pricing.memory(Candidate(1, 1, 1, BATCH, recompute, 0, offload=offload))
    return sum(memory.values()) - memory["context and workspaces"]


def peak_of(step):
    """Return the most bytes that the GPU held in the second of two steps, without cuBLAS's workspaces."""
    with virtual_gpus(1, "A100-SXM4", dry=True) as box:
        state = {}
        for _ in range(2):
            box.ledger.reset(box.now)
            step(state)
        return box.ledger.most[0] - box.ledger.kinds(0).get("workspaces", 0)


def test_a_step_whose_optimizer_is_on_the_host_holds_what_the_closed_form_says(pricing):
    def step(state):
        if not state:
            state["model"] = blocks().bfloat16().to("vgpu:0")
            state["masters"] = [nn.Parameter(p.detach().cpu().float()) for p in state["model"].parameters()]
            state["adam"] = torch.optim.AdamW(state["masters"])
            for p in state["model"].parameters():
                p.grad = torch.zeros_like(p)
        state["model"](torch.empty(BATCH, WIDTH, dtype=torch.bfloat16, device="vgpu:0")).sum().backward()
        for p, master in zip(state["model"].parameters(), state["masters"], strict=True):
            master.grad = p.grad.cpu().float()
        state["adam"].step()
        with torch.no_grad():
            for p, master in zip(state["model"].parameters(), state["masters"], strict=True):
                p.copy_(master.bfloat16())

    assert peak_of(step) == pytest.approx(closed_form(pricing, "optimizer", "none"), rel=0.02)
    count = sum(p.numel() for p in blocks().parameters())
    assert pricing.host(Candidate(1, 1, 1, BATCH, "none", 0, offload="optimizer")) == 12 * count


def test_a_step_whose_weights_come_from_the_host_holds_what_the_closed_form_says(pricing):
    """Each block's weights come for its forward, and again for its backward, which computes the block once more."""

    def step(state):
        if not state:
            state["model"] = blocks().bfloat16()
        x, inputs = torch.empty(BATCH, WIDTH, dtype=torch.bfloat16, device="vgpu:0"), []
        for block in state["model"]:
            inputs.append(x)
            with torch.no_grad():
                x = there(block)(x)
        g = torch.ones_like(x)
        for block, x in zip(reversed(state["model"]), reversed(inputs), strict=True):
            copy, x = there(block), x.requires_grad_()
            copy(x).backward(g)
            g = x.grad
            state[block] = [p.grad.cpu() for p in copy.parameters()]

    def there(block):
        copy = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH)).bfloat16()
        copy.load_state_dict(block.state_dict())
        return copy.to("vgpu:0")

    assert peak_of(step) == pytest.approx(closed_form(pricing, "parameters", "full"), rel=0.02)
    count = sum(p.numel() for p in blocks().parameters())
    assert pricing.host(Candidate(1, 1, 1, BATCH, "full", 0, offload="parameters")) == 16 * count


def test_weights_that_are_sharded_on_the_gpu_are_there_whole_and_in_shards(pricing):
    ranks = 4
    with virtual_gpus(1, "A100-SXM4", dry=True) as box:
        model = blocks().bfloat16().to("vgpu:0")
        shards = [p.detach().flatten().chunk(ranks)[0].clone() for p in model.parameters()]
        del model, shards
        found = box.ledger.most[0]
    machines = Machines.named(ranks, "A100-SXM4")
    closed = Pricing(pricing.layers, machines, BATCH).wrapping(Candidate(ranks, 1, 1, BATCH // ranks, "none", 3))
    assert found == pytest.approx(closed, rel=0.02)


def test_the_command_says_where_a_model_does_not_fit_while_it_is_sharded(cli):
    shown = cli(
        "plan",
        "--model",
        "llama-2-13b",
        "--gpus",
        8,
        "--gpu",
        "RTX 3090",
        "--batch",
        8,
        "--precision",
        "half",
        "--data",
        8,
    ).stdout
    assert "All weights on each GPU, and then sharded, are 27.27 GiB for a moment, which does not fit" in shown


def test_copies_that_computing_does_not_hide_and_the_hosts_update_lengthen_a_step(pricing):
    bandwidth = find_link(GPUS["A100-SXM4"].host_link).bandwidth
    count = pricing.layers.count()
    plain, optimizer, parameters = (
        pricing.price(Candidate(1, 1, 1, BATCH, "none", 0, offload=offload)).seconds
        for offload in ("none", "optimizer", "parameters")
    )
    assert plain.host == 0 and plain.compute == optimizer.compute == parameters.compute
    assert optimizer.update == parameters.update == pytest.approx(28 * count / HOST_MEMORY)
    # Here copies take longer than computing does. The gradients' hide behind backward alone.
    assert parameters.host + parameters.compute == pytest.approx(3 * 2 * count / bandwidth)
    backward = pricing.pipeline(Candidate(1, 1, 1, BATCH, "none", 0)).backward[0]
    assert optimizer.host + backward == pytest.approx(2 * 2 * count / bandwidth)


def test_a_model_that_does_not_fit_a_card_may_fit_with_the_hosts_memory():
    found = {}
    for offload in ("none", "optimizer", "parameters"):
        machines, asked = Machines.named(1, "RTX 4090"), Asked(offload=offload)
        found[offload] = plan(configured("llama-2-7b"), machines, 4, Input((2048,), True), asked)
    assert found["none"].smallest and found["optimizer"].smallest and not found["parameters"].smallest
    best = found["parameters"].best[0]
    assert best.nbytes < 24e9 and best.host == pytest.approx(16 * 6.74e9, rel=0.01)


def test_the_command_says_what_the_host_holds(cli):
    asked = ("plan", "--model", "llama-2-7b", "--gpus", 1, "--gpu", "RTX 4090", "--batch", 4)
    shown = cli(*asked, "--offload", "parameters").stdout
    assert "The memory of each node holds 100.41 GiB for the fastest" in shown and " host " in shown
    assert "Nothing fits" in cli(*asked).stdout
    assert_one_line_error(cli(*asked, "--offload", "disk"), "--offload disk", "none, optimizer, parameters")
