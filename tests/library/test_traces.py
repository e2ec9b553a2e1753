"""Where a step's time goes: traces whose answer is known, and traces of real ranks."""

import gzip
import json
import subprocess

import pytest

from mpcourse.common.errors import UserError
from mpcourse.course.commands.trace import lines
from mpcourse.data_parallel.resilience.traces import explain, merged, read_rank, seconds, within, without
from tests.conftest import ROOT, torchrun


def kernel(name, begin, end):
    return {"ph": "X", "cat": "kernel", "name": name, "ts": 1e3 * begin, "dur": 1e3 * (end - begin)}  # from ms to us


def step(number, begin, end):
    return {
        "ph": "X",
        "cat": "user_annotation",
        "name": f"ProfilerStep#{number}",
        "ts": 1e3 * begin,
        "dur": 1e3 * (end - begin),
    }


NCCL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevComm*, unsigned long, ncclWork*)"


def write(folder, rank, events, host="", zipped=False):
    trace = {"traceEvents": events, "distributedInfo": {"rank": rank}, "host_name": host}
    file = folder / f"rank{rank}.json"
    if zipped:
        file = folder / f"rank{rank}.json.gz"
        file.write_bytes(gzip.compress(json.dumps(trace).encode()))
    else:
        file.write_text(json.dumps(trace))
    return file


def two_ranks(folder, computes=60, ahead=0.0, hosts=("a", "a"), zipped=False):
    """Two steps of 100 ms. Rank 0 computes for 40 ms, and rank 1 for `computes`; then both sum for 10 ms.

    Rank 1's first 20 ms of computing are 2 ms after the begin. ahead: of its clock, in ms.
    """
    files = []
    for rank, own in ((0, 40), (1, computes)):
        at, events = ahead if rank else 0.0, []
        for number in (0, 1):
            begin = at + 100 * number
            events += [step(number, begin, begin + 100), kernel("gemm", begin + 2, begin + 2 + own)]
            events += [kernel(NCCL, begin + 2 + own, begin + 2 + max(40, computes) + 10)]
        files.append(write(folder, rank, events, hosts[rank], zipped))
    return files


@pytest.mark.parametrize("zipped", [False, True])
def test_computing_waiting_transfer_and_idle_add_up_to_a_step(tmp_path, zipped):
    found = explain([read_rank(file) for file in two_ranks(tmp_path, zipped=zipped)])
    first, second = found.shares
    assert (found.steps, found.matched, found.on_gpu) == (2, 2, True)
    milliseconds = [(s.computing, s.transfer, s.waiting, s.idle, s.hidden) for s in (first, second)]
    assert milliseconds[0] == pytest.approx([0.040, 0.010, 0.020, 0.030, 0], abs=1e-9)
    assert milliseconds[1] == pytest.approx([0.060, 0.010, 0, 0.030, 0], abs=1e-9)
    assert first.step == second.step == pytest.approx(0.1)
    assert found.waits == {1: pytest.approx(0.020)}
    said = "\n".join(lines(found))
    assert "The others wait 20.00 ms a step for rank 1: 100% of all waiting." in said
    assert "It computes 20.00 ms a step longer" in said and len(said.splitlines()) <= 10


def test_clocks_of_two_hosts_are_set_by_the_ends_of_collectives(tmp_path):
    for hosts, clock in ((("a", "b"), 0.007), (("", ""), 0.007), (("a", "a"), 0.0)):
        found = explain([read_rank(file) for file in two_ranks(tmp_path, ahead=7.0, hosts=hosts)])
        assert found.shares[1].clock == pytest.approx(clock) and found.shares[0].clock == 0
        # with one clock on one host, what the traces say is taken: rank 1 really comes 7 ms later
        assert found.shares[0].waiting == pytest.approx(0.020 if clock else 0.027)
    assert "the clock of rank 1 is +7.0 ms off" in "\n".join(
        lines(explain([read_rank(file) for file in two_ranks(tmp_path, ahead=7.0, hosts=("a", "b"))]))
    )


