"""Wrong answers to e03_split_model. What a cell holds is told in tests/answers.py."""

# %% all_on_first
# says: Stage 1 has 3 of the layers, from layer 2 on, and lives on devices[1]
# thinks: Slip of the pen: devices[0] for all.
class SplitModel(nn.Module):
    def __init__(self, stages, devices):
        super().__init__()
        self.devices = devices
        self.stages = nn.ModuleList(stage.to(devices[0]) for stage in stages)

    def forward(self, x):
        for stage, device in zip(self.stages, self.devices):
            x = stage(copy(x, self.devices[0]))
        return x


def split(model, sizes, devices):
    layers = list(model)
    stages, start = [], 0
    for size in sizes:
        stages.append(nn.Sequential(*layers[start : start + size]))
        start += size
    return SplitModel(stages, devices)


# %% all_on_last
# says: Stage 0 has 2 of the layers, from layer 0 on, and lives on devices[0]
# thinks: The model goes through all devices, one .to after the other.
class SplitModel(nn.Module):
    def __init__(self, stages, devices):
        super().__init__()
        self.devices = devices
        self.stages = nn.Sequential(*stages)
        for device in devices:
            self.stages.to(device)

    def forward(self, x):
        for stage, device in zip(self.stages, self.devices):
            x = stage(copy(x, self.devices[-1]))
        return x


def split(model, sizes, devices):
    layers = list(model)
    stages, start = [], 0
    for size in sizes:
        stages.append(nn.Sequential(*layers[start : start + size]))
        start += size
    return SplitModel(stages, devices)


# %% back_to_first
# says: The output stays where the last stage computes it
# thinks: The model's output is where its input was.
class SplitModel(nn.Module):
    def __init__(self, stages, devices):
        super().__init__()
        self.devices = devices
        self.stages = nn.ModuleList(stage.to(device) for stage, device in zip(stages, devices))

    def forward(self, x):
        for stage, device in zip(self.stages, self.devices):
            x = stage(copy(x, device))
        return copy(x, self.devices[0])


def split(model, sizes, devices):
    layers = list(model)
    stages, start = [], 0
    for size in sizes:
        stages.append(nn.Sequential(*layers[start : start + size]))
        start += size
    return SplitModel(stages, devices)


# %% children_once
# says: model.children() names it once
# thinks: model.children() are the layers of a Sequential.
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
    layers = list(model.children())
    stages, start = [], 0
    for size in sizes:
        stages.append(nn.Sequential(*layers[start : start + size]))
        start += size
    return SplitModel(stages, devices)


# %% copies_to_next
# says: Do all layers run, each once, in their order?
# thinks: Each stage's result goes to the next device, so stages are zipped with devices[1:].
class SplitModel(nn.Module):
    def __init__(self, stages, devices):
        super().__init__()
        self.devices = devices
        self.stages = nn.ModuleList(stage.to(device) for stage, device in zip(stages, devices))

    def forward(self, x):
        for stage, following in zip(self.stages, self.devices[1:]):
            x = copy(stage(x), following)
        return x


def split(model, sizes, devices):
    layers = list(model)
    stages, start = [], 0
    for size in sizes:
        stages.append(nn.Sequential(*layers[start : start + size]))
        start += size
    return SplitModel(stages, devices)


# %% copy_after
# says: copy(x, device) brings a tensor there first
# thinks: Each stage's result is copied to the device of that stage.
class SplitModel(nn.Module):
    def __init__(self, stages, devices):
        super().__init__()
        self.devices = devices
        self.stages = nn.ModuleList(stage.to(device) for stage, device in zip(stages, devices))

    def forward(self, x):
        for stage, device in zip(self.stages, self.devices):
            x = copy(stage(x), device)
        return x


def split(model, sizes, devices):
    layers = list(model)
    stages, start = [], 0
    for size in sizes:
        stages.append(nn.Sequential(*layers[start : start + size]))
        start += size
    return SplitModel(stages, devices)


# %% copy_not_kept
# says: copy(x, device) brings a tensor there first
# thinks: copy(x, device) moves x, as module.to(device) moves a module.
class SplitModel(nn.Module):
    def __init__(self, stages, devices):
        super().__init__()
        self.devices = devices
        self.stages = nn.ModuleList(stage.to(device) for stage, device in zip(stages, devices))

    def forward(self, x):
        for stage, device in zip(self.stages, self.devices):
            copy(x, device)
            x = stage(x)
        return x


