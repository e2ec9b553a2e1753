"""What stands around the mean of gradients: shards, evaluation, batch norm over ranks, snapshots."""

import copy
import io
import random
import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from mpcourse.common.launch import mpirun_command, rank_environment
from mpcourse.data_parallel import (
    Checkpointer,
    ShardSampler,
    SyncBatchNorm,
    convert_batch_norm,
    create_communicator,
    evaluate,
    print_once,
    progress,
    scatter_dataset,
    scatter_indices,
    share_of,
    weighted_mean,
)
from mpcourse.virtual import RankFailed, run
from tests.conftest import python

KILLED = Path(__file__).parents[1] / "programs" / "data_parallel_killed.py"


@pytest.mark.parametrize("size", [1, 2, 3, 4])
@pytest.mark.parametrize("n", [0, 1, 3, 4, 10, 11])
@pytest.mark.parametrize("shuffle", [False, True])
def test_no_example_is_lost_or_doubled_unless_asked(size, n, shuffle):
    shares = run(lambda comm: scatter_indices(comm, n, shuffle, seed=4), size).results
    assert sorted(np.concatenate(shares)) == list(range(n))
    assert max(map(len, shares)) - min(map(len, shares)) <= 1
    repeated = [share_of(n, r, size, shuffle, 4, "repeat") for r in range(size)]
    assert {len(each) for each in repeated} == {-(-n // size)}
    assert set(np.concatenate(repeated)) == set(range(n))
    dropped = [share_of(n, r, size, shuffle, 4, "drop") for r in range(size)]
    assert {len(each) for each in dropped} == {n // size}
    assert len(set(np.concatenate(dropped))) == n // size * size


def test_another_seed_is_another_order_and_the_same_the_same():
    def order(seed):
        return share_of(100, 0, 1, True, seed).tolist()

    assert order(1) == order(1) != order(2)
    assert share_of(100, 0, 1, False, 1).tolist() == list(range(100))


def test_ranks_that_disagree_on_a_scattering_are_told():
    with pytest.raises(ValueError, match=r"ranks were given different seed: \[0, 1\]"):
        run(lambda comm: scatter_indices(comm, 10, True, comm.rank), 2)
    with pytest.raises(ValueError, match="shards one of exact, repeat, drop"):
        run(lambda comm: scatter_indices(comm, 10, shards="equal"), 2)


def test_a_data_set_is_shared_out_whether_all_have_it_or_one_has():
    data = TensorDataset(torch.arange(7), torch.arange(7) ** 2)

    def program(comm):
        subset = scatter_dataset(data, comm, shuffle=True)
        sent = scatter_dataset(data if comm.rank == 1 else None, comm, root=1, shuffle=True)
        assert [tuple(map(int, a)) for a in subset] == [tuple(map(int, b)) for b in sent]
        return [int(a) for a, _ in subset]

    assert sorted(sum(run(program, 3).results, [])) == list(range(7))
    with pytest.raises(ValueError, match="root=0, which has no data set"):
        run(lambda comm: scatter_dataset(data if comm.rank else None, comm), 2)
    with pytest.raises(ValueError, match=r"data sets of different lengths: \[7, 6\]"):
        run(lambda comm: scatter_dataset(list(range(7 - comm.rank)), comm), 2)


def test_a_sampler_gives_each_epoch_another_order_of_all_examples():
    def epoch(number, size=3):
        found = []
        for rank in range(size):
            sampler = ShardSampler(range(10), rank, size, seed=5, shards="exact")
            sampler.set_epoch(number)
            loader = DataLoader(range(10), batch_size=2, sampler=sampler)
            found.append([int(i) for batch in loader for i in batch])
            assert len(found[-1]) == len(sampler)
        return found

    assert epoch(0) == epoch(0) != epoch(1)
    for number in (0, 1):
        assert sorted(sum(epoch(number), [])) == list(range(10))
    sampler = ShardSampler(range(10), 0, 1)
    sampler.set_epoch(2)
    whole = list(sampler)
    sampler.set_epoch(2, skip=4)
    assert list(sampler) == whole[4:] and len(sampler) == 6


def test_a_sampler_goes_on_where_its_state_says():
    sampler, other = (ShardSampler(range(11), 1, 2, seed=4) for _ in range(2))
    sampler.set_epoch(3)
    order = list(sampler)
    sampler.used += 4
    other.load_state_dict(sampler.state_dict())
    assert other.epoch == 3
    other.set_epoch(3)
    assert list(other) == order[4:] and len(other) == 2 and other.used == 4
    other.set_epoch(3)  # once more, from its beginning
    assert list(other) == order and other.used == 0
    other.load_state_dict(sampler.state_dict())
    other.set_epoch(4)
    assert len(other) == 6 and other.used == 0
    with pytest.raises(ValueError, match=r"a sampler with n=11, seed=4, and this one has \[12, 0\]"):
        ShardSampler(range(12), 1, 2).load_state_dict(sampler.state_dict())


def test_evaluation_weighs_by_counts():
    def program(comm):
        communicator = create_communicator("flat", comm)
        correct, count = [(1, 1), (0, 3), (0, 0)][comm.rank]
        loss = weighted_mean(communicator, {"loss": float(comm.rank + 1), "other": 1.0}, count)
        return evaluate(communicator, correct, count), loss["loss"], loss["other"]

    assert run(program, 3).results == [(0.25, 1.75, 1.0)] * 3
    with pytest.raises(ValueError, match="no rank has any example"):
        run(lambda comm: evaluate(create_communicator("flat", comm), 0, 0), 2)
    with pytest.raises(ValueError, match="rank 1 evaluates 'b', and rank 0 evaluates 'a'"):
        run(lambda comm: weighted_mean(create_communicator("flat", comm), {"ab"[comm.rank]: 1.0}, 1), 2)


@pytest.mark.parametrize("empty", [{0}, {2}, {0, 1}])
def test_a_rank_without_examples_needs_no_means(empty):
    def program(comm):
        count = 0 if comm.rank in empty else comm.rank + 1
        return weighted_mean(create_communicator("flat", comm), {"loss": float(comm.rank)} if count else {}, count)

    counts = [0 if rank in empty else rank + 1 for rank in range(3)]
    wanted = sum(rank * count for rank, count in enumerate(counts)) / sum(counts)
    assert run(program, 3).results == [{"loss": pytest.approx(wanted)}] * 3


def test_a_rank_with_examples_and_no_means_is_named():
    def program(comm):
        means = [{}, {"accuracy": 1.0, "loss": 1.0}, {}][comm.rank]
        return weighted_mean(create_communicator("flat", comm), means, comm.rank)

    with pytest.raises(ValueError, match="rank 2 evaluates nothing, and rank 1 evaluates 'accuracy', 'loss'"):
        run(program, 3)


@pytest.mark.parametrize("edge", [[0, 4, 8], [0, 1, 8], [0, 8, 8]])
@pytest.mark.parametrize("momentum", [0.1, None])
def test_batch_norm_over_ranks_is_that_of_the_whole_batch(edge, momentum):
    """Values, gradients and running statistics, where batches differ in length, and where one is empty."""
    torch.manual_seed(2)
    x = (3 * torch.randn(3, 8, 4, 5) + 1000).double()
    target = torch.randn(3, 8, 4, 5).double()
    whole = nn.BatchNorm1d(4, momentum=momentum).double()
    nn.init.normal_(whole.weight)
    state = {k: v.clone() for k, v in whole.state_dict().items()}
    of_x = []
    for each, t in zip(x, target, strict=True):
        each.requires_grad_()
        y = whole(each)
        (y * t).sum().backward()
        of_x.append((y.detach(), each.grad))

    def program(comm):
        norm = nn.BatchNorm1d(4, momentum=momentum).double()
        norm.load_state_dict(state)
        model = convert_batch_norm(nn.Sequential(norm), create_communicator("flat", comm))
        assert isinstance(model[0], SyncBatchNorm)
        mine = slice(edge[comm.rank], edge[comm.rank + 1])
        for each, t, (wanted, gradient) in zip(x, target, of_x, strict=True):
            own = each.detach()[mine].clone().requires_grad_()
            y = model(own)
            (y * t[mine]).sum().backward()
            torch.testing.assert_close(y, wanted[mine], rtol=0, atol=1e-10)
            torch.testing.assert_close(own.grad, gradient[mine], rtol=0, atol=1e-10)
        for key, value in whole.state_dict().items():
            torch.testing.assert_close(model.state_dict()["0." + key], value, rtol=1e-12, atol=1e-12)
        model.eval()
        whole_eval = nn.BatchNorm1d(4).double().eval()
        whole_eval.load_state_dict(whole.state_dict())
        torch.testing.assert_close(model(x[0].detach()), whole_eval(x[0].detach()), rtol=0, atol=1e-10)
        return norm.weight.grad, norm.bias.grad

    found = run(program, 2).results
    torch.testing.assert_close(found[0][0] + found[1][0], whole.weight.grad, rtol=0, atol=1e-9)
    torch.testing.assert_close(found[0][1] + found[1][1], whole.bias.grad, rtol=0, atol=1e-9)


def test_batch_norm_in_evaluation_is_torchs_own_even_without_statistics_of_the_past():
    def program(comm):
        torch.manual_seed(comm.rank)
        norm, x = nn.BatchNorm1d(3, track_running_stats=False).eval(), torch.randn(4 + comm.rank, 3)
        model = convert_batch_norm(nn.Sequential(norm), create_communicator("flat", comm)).eval()
        for _ in range(1 + comm.rank):  # nobody waits for anybody
            assert torch.equal(model(x), norm(x))

    run(program, 2)


def test_batch_norm_with_two_names_keeps_both_and_a_copy_talks_to_the_same_ranks():
    def program(comm):
        model = nn.Module()
        model.a = model.b = nn.BatchNorm1d(3)
        model.c = nn.ModuleDict({"d": model.a})
        convert_batch_norm(model, create_communicator("flat", comm))
        assert type(model.a) is SyncBatchNorm and model.a is model.b is model.c["d"]
        twin = copy.deepcopy(model)
        assert twin.a is not model.a and twin.a.communicator is model.a.communicator
        x = torch.full((2, 3), float(comm.rank))
        assert torch.equal(twin.a(x), model.a(x)) and twin.a(x)[0, 0].abs() > 0.9

    run(program, 2)


def test_batch_norm_of_one_value_is_refused():
    with pytest.raises(ValueError, match="more than one value a channel"):
        run(lambda comm: SyncBatchNorm(3, create_communicator("flat", comm))(torch.ones(1 - comm.rank, 3)), 2)


def test_one_rank_prints_and_shows_progress(capsys, monkeypatch):
    def program(comm):
        communicator, shown = create_communicator("flat", comm), io.StringIO()
        print_once(communicator, "loss", 3)
        steps = list(progress(communicator, range(3), file=shown))
        return steps, "3/3" in shown.getvalue(), bool(shown.getvalue())

    monkeypatch.delenv("TQDM_DISABLE", raising=False)
    assert run(program, 3).results == [([0, 1, 2], True, True), ([0, 1, 2], False, False), ([0, 1, 2], False, False)]
    assert capsys.readouterr().out == "loss 3\n"
    monkeypatch.setenv("TQDM_DISABLE", "1")
    assert run(program, 1).results == [([0, 1, 2], False, False)]


def snapshots(folder):
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("size", [1, 2])
def test_a_snapshot_restores_model_optimizer_and_random_numbers(tmp_path, size):
    def program(comm):
        random.seed(comm.rank)
        model = nn.Linear(3, 2)
        optimizer = torch.optim.Adam(model.parameters())
        checkpointer = Checkpointer(create_communicator("flat", comm), tmp_path, model=model, optimizer=optimizer)
        assert checkpointer.resume() is None
        for step in range(1, 5):
            model(torch.randn(4, 3)).sum().backward()
            optimizer.step()
            checkpointer.save(step, epoch=step // 2)
        before = model.weight.clone()
        drawn = torch.rand(1), np.random.rand(), random.random()  # the last of which virtual ranks have in common
        nn.init.zeros_(model.weight)
        assert checkpointer.resume() == {"step": 4, "epoch": 2}
        assert torch.equal(model.weight, before)
        assert (torch.rand(1), np.random.rand()) == drawn[:2]
        assert random.random() == drawn[2] or size > 1

    run(program, size)
    assert snapshots(tmp_path) == [f"step0000000{s}-rank{r}of{size}.pt" for s in (3, 4) for r in range(size)]


def test_the_latest_snapshot_that_all_ranks_have_is_taken(tmp_path):
    def program(comm, last):
        model = nn.Linear(1, 1, bias=False)
        checkpointer = Checkpointer(create_communicator("flat", comm), tmp_path, model=model)
        for step in range(1, last):
            nn.init.constant_(model.weight, step)
            checkpointer.save(step)
        return checkpointer.resume()["step"], model.weight.item()

    run(lambda comm: program(comm, 4), 2)
    (tmp_path / "step00000003-rank1of2.pt").rename(tmp_path / "step00000003-rank1of2.pt.0.part")  # it was being written
    assert run(lambda comm: program(comm, 0), 2).results == [(2, 2.0)] * 2
    assert not list(tmp_path.glob("*.part"))


def test_what_does_not_fit_a_snapshot_is_told(tmp_path):
    def program(comm, save, **what):
        checkpointer = Checkpointer(create_communicator("flat", comm), tmp_path, **what)
        checkpointer.save(1) if save else checkpointer.resume()

    run(lambda comm: program(comm, True, model=nn.Linear(1, 1)), 2)
    with pytest.raises(ValueError, match="snapshots of runs over 2 ranks, and this one has 3"):
        run(lambda comm: program(comm, False, model=nn.Linear(1, 1)), 3)
    with pytest.raises(ValueError, match="holds model; it and this run differ in ema"):
        run(lambda comm: program(comm, False, model=nn.Linear(1, 1), ema=nn.Linear(1, 1)), 2)
    with pytest.raises(ValueError, match=r"ranks save different steps: \[0, 1\]"):
        run(lambda comm: Checkpointer(create_communicator("flat", comm), tmp_path).save(comm.rank), 2)


def test_a_rank_that_cannot_save_is_named_on_all(tmp_path, monkeypatch):
    def program(comm):
        checkpointer = Checkpointer(create_communicator("flat", comm), tmp_path)
        if comm.rank == 1:
            checkpointer.folder = tmp_path / "gone" / "for ever"
            monkeypatch.setattr(checkpointer, "_steps", list)
        try:
            checkpointer.save(1)
        except (OSError, RankFailed) as error:
            return f"{type(error).__name__}: {error}"

    told = run(program, 2).results
    assert told[0].startswith("RankFailed: rank 1 cannot save its snapshot: ") and "No such file" in told[0]
    assert told[1].startswith("FileNotFoundError")


@pytest.mark.parametrize("doing", ["save", "read", "restore"])
def test_what_goes_wrong_with_a_snapshot_on_one_rank_is_told_on_all(tmp_path, doing):
    """In whichever way: torch tells of a full disk, and of a spoiled file, by errors of its own."""

    def program(comm):
        model = nn.Linear(1, 1)
        checkpointer = Checkpointer(create_communicator("flat", comm), tmp_path, model=model)
        if doing == "save":
            model.state_dict = (lambda: 1 / 0) if comm.rank else model.state_dict
            checkpointer.save(1)
            return
        checkpointer.save(1)
        if comm.rank and doing == "read":
            (tmp_path / "step00000001-rank1of2.pt").write_bytes(b"spoiled")
        elif comm.rank:
            model.load_state_dict = lambda state: 1 / 0
        checkpointer.resume()

    def told(comm):
        try:
            program(comm)
        except Exception as error:
            return type(error).__name__, str(error)

    zero, one = run(told, 2).results
    assert zero[0] == "RankFailed" and zero[1].startswith(f"rank 1 cannot {doing} its snapshot: {one[0]}: ")
    assert one[0] != "RankFailed" and (doing == "read" or one[0] == "ZeroDivisionError")


@pytest.mark.timeout(400)
def test_a_run_that_is_killed_and_resumed_ends_as_one_that_was_not(tmp_path):
    """Twenty times: a random rank at a random step, by SIGKILL; then on to the end, or to the next kill.

    As a step begins, within it, and within a snapshot.
    """

    def go(folder, *kill):
        command = mpirun_command(2, python(KILLED, folder, *kill))
        return subprocess.run(command, env=rank_environment(), capture_output=True, text=True, timeout=60)

    wanted = go(tmp_path / "whole").stdout.split()
    steps = int(wanted[0])
    seed = random.randrange(10**6)
    draw = random.Random(seed)
    for chain in range(2):  # each goes on from where the one before was killed
        folder = tmp_path / f"run{chain}"
        for i, at in enumerate(sorted(draw.sample(range(steps - 2), 10))):
            where = ("step", "backward", "writing", "written")[i % 4]
            assert go(folder, draw.randrange(2), at, where).returncode != 0, (seed, chain, at, where)
        done = go(folder)
        assert done.stdout.split() == wanted, (seed, chain, done.stderr[-2000:])


def test_a_rank_that_waits_for_the_others_reports_goes_on_with_its_sums(mpirun):
    done = mpirun(2, KILLED.with_name("data_parallel_meanwhile.py"))
    assert done.stdout.split() == ["{1.5}"] * 2, done.stderr


def test_the_benchmark_compares_parameters_and_measures_all_sides(mpirun):
    from mpcourse.course import forkserver
    from mpcourse.course.bench.data_parallel import SIDES, DataParallelCase, _records, sides_of
    from mpcourse.course.bench.over_ranks import measured

    case = DataParallelCase("transformer", 4, 2, 1)
    (found,) = measured("mpcourse.course.bench.data_parallel_ranks", [case], 2, starter=forkserver.python())
    rows = {record.what: record for record in _records(case, found, 2)}
    assert [f"transformer: {side}" in rows for side in SIDES] == [side != "fused" for side in SIDES]
    assert rows["transformer: parameters differ by"].kept
    assert rows["transformer: bucketed / DDP"].promise == 1.05
    assert rows["transformer: bucketed / alone"].promise == 0.9
    assert sides_of("mlp") == list(SIDES)  # whose layers are large enough to be written in place
    told = {"seconds": {side: [1.0] for side in SIDES}, "difference": 0.0}
    promised = {r.what: r.promise for r in _records(DataParallelCase("mlp", 4, 2, 1), told, 2) if r.promise is not None}
    assert promised == {"mlp: bucketed / DDP": 1.3, "mlp: fused / alone": 0.9, "mlp: parameters differ by": 100}
