"""Plans of any model: its parts together hold and take what its whole step does, and a cut carries what crosses it."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

from mpcourse.common.errors import UserError
from mpcourse.models import ResNet50
from mpcourse.models.unet import UNet3D
from mpcourse.plan import Input, Inputs, Layers
from mpcourse.plan.blocks import find_blocks
from mpcourse.plan.probe import seconds
from mpcourse.predict.loss import UsualLoss
from mpcourse.virtual import GPUS, virtual_gpus

A100 = GPUS["A100-SXM4"]


class Layer(nn.Module):
    """A decoder's layer, as libraries write them: its number, keywords, a tuple as output, an activation in place."""

    def __init__(self, width, number):
        super().__init__()
        self.layer_idx, self.seen = number, {number}
        self.norm, self.qkv, self.out = nn.LayerNorm(width), nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.first, self.second, self.act = nn.Linear(width, 4 * width), nn.Linear(4 * width, width), nn.ReLU(True)
        self.seen = set()

    def forward(self, hidden, *, mask=None, cache=None):
        q, k, v = self.qkv(self.norm(hidden)).unflatten(-1, (3, 4, -1)).permute(2, 0, 3, 1, 4)
        hidden = hidden + self.out(F.scaled_dot_product_attention(q, k, v, mask).transpose(1, 2).flatten(2))
        return hidden + self.second(self.act(self.first(hidden))), cache


class Checkpointed(Layer):
    """A layer that keeps only its inputs."""

    def __call__(self, hidden, **kwargs):
        return checkpoint(super().__call__, hidden, use_reentrant=False, **kwargs)


class Decoder(nn.Module):
    """A language model that is no Sequential: a dict as output, tied weights, a question about the mask's values."""

    def __init__(self, layers=4, width=64, length=32, kind=Layer, around=None):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(128, width), nn.Embedding(length, width)
        self.layers = nn.ModuleList(kind(width, i) for i in range(layers))
        self.norm, self.head, self.around = nn.LayerNorm(width), nn.Linear(width, 128, bias=False), around
        self.head.weight = self.tokens.weight

    def forward(self, input_ids, mask=None, labels=None):
        x = self.tokens(input_ids) + self.positions(torch.arange(input_ids.shape[1], device=input_ids.device))
        mask = None if mask is None or (mask == 1).all() else mask[:, None, None].bool()
        for layer in self.layers:
            if self.around is None:
                x, _ = layer(x, mask=mask, cache=None)
            else:
                if self.around == "reentrant":
                    x, _ = checkpoint(lambda h, layer=layer: layer(h, mask=mask, cache=None), x, use_reentrant=True)
                else:
                    x, _ = checkpoint(layer, x, mask=mask, use_reentrant=False)
        logits = self.head(self.norm(x))
        if labels is None:
            return {"logits": logits}
        return {"loss": F.cross_entropy(logits.flatten(0, 1).float(), labels.flatten()), "logits": logits}


class Skips(nn.Module):
    """Blocks in a chain, and two skips over them."""

    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(8, 8), nn.Sequential(nn.ReLU())) for _ in range(4))

    def forward(self, x):
        a = self.blocks[0](x)
        b = self.blocks[1](a)
        c = self.blocks[2](b)
        return self.blocks[3](c + a)


def tokens(size):
    return torch.zeros(size, 32, dtype=torch.int64)


def in_dict(size):
    return {"input_ids": tokens(size), "labels": tokens(size), "mask": tokens(size)}


MODELS = {
    "decoder": (Decoder, Inputs(tokens), 6),
    "decoder with labels and mask": (Decoder, Inputs(in_dict), 6),
    "decoder of checkpointed layers": (lambda: Decoder(kind=Checkpointed), Inputs(in_dict), 6),
    "decoder that checkpoints its layers": (lambda: Decoder(around=True), Inputs(in_dict), 6),
    "decoder with reentrant checkpoints": (lambda: Decoder(around="reentrant"), Inputs(in_dict), 6),
    "ResNet-50": (ResNet50, Input((3, 64, 64), False), 18),
    "U-Net": (UNet3D, Input((1, 64, 64, 64), False), None),
    "skips": (Skips, Input((8,), False), 4),
    "no blocks": (lambda: nn.Linear(8, 4), Input((8,), False), 1),
}


