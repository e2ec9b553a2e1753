"""What e14_expert_gradients is asked: gradients as of one process, by a sum of dense ones and a sum of experts'."""

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch

from mpcourse.course.check.answer import Answer
from mpcourse.course.check.cases.on_models import Finding, each_on_real, each_on_virtual
from mpcourse.course.check.facts import chunks
from mpcourse.course.check.facts.chunks import OnAllRanks
from mpcourse.course.check.facts.gradients import Row, copies_of
from mpcourse.course.check.facts.messages import PICKLED, SLACK, THROUGH_WORLD, Sent, counting
from mpcourse.course.check.rules import Whys, judge, rules, tests
from mpcourse.course.check.status_page import HasStatusPage
from mpcourse.course.check.wrong import first_difference

if TYPE_CHECKING:
    from mpcourse.course.check.traced_mpi import TracedComm

NAME = "average_gradients"
SIZES = (6, 4, 3, 2, 1)  # first groups of 2 on 6 ranks, where each number of ranks is another one

# -- inputs --

WIDTH, HIDDEN, TOKENS, OWN = 4, 3, 6, 2  # TOKENS: of a rank; OWN: experts of a rank
DENSE = 3  # parameters
NAMES = [f"dense[{i}].grad" for i in range(DENSE)] + [f"experts[{i}].grad" for i in range(2 * OWN)]


@dataclass(frozen=True)
class Case:
    """A model and its ranks. group: ranks of an expert group; all of them if they form no such groups.

    columns: whether gradients are transposed in memory, but for those of rank 0. lacking: the kind that has parameters
    which some ranks have not used in their second step. zero: whether all losses are zero. stages: how many worlds
    there are. why: for an answer that was right until then.
    """

    what: str = ""
    group: int = 2
    columns: bool = False
    lacking: str = ""
    zero: bool = False
    stages: int = 1
    why: str = ""
    dtype = torch.float64

    def gradient(self, given: Row, rank: int) -> torch.Tensor | None:
        return None if given is None else torch.from_numpy(given.copy(order="F" if self.columns and rank else "C"))


PLAIN, ALL_EXPERTS = Case(), Case(group=1)
COLUMNS = Case(
    "gradients that are contiguous on rank 0 alone",
    columns=True,
    why="A gradient need not be contiguous: its numbers may lie in memory in another order than that of its rows. On "
    "another rank they may lie in the order of rows, so all buffers need them in that order. .reshape(-1) makes a copy "
    "then, so what is written into it is not in p.grad, and .view(-1) raises.",
)
NO_TOKEN = Case(
    "experts to which no token of group 0 goes",
    lacking="experts",
    why="Where no token of a group went to an expert, .grad is None. It counts as zeros: its replicas may have a "
    "gradient, and the buffers of all replicas have the same numbers in the same places, all of them in float64. So a "
    "rank calls Allreduce even if none of its experts got a token: its replicas wait for it.",
)
GIVEN = (
    "Ranks, sizes and calls are those of the communicators that are given. MPI.COMM_WORLD may have other ranks, too."
)
CASES = (
    PLAIN,
    Case(group=3),
    ALL_EXPERTS,
    COLUMNS,
    NO_TOKEN,
    Case(
        "a dense parameter that only ranks with an odd number have used",
        lacking="dense",
        why="A dense .grad may be None on some ranks, too. It counts as zeros, and all ranks get the mean.",
    ),
    Case(
        "losses and gradients that are zero",
        zero=True,
        why="A gradient of zeros is not None: the optimizer leaves out a parameter without a gradient, and where it is "
        "zero, momentum or weight decay changes the parameter. That a sum is zero does not say that ranks had None.",
    ),
    Case(
        "two worlds beside each other",
        group=1,
        stages=2,
        why=GIVEN,
    ),
)


def check(answer: Answer, comm: "TracedComm") -> None:
    """Check the answer on real ranks; every rank must call this."""
    each_on_real(answer, comm, (PLAIN, ALL_EXPERTS, COLUMNS, NO_TOKEN), _call, _judge)


def check_virtually(answer: Answer, comm: HasStatusPage) -> None:
    """Check the answer on virtual ranks; one process calls this."""
    each_on_virtual(
        answer, comm, CASES, _call, _judge, "gradients as of one process, on {ranks}, with {case.what}", SIZES
    )


# -- oracle --


