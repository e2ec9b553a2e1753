"""What only a CUDA GPU can show, as a dated table: `make test-gpu`, or `python -m tests.validation.on_gpu`.

Each part runs in a process of its own with a time limit, because after an error on the GPU all further calls of a
process may fail, and because a call that waits for the GPU cannot be interrupted. A part writes each row as soon as it
is known, so the rows before an error, or before the limit, are kept.
"""

import argparse
import datetime
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import deepcopy
from dataclasses import asdict, dataclass
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.profiler import profile, schedule

from mpcourse.common.comm import Comm
from mpcourse.common.files import write_atomically
from mpcourse.context_parallel import kernels
from mpcourse.context_parallel.blocks import merge
from mpcourse.data import Dataset, Examples, course_text, digits, draw_batch
from mpcourse.data_parallel import MultiNodeOptimizer, create_communicator, share_of
from mpcourse.data_parallel.resilience.traces import explain, read_rank
from mpcourse.experts import Mixture
from mpcourse.models import mlp
from mpcourse.models.gpt import SMALL, gpt, token_loss
from mpcourse.models.training import train
from mpcourse.pipeline import interleaved_one_f_one_b, pipeline_step
from mpcourse.split import ParallelMLP, copy, split
from mpcourse.virtual import run
from tests.validation.truth import PAIRS, truth

ROOT = Path(__file__).resolve().parents[2]
CPU = torch.device("cpu")
MiB = 2**20
RUNS = 7
SIDE = 4096  # of the matrices that are multiplied during a copy
Results = list[torch.Tensor]


@dataclass(frozen=True)
class Row:
    """A line of the table. ok: whether the result is as expected; None: a measurement."""

    what: str
    result: str
    expected: str = ""
    ok: bool | None = None


def same(what: str, got: Sequence[torch.Tensor], wanted: Sequence[torch.Tensor], within: float = 1e-9) -> Row:
    off = torch.cat([(g.cpu().double() - w.cpu().double()).flatten() for g, w in zip(got, wanted, strict=True)])
    most = off.abs().max().item()  # NaN if one is NaN, and NaN is within no bound
    return Row(what, f"differs from the CPU by {most:.0e}", f"at most {within:.0e}", most <= within)


def guarded(what: str, rows: Iterable[Row]) -> Iterator[Row]:
    """Yield the rows, and an error as one more row."""
    try:
        yield from rows
    except Exception as error:
        yield Row(what, f"{type(error).__name__}: {str(error).partition(chr(10))[0]}", "no error", False)


# -- the code of the lessons, on the GPU and on the CPU --


def gradients(model: nn.Module) -> Results:
    return [p.grad for p in model.parameters() if p.grad is not None]


def backward(loss: torch.Tensor, model: nn.Module) -> Results:
    loss.backward()
    return [loss.detach(), *gradients(model)]


def training_loop(device: torch.device) -> Iterator[Row]:
    def losses(place: torch.device) -> Results:
        torch.manual_seed(0)
        model, data = mlp([64, 1000, 1000, 10]).double().to(place), digits()
        learn, test = (Examples(e.images.double().to(place), e.labels.to(place)) for e in (data.train, data.test))
        adam = torch.optim.Adam(model.parameters())
        curve = train(model, Dataset("digits", learn, test), adam, 1, 64, record_every=1, progress=False)
        return [torch.tensor(curve.train_loss[:20], dtype=torch.float64)]

    yield same("lesson 01: 20 losses of the plain training loop", losses(device), losses(CPU))


