"""What ranks of a pipeline are asked, under mpirun with any number of ranks: the whole model's training, or its errors.

Every rank has the whole model too, as the oracle; of the pipeline it has its own parts. What the whole model learns is
the same for all schedules, and each rank finds it once. Rank 0 prints, as JSON, a line for each case that was run, or
for each mistake the list of what each rank said.
"""

import copy
import functools
import itertools
import json
import sys
from typing import NamedTuple

import torch
import torch.nn.functional as F
from mpi4py import MPI
from torch import nn

from mpcourse.pipeline import (
    defer_batch_norm,
    gpipe,
    interleaved_one_f_one_b,
    naive,
    one_f_one_b,
    pipeline_step,
    zero_bubble_h1,
)
from mpcourse.pipeline.ranks import PipelineRank
from mpcourse.split import split

comm = MPI.COMM_WORLD
p = comm.size
MAKERS = {
    "naive": naive,
    "gpipe": gpipe,
    "1f1b": one_f_one_b,
    "interleaved": lambda p, m: interleaved_one_f_one_b(p, m, 2),
    "zb-h1": zero_bubble_h1,
}


class Two(nn.Module):
    """Takes and returns two tensors."""

    def __init__(self):
        super().__init__()
        self.one, self.other = nn.Linear(6, 6), nn.Linear(6, 6)

    def forward(self, a, b):
        return torch.tanh(self.one(a) + b), torch.tanh(self.other(b) * a.detach())


class Begin(nn.Module):
    def forward(self, x):
        return x, x.flip(1)


class End(nn.Module):
    def forward(self, a, b):
        return a - b


class Breaks(nn.Module):
    def forward(self, x):
        raise ZeroDivisionError("this layer cannot")


class Chain(nn.Sequential):
    """A sequential whose layers take as many tensors as the layer before returns."""

    def forward(self, *given):
        for layer in self:
            given = layer(*given)
            given = given if isinstance(given, tuple) else (given,)
        return given if len(given) > 1 else given[0]


def layers(n, width=6):
    return nn.Sequential(*[nn.Sequential(nn.Linear(width, width), nn.Tanh()) for _ in range(n)])


def eight():
    return layers(8)


def nine():
    return layers(9)


def frozen():
    model = layers(8)
    for q in [*model[0].parameters(), *model[3].parameters(), *model[7].parameters()]:
        q.requires_grad_(False)
    return model


def two():
    return Chain(Begin(), *[Two() for _ in range(8)], End())


def cut(each, chunks):
    """Divide what belongs to layers among the model's parts: as many layers for each, and the rest for the last."""
    parts, per = p * chunks, len(each) // (p * chunks)
    ends = [i * per for i in range(parts)] + [len(each)]
    return [each[a:b] for a, b in itertools.pairwise(ends)]


def pieces(model, chunks):
    return [Chain(*part) for part in cut(list(model), chunks)]


def own(each, chunks):
    """Of what there is of each layer, that of this rank's layers, one after the other."""
    return [x for part in cut(each, chunks)[comm.rank :: p] for of_layer in part for x in of_layer]


def batches(batch, steps, dtype):
    generator = torch.Generator().manual_seed(7)  # the same data on all ranks, whose own seeds differ
    return [torch.randn(2, batch, 6, generator=generator, dtype=dtype) for _ in range(steps)]


class Learnt(NamedTuple):
    """What a whole model's training finds: by step; gradients and parameters of each layer, with their names."""

    losses: list
    of_inputs: list
    gradients: list
    parameters: list


@functools.cache
def alone(seed, make, batch, steps, input_learns, dtype):
    model, found = model_of(seed, make, dtype), Learnt([], [], [], [])
    optimizer = torch.optim.SGD([q for q in model.parameters() if q.requires_grad], lr=0.1, momentum=0.9)
    for step, (x, target) in enumerate(batches(batch, steps, dtype)):
        x.requires_grad_(input_learns)
        optimizer.zero_grad()
        loss = F.mse_loss(model(x), target)
        loss.backward()
        found.losses.append(loss.detach())
        found.of_inputs.append(x.grad)
        found.gradients.append([[q.grad for q in layer.parameters()] for layer in model])
        if step != 1:
            optimizer.step()
    found.parameters.extend([*layer.named_parameters()] for layer in model)
    return found


