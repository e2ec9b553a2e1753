"""What e04_pipeline_step is asked: a step by some schedules, against one backward of the whole batch's loss."""

import threading
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from unittest.mock import patch

from mpcourse.course.check.answer import Answer
from mpcourse.course.check.facts.calls import one_by_one
from mpcourse.course.check.facts.steps import FIRST, FROZEN, Step, memory, overlap
from mpcourse.course.check.facts.tensors import ROUNDED, Result, close, equals, placed
from mpcourse.course.check.rules import Rule, Test, always, demand, filled, why_of
from mpcourse.course.check.status_page import HasStatusPage
from mpcourse.pipeline import gpipe, naive, one_f_one_b
from mpcourse.virtual import GPUS, Box, virtual_gpus

# So slow that nothing is ready when Python comes to read it: code that reads a tensor waits, as on any busy GPU.
SLOW = replace(GPUS["Tesla P100-SXM2"], kernel=1e-2, workspace=0)
# Stages that take micro-batches in orders of their own, and backwards in another one.
OWN: Sequence[Sequence[tuple]] = [
    [("F", 1), ("F", 0), ("F", 2), ("B", 0), ("B", 2), ("B", 1)],
    [("F", 0), ("B", 0), ("F", 1), ("F", 2), ("B", 2), ("B", 1)],
]
# First one in which 2 actions, 3 stages or another number of pieces give pieces of different sizes: that shows
# how a wrong number of micro-batches was counted.
CASES: Sequence[tuple] = [  # schedule, batch, and whether it is a first step, or one with a frozen parameter
    (naive(3, 1), 7),
    (gpipe(2, 2), 4),
    (one_f_one_b(2, 3), 6),
    (one_f_one_b(2, 3), 7),
    (gpipe(3, 4), 9),
    (OWN, 5),
    (gpipe(1, 3), 5),
    (one_f_one_b(3, 5), 11),
    (naive(4, 2), 5),
    (one_f_one_b(2, 3), 5, FIRST),
    (one_f_one_b(2, 3), 5, FROZEN),
]


def check(answer: Answer, comm: HasStatusPage) -> None:
    """Check the answer; every rank may call this, and ranks exchange nothing."""
    with (
        virtual_gpus(4, SLOW, overlap=True) as box,
        patch.object(threading.Thread, "start", lambda *args: demand(THREADS, None)),  # they would not know the devices
    ):
        steps = [Step(*case) for case in CASES]
        one_by_one(answer, [one for step in steps for one in (partial(_look, step), partial(_run, step, box))])
        demand(MEMORY, *memory(answer, box, lambda *args: demand(RESETS, None)))
        demand(OVERLAP, *overlap(answer, box))


def _look(step: Step, answer: Answer) -> None:
    step.look(answer)
    demand([*CHANGED, *INPUTS, *STOPPED], step)
    if step.error:
        raise step.error


def _run(step: Step, box: Box, answer: Answer) -> None:
    step.run(answer, box)
    demand([*GRADIENTS, *LOSSES, *WORK], step)


# -- what is said: of what a run left otherwise than it was --

NOT_TRAINED = (
    "Parameters that are not trained have no gradient, and nothing is asked of them: output.backward(gradient) leaves "
    "them out by itself, torch.autograd.grad does not."
)
FIRST_STEP = "Before a first step a parameter's .grad is None. The step makes it, and later steps add to it."
STAYS_OFF = "It stays off for the caller. `with torch.no_grad():` switches it on again at its end."
CALLERS = (
    "{asks} is the caller's: it is to be left as it is, {asks}.requires_grad too, and its gradient is not asked for. "
    "The first stage's pieces need none, for autograd finds the stage's parameters without that."
)
EVAL = "eval() changes what batch norm and dropout compute. A training step leaves the mode as it is."
FREEZES = "requires_grad_(False) freezes parameters: they get no gradient, and nothing trains them any more."
ONLY_GRAD = "The step only adds to .grad. Whoever calls it updates the parameters afterwards, once."
ON, OFF = "autograd to be on after the step, as before it", "it is off"
ASKS = "{asks}.requires_grad False after the step, as before it"
MODE, EVALUATING = "stage {evaluating} in training mode, as it came", "in evaluation mode"
THAWED = f"requires_grad as it was, of {FROZEN}"
TRAINED = "stage {trained[0]}'s parameters with requires_grad True"
AS_IT_WAS = "stage {changed[0]}'s {changed[1]} as it was before the step"
CHANGED = [
    Test("autograd", lambda f: f.autograd_off, ON, OFF, STAYS_OFF),
    Test("x or target", lambda f: f.asks, ASKS, "it is True", CALLERS),
    Test("mode", lambda f: f.evaluating is not None, MODE, EVALUATING, EVAL),
    Test("thawed", lambda f: f.trained and f.trained[1], THAWED, "True", NOT_TRAINED),
    Test("frozen", lambda f: f.trained, TRAINED, "requires_grad is False", FREEZES),
    Test("parameters", lambda f: f.changed, AS_IT_WAS, "other numbers", ONLY_GRAD),
]

