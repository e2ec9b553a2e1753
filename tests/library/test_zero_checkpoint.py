"""Snapshots of sharded training survive kills at any moment, and any number of ranks goes on from them."""

import random
import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from mpcourse.common.launch import mpirun_command, rank_environment
from mpcourse.virtual import RankFailed, run
from mpcourse.zero import ShardedCheckpointer, ShardedOptimizer, within_nodes
from tests.conftest import ROOT, python
from tests.programs.zero_truth import STAGES, values

KILLED = Path(__file__).parents[1] / "programs" / "zero_killed.py"
KILLS = 20


def ended(command, real=False):
    environment = {"env": rank_environment()} if real else {}
    return subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=ROOT, **environment)


def test_a_run_that_is_killed_at_random_moments_and_resumed_ends_as_one_that_was_not(tmp_path):
    """Bit for bit. Each run goes on from where the one before was killed; one that comes to its end, begins anew."""
    total, wanted = ended(python(KILLED, tmp_path / "whole")).stdout.split()
    seed = random.randrange(10**6)
    draw, kills, number = random.Random(seed), 0, 0
    while kills < KILLS:
        done = ended(python(KILLED, tmp_path / f"run{number}", draw.randint(1, int(total) // 3)))
        killed = done.returncode != 0
        assert killed or done.stdout.split()[1] == wanted, (seed, done.stderr[-2000:])
        assert "Traceback" not in done.stderr, (seed, done.stderr[-2000:])
        kills, number = kills + killed, number + (not killed)
    done = ended(python(KILLED, tmp_path / f"run{number}"))
    assert done.stdout.split()[1:] == [wanted], (seed, done.stderr[-2000:])


def test_a_real_rank_that_is_killed_while_it_writes_leaves_the_snapshot_before(tmp_path):
    def go(folder, *moment):
        return ended(mpirun_command(2, python(KILLED, tmp_path / folder, *moment)), real=True)

    total, wanted = go("whole").stdout.split()
    writing = 2 * (2 * (1 + 4) + 4) - 2  # of the second snapshot: each step and parameter is a moment, each snapshot 4
    assert go("killed", writing).returncode != 0
    # Its file is half written; the launcher may have killed the other rank in the middle, too.
    assert len(list((tmp_path / "killed").glob("step00000004-*-rank1of2.pt*.part"))) == 1
    done = go("killed")
    assert int(done.stdout.split()[0]) < int(total) and done.stdout.split()[1] == wanted


def saved(comm, folder, kind="ShardedOptimizer", steps=(1,), keep=2, nodes=None):
    """Train the same model for some steps, and save after each."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 5), nn.Linear(5, 2))
    ranks = within_nodes(comm, nodes) if nodes else {"comm": comm}
    update = STAGES[kind](lambda groups: torch.optim.Adam(groups, 0.1), model, **ranks)
    checkpointer = ShardedCheckpointer(update, folder, keep)
    for step in steps:
        update.zero_grad()
        model(torch.ones(1, 3) * step).square().sum().backward()
        update.step()
        checkpointer.save(step, epoch=step // 2)
    return update, model, checkpointer


@pytest.mark.parametrize("kind", STAGES)
def test_a_snapshot_is_loaded_on_another_number_of_ranks_bit_for_bit(tmp_path, kind):
    def save(comm):
        update, model, _ = saved(comm, tmp_path, kind, steps=(1, 2, 3))
        return values(update, model)

    def load(comm):
        update, model, checkpointer = saved(comm, tmp_path, kind, steps=())
        position = checkpointer.resume()
        return position, values(update, model), update.optimizer.state[update.masters[0]]["step"]

    wanted = run(save, 3).results[0]
    for size in (1, 2, 4):
        for position, found, step in run(load, size).results:
            assert position == {"epoch": 1, "step": 3} and step == 3
            assert all(map(torch.equal, found, wanted))


def test_a_snapshot_of_nodes_that_shard_within_themselves_is_written_once(tmp_path):
    def save(comm):
        update, model, _ = saved(comm, tmp_path, "ShardedParameters", nodes=2)
        return values(update, model)

    def load(comm, kind="ShardedParameters", nodes=None):
        update, model, checkpointer = saved(comm, tmp_path, kind, steps=(), nodes=nodes)
        assert checkpointer.resume()["step"] == 1
        return values(update, model)

    wanted = run(save, 4).results[0]
    assert sorted(path.name.split("-")[2] for path in tmp_path.iterdir()) == ["rank0of2.pt", "rank1of2.pt"]
    for size, nodes in ((3, None), (4, 2)):
        for found in run(lambda comm, nodes=nodes: load(comm, nodes=nodes), size).results:
            assert all(map(torch.equal, found, wanted))
    with pytest.raises(ValueError, match="from other parameters, groups or bucket_bytes"):
        run(lambda comm: load(comm, "ShardedOptimizer"), 3)  # whose units are buckets, not layers


def test_a_snapshot_counts_only_with_the_parts_of_all_ranks_of_one_run(tmp_path):
    def resumed(comm):
        return saved(comm, tmp_path, steps=())[2].resume()

    run(lambda comm: saved(comm, tmp_path, steps=(1, 2)), 2)
    (next(tmp_path.glob("step00000002-*-rank1of2.pt"))).unlink()
    assert run(resumed, 2).results == [{"epoch": 0, "step": 1}] * 2
    one = next(tmp_path.glob("step00000002-*-rank0of2.pt"))
    one.with_name("step00000002-another-rank1of2.pt").write_bytes(one.read_bytes())
    assert run(resumed, 2).results == [{"epoch": 0, "step": 1}] * 2
    (next(tmp_path.glob("step00000001-*-rank1of2.pt"))).unlink()
    assert run(resumed, 2).results == [None] * 2


def test_old_snapshots_and_parts_go_once_a_newer_one_is_whole(tmp_path):
    (tmp_path / "step00000001-cafe-rank0of2.pt").write_bytes(b"of a run that was killed")
    (tmp_path / "step00000001-cafe-rank1of2.pt.0.part").write_bytes(b"likewise")
    run(lambda comm: saved(comm, tmp_path, steps=(1, 2, 3, 4), keep=2), 3)
    names = sorted(path.name for path in tmp_path.iterdir())
    assert [(name[:12], name[-12:]) for name in names] == [
        (f"step0000000{step}", f"-rank{rank}of3.pt"[-12:]) for step in (3, 4) for rank in range(3)
    ]


def test_what_goes_wrong_on_one_rank_is_told_on_all(tmp_path):
    def told(call):
        try:
            call()
        except (OSError, RankFailed) as error:
            return f"{type(error).__name__}: {error}"

    def saving(comm):
        checkpointer = saved(comm, tmp_path)[2]
        if comm.rank == 1:
            checkpointer.folder = tmp_path / "gone"
        return told(lambda: checkpointer.save(5))

    zero, one = run(saving, 2).results
    assert zero.startswith("RankFailed: rank 1 cannot save its snapshot: FileNotFoundError")
    assert one.startswith("FileNotFoundError")
    with pytest.raises(ValueError, match="keep=0: at least one"):
        run(lambda comm: saved(comm, tmp_path, keep=0), 1)


def test_random_numbers_of_python_numpy_and_torch_go_on_where_they_were(tmp_path):
    def program(comm):
        update = ShardedOptimizer(lambda groups: torch.optim.SGD(groups, 0.1), nn.Linear(3, 2), comm)
        snapshots = ShardedCheckpointer(update, tmp_path)
        snapshots.save(1)
        drawn = [(random.random(), np.random.rand(), torch.rand(()).item())]
        snapshots.resume()
        return [*drawn, (random.random(), np.random.rand(), torch.rand(()).item())]

    before, after = run(program, 1).results[0]
    assert before == after