def train(label, seed, make, name, m, batch, *, tolerance=1e-12, input_learns=False, dtype=torch.float64, **how):
    """Do some steps on the ranks and on the whole model; losses, gradients and parameters have to be the same."""
    chunks, steps = 2 if name == "interleaved" else 1, 3
    want = alone(seed, make, batch, steps, input_learns, dtype)
    mine = pieces(model_of(seed, make, dtype), chunks)[comm.rank :: p]
    parameters = [q for part in mine for q in part.parameters()]
    names = [n for n, _ in own(want.parameters, chunks)]
    stage = PipelineRank(comm, mine, MAKERS[name](p, m), F.mse_loss, **how)
    learned = [q for q in parameters if q.requires_grad]
    optimizer = torch.optim.SGD(learned, lr=0.1, momentum=0.9) if learned else None
    for step, (x, target) in enumerate(batches(batch, steps, dtype)):
        x.requires_grad_(input_learns)
        if optimizer and step != 1:  # the second step's gradients are added to the first's
            optimizer.zero_grad()
        before = [None if q.grad is None else q.grad.clone() for q in parameters]
        got = stage.step(x if comm.rank == 0 else None, target if comm.rank == p - 1 else None)
        close(label, got, want.losses[step] if comm.rank == p - 1 else None, tolerance)
        if input_learns and comm.rank == 0:
            close(label, x.grad, want.of_inputs[step], tolerance)
        for n, q, grad, had in zip(names, parameters, own(want.gradients[step], chunks), before, strict=True):
            close(f"{label}: {n}.grad", q.grad, grad if had is None or q.grad is None else grad + had, tolerance)
        if optimizer and step != 1:
            optimizer.step()
    for (n, learnt), q in zip(own(want.parameters, chunks), parameters, strict=True):
        close(f"{label}: {n}", q, learnt, tolerance)
    return label


def close(label, got, want, tolerance):
    assert (got is None) == (want is None), f"{label}: {got} for {want}"
    if want is not None:
        torch.testing.assert_close(got, want, rtol=tolerance, atol=tolerance, msg=lambda m: f"{label}: {m}")


def normed():
    return defer_batch_norm(nn.Sequential(*[nn.Sequential(nn.Linear(6, 6), nn.BatchNorm1d(6)) for _ in range(8)]))


def model_of(seed, make, dtype=torch.float64):
    torch.manual_seed(seed)
    model = make().to(dtype)
    torch.manual_seed(100 + comm.rank)
    return model


def equal():
    done = []
    for name in MAKERS:
        for m, checkpoint in ((1, False), (3, False), (3, True), (7, False)):
            done.append(train(f"{name} {m} {checkpoint}", 0, nine, name, m, 7, checkpoint=checkpoint))
    for name in MAKERS:
        done.append(train(f"{name} frozen", 1, frozen, name, 3, 5))
        done.append(train(f"{name} two tensors", 2, two, name, 3, 5))
        done.append(train(f"{name} input", 3, eight, name, 3, 5, input_learns=True))
        for dtype, tolerance in ((torch.float32, 1e-5), (torch.bfloat16, 0.1)):
            done.append(train(f"{name} {dtype}", 4, eight, name, 2, 5, dtype=dtype, tolerance=tolerance))
        tied(name)
        local(name, lambda: nn.Sequential(*[nn.Sequential(nn.Linear(6, 6), nn.Dropout(0.4)) for _ in range(8)]), done)
        for checkpoint in (False, True):
            local(name, normed, done, checkpoint=checkpoint)
        done.append(f"{name} tied")
    return done


def local(name, make, done, **how):
    """Random numbers and running statistics are those of the pipeline in one process."""
    chunks = 2 if name == "interleaved" else 1
    model = model_of(5, make)
    whole = copy.deepcopy(model)
    per = len(model) // (p * chunks)
    sizes = [per] * (p * chunks - 1) + [len(model) - per * (p * chunks - 1)]
    one = split(whole, sizes, ["cpu"] * (p * chunks))
    schedule = MAKERS[name](p, 4)
    mine = [part for i, part in enumerate(pieces(model, chunks)) if i % p == comm.rank]
    stage = PipelineRank(comm, mine, schedule, F.mse_loss, seed=11, **how)
    for step in range(2):
        x, target = torch.randn(2, 9, 6, generator=torch.Generator().manual_seed(step), dtype=torch.float64)
        want = pipeline_step(one, schedule, x, target, F.mse_loss, seed=11 + step, **how).loss
        close(name, stage.step(x, target), want if comm.rank == p - 1 else None, 1e-12)
    theirs = [part for i, part in enumerate(pieces(whole, chunks)) if i % p == comm.rank]
    for a, b in zip(mine, theirs, strict=True):
        for (n, q), r in zip(b.state_dict().items(), a.state_dict().values(), strict=True):
            close(f"{name}: {n}", r, q, 1e-12)
        for (n, q), r in zip(b.named_parameters(), a.parameters(), strict=True):
            close(f"{name}: {n}.grad", r.grad, q.grad, 1e-12)
    done.append(f"{name} local {type(model[0][1]).__name__} {how}")


