"""What ZeRO's ranks hold between steps: shards, and state for any number of ranks; and what errors leave as it was."""

import pytest
import torch
from torch import nn

from mpcourse.virtual import run
from mpcourse.zero import ShardedOptimizer, ShardedParameters
from tests.programs.zero_truth import BATCH, MODELS, OPTIMIZERS, STAGES, made, one_process, sharded, values


def trained(comm, update, model, batches):
    """Train the MLP on these batches, shared alike."""
    for x, target in batches:
        update.zero_grad()
        share = slice(comm.rank * BATCH // comm.size, (comm.rank + 1) * BATCH // comm.size)
        MODELS["mlp"][2](model(x[share]), target[share]).backward()
        update.step(0.3)


def of_mlp(comm, kind, optimizer="adam"):
    model = made("mlp", comm.rank)
    return sharded(kind, model, optimizer, comm), model


@pytest.mark.parametrize(
    ("before", "after", "optimizer"), [(1, 3, "adam"), (3, 2, "momentum"), (2, 4, "adamw"), (4, 1, "adam")]
)
def test_state_that_so_many_ranks_save_others_load_and_go_on(optimizer, before, after):
    """Bit for bit; and the training ends as that of one process."""
    kinds = list(STAGES)
    batches = MODELS["mlp"][1]

    def begin(comm):
        update, model = of_mlp(comm, kinds[before % 3], optimizer)
        trained(comm, update, model, batches[:1])
        return update.state_dict(), values(update, model)

    def go_on(comm):
        update, model = of_mlp(comm, kinds[before % 3], optimizer)
        for group in update.optimizer.param_groups:
            group["lr"] = 1e9  # of which nothing must be left
        update.load_state_dicts(parts)
        loaded = values(update, model)
        state = update.state_dict()
        trained(comm, update, model, batches[1:])
        return loaded, state, values(update, model)

    begun = run(begin, before).results
    parts = [part for part, _ in begun]
    went_on = run(go_on, after).results
    for loaded, _, end in went_on:
        assert all(map(torch.equal, loaded, begun[0][1]))
        for a, b in zip(end, one_process("mlp", optimizer)[0], strict=True):
            torch.testing.assert_close(a, b, rtol=0, atol=1e-11)
    for i, unit in enumerate(parts[0]["units"]):
        for name, value in unit["state"].items():
            if value is None or value.dim() == 0:
                assert all(state["units"][i]["state"][name] == value for _, state, _ in went_on)
            else:
                old, new = (
                    torch.cat([part["units"][i]["state"][name] for part in all_parts])[: unit["length"]]
                    for all_parts in (parts, [state for _, state, _ in went_on])
                )
                assert torch.equal(old, new)


def test_parts_that_do_not_fit_are_refused_before_anything_changes():
    def program(comm):
        update, model = of_mlp(comm, "ShardedOptimizer")
        part, before = update.state_dict(), values(update, model)
        parts = comm.allgather(part)
        with pytest.raises(ValueError, match=r"the parts of all ranks are needed, in their order: got \[1, 0\]"):
            update.load_state_dicts(parts[::-1])
        with pytest.raises(ValueError, match="the parts come from other parameters, groups or bucket_bytes"):
            ShardedOptimizer(OPTIMIZERS["adam"], nn.Linear(3, 3), comm).load_state_dicts(parts)
        return all(map(torch.equal, values(update, model), before))

    assert run(program, 2).results == [True, True]


@pytest.mark.parametrize(("kind", "size"), list(zip(STAGES, [1, 2, 4, 4, 2], strict=True)))
def test_a_float32_master_adds_up_what_bfloat16_rounds_away(kind, size):
    """Gradients are small whole numbers, which bfloat16 has, whatever they are summed in. Bits are one process's."""

    def model():
        return nn.Sequential(nn.Linear(3, 2, bias=False, dtype=torch.bfloat16))

    x = torch.tensor([[1.0, 2, 3], [0, 1, 1], [2, 0, 1], [1, 1, 1]], dtype=torch.bfloat16)
    start = torch.full((2, 3), 1.0)

    def program(comm):
        own = model()
        nn.init.ones_(own[0].weight)
        update = STAGES[kind](lambda groups: torch.optim.SGD(groups, 1e-4), own, comm, master=torch.float32)
        for _ in range(20):
            update.zero_grad()
            (own(x[comm.rank :: comm.size]).sum() * (comm.size / 4)).backward()
            update.step()
        (weight,) = values(update, own)
        return weight, torch.cat(
            [each[: update.units[0].length] for each in comm.allgather(update.masters[0].detach())]
        )

    wanted = start.clone()
    for _ in range(20):
        wanted -= 1e-4 * x.float().mean(0)
    for weight, master in run(program, size).results:
        torch.testing.assert_close(master[:6].view(2, 3), wanted, rtol=0, atol=3e-7)
        assert torch.equal(weight, master[:6].view(2, 3).bfloat16()) and weight.dtype == torch.bfloat16
        assert (weight < 1).all()
    rounded = start.bfloat16()
    for _ in range(20):
        rounded -= (1e-4 * x.float().mean(0)).bfloat16()
    assert torch.equal(rounded, start.bfloat16())  # without a master nothing moves at all


@pytest.mark.parametrize("kind", STAGES)
def test_after_an_error_on_one_rank_nobody_has_updated_anything(kind):
    """The other ranks are told in their next message; real ones by MPI, which ends them."""
    kept = {}

    def program(comm):
        update, model = of_mlp(comm, kind)
        trained(comm, update, model, MODELS["mlp"][1][:1])
        before = update.state_dict()
        kept[comm.rank] = update, before
        x, target = MODELS["mlp"][1][1]
        update.zero_grad()
        loss = MODELS["mlp"][2](model(x), target)
        if comm.rank == 1:
            raise OSError("a bad example")
        loss.backward()
        update.step()

    with pytest.raises(OSError, match="a bad example"):
        run(program, 3)
    for update, before in kept.values():
        now = update.state_dict()
        for a, b in zip(now["units"], before["units"], strict=True):
            assert torch.equal(a["master"], b["master"])
            assert all(torch.equal(a["state"][key], b["state"][key]) for key in b["state"])


def test_a_large_gradient_whose_square_overflows_float32_is_finite():
    def program(comm):
        model = nn.Linear(1, 1, bias=False)
        update = ShardedOptimizer(lambda groups: torch.optim.SGD(groups, 0.0), model, comm)
        (model(torch.ones(1, 1)) * 1e30).sum().backward()
        return update.step()

    assert run(program, 2).results == [pytest.approx(1e30)] * 2


@pytest.mark.parametrize("kind", STAGES)
def test_a_batch_that_is_not_finite_on_one_rank_is_refused_on_all_with_the_parameters_name(kind):
    def program(comm):
        model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1))
        options = {} if issubclass(STAGES[kind], ShardedParameters) else {"bucket_bytes": 1}
        update = STAGES[kind](lambda groups: torch.optim.Adam(groups), model, comm, **options)
        before = update.state_dict()
        update.zero_grad()
        model(torch.ones(1, 2)).sum().backward()
        model[1](torch.tensor([[1.0, float("nan")]] if comm.rank == 2 else [[1.0, 1.0]])).sum().backward()
        with pytest.raises(FloatingPointError, match=r"gradients of '1.weight' is not finite, so nothing was updated"):
            update.step()
        pairs = zip(update.state_dict()["units"], before["units"], strict=True)
        return all(torch.equal(a["master"], b["master"]) for a, b in pairs) and not update.optimizer.state

    assert run(program, 3).results == [True] * 3
