"""A communicator that compares what ranks are about to do, and raises on all of them where they disagree."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any, NoReturn

import torch

from mpcourse.data_parallel.checked.control_channel import ControlChannel
from mpcourse.data_parallel.checked.fingerprint import check_alike, check_equal, fingerprint
from mpcourse.data_parallel.checked.finite import first_not_finite, not_finite
from mpcourse.data_parallel.checked.left_out import LeftOut
from mpcourse.data_parallel.checked.report import CHANGED, MISSING, NOT_FINITE, Report, reported
from mpcourse.data_parallel.communicator import Communicator, nothing
from mpcourse.data_parallel.parameters import Model, all_tensors, same_tensors, trained_parameters


class CheckedCommunicator(Communicator):
    """A communicator that compares what ranks are about to do, before `inner` sums anything.

    All ranks make one together.

    inner: any communicator.

    Where ranks disagree, all of them raise an error. Every method that all ranks call raises RankFailed, and names what
    each rank does, where ranks are about to do different things, or where one has ended.
    """

    def __init__(self, inner: Communicator) -> None:
        self.inner, self.name = inner, inner.name
        self.comm, self.nodes, self.in_flight = inner.comm, inner.nodes, inner.in_flight
        self.rank, self.size = inner.rank, inner.size
        self.intra_rank, self.intra_size = inner.intra_rank, inner.intra_size
        self.inter_rank, self.inter_size = inner.inter_rank, inner.inter_size
        self.control = ControlChannel(inner.comm)
        self._known: tuple[list[str], list[torch.Tensor], int] = ([], [], fingerprint({}))
        self.left_out = LeftOut()

    def broadcast_parameters(self, model: Model, root: int = 0) -> None:
        """Copy the parameters of rank `root`, and a module's buffers, to every rank. All ranks call it.

        model: a module, or its tensors, by name or in a list.
        root: a rank, the same on all ranks.
        Raises ValueError, on every rank, where ranks hold different models or a tensor that cannot be written to, or
        where `root` is no rank.
        """
        tensors = all_tensors(model)
        if 0 <= root < self.size:  # otherwise `inner` raises
            self.exchange("broadcasts parameters")
            check_alike(self.comm, tensors)
            self._check_writeable(tensors)
        self.inner.broadcast_parameters(tensors, root)

    def mean_gradients(self, model: Model, examples: int | None = None, *, finite: bool = True) -> None:
        """Replace every parameter's gradient by its mean over all ranks. All ranks call it, after backward.

        model: a module, or its parameters, by name or in a list. A gradient that only some ranks have counts as zeros
        on the others; a gradient that no rank has stays None.
        examples: of this rank's batch. They must be the same on all ranks, because the mean of means is the mean only
        then; otherwise see `share`. None: not compared.
        finite: refuse a gradient that is not finite. False: average it, too, so that the mean is not finite on any
        rank, and torch's GradScaler finds it.
        Raises, on every rank: ValueError for different models or numbers of examples; FloatingPointError, which names
        rank and parameter, for a gradient that is not finite; RuntimeError for a gradient that was changed after its
        all-reduce began, where that is during backward.
        """
        error = self.try_mean(model, examples, finite=finite)
        if error is not None and finite:
            raise error

    def try_mean(self, model: Model, examples: int | None = None, *, finite: bool = False) -> FloatingPointError | None:
        """Replace every parameter's gradient by its mean over all ranks. All ranks call it, after backward.

        model: a module, or its parameters, by name or in a list.
        examples: of this rank's batch, the same on all ranks; None: not compared.
        finite: leave all gradients as they are where one is not finite. False: average it, too.
        Returns the error for a gradient that is not finite, which names rank and parameter, or None where all are
        finite.
        Raises, on every rank: ValueError for different models or numbers of examples; RuntimeError for a gradient that
        was changed after its all-reduce began, where that is during backward.
        """
        parameters = trained_parameters(model)
        missing, error = self._agree("averages gradients", parameters, examples, self._report(parameters))
        if error is not None and finite:
            self._refuse(parameters)
            return error
        error = self._sum(parameters) or error
        for name in missing:
            parameters[name].grad = None
        return error

    def mean_parameters(self, model: Model) -> None:
        """Replace every trained parameter by its mean over all ranks. All ranks call it.

        model: a module, or its parameters, by name or in a list.
        Raises, on every rank: ValueError for different models; FloatingPointError, which names rank and parameter, for
        a parameter that is not finite.
        """
        parameters = trained_parameters(model)
        report = Report(set(), first_not_finite({name: p.detach() for name, p in parameters.items()}))
        _, error = self._agree("averages parameters", parameters, None, report, "the parameter")
        if error is not None:
            raise error
        self.inner.mean_parameters(parameters)

    def share(self, examples: int) -> float:
        """Return this rank's weight where batches differ in length: its examples over the mean of all ranks'.

        examples: of this rank's batch, 0 or more.

        Multiply the loss by it; then the mean of all ranks' gradients is that of all examples. All ranks call it.
        Raises ValueError for a negative number and, on every rank, where all numbers are 0.
        """
        if examples < 0:
            raise ValueError(f"a batch has no {examples} examples")
        counts = [own for (own,) in self.exchange("tells its examples", examples)]
        if not sum(counts):
            raise ValueError("no rank has any examples")
        return examples * self.size / sum(counts)

    def mean(self, value: Any) -> Any:
        """Return the mean of a number over all ranks, with its type. All ranks call it.

        value: a number, or a tensor with one element, of any shape.
        """
        self.exchange("averages a number")
        return self.inner.mean(value)

    def check_equal(
        self, model: Model, optimizer: Mapping[str, torch.Tensor] | None = None, doing: str = "averages gradients"
    ) -> None:
        """Raise ValueError, on every rank, where ranks' tensors differ in value. All ranks call it.

        model: a module, or its parameters, by name or in a list.
        optimizer: options and state of its optimizer, by name; None: they are not compared.
        doing: what this rank is about to do, for errors of ranks that do different things.
        """
        self.exchange(doing)
        named = {f"parameter {name!r}": t for name, t in all_tensors(model).items()}
        check_equal(self.comm, named | {f"the optimizer's {name}": t for name, t in (optimizer or {}).items()})

    def agree_on_gradients(self, parameters: Mapping[str, torch.Tensor], examples: int | None = None) -> set[str]:
        """Compare what ranks are about to average. Return names of parameters whose gradient no rank has.

        parameters: this rank's, by name.
        examples: of this rank's batch; None: not compared.

        All ranks call it.
        Raises, on every rank: ValueError for different models or numbers of examples; FloatingPointError, which names
        rank and parameter, for a gradient that is not finite.
        """
        missing, error = self._agree("averages gradients", parameters, examples, reported(parameters))
        if error is not None:
            raise error
        return missing

    def exchange(self, doing: str, *numbers: int, meanwhile: Callable[[], object] = nothing) -> list[tuple[int, ...]]:
        """Return the numbers that each rank gave: a tuple for each rank, in the order of ranks. All ranks call it.

        doing: what this rank is about to do, for error messages, at most 32 bytes.
        numbers: equally many on all ranks, at most 4.
        meanwhile: called repeatedly while this rank waits for the others; not on virtual ranks.
        Raises RankFailed, on every rank, where ranks are about to do different things, or where one has ended.
        """
        return self.control.exchange(doing, *numbers, meanwhile=meanwhile)

    def sum(self, buffer: torch.Tensor) -> None:
        self.inner.sum(buffer)

    def allreduce(self, buffer: torch.Tensor) -> None:
        self.inner.allreduce(buffer)

    def attach(self, model: Model) -> None:
        self.left_out.alone = False
        self.inner.attach(model)

    def detach(self) -> None:
        self.left_out.alone = True
        self.inner.detach()

    def check_idle(self) -> None:
        self.inner.check_idle()

    def drop(self, model: Model) -> None:
        """Forget the gradients of this step. All ranks call it, and then set them to zero or None.

        model: a module, or its parameters, by name or in a list; the same on all ranks.

        Either all ranks leave a batch out or none does: the next mean compares it.
        """
        self.left_out.drop(trained_parameters(model).values())
        self.inner.drop(model)

    def no_sync(self) -> AbstractContextManager[None]:
        return self.inner.no_sync()

    def progress(self) -> None:
        self.inner.progress()

    # A communicator that averages during backward overrides the following.

    def _report(self, parameters: Mapping[str, torch.Tensor]) -> Report:
        """Report this rank's gradients."""
        return reported(parameters)

    def _refuse(self, parameters: Mapping[str, torch.Tensor]) -> None:
        """Prepare for the next step where this one is refused on all ranks."""

    def _sum(self, parameters: Mapping[str, torch.Tensor]) -> FloatingPointError | None:
        """Average the gradients; return the error for a gradient found only now not to be finite."""
        self.inner.mean_gradients(parameters)
        return None

    def _agree(
        self,
        doing: str,
        parameters: Mapping[str, torch.Tensor],
        examples: int | None,
        report: Report,
        what: str = "the gradient of",
    ) -> tuple[set[str], FloatingPointError | None]:
        """Compare reports. Return names of gradients that no rank has, and the error for one that is not finite.

        what: how errors call what is averaged. All other problems in a report are raised on all ranks.
        """
        count = -1 if examples is None else examples
        left_out = self.left_out.since_last_mean(parameters.values()) if doing == "averages gradients" else 0
        numbers = self._fingerprint(parameters), count, report.flags, left_out
        said = self.exchange(doing, *numbers, meanwhile=self.progress)
        if len({alike for alike, *_ in said}) > 1:
            check_alike(self.comm, parameters)
        self.left_out.compare([theirs for *_, theirs in said])
        _check_examples([count for _, count, _, _ in said])
        flags = 0
        for _, _, own, _ in said:
            flags |= own
        if flags & CHANGED:
            self._raise_changed(report.changed)
        error = self._not_finite(report.not_finite, what) if flags & NOT_FINITE else None
        missing = set.intersection(*self.comm.allgather(report.missing)) if flags & MISSING else set()
        return missing, error

    def _fingerprint(self, parameters: Mapping[str, torch.Tensor]) -> int:
        """Return a hash of the parameters' descriptions, which is kept: computing it takes longer than sending it."""
        names, tensors, _ = self._known
        if list(parameters) != names or not same_tensors(parameters.values(), tensors):
            self._known = list(parameters), list(parameters.values()), fingerprint(parameters)
        return self._known[2]

    def _check_writeable(self, tensors: Mapping[str, torch.Tensor]) -> None:
        own = next((name for name, tensor in tensors.items() if is_expanded(tensor)), None)
        for rank, name in enumerate(self.comm.allgather(own)):
            if name is not None:
                raise ValueError(
                    f"rank {rank}: {name!r} is expanded, so that elements of it share one place in memory: clone() it"
                )

    def _raise_changed(self, own: str | None) -> NoReturn:
        rank, told = next((rank, told) for rank, told in enumerate(self.comm.allgather(own)) if told is not None)
        raise RuntimeError(
            f"rank {rank}: the gradient of {told} while it was being averaged, which begins during backward. Call the "
            "optimizer's mean_gradients() before you clip, unscale or otherwise change gradients, and its zero_grad() "
            "to leave a batch out"
        )

    def _not_finite(self, own: str | None, what: str) -> FloatingPointError:
        bad = [(rank, name) for rank, name in enumerate(self.comm.allgather(own)) if name is not None]
        return not_finite(*bad[0], len(bad) - 1, what)


def is_expanded(t: torch.Tensor) -> bool:
    """Return whether several elements of t share one place in memory, so that none can be written alone.

    t: a tensor of any shape, dtype and device.
    """
    return any(stride == 0 and n > 1 for n, stride in zip(t.shape, t.stride(), strict=True))


def _check_examples(counts: list[int]) -> None:
    if len(set(counts)) > 1:
        batches = ", ".join(f"rank {r} {n if n >= 0 else 'does not say'}" for r, n in enumerate(counts))
        raise ValueError(
            f"ranks have different numbers of examples ({batches}): the mean of their means is not the mean of "
            "all. Make shards equal, or multiply each loss by communicator.share(examples)"
        )
