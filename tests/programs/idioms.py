"""What programs for GPUs say, one idiom each: a program of a device, which runs in a box and on the plain CPU.

IDIOMS: name -> (program, what a box says: WORKS or the phrase of its refusal; what a dry box says). A program gives
tensors, which have to equal those of the CPU, or plain values, which have to be equal.
"""

import io
import pickle
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import rnn
from torch.utils.data import DataLoader, TensorDataset

WORKS = "works"
NO_VALUE = "a dry box holds no data"
SPARSE = "sparse tensors are not offered on virtual GPUs"
NESTED = "nested tensors are not offered on virtual GPUs"
FUNC = "torch.func and vmap are not offered for tensors on virtual GPUs"


class Idiom(NamedTuple):
    program: object
    says: str = WORKS
    dry: str = WORKS


IDIOMS: dict[str, Idiom] = {}


def idiom(says=WORKS, dry=None, name=None):
    def add(program):
        IDIOMS[name or program.__name__] = Idiom(program, says, says if dry is None else dry)
        return program

    return add


def randn(device, *shape, grad=True):
    return torch.randn(*shape).to(device).requires_grad_(grad)


def gradients(loss, *leaves):
    loss.backward()
    return [loss.detach(), *(x.grad for x in leaves)]


# -- attention --
def attention(heads, dims, causal, mask, dropout=0.0):
    def program(d):
        shape = (2, 4, 6, 8)[4 - dims :]
        q, k, v = randn(d, *shape), randn(d, *shape), randn(d, *shape)
        if heads != 4:
            k, v = randn(d, 2, heads, 6, 8), randn(d, 2, heads, 6, 8)
        options = {"is_causal": causal, "enable_gqa": heads != 4, "dropout_p": dropout}
        leaves = [q, k, v]
        if mask == "bias":
            options["attn_mask"] = bias = randn(d, 1, 4, 6, 6)
            leaves.append(bias)
        elif mask == "bool":
            options["attn_mask"] = torch.ones(6, 6, dtype=torch.bool).tril().to(d)
        y = F.scaled_dot_product_attention(q, k, v, **options).contiguous()  # a sum adds in the order of memory
        return gradients(y.square().sum(), *leaves)

    return program


for _heads in (4, 2, 1):
    for _causal, _mask in ((False, ""), (True, ""), (False, "bias"), (False, "bool")):
        idiom(name=f"attention {_heads} causal={_causal} {_mask}")(attention(_heads, 4, _causal, _mask))
idiom(name="attention 3-dimensional")(attention(4, 3, False, ""))
idiom(name="attention 3-dimensional causal")(attention(4, 3, True, ""))
idiom(name="attention causal with dropout")(attention(4, 4, True, "", 0.1))


# -- optimizers, and what goes with them --
def trained(make, **options):
    def program(d):
        model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3)).to(d)
        optimizer = make(model.parameters(), **options)
        x = randn(d, 5, 4, grad=False)

        def closure():
            optimizer.zero_grad()
            loss = model(x).square().mean()
            loss.backward()
            return loss

        for _ in range(3):
            optimizer.step(closure)
        return list(model.parameters())

    return program


for _name, _options in {
    "Adafactor": {}, "ASGD": {}, "Adagrad": {}, "RMSprop": {}, "Rprop": {}, "NAdam": {}, "RAdam": {}, "Adamax": {},
    "Adadelta": {}, "SGD": {"lr": 0.1, "momentum": 0.9, "nesterov": True}, "Adam": {"amsgrad": True},
}.items():  # fmt: skip
    for _foreach in (False, True):
        idiom(name=f"{_name} foreach={_foreach}")(trained(getattr(torch.optim, _name), **_options, foreach=_foreach))
for _name in ("SGD", "Adam", "AdamW", "Adagrad"):
    idiom(name=f"{_name} fused")(trained(getattr(torch.optim, _name), lr=0.01, fused=True))
idiom(dry=NO_VALUE, name="LBFGS")(trained(torch.optim.LBFGS))
idiom(name="a learning rate that is a tensor")(trained(torch.optim.Adam, lr=torch.tensor(1e-3)))


@idiom()
def clipped_over_two_gpus(d):
    other = "cpu" if d == "cpu" else "vgpu:1"
    model = nn.Sequential(nn.Linear(4, 8).to(d), nn.Linear(8, 3).to(other))
    model[1](model[0](randn(d, 5, 4)).to(other)).sum().backward()
    norm = nn.utils.clip_grad_norm_(model.parameters(), 0.5)
    nn.utils.clip_grad_value_(model.parameters(), 0.01)
    return [norm, *(p.grad for p in model.parameters())]


@idiom()
def averaged_weights(d):
    model = nn.Linear(3, 2).to(d)
    average = torch.optim.swa_utils.AveragedModel(model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.9))
    average.update_parameters(model)
    return list(average.parameters())


