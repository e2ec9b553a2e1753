"""Random programs on two devices and the CPU, that CUDA's rules allow or forbid; the rules are in ROWS.

A program is a list of lines. All of its lines but the last are allowed; the last is allowed or forbidden. Then backward
runs. `python tests/programs/two_devices.py SEED` shows the program of a seed, and what the box did.
"""

import random
import sys
from typing import NamedTuple

DEVICES = ("D0", "D1", "CPU")

# What a rule says of an operation whose arguments are (kind, device) pairs: the device of its result, or the phrase of
# torch's refusal. Kinds: "a" matrix, "s" number (without dimensions), "i" indices, "m" mask, "t" class labels.
EXACT = "Expected all tensors to be on the same device, but got"
FOUND = "Expected all tensors to be on the same device, but found at least two devices"
MANY = "Trying to pass too many CPU scalars to non-CPU kernel!"
INDICES = "indices should be either on cpu or on the same device as the indexed tensor"
GRAD = "assigned grad has data located on a different device"
ROOT = "invalid gradient at index 0 - expected device"


def first_of(arguments):
    """Return the device that others have to be on: the first that is not the CPU."""
    return next((d for _, d in arguments if d != "CPU"), "CPU")


def exact(*arguments):
    """native_functions.yaml, no `device_check`: torchgen writes a check that all are on the device of the first."""
    return arguments[0][1] if len({d for _, d in arguments}) == 1 else EXACT


def iterated(*arguments):
    """TensorIterator.cpp, `compute_types`, with allow_cpu_scalars: one number from the CPU may be among them."""
    common = first_of(arguments)
    if any(d != common and not (k == "s" and d == "CPU") for k, d in arguments):
        return FOUND
    return MANY if sum(d != common for _, d in arguments) > 1 else common


def iterated_into(target, *arguments):
    """Do the same for an operation in place or with `out=`: what is written is no input, so it may not be a number."""
    common = first_of((target, *arguments))
    return FOUND if target[1] != common else iterated(target, *arguments)


def selected(*arguments):
    """TensorCompare.cpp, `where_self_out`: numbers come to the device, from wherever they are."""
    common = first_of([a for a in arguments if a[0] != "s"] or arguments)
    common = first_of(arguments) if common == "CPU" else common
    return FOUND if any(d != common and k != "s" for k, d in arguments) else common


def masked(target, mask, value):
    """cuda/Indexing.cu, `masked_fill__cuda`: the value may be a number from the CPU."""
    if target[1] != mask[1] or value[1] not in (target[1], "CPU"):
        return FOUND
    return target[1]


def filled(target, value):
    """Fill.cpp, `fill_`: the value is read."""
    return target[1]


def index_filled(target, index, value):
    """TensorAdvancedIndexing.cpp, `index_fill_`: the value is read."""
    return target[1] if target[1] == index[1] else FOUND


def scaled(first, second, third):
    """PointwiseOpsKernel.cu `addcmul_cuda_kernel`, Lerp.cu: the last argument alone may be a number from the CPU."""
    if first[1] != second[1]:
        return FOUND
    return first[1] if third[1] == first[1] or (third[0] == "s" and third[1] == "CPU") else FOUND


def indexed(target, index):
    """TensorAdvancedIndexing.cpp, `make_info`: indices come from the CPU."""
    return target[1] if index[1] in (target[1], "CPU") else INDICES


def index_written(target, index, value):
    """Do the same, and for the value, if it is a number from the CPU (TensorAdvancedIndexing.h)."""
    if index[1] not in (target[1], "CPU"):
        return INDICES
    return target[1] if value[1] == target[1] or (value[0] == "s" and value[1] == "CPU") else "same device"


def copied(target, source):
    """Copy.cpp: between all devices."""
    return target[1]


def taken(target, source):
    """variable_factories.cpp, `set_data`: the tensor moves to where its new data are."""
    return source[1]


def assigned(tensor, gradient):
    """python_variable.cpp, `THPVariable_set_grad`."""
    return tensor[1] if tensor[1] == gradient[1] else GRAD