def split(model, sizes, devices):
    layers = list(model)
    stages, start = [], 0
    for size in sizes:
        stages.append(nn.Sequential(*layers[start : start + size]))
        start += size
    return SplitModel(stages, devices)


# %% copy_once
# says: copy(x, device) brings a tensor there first
# thinks: x is put on the first device, the rest follows from there.
class SplitModel(nn.Module):
    def __init__(self, stages, devices):
        super().__init__()
        self.devices = devices
        self.stages = nn.ModuleList(stage.to(device) for stage, device in zip(stages, devices))

    def forward(self, x):
        x = copy(x, self.devices[0])
        for stage in self.stages:
            x = stage(x)
        return x


def split(model, sizes, devices):
    layers = list(model)
    stages, start = [], 0
    for size in sizes:
        stages.append(nn.Sequential(*layers[start : start + size]))
        start += size
    return SplitModel(stages, devices)


# %% deep_copies
# says: moved, not copied
# thinks: The given model must not be changed, so its layers are copied.
from copy import deepcopy


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
    layers = list(model)
    stages, start = [], 0
    for size in sizes:
        stages.append(nn.Sequential(*[deepcopy(layer) for layer in layers[start : start + size]]))
        start += size
    return SplitModel(stages, devices)


# %% detached_at_cut
# says: without detach
# thinks: A stage's input is a fresh tensor, so it is detached.
class SplitModel(nn.Module):
    def __init__(self, stages, devices):
        super().__init__()
        self.devices = devices
        self.stages = nn.ModuleList(stage.to(device) for stage, device in zip(stages, devices))

    def forward(self, x):
        for stage, device in zip(self.stages, self.devices):
            x = stage(copy(x.detach(), device))
        return x


def split(model, sizes, devices):
    layers = list(model)
    stages, start = [], 0
    for size in sizes:
        stages.append(nn.Sequential(*layers[start : start + size]))
        start += size
    return SplitModel(stages, devices)


# %% devices_hard_coded
# says: asked: layer 0's weight, of stage 0, on vgpu:2
# thinks: Stage i is on vgpu:i.
class SplitModel(nn.Module):
    def __init__(self, stages, devices):
        super().__init__()
        self.devices = devices
        self.stages = nn.ModuleList(stage.to(f"vgpu:{i}") for i, stage in enumerate(stages))

    def forward(self, x):
        for i, stage in enumerate(self.stages):
            x = stage(copy(x, f"vgpu:{i}"))
        return x


def split(model, sizes, devices):
    layers = list(model)
    stages, start = [], 0
    for size in sizes:
        stages.append(nn.Sequential(*layers[start : start + size]))
        start += size
    return SplitModel(stages, devices)


# %% input_to_all
# says: what the stage before it returned
# thinks: Each stage gets x, as the loop hands it x.
class SplitModel(nn.Module):
    def __init__(self, stages, devices):
        super().__init__()
        self.devices = devices
        self.stages = nn.ModuleList(stage.to(device) for stage, device in zip(stages, devices))

    def forward(self, x):
        for stage, device in zip(self.stages, self.devices):
            y = stage(copy(x, device))
        return y


def split(model, sizes, devices):
    layers = list(model)
    stages, start = [], 0
    for size in sizes:
        stages.append(nn.Sequential(*layers[start : start + size]))
        start += size
    return SplitModel(stages, devices)


# %% last_layer_lost
# says: the last layers are in no stage
# thinks: A slice's end is its last index, so it is start + size - 1.
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
    layers = list(model)
    stages, start = [], 0
    for size in sizes:
        stages.append(nn.Sequential(*layers[start : start + size - 1]))
        start += size
    return SplitModel(stages, devices)


# %% linear_layers_only
# says: layer 2's weight, of stage 1, on vgpu:1
# thinks: Only layers with parameters count.
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
    layers = [layer for layer in model if list(layer.parameters())]
    stages, start = [], 0
    for size in sizes:
        stages.append(nn.Sequential(*layers[start : start + size]))
        start += size
    return SplitModel(stages, devices)