# -- of inputs that are no micro-batch's --

SPLIT = "x.tensor_split(m) makes the micro-batches, and each goes through the stages by itself."
ACTIONS = "x is cut into {counts[0]} pieces: len(schedule[0]) counts forwards and backwards. There are m of each."
AS_STAGES = "x is cut into {p} pieces, as many as there are stages. Micro-batches: one for each k of the schedule."
ELSEWHERE = f"{SPLIT} chunk and split cut elsewhere where the batch is not a multiple of m."
WHYS_CUT = [
    Rule("actions", lambda f: f.counts == [2 * f.m], ACTIONS),
    Rule("stages", lambda f: f.counts == [f.p], AS_STAGES),
    Rule("elsewhere", lambda f: not f.counts, ELSEWHERE),
    Rule("not cut", lambda f: f.counts[0] == 1, f"x is not cut, the schedule has {{m}} micro-batches. {SPLIT}"),
    Rule("number", always, f"x is cut into {{counts[0]}}{{more}} pieces, the schedule has {{microbatches}}. {SPLIT}"),
]
INPUT = "an F of stage {stranger.stage} to be given {stranger.asked}, of {case.asked}"
NONE, PIECE = "a tensor of shape {stranger.shape}", "{piece} of the {n} examples, from {pieces[0].start} on"
INPUTS = [
    Test("rounded", lambda f: f.strangers and f.stranger.dtype, INPUT, f"{NONE}, rounded", "{rounded_input}"),
    Test("none", lambda f: f.strangers and f.no_piece, INPUT, f"{NONE} that is none of them", SPLIT),
    Test("piece", lambda f: f.strangers, INPUT, PIECE, WHYS_CUT),
]

# -- of actions that ran otherwise than asked --

CROSSES = (
    "A tensor crosses without detach, so the last stage's backward runs on through all stages before it, and their own "
    "B comes too late. retain_graph=True does not help: detach what crosses."
)
OTHER_K = "{got} runs where {asked} is asked: the k of an action is the number of its micro-batch."
ONE_PLACE = f"{OTHER_K} With one place a stage, the next F overwrites what a B needs: keep it for each micro-batch."
AGAIN = "{twice} runs more than once. Keep what the F returned: its B starts there."
MISSING = (
    "{missing} does not run. Each action in the list is one forward, or one backward, of this stage. Where its "
    "gradient has not arrived, the stage waits, and comes back to it: it leaves nothing out."
)
TOO_SOON = "{got} runs before it is this stage's turn: B is a call of its own for each stage, in its list's order."
NOT_IN_TURN = (
    "{got} runs where {asked} is asked. Each stage runs its list from front to back. While the next input is not there "
    "it waits, and runs nothing else."
)
WHYS_ORDER = [
    Rule("not cut", lambda f: f.uncut, CROSSES),
    Rule("one place", lambda f: f.other_k and f.newest == f.got.of("F"), ONE_PLACE),
    Rule("another k", lambda f: f.other_k, OTHER_K),
    Rule("twice", lambda f: f.twice, AGAIN),
    Rule("missing", lambda f: f.missing and f.missing.kind == "B", MISSING),
    Rule("B too soon", lambda f: f.place and f.got.kind == "B", TOO_SOON),
    Rule("F out of turn", lambda f: f.place, NOT_IN_TURN),
]
STAGE = "stage {stage} to run {in_list}"
ORDER = Test("order", lambda f: f.stage is not None, STAGE, "{ran}", WHYS_ORDER)