def rooted(tensor, gradient):
    """engine.cpp, `validate_outputs`."""
    return tensor[1] if tensor[1] == gradient[1] else ROOT


class Row(NamedTuple):
    """name; the aten overload in native_functions.yaml, ""; the expression; the kinds of its arguments; its rule."""

    name: str
    aten: str
    text: str
    kinds: str  # "x" stands for a matrix or a number
    rule: object
    result: str = "a"  # its kind; "" for none


ROWS = [
    Row("add", "add.Tensor", "{} + {}", "xx", iterated, "x"),
    Row("mul", "mul.Tensor", "{} * {}", "xx", iterated, "x"),
    Row("sub", "sub.Tensor", "{} - {}", "xx", iterated, "x"),
    Row("div", "div.Tensor", "{} / ({} + 9)", "ax", iterated),
    Row("maximum", "maximum", "torch.maximum({}, {})", "xx", iterated, "x"),
    Row("greater", "gt.Tensor", "({} > {}).float()", "ax", iterated),
    Row("mse_loss", "mse_loss", "F.mse_loss({}, {})", "aa", iterated, "s"),
    Row("add_", "add_.Tensor", "{}.clone().add_({})", "ax", iterated_into),
    Row("add_ of a number", "add_.Tensor", "{}.clone().add_({})", "ss", iterated_into, "s"),
    Row("mul_", "mul_.Tensor", "{}.clone().mul_({})", "ax", iterated_into),
    Row("add out", "add.out", "torch.add({1}.detach(), {2}.detach(), out={0}.detach().clone())", "aax", iterated_into),
    Row("mm", "mm", "{} @ {}", "aa", exact),
    Row("addmm", "addmm", "torch.addmm({}, {}, {})", "aaa", exact),
    Row("linear", "addmm", "F.linear({}, {}, {}[0])", "aaa", exact),
    Row("cat", "cat", "torch.cat([{}, {}])[2:6]", "aa", exact),
    Row("stack", "cat", "torch.stack([{}, {}]).sum()", "ss", exact, "s"),
    Row("clamp", "clamp.Tensor", "{}.clamp(min={})", "as", exact),
    Row("logaddexp", "logaddexp", "torch.logaddexp({}, {})", "ax", exact),
    Row("gather", "gather", "{}.gather(1, {}[:, None].expand(4, 2)).sum()", "at", exact, "s"),
    Row("scatter_add", "scatter_add", "{}.scatter_add(1, {}[:, None], {}[:, :1])", "ata", exact),
    Row("index_select", "index_select", "{}.index_select(0, {}).sum()", "ai", exact, "s"),
    Row("embedding", "index_select", "F.embedding({1}, {0}).sum()", "ai", exact, "s"),
    Row("cross_entropy", "nll_loss_forward", "F.cross_entropy({}, {})", "at", exact, "s"),
    Row("layer_norm", "native_layer_norm", "F.layer_norm({}, (4,), {}[0])", "aa", exact),
    Row("equal", "equal", "torch.equal({}, {})", "aa", exact, ""),
    Row("where", "where.self", "torch.where({}, {}, {})", "mxx", selected),
    Row("masked_fill", "masked_fill_.Tensor", "{}.masked_fill({}, {}.detach())", "ams", masked),
    Row("fill_", "fill_.Tensor", "{}.clone().fill_({})", "as", filled),
    Row("index_fill", "index_fill_.int_Tensor", "{}.index_fill(0, {}, {}.detach())", "ais", index_filled),
    Row("addcmul", "addcmul", "torch.addcmul({}, {}, {})", "aax", scaled),
    Row("lerp", "lerp.Tensor", "torch.lerp({}, {}, {})", "aax", scaled),
    Row("index", "index.Tensor", "{}[{}].sum()", "ai", indexed, "s"),
    Row("index by a mask", "index.Tensor", "{}[{}].sum()", "am", indexed, "s"),
    Row("index_put", "index_put_", "{}.index_put(({},), {})", "ais", index_written),
    Row("index_put rows", "index_put_", "{}.index_put(({},), {}[:3])", "aia", index_written),
    Row("setitem", "index_put_", "written({}, {}, {})", "ais", index_written),
    Row("copy_", "copy_", "{}.clone().copy_({})", "aa", copied),
    Row("foreach_copy_", "_foreach_copy_", "foreach_copied({}, {})", "aa", copied),
    Row(
        "foreach_add",
        "_foreach_add.List",
        "torch._foreach_add([{0}.detach()] * 2, [{1}.detach()] * 2)[1]",
        "aa",
        iterated,
    ),
    Row("foreach_mul", "_foreach_mul.Tensor", "torch._foreach_mul([{}.detach()], {}.detach())[0]", "as", iterated),
    Row("data", "", "moved({}, {})", "aa", taken),
    Row("grad", "", "with_grad({}, {})", "aa", assigned),
    Row("backward", "", "rooted({}, {})", "aa", rooted),
]
NAMES = {row.name for row in ROWS}
# Allowed wherever the argument is: they move, cut, or reduce it. Each makes a node of autograd's graph on one device,
# too, so that gradients are summed in the same order.
MOVES = [
    ("{}.clone().to({})", "a"), ("{}.clone().to({})", "s"), ("{}.sum().to({})", "a>s"), ("copy({}.clone(), {})", "a"),
    ("halves({}.chunk(2, 1)[1].to({}))", "a"), ("halves({}.split(2, 0)[0].to({}))", "a"),
    ("rows({}.unbind(0)[2].to({}))", "a"), ("{}.clone().to({}, non_blocking=True)", "a"),
    ("{}.max(1)[0].sum().to({})", "a>s"), ("rows({}.diagonal().to({}))", "a"), ("{}.tril().trace().to({})", "a>s"),
    ("{}.cumsum(0).to({})", "a"), ("rows(torch.linalg.svd({}.detach())[1].to({}))", "a"),
    ("{}.sort(1)[0].to({})", "a"), ("checkpoint({}, {})", "a"), ("twice({}, {})", "a"),
]  # fmt: skip

