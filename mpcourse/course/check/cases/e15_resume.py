"""What e15_resume is asked: a snapshot from which new jobs train on as if the first one had never been stopped."""

import functools
import io
from collections import Counter, OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, make_dataclass
from typing import Any

import numpy as np
import torch
import torch._dynamo  # what torch.optim imports at its first use, which takes seconds: here, before the clock starts
from torch import Tensor, nn

from mpcourse.common.words import counted
from mpcourse.course.check.answer import Answer
from mpcourse.course.check.cases.on_models import SIZES, Case, all_on_real, all_on_virtual, one_line
from mpcourse.course.check.facts.gradients import values_of
from mpcourse.course.check.facts.messages import THROUGH_WORLD, Sent, counting
from mpcourse.course.check.rules import Finding, judge, rules, tests
from mpcourse.course.check.wrong import first_difference

WIDTH, EXAMPLES, BATCH = 3, 12, 4
BEFORE, AFTER = range(1, 5), range(5, 10)  # steps before the snapshot, and after it
OLD, NEW = 1, 2  # from what a job draws its first weights and its noise
RATE, SCALE, LIST, NUMBERS = "the learning rate", "the loss scale", "the list of examples", "the numbers from job.noise"
ERROR = "an error"
PARTS = ("model", "optimizer", "scheduler", "scaler", "sampler", "noise")
PLAIN = (bool, int, float, str, type(None), Tensor, nn.Parameter)  # what torch.load reads with weights_only=True
Job: Any = make_dataclass("Job", PARTS)  # as the exercise describes it

# -- inputs --


