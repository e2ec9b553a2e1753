"""What ranks that train one model say to each other: ChainerMN's communicator."""

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NoReturn

import torch
from torch import nn

from mpcourse.collectives import allreduce, broadcast, naive_allreduce
from mpcourse.data_parallel.agreement import check_alike, signature
from mpcourse.data_parallel.memory import on_host, reads
from mpcourse.data_parallel.nodes import Nodes
from mpcourse.data_parallel.packing import Packing, gradients
from mpcourse.data_parallel.pending import PendingMean
from mpcourse.data_parallel.roll_call import RollCall
from mpcourse.virtual import mpi_of

MISSING, NOT_FINITE, CHANGED = 1, 2, 4  # of some gradient
TAGS = 32767  # that any MPI has
Trained = nn.Module | Mapping[str, torch.Tensor] | Iterable[torch.Tensor]


class Communicator:
    """The ranks of `comm`, which train copies of one model. `create_communicator` makes one, on all ranks.

    rank, size; intra_rank, intra_size: among the ranks of this node; inter_rank, inter_size: this node's number, and
    how many there are. Subclasses say how a sum over ranks is made.
    """

    name = ""

    def __init__(self, comm: Any, nodes: Nodes) -> None:
        self.comm, self.nodes = comm.Dup(), nodes
        self.under_way = comm.Dup()  # for sums that go on while other things are said
        self.roll_call = RollCall(comm)
        self.rank, self.size = comm.rank, comm.size
        self.intra_rank, self.intra_size = nodes.intra.rank, nodes.intra.size
        self.inter_rank, self.inter_size = nodes.inter_rank, nodes.inter_size
        self._pending: list[PendingMean] = []  # means that were begun, and are perhaps under way
        self._tags = 0
        self._packed: tuple[list[torch.Tensor], Packing] = ([], Packing([]))
        self._signed: tuple[list[str], list[torch.Tensor], int] = ([], [], signature({}))

    def __deepcopy__(self, memo: dict[int, Any]) -> "Communicator":
        return self  # the ranks are the same ones: a copied model's batch norms talk to them, too

    def __repr__(self) -> str:
        return f"<{self.name} communicator, rank {self.rank} of {self.size}>"

    def broadcast_parameters(self, model: Trained, root: int = 0) -> None:
        """Every rank's parameters become those of rank `root`, and so do a module's buffers. All ranks call it.

        Raises ValueError, on every rank, where ranks hold different models, or what cannot be written to.
        """
        if not 0 <= root < self.size:
            raise ValueError(f"root={root}, but there are ranks 0 to {self.size - 1}")
        held = everything(model)
        self.roll_call.meet("broadcasts parameters")
        check_alike(self.comm, held)
        for rank, name in enumerate(self.comm.allgather(next((name for name in held if expanded(held[name])), None))):
            if name is not None:
                told = f"rank {rank}: {name!r} is expanded, so that numbers of it share one place in memory: clone() it"
                raise ValueError(told)
        with torch.no_grad():
            for tensor in held.values():
                if reads(self.comm, tensor):
                    self.comm.Bcast(tensor.detach(), root)
                    continue
                with on_host(tensor) as row:
                    broadcast(self.comm, row, root)

    def mean_gradients(self, model: Trained, examples: int | None = None) -> None:
        """Every parameter's gradient becomes its mean over all ranks. All ranks call it, after backward.

        A gradient that only some ranks have counts as zero on the others; one that none has stays None. Afterwards
        gradients lie in one row of numbers, which the next call writes to. examples: of this rank's batch. If it is
        given it must be the same on all ranks, for the mean of means is the mean then; see `share` for what to do else.
        Raises, on every rank: ValueError for different models or numbers of examples; FloatingPointError, which names
        rank and parameter, for a gradient that is not finite; RuntimeError for one that was changed after its sum
        began, where that is during backward; RankFailed where a rank does something else, or has ended.
        """
        held = trained(model)
        packing = self._packing(list(held.values()))
        missing = self._agree("averages gradients", held, examples, packing.fill(gradients(held), 1 / self.size))
        for row in packing.rows:
            self.sum_row(row)
        packing.hand_over(held, missing)

    def begin_mean_gradients(
        self, model: Trained, packing: Packing, examples: int | None = None, tag: int = 0
    ) -> PendingMean:
        """Begin what `mean_gradients` does, in `packing`, made for the same parameters. All ranks call it.

        Gradients are copied now, and may change. Its `finish` gives the parameters their mean. By a ring, whatever the
        communicator: only messages from neighbour to neighbour can be left alone. tag: of the first row's messages, the
        next ones follow; what is under way at once needs different ones.
        """
        held = trained(model)
        missing = self._agree("averages gradients", held, examples, packing.fill(gradients(held), 1 / self.size))
        self._pending = [each for each in self._pending if not each.over]
        self._pending.append(PendingMean(self.under_way, held, missing, packing, tag))
        return self._pending[-1]

    def mean_parameters(self, model: Trained) -> None:
        """Every trained parameter becomes its mean over all ranks. All ranks call it.

        Raises, on every rank: ValueError for different models; FloatingPointError, which names rank and parameter, for
        one that is not finite; RankFailed where a rank does something else, or has ended.
        """
        held = trained(model)
        packing = Packing(list(held.values()))  # not the one that gradients may lie in
        values = {name: p.detach() for name, p in held.items()}
        self._agree("averages parameters", held, None, packing.fill(values, 1 / self.size), set(), "the parameter")
        for row in packing.rows:
            self.sum_row(row)
        with torch.no_grad():
            for p, view in zip(held.values(), packing.views, strict=True):
                p.copy_(view)

    def share(self, examples: int) -> float:
        """How much this rank's mean counts where batches differ in length: its examples over the mean of all ranks'.

        Multiply the loss by it, and the mean of all ranks' gradients is that of all examples. All ranks call it.
        """
        if examples < 0:
            raise ValueError(f"a batch has no {examples} examples")
        told = [own for (own,) in self.roll_call.meet("tells its examples", examples)]
        if not sum(told):
            raise ValueError("no rank has any examples")
        return examples * self.size / sum(told)

    def mean(self, value: Any) -> Any:
        """The mean over all ranks of a number, or of a tensor with one; of the same type. All ranks call it."""
        self.roll_call.meet("averages a number")
        row = torch.tensor([value.item() if isinstance(value, torch.Tensor) else value], dtype=torch.float64)
        naive_allreduce(self.comm, row)
        found = row.item() / self.size
        return torch.full_like(value.detach(), found) if isinstance(value, torch.Tensor) else found

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """Within it, backward passes only add to this rank's own gradients. Without buckets they always do."""
        yield

    def attach(self, model: Trained) -> None:
        """Be ready for these parameters' gradients. What sums during backward begins here."""

    def detach(self) -> None:
        """The opposite of `attach`."""

    def check_idle(self) -> None:
        """Raise RuntimeError between a backward pass whose gradients are being averaged and their mean."""

    def sum_row(self, row: torch.Tensor) -> None:
        """Sum a row of numbers over all ranks, in place, wherever it lies. All ranks call it, with rows of one length.

        On a GPU whose memory MPI reads, by MPI's own algorithm: ours add up in the host's memory.
        """
        if reads(self.comm, row):
            self.comm.Allreduce(mpi_of(self.comm).IN_PLACE, row)
            return
        with on_host(row) as there:
            self._sum(there)

    def _sum(self, row: torch.Tensor) -> None:
        """Sum a row of numbers in the host's memory over all ranks, in place."""
        allreduce(self.comm, row)

    def progress(self) -> None:
        """Let sums that were begun go on: send and add what can be without waiting. A rank may call it at any time.

        Nothing else does while a rank computes, for there is no thread for it; MPI's own non-blocking collectives have
        the same need, and the same name for it.
        """
        for pending in self._pending:
            pending.poll()

    def drop(self, model: Trained) -> None:
        """Forget the gradients of this step. All ranks call it; nothing waits where none is being averaged."""

    def reserve_tags(self, count: int) -> int:
        """The first of `count` tags that nothing else on `under_way` has. All ranks call it, in the same order."""
        if self._tags + count > TAGS:
            self._tags = 0  # so many are not under way at once
        self._tags += count
        return self._tags - count

    def _packing(self, parameters: list[torch.Tensor]) -> Packing:
        if not same(parameters, self._packed[0]):
            self._packed = parameters, Packing(parameters)  # only of the last: rows are as large as the model
        return self._packed[1]

    def _signature(self, held: Mapping[str, torch.Tensor]) -> int:
        """That of a model is made once: it takes longer than a roll call."""
        if list(held) != self._signed[0] or not same(held.values(), self._signed[1]):
            self._signed = list(held), list(held.values()), signature(held)
        return self._signed[2]

    def _agree(
        self,
        doing: str,
        held: Mapping[str, torch.Tensor],
        examples: int | None,
        bad: str | None,
        without: set[str] | None = None,
        what: str = "the gradient of",
        changed: str | None = None,
    ) -> set[str]:
        """Compare what ranks are about to average; the names of parameters whose gradient no rank has.

        bad: the name of a parameter whose gradient is not finite here. without: the names of those that have none here;
        None: as it is now. what: how errors call what is averaged. changed: the name of a parameter whose gradient this
        rank has changed while it is being averaged.
        """
        without = {name for name, p in held.items() if p.grad is None} if without is None else without
        flags = MISSING * bool(without) | NOT_FINITE * (bad is not None) | CHANGED * (changed is not None)
        count = -1 if examples is None else examples
        told = self.roll_call.meet(doing, self._signature(held), count, flags, meanwhile=self.progress)
        if len({alike for alike, _, _ in told}) > 1:
            check_alike(self.comm, held)
        counts = [count for _, count, _ in told]
        if len(set(counts)) > 1:
            batches = ", ".join(f"rank {r} {n if n >= 0 else 'does not say'}" for r, n in enumerate(counts))
            raise ValueError(
                f"ranks have different numbers of examples ({batches}): the mean of their means is not the mean of "
                "all. Make shards equal, or multiply each loss by communicator.share(examples)"
            )
        if any(own & CHANGED for _, _, own in told):
            self._tell_changed(changed)
        if any(own & NOT_FINITE for _, _, own in told):
            self._tell_not_finite(bad, what)
        if not any(own & MISSING for _, _, own in told):
            return set()
        return set.intersection(*self.comm.allgather(without))

    def _tell_changed(self, own: str | None) -> NoReturn:
        rank, name = next((rank, name) for rank, name in enumerate(self.comm.allgather(own)) if name is not None)
        raise RuntimeError(
            f"rank {rank}: the gradient of {name!r} was changed while it was being averaged, which begins during "
            "backward. To clip or unscale gradients, call the optimizer's mean_gradients() first"
        )

    def _tell_not_finite(self, own: str | None, what: str) -> NoReturn:
        found = [(rank, name) for rank, name in enumerate(self.comm.allgather(own)) if name is not None]
        raise not_finite(*found[0], len(found) - 1, what)