PRELUDE = """
import torch, torch.nn.functional as F
import torch.utils.checkpoint
from mpcourse.split import copy

def halves(x): return torch.cat([x.reshape(-1), x.reshape(-1)]).reshape(4, 4)
def rows(x): return x.expand(4, 4) * 1
def written(x, i, v):
    y = x.clone()
    y[i] = v
    return y
def foreach_copied(x, y):
    targets = [x.detach().clone(), x.detach().clone()]
    torch._foreach_copy_(targets, [y.detach(), y.detach()])
    return targets[1]
def moved(x, y):
    z = x.detach().clone()
    z.data = y.detach()
    return z * 1
def with_grad(x, g):
    leaf = x.detach().clone().requires_grad_()
    leaf.grad = g.detach()
    return leaf.grad * 2
def rooted(x, g):
    leaf = x.detach().clone().requires_grad_()
    (leaf * leaf).backward(g.detach())
    return leaf.grad
def checkpoint(x, device):
    return torch.utils.checkpoint.checkpoint(lambda t: (t * 2).to(device).tanh(), x, use_reentrant=False)
class Twice(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, device):
        ctx.device = device
        return x * 2, (x * 3).to(device)
    @staticmethod
    def backward(ctx, g, h):
        assert g.device != h.device or torch.device(ctx.device) == g.device
        return g * 2 + h.to(g.device) * 3, None
def twice(x, device): return Twice.apply(x, device)[1]
"""
DEFINITIONS = compile(PRELUDE, "<prelude>", "exec")