# %% moves_at_forward
# says: Stages move when the model is split
# thinks: A stage has to be on its device when it computes, so it is moved then.
class SplitModel(nn.Module):
    def __init__(self, stages, devices):
        super().__init__()
        self.devices = devices
        self.stages = nn.ModuleList(stages)

    def forward(self, x):
        for stage, device in zip(self.stages, self.devices):
            x = stage.to(device)(copy(x, device))
        return x


def split(model, sizes, devices):
    layers = list(model)
    stages, start = [], 0
    for size in sizes:
        stages.append(nn.Sequential(*layers[start : start + size]))
        start += size
    return SplitModel(stages, devices)


# %% moves_input_data
# says: without detach, .data
# thinks: x.data = ... moves x itself, and saves a name.
class SplitModel(nn.Module):
    def __init__(self, stages, devices):
        super().__init__()
        self.devices = devices
        self.stages = nn.ModuleList(stage.to(device) for stage, device in zip(stages, devices))

    def forward(self, x):
        for stage, device in zip(self.stages, self.devices):
            x.data = x.data.to(device)
            x = stage(x)
        return x


def split(model, sizes, devices):
    layers = list(model)
    stages, start = [], 0
    for size in sizes:
        stages.append(nn.Sequential(*layers[start : start + size]))
        start += size
    return SplitModel(stages, devices)


# %% new_parameters
# says: moved, not copied
# thinks: A Parameter on another device has to be made anew.
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
    layers = list(model)
    stages, start = [], 0
    for size in sizes:
        stages.append(nn.Sequential(*layers[start : start + size]))
        start += size
    for stage, device in zip(stages, devices):
        for layer in stage:
            for name, p in list(layer.named_parameters(recurse=False)):
                setattr(layer, name, nn.Parameter(p.detach().to(device)))
    return SplitModel(stages, devices)


# %% no_copy
# says: copy(x, device) brings a tensor there first
# thinks: Stages on their devices take their input from wherever it is.
class SplitModel(nn.Module):
    def __init__(self, stages, devices):
        super().__init__()
        self.devices = devices
        self.stages = nn.ModuleList(stage.to(device) for stage, device in zip(stages, devices))

    def forward(self, x):
        for stage, device in zip(self.stages, self.devices):
            x = stage(x)
        return x


def split(model, sizes, devices):
    layers = list(model)
    stages, start = [], 0
    for size in sizes:
        stages.append(nn.Sequential(*layers[start : start + size]))
        start += size
    return SplitModel(stages, devices)


# %% no_grad
# says: autograd knows nothing of
# thinks: Moving tensors has to be hidden from autograd.
import torch


class SplitModel(nn.Module):
    def __init__(self, stages, devices):
        super().__init__()
        self.devices = devices
        self.stages = nn.ModuleList(stage.to(device) for stage, device in zip(stages, devices))

    def forward(self, x):
        with torch.no_grad():
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


# %% one_layer_a_device
# says: 2 of them: the last layers are in no stage
# thinks: zip over the layers and the devices gives each its own.
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
    return SplitModel(list(model), devices)


# %% only_parameters
# says: module.to(device) moves buffers too
# thinks: What a layer has are its parameters.
class SplitModel(nn.Module):
    def __init__(self, stages, devices):
        super().__init__()
        self.devices = devices
        self.stages = nn.ModuleList(stages)
        for stage, device in zip(stages, devices):
            for p in stage.parameters():
                p.data = p.data.to(device)

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


# %% over_the_cpu
# says: crosses each cut once
# thinks: What goes to another GPU goes over the host.
class SplitModel(nn.Module):
    def __init__(self, stages, devices):
        super().__init__()
        self.devices = devices
        self.stages = nn.ModuleList(stage.to(device) for stage, device in zip(stages, devices))

    def forward(self, x):
        for stage, device in zip(self.stages, self.devices):
            x = stage(copy(copy(x, "cpu"), device))
        return x


def split(model, sizes, devices):
    layers = list(model)
    stages, start = [], 0
    for size in sizes:
        stages.append(nn.Sequential(*layers[start : start + size]))
        start += size
    return SplitModel(stages, devices)


# %% plain_list
# says: A plain list hides modules
# thinks: A list of modules in a module is registered like a module.
class SplitModel(nn.Module):
    def __init__(self, stages, devices):
        super().__init__()
        self.devices = devices
        self.stages = [stage.to(device) for stage, device in zip(stages, devices)]

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