class Sampler:
    """Give out batches. The examples have another order in each epoch. given: how many batches there were."""

    given = 0

    def batch(self) -> list[int]:
        epoch, i = divmod(self.given, EXAMPLES // BATCH)
        self.given += 1
        return np.random.default_rng(epoch).permutation(EXAMPLES).reshape(-1, BATCH)[i].tolist()

    def state_dict(self) -> dict[str, int]:
        return {"given": self.given}

    def load_state_dict(self, state: Mapping[str, int]) -> None:
        self.given = state["given"]


def _model() -> nn.Module:
    """Return a model with a tied weight, a frozen one, and buffers."""
    first, norm, last = nn.Linear(WIDTH, WIDTH), nn.BatchNorm1d(WIDTH), nn.Linear(WIDTH, WIDTH)
    last.weight, norm.weight.requires_grad = first.weight, False
    return nn.Sequential(first, norm, last).double()


def _noise(seed: int, rank: int) -> torch.Generator:
    return torch.Generator().manual_seed(1000 * seed + rank)


def _numbers(noise: torch.Generator) -> list[float]:
    """Draw what a rank draws in one step."""
    return torch.rand(2, generator=noise).tolist()


# The first optimizer imports much of torch. Now, before time counts that a rank may compute. Without a backward,
# whose threads would not survive a fork.
torch.optim.Adam([nn.Parameter(torch.zeros(1))]).step()


@dataclass(frozen=True)
class Training(Case):
    """A job that is stopped and goes on. Each rank trains for itself on the same examples.

    The numbers from its noise are only noted, so that all ranks have the same model without any messages.

    why: an answer that was right until then stumbles over it. more: how many more ranks it has then. adam: with Adam,
    and with a scheduler whose steps depend on losses.
    """

    why: str = ""
    sizes: Sequence[int] = SIZES
    more: int = 0
    adam: bool = False

    def ranks(self, size: int) -> tuple[int, int]:
        """Return how many of `size` ranks the job has, and how many when it goes on."""
        return max(1, size - max(self.more, 0)), max(1, size + min(self.more, 0))

    def stumbled(self, size: int) -> tuple[str, str] | None:
        first, second = self.ranks(size)
        kind = " with Adam and ReduceLROnPlateau" if self.adam else ""
        return (f"a job{kind} on {counted(first, 'rank')}, restored on {second}", self.why) if self.why else None

    def start(self, seed: int, rank: int) -> Any:
        """Make a job that has not trained."""
        draw, model = torch.Generator().manual_seed(seed), _model()
        for p in model.parameters():
            p.data.copy_(torch.randn(p.shape, generator=draw, dtype=p.dtype))
        optimizer: torch.optim.Optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
        scheduler: Any = torch.optim.lr_scheduler.StepLR(optimizer, 3, 0.5)
        if self.adam:
            optimizer = torch.optim.Adam(model.parameters(), 0.1)
            scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=4)
        scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=3)
        return Job(model, optimizer, scheduler, scaler, Sampler(), _noise(seed, rank))

    def train(self, job: Any, steps: range) -> dict[str, Any]:
        """Train, and return what each step depends on, by name."""
        inputs, targets = torch.from_numpy(np.random.default_rng(0).standard_normal((2, EXAMPLES, WIDTH)))
        history: dict[str, Any] = {}
        for step in steps:
            batch = job.sampler.batch()
            kinds = {f"the parameter {name}": p for name, p in job.model.named_parameters()}
            kinds.update({f"the buffer {name}": b for name, b in job.model.named_buffers()})
            rate, scale, numbers = job.optimizer.param_groups[0]["lr"], job.scaler.get_scale(), _numbers(job.noise)
            now = {**values_of(kinds), RATE: rate, SCALE: scale, LIST: batch, NUMBERS: numbers}
            history.update({f"{name} in step {step}": value for name, value in now.items()})
            job.optimizer.zero_grad()
            job.scaler.scale((job.model(inputs[batch]) - targets[batch]).square().mean()).backward()
            job.scaler.step(job.optimizer)
            job.scaler.update()
            job.scheduler.step(*[1.0] * self.adam)  # a loss that does not become smaller
        return history

    def never_stopped(self, rank: int, first: int) -> Any:
        """Return the job when the snapshot is taken. A rank that is new has the noise of the new job."""
        job = self.start(OLD, rank)
        self.train(job, BEFORE)
        job.noise = job.noise if rank < first else _noise(NEW, rank)
        return job

    # -- observation --

    def program(self, own: Answer, comm: Any) -> "Seen":
        first, second = self.ranks(comm.size)
        old, new = (comm.Split(int(comm.rank >= ranks), comm.rank) for ranks in (first, second))
        seen, file = Seen(comm.rank, first, second), b""
        if comm.rank < first:
            file = self.take(own, old, seen)
        else:
            own.returned()  # as often as the others, who wait for it where ranks are real
        file, failed = comm.bcast(file), any(comm.allgather(seen.failed))
        if comm.rank < second and not failed:
            self.restore(own, new, file, seen)
        else:
            own.returned()
        return seen

    def take(self, own: Answer, comm: Any, seen: "Seen") -> bytes:
        """Train, take a snapshot, and train on. Return the snapshot as torch.save writes it."""
        job = self.never_stopped(comm.rank, comm.size)
        sent = counting(comm)
        state = own.call("state_of", comm, job)
        seen.sent, seen.nothing = sent(), state is None
        empty = any(getattr(leaf, "is_meta", False) for _, leaf in _leaves(state))  # tensors without numbers
        file = b"" if empty else _saved(state)
        leaves = [(at, leaf, type(leaf)) for at, leaf in _leaves(state)]
        odd = [(at, kind.__name__) for at, leaf, kind in leaves if kind not in PLAIN or getattr(leaf, "is_meta", False)]
        seen.odd = None if file else [*odd, ("the snapshot", type(state).__name__)][0]
        right = self.train(self.never_stopped(comm.rank, comm.size), AFTER)
        try:
            seen.disturbed = _difference(self.train(job, AFTER), right)
        except Exception as error:  # of what is no longer the object that it was
            seen.disturbed = ERROR, "the job to go on training", one_line(error)
        of_zero = comm.bcast(file)
        if file and of_zero:
            seen.other = first_difference(_load(file), _load(of_zero), "the snapshot")
            seen.later = first_difference(state, _load(file), "the snapshot")
        return file

    def restore(self, own: Answer, comm: Any, file: bytes, seen: "Seen") -> None:
        """Restore a new job, and train it."""
        job, state, right = self.start(NEW, comm.rank), _load(file), self.never_stopped(comm.rank, seen.first)
        own.call("restore", comm, job, state, changes=(state,))
        seen.changed = first_difference(state, _load(file), "the snapshot")
        try:
            held = {id(p) for group in job.optimizer.param_groups for p in group["params"]}
            if held != {*map(id, job.model.parameters())}:
                seen.cut = "the optimizer holds something else"
            elif job.scheduler.optimizer is not job.optimizer:
                seen.cut = "the scheduler has another optimizer"
            got, want = _states(job), _states(right)
            seen.wrong = [name for name in PARTS if first_difference(got[name], want[name], name)]
            history = self.train(job, AFTER)
            seen.numbers = history[f"{NUMBERS} in step {AFTER[0]}"]
            seen.difference = _difference(history, self.train(right, AFTER))
            seen.worn = first_difference(state, _load(file), "the snapshot")
        except Exception as error:  # as above
            seen.difference = ERROR, "the job to go on training", one_line(error)

    def findings(self, seen: Sequence["Seen"]) -> Iterator[Finding | None]:
        yield judge([THROUGH_WORLD, *TESTS], *seen)