def tied(name):
    """Use the last layer's weight as the first one's, too."""
    model = model_of(6, eight)
    whole = copy.deepcopy(model)
    whole[7][0].weight = whole[0][0].weight
    chunks = 2 if name == "interleaved" else 1
    parts = pieces(model, chunks)
    mine = [part for i, part in enumerate(parts) if i % p == comm.rank]
    ends = {}
    if comm.rank == 0:
        ends["first"] = model[0][0].weight
    if p == 1:
        model[7][0].weight = model[0][0].weight
    elif comm.rank == p - 1:
        ends["first"] = model[7][0].weight
    stage = PipelineRank(comm, mine, MAKERS[name](p, 3), F.mse_loss, tied=ends)
    one = torch.optim.SGD(whole.parameters(), lr=0.1)
    other = torch.optim.SGD(nn.ModuleList(mine).parameters(), lr=0.1)  # which names what is tied once
    for step in range(4):
        x, target = torch.randn(2, 7, 6, generator=torch.Generator().manual_seed(step), dtype=torch.float64)
        F.mse_loss(whole(x), target).backward()
        stage.step(x, target)
        if step % 2:  # every second step: gradients of two are added
            for optimizer in (one, other):
                optimizer.step()
                optimizer.zero_grad()
        for q in ends.values():
            close(f"{name} tied", q, whole[0][0].weight, 1e-12)


def refused():
    """Return what each rank says, case by case."""
    said = {}

    def ask(case, call):
        try:
            call()
            found = "nothing"
        except Exception as error:
            found = f"{type(error).__name__}: {error}"
        said[case] = comm.gather(found)

    part = nn.Linear(6, 6)
    x = torch.randn(8, 6)
    first, last = comm.rank == 0, comm.rank == p - 1

    def make(schedule, chunks=part, **how):
        return PipelineRank(comm, chunks, schedule, F.mse_loss, **how)

    ask("stages", lambda: make(one_f_one_b(p + 1, 4)))
    ask("fewer", lambda: make(one_f_one_b(p - 1, 4)))
    ask("chunks", lambda: make(one_f_one_b(p, 4), [part, part] if last else part))
    ask("other", lambda: make(one_f_one_b(p, 4) if first else gpipe(p, 4)))
    ask("seed", lambda: make(one_f_one_b(p, 4), seed=comm.rank))
    ask("illegal", lambda: make([[("F", 0), ("B", 0)]] * (p - 1) + [[("B", 0), ("F", 0)]]))
    ask("tied", lambda: make(one_f_one_b(p, 4), tied={"w": nn.Parameter(torch.zeros(2 + comm.rank))}))
    ask("tied alone", lambda: make(one_f_one_b(p, 4), tied={"w": part.weight} if last else {}))
    ask("other name", lambda: make(one_f_one_b(p, 4), tied={"w" if first else "W": part.weight}))
    stage = make(one_f_one_b(p, 4))
    ask("x", lambda: stage.step(None, x))
    ask("target", lambda: stage.step(x, None if last else x))
    ask("lengths", lambda: stage.step(x[:7], x))
    ask("short", lambda: stage.step(x[:3], x[:3]))
    ask("works", lambda: stage.step(x, x))
    broken = make(one_f_one_b(p, 4), Breaks() if comm.rank == 1 else part)
    ask("broken", lambda: broken.step(x, x))
    ask("again", lambda: broken.step(x, x))
    # What the broken one has sent and nobody took must not be taken for a new one's.
    ask("anew", lambda: train("anew", 0, eight, "1f1b", 4, 8))
    return said


def breaks_with_large_messages():
    """Raise on the last rank while others have sent it what it never takes; each rank ends by its own error."""
    stage = PipelineRank(comm, Breaks() if comm.rank == p - 1 else nn.Identity(), gpipe(p, 4), F.mse_loss)
    x = torch.randn(4000, 1000, requires_grad=True)
    stage.step(x, x)


if __name__ == "__main__":
    torch.set_num_threads(1)
    told = globals()[sys.argv[1]]()
    if comm.rank == 0:
        print(json.dumps(told))