class Whole:
    """A model and the tokens of all ranks in one process. Arrays are by parameter, as NAMES are, and by rank.

    group: ranks of an expert group. given: the gradients that ranks have after backward; None where a parameter was not
    used. want: what is right; zeros where no rank has used a parameter.
    """

    def __init__(self, case: Case, size: int) -> None:
        self.group = case.group if size % case.group == 0 else size
        number, draw = OWN * self.group, torch.Generator().manual_seed(size)

        def drawn(*shape: int) -> torch.Tensor:
            return torch.randn(shape, generator=draw, dtype=case.dtype).requires_grad_()

        dense = [drawn(WIDTH, WIDTH), drawn(number, WIDTH), drawn(WIDTH)]  # of attention, the router, and a bias
        experts = [(drawn(HIDDEN, WIDTH), drawn(WIDTH, HIDDEN)) for _ in range(number)]
        losses: list[torch.Tensor] = []  # the mean loss of each rank
        for rank, tokens in enumerate(drawn(size, TOKENS, WIDTH)):
            biased = case.lacking != "dense" or rank % 2 == 1
            least = 0  # the first expert that the group uses
            if case.lacking == "experts" and rank < self.group:  # none of rank 0's, and not all of rank 1's
                least = min(OWN + 1, number - 1)
            chosen = [max((TOKENS * rank + i) % number, least) for i in range(TOKENS)]
            of_tokens = [_loss(x, dense, biased, k, *experts[k]) for x, k in zip(tokens.detach(), chosen, strict=True)]
            losses.append(torch.stack(of_tokens).mean() * (not case.zero))
        given, want = [], []
        for rank in range(size):
            of_group, place = divmod(rank, self.group)
            own = [p for expert in experts[place * OWN :][:OWN] for p in expert]
            sum_of_group = torch.stack(losses[of_group * self.group :][: self.group]).sum()
            given.append([*_gradients(losses[rank], dense), *_gradients(sum_of_group, own)])
            both = [*dense, *own]
            rows = zip(_gradients(torch.stack(losses).mean(), both), both, strict=True)
            want.append([np.zeros(p.shape) if row is None else row for row, p in rows])
        self.given, self.want = [*zip(*given, strict=True)], [*zip(*want, strict=True)]


def _loss(x: torch.Tensor, dense: Sequence[torch.Tensor], biased: bool, k: int, first: Any, second: Any) -> Any:
    """Return the loss of one token that goes to expert k, whose layers are `first` and `second`."""
    attention, router, bias = dense
    h = torch.tanh(attention @ x) + (bias if biased else 0)
    y = h + (router @ h).softmax(0)[k] * (second @ torch.tanh(first @ h))
    return ((y - 2 * x) ** 2).sum()


def _gradients(loss: torch.Tensor, parameters: Sequence[torch.Tensor]) -> list[Row]:
    found = torch.autograd.grad(loss, parameters, retain_graph=True, allow_unused=True)
    return [None if g is None else g.numpy() for g in found]


whole_of = functools.lru_cache(Whole)

# -- observation --


class Seen(NamedTuple):
    """Gradients after the call, by parameter. kept: whether lists and parameters are as they were.

    sent: of virtual ranks.
    """

    after: list[Row]
    kept: bool
    sent: Sent | None


def _call(case: Case, own: Answer, comm: Any) -> Seen:
    world = comm.Split(comm.rank % case.stages, comm.rank)
    whole, rank = whole_of(case, world.size), world.rank
    replicas = world.Split(rank % whole.group, rank)
    parameters = [torch.nn.Parameter(torch.ones(want[rank].shape, dtype=case.dtype)) for want in whole.want]
    dense, experts = parameters[:DENSE], parameters[DENSE:]
    if case.lacking:  # a first step, in which no gradient is None
        for p in parameters:
            p.grad = torch.ones_like(p)
        own.call(NAME, world, replicas, dense, experts, changes=(dense, experts))
    for p, given in zip(parameters, whole.given, strict=True):
        p.grad = case.gradient(given[rank], rank)
    sent = counting(world)
    with chunks.nan_in_new_memory(sum(p.numel() for p in dense), 1, case.dtype):
        own.call(NAME, world, replicas, dense, experts, changes=(dense, experts))
    kept = [*map(id, dense + experts)] == [*map(id, parameters)] and all(bool((p == 1).all()) for p in parameters)
    return Seen(copies_of(parameters), kept, sent())


# -- facts --


