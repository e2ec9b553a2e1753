"""Unusual right answers to e03_split_model. What a cell holds is told in tests/answers.py."""

# %% hooks
# thinks: A hook before each stage copies its input, and the model is a Sequential of Sequentials.
class SplitModel(nn.Module):
    def __init__(self, stages, devices):
        super().__init__()
        self.devices = devices
        self.stages = nn.Sequential(*stages)
        for stage, device in zip(self.stages, devices):
            stage.to(device).register_forward_pre_hook(lambda _, args, device=device: (copy(args[0], device),))

    def forward(self, x):
        x = self.stages(x)
        return x


def split(model, sizes, devices):
    layers = list(model)
    stages, start = [], 0
    for size in sizes:
        stages.append(nn.Sequential(*layers[start : start + size]))
        start += size
    return SplitModel(stages, devices)


# %% iterator
# thinks: Takes the layers off an iterator with islice.
from itertools import islice


class SplitModel(nn.Module):
    def __init__(self, stages, devices):
        super().__init__()
        self.devices = devices
        self.stages = nn.ModuleList(stage.to(device) for stage, device in zip(stages, devices))

    def forward(self, x):
        for stage, device in zip(self.stages, self.devices):
            x = stage(copy(x, device))
        return x


def split(model, sizes, devices):
    layers = iter(model)
    return SplitModel([nn.Sequential(*islice(layers, n)) for n in sizes], devices)


# %% layer_by_layer
# thinks: Keeps single layers, each with its device, and copies before each: within a stage that does nothing.
class SplitModel(nn.Module):
    def __init__(self, stages, devices):
        super().__init__()
        self.devices = [device for stage, device in zip(stages, devices) for _ in stage]
        self.stages = nn.ModuleList(layer.to(device) for stage, device in zip(stages, devices) for layer in stage)

    def forward(self, x):
        for stage, device in zip(self.stages, self.devices):
            x = stage(copy(x, device))
        return x


def split(model, sizes, devices):
    layers = list(model)
    stages, start = [], 0
    for size in sizes:
        stages.append(nn.Sequential(*layers[start : start + size]))
        start += size
    return SplitModel(stages, devices)


# %% named_stages
# thinks: Registers each stage under a name of its own, and asks getattr for it.
class SplitModel(nn.Module):
    def __init__(self, stages, devices):
        super().__init__()
        self.devices = devices
        for i, (stage, device) in enumerate(zip(stages, devices)):
            self.add_module(f"stage{i}", stage.to(device))

    def forward(self, x):
        for i, device in enumerate(self.devices):
            x = getattr(self, f"stage{i}")(copy(x, device))
        return x


def split(model, sizes, devices):
    layers = list(model)
    stages, start = [], 0
    for size in sizes:
        stages.append(nn.Sequential(*layers[start : start + size]))
        start += size
    return SplitModel(stages, devices)


# %% reduce
# thinks: No loop in forward: functools.reduce over pairs of stage and device.
from functools import reduce


class SplitModel(nn.Module):
    def __init__(self, stages, devices):
        super().__init__()
        self.devices = devices
        self.stages = nn.ModuleList(stage.to(device) for stage, device in zip(stages, devices))

    def forward(self, x):
        pairs = zip(self.stages, self.devices)
        return reduce(lambda h, pair: pair[0](copy(h, pair[1])), pairs, x)


def split(model, sizes, devices):
    layers = list(model)
    stages, start = [], 0
    for size in sizes:
        stages.append(nn.Sequential(*layers[start : start + size]))
        start += size
    return SplitModel(stages, devices)


# %% sequential_slices
# thinks: Slices the nn.Sequential itself, at accumulated ends.
from itertools import accumulate


class SplitModel(nn.Module):
    def __init__(self, stages, devices):
        super().__init__()
        self.devices = devices
        self.stages = nn.ModuleList(stage.to(device) for stage, device in zip(stages, devices))

    def forward(self, x):
        for stage, device in zip(self.stages, self.devices):
            x = stage(copy(x, device))
        return x


def split(model, sizes, devices):
    ends = list(accumulate(sizes))
    return SplitModel([model[end - size : end] for end, size in zip(ends, sizes)], devices)


# %% tensor_to_and_recursion
# thinks: The rest of the stages is a SplitModel within the SplitModel, and Tensor.to crosses the cut.
class SplitModel(nn.Module):
    def __init__(self, stages, devices):
        super().__init__()
        self.device = devices[0]
        self.first = stages[0].to(devices[0])
        self.rest = SplitModel(stages[1:], devices[1:]) if stages[1:] else nn.Identity()

    def forward(self, x):
        y = self.first(x.to(self.device))
        return self.rest(y)


def split(model, sizes, devices):
    layers = list(model)
    stages, start = [], 0
    for size in sizes:
        stages.append(nn.Sequential(*layers[start : start + size]))
        start += size
    return SplitModel(stages, devices)


# %% empties_model
# thinks: Layers are moved, so they leave the model.
class SplitModel(nn.Module):
    def __init__(self, stages, devices):
        super().__init__()
        self.stages = nn.ModuleList(stage.to(device) for stage, device in zip(stages, devices))
        self.devices = devices

    def forward(self, x):
        for stage, device in zip(self.stages, self.devices):
            x = stage(copy(x, device))
        return x


def split(model, sizes, devices):
    stages = []
    for size in sizes:
        stages.append(nn.Sequential(*[model.pop(0) for _ in range(size)]))
    return SplitModel(stages, devices)


# %% pops_sizes
# thinks: What has been moved need not be counted.
class SplitModel(nn.Module):
    def __init__(self, stages, devices):
        super().__init__()
        self.stages = nn.ModuleList(stage.to(device) for stage, device in zip(stages, devices))
        self.devices = list(devices)

    def forward(self, x):
        for stage, device in zip(self.stages, self.devices):
            x = stage(copy(x, device))
        return x


def split(model, sizes, devices):
    stages, layers = [], iter(model)
    for size in list(sizes):
        stages.append(nn.Sequential(*[next(layers) for _ in range(size)]))
    return SplitModel(stages, devices)