# -- of an error --

TWICE = "backward through the graph a second time"
NO_START = "grad can be implicitly created only for scalar outputs"
OTHER_DEVICE = ("same device", "is on vgpu", "- expected device", "on a different device")
DEVICES = (
    "A GPU computes on its own memory only. tensor.to(device) brings a tensor there: what an F returned to the device "
    "of the next stage, the gradient of what it was given to the one before."
)
OWN_TARGETS = "Its own: target.tensor_split(m)[{other_targets[0]}]."
NO_TARGETS = (
    f"The loss of micro-batch {{other_targets[0]}} is taken against targets that are no micro-batch's. {OWN_TARGETS}"
)
OTHER_TARGETS = (
    "The loss of micro-batch {other_targets[0]} is taken against the targets of micro-batch {other_targets[1]}. "
    f"{OWN_TARGETS}"
)
OVERWRITTEN = (
    "An F keeps its input and output for its B. Who writes the next micro-batch into the same tensor changes them: "
    "each micro-batch has tensors of its own."
)
COUNTED = "Micro-batches are numbered from 0: there is one more of them than the highest number says."
USED_UP = (
    "A backward runs through one F's graph, once. Has each micro-batch a place of its own for what its F returned? "
    "With one place a stage, the next F overwrites it."
)
NO_NUMBER = (
    "Only a loss is a number. What stage {middle[0]} returned is not: its {middle[1]} is out.backward(gradient), from "
    "the gradient that stage {middle[3]}'s {middle[1]} left at its input."
)
NO_LOSS = "The last stage's B starts from the loss of its micro-batch, which is a number, not from the output."
LOOK = "Look whether it is there; if not, go on with another stage."
EARLY = f"What a stage's next action needs may not be there yet. {LOOK}"
ABSENT = (
    "Stage {absent[0]} is at {absent[1]}, but micro-batch {absent[1].microbatch}'s {absent[2]} is not there: stage "
    f"{{absent[3]}} has not run {{absent[1]}}. {LOOK}"
)
DETACHED = (
    "B starts from what F returned, before it is detached, and outside of torch.no_grad. Keep that for B. Only what "
    "crosses to the next stage is detached."
)
EACH_STAGE = (
    "Each stage has a micro-batch of that number, and keeps its own input and output of it: under one key, one stage's "
    "takes the place of the other's. Keep them by stage and micro-batch."
)
OTHER_OUTPUT = f"The gradient belongs to another output than the one whose backward is called. {EACH_STAGE}"
LEAVES = (
    "What is cut from a tensor that requires a gradient, or computed from one, is no leaf, and its requires_grad stays "
    "as it is. x needs no gradient: cut it as it is, or detach each piece."
)
KEY = f"The key is {{key}}, of micro-batch only. {EACH_STAGE}"
ALONE = "A single stage is the first one and the last one: nothing arrives for it, nothing is sent, and it has a loss."
TAKEN = "If it is there: was it stored under another key, or taken out already?"
AWAKE = (
    "A tensor's .grad stays None unless it required a gradient before the forward: detach() makes one that does not, "
    "requires_grad_() makes it ask."
)
MOVED = (
    "The stage's input is no leaf: .to() after requires_grad_() makes another tensor, and that one's .grad stays None. "
    "The order is .detach().to(device).requires_grad_()."
)
WHYS_TARGETS = [
    Rule("no targets", lambda f: f.other_targets and f.other_targets[1] is None, NO_TARGETS),
    Rule("other targets", lambda f: f.other_targets, OTHER_TARGETS),
]
WHYS_ERROR = [
    Rule("frozen", lambda f: f.case.having == FROZEN and isinstance(f.error, RuntimeError), NOT_TRAINED),
    Rule("first step", lambda f: f.case.having == FIRST and f.none, FIRST_STEP),
    Rule("other device", lambda f: f.says(*OTHER_DEVICE), DEVICES),
    *WHYS_TARGETS,
    Rule("overwritten", lambda f: f.says("modified by an inplace operation"), OVERWRITTEN),
    Rule("one too few", lambda f: f.says("number of sections must be larger than 0"), COUNTED),
    Rule("not cut", lambda f: f.says(TWICE) and f.uncut, CROSSES),
    Rule("used up", lambda f: f.says(TWICE), USED_UP),
    Rule("no number", lambda f: f.says(NO_START) and f.middle, NO_NUMBER),
    Rule("no loss", lambda f: f.says(NO_START) and f.no_loss, NO_LOSS),
    Rule("not there", lambda f: f.says(NO_START) and f.absent, ABSENT),
    Rule("detached", lambda f: f.says("does not require grad and does not have a grad_fn"), DETACHED),
    Rule("other output", lambda f: f.says("Mismatch in shape: grad_output"), OTHER_OUTPUT),
    Rule("no leaf", lambda f: f.says("you can only change requires_grad flags"), LEAVES),
    Rule("key", lambda f: f.by_microbatch_only, KEY),
    Rule("alone", lambda f: isinstance(f.error, LookupError) and f.p == 1, ALONE),
    Rule("no key yet", lambda f: isinstance(f.error, KeyError) and f.absent, f"{ABSENT} {TAKEN}"),
    Rule("no key", lambda f: isinstance(f.error, KeyError), f"{EARLY} {TAKEN}"),
    Rule("None, not cut", lambda f: f.none and f.uncut, CROSSES),
    Rule("None, asleep", lambda f: f.none and f.asleep, AWAKE),
    Rule("None, no leaf", lambda f: f.none and f.moved, MOVED),
    Rule("None, not there", lambda f: f.none and f.absent, ABSENT),
]
STEP = "a step of {case.asked}"
STOPPED = [
    Test("twice", lambda f: f.says(TWICE) and not f.uncut and f.stage is not None, STAGE, "{ran}", WHYS_ORDER),
    Test("error", lambda f: f.error and why_of(WHYS_ERROR, f), STEP, "{text}", WHYS_ERROR),
    Test("error out of order", lambda f: f.error and f.stage is not None, STAGE, "{ran}", WHYS_ORDER),
]

