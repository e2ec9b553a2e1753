"""Train what lesson 14 shows, in about ten minutes: `mpirun -np 2 python -m lessons.studies.experts FILE`.

A GPT with a mixture of experts in each layer, and a dense one whose MLP is as large as one expert, so that a token
costs the same FLOPs. Two ranks share the experts, and each has half of the sequences.
"""

import json
import sys
from pathlib import Path

import torch
from mpi4py import MPI

from mpcourse.common.provenance import processor, versions
from mpcourse.data.text import course_text, draw_batch
from mpcourse.experts import MixtureGPT, average_gradients
from mpcourse.models.gpt import SMALL, gpt, token_loss
from mpcourse.studies.experts import EVERY, EXPERTS, SEEDS, SEQUENCES, STEPS, WAYS

comm = MPI.COMM_WORLD


def make(way: str) -> torch.nn.Module:
    """Return a model, which the ranks have drawn alike."""
    options = WAYS[way]
    if options is None:
        return gpt(SMALL)
    k, factor, _ = options
    return MixtureGPT(SMALL, EXPERTS, comm, k=k, factor=factor)


def outputs(model: torch.nn.Module, tokens: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return logits, and the balance loss; of a dense model 0."""
    found = model(tokens)
    return found if isinstance(found, tuple) else (found, torch.zeros(()))


@torch.no_grad()
def validate(model: torch.nn.Module) -> float:
    """Return the mean loss on the same 64 pieces of the validation text. All ranks call it, with half of them each."""
    x, target = draw_batch(course_text().validation, 64, SMALL.length, torch.Generator().manual_seed(1))
    own = slice(32 * comm.rank, 32 * comm.rank + 32)
    return comm.allreduce(token_loss(outputs(model, x[own])[0], target[own]).item()) / comm.size


def shares(model: torch.nn.Module) -> list[list[float]]:
    """Return, for each layer, the share of choices on the validation text that went to each expert."""
    counts: list[torch.Tensor] = []
    hooks = [
        block.mixture.register_forward_hook(
            lambda _, __, mixed: counts.append(torch.bincount(mixed.routing.chosen.flatten(), minlength=EXPERTS))
        )
        for block in model.blocks
    ]
    validate(model)
    for hook in hooks:
        hook.remove()
    of_layers = zip(*comm.allgather([count.tolist() for count in counts]), strict=True)
    totals = [[sum(of_expert) for of_expert in zip(*of_ranks, strict=True)] for of_ranks in of_layers]
    return [[number / sum(layer) for number in layer] for layer in totals]


def train(way: str, seed: int) -> dict:
    """Train one model; return its validation losses, and the shares of its experts at the end."""
    torch.manual_seed(seed)
    model, balance_weight = make(way), 0.0 if WAYS[way] is None else WAYS[way][2]
    optimizer = torch.optim.AdamW(model.parameters(), 3e-3)
    draw, losses = torch.Generator().manual_seed(1000 + seed), []
    for step in range(STEPS + 1):
        if step % EVERY == 0:
            losses.append(validate(model))
        if step == STEPS:
            break
        x, target = draw_batch(course_text().train, SEQUENCES, SMALL.length, draw)
        own = slice(SEQUENCES // comm.size * comm.rank, SEQUENCES // comm.size * (comm.rank + 1))
        optimizer.zero_grad()
        logits, balance = outputs(model, x[own])
        (token_loss(logits, target[own]) + balance_weight * balance).backward()
        average_gradients(comm, None, model)
        optimizer.step()
    return {"losses": losses, "shares": None if WAYS[way] is None else shares(model)}


def main() -> None:
    """Train all models on all ranks; rank 0 writes the file."""
    torch.set_num_threads(1)
    found = {way: [train(way, seed) for seed in range(SEEDS)] for way in WAYS}
    if comm.rank == 0:
        made_by = versions("torch", "mpi4py") | {"processor": processor(), "ranks": comm.size}
        Path(sys.argv[1]).write_text(json.dumps({"made by": made_by, "ways": found}, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