def copies(device: torch.device) -> Iterator[Row]:
    x = torch.ones(1000, dtype=torch.float64, requires_grad=True)
    y = copy(x, device)
    (of_x,) = torch.autograd.grad((3 * y).sum(), x)
    said = f"y on {y.device}, gradient on {of_x.device}, {of_x.unique().tolist()}"
    expected = f"y on {device}, gradient on cpu, [3.0]"
    yield Row("lesson 02: y, a copy of x to the GPU, and the gradient of 3 y", said, expected, said == expected)

    def results(place: torch.device) -> Results:
        torch.manual_seed(1)
        model = ParallelMLP(CPU, place, n_units=100).double()
        return backward(F.cross_entropy(model(torch.randn(20, 784).double()), torch.randint(10, (20,))), model)

    yield same("lesson 02: loss and gradients, ParallelMLP on CPU and GPU", results(device), results(CPU))


def layers(device: torch.device) -> Iterator[Row]:
    torch.manual_seed(0)
    plain = gpt(SMALL).double()
    tokens, following = draw_batch(course_text().train, 4, SMALL.length, torch.Generator().manual_seed(0))
    parts = split(deepcopy(plain), [3, 3], [CPU, device])
    got = backward(token_loss(parts(tokens), following.to(device)), parts)
    wanted = backward(token_loss(plain(tokens), following), plain)
    yield same("lesson 03: loss and gradients, a GPT split between CPU and GPU", got, wanted)


def pipeline(device: torch.device) -> Iterator[Row]:
    """Run a pipeline of one stage: the library refuses stages on devices of two kinds, and two stages on one GPU."""
    torch.manual_seed(0)
    plain = nn.Sequential(*[nn.Sequential(nn.Linear(6, 6), nn.Tanh()) for _ in range(6)]).double()
    parts = split(deepcopy(plain), [3, 3], [device, device])
    x, target = torch.randn(8, 6).double(), torch.randn(8, 6).double()
    wanted = backward(F.mse_loss(plain(x), target), plain)
    step = pipeline_step(parts, interleaved_one_f_one_b(1, 3, 2), x, target, F.mse_loss)
    what = "lesson 04: loss and gradients, a pipeline of one stage with two chunks"
    yield same(what, [step.loss, *gradients(parts)], wanted)
    times = [t for timed in step.execution.stages[0] for t in (timed.start, timed.end)]
    what = "lesson 04: when its 12 actions ran, by events in the stream"
    yield Row(what, f"{1e3 * times[-1]:.2f} ms together", "one after the other", times == sorted(times))


def loss_scaling(device: torch.device) -> Iterator[Row]:
    """Train as in appendix 06. In step 4, the images of rank 1 are too large for float16."""
    data = digits().train

    def program(comm: Comm) -> tuple[list[int], torch.Tensor]:
        torch.manual_seed(comm.rank)
        model, scales = mlp((64, 32, 10)).to(device), []
        optimizer = MultiNodeOptimizer(torch.optim.SGD(model.parameters(), 0.2), create_communicator("flat", comm))
        scaler = torch.amp.GradScaler(device.type, init_scale=1024, growth_interval=3)
        mine = torch.arange(64)[share_of(64, comm.rank, comm.size)]
        for step in range(8):
            images = data.images[mine] * (1e6 if (step, comm.rank) == (4, 1) else 1)
            optimizer.zero_grad()
            with torch.autocast(device.type, torch.float16):
                loss = F.cross_entropy(model(images.to(device)), data.labels[mine].to(device))
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            scales.append(round(scaler.get_scale()))
        return scales, torch.cat([p.detach().flatten() for p in model.parameters()]).cpu()

    (scales, first), (others, second) = run(program, 2).results
    expected = [1024, 1024, 2048, 2048, 1024, 1024, 1024, 2048]
    alike = scales == others and torch.equal(first, second) and bool(first.isfinite().all())
    said = f"{scales}, parameters {'' if alike else 'not '}finite and alike"
    what = "appendix 06: scales of a GradScaler in float16, 2 ranks on the GPU"
    yield Row(what, said, f"{expected}, finite and alike", alike and scales == expected)