def whole(layers, size):
    """Run the whole step as it is; return its forward and backward seconds and the bytes that forward leaves."""
    args, kwargs = layers.example.batch(size, layers.dtype)
    model = layers.make().to(layers.dtype)
    with virtual_gpus(1, layers.gpu, dry=True) as box:
        box.assumes = True
        model.to("vgpu:0")
        for p in model.parameters():
            p.grad = torch.zeros_like(p)
        args, kwargs = [x.to("vgpu:0") for x in args], {k: v.to("vgpu:0") for k, v in kwargs.items()}
        box.reset()
        before = box.ledger.used[0]
        out = model(*args, **kwargs)  # what it returns is alive until the step's end
        loss = UsualLoss(True)(out)
        forward, held = seconds(box), box.ledger.used[0] - before
        box.reset()
        loss.backward()
        return forward, seconds(box), held


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("size", [1, 6])
def test_the_parts_together_hold_and_take_what_the_whole_step_does(name, size):
    make, example, count = MODELS[name]
    layers = Layers(make, example, A100, loss=UsualLoss(True))
    parts = layers.parts(1, size)
    assert count is None or len(parts) == count
    forward, backward, held = whole(layers, size)
    assert sum(p.cost.forward for p in parts) == pytest.approx(forward, rel=0.02)
    # torch's checkpoint stops once it has all that backward needs, before the last products: that is not known here.
    stops = 0.1 if name == "decoder that checkpoints its layers" else 0.02
    assert sum(p.cost.backward for p in parts) == pytest.approx(backward, rel=stops)
    assert sum(p.cost.held for p in parts) == pytest.approx(held, rel=0.02)
    every = {}
    for part in parts:
        every |= part.parameters
    assert sum(every.values()) == layers.count() == sum(p.numel() for p in make().parameters())


def test_a_model_is_left_as_it_was():
    model = Decoder()
    before = [(name, type(m), vars(m).keys()) for name, m in model.named_modules()]
    layers = Layers(lambda: model, Inputs(tokens), A100)
    assert layers.parts(1, 2) == layers.parts(1, 2)
    assert [(name, type(m), vars(m).keys()) for name, m in model.named_modules()] == before
    assert all(p.grad is None and p.device.type == "cpu" for p in model.parameters())


def test_blocks_that_are_equal_but_for_their_number_run_once():
    layers = Layers(Decoder, Inputs(tokens), A100)
    layers.parts(1, 2)
    assert layers.runs == 1


def test_a_cut_carries_the_skips_that_cross_it():
    costs = Layers(Skips, Input((8,), False), A100).costs(1, 3)
    one = 3 * 8 * 2
    assert [c.output for c in costs] == [one, 2 * one, one, 0]  # before the last block the two are one sum


def test_a_checkpoint_of_the_plan_keeps_inputs_and_what_lies_between_blocks():
    first, *blocks, head = Layers(Decoder, Inputs(in_dict), A100, loss=UsualLoss(True)).costs(1, 2)
    assert {b.given for b in blocks} == {2 * 32 * 64 * 2} and all(b.again == b.forward and not b.kept for b in blocks)
    assert first.kept == first.held and head.kept == head.held and not first.again and not head.again


@pytest.mark.parametrize("make", [lambda: Decoder(kind=Checkpointed), lambda: Decoder(around=True)])
def test_blocks_that_the_model_checkpoints_are_not_checkpointed_again(make):
    plain = Layers(Decoder, Inputs(in_dict), A100).costs(1, 2)[1]
    block = Layers(make, Inputs(in_dict), A100).costs(1, 2)[1]
    assert block.held < plain.held / 4 and block.again == 0 and block.kept == block.held
    assert block.backward == pytest.approx(plain.backward + plain.forward, rel=0.06)  # torch stops early


def test_selective_recomputation_holds_products_and_attention_and_computes_the_rest_again():
    plain = Layers(Decoder, Inputs(in_dict), A100).costs(1, 64)[1]
    block, tokens_of_it = plain.selective, 64 * 32
    products = 3 * 64 + 64 + 64 + 4 * 64 + 64  # qkv, attention, out, the MLP's two; numbers a token
    assert block.held == pytest.approx(2 * tokens_of_it * products, rel=0.15)
    assert block.held < plain.held and plain.backward < block.backward < plain.backward + plain.again
    checkpointed = Layers(lambda: Decoder(kind=Checkpointed), Inputs(in_dict), A100).costs(1, 2)[1]
    assert checkpointed.selective is None


