"""What e11_attention_heads is asked: one result on all ranks, gradients of parts, and no more bytes and products."""

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
import torch.fx.experimental.symbolic_shapes  # what a backward that is given gradients imports: before the clock starts
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from mpcourse.course.check.answer import Answer
from mpcourse.course.check.cases.on_models import Finding, each_on_real, each_on_virtual, on_virtual, one_line
from mpcourse.course.check.facts.heads import Way
from mpcourse.course.check.facts.messages import SLACK, THROUGH_WORLD, Sent, is_virtual, metered, other_than_world
from mpcourse.course.check.rules import judge, rules, tests
from mpcourse.course.check.status_page import HasStatusPage
from mpcourse.course.check.wrong import Wrong, first_difference, short
from mpcourse.tensor_parallel.mappings import sum_out

if TYPE_CHECKING:
    from mpcourse.course.check.traced_mpi import TracedComm

NAME = "attention"
LENGTH, BATCH = 5, 2
HEAD = 24  # a head's width: numbers of ranks divide it, too, so that heads cut in a wrong way still fit
PARAMETERS = ("qkv's weight", "qkv's bias", "out's weight", "out's bias")

# -- inputs --


@dataclass(frozen=True)
class Case:
    """heads: of attention. permuted: whether x is not contiguous. why: for an answer that was right until then."""

    heads: int = 12
    permuted: bool = False
    why: str = ""

    width = property(lambda self: self.heads * HEAD)
    what = property(lambda self: f"{self.heads} heads" + (" and an x that is not contiguous" if self.permuted else ""))

    def tensors(self) -> list[Tensor]:
        """Return x, the weight and the bias of qkv, those of out, and the gradient of the result."""
        draw = functools.partial(torch.randn, generator=torch.Generator().manual_seed(self.heads), dtype=torch.float64)
        w = self.width
        x, *parameters = (
            draw(LENGTH, BATCH, w),
            draw(3 * w, w) * 1.5 / w**0.5,
            draw(3 * w),
            draw(w, w) / w**0.5,
            draw(w),
        )
        x = x.transpose(0, 1).contiguous().transpose(0, 1) if self.permuted else x
        return [*(t.requires_grad_() for t in (x, *parameters)), draw(LENGTH, BATCH, w)]


CASES = (
    Case(),
    Case(permuted=True, why="x need not be contiguous: .reshape copies where it has to, and .view refuses to."),
)
# What torch says where shapes do not fit.
MISFITS = ("shapes cannot be multiplied", "is invalid for input of size", "must match the size", "expanded size")
UNEQUAL = ((3, 2), (4, 6), (4, 2))  # ranks, and heads that they cannot share


def check(answer: Answer, comm: "TracedComm") -> None:
    """Check the answer on real ranks; every rank must call this."""
    each_on_real(answer, comm, CASES[:1], _program, _judge)


def check_virtually(answer: Answer, comm: HasStatusPage) -> None:
    """Check the answer on virtual ranks; one process calls this."""
    each_on_virtual(answer, comm, CASES, _program, _judge, "attention to work on {ranks}, with {case.what}")
    for size, heads in UNEQUAL:
        asked = f"ValueError on all of {size} ranks, for {heads} heads"
        on_virtual(answer, comm, size, functools.partial(_refuse, Case(heads)), _judge_refused, (asked, REFUSE))


@functools.lru_cache(8)
def _right(case: Case) -> tuple[np.ndarray, list[np.ndarray]]:
    """Return the result and the gradients of x and of the parameters, of one process."""
    x, weight, bias, out, out_bias, gradient = case.tensors()
    y = Way().parts(x, weight, bias, out, case.heads, 1)[0] + out_bias
    gradients = torch.autograd.grad(y, [x, weight, bias, out, out_bias], gradient)
    return y.detach().numpy(), [g.numpy() for g in gradients]


# -- observation --


