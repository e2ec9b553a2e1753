"""When autograd's backward pass is over."""

from collections.abc import Callable

from torch.autograd import Variable


def at_end_of_backward(call: Callable[[], None]) -> None:
    """Have something called when the backward pass that is under way has computed all gradients.

    call: takes nothing; what it returns is ignored.

    To be used from a hook within the pass, as torch's DDP and FSDP do. Raises RuntimeError outside of one.
    """
    Variable._execution_engine.queue_callback(call)