def program(seed):
    """(lines, the phrase of the refusal of the last one or "", names of what holds results and of the leaves)."""
    chance = random.Random(seed)
    lines, pool, leaves = [], [], []

    def new(kind, device, text):
        name = f"v{len(lines)}"
        lines.append(f"{name} = {text}")
        pool.append((kind, device, name))
        return name

    for device in DEVICES:
        for kind, text in (
            ("a", "torch.randn(4, 4).to({}).requires_grad_()"),
            ("s", "torch.rand(()).to({}).requires_grad_()"),
            ("i", "torch.tensor([2, 0, 3]).to({})"),
            ("t", "torch.tensor([1, 3, 0, 0]).to({})"),
            ("m", "(torch.rand(4, 4) > 0.5).to({})"),
        ):
            name = new(kind, device, text.format(device))
            if kind in "as":
                leaves.append(name)
    forbid = chance.random() < 0.5
    wanted = chance.randint(4, 10)
    for _ in range(1000):
        last = wanted == 1
        if chance.random() < 0.3 and not last:
            text, kinds = chance.choice(MOVES)
            kind, device = kinds[0], chance.choice(DEVICES)
            source = chance.choice([p for p in pool if p[0] == kind])
            new(kinds[-1], device, text.format(source[2], device))
            wanted -= 1
            continue
        row = chance.choice(ROWS)
        kinds = [chance.choice("as") if k == "x" else k for k in row.kinds]
        arguments = [chance.choice([p for p in pool if p[0] == k]) for k in kinds]
        says = row.rule(*[(k, d) for k, d, _ in arguments])
        if (says not in DEVICES) != (last and forbid):
            continue
        kind = ("a" if "a" in kinds else "s") if row.result == "x" else row.result
        text = row.text.format(*[name for _, _, name in arguments])
        if says not in DEVICES:
            lines.append(text)
            return lines, says, [], leaves
        if kind:
            new(kind, says, text)
        else:
            lines.append(text)
        wanted -= 1
        if not wanted:
            break
    return lines, "", [(name, device) for kind, device, name in pool if kind in "as"], leaves


def run(seed, devices):
    """Run a program; (what was wrong, or None; the values of its results and gradients, on the CPU)."""
    import torch

    space = {name: torch.device(d) for name, d in zip(DEVICES, devices, strict=True)}
    exec(DEFINITIONS, space)
    torch.manual_seed(seed)
    try:
        return _run_in(space, *program(seed), refuses=devices[0] != "cpu")
    finally:
        space.clear()  # its functions hold it: what is not live any more, leaving a box need not look for


def _run_in(space, lines, refusal, results, leaves, refuses):
    for number, line in enumerate(lines):
        expected = refusal if refuses and number == len(lines) - 1 else ""
        try:
            exec(line, space)
        except Exception as error:
            text = str(error)
            if not expected:
                return f"`{line}` is allowed, but: {type(error).__name__}: {text}", []
            if expected not in text and not ("same device" in expected and expected in text):
                return f"`{line}` is to be refused by {expected!r}, not by {text!r}", []
            return None, []
        if expected:
            return f"`{line}` is forbidden, but was accepted", []
    if refusal:
        return None, []
    for name, device in results:
        if space[name].device != space[device]:
            return f"{name} is on {space[name].device}, not on {space[device]}", []
    losses = [space[name].sum().to("cpu") for name, _ in results if space[name].requires_grad]
    try:
        sum(losses).backward()
        values = [space[name].detach().cpu() for name, _ in results]
        for name in leaves:
            if (grad := space[name].grad) is not None:
                if grad.device != space[name].device:
                    return f"the gradient of {name} is on {grad.device}", []
                values.append(grad.cpu())
    except Exception as error:
        return f"backward is allowed, but: {type(error).__name__}: {error}", []
    return None, values


def judge(seed):
    """Return what is wrong with the box in the program of this seed, or None."""
    import torch

    from mpcourse.virtual import virtual_gpus

    fault, plain = run(seed, ("cpu", "cpu", "cpu"))
    assert fault is None, f"the program itself is wrong: {fault}"
    with virtual_gpus(2):
        fault, values = run(seed, ("vgpu:0", "vgpu:1", "cpu"))
        if fault is None and not program(seed)[1]:
            if len(values) != len(plain):
                fault = f"{len(values)} values in place of {len(plain)}"
            elif not all(torch.equal(a.nan_to_num(), b.nan_to_num()) for a, b in zip(plain, values, strict=True)):
                fault = "values differ from those of the CPU"
    return fault


if __name__ == "__main__":
    for seed in map(int, sys.argv[1:]):
        print("\n".join(program(seed)[0]), f"\nforbidden: {program(seed)[1] or 'no'}\nfault: {judge(seed)}")
