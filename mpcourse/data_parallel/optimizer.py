"""Any torch optimizer, over ranks: the one change that ChainerMN asks of a program."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn

from mpcourse.data_parallel.agreement import check_equal
from mpcourse.data_parallel.communicator import Communicator, same, trained
from mpcourse.data_parallel.hooks import when_accumulated
from mpcourse.data_parallel.packing import Packing
from mpcourse.data_parallel.pending import PendingMean

Closure = Callable[[], Any]


class MultiNodeOptimizer(torch.optim.Optimizer):
    """`optimizer`, whose step first averages gradients over the ranks of `communicator`. All ranks make one together.

    Its parameters become those of rank 0 now. Their names in messages are those of `model`, or those that the optimizer
    was given (`SGD(model.named_parameters())`); with `model`, its buffers and frozen parameters are broadcast, too.
    Everything else is the optimizer's own: param_groups, state, schedulers, hooks.
    A batch that is refused with FloatingPointError, on all ranks, leaves parameters and state as they were: after
    `zero_grad` training can go on.
    double_buffering: a step applies the mean of the step before, which was summed meanwhile; the first applies nothing,
    and `finish` the last.
    """

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        communicator: Communicator,
        double_buffering: bool = False,
        model: nn.Module | None = None,
    ) -> None:
        self.optimizer, self.communicator, self.double_buffering = optimizer, communicator, double_buffering
        self.model = model
        self._averaged = self._checked = False
        self._pending: PendingMean | None = None
        self._handles: list[Any] = []
        communicator.broadcast_parameters(self.held() if model is None else model)
        self._ready()

    def __getattr__(self, name: str) -> Any:
        if name == "optimizer":  # not there yet: it is being copied or unpickled
            raise AttributeError(name)
        return getattr(self.optimizer, name)

    def __repr__(self) -> str:
        return f"MultiNodeOptimizer({self.optimizer!r}, {self.communicator!r})"

    def mean_gradients(self, examples: int | None = None) -> None:
        """Average now what `step` would average: to clip gradients, or look at them, between both.

        All ranks call it. examples: see `Communicator.mean_gradients`, which also tells what it raises.
        """
        self._mean(examples)
        self._averaged = True
        if not self._handles:
            self._listen()

    def step(self, closure: Closure | None = None, *, examples: int | None = None) -> Any:
        """Average gradients over all ranks, unless `mean_gradients` has, and update. All ranks call it.

        closure: computes the loss and its gradients, as the optimizer calls it, once or several times; the loss it is
        told then is the mean over ranks, so that all ranks decide alike. Returns what the optimizer's step returns.
        Raises what `Communicator.mean_gradients` does; ValueError, in the first step, where parameters differ.
        """
        if closure is None:
            if not self._averaged:
                self._mean(examples)
            self._averaged = False
            return self.optimizer.step()

        if self.double_buffering:
            raise ValueError(
                "a closure asks for this step's gradients, and double buffering has those of the step before"
            )

        def averaged() -> Any:
            loss = closure()
            self._mean(examples)
            self._averaged = False
            return self.communicator.mean(loss)

        return self.optimizer.step(averaged)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """As the optimizer's. A batch is left out by calling it between backward and step: then all ranks do."""
        self._averaged = False
        self.communicator.drop(self._trained)
        self.optimizer.zero_grad(set_to_none)

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """Within it backward passes add to this rank's own gradients: for all but the last of several before a step."""
        with self.communicator.no_sync():
            yield

    def state_dict(self) -> dict[str, Any]:
        """The optimizer's. Raises RuntimeError where a mean is under way, which would be lost: call `finish` first."""
        self._check_idle("its state is taken")
        return self.optimizer.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """The optimizer's. Raises RuntimeError where a mean is under way, which is another state's."""
        self._check_idle("a state is loaded")
        self.optimizer.load_state_dict(state_dict)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """As the optimizer's; the new parameters become rank 0's. All ranks call it.

        Raises RuntimeError where a mean is under way: with buckets, between backward and step.
        """
        self._check_idle("parameters are added")
        self.communicator.check_idle()
        known = set(self.held().values())
        self.optimizer.add_param_group(param_group)
        self.communicator.broadcast_parameters({name: p for name, p in self.held().items() if p not in known})
        self._ready()

    def finish(self) -> None:
        """With double buffering, apply the last mean, which is still under way: after training. All ranks call it.

        Raises RankFailed where one has ended.
        """
        if self._pending is not None:
            self.communicator.roll_call.meet("finishes its training", meanwhile=self.communicator.progress)
            self._pending.finish()
            self._pending = None
            self.optimizer.step()

    def _check_idle(self, what: str) -> None:
        if self._pending is not None:
            raise RuntimeError(f"a mean of gradients is under way: call finish() before {what}")

    def _ready(self) -> None:
        """Prepare for the gradients of the parameters as they are now."""
        held = self._trained = list(trained(self.held()).values())
        if self._handles or self.double_buffering:
            self._listen()
        if not self.double_buffering:
            self.communicator.attach(self.held())
            return
        # Each with tags of its own: a rank that is late sends of both sums, and the later one first.
        packings = Packing(held), Packing(held)
        self._packings = [(each, self.communicator.reserve_tags(len(each.rows))) for each in packings]

    def _listen(self) -> None:
        """Be told of gradients of a new batch, from now on: not before it matters, for each call takes time."""
        for handle in self._handles:
            handle.remove()
        held = trained(self.held()).values()
        self._handles = [when_accumulated(p, self._go_on) for p in held]

    def _mean(self, examples: int | None) -> None:
        """Average this step's gradients, or begin to."""
        if not self._checked:
            self.communicator.roll_call.meet("averages gradients")
            check_equal(self.communicator.comm, self._checkable())
            self._checked = True
        held = self.held()
        changed = not same(trained(held).values(), self._trained)  # some were frozen, or are trained now
        if self.double_buffering:
            if changed:
                self._ready()
            self._exchange(examples)
        else:
            self.communicator.mean_gradients(held, examples)
            if changed:
                for p in self._trained:
                    p.grad = p.grad if p.requires_grad else None  # this rank's own would be applied
                self._trained = list(trained(held).values())
                if self._handles:
                    self._listen()

    def _go_on(self, _: torch.Tensor) -> None:
        """A gradient of a new batch is there. Between parts of backward, move on the sum of the step before."""
        self._averaged = False
        if self._pending is not None:
            self._pending.poll()

    def _exchange(self, examples: int | None) -> None:
        """Begin to average this step's gradients; parameters get the means of the step before, if there was one."""
        before = self._pending
        packing, tag = self._packings[1]
        self._pending = self.communicator.begin_mean_gradients(self.held(), packing, examples, tag)
        self._packings.reverse()  # not before: a batch that is refused leaves everything as it is
        self.optimizer.zero_grad(set_to_none=True)
        if before is not None:
            before.finish()

    def _checkable(self) -> dict[str, torch.Tensor]:
        """All parameters that are known here: with `model` those, too, which the optimizer was not given."""
        held = self.held()
        known = set(held.values())
        others = {} if self.model is None else dict(self.model.named_parameters())
        return held | {name: p for name, p in others.items() if p not in known}

    def held(self) -> dict[str, torch.Tensor]:
        """The parameters of all groups, by name."""
        names = {p: name for name, p in self.model.named_parameters()} if self.model is not None else {}
        found: dict[str, torch.Tensor] = {}
        for group in self.optimizer.param_groups:
            told = group.get("param_names") or [None] * len(group["params"])
            for p, name in zip(group["params"], told, strict=True):
                known = names.get(p) or name or f"parameter {len(found)}"  # groups may name theirs alike
                found[known if known not in found else f"{known} (parameter {len(found)})"] = p
        return found