# -- of gradients --

REPLACED = "There were gradients of a step before. They are kept: new ones are added to them."
IN_FULL = "Each micro-batch counts in full: its loss is a mean over its own examples only."
MEAN_OF_MEANS = (
    "All micro-batches count the same, but some have one example more: the mean of means is not the mean. Weigh by "
    "len(target of k) / len(target)."
)
ALIKE = (
    "All micro-batches have the weight of one of them, but some have one example more. Weigh each by its own: "
    "len(target of k) / len(target)."
)
DIVIDED_TWICE = (
    "The loss is divided twice: its share of the examples is a weight already. To weigh by it again, or to divide by "
    "the number of micro-batches, makes it smaller once more."
)
DIVIDED = "The loss is divided by the number of examples, but it is a mean over them already."
EARLIER_TOO = "Gradients that were there before the step are divided too. Weigh the loss before its backward."
EACH_AGAIN = "Each stage weighs the gradient once more. It is weighed with the loss, and that reaches all stages."
TAKEN_AWAY = (
    "The backwards have run, and these parameters have nothing of it: was a stage copied, so that its copy has the "
    "gradients, or were they taken away again?"
)
NOWHERE = "No stage got a gradient: does each B call backward?"
ADDED_TWICE = "Gradients are added twice: one backward for each micro-batch and stage."
KEPT = "It had a gradient from a step before. Gradients are added to that, not replaced."
REFILLED = (
    "When stage {refilled[0][0]} runs B{refilled[0][1]}, the tensor that its F{refilled[0][1]} was given holds other "
    "numbers: it was written over. Each micro-batch's F starts from a tensor of its own."
)
NO_GRADIENT = (
    "Stage {start.stage}'s B{start.k} starts from a tensor that is not the gradient of what its F{start.k} returned."
)
OTHER_GRADIENT = (
    "Stage {start.stage}'s B{start.k} starts from the gradient of micro-batch {start.of}. Gradients come back for each "
    "micro-batch: keep each under its k."
)
ALL_RAN = "All actions ran in their order, each F and each B from the right tensor."
SOME = f"{ALL_RAN} The gradients of stage {{right_stages}} are right."
WHYS_WEIGHT = [
    Rule("frozen", lambda f: f.case.having == FROZEN, NOT_TRAINED),
    Rule("replaced", lambda f: f.has(lambda w, s: w, earlier=0.0), REPLACED),
    Rule("in full", lambda f: f.has(lambda w, s: 1.0), IN_FULL),
    Rule("mean of means", lambda f: f.has(lambda w, s: 1 / f.m), MEAN_OF_MEANS),
    Rule("alike", lambda f: f.has(lambda w, s: f.shares[0], lambda w, s: f.shares[-1]), ALIKE),
    Rule("divided twice", lambda f: f.has(lambda w, s: w / f.m), DIVIDED_TWICE),  # as w * w, where all shares are 1 / m
    Rule("divided", lambda f: f.has(lambda w, s: 1 / f.n, lambda w, s: w / f.n, lambda w, s: 1 / f.m / f.n), DIVIDED),
    Rule(
        "earlier too",
        lambda f: any(f.has(lambda w, s: w, lambda w, s: 1 / f.m, earlier=1 / d) for d in (f.m, f.n)),
        EARLIER_TOO,
    ),
    Rule("each again", lambda f: f.has(lambda w, s: w ** (f.p - s), lambda w, s: f.m ** (s - f.p)), EACH_AGAIN),
    Rule("taken away", lambda f: f.backwards and f.has(lambda w, s: 0.0), TAKEN_AWAY),
    Rule("nowhere", lambda f: f.has(lambda w, s: 0.0), NOWHERE),
    Rule("added twice", lambda f: f.has(lambda w, s: 2 * w, lambda w, s: 2 * w if s == f.p - 1 else w), ADDED_TWICE),
]
WHYS_GRADIENT = [
    *WHYS_WEIGHT,
    Rule("refilled", lambda f: f.refilled, REFILLED),
    *WHYS_TARGETS,
    Rule("rounded", lambda f: f.starts and f.start.dtype, lambda f: ROUNDED.format(f.start.dtype)),
    Rule("no gradient", lambda f: f.starts and f.start.of is None, NO_GRADIENT),
    Rule("other gradient", lambda f: f.starts, OTHER_GRADIENT),
    Rule("some right", lambda f: f.right_stages, SOME),
    Rule("none right", always, f"{ALL_RAN} No stage's gradients are right in the end."),
]
WHAT = "stage {its_stage}'s gradient, of {case.asked}"
WHYS_NONE = [Rule("first step", lambda f: f.case.having == FIRST, FIRST_STEP), Rule("taken away", always, KEPT)]
STILL_NEEDED = "The caller still needs it."
GRADIENTS = [
    *equals(STILL_NEEDED, of=lambda f: Result(f.case.given[0], f.case.x, "x")),
    *equals(STILL_NEEDED, of=lambda f: Result(f.case.given[1], f.case.target, "target")),
    Test("not trained", lambda f: f.wrong and f.wanted is None, f"no {WHAT}", "one", NOT_TRAINED),
    Test("None", lambda f: f.wrong and f.gradient is None, WHAT, "None", WHYS_NONE),
    Test("not cut", lambda f: f.wrong and f.uncut and f.stage is not None, STAGE, "{ran}", WHYS_ORDER),
    Test("order", lambda f: f.wrong and f.stage is not None and not why_of(WHYS_WEIGHT, f), STAGE, "{ran}", WHYS_ORDER),
    *equals(WHYS_GRADIENT, computed=True, of=lambda f: Result(f.gradient, f.wanted, filled(WHAT, f))),
]