def test_a_rank_that_idles_is_told_from_one_that_computes(tmp_path):
    files = []
    for rank, late in ((0, 0), (1, 30)):
        events = [step(0, 0, 100), kernel("gemm", late, late + 40), kernel(NCCL, late + 40, 80)]
        files.append(write(tmp_path, rank, events))
    found = explain([read_rank(file) for file in files])
    said = "\n".join(lines(found))
    assert "The others wait 30.00 ms a step for rank 1" in said and "It idles 30.00 ms a step longer" in said


def test_messages_behind_computing_are_hidden(tmp_path):
    events = [step(0, 0, 100), kernel("gemm", 0, 80), kernel(NCCL, 30, 90)]
    found = explain([read_rank(write(tmp_path, rank, events)) for rank in (0, 1)])
    for share in found.shares:
        assert (share.hidden, share.transfer, share.waiting) == pytest.approx((0.050, 0.010, 0))
    assert "at about the same time" in "\n".join(lines(found))


def test_a_host_that_launches_too_slowly_is_named(tmp_path):
    events = [step(0, 0, 100), *(kernel("tiny", t * 0.05, t * 0.05 + 0.02) for t in range(2000))]
    found = explain([read_rank(write(tmp_path, 0, events))])
    assert found.shares[0].launch == pytest.approx(found.shares[0].idle) == pytest.approx(0.060)
    said = "\n".join(lines(found))
    assert "the host launches them too slowly" in said and "Give the traces of other ranks, too." in said


def test_collectives_of_some_ranks_only_match_nothing(tmp_path):
    one = write(tmp_path, 0, [step(0, 0, 100), kernel("gemm", 0, 40), kernel(NCCL, 40, 60), kernel(NCCL, 70, 80)])
    other = write(tmp_path, 1, [step(0, 0, 100), kernel("gemm", 0, 40), kernel(NCCL, 40, 60)])
    found = explain([read_rank(one), read_rank(other)])
    assert found.matched == 0 and "who waits for whom is not known" in "\n".join(lines(found))


def test_many_ranks_take_about_ten_lines(tmp_path):
    files = []
    for rank in range(16):
        own = 60 if rank == 11 else 40
        files.append(write(tmp_path, rank, [step(0, 0, 100), kernel("gemm", 0, own), kernel(NCCL, own, 75)]))
    said = lines(explain([read_rank(file) for file in files]))
    assert len(said) <= 11 and "The others wait 20.00 ms a step for rank 11: 100% of all waiting." in said


def test_spans():
    assert merged([(3, 4), (0, 1), (0.5, 2), (4, 5), (6, 6)]) == [(0, 2), (3, 5)]
    assert within([(0, 2), (3, 5)], 1, 4) == [(1, 2), (3, 4)]
    assert without([(0, 10)], [(1, 2), (3, 4), (9, 12)]) == [(0, 1), (2, 3), (4, 9)]
    assert without([(0, 1), (2, 3)], []) == [(0, 1), (2, 3)] and without([(0, 1)], [(0, 1)]) == []
    assert seconds([(0, 2), (3, 5)]) == 4


@pytest.mark.parametrize(
    "content, says",
    [("{", "is no trace of torch.profiler"), ("{}", "is no trace"), ('{"traceEvents": []}', "has no operations")],
)
def test_what_is_no_trace_is_one_line(tmp_path, cli, content, says):
    file = tmp_path / "x.json"
    file.write_text(content)
    done = cli("trace", file)
    assert done.returncode == 2 and says in done.stderr and len(done.stderr.splitlines()) == 1


def test_two_traces_of_one_rank_and_mixed_traces_are_refused(tmp_path):
    one = two_ranks(tmp_path)[0]
    with pytest.raises(UserError, match=r"one trace of each rank is needed: got ranks \[0, 0\]"):
        explain([read_rank(one), read_rank(one)])
    on_cpu = write(tmp_path, 1, [step(0, 0, 1) | {"cat": "cpu_op", "name": "aten::mm"}])
    with pytest.raises(UserError, match="record all ranks alike"):
        explain([read_rank(one), read_rank(on_cpu)])