def same(some: Iterable[torch.Tensor], others: Iterable[torch.Tensor]) -> bool:
    """Whether these are the same tensors, not only equal ones."""
    return list(map(id, some)) == list(map(id, others))


def expanded(t: torch.Tensor) -> bool:
    """Whether several numbers of t lie in one place, so that none can be written alone."""
    return any(stride == 0 and n > 1 for n, stride in zip(t.shape, t.stride(), strict=True))


def not_finite(rank: int, name: str, more: int = 0, what: str = "the gradient of") -> FloatingPointError:
    also = f" (and one on {more} more ranks)" if more else ""
    return FloatingPointError(
        f"rank {rank}: {what} {name!r} is not finite{also}. Its mean would spoil the model on all ranks: look "
        "at that rank's loss and examples, or at the learning rate"
    )


def everything(model: Trained) -> dict[str, torch.Tensor]:
    """What a model consists of, by name: parameters, frozen ones too, and a module's buffers."""
    if isinstance(model, nn.Module):
        return {**dict(model.named_parameters()), **dict(model.named_buffers())}
    if isinstance(model, Mapping):
        return dict(model)
    return {f"parameter {i}": p for i, p in enumerate(model)}


def trained(model: Trained) -> dict[str, torch.Tensor]:
    """The parameters that get gradients, by name, each once."""
    held = dict(model.named_parameters()) if isinstance(model, nn.Module) else everything(model)
    for name, p in held.items():
        if p.grad is not None and p.grad.is_sparse:
            raise ValueError(f"the gradient of {name!r} is sparse, and only dense ones are summed: sparse=False")
    return {name: p for name, p in held.items() if p.requires_grad}
