"""Any torch optimizer, over ranks: the one change that ChainerMN asks of a program."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import nn

from mpcourse.data_parallel.checked.communicator import CheckedCommunicator
from mpcourse.data_parallel.checked.finite import first_not_finite
from mpcourse.data_parallel.loss_scaling import AveragedFirst, Witness
from mpcourse.data_parallel.overlap.hooks import when_accumulated
from mpcourse.data_parallel.parameters import optimizer_tensors, same_tensors, trained_parameters

Closure = Callable[[], Any]
CHANGED = (
    "rank {}: gradients were unscaled, or changed otherwise, before their mean over ranks. Call the optimizer's "
    "mean_gradients() right after backward, and then the scaler's unscale_"
)


class MultiNodeOptimizer(AveragedFirst, torch.optim.Optimizer):
    """Any torch optimizer; its step first averages gradients over all ranks. All ranks make one together.

    optimizer: any of torch's, with this rank's parameters, which become those of rank 0 now.
    communicator: made by `create_communicator`.
    model: its names are used in messages, and its buffers and frozen parameters are broadcast, too; None: names are
    those that the optimizer was given (`SGD(model.named_parameters())`).

    Everything else is the optimizer's own: param_groups, state, schedulers, hooks. A batch that is refused with
    FloatingPointError, on all ranks, leaves parameters and state as they were: after `zero_grad` training can continue.
    torch's GradScaler skips such a batch, on all ranks, and lowers its scale: see `loss_scaling.py`.
    Source: ChainerMN's multi-node optimizer (Akiba, Fukuda & Suzuki 2017).
    Raises ValueError, on every rank, where ranks hold different parameters.
    """

    def __init__(
        self, optimizer: torch.optim.Optimizer, communicator: CheckedCommunicator, *, model: nn.Module | None = None
    ) -> None:
        self.optimizer, self.communicator, self.model = optimizer, communicator, model
        self.averaged = self._compared = self._loaded = False
        self._refused: FloatingPointError | None = None  # what `step` raises if the mean is still not finite
        self._witness: Witness | None = None
        self._trained: list[torch.Tensor] = []
        self._handles: list[torch.utils.hooks.RemovableHandle] = []
        communicator.broadcast_parameters(self.named_parameters() if model is None else model)
        self._prepare()

    def __getattr__(self, name: str) -> Any:
        if name == "optimizer":  # not there yet, because it is being copied or unpickled
            raise AttributeError(name)
        return getattr(self.optimizer, name)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.optimizer!r}, {self.communicator!r})"

    def step(self, closure: Closure | None = None, *, examples: int | None = None) -> Any:
        """Average gradients over all ranks, unless `mean_gradients` has done so, and update. All ranks call it.

        closure: computes the loss and its gradients. The optimizer calls it, once or several times, and gets the mean
        of all ranks' losses, so that all ranks decide alike.
        examples: of this rank's batch, compared with those of the other ranks; None: not compared.
        Returns what the optimizer's step returns.
        Raises, on every rank: ValueError for different models or numbers of examples and, in the first step and the
        first after `load_state_dict`, for parameters, options or state that differ in value; FloatingPointError, which
        names rank and parameter, for a gradient that is not finite; RankFailed where ranks do different things, or one
        has ended.
        """
        if closure is not None:
            return self.optimizer.step(self._averaging(closure, examples))
        if not self.averaged:
            self._mean(examples)
        self.averaged = False
        if self._refused is not None and first_not_finite({n: p.grad for n, p in self.named_parameters().items()}):
            raise self._refused
        return self.optimizer.step()

    def mean_gradients(self, examples: int | None = None) -> None:
        """Average gradients now, before `step`: to unscale, clip or inspect them. All ranks call it, after backward.

        examples: of this rank's batch, compared with those of the other ranks; None: not compared.

        A gradient that is not finite on one rank is not finite on any rank afterwards. Then `step` raises
        FloatingPointError, which names the rank; torch's GradScaler skips the step.
        Raises, on every rank: ValueError for different models or numbers of examples; RankFailed where ranks do
        different things, or one has ended.
        """
        self._mean(examples, finite=False)
        self._now_averaged()
        if not self._handles:
            self._listen()

    @property
    def _step_supports_amp_scaling(self) -> bool:
        if not self.averaged and self._witness is not None and self._witness.changed():
            raise RuntimeError(CHANGED.format(self.communicator.rank))
        return super()._step_supports_amp_scaling

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget all gradients, and what is being averaged; between backward and step this leaves a batch out.

        set_to_none: set gradients to None. False: to zeros.

        Either all ranks leave a batch out, or none does.
        """
        self.averaged = False
        if self._witness is not None:
            self._witness.forget()
        self.communicator.drop(self._trained)
        self.optimizer.zero_grad(set_to_none)

    def no_sync(self) -> AbstractContextManager[None]:
        """Let backward passes within add to this rank's own gradients: for all but the last pass before a step."""
        return self.communicator.no_sync()

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the optimizer that is wrapped, for `load_state_dict`. Any rank may call it."""
        return self.optimizer.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the state of the optimizer that is wrapped. All ranks load the same before their next step."""
        self.optimizer.load_state_dict(state_dict)
        self._compared, self._loaded = False, True

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add parameters, with the optimizer's options for them; they become those of rank 0. All ranks call it.

        Raises RuntimeError between a backward pass whose gradients are being averaged and their mean.
        """
        self.communicator.check_idle()
        known = set(self.named_parameters().values())
        self.optimizer.add_param_group(param_group)
        new = {name: p for name, p in self.named_parameters().items() if p not in known}
        self.communicator.broadcast_parameters(new)
        self._prepare()

    def finish(self) -> None:
        """End the training; this optimizer has nothing left to do. All ranks call it."""

    def named_parameters(self) -> dict[str, torch.Tensor]:
        """Return the parameters of all groups, by name."""
        names = {p: name for name, p in self.model.named_parameters()} if self.model is not None else {}
        parameters: dict[str, torch.Tensor] = {}
        for group in self.optimizer.param_groups:
            given = group.get("param_names") or [None] * len(group["params"])
            for p, name in zip(group["params"], given, strict=True):
                known = names.get(p) or name or f"parameter {len(parameters)}"
                if known in parameters:  # two groups may use one name
                    known = f"{known} (parameter {len(parameters)})"
                parameters[known] = p
        return parameters

    def _averaging(self, closure: Closure, examples: int | None) -> Closure:
        def averaged() -> Any:
            loss = closure()
            self._mean(examples)
            self.averaged = False
            return self.communicator.mean(loss)

        return averaged

    def _mean(self, examples: int | None, *, finite: bool = True) -> None:
        """Average this step's gradients, and notice which parameters were frozen or are trained only now."""
        self._compare_once()
        parameters = self.named_parameters()
        self._refused = self.communicator.try_mean(parameters, examples, finite=finite)
        if self._refused is not None and finite:
            raise self._refused
        if self._witness is not None:
            self._witness.forget()
        trained = list(trained_parameters(parameters).values())
        if not same_tensors(trained, self._trained):
            for p in self._trained:
                p.grad = p.grad if p.requires_grad else None  # otherwise this rank's own gradient would be applied
            self._trained = trained
            if self._handles:
                self._listen()

    def _compare_once(self) -> None:
        """Compare, before the first mean, all known parameters, those of `model`, too, and the optimizer.

        A rank that alone has loaded its optimizer's state, like rank 0 from a checkpoint, would train apart from the
        others.
        """
        if not self._compared:
            held = self.named_parameters()
            known = set(held.values())
            others = {} if self.model is None else dict(self.model.named_parameters())
            parameters = held | {name: p for name, p in others.items() if p not in known}
            own = optimizer_tensors(self.optimizer, {p: name for name, p in held.items()})
            doing = "compares what it loaded" if self._loaded else "averages gradients"
            self.communicator.check_equal(parameters, own, doing)
            self._compared = True

    def _prepare(self) -> None:
        """Prepare for the gradients of the parameters as they are now."""
        self._trained = list(trained_parameters(self.named_parameters()).values())
        if self._handles:
            self._listen()
        # Buckets detect by themselves what is changed while they are summed.
        buckets = hasattr(self.communicator, "buckets")
        self._witness = Witness(self._trained) if self._trained and not buckets else None
        self.communicator.attach(self.named_parameters())

    def _listen(self) -> None:
        """Have `_new_gradient` called from now on. This begins only when it matters, because each call takes time."""
        for handle in self._handles:
            handle.remove()
        trained = trained_parameters(self.named_parameters()).values()
        self._handles = [when_accumulated(p, self._new_gradient) for p in trained]

    def _new_gradient(self, _: torch.Tensor) -> None:
        """Note that backward has computed a gradient of a new batch: what was averaged belongs to the batch before."""
        self.averaged = False
