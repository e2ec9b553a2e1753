"""Random numbers: a virtual GPU's generator is a CPU generator that knows which device it is for."""

from typing import TYPE_CHECKING, Any

import torch

from mpcourse.virtual.gpus.box import box_here

if TYPE_CHECKING:
    from mpcourse.virtual.gpus.box import Box

_Generator = torch.Generator


class VirtualGenerator(_Generator):
    """A generator for one virtual GPU. It draws what a CPU generator with the same seed draws."""

    device = torch.device("cpu")


class _OfAnyDevice(type):
    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, _Generator)


class Generator(metaclass=_OfAnyDevice):
    """torch.Generator, which in a box also works for its devices, torch.Generator("vgpu:0")."""

    def __new__(cls, device: Any = "cpu") -> Any:
        box = box_here()
        if box is None or torch.device(device).type not in ("vgpu", "cuda"):
            return _Generator(device)
        of_device = type("Generator", (VirtualGenerator,), {"device": box.devices[box.index_of(device)]})
        return of_device()


def check_generator(box: "Box", generator: Any, index: int) -> None:
    """Check that a generator has the device's type. Raises RuntimeError in torch's words."""
    wanted, got = box.device_at(index).type, None if generator is None else generator.device.type
    if got is not None and wanted != got:
        raise RuntimeError(f"Expected a '{wanted}' device type for generator but found '{got}'")
