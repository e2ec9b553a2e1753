"""The checks of a communicator that averages during backward: what is in flight proceeds while ranks compare."""

from collections.abc import Mapping

import torch

from mpcourse.data_parallel.checked.communicator import CheckedCommunicator
from mpcourse.data_parallel.checked.finite import first_not_finite, not_finite
from mpcourse.data_parallel.checked.report import Report
from mpcourse.data_parallel.overlap.bucket import Bucket
from mpcourse.data_parallel.overlap.bucketed import BucketedCommunicator
from mpcourse.data_parallel.parameters import Model, trained_parameters


class CheckedBuckets(CheckedCommunicator):
    """A CheckedCommunicator around a bucketed one, whose buckets are in flight when ranks compare what they average.

    A bucket's gradients are compared before their mean is used, and not before their all-reduce begins: that would cost
    a round of messages for each bucket.
    """

    inner: BucketedCommunicator

    @property
    def bucket_bytes(self) -> int:
        """Bytes at which a bucket is closed."""
        return self.inner.bucket_bytes

    @property
    def first_bucket_bytes(self) -> int:
        """Bytes at which the first bucket is closed."""
        return self.inner.first_bucket_bytes

    @property
    def buckets(self) -> list[Bucket]:
        """The buckets of the parameters that are attached, in the order in which their all-reduces begin."""
        return self.inner.buckets

    def drop(self, model: Model) -> None:
        """Forget the gradients of this step. All ranks call it, and then set them to zero or None.

        model: a module, or its parameters, by name or in a list; the same on all ranks.
        """
        self.left_out.drop(trained_parameters(model).values())
        if self.inner.has_arrived(model):
            begun = self.exchange("drops gradients", self.inner.begun, meanwhile=self.progress)
            self.inner.discard(max(count for (count,) in begun))

    def _report(self, parameters: Mapping[str, torch.Tensor]) -> Report:
        if not self.inner.holds(parameters):
            return super()._report(parameters)
        late, new = self.inner.add_late(), self.inner.unknown(parameters)
        bad = self.inner.not_finite or first_not_finite({name: p.grad for name, p in new.items()})
        missing = {name for name, p in parameters.items() if p.grad is None} if late or new else set()
        return Report(missing, bad, self.inner.changed())

    def _refuse(self, parameters: Mapping[str, torch.Tensor]) -> None:
        if self.inner.holds(parameters):
            self.inner.finish(self.inner.others(parameters))

    def _sum(self, parameters: Mapping[str, torch.Tensor]) -> FloatingPointError | None:
        held = self.inner.holds(parameters)
        self.inner.mean_gradients(parameters)
        place = self.inner.made_not_finite() if held else None
        return None if place is None else not_finite(*place)
