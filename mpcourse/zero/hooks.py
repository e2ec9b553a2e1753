"""When autograd's backward pass is over."""

from collections.abc import Callable

from torch.autograd import Variable


def at_end_of_backward(call: Callable[[], None]) -> None:
    """Call a function when the backward pass that is running has computed all gradients.

    call: takes nothing; its result is ignored.

    Use it from a hook within the pass, as torch's DDP and FSDP do. Raises RuntimeError outside of a pass.
    """
    Variable._execution_engine.queue_callback(call)
