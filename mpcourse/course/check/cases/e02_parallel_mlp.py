"""What e02_parallel_mlp is asked: the split network, against the same blocks on one device."""

import functools
from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F

from mpcourse.course.check.answer import Answer
from mpcourse.course.check.explain import explanation_of
from mpcourse.course.check.facts.calls import one_by_one
from mpcourse.course.check.facts.tensors import SECOND, Result, backward, close, equals, gradients, lanes, placed
from mpcourse.course.check.rules import Test, demand, rules, tests
from mpcourse.course.check.status_page import HasStatusPage
from mpcourse.split import ParallelMLP
from mpcourse.virtual import Box, virtual_gpus

Tensor = torch.Tensor


def check(answer: Answer, comm: HasStatusPage) -> None:
    """Check the answer; every rank may call this, and ranks exchange nothing."""
    with virtual_gpus(3) as box:
        cases = (
            ("vgpu:0", "vgpu:1", 12, 34, 3),  # narrower ones are now and then dead on all 7 rows
            ("vgpu:2", "vgpu:1", 5, 26, 4),
            ("vgpu:0", "vgpu:0", 5, 26, 4),
        )
        one_by_one(answer, [functools.partial(_compare, box=box, case=case) for case in cases])


# -- observation --


class Forward(Result):
    """What the split network made of `values`, beside `whole`, the same blocks on the CPU."""

    too_many_copies = property(lambda self: len(self.copies) > 4)

    @functools.cached_property
    def mistake(self) -> str:
        """The sentence on the mistake that gives just this result; empty for none."""
        with torch.no_grad():
            return explanation_of(self.got, _mistakes(self.whole, self.values), close)


def _compare(answer: Answer, box: Box, case: tuple[str, str, int, int, int]) -> None:
    device0, device1, n_in, n_units, n_out = case
    model = answer.call("ParallelMLP", device0, device1, n_in, n_units, n_out)
    whole = ParallelMLP("cpu", "cpu", n_in, n_units, n_out)
    demand(BLOCKS, _loaded(whole, model))
    places = [str(p.device) for p in model.parameters()]
    for number in range(2):
        values = 4 * torch.randn(7, n_in)  # so that logits have both signs, whatever the biases are
        x = values.to(device0)
        box.reset()
        out = answer.run(model, "model", x, changes=(x,))
        copies, moved = lanes(box), places != [str(p.device) for p in model.parameters()]
        want = whole(values)
        known = {"whole": whole, "values": values, "second_call": number > 0, "same_device": device0 == device1}
        demand(FORWARD, Forward(out, want, "the result", device0, moved=moved, copies=copies, **known))
        probe = torch.randn_like(want)
        model.zero_grad()
        whole.zero_grad()
        want.backward(probe)
        backward(answer, out, probe, "the result", "Every tensor that crosses goes through copy(x, device).")
        for (name, p), q in zip(model.named_parameters(), whole.parameters(), strict=True):
            demand(TRAINED, (name, p))
            demand(GRADIENTS, Result(p.grad, q.grad, f"the gradient of {name}"))


def _loaded(whole: ParallelMLP, model: Any) -> str:
    """Give `whole` the numbers of `model`, and return the error where it has other blocks."""
    try:
        whole.load_state_dict({name: value.cpu() for name, value in model.state_dict().items()})
    except (RuntimeError, AttributeError) as error:
        return str(error).splitlines()[0]
    return ""


# -- what is said --


def _mistakes(m: ParallelMLP, x: Tensor) -> Iterator[tuple[str, Tensor]]:
    """Yield a sentence and the result of each known mistake, for the input x."""
    z0, z1, relu, a, b = m.first0(x), m.first1(x), F.relu, m.second0, m.second1
    h = relu(z0 + z1)
    no_meeting = "The first meeting is missing: both second blocks see the sum of both first blocks' results."
    yield no_meeting, a(relu(z0)) + b(relu(z1))
    for first, second in ((h, relu(z0)), (h, relu(z1)), (relu(z0), h), (relu(z1), h)):
        yield (
            "Only one device has the sum of the first blocks' results: the other needs it as well.",
            a(first) + b(second),
        )
    yield f"{no_meeting} Here the results only changed places.", a(relu(z1)) + b(relu(z0))
    for one in (z0, z1):
        yield no_meeting, a(relu(one)) + b(relu(one))
    twice = "The second sum takes the first one, in which the other's result already is: it counts twice."
    yield twice, a(h) + b(relu(z0 + 2 * z1))
    yield twice, a(relu(2 * z0 + z1)) + b(h)
    yield "ReLU is missing on device1: both devices need it.", a(h) + b(z0 + z1)
    yield "ReLU is missing on device0: both devices need it.", a(z0 + z1) + b(h)
    yield "The second meeting is missing: the result is the sum of both second blocks'.", a(h)
    yield "The second meeting is missing: the result is the sum of both second blocks'.", b(h)
    yield "The ReLU between the first and the second blocks is missing.", a(z0 + z1) + b(z0 + z1)
    yield "ReLU comes after the sum: it is not linear.", a(relu(z0) + relu(z1)) + b(relu(z0) + relu(z1))
    for result in (relu(a(h) + b(h)), relu(a(h)) + relu(b(h))):  # which are one where no logit is positive
        yield "No ReLU after the second blocks, nor after their sum: these are logits, which may be negative.", result
    yield "The halves are added, not averaged.", (a(h) + b(h)) / 2
    yield "The last sum is taken twice.", 2 * (a(h) + b(h))
    yield "The second block of device0 counts twice, that of device1 never.", 2 * a(h)
    yield "The second block of device1 counts twice, that of device0 never.", 2 * b(h)
    whole_batch = "Every block sees the whole batch: it is the network that is split, not the batch."
    k = (len(x) + 1) // 2
    yield whole_batch, torch.cat([a(relu(z0))[:k], b(relu(z1))[k:]])
    mean = relu((z0 + z1) / 2)
    yield "The first blocks' results are added, not averaged.", a(mean) + b(mean)
    yield "The halves are added, not averaged.", (a(mean) + b(mean)) / 2
    yield "Each device adds its own result to itself: it needs the other's.", a(relu(2 * z0)) + b(relu(2 * z1))


BLOCKS = [
    Test(
        "other blocks",
        bool,
        "the four blocks that __init__ made",
        str,
        "Only forward is to be written: keep __init__ as it was.",
    )
]
WHYS_RESULT = rules(
    reshaped="The halves are added, not concatenated: each block has the full number of outputs.",
    second_call=SECOND,
    same_device="With both devices the same, copy(x, device) is x itself: += or relu_ changes it for both.",
    mistake="{mistake}",
    otherwise="Follow the picture: which blocks see which sum, and what is added at the end?",
)
FORWARD = [
    *placed("The two halves of the result meet on device0."),
    *equals(WHYS_RESULT, computed=True),
    *tests(
        moved=("the blocks where __init__ put them", "some have moved", "Tensors cross, blocks stay."),
        too_many_copies=(
            "4 copies in forward",
            "{copies}",
            "Four are enough: x once, one result of each first block, and the second block's result.",
        ),
    ),
]
TRAINED = [
    Test(
        "frozen",
        lambda named: not named[1].requires_grad,
        lambda named: f"{named[0]} with requires_grad True, as __init__ made it",
        "requires_grad is False",
        "requires_grad_(False) freezes a block: nothing trains it any more.",
    )
]
GRADIENTS = gradients(
    "The result is right and this gradient is not: part of the chain of gradients is cut.",
    "The result does not depend on it, or the chain of gradients is cut: detach, .data, torch.no_grad.",
)