@idiom()
def weight_norm_and_spectral_norm(d):
    model = nn.Sequential(
        nn.utils.parametrizations.weight_norm(nn.Linear(4, 4)), nn.utils.parametrizations.spectral_norm(nn.Linear(4, 4))
    ).to(d)
    return gradients(model(randn(d, 2, 4)).sum(), *model.parameters())


@idiom()
def loss_logged(d):
    return [torch.tensor(randn(d, 3).sum().item()) if d == "cpu" else randn(d, 3).sum().detach()]


# -- operations with numbers and indices of their own --
def operation(name, make, dry=None, says=WORKS):
    def program(d):
        leaf = randn(d, 4, 4)
        return gradients(make(leaf, d).sum(), leaf)

    idiom(says, dry, name)(program)


operation("cumsum", lambda x, d: x.cumsum(0) * torch.tensor(2.0))
operation("cumprod", lambda x, d: x.cumprod(1))
operation("tril", lambda x, d: x.tril().to(d))
operation("triu_indices", lambda x, d: x[tuple(torch.triu_indices(4, 4, device=d))])
operation("diag", lambda x, d: x.diag() + x[0].diag().sum())
operation("trace", lambda x, d: x.trace())
operation("diag_embed", lambda x, d: x.diag_embed())
operation("index_copy", lambda x, d: x.index_copy(0, torch.tensor([0, 2]).to(d), torch.ones(2, 4, device=d)))
operation("index_copy with a CPU index", lambda x, d: x.index_copy(0, torch.tensor([0]), x[:1]), says="same device")
operation("index_add", lambda x, d: x.index_add(0, torch.tensor([0, 2]).to(d), x[:2]))
operation("index with CPU indices", lambda x, d: x[torch.tensor([0, 2]), torch.tensor([1, 1])])
operation("where with a CPU number", lambda x, d: torch.where(x > 0, x, torch.tensor(0.0)))
operation("masked_fill with a CPU number", lambda x, d: x.masked_fill(x > 0, torch.tensor(0.0)))
operation("one_hot by keyword", lambda x, d: x @ F.one_hot(input=torch.arange(4).to(d), num_classes=4).float())
operation(
    "affine_grid",
    lambda x, d: F.grid_sample(x[None, None], F.affine_grid(x[:2, :3][None], (1, 1, 4, 4), False), align_corners=False),
)
operation("interpolate", lambda x, d: F.interpolate(x[None, None], scale_factor=2, mode="bilinear"))
operation("fft", lambda x, d: torch.fft.rfft(x).abs())
operation("topk", lambda x, d: x.topk(2)[0])
operation("pad", lambda x, d: F.pad(x[None], (1, 1), mode="reflect"))
operation("logsumexp", lambda x, d: x.logsumexp(0))
operation("einsum", lambda x, d: torch.einsum("ij,kj->ik", x, x))
operation("cdist", lambda x, d: torch.cdist(x, x + 1))


def ctc(lengths):
    def program(d):
        scores = randn(d, 5, 2, 4)
        targets = torch.tensor([[1, 2], [3, 1]]).to(d)
        return gradients(F.ctc_loss(scores.log_softmax(2), targets, *lengths(d)), scores)

    return program


idiom(name="ctc_loss, lengths on the CPU")(ctc(lambda d: (torch.tensor([5, 5]), torch.tensor([2, 2]))))
idiom(name="ctc_loss, lengths in a tuple")(ctc(lambda d: ((5, 5), (2, 2))))
idiom(dry=NO_VALUE, name="ctc_loss, lengths on the GPU")(
    ctc(lambda d: (torch.tensor([5, 5]).to(d), torch.tensor([2, 2]).to(d)))
)


# -- between the host and the devices --
@idiom()
def pinned(d):
    x = torch.arange(3.0)
    assert not x.is_pinned()
    if d != "cpu":
        assert x.pin_memory().is_pinned() and torch.empty(3, pin_memory=True).is_pinned()
        x = x.pin_memory()
    return [x.to(d, non_blocking=True)]


@idiom(says="only dense CPU tensors can be pinned")
def pinned_on_a_device(d):
    return [randn(d, 3).pin_memory()] if d != "cpu" else []


def loaded(workers):
    def program(d):
        data = TensorDataset(torch.arange(8.0).reshape(4, 2))
        loader = DataLoader(data, 2, pin_memory=d != "cpu", num_workers=workers)
        batches = [batch for (batch,) in loader]
        assert d == "cpu" or all(b.is_pinned() for b in batches)
        return [b.to(d, non_blocking=True) for b in batches]

    return program


idiom(name="a DataLoader with pinned memory")(loaded(0))
idiom(name="a DataLoader with pinned memory and a worker")(loaded(1))


