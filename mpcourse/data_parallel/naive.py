"""The naive communicator: a sum for each parameter."""

import torch

from mpcourse.data_parallel.communicator import Communicator, Trained, trained


class NaiveCommunicator(Communicator):
    """As many sums as there are parameters, the shortest of a few bytes: each costs a message's latency at least.

    What every other communicator is an improvement on.
    """

    name = "naive"

    def mean_gradients(self, model: Trained, examples: int | None = None) -> None:
        held = trained(model)
        gradients = ((name, p.grad) for name, p in held.items() if p.grad is not None)
        bad = next((name for name, gradient in gradients if not gradient.isfinite().all()), None)
        missing = self._agree("averages gradients", held, examples, bad)
        for name, p in held.items():
            if name in missing:
                continue
            p.grad = torch.zeros_like(p) if p.grad is None else p.grad / self.size
            self.sum_row(p.grad)