def attention(device: torch.device) -> Iterator[Row]:
    torch.manual_seed(0)
    q, k, v = (torch.randn(1, 2, 96, 16, dtype=torch.float64, requires_grad=True) for _ in range(3))
    whole = F.scaled_dot_product_attention(q, k, v)
    wanted = [whole.detach(), *torch.autograd.grad(whole.square().sum(), (q, k, v))]

    def results(fused: bool, dtype: torch.dtype) -> Results:
        queries, keys, values = (x.detach().to(device, dtype) for x in (q, k, v))
        pieces = list(zip(keys.split(32, 2), values.split(32, 2), strict=True))
        (out, lse), *others = [kernels.forward(queries, *piece, False, None, fused) for piece in pieces]
        for other in others:
            merge(out, lse, *other)
        back = [kernels.backward(2 * out, queries, *piece, out, lse, False, None, fused) for piece in pieces]
        of_q, of_k, of_v = zip(*back, strict=True)
        return [out, torch.stack(of_q).sum(0), torch.cat(of_k, 2), torch.cat(of_v, 2)]

    what = "lesson 13: attention in blocks of keys, and its gradients"
    yield same(what, results(False, torch.float64), wanted)
    flash = f"{what}, by FlashAttention in bfloat16 (from Ampere on)"
    yield same(flash, results(True, torch.bfloat16), wanted, within=0.1)


def mixture(device: torch.device) -> Iterator[Row]:
    torch.manual_seed(1)
    plain, tokens = Mixture(None, 8, 16, 8, k=2).double(), torch.randn(24, 8, dtype=torch.float64)

    def results(layer: Mixture, place: torch.device) -> Results:
        mixed = layer(tokens.to(place))
        return [mixed.out.detach(), *backward(mixed.out.square().sum() + mixed.balance, layer)]

    got = results(deepcopy(plain).to(device), device)
    yield same("lesson 14: a mixture of 8 experts, and its gradients", got, results(plain, CPU))


def lessons(device: torch.device) -> Iterator[Row]:
    for check in (training_loop, copies, layers, pipeline, loss_scaling, attention, mixture):
        yield from guarded(check.__name__, check(device))


# -- measurements --


def memory(device: torch.device) -> Iterator[Row]:
    """Give each model of `truth` a row, and one to what it says about the GPU."""
    for case, records in groupby(truth(RUNS, str(device)), key=lambda record: record.case or ""):
        found = list(records)
        said = ", ".join(f"{r.quantity} {r.median:.4g} {r.unit}".strip() for r in found)
        if case in {pair.name for pair in PAIRS}:
            yield Row(case, said, "peak memory off by 5 % at most", all(r.kept for r in found))
        elif not case.startswith("two P100"):
            yield Row(case, said)


def clocked(device: torch.device, work: Callable[..., object], *given: Any, wait: bool = True, **named: Any) -> float:
    """Return the median seconds of a call, until the GPU has done its work (wait) or until the call returns."""
    synchronize, found = torch.get_device_module(device).synchronize, []
    for _ in range(1 + RUNS):  # the first one does not count
        synchronize(device)
        begin = time.perf_counter()
        work(*given, **named)
        if wait:
            synchronize(device)
        found.append(time.perf_counter() - begin)
    return statistics.median(found[1:])


