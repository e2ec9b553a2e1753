"""Train with torch's PowerSGD hook: `torchrun --nproc-per-node 2 tests/programs/powersgd_of_torch.py`.

Rank 0 prints all parameters after each step. `train` is also called by the test, with our own PowerSGD.
"""

import json
import time

import torch
import torch.distributed as dist
from torch import nn

COLUMNS, PLAIN, STEPS = 2, 2, 4  # PLAIN: torch's hook begins after two steps in which gradients are just averaged


def model_of():
    torch.manual_seed(0)
    layers = nn.Conv2d(2, 9, 3), nn.Flatten(), nn.ReLU(), nn.Linear(36, 11), nn.ReLU(), nn.Linear(11, 3)
    return nn.Sequential(*layers).double()


def train(model, rank, after_backward, forward=None):
    """Take all steps; return parameters after each of them."""
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    draw, found = torch.Generator().manual_seed(rank), []
    for step in range(PLAIN + STEPS):
        x = torch.randn(5, 2, 4, 4, generator=draw, dtype=torch.float64)
        optimizer.zero_grad()
        (forward or model)(x).square().mean().backward()
        after_backward(step)
        optimizer.step()
        found.append(torch.cat([p.detach().reshape(-1) for p in model.parameters()]).tolist())
    return found


def main():
    from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState, powerSGD_hook

    dist.init_process_group("gloo")
    model = model_of()
    parallel = nn.parallel.DistributedDataParallel(model)
    state = PowerSGDState(None, COLUMNS, start_powerSGD_iter=PLAIN, min_compression_rate=1, orthogonalization_epsilon=0)
    parallel.register_comm_hook(state, powerSGD_hook)
    found = train(model, dist.get_rank(), lambda step: None, parallel)
    if dist.get_rank() == 0:
        print(json.dumps(found))
    time.sleep(0.1)  # gloo's threads free their tensors; while Python exits, they would abort it
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
