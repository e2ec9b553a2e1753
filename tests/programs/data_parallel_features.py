"""What ChainerMN's users do beside plain steps, held against one process: `FEATURES` on virtual and on real ranks.

`mpirun -np 3 python -m mpi4py data_parallel_features.py` goes through all of them; rank 0 prints, as JSON, by feature
and communicator, how far each rank ended from one process.
"""

import gc
import json
import weakref

import torch
import torch.nn.functional as F
from torch import nn

from mpcourse.data_parallel import (
    LocalOptimizer,
    MultiNodeOptimizer,
    convert_batch_norm,
    create_communicator,
    create_multi_node_optimizer,
    evaluate,
    fuse_weight_gradients,
    scatter_indices,
    weighted_mean,
)
from mpcourse.virtual import mpi_of

KINDS = ("flat", "bucketed", "fused")  # that real ranks go through: the others differ in how a sum is made
ALONE = {}  # by its code, what a training leaves in one process, which is the same beside every rank and communicator


def mlp():
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(6, 9), nn.Tanh(), nn.Linear(9, 4), nn.Tanh(), nn.Linear(4, 3)).double()


def data(batch=12, steps=5):
    generator = torch.Generator().manual_seed(8)
    x = torch.randn(steps, batch, 6, generator=generator, dtype=torch.float64)
    return list(zip(x, torch.randint(3, (steps, batch), generator=generator), strict=True))


def create(kind, comm, model):
    """Make a communicator; "fused" is bucketed, with layers that write their gradients into the buckets."""
    if kind == "fused":
        assert fuse_weight_gradients(model, 0)
    return create_communicator("bucketed" if kind == "fused" else kind, comm)


def part(comm, x):
    return x[len(x) * comm.rank // comm.size : len(x) * (comm.rank + 1) // comm.size]


def state(model):
    return torch.cat([p.detach().flatten() for p in model.parameters()])


def apart(a, b):
    return float((a - b).abs().max())


def most(numbers):
    """Return the largest, or NaN."""
    return torch.tensor(list(numbers)).max().item()


def both(comm, kind, train, sgd=lambda p: torch.optim.SGD(p, 0.2, momentum=0.9)):
    """How far what `train(model, optimizer, share, communicator)` leaves is from what it leaves in one process."""
    if train.__code__ not in ALONE:
        whole = mlp()
        train(whole, sgd(whole.parameters()), lambda x: x, None)
        ALONE[train.__code__] = state(whole)
    model = mlp()
    communicator = create(kind, comm, model)
    train(model, MultiNodeOptimizer(sgd(model.parameters()), communicator), lambda x: part(comm, x), communicator)
    return apart(state(model), ALONE[train.__code__])


def accumulates(comm, kind):
    def train(model, optimizer, share, communicator):
        for x, y in data(batch=24):
            optimizer.zero_grad()
            for i, half in enumerate((slice(0, 12), slice(12, 24))):
                last = i == 1 or communicator is None
                if last:
                    (0.5 * F.cross_entropy(model(share(x[half])), share(y[half]))).backward()
                else:
                    with optimizer.no_sync():
                        (0.5 * F.cross_entropy(model(share(x[half])), share(y[half]))).backward()
            optimizer.step()

    return both(comm, kind, train)


def clips_after_the_mean(comm, kind):
    def train(model, optimizer, share, communicator):
        for x, y in data():
            optimizer.zero_grad()
            F.cross_entropy(model(share(x)), share(y)).backward()
            if communicator:
                optimizer.mean_gradients()
            norm = nn.utils.clip_grad_norm_(model.parameters(), 0.3)
            assert norm > 0.3
            optimizer.step()

    return both(comm, kind, train)


def calls_a_closure(comm, kind):
    def train(model, optimizer, share, communicator):
        for x, y in data(steps=2):

            def closure(x=x, y=y):
                optimizer.zero_grad()
                loss = F.cross_entropy(model(share(x)), share(y))
                loss.backward()
                return loss

            optimizer.step(closure)

    return both(comm, kind, train, lambda p: torch.optim.LBFGS(p, max_iter=4, line_search_fn="strong_wolfe"))


def weighs_batches_by_their_share(comm, kind):
    def train(model, optimizer, share, communicator):
        for x, y in data(batch=11):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(share(x)), share(y))
            (loss * communicator.share(len(share(x))) if communicator else loss).backward()
            optimizer.step()

    return both(comm, kind, train)


def leaves_a_batch_out(comm, kind):
    """One that is not finite on the last rank: all ranks are told, and go on without it."""

    def train(model, optimizer, share, communicator):
        for step, (x, y) in enumerate(data()):
            optimizer.zero_grad()
            if step == 2:
                if communicator is None:
                    continue
                x = share(x) * (float("nan") if comm.rank == comm.size - 1 else 1)
                F.cross_entropy(model(x), share(y)).backward()
                try:
                    optimizer.step()
                except FloatingPointError as error:
                    assert str(error).startswith(f"rank {comm.size - 1}: the gradient of 'parameter ")
                    continue
                raise AssertionError("nobody was told")
            F.cross_entropy(model(share(x)), share(y)).backward()
            optimizer.step()

    return both(comm, kind, train)