class Cached(Decoder):
    """A decoder whose layers get a cache, in which each layer finds and leaves its keys."""

    class Cache:
        def __init__(self):
            self.keys = {}

        def grown(self, number, keys):
            if number in self.keys:
                keys = torch.cat([self.keys[number], keys], 1)
            self.keys[number] = keys
            return keys

    class Keys(Layer):
        def forward(self, hidden, *, mask=None, cache=None):
            keys = cache.grown(self.layer_idx, self.norm(hidden))
            scores = hidden @ keys.transpose(1, 2)
            hidden = hidden + scores.softmax(-1) @ keys
            return super().forward(hidden, mask=mask, cache=None)[0], cache

    def __init__(self):
        super().__init__(kind=Cached.Keys)

    def forward(self, input_ids):
        x, cache = self.tokens(input_ids), Cached.Cache()
        for layer in self.layers:
            x, cache = layer(x, cache=cache)
        return self.head(self.norm(x))


def test_a_cache_of_keys_does_not_grow_while_a_block_is_run_once_more():
    one, again = (Layers(Cached, Input((32,), True), A100, selective=of) for of in (False, True))
    plain, selective = ([p.cost for p in layers.parts(1, 2) if p.name] for layers in (one, again))
    assert [c.forward for c in plain] == [c.forward for c in selective] and len(plain) == 4
    assert all(c.selective.held < c.held and c.selective.backward > c.backward for c in selective)


def test_a_block_that_cannot_run_twice_is_not_computed_again():
    class Once(Layer):
        def forward(self, hidden, *, mask=None, cache=None):
            self.count = getattr(self, "count", 0) + 1
            if self.count > 1:
                raise RuntimeError("a second time")
            return super().forward(hidden, mask=mask, cache=cache)

    parts = Layers(lambda: Decoder(layers=2, kind=Once), Input((32,), True), A100).parts(1, 2)
    assert all(part.cost.selective is None for part in parts if part.name)


def test_blocks_are_found_in_the_tree_or_named():
    assert find_blocks(Decoder()) == [f"layers.{i}" for i in range(4)]
    assert [sum(name.startswith(f"layer{i}.") for name in find_blocks(ResNet50())) for i in (1, 2, 3, 4)] == [
        3,
        4,
        6,
        3,
    ]
    assert find_blocks(nn.Sequential(nn.Linear(2, 2), nn.ReLU())) == ["0", "1"]
    assert find_blocks(nn.Linear(2, 2)) == []
    assert find_blocks(Decoder(), ["layers.1", "norm"]) == ["layers.1", "norm"]
    with pytest.raises(UserError, match="no module 'layer': try layers"):
        find_blocks(Decoder(), ["layer"])


def test_parameters_that_the_step_does_not_use_are_held_by_the_last_part():
    model = Decoder()
    model.unused, model.layers[3].frozen = nn.Linear(2, 2), nn.Linear(3, 3).requires_grad_(False)
    parts = Layers(lambda: model, Inputs(tokens), A100, blocks=["layers", "unused"]).parts(1, 1)
    plain = Layers(Decoder, Inputs(tokens), A100).parts(1, 1)
    assert sum(parts[-1].parameters.values()) - sum(plain[-1].parameters.values()) == 6
    assert [sum(part.frozen.values()) for part in parts] == [0, 0, 0, 0, 12, 0]


def test_a_block_that_is_called_twice_is_two_parts_with_the_same_parameters():
    class Shared(Decoder):
        def forward(self, input_ids):
            x = self.tokens(input_ids)
            for _ in range(3):
                x, _ = self.layers[0](x)
            return self.head(x)

    layers = Layers(lambda: Shared(layers=1), Inputs(tokens), A100, loss=UsualLoss(True), blocks=["layers"])
    parts = layers.parts(1, 2)
    shared = [part.parameters for part in parts if part.name]
    assert len(shared) == 3 and shared[0] == shared[1] == shared[2]
    forward, backward, held = whole(layers, 2)
    found = [sum(getattr(part.cost, of) for part in parts) for of in ("forward", "backward", "held")]
    assert found == pytest.approx([forward, backward, held], rel=0.02)


def test_a_position_table_that_is_too_short_is_told():
    with pytest.raises(UserError, match="looks up 33 consecutive numbers in a table of 32 rows"):
        Layers(Decoder, Inputs(lambda size: torch.zeros(size, 33, dtype=torch.int64)), A100).parts(1, 1)


def test_a_model_that_fails_is_told_by_its_line():
    class Breaks(Decoder):
        def forward(self, input_ids):
            return self.layers[0](self.tokens(input_ids)[..., 1:])[0]

    with pytest.raises(
        UserError, match=r"block layers\.0 of the model, Layer, failed on 1x32x63: .*test_plan_any_model"
    ):
        Layers(Breaks, Inputs(tokens), A100).parts(1, 1)
    with pytest.raises(UserError, match=r"inputs.*failed: .*ZeroDivisionError"):

        def inputs(size):
            return 1 / 0

        Layers(Decoder, Inputs(inputs), A100).parts(1, 1)
