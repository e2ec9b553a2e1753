"""What e01_memory is asked: the bytes of a training step, against those that torch holds."""

import random

import torch

from mpcourse.check.answer import Answer
from mpcourse.check.watched import WatchedComm
from mpcourse.check.wrong import Wrong, first_difference
from mpcourse.memory import StepMemory, measure_step
from mpcourse.models import mlp

OPTIMIZERS = {
    "sgd": lambda parameters: torch.optim.SGD(parameters, lr=0.1),
    "momentum": lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9),
    "adam": lambda parameters: torch.optim.Adam(parameters),
}


def check(answer: Answer, comm: WatchedComm) -> None:
    """Every rank may call this; ranks do not talk."""
    seed = random.SystemRandom().randrange(1 << 32)
    draw = random.Random(seed)
    shapes = [([784, 1000, 1000, 10], 100)]
    shapes += [([draw.randint(1, 90) for _ in range(draw.randint(2, 5))], draw.randint(1, 40)) for _ in range(4)]
    shapes += [([7, 3], 1)]
    for widths, batch in shapes:
        for optimizer in OPTIMIZERS:
            _one(answer, widths, batch, optimizer)


def measured(widths: list[int], batch: int, optimizer: str) -> StepMemory:
    """What torch holds for one step of the network that the task describes."""
    model = mlp(widths)
    images, labels = torch.randn(batch, widths[0]), torch.randint(widths[-1], (batch,))
    return measure_step(model, images, labels, OPTIMIZERS[optimizer](model.parameters()))


def _one(answer: Answer, widths: list[int], batch: int, optimizer: str) -> None:
    call = f"training_bytes({widths}, {batch}, {optimizer!r})"
    truth = measured(widths, batch, optimizer)
    want = truth.as_dict()
    got = answer.call("training_bytes", list(widths), batch, optimizer)
    difference = first_difference(got, want, call)
    if difference is None:
        return
    why = ""
    if isinstance(got, dict):
        key = next((k for k in want if k in got and first_difference(got[k], want[k], k)), None)
        why = _why(key, got[key], want, widths, batch, truth) if key else ""
    raise Wrong(*difference, why)


def _why(key: str, got: object, want: dict[str, int], widths: list[int], batch: int, truth: StepMemory) -> str:
    """The misconception that would give exactly this number; where none does, what torch was seen to keep."""
    if isinstance(got, bool) or not isinstance(got, int | float):
        return "Every value is a number of bytes."
    for number, why in _mistakes(key, want, widths, batch):
        if number != want[key] and abs(got - number) < 1e-6 * max(1, abs(number)):
            return why
    if key == "activations":
        rows = ", ".join(f"{tuple(s.shape)} {str(s.dtype).removeprefix('torch.')}" for s in truth.saved)
        return f"Autograd saved these tensors: {rows}."
    return ""


def _mistakes(key: str, want: dict[str, int], widths: list[int], batch: int) -> list[tuple[float, str]]:
    right = want[key]
    pairs = list(zip(widths, widths[1:], strict=False))
    weights, biases = sum(n * m for n, m in pairs), sum(m for _, m in pairs)
    rows: list[tuple[float, str]] = [
        (right / 4, "These are numbers, not bytes: a float32 takes 4 bytes."),
        (right * 2, "That is twice too much: float32 takes 4 bytes, float64 would take 8."),
        (right / 2**20, "The unit is bytes, not MiB."),
        (right / 1e6, "The unit is bytes, not MB."),
    ]
    if key in ("parameters", "gradients"):
        rows += [
            (4 * weights, "Each layer has a bias too, with as many numbers as it has units."),
            (4 * (weights + biases + widths[0]), "A layer has a bias for each of its outputs; the input has none."),
        ]
    if key == "gradients":
        rows += [
            (0, "After backward every parameter has a .grad of its own size."),
            (want["parameters"] * batch, "Gradients are summed over the batch: one number for each parameter."),
        ]
    if key == "optimizer":
        p, steps = want["parameters"], 4 * 2 * len(pairs)
        rows += [
            (0, "Momentum and Adam remember something for every parameter from one step to the next."),
            (2 * p, "Adam also counts its steps: 4 bytes for each parameter tensor, a weight and a bias being two."),
            (2 * p + 4, "Adam counts its steps for each parameter tensor apart, not once for all."),
            (2 * p + 4 * len(pairs), "Adam counts steps for each tensor: a layer has two, its weight and its bias."),
            (p + steps, "Adam keeps two averages for each parameter: of the gradient and of its square."),
            (p, "This optimizer keeps another number of values for each parameter: SGD none, momentum one, Adam two."),
        ]
    if key == "activations":
        classes = widths[-1]
        inputs, hidden = 4 * batch * sum(widths[:-1]), 4 * batch * sum(widths[1:-1])
        rows += [
            (right / batch, "Each example of the batch has activations of its own."),
            (
                right - 4 * batch * widths[0],
                "The first layer saves its input, the images: its weight's gradient needs them.",
            ),
            (inputs, "The loss saves too: the log-probabilities, the labels and one 4-byte number."),
            (inputs + 4 * batch * classes, "The loss also saves the labels (8 bytes each) and one 4-byte number."),
            (right - 4, "The loss also saves one 4-byte number: the sum of the class weights."),
            (right - 8 * batch, "The loss also saves the labels: an int64 takes 8 bytes."),
            (right - 4 * batch, "Labels are int64: 8 bytes each, not 4."),
            (inputs + 8 * batch + 4, "The loss also saves the log-probabilities: batch x classes."),
            (
                right + hidden,
                "A ReLU saves its output, and the next layer saves its input: they are one tensor, held once.",
            ),
            (
                right + 4 * batch * classes,
                "The last layer's output is not kept: the loss saves its log-probabilities only.",
            ),
            (right + 4 * weights, "The weights that backward needs are the parameters themselves, counted already."),
            (
                right + want["parameters"],
                "The weights that backward needs are the parameters themselves, counted already.",
            ),
            (right - hidden, "Each hidden layer's activations are the next layer's input, and are saved."),
        ]
    return rows