# %% sizes_as_indices
# says: sizes sum to the number of layers
# thinks: Sizes tell where each stage ends.
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
    layers = list(model)
    stages, start = [], 0
    for size in sizes:
        stages.append(nn.Sequential(*layers[start:size]))
        start = size
    return SplitModel(stages, devices)


# %% start_stays
# says: 4 of them
# thinks: Slip of the pen: start is never moved on.
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
    layers = list(model)
    stages, start = [], 0
    for size in sizes:
        stages.append(nn.Sequential(*layers[:size]))
        start += 0
    return SplitModel(stages, devices)


# %% visits_all_devices
# says: crosses each cut once
# thinks: Copy to all devices, so that x is everywhere it may be needed.
class SplitModel(nn.Module):
    def __init__(self, stages, devices):
        super().__init__()
        self.devices = devices
        self.stages = nn.ModuleList(stage.to(device) for stage, device in zip(stages, devices))

    def forward(self, x):
        for stage, device in zip(self.stages, self.devices):
            x = stage({d: copy(x, d) for d in self.devices}[device])
        return x


def split(model, sizes, devices):
    layers = list(model)
    stages, start = [], 0
    for size in sizes:
        stages.append(nn.Sequential(*layers[start : start + size]))
        start += size
    return SplitModel(stages, devices)


# %% wrong_order
# says: from layer 0 on, and lives on devices[0]
# thinks: Layers are popped off the list, which gives them one after the other.
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
    layers = list(model)
    stages, start = [], 0
    for size in sizes:
        stages.append(nn.Sequential(*[layers.pop() for _ in range(size)]))
        start += size
    return SplitModel(stages, devices)


# %% flattened
# says: layers inside
# thinks: model.modules() lists the layers
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
    layers = [m for m in model.modules() if not list(m.children())]
    stages, start = [], 0
    for size in sizes:
        stages.append(nn.Sequential(*layers[start : start + size]))
        start += size
    return SplitModel(stages, devices)


# %% flattened_sequentials
# says: layers inside
# thinks: nested Sequentials are unpacked
class SplitModel(nn.Module):
    def __init__(self, stages, devices):
        super().__init__()
        self.stages = nn.ModuleList(stage.to(device) for stage, device in zip(stages, devices))
        self.devices = devices

    def forward(self, x):
        for stage, device in zip(self.stages, self.devices):
            x = stage(copy(x, device))
        return x


def flat(model):
    return [l for m in model for l in (flat(m) if isinstance(m, nn.Sequential) else [m])]


def split(model, sizes, devices):
    layers = flat(model)
    stages, start = [], 0
    for size in sizes[:-1]:
        stages.append(nn.Sequential(*layers[start : start + size]))
        start += size
    stages.append(nn.Sequential(*layers[start:]))
    return SplitModel(stages, devices)


# %% frozen
# says: requires_grad
# thinks: requires_grad_(False) before moving
class SplitModel(nn.Module):
    def __init__(self, stages, devices):
        super().__init__()
        self.stages = nn.ModuleList(stage.requires_grad_(False).to(device) for stage, device in zip(stages, devices))
        self.devices = devices

    def forward(self, x):
        for stage, device in zip(self.stages, self.devices):
            x = stage(copy(x, device))
        return x


def split(model, sizes, devices):
    stages, start = [], 0
    for size in sizes:
        stages.append(model[start : start + size])
        start += size
    return SplitModel(stages, devices)


# %% evaluation_mode
# says: train() and eval() change what
# thinks: eval() while splitting
class SplitModel(nn.Module):
    def __init__(self, stages, devices):
        super().__init__()
        self.stages = nn.ModuleList(stage.eval().to(device) for stage, device in zip(stages, devices))
        self.devices = devices

    def forward(self, x):
        for stage, device in zip(self.stages, self.devices):
            x = stage(copy(x, device))
        return x


def split(model, sizes, devices):
    stages, start = [], 0
    for size in sizes:
        stages.append(model[start : start + size])
        start += size
    return SplitModel(stages, devices)