class Facts(OnAllRanks):
    """A gradient after the call. rows: what ranks had before, zeros for None."""

    whole = property(lambda self: whole_of(self.case, self.size))
    kind = property(lambda self: self.name.partition("[")[0])
    group = property(lambda self: self.whole.group)
    replicas = property(lambda self: self.size // self.group)
    touched = property(lambda self: not self.seen.kept)
    missing = property(lambda self: self.result is None and (self.zero or self.want[self.rank].any()))
    zero = property(lambda self: self.case.zero)  # then there is a gradient of each parameter on all ranks

    @property
    def place(self) -> str:
        special = f", with {self.case.what}" if self.case.what else ""
        return f"{self.name} on rank {self.rank} of {self.size} (expert groups of {self.group}{special})"

    @functools.cached_property
    def difference(self) -> tuple[str, str] | None:
        if self.result is None:
            return None
        return first_difference(self.result, self.want[self.rank], self.place, self.tolerance, self.tolerance)

    # What known mistakes make of it.

    nan = property(lambda self: np.isnan(self.result).any())
    unchanged = property(lambda self: self.same(self.result, self.rows[self.rank]))
    only_there = property(lambda self: self.there and (self.unchanged or not self.result.any()))
    added = property(lambda self: self.gives([b + w for b, w in zip(self.rows, self.want, strict=True)]))

    @functools.cached_property
    def made_of(self) -> tuple[str, float]:
        """Over which ranks gradients were added up, and what all sums were divided by; ("", 0) if it is neither."""
        members = {
            "world": lambda r: slice(None),
            "replicas": lambda r: slice(r % self.group, None, self.group),
            "own": lambda r: slice(r, r + 1),
            "group": lambda r: slice(r // self.group * self.group, (r // self.group + 1) * self.group),
        }
        right = "world" if self.kind == "dense" else "replicas"
        for over in sorted(members, key=lambda name: name != right):
            sums = [np.array(self.rows)[members[over](r)].sum(0) for r in range(self.size)]
            at = np.abs(self.result).argmax()
            by = float(sums[self.rank].flat[at]) / float(self.result.flat[at] or 1)
            if by and self.gives([each / by for each in sums]):
                return over, by
        return "", 0.0

    def is_sum(self, kind: str, over: str, by: float | None = None) -> bool:
        return (kind, over) == (self.kind, self.made_of[0]) and (by is None or math.isclose(self.by, by, rel_tol=1e-6))

    by = property(lambda self: self.made_of[1])
    share = property(lambda self: "" if math.isclose(self.by, 1) else f", divided by {self.by:.4g}")
    own_dense = property(lambda self: self.is_sum("dense", "own"))
    own_expert = property(lambda self: self.is_sum("experts", "own"))
    dense_of_replicas = property(lambda self: self.is_sum("dense", "replicas"))
    dense_sum = property(lambda self: self.is_sum("dense", "world", 1))
    dense_divided = property(lambda self: self.is_sum("dense", "world"))
    different_experts = property(lambda self: self.is_sum("experts", "world") or self.is_sum("experts", "group"))
    expert_sum = property(lambda self: self.is_sum("experts", "replicas", 1))
    mean_of_replicas = property(lambda self: self.is_sum("experts", "replicas", self.replicas))
    by_group = property(lambda self: self.is_sum("experts", "replicas", self.group))
    expert_divided = property(lambda self: self.is_sum("experts", "replicas"))

    @property
    def misplaced(self) -> bool:
        """Whether all gradients of this kind together add up to what is right on this rank."""
        its = slice(DENSE) if self.kind == "dense" else slice(DENSE, None)
        got, want = self.seen.after[its], [row[self.rank] for row in self.whole.want[its]]
        return all(row is not None for row in got) and bool(np.isclose(sum(map(np.sum, got)), sum(map(np.sum, want))))

    # Messages.

    sums = property(lambda self: [name for name in self.sent.calls if name in ("Allreduce", "Iallreduce")])
    by_messages = property(lambda self: self.sent.nbytes and not self.sent.calls)
    other_calls = property(
        lambda self: len(self.sums) > 2 or {*self.sent.calls} - {*self.sums, "Barrier"} or self.by_messages
    )
    call_by_parameter = property(lambda self: len(self.sums) >= len(NAMES))
    too_much = property(lambda self: self.sent.nbytes > self.needed + SLACK)

    @property
    def needed(self) -> int:
        """The bytes that this rank sends in a sum of dense gradients and in one of experts'."""
        sizes = [8 * row[self.rank].size for row in self.whole.want]
        both = (sum(sizes[:DENSE]), self.size), (sum(sizes[DENSE:]), self.replicas)
        return sum(2 * (ranks - 1) * nbytes // ranks for nbytes, ranks in both)


def _judge(case: Case, results: Sequence[Seen]) -> Finding | None:
    worlds = (results[stage :: case.stages] for stage in range(case.stages))
    return next(filter(None, (_judge_world(case, everyone) for everyone in worlds if everyone)), None)


def _judge_world(case: Case, everyone: Sequence[Seen]) -> Finding | None:
    facts, whole = [], whole_of(case, len(everyone))
    for number, (name, want) in enumerate(zip(NAMES, whole.want, strict=True)):
        got = [seen.after[number] for seen in everyone]
        rows = [np.zeros_like(w) if g is None else g for g, w in zip(whole.given[number], want, strict=True)]
        facts += [Facts(rank, case, everyone, name, got, want, 1e-9, rows) for rank in range(len(everyone))]
    wrong = judge([THROUGH_WORLD._replace(why=GIVEN)], *facts) or judge(VALUES, *facts)
    return wrong or (judge(CALLS, *facts) if everyone[0].sent else None)


# -- what is said --

WHYS: Whys = [
    *rules(
        nan="NaN is memory that was never written: torch.empty and np.empty hold anything.",
        rounded="Right to some digits: numbers were in a shorter dtype on their way. All of them have to be {dtype}.",
    ),
    chunks.ABOUT,
    *rules(
        only_there="Only {who} got it. Reduce brings a sum to one rank, and Allreduce to all.",
        added="It was added to the gradient that was there. It has to take its place.",
        own_dense="Nothing of other ranks is in it: that is this rank's own gradient{share}. It comes from this rank's "
        "loss alone, and a dense parameter has a part in the losses of all ranks.",
        own_expert="Nothing of other ranks is in it: that is this rank's own gradient{share}. It comes from the losses "
        "of one group, and the replicas of the expert have the parts that come from the other groups.",
        dense_of_replicas="Only ranks with the same experts were added up. Dense parameters are the same on all ranks, "
        "so all ranks have a part of their gradients.",
        dense_sum="That is the sum over all ranks. The mean loss of all tokens is the mean of the {size} ranks' mean "
        "losses, not their sum.",
        dense_divided="The sum over all ranks was divided by {by:.4g}. It has {size} parts, one from the mean loss of "
        "each rank, and the mean loss of all tokens is the mean of these losses.",
        different_experts="Gradients of different experts were added up. Only the ranks of `replicas` have the same "
        "experts, and what comes from the other ranks of the group is in the gradient already.",
        expert_sum="The sum over the replicas was not divided. It comes from the mean losses of all {size} ranks, and "
        "the mean loss of all tokens is the mean of these, not their sum.",
        mean_of_replicas="That is the mean over {replicas} replicas, {group} times as large as asked. On each replica "
        "the gradient is already a sum over the {group} ranks of its group, so the sum over the replicas has parts "
        "from {size} mean losses.",
        by_group="The sum over the replicas was divided by the {group} ranks of one group. It has parts from "
        "{replicas} groups, which have {size} ranks together.",
        expert_divided="The sum over the replicas was divided by {by:.4g}. It has parts from {size} mean losses, and "
        "the mean loss of all tokens is the mean of these.",
        misplaced="On this rank, all gradients of this kind together add up to the right number. But some numbers are "
        "in wrong places, or were added to those of other places. All ranks have to join the parameters in the order "
        "of the list. A set has no order.",
    ),
    "The mean loss of all tokens is the mean of the ranks' mean losses. From whose losses does this gradient come on "
    "this rank, and which ranks have the parts from the others?",
]
VALUES = tests(
    touched=(
        "the lists and the values of parameters to stay as they are",
        "other ones",
        "Only p.grad changes here. Parameters move in the optimizer's step, and the lists belong to the caller.",
    ),
    missing=(
        "{place}",
        "None",
        rules(
            zero="{case.why}",
            otherwise="At least one rank had a gradient of this parameter. Where it was None it counts as zeros, and "
            "afterwards all ranks that have the parameter need the same gradient.",
        ),
    ),
    difference=("{difference[0]}", "{difference[1]}", WHYS),
)
CALLS = [
    PICKLED,
    *tests(
        other_calls=(
            "one call of Allreduce for dense parameters, and one for experts, on rank {rank} of {size}",
            "{sent.by}",
            rules(
                call_by_parameter="Right, but there is a call for each parameter, and each call waits for the "
                "network's latency. Join all gradients of a kind in one flat buffer.",
                otherwise="Right, but two calls of Allreduce are enough, and nothing else has to be sent.",
            ),
        ),
        too_much=(
            "each gradient to be sent once, on rank {rank} of {size}",
            "{sent.by}, where {needed} bytes are enough",
            "Right, but numbers were sent that need not be. A dense gradient belongs in one sum, over all ranks, and "
            "one of an expert belongs in one, over its replicas.",
        ),
    ),
]
