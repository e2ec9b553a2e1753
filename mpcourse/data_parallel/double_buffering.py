"""Double buffering: a step applies the mean of the step before, which was all-reduced meanwhile (ChainerMN 1.2)."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from mpcourse.common.comm import Comm
from mpcourse.data_parallel.checked.communicator import CheckedCommunicator
from mpcourse.data_parallel.flat_buffers import FlatBuffers
from mpcourse.data_parallel.optimizer import Closure, MultiNodeOptimizer
from mpcourse.data_parallel.overlap.requests import BufferAllreduces
from mpcourse.data_parallel.parameters import same_tensors, trained_parameters


class DoubleBufferedOptimizer(MultiNodeOptimizer):
    """An optimizer whose step applies the previous step's mean gradient, while this step's gradient is summed.

    optimizer: any of torch's, with this rank's parameters, which become those of rank 0.
    communicator: made by `create_communicator`. All its ranks make one optimizer together.
    model: its names are used in messages, and its buffers are broadcast, too; None: only the optimizer's parameters are
    known.

    The first step applies nothing, and `finish` applies the last mean. Gradients are copied into one of two sets of
    flat buffers, in turns, and summed by a ring, whatever the communicator: only messages between neighbours can
    proceed by themselves meanwhile.
    Raises ValueError, on every rank, where ranks hold different parameters; RuntimeError where a mean that is in flight
    would be lost.
    """

    def __init__(
        self, optimizer: torch.optim.Optimizer, communicator: CheckedCommunicator, *, model: nn.Module | None = None
    ) -> None:
        self.overlap_comm = communicator.comm.Dup()  # for what is in flight while other messages are sent
        self._request: MeanRequest | None = None
        super().__init__(optimizer, communicator, model=model)

    def step(self, closure: Closure | None = None, *, examples: int | None = None) -> Any:
        """Begin to average this step's gradients, and update by the mean of the step before. All ranks call it.

        closure: must be None; anything else raises ValueError.
        examples: of this rank's batch, compared with those of the other ranks; None: not compared.
        Raises, on every rank: ValueError for different models or numbers of examples; FloatingPointError, which names
        rank and parameter, for a gradient that is not finite; RankFailed where ranks do different things, or one has
        ended.
        """
        if closure is not None:
            raise ValueError(
                "a closure asks for this step's gradients, and double buffering has those of the step before"
            )
        return super().step(examples=examples)

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the optimizer that is wrapped, for `load_state_dict`. Any rank may call it.

        Raises RuntimeError where a mean of gradients is in flight, which would be lost: call `finish` first.
        """
        self._check_idle("its state is taken")
        return super().state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the state of the optimizer that is wrapped. All ranks load the same before their next step.

        Raises RuntimeError where a mean of gradients is in flight, which belongs to another state.
        """
        self._check_idle("a state is loaded")
        super().load_state_dict(state_dict)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add parameters, with the optimizer's options for them; they become those of rank 0. All ranks call it.

        Raises RuntimeError where a mean of gradients is in flight.
        """
        self._check_idle("parameters are added")
        super().add_param_group(param_group)

    def finish(self) -> None:
        """Apply the last mean, which is still in flight. All ranks call it, after training."""
        if self._request is not None:
            self.communicator.exchange("finishes its training", meanwhile=self.communicator.progress)
            self._request.wait()
            self.communicator.in_flight.remove(self._request)
            self._request = None
            self.optimizer.step()

    @property
    def _step_supports_amp_scaling(self) -> bool:
        raise ValueError(
            "double buffering applies the gradients of the step before, whose loss may have had another scale: with a "
            "GradScaler take a MultiNodeOptimizer"
        )

    def _mean(self, examples: int | None, *, finite: bool = True) -> None:
        """Begin to average this step's gradients; give parameters the means of the step before, if there was one."""
        self._compare_once()
        parameters = trained_parameters(self.named_parameters())
        if not same_tensors(parameters.values(), self._trained):  # some were frozen, or are newly trained
            self._prepare()
        missing = self.communicator.agree_on_gradients(parameters, examples)
        before, (flat, tag) = self._request, self._buffers[1]
        flat.fill([p.grad for p in parameters.values()], 1 / self.communicator.size)
        self._request = MeanRequest(self.overlap_comm, parameters, missing, flat, tag)
        self.communicator.in_flight.append(self._request)
        self._buffers.reverse()  # only now, so that a batch that is refused leaves everything as it is
        self.optimizer.zero_grad(set_to_none=True)
        if before is not None:
            before.wait()
            self.communicator.in_flight.remove(before)

    def _prepare(self) -> None:
        parameters = self._trained = list(trained_parameters(self.named_parameters()).values())
        self._listen()
        one, other = FlatBuffers(parameters), FlatBuffers(parameters)
        # Each has its own tags: a late rank takes part in both sums at once, and the later sum's messages may go first.
        self._buffers = [(one, 0), (other, len(one.buffers))]

    def _new_gradient(self, p: torch.Tensor) -> None:
        """Let the all-reduce of the step before proceed, between parts of backward."""
        super()._new_gradient(p)
        if self._request is not None:
            self._request.test()

    def _check_idle(self, what: str) -> None:
        if self._request is not None:
            raise RuntimeError(f"a mean of gradients is in flight: call finish() before {what}")


class MeanRequest:
    """The mean of gradients over all ranks, begun. All ranks make one together.

    comm: mpi4py's communicator, or a virtual rank's; nothing else in it may use the same tags.
    parameters: this rank's, by name.
    missing: names of parameters whose gradient no rank has.
    flat: holds the gradients, divided by the number of ranks.
    tag: the first of as many tags as `flat` has buffers, which its all-reduces take.
    """

    def __init__(
        self, comm: Comm, parameters: Mapping[str, torch.Tensor], missing: set[str], flat: FlatBuffers, tag: int
    ) -> None:
        self._parameters, self._missing, self._flat = parameters, missing, flat
        self._sums = BufferAllreduces(comm, flat.buffers, tag)

    def test(self) -> bool:
        """Proceed as far as possible without waiting; return whether all is done."""
        return self._sums.test()

    def wait(self) -> None:
        """Wait, and give each parameter its mean gradient, except parameters that were frozen meanwhile."""
        self._sums.wait()
        for (name, p), view in zip(self._parameters.items(), self._flat.views, strict=True):
            p.grad = None if name in self._missing or not p.requires_grad else view