def transfers(device: torch.device) -> Iterator[Row]:
    for size in (1, 16, 256):
        there = torch.zeros(size * MiB, dtype=torch.uint8, device=device)
        pinned, pageable = (torch.zeros(size * MiB, dtype=torch.uint8, pin_memory=pin) for pin in (True, False))
        into = [size * MiB / 1e9 / clocked(device, there.copy_, host) for host in (pinned, pageable)]
        back = [size * MiB / 1e9 / clocked(device, host.copy_, there) for host in (pinned, pageable)]
        for way, (fast, slow) in (("to the GPU", into), ("to the host", back)):
            said = f"pinned {fast:.1f} GB/s, pageable {slow:.1f} GB/s"
            yield Row(f"copy of {size} MiB {way}", said, "pinned is faster", fast > slow)
    yield Row("pageable rate / pinned rate to the GPU, 256 MiB", f"{into[1] / into[0]:.0%}", "lesson 01: 39 % to 55 %")
    sent = partial(clocked, device, there.copy_, non_blocking=True)
    free, waiting = (sent(host, wait=False) / sent(host) for host in (pinned, pageable))
    said = f"pinned {free:.0%} of the copy's time, pageable {waiting:.0%}"
    what = "how long the host waits for a non_blocking copy of 256 MiB"
    yield Row(what, said, "pinned below 10 %, pageable above 50 %", free < 0.1 and waiting > 0.5)

    module, factor = torch.get_device_module(device), torch.randn(SIDE, SIDE, device=device)
    second = module.Stream(device)

    def both(copied: bool, products: int) -> None:
        with module.stream(second):
            if copied:
                there.copy_(pinned, non_blocking=True)
        for _ in range(products):
            factor @ factor

    alone = clocked(device, both, True, 0)
    products = max(1, round(alone / clocked(device, both, False, 1)))  # copy and products take equally long
    others, together = clocked(device, both, False, products), clocked(device, both, True, products)
    said = f"{1e3 * together:.2f} ms together, {1e3 * alone:.2f} + {1e3 * others:.2f} ms alone"
    what = "non_blocking copy of 256 MiB from pinned memory on a second stream, and products of matrices"
    yield Row(what, said, "less than 75 % of the sum", together < 0.75 * (alone + others))


def nccl(device: torch.device) -> Iterator[Row]:
    """Call five all-reduces. The flight recorder is to keep the last four. Without a GPU, gloo does them."""
    os.environ["TORCH_FR_BUFFER_SIZE"] = "4"  # it is read when the first process group is made
    on_gpu = device.type == "cuda"
    backend, dump = ("nccl", "_dump_nccl_trace_json") if on_gpu else ("gloo", "_dump_fr_trace_json")
    if on_gpu:
        torch.cuda.set_device(device)
    with tempfile.TemporaryDirectory() as folder:
        dist.init_process_group(backend, init_method=f"file://{folder}/store", rank=0, world_size=1)
        x = torch.full((3, 4), 2.0, device=device)
        for _ in range(5):
            dist.all_reduce(x)
        torch.get_device_module(device).synchronize(device)
        time.sleep(0.5)  # a thread of the backend notes in the meantime that the calls have ended
        entries = json.loads(getattr(torch._C._distributed_c10d, dump)())["entries"]
        dist.destroy_process_group()
    yield Row(f"{backend}: all-reduce over one rank", f"{x.unique().tolist()}", "[2.0]", bool((x == 2).all()))
    state = "completed" if on_gpu else "scheduled"  # the recorder learns no more of gloo's calls
    found = [f"{e['profiling_name']} {e['input_sizes']} {e['state']} {e['collective_seq_id']}" for e in entries]
    wanted = [f"{backend}:all_reduce [[3, 4]] {state} {number}" for number in (2, 3, 4, 5)]
    what = "flight recorder for 4 calls, after 5: name, sizes, state and number of each"
    yield Row(what, "; ".join(found), "; ".join(wanted), found == wanted)


def traces(device: torch.device) -> Iterator[Row]:
    torch.manual_seed(0)
    model, tokens = gpt(SMALL).to(device), torch.randint(SMALL.vocabulary, (8, SMALL.length), device=device)
    adam = torch.optim.AdamW(model.parameters())
    with profile(schedule=schedule(wait=1, warmup=1, active=2)) as profiler:
        for _ in range(4):
            adam.zero_grad()
            loss = token_loss(model(tokens), tokens)
            loss.backward()
            adam.step()
            loss.item()  # waits for the GPU
            profiler.step()
    with tempfile.TemporaryDirectory() as folder:
        profiler.export_chrome_trace(f"{folder}/rank0.json")
        found = explain([read_rank(f"{folder}/rank0.json")])
    (share,), kind = found.shares, "kernels of GPUs" if found.on_gpu else "operations on the CPU"
    said = f"{found.steps} steps of {1e3 * share.step:.2f} ms, {kind}: computing {share.computing / share.step:.0%}, "
    said += f"idle {share.idle / share.step:.0%}, {share.launch / share.step:.0%} in gaps shorter than 0.1 ms"
    right = found.steps == 2 and found.on_gpu == (device.type == "cuda")
    yield Row("mpcourse trace: two steps of the small GPT of lesson 01", said, "2 steps, kernels of GPUs", right)


