"""Whatever runs on virtual GPUs gives the bits of the plain CPU run."""

import copy
import io

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, TensorDataset

from mpcourse.models import UNet3D, mlp
from mpcourse.virtual import virtual_gpus


class Conv(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.bn, self.b = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.Conv2d(8, 4, 3, stride=2)
        self.drop, self.out = nn.Dropout(0.3), nn.Linear(4, 5)

    def forward(self, x):
        return self.out(
            self.drop(F.adaptive_avg_pool2d(self.b(F.max_pool2d(F.relu(self.bn(self.a(x))), 2)), 1).flatten(1))
        )


class Tied(nn.Module):
    """A transformer block between an embedding and an output layer that share their weight; one part is frozen."""

    def __init__(self):
        super().__init__()
        self.embed, self.out = nn.Embedding(11, 16), nn.Linear(16, 11, bias=False)
        self.block = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True, dropout=0.1)
        self.out.weight = self.embed.weight
        for p in self.block.norm1.parameters():
            p.requires_grad_(False)

    def forward(self, x):
        mask = nn.Transformer.generate_square_subsequent_mask(x.shape[1], device=x.device)
        return self.out(self.block(self.embed(x), src_mask=mask)).flatten(0, 1)


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm, self.out = nn.LSTM(6, 7, 2, batch_first=True), nn.Linear(7, 5)

    def forward(self, x):
        return self.out(self.lstm(x)[0][:, -1])


class Checkpointed(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Sequential(nn.Linear(20, 30), nn.Tanh(), nn.Dropout(0.5)), nn.Linear(30, 5)

    def forward(self, x):
        return self.b(checkpoint(self.a, x, use_reentrant=False))


def labels(n, classes=5):
    return lambda: torch.randint(classes, (n,))


MODELS = {
    "mlp": (lambda: mlp([20, 30, 5]), lambda: torch.randn(7, 20), labels(7)),
    "conv": (Conv, lambda: torch.randn(3, 3, 9, 9), labels(3)),
    "transformer": (Tied, lambda: torch.randint(11, (3, 6)), labels(18, 11)),
    "unet": (lambda: UNet3D(widths=(4, 6)), lambda: torch.randn(2, 1, 4, 4, 4), lambda: torch.randint(2, (2, 4, 4, 4))),
    "lstm": (Recurrent, lambda: torch.randn(3, 4, 6), labels(3)),
    "checkpoint": (Checkpointed, lambda: torch.randn(7, 20), labels(7)),
}
OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1),
    "momentum": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=1e-3),
    "adam": lambda p: torch.optim.Adam(p, lr=1e-2),
    "adamw": lambda p: torch.optim.AdamW(p, lr=1e-2, foreach=False),
    "adamw-foreach": lambda p: torch.optim.AdamW(p, lr=1e-2, foreach=True, amsgrad=True),
}


def train(device, model, optimizer, steps=3, accumulate=2):
    """Losses and all tensors of the state dict after a few steps with gradient accumulation."""
    make, inputs, targets = MODELS[model]
    torch.manual_seed(5)
    net = make().to(device)
    opt = OPTIMIZERS[optimizer](net.parameters())
    losses = []
    for _ in range(steps):
        opt.zero_grad()
        for _ in range(accumulate):
            loss = F.cross_entropy(net(inputs().to(device)), targets().to(device))
            loss.backward()
            losses.append(loss.item())
        opt.step()
    with torch.no_grad():
        net.eval()
        losses.append(net(inputs().to(device)).sum().item())
    return losses, {k: v.cpu() for k, v in net.state_dict().items()}


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("model", MODELS)
def test_training_gives_the_bits_of_the_cpu(model, optimizer):
    losses, state = train("cpu", model, optimizer)
    with virtual_gpus(2):
        others, virtual = train("vgpu:1", model, optimizer)
    assert others == losses
    assert all(torch.equal(state[k], virtual[k]) for k in state) and state.keys() == virtual.keys()


@pytest.mark.parametrize("model", MODELS)
def test_a_dry_run_has_the_operations_and_bytes_of_a_real_one(model):
    found = []
    for dry in (False, True):
        with virtual_gpus(2, dry=dry) as box:
            make, inputs, targets = MODELS[model]
            net = make().to("vgpu:0")
            opt = torch.optim.Adam(net.parameters())
            for _ in range(2):
                opt.zero_grad()
                F.cross_entropy(net(inputs().to("vgpu:0")), targets().to("vgpu:0")).backward()
                opt.step()
            kinds = box.ledger.kinds(0)
            found.append((kinds, box.ledger.most[0], box.ledger.peak(0), [e[:5] for e in box.events]))
    assert found[0] == found[1]


def test_a_split_model_equals_the_whole_one():
    torch.manual_seed(1)
    whole = mlp([6, 8, 8, 3])
    halves = copy.deepcopy(whole)
    data = [(torch.randn(5, 6), torch.randint(3, (5,))) for _ in range(4)]
    for foreach in (False, True):
        plain, split = copy.deepcopy(whole), copy.deepcopy(halves)
        opt = torch.optim.Adam(plain.parameters(), foreach=foreach)
        for x, y in data:
            opt.zero_grad()
            F.cross_entropy(plain(x), y).backward()
            opt.step()
        with virtual_gpus(2):
            first, second = split[:3].to("vgpu:0"), split[3:].to("vgpu:1")
            opt = torch.optim.Adam(split.parameters(), foreach=foreach)
            for x, y in data:
                opt.zero_grad()
                F.cross_entropy(second(first(x.to("vgpu:0")).to("vgpu:1")), y.to("vgpu:1")).backward()
                opt.step()
            assert {str(p.device) for p in split.parameters()} == {"vgpu:0", "vgpu:1"}
            pairs = [(a, b.cpu()) for a, b in zip(plain.parameters(), split.parameters(), strict=True)]
            assert all(torch.equal(a, b) for a, b in pairs)