class _Multiplications(TorchDispatchMode):
    """Count the multiplications of matrix products."""

    count = 0

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Say no: otherwise dynamo imports the compiler at the first operation (2 s)."""
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        if name in ("mm", "bmm", "addmm", "baddbmm"):
            a, b = [t for t in args if isinstance(t, Tensor)][-2:]
            self.count += a.numel() * b.shape[-1]
        return func(*args, **(kwargs or {}))


class Seen(NamedTuple):
    """What one rank's call and its backward did.

    result: None if it is no tensor; then it is shown. gradients: of x and of the parameters. products: multiplications.
    one: bytes of a sum_out. forward, backward: what was sent, known of virtual ranks.
    """

    result: np.ndarray | None
    shown: str
    gradients: list[np.ndarray | None] | None
    products: int
    one: int
    forward: Sent | None
    backward: Sent | None


def _program(case: Case, own: Answer, comm: Any) -> Seen:
    comm = other_than_world(comm)
    *given, gradient = case.tensors()
    sent: Callable[[], Any] = metered(comm) if is_virtual(comm) else lambda: None
    sum_out(comm, gradient)
    one = sent()
    with _Multiplications() as products:
        try:
            y = own.call(NAME, comm, given[0], tuple(given[1:3]), tuple(given[3:]), case.heads)
        except RuntimeError as error:
            if not any(words in str(error) for words in MISFITS) or case.why:
                raise
            raise Wrong("products and sums of tensors that fit together", one_line(error), FIT) from None
    forward = sent()
    gradients = None
    if isinstance(y, Tensor) and y.requires_grad and y.shape == gradient.shape:
        own.run(lambda gradient: y.backward(gradient.to(y.dtype)), "backward", gradient)
        gradients = [None if t.grad is None else t.grad.numpy().copy() for t in given]
    result = y.detach().numpy().copy() if isinstance(y, Tensor) else None
    return Seen(result, short(y), gradients, products.count, one.nbytes if one else 0, forward, sent())


@dataclass(frozen=True)
class Facts:
    """What one rank did, beside all others. of: which gradient is looked at, by its place among the parameters."""

    rank: int
    case: Case
    everyone: Sequence[Seen]
    of: int = 0

    seen = property(lambda self: self.everyone[self.rank])
    size = property(lambda self: len(self.everyone))
    sent = property(lambda self: max(self.seen.backward, self.seen.forward, key=lambda sent: bool(sent and sent.world)))
    no_tensor = property(lambda self: self.seen.result is None)
    results = property(lambda self: [seen.result for seen in self.everyone])
    bias = property(lambda self: self.case.tensors()[4].detach().numpy())

    # The result.

    @functools.cached_property
    def difference(self) -> tuple[str, str] | None:
        place = f"the result with {self.case.what} on {self.on}"
        return first_difference(self.seen.result, _right(self.case)[0], place, 1e-9, 1e-9)

    def summands(self, **way: Any) -> list[np.ndarray]:
        x, weight, bias, out, *_ = (t.detach() for t in self.case.tensors())
        return [part.numpy() for part in Way(**way).parts(x, weight, bias, out, self.case.heads, self.size)]

    def gives(self, parts: Sequence[np.ndarray], biases: int = 1) -> bool:
        """Return whether all ranks have the sum of these parts, and so many biases."""
        return self.have([sum(parts) + biases * self.bias] * self.size)

    def have(self, rows: Sequence[Any]) -> bool:
        return all(map(_near, self.results, rows))

    def computed(self, **way: Any) -> bool:
        """Return whether this way gives the result, also if out's bias is forgotten, or in the sum of all ranks."""
        parts = self.summands(**way)
        return any(self.gives(parts, biases) for biases in (1, self.size, 0))

    reshaped = property(lambda self: self.seen.result.shape != _right(self.case)[0].shape)
    rounded = property(lambda self: _to_three_digits(self.seen.result, _right(self.case)[0]))
    not_finite = property(lambda self: np.isnan(self.seen.result).any())
    special = property(lambda self: self.case.why)
    own_part = property(lambda self: any(self.have([p + n * self.bias for p in self.summands()]) for n in (0, 1)))
    every_bias = property(lambda self: self.gives(self.summands(), self.size))
    no_bias = property(lambda self: self.gives(self.summands(), 0))
    whole_parts = property(lambda self: any(self.gives(self.summands() * self.size, n) for n in (1, self.size)))
    is_mean = property(lambda self: self.gives([part / self.size for part in self.summands()]))
    one_block = property(lambda self: self.size > 1 and self.computed(rows="one block"))
    head_by_head = property(lambda self: self.computed(rows="head by head"))
    no_qkv_bias = property(lambda self: self.computed(bias_rows="none"))
    bias_block = property(lambda self: self.computed(bias_rows="one block"))
    no_mask = property(lambda self: self.computed(mask="none"))
    inverted = property(lambda self: any(self.computed(mask=mask) for mask in ("inverted", "later alone")))
    zeros = property(lambda self: self.computed(mask="zeros"))
    after_softmax = property(lambda self: self.computed(mask="after"))
    over_queries = property(lambda self: any(self.computed(softmax=dim) for dim in (-2, 1, 0)))
    over_batch = property(lambda self: self.computed(over="batch"))
    over_heads = property(lambda self: any(self.computed(over="heads", mask=mask) for mask in ("causal", "none")))
    other_columns = property(lambda self: any(self.computed(columns=columns) for columns in ("strided", "first")))
    transposed = property(lambda self: self.computed(columns="rows"))
    head_first = property(
        lambda self: any(self.computed(split="head first", merge=merge) for merge in ("permuted", "head first"))
    )

    @property
    def moved(self) -> bool:
        ways = [("permuted", "viewed"), ("permuted", "heads only"), ("viewed", "permuted"), ("viewed", "viewed")]
        ways += [("batch first", "permuted"), ("batch first", "heads only"), ("viewed", "heads only")]
        return any(self.computed(split=split, merge=merge) for split, merge in ways)

    @property
    def all_heads(self) -> bool:
        return any(self.computed(split="all heads", divisor=d**0.5) for d in (HEAD / self.size, HEAD))

    @functools.cached_property
    def divisor(self) -> str:
        """What the scores were divided by, where that is known and wrong."""
        width = self.case.width
        known = {
            "1, that is, not at all": 1.0,
            f"the square root of the whole width, {width}": width**0.5,
            f"the square root of a rank's part of the width, {width // self.size}": (width // self.size) ** 0.5,
            f"the square root of the number of heads, {self.case.heads}": self.case.heads**0.5,
            f"a head's width itself, {HEAD}, or by its square root twice": float(HEAD),
        }
        return next((text for text, divisor in known.items() if self.computed(divisor=divisor)), "")

    # Gradients.

    gradients = property(lambda self: [seen.gradients and seen.gradients[self.of] for seen in self.everyone])
    got = property(lambda self: self.gradients[self.rank])
    cut = property(lambda self: self.seen.gradients is None)
    want = property(lambda self: _right(self.case)[1][self.of])
    whole = property(lambda self: self.of in (0, 4))  # on every rank
    none = property(lambda self: self.got is None)
    total = property(lambda self: np.sum([g for g in self.gradients if g is not None], axis=0))
    parts = property(lambda self: _near(self.total, self.want))
    wrong = property(lambda self: not _near(self.got if self.whole else self.total, self.want))
    gradient_rounded = property(lambda self: _to_three_digits(self.got if self.whole else self.total, self.want))
    on_every_rank = property(lambda self: not self.whole and all(_near(g, self.want) for g in self.gradients))
    times = property(lambda self: self.whole and _near(self.got, self.size * self.want))
    parts_of_x = property(lambda self: self.parts and self.of == 0)
    x_elsewhere = property(lambda self: self.of == 0)
    parts_of_bias = property(lambda self: self.parts and self.of == 4)

    # Products and messages.

    @property
    def products(self) -> int:
        """A rank's share of the multiplications."""
        tokens, width = LENGTH * BATCH, self.case.width
        return (4 * tokens * width * width + 2 * tokens * LENGTH * width) // self.size

    more_products = property(lambda self: self.seen.products > self.products)
    allowed = property(
        lambda self: max(
            sum(seen.one for seen in self.everyone), 2 * (self.size - 1) * self.bias.nbytes * LENGTH * BATCH
        )
    )
    forward = property(lambda self: sum(seen.forward.nbytes for seen in self.everyone))
    backward = property(lambda self: sum(seen.backward.nbytes for seen in self.everyone))
    more_forward = property(lambda self: self.sent and self.forward > self.allowed + SLACK)
    more_backward = property(lambda self: self.sent and self.backward > self.allowed + SLACK)

    # What sentences show.

    what = property(lambda self: ("x", *PARAMETERS)[self.of])
    on = property(lambda self: f"rank {self.rank} of {self.size}")
    place = property(
        lambda self: f"the gradient of {self.what}" + (f" on {self.on}" if self.whole else ", summed over all ranks,")
    )
    shown = property(
        lambda self: first_difference(self.got if self.whole else self.total, self.want, self.place, 1e-9, 1e-9)
    )


def _near(got: Any, want: Any) -> bool:
    return got is not None and got.shape == want.shape and np.allclose(got, want, 1e-9, 1e-9)


def _to_three_digits(got: np.ndarray, want: np.ndarray) -> bool:
    """Return whether all errors are as small as those of a shorter dtype: no mistake that has a name is so small."""
    return bool(got.shape == want.shape and np.abs(got - want).max() < 2e-3 * np.abs(want).max())


def _judge(case: Case, results: Sequence[Seen]) -> Finding | None:
    everyone = [Facts(rank, case, results) for rank in range(len(results))]
    gradients = [replace(facts, of=of) for of in range(5) for facts in everyone]
    tables = ((RESULT, everyone), (GRADIENTS, gradients), (COSTS, everyone))
    return next(filter(None, (judge(table, *facts) for table, facts in tables)), None)


@dataclass(frozen=True)
class Refused:
    """What attention did on one rank where heads cannot be shared. raised: that was a ValueError."""

    rank: int
    heads: int
    size: int
    raised: bool
    shown: str
    sent: Sent

    late = property(lambda self: self.sent.nbytes)
    no_error = property(lambda self: not self.raised)


def _refuse(case: Case, own: Answer, comm: Any) -> Refused:
    *given, _ = case.tensors()
    comm = other_than_world(comm)
    sent, rank = metered(comm), comm.rank
    try:
        shown = short(own.call(NAME, comm, given[0], tuple(given[1:3]), tuple(given[3:]), case.heads))
    except (ValueError, AssertionError) as error:
        if isinstance(error, Wrong):
            raise
        shown = one_line(error)
        return Refused(rank, case.heads, comm.size, isinstance(error, ValueError), shown, sent())
    return Refused(rank, case.heads, comm.size, False, shown, sent())


def _judge_refused(results: Sequence[Refused]) -> Finding | None:
    return judge(REFUSED, *results)


# -- what is said --

FIT = (
    "The heads of one rank have width / p numbers for each token, in queries, keys, values and results. "
    "out's weight is (outputs, inputs), so a rank's part of it is (width, width / p): columns."
)
REFUSE = "Each rank compares heads with comm.size before it computes or sends anything, and raises ValueError."
REFUSED = tests(
    late=("ValueError before any message, for {heads} heads on {size} ranks", "{sent.by} on rank {rank}", REFUSE),
    no_error=("ValueError on rank {rank} of {size}, for {heads} heads", "{shown}", REFUSE),
)
SUMMED = "Each rank has a part of the result, and sum_out adds the parts up."
THIRDS = "The first third of the rows makes all queries, the next keys, and the last values: cut each third by heads."
MOVED = (
    "view and reshape regroup numbers in the order in which they lie. Only permute and transpose move a dimension: "
    "from (length, batch, heads, head) to (batch, heads, length, head), and back."
)
WHYS_RESULT = rules(
    rounded="Right to a few digits only: is a tensor made float32 or shorter on its way? Everything is float64 here.",
    reshaped="The result has x's shape, (length, batch, width).",
    special="{case.why}",
    not_finite="The softmax of a row in which all scores are -inf is NaN. Each query sees at least its own position.",
    own_part=f"That is this rank's own part. {SUMMED}",
    every_bias="out's bias is in the sum {size} times: each rank adds it to its part. Add it once, behind sum_out.",
    no_bias="out's bias is missing. It is added behind sum_out.",
    whole_parts="That is {size} times the sum of all heads' parts. Does every rank compute all heads, or are the parts "
    "added up twice? Each rank adds its own heads, and sum_out is called once.",
    is_mean="Divided by the number of ranks. The parts are summands of the result: add them up.",
    one_block=f"Each rank took one block of qkv's rows. {THIRDS}",
    head_by_head="The rows were taken as if each head's queries, keys and values came one after the other. " + THIRDS,
    no_qkv_bias="qkv's bias is missing.",
    bias_block="qkv's bias was cut into one block for each rank. It is cut as the rows of the weight are.",
    divisor="The scores were divided by {divisor}. They are divided by the square root of a head's width.",
    no_mask="No key is masked: a query must not see later positions.",
    inverted="The mask is inverted: queries see later positions, and not earlier ones.",
    zeros="Masked scores are 0, and the softmax gives them a weight: exp(0) is 1. Set them to -inf.",
    after_softmax="The mask came after the softmax, so the weights of a query no longer add up to 1. Mask the scores.",
    over_queries="The softmax is over another dimension. For each query, the weights of all keys add up to 1.",
    over_batch="Sequences of the batch were compared with each other. x is (length, batch, width), length first.",
    over_heads="The heads of a token were compared with each other. Queries are compared with keys of their own head: "
    "bring the length to the place before the last.",
    other_columns="The columns of out's weight are not those of this rank's heads.",
    transposed="out's weight was cut by rows, and used as its transpose. Its columns belong to the heads' results.",
    head_first="A head's numbers lie side by side: split the width into (heads, head), and not into (head, heads).",
    all_heads="A rank's part was cut into all {case.heads} heads. It has heads / p heads, each of the full width.",
    moved=MOVED,
    otherwise="Cut queries, keys and values by heads, attend within each head, multiply by the columns of out's weight "
    "that belong to these heads, sum over the ranks, and add out's bias.",
)
RESULT = [
    THROUGH_WORLD,
    *tests(
        no_tensor=("a tensor from attention on {on}", "{seen.shown}", "Is the result returned?"),
        difference=("{difference[0]}", "{difference[1]}", WHYS_RESULT),
    ),
]
WHOLE_BIAS = "It is whole only when it is summed over the ranks. Each rank adds the whole bias, behind sum_out."
WHYS_GRADIENT = rules(
    gradient_rounded="Right to a few digits only: is a gradient made float32 or shorter on its way?",
    times="That is {size} times the gradient: it is summed over the ranks once too often.",
    parts_of_x="Each rank has only the part of its own heads. copy_in(comm, x) adds the parts up in backward.",
    x_elsewhere="Queries, keys and values have to be made of what copy_in(comm, x) returns: it adds up x's gradients.",
    parts_of_bias=WHOLE_BIAS,
    on_every_rank="Every rank has the whole gradient, and not only that of its own part. Does each rank multiply by "
    "the whole tensor, or is its gradient summed over the ranks?",
    otherwise="Each rank uses its own part of each tensor, and its gradient is that of its part.",
)
WHYS_NONE = rules(
    parts_of_bias=WHOLE_BIAS, otherwise="detach, .data, numpy and torch.tensor cut the graph; slicing keeps it."
)
GRADIENTS = tests(
    cut=(
        "a result that autograd can go back from",
        "a tensor that autograd knows nothing of",
        "detach, .data, numpy and torch.no_grad cut the chain of gradients.",
    ),
    none=("{what} to have a gradient on {on}", "None", WHYS_NONE),
    wrong=("{shown[0]}", "{shown[1]}", WHYS_GRADIENT),
)
COSTS = tests(
    more_products=(
        "at most {products} multiplications in matrix products on {on}",
        "{seen.products}",
        "A rank computes heads / p heads: cut the weights before they are multiplied, and not the products behind.",
    ),
    more_forward=(
        "forward to send at most {allowed} bytes, by all {size} ranks together",
        "{forward}",
        "The heads need nothing from each other: only the result is summed, once.",
    ),
    more_backward=(
        "backward to send at most {allowed} bytes, by all {size} ranks together",
        "{backward}",
        "x's gradient is summed once: call copy_in once, and make queries, keys and values of what it returns.",
    ),
)