# %% eval_in_forward
# says: train() and eval() change what
# thinks: eval() in forward
class SplitModel(nn.Module):
    def __init__(self, stages, devices):
        super().__init__()
        self.stages = nn.ModuleList(stage.to(device) for stage, device in zip(stages, devices))
        self.devices = devices

    def forward(self, x):
        self.eval()
        for stage, device in zip(self.stages, self.devices):
            x = stage(copy(x, device))
        return x


def split(model, sizes, devices):
    stages, start = [], 0
    for size in sizes:
        stages.append(model[start : start + size])
        start += size
    return SplitModel(stages, devices)


# %% first_stage_frozen
# says: requires_grad
# thinks: only the last stage is trained
class SplitModel(nn.Module):
    def __init__(self, stages, devices):
        super().__init__()
        self.stages = nn.ModuleList(stage.to(device) for stage, device in zip(stages, devices))
        for p in self.stages[0].parameters():
            p.requires_grad = False
        self.devices = devices

    def forward(self, x):
        for stage, device in zip(self.stages, self.devices):
            x = stage(copy(x, device))
        return x


def split(model, sizes, devices):
    stages, start = [], 0
    for size in sizes:
        stages.append(model[start : start + size])
        start += size
    return SplitModel(stages, devices)


# %% stages_kept_over_calls
# says: keeps
# thinks: a global list of stages
found = []
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
    start = 0
    for size in sizes:
        found.append(model[start : start + size])
        start += size
    return SplitModel(found, devices)


# %% caches_first_output
# says: The first call of this very object was right
# thinks: the stage's input is copied once
class SplitModel(nn.Module):
    def __init__(self, stages, devices):
        super().__init__()
        self.stages = nn.ModuleList(stage.to(device) for stage, device in zip(stages, devices))
        self.devices = devices
        self.out = None

    def forward(self, x):
        if self.out is None:
            for stage, device in zip(self.stages, self.devices):
                x = stage(copy(x, device))
            self.out = x
        return self.out


def split(model, sizes, devices):
    stages, start = [], 0
    for size in sizes:
        stages.append(model[start : start + size])
        start += size
    return SplitModel(stages, devices)


# %% always_trains
# says: train() and eval() change what
# thinks: A model that is split is going to be trained.
class SplitModel(nn.Module):
    """Stages, each on a device of its own."""

    def __init__(self, stages, devices):
        super().__init__()
        self.stages = nn.ModuleList(stage.train().to(device) for stage, device in zip(stages, devices))
        self.devices = devices

    def forward(self, x):
        """x: on the first device. Returns the last stage's output, on the last device."""
        for stage, device in zip(self.stages, self.devices):
            x = stage(copy(x, device))
        return x


def split(model, sizes, devices):
    """A SplitModel whose stage i holds the next sizes[i] layers of `model`, in order.

    model: an nn.Sequential. sizes: list of ints, 1 or more each, that sum to len(model). devices: as many devices.
    """
    stages, start = [], 0
    for size in sizes:
        stages.append(model[start : start + size])
        start += size
    return SplitModel(stages, devices)


# %% thaws
# says: freezes a layer, or thaws it
# thinks: All that is split is trained.
class SplitModel(nn.Module):
    """Stages, each on a device of its own."""

    def __init__(self, stages, devices):
        super().__init__()
        self.stages = nn.ModuleList(stage.to(device).requires_grad_(True) for stage, device in zip(stages, devices))
        self.devices = devices

    def forward(self, x):
        """x: on the first device. Returns the last stage's output, on the last device."""
        for stage, device in zip(self.stages, self.devices):
            x = stage(copy(x, device))
        return x


def split(model, sizes, devices):
    """A SplitModel whose stage i holds the next sizes[i] layers of `model`, in order.

    model: an nn.Sequential. sizes: list of ints, 1 or more each, that sum to len(model). devices: as many devices.
    """
    stages, start = [], 0
    for size in sizes:
        stages.append(model[start : start + size])
        start += size
    return SplitModel(stages, devices)


# %% float_stages
# says: keeps its type
# thinks: GPUs compute in float32.
import torch


class SplitModel(nn.Module):
    def __init__(self, stages, devices):
        super().__init__()
        self.stages = nn.ModuleList(stage.to(device, torch.float32) for stage, device in zip(stages, devices))
        self.devices = devices

    def forward(self, x):
        for stage, device in zip(self.stages, self.devices):
            x = stage(copy(x, device))
        return x


