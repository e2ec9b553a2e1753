"""A step with a parameter that is not trained."""

import torch
import torch.nn.functional as F
from torch import nn

from mpcourse.course.check.answer import Answer
from mpcourse.course.check.facts.tensors import equal
from mpcourse.course.check.wrong import Wrong
from mpcourse.pipeline import one_f_one_b

DEVICES = ["vgpu:0", "vgpu:1"]
BATCH, WIDTH = 5, 6
WHY = (
    "Parameters that are not trained have no gradient, and nothing is asked of them: output.backward(gradient) leaves "
    "them out by itself, torch.autograd.grad does not."
)


def frozen(answer: Answer) -> None:
    """Raise Wrong unless a frozen parameter stays as it is, and all others get their gradients."""
    first, last = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
    first.bias.requires_grad_(False)
    x, target = torch.randn(2, BATCH, WIDTH)
    F.mse_loss(last(first(x)), target).backward()
    parameters = [*first.parameters(), *last.parameters()]
    wanted = [None if p.grad is None else p.grad.clone() for p in parameters]
    for stage, device in zip((first, last), DEVICES, strict=True):
        stage.zero_grad()
        stage.to(device)
    schedule = [[(action.kind, action.microbatch) for action in row] for row in one_f_one_b(2, 3)]
    given = ([first, last], DEVICES, schedule, x.to(DEVICES[0]), target.to(DEVICES[1]), F.mse_loss)
    what = "a parameter whose requires_grad is False"
    try:
        answer.call("pipeline_step", *given, changes=given)
    except RuntimeError as error:
        raise Wrong(f"a step with {what}", f"RuntimeError: {str(error).splitlines()[0]}", WHY) from None
    if first.bias.requires_grad:
        raise Wrong(f"requires_grad as it was, of {what}", "True", WHY)
    for i, (p, want) in enumerate(zip((*first.parameters(), *last.parameters()), wanted, strict=True)):
        if (p.grad is None) != (want is None):
            got = "None" if p.grad is None else "a gradient"
            raise Wrong(f"{'no' if want is None else 'a'} gradient of parameter {i}, with {what}", got, WHY)
        if p.grad is not None and want is not None:
            equal(p.grad, want, f"the gradient of parameter {i}, with {what},", WHY, 1e-4, 1e-5)
