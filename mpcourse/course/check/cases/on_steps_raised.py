"""What an exception of a step means, told from what was seen of the step up to there."""

from mpcourse.course.check.cases.on_steps_watched import StepSeen
from mpcourse.course.check.cases.on_steps_why import CROSSES, wrong_order, wrong_targets
from mpcourse.course.check.wrong import Wrong, short
from mpcourse.pipeline import Action

OVER = "grad can be implicitly created only for scalar outputs"
TWICE = "backward through the graph a second time"
GRAPHLESS = "does not require grad and does not have a grad_fn"
AWAKE = (
    "A tensor's .grad stays None unless it required a gradient before the forward: detach() makes one that does not, "
    "requires_grad_() makes it ask."
)
MOVED = (
    "The stage's input is no leaf: .to() after requires_grad_() makes another tensor, and that one's .grad stays None. "
    "The order is .detach().to(device).requires_grad_()."
)
LOOK = "Look whether it is there; if not, go on with another stage."
EARLY = f"What a stage's next action needs may not be there yet. {LOOK}"
TAKEN = "If it is there: was it stored under another key, or taken out already?"
USED_UP = (
    "A backward runs through one F's graph, once. Has each micro-batch a place of its own for what its F returned? "
    "With one place a stage, the next F overwrites it."
)
FLAGS = "you can only change requires_grad flags"
PIECES = (
    "What is cut from a tensor that requires a gradient, or computed from one, is no leaf, and its requires_grad stays "
    "as it is. x needs no gradient: cut it as it is, or detach each piece."
)
EACH_STAGE = (
    "Each stage has a micro-batch of that number, and keeps its own input and output of it: under one key, one stage's "
    "takes the place of the other's. Keep them by stage and micro-batch."
)
DETACHED = (
    "B starts from what F returned, before it is detached, and outside of torch.no_grad. Keep that for B. Only what "
    "crosses to the next stage is detached."
)
OVERWRITTEN = (
    "An F keeps its input and output for its B. Who writes the next micro-batch into the same tensor changes them: "
    "each micro-batch has tensors of its own."
)
COUNTED = "Micro-batches are numbered from 0: there is one more of them than the highest number says."
ALONE = "A single stage is the first one and the last one: nothing arrives for it, nothing is sent, and it has a loss."
DEVICES = (
    "A GPU computes on its own memory only. tensor.to(device) brings a tensor there: what an F returned to the device "
    "of the next stage, the gradient of what it was given to the one before."
)


def explained(seen: StepSeen, error: Exception) -> Wrong | None:
    """The exception as a wrong answer, with what it means; None where nothing is known of it."""
    text = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
    text = text if len(text) <= 150 else text[:146] + " ..."
    asked = f"a step of {seen.case.asked}"
    if any(words in text for words in ("same device", "is on vgpu", "- expected device", "on a different device")):
        return Wrong(asked, text, DEVICES)
    if why := wrong_targets(seen):
        return Wrong(asked, text, why)
    if "modified by an inplace operation" in text:
        return Wrong(asked, "RuntimeError: what an F has kept for its B was changed in place", OVERWRITTEN)
    if "number of sections must be larger than 0" in text:
        return Wrong(asked, text, COUNTED)
    if TWICE in text:
        text = f"RuntimeError: {TWICE.capitalize()}"
        if seen.uncut:
            return Wrong(asked, text, CROSSES)
        return wrong_order(seen, so_far=True, then=f", then {text}") or Wrong(asked, text, USED_UP)
    if OVER in text:
        return Wrong(asked, text, _why_no_start(seen))
    if GRAPHLESS in text:
        return Wrong(asked, text, DETACHED)
    if "Mismatch in shape: grad_output" in text:
        why = f"The gradient is of another output than the one whose backward is called. {EACH_STAGE}"
        return Wrong(asked, "RuntimeError: a gradient and an output of different shapes", why)
    if FLAGS in text:
        return Wrong(asked, f"RuntimeError: {FLAGS.capitalize()} of leaf tensors", PIECES)
    if isinstance(error, KeyError) and _by_microbatch_only(seen, error):
        k = error.args[0]
        return Wrong(asked, f"KeyError: {short(k)}", f"The key is {short(k)}, of micro-batch only. {EACH_STAGE}")
    if isinstance(error, LookupError) and seen.case.p == 1:
        return Wrong(asked, f"{type(error).__name__}: {short(error.args[0])}", ALONE)
    if isinstance(error, KeyError):
        return Wrong(asked, f"KeyError: {short(error.args[0])}", f"{_not_there(seen) or EARLY} {TAKEN}")
    if isinstance(error, AttributeError | TypeError) and "NoneType" in text:
        why = CROSSES if seen.uncut else AWAKE if seen.asleep else MOVED if seen.moved else _not_there(seen)
        return Wrong(asked, text, why) if why else None
    return wrong_order(seen, so_far=True, then=f", then {text}")


def _by_microbatch_only(seen: StepSeen, error: KeyError) -> bool:
    """Whether what is missing was kept under the number of a micro-batch, though that micro-batch's F has run."""
    key = error.args[0] if error.args else None
    if isinstance(key, tuple) and len(key) == 2 and key[0] in ("F", "B"):
        key = key[1]
    if isinstance(key, bool) or not isinstance(key, int) or seen.case.p < 2 or seen.case.m > 1:
        return False  # of more than one micro-batch it may be the number of a stage
    return sum(Action("F", key) in row for row in seen.rows) > 1


def _next(seen: StepSeen) -> list[tuple[int, Action]]:
    """(stage, its next action), the stage that has done least first."""
    pairs = zip(seen.rows, seen.case.schedule, strict=True)
    unfinished = [(len(row), s, want[len(row)]) for s, (row, want) in enumerate(pairs) if len(row) < len(want)]
    return [(s, action) for _, s, action in sorted(unfinished)]


def _arrived(seen: StepSeen, s: int, action: Action) -> bool:
    neighbour = s - 1 if action.kind == "F" else s + 1
    return not 0 <= neighbour < seen.case.p or action in seen.rows[neighbour]


def _not_there(seen: StepSeen) -> str:
    """Which next action has not got what it needs; empty where all have."""
    for s, action in _next(seen):
        if not _arrived(seen, s, action):
            made, other = ("output", s - 1) if action.kind == "F" else ("gradient", s + 1)
            k = action.microbatch
            return (
                f"Stage {s} is at {action}, but micro-batch {k}'s {made} is not there: stage {other} has not run "
                f"{action}. {LOOK}"
            )
    return ""


def _why_no_start(seen: StepSeen) -> str:
    """Of a backward that was called without a gradient on what is no number."""
    last = seen.case.p - 1
    at = [(s, a) for s, a in _next(seen) if a.kind == "B" and _arrived(seen, s, a)]
    for s, a in at:
        if s < last:
            return (
                f"Only a loss is a number. What stage {s} returned is not: its {a} is out.backward(gradient), from the "
                f"gradient that stage {s + 1}'s {a} left at its input."
            )
    if at and at[0][1].microbatch not in [k for k, _ in seen.losses]:
        return "The last stage's B starts from the loss of its micro-batch, which is a number, not from the output."
    return _not_there(seen) or EARLY
