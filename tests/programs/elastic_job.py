"""A job that survives its ranks: `torchrun --max-restarts 3 --nproc-per-node 2 tests/programs/elastic_job.py FOLDER`.

Rank 0 saves a checkpoint every three steps. FOLDER/kills holds lines "step rank": this rank kills itself before this
step, and the line is removed, so that it happens once. Each rank appends to FOLDER/seen-RANK.jsonl what it trains on.
At the end, rank 0 writes the parameters into FOLDER/parameters.json.
"""

import json
import os
import signal
import sys
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

from mpcourse.data_parallel.resilience import Checkpoints, StepSampler

EXAMPLES, BATCH, STEPS, SAVE = 45, 6, 19, 3


def data():
    draw = torch.Generator().manual_seed(0)
    return torch.randn(EXAMPLES, 5, generator=draw, dtype=torch.float64), torch.arange(EXAMPLES).double() / EXAMPLES


def make():
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(5, 7), torch.nn.Tanh(), torch.nn.Linear(7, 1)).double()
    return model, torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)


def die_if_asked(folder, step, rank):
    kills = folder / "kills"
    lines = kills.read_text().splitlines() if kills.exists() else []
    if f"{step} {rank}" in lines:
        lines.remove(f"{step} {rank}")
        kills.write_text("\n".join(lines))
        os.kill(os.getpid(), signal.SIGKILL)


def main():
    folder, steps = Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else STEPS
    # A file of each start's own: in the launcher's store, ranks may find the address of one that is gone.
    start = os.environ["TORCHELASTIC_RUN_ID"] + os.environ["TORCHELASTIC_RESTART_COUNT"]
    place = {"rank": int(os.environ["RANK"]), "world_size": int(os.environ["WORLD_SIZE"])}
    dist.init_process_group("gloo", f"file://{folder.resolve()}/meet-{start}", timedelta(seconds=20), **place)
    rank, size = dist.get_rank(), dist.get_world_size()
    model, optimizer = make()
    sampler, checkpoints = StepSampler(EXAMPLES, BATCH, rank, size), Checkpoints(folder / "checkpoints")
    if (last := checkpoints.load()) is not None:
        model.load_state_dict(last.state["model"])
        optimizer.load_state_dict(last.state["optimizer"])
        sampler.load_state_dict(last.state["sampler"])
    x, y = data()
    with open(folder / f"seen-{rank}.jsonl", "a") as seen:
        while sampler.trained < steps:
            for chosen in sampler:
                if sampler.trained == steps:
                    break
                die_if_asked(folder, sampler.trained, rank)
                optimizer.zero_grad()
                # the sum over this rank's examples; the mean over those of all ranks comes below
                (model(x[chosen])[:, 0] - y[chosen]).square().sum().backward()
                count = torch.tensor(float(len(chosen)))
                dist.all_reduce(count)
                for p in model.parameters():
                    dist.all_reduce(p.grad)
                    p.grad /= count
                optimizer.step()
                print(json.dumps({"step": sampler.trained, "at": time.time(), "chosen": chosen}), file=seen, flush=True)
                sampler.trained += 1
                if rank == 0 and sampler.trained % SAVE == 0:
                    states = {"model": model, "optimizer": optimizer, "sampler": sampler}
                    checkpoints.save_later(sampler.trained, {name: each.state_dict() for name, each in states.items()})
    checkpoints.wait()
    if rank == 0:
        parameters = torch.cat([p.detach().reshape(-1) for p in model.parameters()]).tolist()
        (folder / "parameters.json").write_text(json.dumps(parameters))
    time.sleep(0.1)  # gloo's threads free their tensors; while Python exits, they would abort it
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