@idiom()
def saved_on_the_cpu(d):
    x = randn(d, 1000)
    with torch.autograd.graph.save_on_cpu():
        y = (x * x).sum()
    return gradients(y, x)


@idiom(dry=NO_VALUE)
def saved_on_the_cpu_pinned(d):
    x = randn(d, 1000)
    with torch.autograd.graph.save_on_cpu(pin_memory=d != "cpu"):
        y = (x * x).sum()
    return gradients(y, x)


@idiom(dry=NO_VALUE)
def saved_and_loaded(d):
    file = io.BytesIO()
    x = randn(d, 3, grad=False)
    torch.save({"x": x}, file)
    file.seek(0)
    return [torch.load(file)["x"], pickle.loads(pickle.dumps(x))]


@idiom()
def shared_memory(d):
    return [randn(d, 3).share_memory_()] if d != "cpu" else [randn(d, 3)]


# -- random numbers --
@idiom()
def a_generator(d):
    g = torch.Generator(d).manual_seed(7)
    assert isinstance(g, torch.Generator) and g.device == torch.device(d)
    drawn = [torch.randn(3, generator=g, device=d), torch.empty(3, device=d).uniform_(generator=g)]
    return [*drawn, torch.randperm(5, generator=g, device=d), torch.rand(2, 2, generator=g, device=d)]


@idiom(says="Expected a 'vgpu' device type for generator but found 'cpu'")
def a_generator_of_the_cpu(d):
    return [torch.randn(3, device=d, generator=torch.Generator())]


@idiom()
def seeds(d):
    module = torch.vgpu if d != "cpu" else torch
    module.manual_seed(4)
    first = torch.rand(3, device=d)
    state = module.get_rng_state()
    second = torch.rand(3, device=d)
    module.set_rng_state(state)
    assert d == "cpu" or (torch.vgpu.initial_seed() == 4 and len(torch.vgpu.get_rng_state_all()) == 2)
    return [first, second, torch.rand(3, device=d)]


@idiom()
def a_distribution(d):
    return [torch.distributions.Normal(randn(d, 3), 1.0, validate_args=False).rsample()]


# -- streams, events, statistics --
@idiom()
def streams_and_events(d):
    x = randn(d, 3, grad=False)
    if d != "cpu":
        v = torch.vgpu
        side, event = v.Stream(), v.Event(enable_timing=True)
        with v.stream(side):
            y = x * 2
        y.record_stream(side)
        event.record(side)
        v.current_stream().wait_stream(side)
        v.current_stream().wait_event(event)
        side.synchronize()
        assert side.query() and event.query() and v.default_stream() == v.current_stream()
        assert v.Stream("vgpu:1").device == torch.device("vgpu:1")
    return [x * 2]


@idiom()
def statistics(d):
    x = randn(d, 1000, grad=False)
    if d != "cpu":
        v = torch.vgpu
        found = v.memory_stats()
        assert found["allocated_bytes.all.current"] == v.memory_allocated() == 4096
        assert found["reserved_bytes.all.peak"] == v.max_memory_reserved() and found["allocation.all.current"] == 1
        assert v.get_device_capability() == (6, 0) and v.get_device_properties(1).major == 6
        assert v.is_bf16_supported() and not v.is_bf16_supported(including_emulation=False)
        assert v.can_device_access_peer(0, 1) and "allocated" in v.memory_summary(abbreviated=True)
        assert torch.accelerator.is_available() and torch.accelerator.device_count() == 2
        assert str(torch.accelerator.current_accelerator()) == "vgpu"
        torch.accelerator.synchronize()
        v.reset_max_memory_allocated()
        v.ipc_collect()
    return [x]


for _name in ("memory_snapshot", "CUDAGraph", "nvtx", "utilization", "power_draw"):
    idiom(says=f"virtual GPUs do not offer torch.vgpu.{_name}", name=f"torch.vgpu.{_name}")(
        lambda d, name=_name: [] if d == "cpu" else getattr(torch.vgpu, name)
    )


for _name, _program in {
    "Tensor.cuda": lambda: torch.ones(3).cuda(),
    "Module.cuda": lambda: nn.Linear(2, 2).cuda(),
    "to cuda": lambda: torch.ones(3).to("cuda"),
    "made on cuda": lambda: torch.ones(3, device="cuda:0"),
}.items():
    idiom(
        says="is not a device of this box: it has vgpu:0, vgpu:1 and cpu; virtual_gpus(..., as_cuda=True)", name=_name
    )(lambda d, program=_program: [] if d == "cpu" else program())


