"""The checks of a communicator that averages during backward: what is in flight goes on while ranks compare."""

from collections.abc import Mapping

import torch

from mpcourse.data_parallel.checked.communicator import CheckedCommunicator, Report
from mpcourse.data_parallel.checked.finite import first_not_finite, not_finite
from mpcourse.data_parallel.overlap.bucket import Bucket
from mpcourse.data_parallel.overlap.bucketed import BucketedCommunicator
from mpcourse.data_parallel.parameters import Model, trained_parameters


class CheckedBuckets(CheckedCommunicator):
    """A CheckedCommunicator of a bucketed one, whose buckets are in flight when ranks compare what they average.

    A bucket's gradients are compared before their mean is used, and not before it is begun: that would cost a round of
    messages for each bucket.
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

    def mean_gradients(self, model: Model, examples: int | None = None) -> None:
        """Every parameter's gradient becomes its mean over all ranks. All ranks call it, after backward.

        model: a module, or its parameters, by name or in a list. A gradient that only some ranks have counts as zeros
        on the others; one that no rank has stays None.
        examples: of this rank's batch, which must be the same on all ranks; None: not compared.

        What backward has announced is in flight already.
        Raises, on every rank: ValueError for different models or numbers of examples; FloatingPointError, which names
        rank and parameter, for a gradient that is not finite; RuntimeError for one that was changed after its
        all-reduce began.
        """
        parameters = trained_parameters(model)
        if not self.inner.holds(parameters):
            super().mean_gradients(parameters, examples)
            return
        report, kept = self._report(parameters), self.inner.others(parameters)
        try:
            missing = self._agree("averages gradients", parameters, examples, report)
        except FloatingPointError:  # which all ranks are told of: they may leave this batch out, and go on
            self.inner.finish(kept)
            raise
        self.inner.mean_gradients(parameters)
        if place := self.inner.made_not_finite():
            raise not_finite(*place)
        for name in missing:
            parameters[name].grad = None

    def drop(self, model: Model) -> None:
        """Forget the gradients of this step. All ranks call it, and set them to zero or None afterwards.

        model: a module, or its parameters, by name or in a list; the same on all ranks.
        """
        if self.inner.has_arrived(model):
            begun = self.exchange("drops gradients", self.inner.begun, meanwhile=self.progress)
            self.inner.discard(max(count for (count,) in begun))

    def _report(self, parameters: Mapping[str, torch.Tensor]) -> Report:
        late, new = self.inner.add_late(), self.inner.unknown(parameters)
        bad = self.inner.not_finite or first_not_finite({name: p.grad for name, p in new.items()})
        missing = {name for name, p in parameters.items() if p.grad is None} if late or new else set()
        return Report(missing, bad, self.inner.changed())