def _saved(state: Any) -> bytes:
    """Return what torch.save writes; nothing if torch.load refuses that, or if bytes are in it."""
    try:
        torch.save(state, file := io.BytesIO())
        _load(file.getvalue())
    except Exception:  # each kind of value that is refused has an error of its own
        return b""
    return b"" if any(isinstance(leaf, bytes) for _, leaf in _leaves(state)) else file.getvalue()


def _load(file: bytes) -> Any:
    return torch.load(io.BytesIO(file), weights_only=True)


def _leaves(value: Any, place: str = "the snapshot") -> Iterator[tuple[str, Any]]:
    """Return what is in dicts and lists, with its place."""
    if type(value) in (dict, OrderedDict, Counter):
        for key, each in value.items():
            yield from _leaves(each, f"{place}[{key!r}]")
    elif type(value) in (list, tuple, set):
        for i, each in enumerate(value):
            yield from _leaves(each, f"{place}[{i}]")
    else:
        yield place, value


def _states(job: Any) -> dict[str, Any]:
    """Return the state of each part of a job."""
    return {name: job.noise.get_state() if name == "noise" else getattr(job, name).state_dict() for name in PARTS}


def _difference(got: Mapping[str, Any], want: Mapping[str, Any]) -> tuple[str, str, str] | None:
    """Return the first difference between histories: its name, what was asked, and what it is."""
    found = ((name, first_difference(got[name], value, name, 1e-9, 1e-9)) for name, value in want.items())
    return next(((name, *difference) for name, difference in found if difference), None)


# -- facts --


@dataclass
class Seen:
    """What was seen on one rank. first, second: how many ranks took the snapshot, and how many went on.

    sent: by state_of, on virtual ranks. nothing: whether it returned None. odd: the place and the type of what must not
    be in a snapshot. other: where it is not that of rank 0. disturbed: where the job went on otherwise than without a
    snapshot. later: what that changed in the snapshot.

    Of the new job: cut: which of its objects are no longer connected. wrong: which parts were not as in the snapshot
    after restore. numbers: the first ones from its noise. difference: where it trained otherwise than without a stop.
    changed, worn: what restore, and the training after it, changed in the snapshot.
    """

    rank: int
    first: int
    second: int
    sent: Sent | None = None
    nothing: bool = False
    odd: tuple[str, str] | None = None
    other: tuple[str, str] | None = None
    disturbed: tuple[str, str, str] | None = None
    later: tuple[str, str] | None = None
    cut: str = ""
    wrong: Sequence[str] = ()
    numbers: Sequence[float] | None = None
    difference: tuple[str, str, str] | None = None
    changed: tuple[str, str] | None = None
    worn: tuple[str, str] | None = None

    unlike = property(lambda self: self.nothing or self.odd or self.other or self.disturbed or self.later)
    failed = property(lambda self: bool(self.unlike or (self.sent and self.sent.world)))
    place = property(lambda self: f"on rank {self.rank} of {self.second}")
    like = property(lambda self: "as without a stop" if self.rank < self.first else "as in its new job")
    others = property(lambda self: f"; not as in the snapshot: {', '.join(self.wrong)}" if self.wrong[1:] else "")

    # Why it differs.

    name = property(lambda self: self.difference[0])
    rate, scaler = property(lambda self: RATE in self.name), property(lambda self: SCALE in self.name)
    sampler, noise = property(lambda self: LIST in self.name), property(lambda self: NUMBERS in self.name)
    error = property(lambda self: self.name == ERROR)
    model = property(lambda self: "buffer" in self.name or self.name.endswith(f"step {AFTER[0]}"))
    resized = property(lambda self: self.noise and self.first != self.second)
    anew = property(lambda self: self.noise and self.numbers == _numbers(_noise(OLD, self.rank)))
    shared = property(lambda self: self.noise and self.owner is not None)

    @property
    def owner(self) -> int | None:
        """Whose random numbers the rank has."""
        noises = [_noise(OLD, rank) for rank in range(self.first)]
        drawn = [[_numbers(noise) for _ in (*BEFORE, AFTER[0])][-1] for noise in noises]
        return drawn.index(self.numbers) if self.numbers in drawn else None


# -- what is said --