def split(model, sizes, devices):
    stages, start = [], 0
    for size in sizes:
        stages.append(model[start : start + size])
        start += size
    return SplitModel(stages, devices)


# %% float_input
# says: each stays what it is
# thinks: A network's input is floating-point.
class SplitModel(nn.Module):
    def __init__(self, stages, devices):
        super().__init__()
        self.stages = nn.ModuleList(stage.to(device) for stage, device in zip(stages, devices))
        self.devices = devices

    def forward(self, x):
        x = x.float()
        for stage, device in zip(self.stages, self.devices):
            x = stage(copy(x, device))
        return x


def split(model, sizes, devices):
    layers = list(model)
    stages = []
    for size in sizes:
        stages.append(nn.Sequential(*layers[:size]))
        layers = layers[size:]
    return SplitModel(stages, devices)


# %% asks_the_input_for_gradients
# says: nobody asked for its gradient
# thinks: Gradients must cross the cuts, so x must require them.
class SplitModel(nn.Module):
    def __init__(self, stages, devices):
        super().__init__()
        self.stages = nn.ModuleList(stage.to(device) for stage, device in zip(stages, devices))
        self.devices = devices

    def forward(self, x):
        x.requires_grad_()
        for stage, device in zip(self.stages, self.devices):
            x = stage(copy(x, device))
        return x


def split(model, sizes, devices):
    stages, start = [], 0
    for size in sizes:
        stages.append(model[start : start + size])
        start += size
    return SplitModel(stages, devices)


# %% half_on_the_wire
# says: A copy rounds nothing
# thinks: Half precision halves the traffic, and training does not need more.
class SplitModel(nn.Module):
    def __init__(self, stages, devices):
        super().__init__()
        self.stages = nn.ModuleList(stage.to(device) for stage, device in zip(stages, devices))
        self.devices = devices

    def forward(self, x):
        x = self.stages[0](x)
        for stage, device in zip(self.stages[1:], self.devices[1:]):
            x = stage(copy(x.half(), device).to(x.dtype))
        return x


def split(model, sizes, devices):
    stages, start = [], 0
    for size in sizes:
        stages.append(model[start : start + size])
        start += size
    return SplitModel(stages, devices)


# %% device_of_first_parameter
# says: may have no parameters at all
# thinks: A stage knows its device: that of its first parameter.
class SplitModel(nn.Module):
    def __init__(self, stages, devices):
        super().__init__()
        self.stages = nn.ModuleList(stages)
        for stage, device in zip(stages, devices):
            stage.to(device)

    def forward(self, x):
        for stage in self.stages:
            x = stage(copy(x, next(stage.parameters()).device))
        return x


def split(model, sizes, devices):
    layers = list(model)
    stages = []
    for size in sizes:
        stages.append(nn.Sequential(*layers[:size]))
        layers = layers[size:]
    return SplitModel(stages, devices)


# %% made_and_not_returned
# says: Nothing came back: is it returned?
# thinks: The layers of the model are moved, so the model itself is split now.
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
    stages, start = [], 0
    for size in sizes:
        stages.append(model[start : start + size])
        start += size
    SplitModel(stages, devices)


# %% returns_the_stages
# says: Return SplitModel(stages, devices)
# thinks: split cuts the model, and who calls it makes a SplitModel of the stages.
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
    stages, start = [], 0
    for size in sizes:
        stages.append(model[start : start + size])
        start += size
    return stages


# %% bfloat16_on_the_wire
# says: Is a tensor made float16 or bfloat16 on its way?
# thinks: bfloat16 has the range of float32, so nothing is lost.
class SplitModel(nn.Module):
    def __init__(self, stages, devices):
        super().__init__()
        self.stages = nn.ModuleList(stage.to(device) for stage, device in zip(stages, devices))
        self.devices = devices

    def forward(self, x):
        x = self.stages[0](x)
        for stage, device in zip(self.stages[1:], self.devices[1:]):
            x = stage(copy(x.bfloat16(), device).to(x.dtype))
        return x


def split(model, sizes, devices):
    stages, start = [], 0
    for size in sizes:
        stages.append(model[start : start + size])
        start += size
    return SplitModel(stages, devices)