@pytest.mark.ranks
@pytest.mark.parametrize("how, says", [("sleep", "It idles"), ("work", "It computes")])
def test_the_slow_one_of_two_real_ranks_is_named_with_its_cause(tmp_path, cli, how, says):
    program = ROOT / "tests" / "programs" / "profiled_ranks.py"
    command = torchrun("--standalone", "--nproc-per-node", 2, program, how, tmp_path)
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, done.stderr
    said = cli("trace", tmp_path / f"{how}0.json", tmp_path / f"{how}1.json").stdout
    assert "4 steps, 2 ranks, operations on the CPU" in said and "ms a step for rank 1" in said and says in said
    found = json.loads(cli("trace", tmp_path / f"{how}1.json", tmp_path / f"{how}0.json", "--json").stdout)
    assert found["waits"]["1"] > 0.05 and [share["rank"] for share in found["shares"]] == [0, 1]


def test_the_gpus_own_copy_of_a_steps_name_is_not_counted(tmp_path):
    """Kineto writes each annotation a second time, over the kernels that it has started (pytorch/kineto issue 1022)."""
    plain = [step(0, 0, 100), kernel("gemm", 2, 42), step(1, 100, 200), kernel("gemm", 102, 142)]
    copies = [step(number, 100 * number + 2, 100 * number + 42) | {"cat": "gpu_user_annotation"} for number in (0, 1)]
    found = [explain([read_rank(write(tmp_path, 0, events))]) for events in (plain, [*plain, *copies])]
    assert found[0] == found[1] and found[1].steps == 2


def launched(number, at, name, begin, end):
    """Return a kernel, and the call by which the host launched it."""
    call = {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": 1e3 * at, "dur": 5.0}
    return [row | {"args": {"correlation": number}} for row in (kernel(name, begin, end), call)]


def test_a_host_that_is_ahead_of_its_gpu_does_not_make_it_idle(tmp_path):
    """Two steps of 100 ms on the GPU, which the host launches within 16 ms, while the GPU computes the step before."""
    kernels = [(0, -5, "gemm", -80, 20), (1, 1, "gemm", 20, 115), (2, 9, "gemm", 120, 215), (3, 20, "gemm", 220, 310)]
    events = [step(0, 0, 8), step(1, 8, 16), *(row for k in kernels for row in launched(*k))]
    found = explain([read_rank(write(tmp_path, 0, events))])
    (share,) = found.shares
    assert found.steps == 2 and (share.step, share.computing) == pytest.approx((0.0975, 0.095))
    # a host that waits for the GPU after each step is not ahead: its own time before the first kernel counts
    kernels = [(1, 10, "gemm", 11, 91), (2, 111, "gemm", 112, 192)]
    events = [step(0, 0, 100), step(1, 100, 200), *(row for k in kernels for row in launched(*k))]
    (share,) = explain([read_rank(write(tmp_path, 0, events))]).shares
    assert (share.step, share.computing) == pytest.approx((0.1, 0.08))


def test_messages_of_gloo_between_gpus_are_collectives(tmp_path):
    files = []
    for rank, late in ((0, 0), (1, 30)):
        message = {"ph": "X", "name": "gloo:all_reduce", "ts": 1e3 * (40 + late), "dur": 1e3 * (40 - late)}
        kinds = ("user_annotation", "gpu_user_annotation")  # the second one spans the kernels launched in it
        events = [step(0, 0, 100), kernel("gemm", 0, 40 + late), *(message | {"cat": kind} for kind in kinds)]
        files.append(write(tmp_path, rank, events))
    found = explain([read_rank(file) for file in files])
    assert found.matched == 1 and found.waits == {1: pytest.approx(0.030)}