# -- of the loss --

AS_FLOAT = "float() and .item() make Python wait for the GPU. Return the tensor; who wants a number asks for it."
ON_LAST = "Each micro-batch's loss is computed on the last device: sum them up there."
ONE_NUMBER = "One number for the batch: each micro-batch's loss times its share of the examples, summed."
MEAN = "The mean of means is not the mean where some micro-batches have an example more: weigh each loss."
SUM = "This is the sum of the micro-batches' mean losses. The batch's loss is the mean over all its examples."
ONE = "This is one micro-batch's loss."
HOW_SUMMED = "The gradients are right: so are the losses that they came from. How are they summed?"
HAS_GRAPH = "Its graph holds the micro-batches' tensors as long as the caller keeps the number. Sum loss.detach()."
WHYS_LOSS = [
    Rule("mean of means", lambda f: close(f.result, f.alone.mean()), MEAN),
    Rule("sum", lambda f: close(f.result, f.alone.sum()), SUM),
    Rule("one", lambda f: any(close(f.result, loss) for loss in f.alone), ONE),
    Rule("another sum", always, HOW_SUMMED),
]
NUMBER, LOSS, DETACHED_LOSS = "{shown}, a number", "the batch's loss", "the batch's loss as a number without a graph"
LOSSES = [
    Test("number", lambda f: isinstance(f.result, float | int), f"{LOSS} as a tensor on {{device}}", NUMBER, AS_FLOAT),
    *placed(ON_LAST, of=lambda f: Result(f.result, None, LOSS, f.device)),
    Test("shape", lambda f: f.result.shape != (), f"a scalar, {LOSS}", "{shown}", ONE_NUMBER),
    *equals(WHYS_LOSS, computed=True, of=lambda f: Result(f.result, f.case.loss, f"the loss of {f.case.asked}")),
    Test("graph", lambda f: f.result.requires_grad, DETACHED_LOSS, "one that still carries its graph", HAS_GRAPH),
]

