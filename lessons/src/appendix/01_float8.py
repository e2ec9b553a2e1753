# %% [markdown]
# # Appendix 01: float8
#
# **Can a network train with 8 bits for each number of a product?** This page belongs to lesson
# [01 One device](../01_one_device.ipynb). It takes about 10 minutes to read.
#
# A GPU with tensor cores for float8 (H100 and later) multiplies matrices in float8 twice as fast as in bfloat16. This
# page shows what float8 can represent, why each tensor needs a scale, and what float8 does to the loss of the course's
# small GPT. It computes on the CPU, so it says nothing about speed.

# %%
import torch
import torch.nn as nn

from mpcourse.data.text import course_text
from mpcourse.models.gpt import SMALL, gpt, token_loss

# %% [markdown]
# ## What float8 can represent
#
# PyTorch has two types for training. `float8_e4m3fn` has 4 bits of exponent and 3 of mantissa, and is meant for
# activations and weights. `float8_e5m2` has 5 and 2, a larger range and coarser steps, and is meant for gradients
# (Paulius Micikevicius and others, *FP8 Formats for Deep Learning*, 2022, <https://arxiv.org/abs/2209.05433>).

# %%
print("type                 largest  smallest normal   step after 1")
for dtype in (torch.float8_e4m3fn, torch.float8_e5m2, torch.bfloat16):
    info = torch.finfo(dtype)
    print(f"{str(dtype).removeprefix('torch.'):16} {info.max:11.4g} {info.smallest_normal:16.2g} {info.eps:14.3g}")


# %% [markdown]
# ## A scale for each tensor
#
# Gradients are often smaller than the smallest float8 number, and would become 0. So each tensor is multiplied by a
# scale before it is rounded. **Scaling by tensor** chooses the scale that makes the largest value of a tensor the
# largest number of the type. The result of the product is divided by both scales.

# %%
def rounded(x, dtype, scaled=True):
    """Return x as float8 holds it, in the type of x."""
    scale = torch.finfo(dtype).max / x.abs().max() if scaled else 1.0
    return (x * scale).to(dtype).to(x.dtype) / scale


gradient = 1e-6 * torch.randn(100_000, generator=torch.Generator().manual_seed(0))
for scaled in (False, True):
    found = rounded(gradient, torch.float8_e5m2, scaled)
    print(f"{'with' if scaled else 'without'} a scale {(found == 0).float().mean():.2%} of the gradients become 0")


# %% [markdown]
# ## A linear layer in float8
#
# The layer rounds its input and its weight before the product, and the gradient of its output before the two products
# of the backward pass. Parameters, optimizer, sums inside the products and all other layers stay in float32.

# %%
class Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight):
        x, weight = rounded(x, torch.float8_e4m3fn), rounded(weight, torch.float8_e4m3fn)
        ctx.save_for_backward(x, weight)
        return x @ weight.T

    @staticmethod
    def backward(ctx, gradient):
        x, weight = ctx.saved_tensors
        gradient = rounded(gradient, torch.float8_e5m2)
        return gradient @ weight, gradient.flatten(0, -2).T @ x.flatten(0, -2)


class Float8Linear(nn.Linear):
    def forward(self, x):
        return Product.apply(x, self.weight) + self.bias


text = course_text()


def train(seed, float8, stops=(20, 40, 60), batch=4):
    """Train the small GPT. Return its loss on the validation text after each of the numbers of steps."""
    torch.manual_seed(seed)
    model, length = gpt(SMALL), SMALL.length
    for block in model[1:-1] if float8 else ():
        for layer in (block.qkv, block.out, block.first, block.second):
            layer.__class__ = Float8Linear
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    held_out, losses = text.validation[: 100 * length + 1], []
    for step in range(1, stops[-1] + 1):
        begins = torch.randint(len(text.train) - length, (batch,))
        tokens = torch.stack([text.train[begin : begin + length + 1] for begin in begins])
        optimizer.zero_grad()
        token_loss(model(tokens[:, :-1]), tokens[:, 1:]).backward()
        optimizer.step()
        if step in stops:
            with torch.no_grad():
                loss = token_loss(model(held_out[:-1].view(100, -1)), held_out[1:].view(100, -1))
            losses.append(loss.item())
    return losses


# %% [markdown]
# **Predict first.** Numbers in `float8_e4m3fn` have steps of up to an eighth of their size. Five seeds train with and
# without float8. Both runs of a seed begin with the same parameters and see the same batches. Is the loss with float8
# higher after 20, 40 and 60 steps, and by how much?

# %% tags=["answer", "nbval-ignore-output"]
# answer
plain, low = (torch.tensor([train(seed, float8) for seed in range(5)]) for float8 in (False, True))
print("mean +- standard error of n = 5 seeds")
for i, steps in enumerate((20, 40, 60)):
    print(f"{steps} steps", end="")
    for name, losses in ("float32", plain[:, i]), ("float8", low[:, i]), ("paired difference", (low - plain)[:, i]):
        print(f"  {name} {losses.mean():7.4f} +- {losses.std() / 5**0.5:.4f}", end="")
    print()

# %% tags=["checked"]
# checked: float8 changes the loss by less than 0.05 on average, while the loss falls by more
assert 0 < (low - plain).mean(0).abs().max() < 0.05 and plain.mean(0)[0] - plain.mean(0)[2] > 0.1

# %% [markdown]
# <details><summary>Why</summary>
#
# In our runs float8 changed the mean loss by at most 0.008, while the loss fell by 0.28. All paired differences are
# within two standard errors of 0. With `batch=8` float8 was lower by 0.012 after 40 steps, eight standard errors, and
# within two standard errors again after 60 steps. We do not know why.
#
# So these runs show no harm. They cannot show what happens in a long run of a large network. Two things help float8
# here. Rounding errors of many numbers partly cancel in the sum of a product, and the float32 parameters collect
# updates that float8 could not hold.
#
# </details>
#
# ## Speed, as others measured it
#
# The torchtitan team trained Llama 3.1 8B on 8 H100. With `torch.compile` it reached 6667 tokens/s on each GPU, and
# with float8 in addition 8532 tokens/s (*llama3_h100_202412_torchtitan.md*, table 1, 2024,
# <https://github.com/pytorch/torchtitan/blob/main/benchmarks/llama3_h100_202412_torchtitan.md>). The next cell asks
# what share of the step would be products in float8, if these became twice as fast and nothing else changed.

# %%
speedup = 8532 / 6667
share = 2 * (1 - 1 / speedup)  # Amdahl: 1 / speedup = 1 - share / 2
print(f"float8: {speedup:.2f} times as fast; products would take {share:.0%} of the step in bfloat16")

# %% [markdown]
# The rest of the step is attention, element-wise operations, communication, and the rounding itself. We do not replay
# these numbers. In torchao, `convert_to_float8_training(model)` replaces the linear layers of a model by float8 layers.
