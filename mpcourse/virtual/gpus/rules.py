"""Which tensors an operation takes that are not on its device: the rules of CUDA.

There are three kinds of operations. Those for which torch generates a check (`device_check: ExactSame`, the default of
torchgen/packaged/ATen/native/native_functions.yaml) need all tensors on one device. Those that a TensorIterator runs
also take one number from the CPU (aten/src/ATen/native/TensorIterator.cpp, `compute_types`). Those named in `TAKES`
have their own check, in the file given.
"""

from typing import Any

import torch

# What an argument may be that is not on the operation's device.
NUMBER = "a tensor without dimensions on the CPU"
NUMBER_ANYWHERE = "a tensor without dimensions on any device"
CPU = "any tensor on the CPU"
ANYWHERE = "any tensor on any device"

# aten operation: {argument: what it may be}. An operation in place, `name_`, is listed without the last "_".
TAKES: dict[str, dict[str, str]] = {
    # aten/src/ATen/native/Copy.cpp and TensorFactories: this is their purpose.
    "copy": {"self": ANYWHERE, "src": ANYWHERE},
    "_foreach_copy": {"self": ANYWHERE, "src": ANYWHERE},
    # aten/src/ATen/native/TensorAdvancedIndexing.cpp, `make_info`: indices are moved to the tensor's device.
    "index": {"indices": CPU},
    "_unsafe_index": {"indices": CPU},
    "index_put": {"indices": CPU, "values": NUMBER},
    "_unsafe_index_put": {"indices": CPU, "values": NUMBER},
    "_index_put_impl": {"indices": CPU, "values": NUMBER},
    # The same file, `index_fill_` and cuda/Indexing.cu, `masked_fill__cuda`: the value is read.
    "index_fill": {"value": NUMBER_ANYWHERE},
    "masked_fill": {"value": NUMBER},
    # aten/src/ATen/native/Fill.cpp, `fill_`: the value is read.
    "fill": {"value": NUMBER_ANYWHERE},
    # aten/src/ATen/native/TensorCompare.cpp, `where_self_out`: numbers are moved to the device.
    "where": {"condition": NUMBER_ANYWHERE, "self": NUMBER_ANYWHERE, "other": NUMBER_ANYWHERE},
    # aten/src/ATen/native/cuda/PointwiseOpsKernel.cu, `addcmul_cuda_kernel`, and Lerp.cu: only the last factor.
    "addcmul": {"tensor2": NUMBER},
    "addcdiv": {},
    "lerp": {"weight": NUMBER},
    # aten/src/ATen/native/PackedSequence.cpp: the lengths have to be on the CPU.
    "_pack_padded_sequence": {"lengths": CPU},
    # aten/src/ATen/native/LossCTC.cpp, `ctc_loss`: the lengths are moved to the CPU.
    "_ctc_loss": {"input_lengths": ANYWHERE, "target_lengths": ANYWHERE},
    "_ctc_loss_backward": {"input_lengths": ANYWHERE, "target_lengths": ANYWHERE},
    # aten/src/ATen/native/RangeFactories.cpp and TensorFactories.cpp: bounds are read.
    "linspace": {"start": NUMBER_ANYWHERE, "end": NUMBER_ANYWHERE},
    "logspace": {"start": NUMBER_ANYWHERE, "end": NUMBER_ANYWHERE},
    "randint_like": {"high": NUMBER_ANYWHERE},
    # aten/src/ATen/native/TensorShape.cpp, `tensor_split`: where to cut is read.
    "tensor_split": {"tensor_indices_or_sections": CPU},
    # aten/src/ATen/native/cuda/FusedAdamKernel.cu and its like: the learning rate may be on the CPU.
    "_fused_adam": {"lr": NUMBER},
    "_fused_adamw": {"lr": NUMBER},
    "_fused_sgd": {"lr": NUMBER},
    "_fused_adagrad": {"lr": NUMBER},
    # Compared by address, or by shape alone.
    "is_set_to": {"tensor": ANYWHERE},
    "is_same_size": {"other": ANYWHERE},
    "resize_as": {"the_template": ANYWHERE},
    "_resize_as": {"the_template": ANYWHERE},
    "_has_same_storage_numel": {"other": ANYWHERE},
}
# Run by a TensorIterator that takes a number, although their overloads are not tagged as pointwise.
ITERATED = {
    "add_", "sub_", "mul_", "div_", "eq_", "ne_", "ge_", "le_", "gt_", "lt_", "copysign_", "heaviside_", "floor_divide",
    "floor_divide_", "rsub", "mse_loss", "smooth_l1_loss", "binary_cross_entropy", "dist", "logical_and", "logical_or",
    "logical_xor", "ldexp", "binary_cross_entropy_with_logits", "__irshift__", "mse_loss_backward",
}  # fmt: skip
# Tagged as pointwise, although the check is generated for them.
CHECKED = {
    "clamp", "clamp_min", "clamp_max", "gcd", "lcm", "logaddexp", "logaddexp2", "igamma", "igammac", "nextafter",
    "equal", "native_dropout_backward", "gelu_backward", "silu_backward", "threshold_backward", "sigmoid_backward",
    "logit_backward", "tanh_backward",
}  # fmt: skip
# The name of CUDA's check, where it is another operation's.
METHODS = {"embedding": "_index_select", "index_select": "_index_select", "stack": "cat", "mv": "addmv_"}


class Rule:
    """The rule of one aten overload."""

    __slots__ = ("elementwise", "names", "takes", "written")

    def __init__(self, func: Any) -> None:
        name = func._overloadpacket.__name__
        base = name if name.startswith("__") else name.removesuffix("_")
        arguments = func._schema.arguments
        self.names = [a.name for a in arguments]
        self.written = {a.name for a in arguments if a.alias_info is not None and a.alias_info.is_write}
        self.elementwise = base not in CHECKED and (name in ITERATED or torch.Tag.pointwise in func.tags)
        self.elementwise |= name.startswith("_foreach") or base in ("where", "masked_fill", "index_fill")
        takes = TAKES.get(base)
        if takes is None:
            takes = {n: NUMBER for n in self.names} if self.elementwise else {}
        self.takes = takes

    def accepts(self, argument: str, numbers: bool, on_cpu: bool) -> bool:
        """Return whether `argument` may be elsewhere. numbers: it has no dimensions; on_cpu: or else on another GPU."""
        allowed = self.takes.get(argument)
        if allowed is None or (argument in self.written and allowed != ANYWHERE):
            return False
        return (numbers or allowed in (CPU, ANYWHERE)) and (on_cpu or allowed in (NUMBER_ANYWHERE, ANYWHERE))


_rules: dict[Any, Rule] = {}


def rule_of(func: Any) -> Rule:
    """Return the rule of an aten overload."""
    rule = _rules.get(func)
    if rule is None:
        rule = _rules[func] = Rule(func)
    return rule