class Chooses(nn.Module):
    """Of three layers uses those it is told to."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(4)
        self.layers = nn.ModuleList(nn.Linear(6, 3) for _ in range(3)).double()

    def forward(self, x, used):
        return sum(self.layers[i](x) for i in used)


def counts_an_unused_parameter_as_zero(comm, kind):
    """One unused on some ranks; and one that is unused on all is left alone."""
    used = [(0, 1), (0,), (1,)]
    model, whole = Chooses(), Chooses()
    optimizer = MultiNodeOptimizer(
        torch.optim.SGD(model.parameters(), 0.1, weight_decay=0.1), create(kind, comm, model)
    )
    plain = torch.optim.SGD(whole.parameters(), 0.1, weight_decay=0.1)
    for x, _ in data(batch=4 * comm.size, steps=3):
        optimizer.zero_grad()
        model(x[4 * comm.rank : 4 * comm.rank + 4], used[comm.rank % 3]).square().mean().backward()
        optimizer.step()
        plain.zero_grad()
        losses = [whole(x[4 * r : 4 * r + 4], used[r % 3]).square().mean() for r in range(comm.size)]
        (sum(losses) / comm.size).backward()
        plain.step()
        assert model.layers[2].weight.grad is None
    return apart(state(model), state(whole))


def keeps_gradients_in_their_bucket(comm, kind):
    """For those that sum rows, not each gradient alone."""
    model = mlp()
    communicator = create(kind, comm, model)
    optimizer = MultiNodeOptimizer(torch.optim.SGD(model.parameters(), 0.1), communicator)
    for _ in range(2):
        optimizer.zero_grad()
        with optimizer.no_sync():
            model(torch.ones(2, 6, dtype=torch.float64)).sum().backward()
        if kind == "fused":  # each layer's weight; biases are copied
            places = {view.data_ptr() for bucket in communicator.buckets for view in bucket.views.values()}
            assert [p.grad.data_ptr() in places for p in model.parameters()] == [True, False] * 3
        optimizer.step()
        flats = [b.flat for b in getattr(communicator, "buckets", [])] or [communicator.inner._kept[1]]
        rows = {row.untyped_storage().data_ptr() for flat in flats for row in flat.buffers}
        assert {p.grad.untyped_storage().data_ptr() for p in model.parameters()} == rows
    return 0.0


def normalises_over_ranks(comm, kind, first=2):
    """Where batches differ in length: rank r has r + `first` examples."""
    edge = [sum(range(first, r + first)) for r in range(comm.size + 1)]
    torch.manual_seed(6)
    whole = nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5), nn.Linear(5, 3)).double()
    torch.manual_seed(6)
    model = nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5), nn.Linear(5, 3)).double()
    communicator = create(kind, comm, model)
    convert_batch_norm(model, communicator)
    optimizer, plain = (torch.optim.SGD(m.parameters(), 0.1) for m in (model, whole))
    optimizer = MultiNodeOptimizer(optimizer, communicator)
    own = slice(edge[comm.rank], edge[comm.rank + 1])
    for x, y in data(batch=edge[-1], steps=3):
        for m, o, mine, ranks in ((whole, plain, slice(None), 1), (model, optimizer, own, comm.size)):
            o.zero_grad()
            loss = F.cross_entropy(m(x[mine]), y[mine], reduction="sum")  # the mean of no example is NaN
            (loss * ranks / len(x)).backward()
            o.step()
    return most(apart(model.state_dict()[key].double(), value.double()) for key, value in whole.state_dict().items())


def normalises_beside_an_empty_batch(comm, kind):
    return normalises_over_ranks(comm, kind, 0) if comm.size > 2 else 0.0  # two ranks would have one example in all


def knows_its_node(comm, kind):
    """By the names of hosts; and where each two ranks pretend to be one. The same for every kind."""
    hosts = comm.allgather(mpi_of(comm).Get_processor_name())
    for pretended, nodes in ((None, hosts), (2, [rank // 2 for rank in range(comm.size)])):
        c, own = create_communicator("flat", comm, pretended), nodes[comm.rank]
        assert (c.rank, c.size, c.inter_size) == (comm.rank, comm.size, len(set(nodes)))
        assert (c.intra_rank, c.intra_size) == (nodes[: comm.rank].count(own), nodes.count(own))
        assert c.inter_rank == list(dict.fromkeys(nodes)).index(own)
    return 0.0


def drops_a_batch(comm, kind):
    """After backward, on all ranks: without a step, `zero_grad` begins the next one."""

    def train(model, optimizer, share, communicator):
        for step, (x, y) in enumerate(data()):
            optimizer.zero_grad(set_to_none=step != 3)
            F.cross_entropy(model(share(x)), share(y)).backward()
            if step != 2:
                optimizer.step()

    return both(comm, kind, train)


def freezes_and_thaws(comm, kind):
    """Parameters stop to be trained, and go on later, while those of the same bucket are trained all the time."""

    def train(model, optimizer, share, communicator):
        for step, (x, y) in enumerate(data(steps=7)):
            model[2].requires_grad_(step not in (2, 3))
            model[4].bias.requires_grad_(step in (2, 5))
            optimizer.zero_grad()
            F.cross_entropy(model(share(x)), share(y)).backward()
            optimizer.step()

    return both(comm, kind, train)


def trains_two_models_against_each_other(comm, kind):
    """Reach the discriminator's parameters in the generator's backward pass, too; their gradients are left out."""

    def pair():
        torch.manual_seed(5)
        return nn.Linear(6, 6).double(), nn.Linear(6, 1).double()

    ours, plain = pair(), pair()
    sgd = [[torch.optim.SGD(model.parameters(), 0.1) for model in models] for models in (ours, plain)]
    optimizers = [MultiNodeOptimizer(o, create(kind, comm, model)) for o, model in zip(sgd[0], ours, strict=True)]
    for x, _ in data():
        for (makes, judges), (of_makes, of_judges), own in (
            (ours, optimizers, part(comm, x)),
            (plain, sgd[1], x),
        ):
            of_judges.zero_grad()
            (judges(own).tanh() - judges(makes(own).detach()).tanh()).mean().backward()
            of_judges.step()
            of_makes.zero_grad()
            judges(makes(own)).tanh().mean().backward()
            of_makes.step()
    optimizers[1].zero_grad()  # what the last pass began to sum there
    return max(apart(state(a), state(b)) for a, b in zip(ours, plain, strict=True))


def leaves_nothing_behind(comm, kind):
    """Whoever lets go of model and optimizer has their memory back."""

    def train(double_buffering):
        model = mlp()
        sgd = torch.optim.SGD(model.parameters(), 0.1)
        optimizer = create_multi_node_optimizer(sgd, create(kind, comm, model), double_buffering)
        for x, y in data(steps=2):
            optimizer.zero_grad()
            F.cross_entropy(model(part(comm, x)), part(comm, y)).backward()
            optimizer.mean_gradients()  # from then on it listens to backward, too
            optimizer.step()
        optimizer.finish()
        return [weakref.ref(p) for p in model.parameters()]

    for double_buffering in (False, True):
        left = train(double_buffering)
        gc.collect()
        assert not any(p() is not None for p in left)
    return 0.0


def averages_parameters_now_and_then(comm, kind):
    """Local SGD: the mean of what each rank would be alone."""
    trained = mlp()
    optimizer = LocalOptimizer(torch.optim.SGD(trained.parameters(), 0.2), create(kind, comm, trained), every=3)
    wanted = []
    for rank in range(comm.size):
        model = mlp()
        plain = torch.optim.SGD(model.parameters(), 0.2)
        for m, o in ((model, plain),) + (((trained, optimizer),) if rank == comm.rank else ()):
            for x, y in data(batch=4 * comm.size, steps=3):
                own = slice(4 * rank, 4 * rank + 4)
                o.zero_grad()
                F.cross_entropy(m(x[own]), y[own]).backward()
                o.step()
        wanted.append(state(model))
    return apart(state(trained), sum(wanted) / comm.size)


def shares_out_and_counts(comm, kind):
    """Shards that hold every example once; results weighed by their counts."""
    communicator = create(kind, comm, mlp())
    shards = comm.allgather(scatter_indices(comm, 10, shuffle=True, seed=4).tolist())
    assert sorted(sum(shards, [])) == list(range(10))
    assert {len(shard) for shard in shards} <= {10 // comm.size, 10 // comm.size + 1}
    right, count = comm.rank, 2 * comm.rank + 1
    total = sum(2 * r + 1 for r in range(comm.size))
    mean = weighted_mean(communicator, {"loss": float(comm.rank)}, count)["loss"]
    wanted = sum(r * (2 * r + 1) for r in range(comm.size)) / total
    return most([abs(evaluate(communicator, right, count) - sum(range(comm.size)) / total), abs(mean - wanted)])


FEATURES = {
    each.__name__: each
    for each in (
        accumulates,
        clips_after_the_mean,
        calls_a_closure,
        weighs_batches_by_their_share,
        leaves_a_batch_out,
        counts_an_unused_parameter_as_zero,
        normalises_over_ranks,
        normalises_beside_an_empty_batch,
        knows_its_node,
        drops_a_batch,
        freezes_and_thaws,
        trains_two_models_against_each_other,
        leaves_nothing_behind,
        averages_parameters_now_and_then,
        shares_out_and_counts,
    )
}


def main():
    from mpi4py import MPI

    torch.set_num_threads(1)
    found = {f"{name} {kind}": feature(MPI.COMM_WORLD, kind) for name, feature in FEATURES.items() for kind in KINDS}
    assert not any(keeps_gradients_in_their_bucket(MPI.COMM_WORLD, kind) for kind in KINDS)
    told = MPI.COMM_WORLD.gather(found)
    if told:
        print(json.dumps(told), flush=True)


if __name__ == "__main__":
    main()