RESIZED = (
    "A job may continue on more ranks, or on fewer. Rank r takes the random state of rank r. The snapshot has none of "
    "a rank that is new, and this rank keeps the random numbers of its new job."
)
TESTS = tests(
    nothing=(
        "a snapshot from state_of on rank {rank} of {first}",
        "None",
        "All ranks return the same snapshot, and any of them may write it. Is it returned on this rank?",
    ),
    odd=(
        "dicts, lists, numbers, texts and tensors, which torch.load reads with weights_only=True",
        "{odd[0]} has the type {odd[1]}",
        "Reading other objects, or a pickle in bytes, may run code that the file names, so they do not belong in a "
        "snapshot. state_dict() returns what is in an object, get_state() what is in a generator, and torch.from_numpy "
        "turns an array into a tensor.",
    ),
    other=(
        "{other[0]} on rank {rank}, as on rank 0",
        "{other[1]}",
        "Any rank may write the snapshot, so it is the same on all of them. It holds the random states of all ranks: "
        "allgather brings these to each rank, and gather to one rank only.",
    ),
    disturbed=(
        "{disturbed[1]} on rank {rank} of {first}, as without a snapshot",
        "{disturbed[2]}",
        "The job goes on after state_of, and has to compute what it would compute without a snapshot. Its objects "
        "stay as they are, and nothing is drawn from job.noise: get_state() draws no numbers.",
    ),
    later=(
        "{later[0]}, as when it was taken, on rank {rank} of {first}",
        "{later[1]} after the job has trained on",
        "state_dict() returns the tensors of the model and of the optimizer themselves, and each step changes them in "
        "place. dict(...) and .copy() make a new dict with the same tensors, and detach() shares their memory. "
        "copy.deepcopy copies all of it.",
    ),
    cut=(
        "the optimizer to hold the parameters of job.model, and the scheduler to have job.optimizer, {place}",
        "{cut} after restore",
        "An optimizer updates the parameters that it was made with, and a scheduler changes the learning rate of the "
        "optimizer that it was made with. Keep these objects, and write the saved values into them. A new optimizer, "
        "a copy of the model, load_state_dict(..., assign=True) and an assignment to param_groups replace them.",
    ),
    difference=(
        "{difference[1]} {place}, {like}",
        "{difference[2]}{others}",
        rules(
            error="An object does not work any more. What its state_dict() has returned goes back by its "
            "load_state_dict(), which writes it into the object. An assignment puts something else in its place.",
            resized=RESIZED,
            shared="This rank goes on with the random state of rank {owner}, so both of them draw the same numbers. "
            "The snapshot needs the states of all ranks, and each rank takes its own.",
            anew="The random numbers begin again with the first one. A seed says where they began, and not how many "
            "were drawn since then: get_state() knows both.",
            noise="The state of this rank's job.noise is not back. torch.get_rng_state() and torch.set_rng_state() are "
            "for another generator, torch's own.",
            rate="The learning rate is in the optimizer's param_groups, and the scheduler counts the steps after which "
            "it changes. Load both states. To call the scheduler's step() again changes the learning rate once more.",
            scaler="The scaler has changed its scale since it was made, and counts the steps until the next change. "
            "Both are in its state_dict().",
            sampler="The sampler does not know which examples were used: some come again, and others are left out of "
            "this epoch.",
            model="The model of a new job has other numbers: trained and frozen parameters, and buffers. All of them "
            "are in model.state_dict(), and each rank has to load them.",
            otherwise="What the optimizer keeps is not back: momentum, or Adam's averages and number of steps. Or was "
            "model.eval() called? Then batch norm computes otherwise than in training.",
        ),
    ),
    changed=(
        "{changed[0]} after restore, {place}",
        "{changed[1]}",
        "The snapshot was changed by restore. It may be restored once more, so leave it as it is.",
    ),
    worn=(
        "{worn[0]} after the restored job has trained, {place}",
        "{worn[1]}",
        "The job has tensors of the snapshot now, and each step changes them in place. optimizer.load_state_dict keeps "
        "the tensors that it is given, and p.data = x takes x itself. Give the job copies.",
    ),
)

# -- cases --

STATE_DICTS = (
    "Another optimizer keeps other things, and the step() of some schedulers depends on a loss, so it cannot be "
    "repeated. Whatever an object keeps, its state_dict() has it, and its load_state_dict() puts it back."
)
SAME, ADAM = Training(), Training(STATE_DICTS, (2, 3), adam=True)
CASES = (SAME, ADAM, Training(RESIZED, (3, 2, 4), more=1), Training(RESIZED, (3, 2, 4), more=-1))
check = functools.partial(all_on_real, cases=CASES)
check_virtually = functools.partial(all_on_virtual, cases=CASES)
