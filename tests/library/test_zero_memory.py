"""What ZeRO's stages hold on virtual GPUs: table 1 of its paper, and the closed forms."""

import warnings
from dataclasses import replace
from decimal import ROUND_DOWN, ROUND_HALF_UP, Decimal

import pytest
import torch
from torch import nn

from mpcourse.data.published import ZERO_TABLE_1
from mpcourse.virtual import run, virtual_gpus
from mpcourse.virtual.specs import find_gpu
from mpcourse.zero import AloneComm
from mpcourse.zero.model_states import held, sent
from tests.programs.zero_truth import STAGES

NAMES = {1: "ShardedOptimizer", 2: "ShardedGradients", 3: "ShardedParameters"}
ROOMY = replace(find_gpu("Tesla P100-SXM2"), memory=2**60, workspace=0)


def step_of(stage, ranks, layers, width, kind=None):
    """Bytes of one rank, by kind: after backward, and at the step's peak; what it sends. Adam in mixed precision.

    Nothing holds data: one rank of many is on a virtual GPU with room for everything.
    """
    with torch.device("meta"):
        model = nn.Sequential(*[nn.Linear(width, width, bias=False, dtype=torch.bfloat16) for _ in range(layers)])
    comm = AloneComm(ranks)
    arguments = {} if stage == 3 else {"bucket_bytes": 1}  # each layer is a unit
    with virtual_gpus(1, ROOMY, dry=True) as box:
        model.to("vgpu:0")
        update = STAGES[kind or NAMES[stage]](torch.optim.AdamW, model, comm, master=torch.float32, **arguments)
        x = torch.empty(1, width, dtype=torch.bfloat16, device="vgpu:0")
        for _ in range(2):  # the first one makes the optimizer's state
            box.reset()
            comm.sent.clear()
            update.zero_grad()
            model(x).sum().backward()
            kinds = box.ledger.kinds(0)
            update.step()
        return kinds, box.ledger.peak(0).kinds, sum(comm.sent.values())


def states(kinds):
    return {kind: kinds[kind] for kind in ("parameters", "gradients", "optimizer state")}


@pytest.mark.parametrize("row", ZERO_TABLE_1, ids=lambda row: f"{row.parameters / 1e9:g} billion on {row.ranks}")
def test_the_trace_gives_the_papers_table_1(row):
    """To all its digits, which the paper has rounded, and cut in the row of 10^12 parameters (4011.7 is its 4011)."""
    layers, width = {7.5e9: (3, 50_000), 1e12: (4, 500_000)}[row.parameters]
    rounding = ROUND_HALF_UP if layers == 3 else ROUND_DOWN
    for stage, printed in enumerate(row.gigabytes, start=1):
        found = states(step_of(stage, row.ranks, layers, width)[0])
        gigabytes = Decimal(sum(found.values())) / 10**9
        assert str(gigabytes.quantize(Decimal(printed), rounding)) == printed
        for kind, nbytes in held(row.parameters, stage, row.ranks).items():
            assert found[kind] == pytest.approx(nbytes, rel=1e-6), kind  # 1024 ranks have padding


def test_the_paper_counts_16_bytes_a_parameter_without_sharding():
    assert sum(held(7.5e9, 0, 64).values()) == 120e9
    assert sum(states(step_of(1, 1, 4, 1000)[0]).values()) == 16 * 4e6


@pytest.mark.parametrize("stage", [1, 2, 3])
def test_peaks_are_the_closed_forms_and_what_is_there_for_a_moment(stage):
    """Of 50 layers over two ranks: a unit's gradients are there twice as it is sent, and stage 3's layer gathered."""
    layers, width, ranks = 50, 100, 2
    parameters = layers * width**2
    after, peak, values = step_of(stage, ranks, layers, width)
    assert states(after) == held(parameters, stage, ranks)
    whole = sum(held(parameters, stage, ranks).values())
    assert whole < sum(states(peak).values()) < 1.02 * whole
    assert sum(peak.values()) < 1.02 * whole
    assert values == 2 * sent(parameters, stage, ranks)  # of two bytes each


def test_prefetching_holds_a_layer_more():
    layers, width = 10, 100
    unit = 2 * width**2
    plain, ahead = (sum(step_of(3, 2, layers, width, kind)[1].values()) for kind in (None, "PrefetchedParameters"))
    assert unit <= ahead - plain <= 3 * unit  # and the gradients that are on their way


@pytest.mark.parametrize("kind", STAGES)
def test_with_data_ranks_on_virtual_gpus_of_their_own_hold_as_much_and_learn_as_on_the_cpu(kind):
    """Of 10 layers in float32, by Adam: 4 + 4 + 8 bytes a parameter."""
    layers, width, ranks = 10, 24, 2

    def train(comm, device):
        torch.manual_seed(0)
        model = nn.Sequential(*[nn.Linear(width, width, bias=False) for _ in range(layers)]).to(device)
        options = {} if "Parameters" in kind else {"bucket_bytes": 1}
        update = STAGES[kind](torch.optim.Adam, model, comm, **options)
        x = torch.linspace(-1, 1, width).repeat(3, 1).to(device) + comm.rank
        for _ in range(2):
            update.zero_grad()
            model(x).square().sum().backward()
            kinds = box.ledger.kinds(comm.rank) if device != "cpu" else {}
            update.step()
        return states(kinds) if kinds else None, [each.detach().cpu() for each in update.masters]

    def on_gpus(comm):
        with box.here():
            kinds, masters = train(comm, f"vgpu:{comm.rank}")
            return kinds, [each.clone() for each in masters]

    wanted = run(lambda comm: train(comm, "cpu"), ranks).results
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "what is on vgpu")  # it travels through the host's memory
        box = virtual_gpus(ranks)
        found = run(on_gpus, ranks).results
    stage = 3 if "Parameters" in kind else 2 if "Gradients" in kind else 1
    for (kinds, masters), (_, on_cpu) in zip(found, wanted, strict=True):
        assert kinds == held(layers * width**2, stage, ranks, weight=4, gradient=4, state=8)
        assert all(map(torch.equal, masters, on_cpu))