# -- sequences, lazy modules, other layouts --
def recurrent(kind):
    def program(d):
        x = randn(d, 4, 2, 3)
        packed = rnn.pack_padded_sequence(x, torch.tensor([4, 2]))
        assert packed.data.device == torch.device(d) and packed.batch_sizes.device == torch.device("cpu")
        out, lengths = rnn.pad_packed_sequence(getattr(nn, kind)(3, 5).to(d)(packed)[0])
        assert lengths.device == torch.device("cpu")
        return gradients(out.sum(), x)

    return program


for _kind in ("LSTM", "GRU", "RNN"):
    idiom(name=f"packed sequences, {_kind}")(recurrent(_kind))


@idiom(says="'lengths' argument should be a 1D CPU int64 tensor")
def packed_with_lengths_on_the_gpu(d):
    return [rnn.pack_padded_sequence(randn(d, 4, 2, 3), torch.tensor([4, 2]).to(d)).data]


@idiom(dry="a lazy module has no shapes yet")
def lazy_modules(d):
    model = nn.Sequential(nn.LazyLinear(4), nn.ReLU(), nn.LazyBatchNorm1d()).to(d)
    loss = model(randn(d, 3, 5)).square().sum()
    return gradients(loss, *model.parameters())


@idiom()
def sparse_on_the_cpu(d):
    x = torch.eye(3).to_sparse()
    return [(x @ torch.arange(9.0).reshape(3, 3)).to(d), x.to_dense().to(d)]


for _name, _program in {
    "to_sparse": lambda d: randn(d, 3, 3).to_sparse().to_dense(),
    "to_sparse_csr": lambda d: randn(d, 3, 3).to_sparse_csr().to_dense(),
    "sparse_coo_tensor": lambda d: torch.sparse_coo_tensor([[0], [1]], torch.ones(1), (2, 2), device=d).to_dense(),
    "sparse_csr_tensor": lambda d: torch.sparse_csr_tensor([0, 1, 1], [0], [1.0], (2, 2), device=d).to_dense(),
    "sparse to": lambda d: torch.eye(3).to_sparse().to(d).to_dense(),
    "csr to": lambda d: torch.eye(3).to_sparse_csr().to(d).to_dense(),
    "sparse gradients": lambda d: nn.Embedding(5, 3, sparse=True).to(d)(torch.tensor([1]).to(d)).sum().backward(),
}.items():
    idiom(says=SPARSE, name=_name)(lambda d, program=_program: [program(d)])
for _name, _program in {
    "nested_tensor": lambda d: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], device=d),
    "as_nested_tensor": lambda d: torch.nested.as_nested_tensor([randn(d, 2), randn(d, 3)]),
    "jagged": lambda d: torch.nested.nested_tensor([randn(d, 2, 3), randn(d, 3, 3)], layout=torch.jagged),
}.items():
    idiom(says=NESTED, name=_name)(lambda d, program=_program: [program(d)][:0])
for _name, _program in {
    "vmap": lambda d: torch.vmap(lambda t: t * 2)(randn(d, 3)),
    "torch.func.grad": lambda d: torch.func.grad(lambda t: (t * t).sum())(randn(d, 3)),
    "jacrev": lambda d: torch.func.jacrev(lambda t: t * t)(randn(d, 3)),
    "hessian": lambda d: torch.func.hessian(lambda t: (t * t).sum())(randn(d, 3)),
}.items():
    idiom(says=FUNC, name=_name)(lambda d, program=_program: [program(d)])


@idiom()
def functional_call(d):
    model = nn.Linear(3, 2).to(d)
    return [torch.func.functional_call(model, dict(model.named_parameters()), randn(d, 4, 3))]


# -- wrappers of models --
@idiom()
def data_parallel(d):
    return [nn.DataParallel(nn.Linear(3, 2).to(d))(randn(d, 4, 3))]


@idiom(says="torch.compile is not offered in a box of virtual GPUs")
def compiled(d):
    return [] if d == "cpu" else [torch.compile(nn.Linear(3, 2).to(d))(randn(d, 4, 3))]


@idiom(says="torch.export is not offered in a box of virtual GPUs")
def exported(d):
    return [] if d == "cpu" else [torch.export.export(nn.Linear(3, 2).to(d), (randn(d, 4, 3),))]


@idiom()
def scripted(d):
    return [torch.jit.script(nn.Linear(3, 2).to(d))(randn(d, 4, 3))]


# -- how they are told --
@idiom()
def default_device(d):
    torch.set_default_device(d)
    try:
        return [torch.arange(3.0), nn.Linear(2, 2).weight.detach() * 0]
    finally:
        torch.set_default_device(None)


def says(program, d):
    """Return what a program on a device gave: (WORKS, its tensors) or (the message of its refusal, [])."""
    torch.manual_seed(3)
    try:
        return WORKS, [t.detach() if isinstance(t, torch.Tensor) else t for t in program(d)]
    except (RuntimeError, AttributeError, NotImplementedError) as error:
        return str(error), []
