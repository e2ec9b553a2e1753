"""How a program gets virtual GPUs: a box of them, and devices that may be real ones."""

import contextlib
from collections.abc import Iterator, Sequence

import torch

from mpcourse.virtual.gpus import accelerator, attention, encoder, fused, kernels, recurrent, vgpu
from mpcourse.virtual.gpus.box import Box, active_box, box_here
from mpcourse.virtual.gpus.dispatch import DispatchMode
from mpcourse.virtual.gpus.dropout import dropout
from mpcourse.virtual.gpus.modes import FunctionMode, active
from mpcourse.virtual.gpus.torch_patches import in_force, opened
from mpcourse.virtual.specs import GPU, Link

kernels.register({"dropout": dropout} | recurrent.KERNELS | encoder.KERNELS | attention.KERNELS | fused.KERNELS)


@contextlib.contextmanager
def entered(box: Box) -> Iterator[None]:
    """Let this thread see the devices of `box` within this context."""
    dispatch = DispatchMode(box)
    with in_force(), kernels.active(dispatch), active(FunctionMode(box, dispatch)):
        yield


def virtual_gpus(
    n: int = 2,
    spec: str | GPU | Sequence[str | GPU] = "Tesla P100-SXM2",
    link: str | Link | None = None,
    *,
    host_link: str | Link | None = None,
    dry: bool = False,
    record: bool = True,
    overlap: bool = False,
    as_cuda: bool = False,
) -> Box:
    """Make a box of virtual GPUs, "vgpu:0" and on, to be entered by `with`.

    n: number of devices, 1 or more.
    spec: a name of GPUS or a GPU, one for all or one for each.
    link: between any two devices, a name of LINKS or a Link; None: "NVLink 1". Today's GeForce cards (`GPU.peers` is
    False) copy through the host unless NVLink is named: PCIe alone does not join them.
    host_link: between the CPU and each device; None: the PCIe that the GPU has.
    dry: tensors on the GPUs hold no data, so that sizes beyond this machine's memory can be tried.
    record: keep every event and allocation. Records grow with each step (`box.reset()` forgets them): by about 18 KiB
    for a small model, 400 KiB for ResNet-50. False: keep only clocks, current and peak bytes, and nothing grows.
    overlap: copies between GPUs have their own stream.
    as_cuda: the devices are "cuda:0" and on, and torch.cuda and `.cuda()` use them while the box is entered.

    In a dry box `item()` of a floating-point tensor, and what comes back to the CPU for autograd, is 0 instead of its
    value, with one warning. Another thread sees the devices once it enters the box, `with box.here():`. Tensors that
    are on a device when the box is left refuse to be used until it is entered again. What the box replaces in torch
    (torch_patches.py) is then torch's own again. Names that were imported from torch before the box was entered, as by
    `from torch import Event`, stay torch's own in the box, too.
    The CPU holds and computes what is on the devices, also on a machine with a real GPU. From the first box on,
    autograd does not work on that GPU in this process ("PyTorch is not linked with support for vgpu devices").
    Raises UserError for an unknown spec or link, ValueError for numbers that do not fit, RuntimeError on entering a box
    inside a box.
    """
    accelerator.name_backend(vgpu)
    return Box(opened, entered, n, spec, link, host_link, dry, record, overlap, as_cuda)


def devices(n: int) -> list[torch.device]:
    """Return devices to run on: real GPUs where there are enough, else those of the box that is entered.

    n: number of devices.
    Raises RuntimeError where there are not enough of either.
    """
    if box_here() is None and torch.cuda.is_available() and torch.cuda.device_count() >= n:
        return [torch.device("cuda", i) for i in range(n)]
    box = active_box()
    if n <= len(box.devices):
        return box.devices[:n]
    raise RuntimeError(f"{n} devices asked, but this box has {', '.join(box.names)}: virtual_gpus({n}) makes as many")
