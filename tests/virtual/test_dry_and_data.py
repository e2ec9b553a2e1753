"""Every operation takes as many kernels and as many bytes without data as with them, forward and backward.

Each run draws a part of them and prints its seed; MPCOURSE_SEED=7 repeats one. MPCOURSE_ALL_OPERATIONS=3 takes all,
with three calls of each, in four minutes on two cores.
"""

import functools
import os
import random
import warnings

import pytest
import torch

from mpcourse.virtual import virtual_gpus
from tests.operations import calls, left_out, on, samples, tensors

ALL = int(os.environ.get("MPCOURSE_ALL_OPERATIONS", 0))
OTHERS = 40  # operations outside of torch.nn.functional that are drawn for each precision
# Their results, or their shapes, depend on values: a dry box refuses them.
NEEDS_VALUES = {
    *("allclose", "argwhere", "bincount", "combinations", "corrcoef", "cov", "equal", "histogram", "histogramdd"),
    *("index_put", "istft", "linalg.lstsq", "linalg.lstsq.grad_oriented", "masked_select", "narrow", "nonzero"),
    *("unique", "unique_consecutive", "nn.functional.one_hot", "nn.functional.ctc_loss"),
    *("nn.functional.gaussian_nll_loss",),
}
# torch's shapes without data have other strides than its results, and the bytes and kernels are the same.
OTHER_STRIDES = {"linalg.eig", "fft.hfft2", "nonzero_static", "svd_lowrank", "pca_lowrank"}
# Their kernel on the CPU has no derivative. CUDA takes them apart, and so do dry boxes.
NO_DERIVATIVE = {"native_channel_shuffle"}
# In bfloat16 torch compares the strides of gradients as their last bits fell; it copies one more or less.
OTHER_COPIES = {"tensordot", "nn.functional.linear_cross_entropy.chunked_none"}


def facts(call, mode, dry):
    """Return what a device does and holds, forward and then backward; or the line of a refusal."""
    function, args, kwargs = call
    with virtual_gpus(1, dry=dry) as box:
        args, kwargs = on("vgpu:0", (args, kwargs))
        seen = {}

        def held():
            return box.ledger.used[0] - sum(w.allocation.nbytes for w in box.workspaces.values())

        def measured(phase, run):
            box.reset()
            before = held()
            out = run()
            seen[phase] = sorted(e.name for e in box.events if e.kind == "compute")
            seen[f"{phase}: peak"] = box.ledger.most[0] - box.ledger.used[0] + held() - before
            return out, held() - before

        torch.manual_seed(1)
        try:
            with torch.autocast("vgpu", torch.bfloat16, enabled=mode == "autocast"):
                out, seen["held"] = measured("forward", lambda: function(*args, **kwargs))
            results = tensors(out)
            seen["results"] = [(tuple(t.shape), t.dtype) for t in results]
            seen["strides"] = [t.stride() for t in results]
            learns = [t for t in results if t.requires_grad and t.is_floating_point()]
            if learns:
                ones = [torch.ones_like(t) for t in learns]
                measured("backward", functools.partial(torch.autograd.backward, learns, ones))
                del ones
            del learns, results, out
            seen["held afterwards"] = held()
        except (RuntimeError, TypeError, ValueError, AssertionError, NotImplementedError) as error:
            return f"{type(error).__name__}: {error}"
    return seen


def differences(name, call, mode):
    """Return what differs, a line each."""
    data, dry = facts(call, mode, False), facts(call, mode, True)
    if isinstance(dry, str):
        if data == dry or (isinstance(data, str) and data[:40] == dry[:40]):
            return []  # refused in both
        refused = "a dry box holds no data" in dry and name in NEEDS_VALUES and "\n" not in dry
        return [] if refused else [f"{name}, {mode}: {dry[:200]}"]
    if isinstance(data, str) and "not implemented for" in data:
        return []  # the CPU has no kernel for this dtype
    if name in NO_DERIVATIVE and isinstance(data, str) and "is not implemented" in data:
        return []
    if isinstance(data, str):
        return [f"{name}, {mode}: with data {data[:200]}"]
    skipped = {"strides"} if name in OTHER_STRIDES else set()
    skipped |= {"backward", "backward: peak"} if name in OTHER_COPIES else set()
    return [
        f"{name}, {mode}: {what} with data {data[what]}, dry {dry.get(what)}"
        for what in data
        if what not in skipped and data[what] != dry.get(what)
    ]


def test_all_functions_of_torch_nn_functional_are_called():
    assert left_out() == set()


@pytest.mark.parametrize("mode", ["float32", "bfloat16", "autocast"])
@pytest.mark.filterwarnings("ignore")
@pytest.mark.timeout(0 if ALL else 120)
def test_an_operation_takes_the_same_kernels_and_bytes_dry_and_with_data(mode):
    seed = int(os.environ.get("MPCOURSE_SEED") or random.randrange(1000))
    print("seed", seed)
    rng = random.Random(seed)
    found = list(calls(torch.bfloat16 if mode == "bfloat16" else torch.float32, ALL or 1))
    if not ALL:
        always = [c for c in found if c[0].startswith("nn.functional") or not isinstance(c[1], tuple)]
        # A third of those, by turns: three precisions take them all.
        turn = ["float32", "bfloat16", "autocast"].index(mode) + seed
        rest = [c for c in found if not c[0].startswith("nn.functional") and isinstance(c[1], tuple)]
        found = [c for i, c in enumerate(always) if (i + turn) % 3 == 0] + rng.sample(rest, OTHERS)
    torch.manual_seed(seed)
    different = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, function, args, kwargs in found:
            for call in samples(function, args, kwargs):
                different += differences(name, call, mode)
    assert not different, "\n".join(different)