# -- the table --


def machine(device: torch.device) -> Iterator[Row]:
    asked = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    found = subprocess.run(asked, capture_output=True, text=True, timeout=20).stdout if shutil.which(asked[0]) else ""
    driver = (found.split() or ["unknown"])[0]
    facts = f"{torch.cuda.get_device_name(device)}, driver {driver}, torch {torch.__version__}"
    yield Row("machine", f"{facts}, CUDA {torch.version.cuda}")


PARTS = {  # each with its time limit in seconds
    "machine": (machine, 60),
    "lessons": (lessons, 100),
    "memory": (memory, 140),
    "transfers": (transfers, 60),
    "nccl": (nccl, 50),
    "traces": (traces, 60),
}
PROGRAM = "from tests.validation.on_gpu import write_rows; write_rows({!r}, {!r}, {!r})"


def write_rows(part: str, file: str, device: str) -> None:
    with open(file, "w", encoding="utf-8") as out:
        for row in guarded(part, PARTS[part][0](torch.device(device))):
            print(json.dumps(asdict(row)), file=out, flush=True)


def rows_of(part: str, device: str = "cuda:0") -> list[Row]:
    """Run a part in a process of its own. If that ends too early or too late, one more row says so."""
    limit, wrong = PARTS[part][1], ""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "rows")
        file.touch()
        command = [sys.executable, "-c", PROGRAM.format(part, str(file), device)]
        try:
            if status := subprocess.run(command, timeout=limit, cwd=ROOT).returncode:
                wrong = f"its process ended with status {status}"
        except subprocess.TimeoutExpired:
            wrong = f"it had not ended after {limit} s"
        rows = [Row(**json.loads(line)) for line in file.read_text(encoding="utf-8").splitlines()]
    return [*rows, Row(part, wrong, "no error", False)] if wrong else rows


def page(head: str, rows: Sequence[Row]) -> str:
    """Return the Markdown page: what it was measured on, and a line for each row."""
    verdict = {True: "yes", False: "**no**", None: "measured"}
    lines = [[row.what, row.result, row.expected, verdict[row.ok]] for row in rows]
    lines = [["what", "result", "expected", "ok"], ["---"] * 4, *lines]
    table = ["| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines]
    return "\n".join(["# On a real GPU", "", head, "", *table, ""])


def main(arguments: Sequence[str] | None = None) -> int:
    """Return 1 if something is not as expected, and 0 if all is, or if there is no GPU."""
    parser = argparse.ArgumentParser(prog="python -m tests.validation.on_gpu", description=__doc__)
    parser.add_argument("--save", type=Path, default=ROOT / "docs/on_a_gpu.md", metavar="FILE", help="for the table")
    options = parser.parse_args(arguments)
    if not torch.cuda.is_available():
        print(f"torch {torch.__version__} finds no CUDA GPU here, so nothing was run and nothing written.")
        return 0
    rows: list[Row] = []
    for part, (_, limit) in PARTS.items():
        print(f"{part}: {limit} s at most", flush=True)
        rows += rows_of(part)
    head = f"`make test-gpu` made this table on {datetime.date.today().isoformat()}, on {rows[0].result}."
    write_atomically(options.save, page(head, rows[1:]))
    wrong = [f"{row.what}: {row.result}" for row in rows if row.ok is False]
    print(f"{options.save} has {len(rows) - 1} rows. Not as expected: {len(wrong)}", *wrong, sep="\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