# -- of work, memory and time --

WAITS = (
    ".item(), float(), print, `if` on a tensor and copies to the CPU wait for a result. Meanwhile no other stage is "
    "given work: nothing overlaps."
)
CPU = "Tensors go from GPU to GPU. Over the CPU they take longer, and Python waits for them."
CUT = "Each cut is crossed by one activation and one gradient of each micro-batch, and by nothing else."
LONG = (
    "Each piece is cut from a tensor that requires a gradient, so that each backward makes a gradient as long as the "
    "whole batch, of zeros but for that piece. Nobody asks for a gradient of x, or of target: cut what needs none, or "
    "detach each piece."
)
KEEPS = (
    "After its B a stage needs nothing of a micro-batch. What is kept longer makes 1F1B hold as much as GPipe: pop "
    "what the F kept and the gradient that arrived, do not retain_graph, detach losses."
)
FORGETS = "That forgets what was held. A step does not hold less for it."
LATE = (
    "A GPU works through what it is given in that order, copies too. What is copied late, or given out late, waits "
    "behind work that could wait itself: run each action as soon as its input is there, and send on at once what it "
    "returns (out.detach().to(...), and the gradient of what it was given)."
)
ROUND = (
    "GPUs work on while Python goes on, so one thread gives out the work of all stages, and they overlap: go round the "
    "stages, and run each next action whose input is there."
)
WHYS_COPIES = [Rule("CPU", lambda f: "cpu" in f.lane[0], CPU), Rule("cut", always, CUT)]
NO_WAIT = "no wait for a GPU before all work is given out"
COPIES = "{lane[1]} copies {lane[0]}, for {case.asked}"
WORK = [
    Test("waits", lambda f: f.waits and not f.over_cpu, NO_WAIT, "Python waited {waited}", WAITS),
    Test("copies", lambda f: f.lane, COPIES, "{lane[2]}", WHYS_COPIES),
    ORDER,
]
ONE_AT_A_TIME = "tensors of one micro-batch at a time on stage {stage}"
AS_LONG = "{long} gradients as long as the whole batch"
IN_FLIGHT = (
    "{in_flight} of 16 micro-batches in flight on stage {stage}, as 1F1B has it: not more than {allowed} "
    "tensors of a micro-batch's size at once"
)
MEMORY = [
    Test("long", lambda f: f.held > f.allowed and f.long, ONE_AT_A_TIME, AS_LONG, LONG),
    Test("held", lambda f: f.held > f.allowed, IN_FLIGHT, "{held:.0f}: {made}", KEEPS),
]
# Any order of calls takes 1.7 times as long as the library's own step at most if copies are made at once; with late
# ones, or one stage at a time, it is 2.4.
TAKES = "{name} with 4 stages and 8 micro-batches to take about {par:.0f} ms"
HARDLY = "{got:.0f} ms: stages hardly work at the same time"
OVERLAP = [Test("late", lambda f: f.got > 2.2 * f.par, TAKES, HARDLY, LATE)]
THREADS = [Test("thread", always, "pipeline_step in one thread", "a thread was started", ROUND)]
RESET = "a call of torch.vgpu.reset_peak_memory_stats, or of the box's reset"
RESETS = [Test("reset", always, "the peak of memory to be measured", RESET, FORGETS)]
