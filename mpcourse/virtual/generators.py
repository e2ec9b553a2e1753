"""Random numbers: generators of a virtual GPU are generators of the CPU that know which device they are for."""

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from mpcourse.virtual.box import Box

_Generator = torch.Generator


class _OfAnyDevice(type):
    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, _Generator)


class VirtualGenerator(_Generator):
    """A generator for one virtual GPU. It draws what a CPU's of the same seed draws."""

    device = torch.device("cpu")


@contextlib.contextmanager
def generators_of(box: "Box") -> Iterator[None]:
    """In here, torch.Generator("vgpu:0") makes one."""

    class Generator(metaclass=_OfAnyDevice):
        def __new__(cls, device: Any = "cpu") -> Any:
            if torch.device(device).type not in ("vgpu", "cuda") or not box.is_here():
                return _Generator(device)
            index = box.index_of(device)
            of_device = type("Generator", (VirtualGenerator,), {"device": box.devices[index]})
            return of_device()

    torch.Generator = Generator  # type: ignore[misc]
    try:
        yield
    finally:
        torch.Generator = _Generator  # type: ignore[misc]


def check_generator(box: "Box", generator: Any, index: int) -> None:
    """A generator has to be of the device's type. Raises RuntimeError in torch's words."""
    wanted, got = box.device_at(index).type, None if generator is None else generator.device.type
    if got is not None and wanted != got:
        raise RuntimeError(f"Expected a '{wanted}' device type for generator but found '{got}'")