def test_random_numbers_on_a_device_are_the_cpus():
    torch.manual_seed(2)
    plain = torch.randn(5), torch.rand(3), torch.randperm(7)
    with virtual_gpus(2):
        torch.manual_seed(2)
        made = (
            torch.randn(5, device="vgpu:0"),
            torch.rand(3, device="vgpu:1"),
            torch.randperm(7, device=torch.device("vgpu", 1)),
        )
        assert [str(t.device) for t in made] == ["vgpu:0", "vgpu:1", "vgpu:1"]
        assert all(torch.equal(a, b.cpu()) for a, b in zip(plain, made, strict=True))


def test_a_state_dict_goes_through_a_file_and_back():
    with virtual_gpus(2):
        model = Conv().to("vgpu:1")
        model(torch.randn(2, 3, 8, 8).to("vgpu:1"))
        file = io.BytesIO()
        torch.save(model.state_dict(), file)
        file.seek(0)
        saved = torch.load(file)
        assert {str(v.device) for v in saved.values()} == {"vgpu:1"}
        file.seek(0)
        on_cpu = torch.load(file, map_location="cpu")
        assert {str(v.device) for v in on_cpu.values()} == {"cpu"}
        other = Conv().to("vgpu:0")
        other.load_state_dict(saved)
        for key, value in other.state_dict().items():
            assert str(value.device) == "vgpu:0" and torch.equal(value.cpu(), on_cpu[key])
    file.seek(0)
    with pytest.raises(RuntimeError, match=r"map_location=torch.device\('cpu'\)"):
        torch.load(file)


def test_a_deep_copy_stays_on_its_device():
    with virtual_gpus(2):
        model = Conv().to("vgpu:1")
        twin = copy.deepcopy(model)
        assert {str(v.device) for v in twin.state_dict().values()} == {"vgpu:1"}
        tensor = torch.ones(3, device="vgpu:0")
        assert copy.deepcopy(tensor).device == tensor.device
        assert all(torch.equal(a.cpu(), b.cpu()) for a, b in zip(model.parameters(), twin.parameters(), strict=True))


@pytest.mark.parametrize("workers", [0, 1])
def test_a_data_loader_works_in_a_box(workers):
    data = TensorDataset(torch.arange(10.0).reshape(10, 1), torch.arange(10))
    with virtual_gpus(1):
        seen = [y for x, y in DataLoader(data, 4, num_workers=workers) if x.to("vgpu:0").device.index == 0]
    assert torch.cat(seen).tolist() == list(range(10))


def test_a_dry_box_keeps_tied_parameters_tied_and_an_optimizers_hold_on_them():
    model = Tied()
    optimizer = torch.optim.SGD(model.parameters(), lr=1)
    held = {id(p) for group in optimizer.param_groups for p in group["params"]}
    with virtual_gpus(1, dry=True):
        model.to("vgpu:0")
        assert model.out.weight is model.embed.weight
        assert {id(p) for p in model.parameters()} == held


def test_a_checkpoint_that_holds_a_copy_equals_the_plain_one():
    def run(second):
        torch.manual_seed(3)
        a, b = nn.Linear(4, 4), nn.Linear(4, 4).to(second)
        x = torch.randn(2, 4, requires_grad=True)

        def both(t):
            return b(a(t).to(b.weight.device)).to(t.device) + torch.ones(4, device=t.device)

        checkpoint(both, x, use_reentrant=False).square().sum().backward()
        return [t.grad.cpu() for t in (x, *a.parameters(), *b.parameters())]

    plain = run("cpu")
    with virtual_gpus(2):
        assert all(torch.equal(p, q) for p, q in zip(plain, run("vgpu:1"), strict=True))


@pytest.mark.parametrize(
    "relu", [lambda t: t.clamp(min=0), lambda t: t.clamp(0, 1), lambda t: torch.where(t > 0, t, 0.0)]
)
def test_numbers_that_torch_makes_for_itself_mix_with_every_device(relu):
    with virtual_gpus(2):
        x = torch.tensor([-1.0, 0.5, 2.0], device="vgpu:0", requires_grad=True)
        (relu(relu(x).to("vgpu:1")) * torch.ones(3, device="vgpu:1")).to("vgpu:0").sum().backward()
        assert x.grad[1].item() == 1 and x.grad[0].item() == 0 and x.grad.device == x.device


def test_hooks_in_backward_see_devices():
    seen = []
    with virtual_gpus(2):
        x = torch.ones(2, device="vgpu:1", requires_grad=True)
        (x * 2).register_hook(lambda g: seen.append(g.device))
        y = x * 3
        y.register_hook(lambda g: seen.append(g.device))
        y.sum().backward()
        torch.autograd.backward((x * x).sum())
        assert torch.autograd.grad((x * 3).sum(), x)[0].device == x.device
    assert seen == [torch.device("vgpu:1")]


def test_autograd_through_a_copy_in_place():
    x = torch.randn(4, requires_grad=True)
    plain = torch.zeros(4).copy_(x * 2).sum()
    (wanted,) = torch.autograd.grad(plain, x)
    with virtual_gpus(2):
        y = x.detach().to("vgpu:0").requires_grad_()
        (torch.zeros(4, device="vgpu:1").copy_(y * 2).sum() * 1).backward()
        assert str(y.grad.device) == "vgpu:0" and torch.equal(y.grad.cpu(), wanted)
