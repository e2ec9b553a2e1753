"""Train with DDP under torch.profiler: `torchrun --nproc-per-node 2 tests/programs/profiled_ranks.py HOW FOLDER`.

HOW: what rank 1 does before each step, "sleep" or "work". Each rank writes a trace.
"""

import sys
import time

import torch
import torch.distributed as dist
from torch.profiler import ProfilerActivity, profile, schedule

STEPS, SECONDS = 4, 0.1


def before_a_step(how):
    """Take SECONDS, asleep or computing."""
    begin = time.perf_counter()
    if how == "sleep":
        time.sleep(SECONDS)
    while time.perf_counter() < begin + SECONDS:
        torch.randn(200, 200) @ torch.randn(200, 200)


def main():
    how, folder = sys.argv[1:]
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Linear(64, 8))
    parallel = torch.nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    recorded = schedule(wait=1, warmup=1, active=STEPS)
    with profile(activities=[ProfilerActivity.CPU], schedule=recorded) as profiler:
        for _ in range(2 + STEPS):
            if rank == 1:
                before_a_step(how)
            optimizer.zero_grad()
            parallel(torch.randn(16, 64)).square().mean().backward()
            optimizer.step()
            profiler.step()
    profiler.export_chrome_trace(f"{folder}/{how}{rank}.json")
    time.sleep(0.1)  # gloo's threads free their tensors; while Python exits, they would abort it
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
