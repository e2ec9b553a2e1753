"""Wrong answers to e02_column_row. What a cell holds is told in tests/answers.py."""

# %% all_on_first
# says: Part i lives on devices[i]
# thinks: Slip of the pen: devices[0] in place of devices[i].
class ColumnParallelLinear(nn.Module):
    def __init__(self, linear, devices):
        super().__init__()
        self.devices = devices
        share = linear.out_features // len(devices)
        self.parts = nn.ModuleList()
        for i, device in enumerate(devices):
            rows = slice(i * share, (i + 1) * share)
            self.parts.append(linear_on(devices[0], linear.weight[rows], linear.bias[rows]))

    def forward(self, x):
        return [part(x) for part in self.parts]


class RowParallelLinear(nn.Module):
    def __init__(self, linear, devices):
        super().__init__()
        self.devices = devices
        share = linear.in_features // len(devices)
        self.parts = nn.ModuleList()
        for i, device in enumerate(devices):
            bias = linear.bias if i == 0 else None
            self.parts.append(linear_on(devices[0], linear.weight[:, i * share : (i + 1) * share], bias))

    def forward(self, xs):
        total = self.parts[0](xs[0])
        for part, x in zip(self.parts[1:], xs[1:]):
            total = total + copy(part(x), self.devices[0])
        return total


# %% bias_divided
# says: each is trained by the whole gradient
# thinks: If each part adds a share of the bias, the sum is right, and all parts are alike.
class ColumnParallelLinear(nn.Module):
    def __init__(self, linear, devices):
        super().__init__()
        self.devices = devices
        share = linear.out_features // len(devices)
        self.parts = nn.ModuleList()
        for i, device in enumerate(devices):
            rows = slice(i * share, (i + 1) * share)
            self.parts.append(linear_on(device, linear.weight[rows], linear.bias[rows]))

    def forward(self, x):
        return [part(copy(x, device)) for part, device in zip(self.parts, self.devices)]


class RowParallelLinear(nn.Module):
    def __init__(self, linear, devices):
        super().__init__()
        self.devices = devices
        share = linear.in_features // len(devices)
        self.parts = nn.ModuleList()
        for i, device in enumerate(devices):
            bias = linear.bias / len(devices)
            self.parts.append(linear_on(device, linear.weight[:, i * share : (i + 1) * share], bias))

    def forward(self, xs):
        total = self.parts[0](xs[0])
        for part, x in zip(self.parts[1:], xs[1:]):
            total = total + copy(part(x), self.devices[0])
        return total


# %% bias_forgotten
# says: The bias is missing
# thinks: The parts must not have a bias because the sum would count it several times.
class ColumnParallelLinear(nn.Module):
    def __init__(self, linear, devices):
        super().__init__()
        self.devices = devices
        share = linear.out_features // len(devices)
        self.parts = nn.ModuleList()
        for i, device in enumerate(devices):
            rows = slice(i * share, (i + 1) * share)
            self.parts.append(linear_on(device, linear.weight[rows], linear.bias[rows]))

    def forward(self, x):
        return [part(copy(x, device)) for part, device in zip(self.parts, self.devices)]


class RowParallelLinear(nn.Module):
    def __init__(self, linear, devices):
        super().__init__()
        self.devices = devices
        share = linear.in_features // len(devices)
        self.parts = nn.ModuleList()
        for i, device in enumerate(devices):
            bias = None
            self.parts.append(linear_on(device, linear.weight[:, i * share : (i + 1) * share], bias))

    def forward(self, xs):
        total = self.parts[0](xs[0])
        for part, x in zip(self.parts[1:], xs[1:]):
            total = total + copy(part(x), self.devices[0])
        return total


# %% bias_on_every_part
# says: The bias is there 2 times
# thinks: Each part is a Linear, and a Linear has its bias.
class ColumnParallelLinear(nn.Module):
    def __init__(self, linear, devices):
        super().__init__()
        self.devices = devices
        share = linear.out_features // len(devices)
        self.parts = nn.ModuleList()
        for i, device in enumerate(devices):
            rows = slice(i * share, (i + 1) * share)
            self.parts.append(linear_on(device, linear.weight[rows], linear.bias[rows]))

    def forward(self, x):
        return [part(copy(x, device)) for part, device in zip(self.parts, self.devices)]


class RowParallelLinear(nn.Module):
    def __init__(self, linear, devices):
        super().__init__()
        self.devices = devices
        share = linear.in_features // len(devices)
        self.parts = nn.ModuleList()
        for i, device in enumerate(devices):
            bias = linear.bias
            self.parts.append(linear_on(device, linear.weight[:, i * share : (i + 1) * share], bias))

    def forward(self, xs):
        total = self.parts[0](xs[0])
        for part, x in zip(self.parts[1:], xs[1:]):
            total = total + copy(part(x), self.devices[0])
        return total


# %% both_cut_inputs
# says: by outputs is a cut of dimension 0
# thinks: "Column parallel" cuts columns of W, so weight[:, a:b].
class ColumnParallelLinear(nn.Module):
    def __init__(self, linear, devices):
        super().__init__()
        self.devices = devices
        share = linear.out_features // len(devices)
        self.parts = nn.ModuleList()
        for i, device in enumerate(devices):
            rows = slice(i * share, (i + 1) * share)
            self.parts.append(linear_on(device, linear.weight[:, rows], linear.bias[rows]))

    def forward(self, x):
        return [part(copy(x, device)) for part, device in zip(self.parts, self.devices)]


class RowParallelLinear(nn.Module):
    def __init__(self, linear, devices):
        super().__init__()
        self.devices = devices
        share = linear.in_features // len(devices)
        self.parts = nn.ModuleList()
        for i, device in enumerate(devices):
            bias = linear.bias if i == 0 else None
            self.parts.append(linear_on(device, linear.weight[:, i * share : (i + 1) * share], bias))

    def forward(self, xs):
        total = self.parts[0](xs[0])
        for part, x in zip(self.parts[1:], xs[1:]):
            total = total + copy(part(x), self.devices[0])
        return total


# %% column_bias_on_first
# says: each part adds its own share of it
# thinks: As in the row parallel layer, the first device has the bias.
class ColumnParallelLinear(nn.Module):
    def __init__(self, linear, devices):
        super().__init__()
        self.devices = devices
        share = linear.out_features // len(devices)
        self.parts = nn.ModuleList()
        for i, device in enumerate(devices):
            rows = slice(i * share, (i + 1) * share)
            self.parts.append(linear_on(device, linear.weight[rows], linear.bias[rows] if i == 0 else None))

    def forward(self, x):
        return [part(copy(x, device)) for part, device in zip(self.parts, self.devices)]


class RowParallelLinear(nn.Module):
    def __init__(self, linear, devices):
        super().__init__()
        self.devices = devices
        share = linear.in_features // len(devices)
        self.parts = nn.ModuleList()
        for i, device in enumerate(devices):
            bias = linear.bias if i == 0 else None
            self.parts.append(linear_on(device, linear.weight[:, i * share : (i + 1) * share], bias))

    def forward(self, xs):
        total = self.parts[0](xs[0])
        for part, x in zip(self.parts[1:], xs[1:]):
            total = total + copy(part(x), self.devices[0])
        return total


# %% column_gathers
# says: nothing is put together between the two layers
# thinks: The layer does what `linear` did, so its result is one tensor.
import torch


class ColumnParallelLinear(nn.Module):
    def __init__(self, linear, devices):
        super().__init__()
        self.devices = devices
        share = linear.out_features // len(devices)
        self.parts = nn.ModuleList()
        for i, device in enumerate(devices):
            rows = slice(i * share, (i + 1) * share)
            self.parts.append(linear_on(device, linear.weight[rows], linear.bias[rows]))

    def forward(self, x):
        ys = [part(copy(x, device)) for part, device in zip(self.parts, self.devices)]
        return torch.cat([copy(y, self.devices[0]) for y in ys], dim=1)


class RowParallelLinear(nn.Module):
    def __init__(self, linear, devices):
        super().__init__()
        self.devices = devices
        share = linear.in_features // len(devices)
        self.parts = nn.ModuleList()
        for i, device in enumerate(devices):
            bias = linear.bias if i == 0 else None
            self.parts.append(linear_on(device, linear.weight[:, i * share : (i + 1) * share], bias))

    def forward(self, xs):
        total = self.parts[0](xs[0])
        for part, x in zip(self.parts[1:], xs[1:]):
            total = total + copy(part(x), self.devices[0])
        return total


# %% column_sends_home
# says: Each part computes on its own device, and stays there
# thinks: Whoever calls the layer has x on devices[0] and expects the results there.
class ColumnParallelLinear(nn.Module):
    def __init__(self, linear, devices):
        super().__init__()
        self.devices = devices
        share = linear.out_features // len(devices)
        self.parts = nn.ModuleList()
        for i, device in enumerate(devices):
            rows = slice(i * share, (i + 1) * share)
            self.parts.append(linear_on(device, linear.weight[rows], linear.bias[rows]))

    def forward(self, x):
        return [copy(part(copy(x, device)), self.devices[0]) for part, device in zip(self.parts, self.devices)]


class RowParallelLinear(nn.Module):
    def __init__(self, linear, devices):
        super().__init__()
        self.devices = devices
        share = linear.in_features // len(devices)
        self.parts = nn.ModuleList()
        for i, device in enumerate(devices):
            bias = linear.bias if i == 0 else None
            self.parts.append(linear_on(device, linear.weight[:, i * share : (i + 1) * share], bias))

    def forward(self, xs):
        total = self.parts[0](copy(xs[0], self.devices[0]))
        for device, part, x in zip(self.devices[1:], self.parts[1:], xs[1:]):
            total = total + copy(part(copy(x, device)), self.devices[0])
        return total


# %% columns_are_columns
# says: by outputs is a cut of dimension 0
# thinks: W's columns for the column parallel layer, W's rows for the row parallel one, as the names say.
class ColumnParallelLinear(nn.Module):
    def __init__(self, linear, devices):
        super().__init__()
        self.devices = devices
        share = linear.in_features // len(devices)
        self.parts = nn.ModuleList()
        for i, device in enumerate(devices):
            rows = slice(i * share, (i + 1) * share)
            self.parts.append(linear_on(device, linear.weight[:, rows], linear.bias))

    def forward(self, x):
        return [part(copy(x, device)) for part, device in zip(self.parts, self.devices)]


class RowParallelLinear(nn.Module):
    def __init__(self, linear, devices):
        super().__init__()
        self.devices = devices
        share = linear.out_features // len(devices)
        self.parts = nn.ModuleList()
        for i, device in enumerate(devices):
            bias = linear.bias if i == 0 else None
            self.parts.append(linear_on(device, linear.weight[i * share : (i + 1) * share], bias))

    def forward(self, xs):
        total = self.parts[0](xs[0])
        for part, x in zip(self.parts[1:], xs[1:]):
            total = total + copy(part(x), self.devices[0])
        return total


# %% cuts_at_each_forward
# says: no self.parts
# thinks: The whole weight is kept, and each device gets its share of it when it is needed.
class ColumnParallelLinear(nn.Module):
    def __init__(self, linear, devices):
        super().__init__()
        self.devices = devices
        share = linear.out_features // len(devices)
        self.whole, self.share = linear.to(devices[0]), share

    def forward(self, x):
        ys = []
        for i, device in enumerate(self.devices):
            rows = slice(i * self.share, (i + 1) * self.share)
            weight, bias = copy(self.whole.weight[rows], device), copy(self.whole.bias[rows], device)
            ys.append(nn.functional.linear(copy(x, device), weight, bias))
        return ys


class RowParallelLinear(nn.Module):
    def __init__(self, linear, devices):
        super().__init__()
        self.devices = devices
        share = linear.in_features // len(devices)
        self.parts = nn.ModuleList()
        for i, device in enumerate(devices):
            bias = linear.bias if i == 0 else None
            self.parts.append(linear_on(device, linear.weight[:, i * share : (i + 1) * share], bias))

    def forward(self, xs):
        total = self.parts[0](xs[0])
        for part, x in zip(self.parts[1:], xs[1:]):
            total = total + copy(part(x), self.devices[0])
        return total


# %% detached_parts
# says: The chain of gradients is cut
# thinks: The partial sums come from other devices as plain numbers.
class ColumnParallelLinear(nn.Module):
    def __init__(self, linear, devices):
        super().__init__()
        self.devices = devices
        share = linear.out_features // len(devices)
        self.parts = nn.ModuleList()
        for i, device in enumerate(devices):
            rows = slice(i * share, (i + 1) * share)
            self.parts.append(linear_on(device, linear.weight[rows], linear.bias[rows]))

    def forward(self, x):
        return [part(copy(x, device)) for part, device in zip(self.parts, self.devices)]


class RowParallelLinear(nn.Module):
    def __init__(self, linear, devices):
        super().__init__()
        self.devices = devices
        share = linear.in_features // len(devices)
        self.parts = nn.ModuleList()
        for i, device in enumerate(devices):
            bias = linear.bias if i == 0 else None
            self.parts.append(linear_on(device, linear.weight[:, i * share : (i + 1) * share], bias))

    def forward(self, xs):
        total = self.parts[0](xs[0])
        for part, x in zip(self.parts[1:], xs[1:]):
            total = total + copy(part(x).detach(), self.devices[0])
        return total


# %% fresh_weights
# says: has the i-th share
# thinks: A smaller nn.Linear on each device is what is wanted, it gets trained anyway.
class ColumnParallelLinear(nn.Module):
    def __init__(self, linear, devices):
        super().__init__()
        self.devices = devices
        share = linear.out_features // len(devices)
        self.parts = nn.ModuleList()
        for i, device in enumerate(devices):
            rows = slice(i * share, (i + 1) * share)
            self.parts.append(nn.Linear(linear.in_features, share).to(device))

    def forward(self, x):
        return [part(copy(x, device)) for part, device in zip(self.parts, self.devices)]


class RowParallelLinear(nn.Module):
    def __init__(self, linear, devices):
        super().__init__()
        self.devices = devices
        share = linear.in_features // len(devices)
        self.parts = nn.ModuleList()
        for i, device in enumerate(devices):
            bias = linear.bias if i == 0 else None
            self.parts.append(linear_on(device, linear.weight[:, i * share : (i + 1) * share], bias))

    def forward(self, xs):
        total = self.parts[0](xs[0])
        for part, x in zip(self.parts[1:], xs[1:]):
            total = total + copy(part(x), self.devices[0])
        return total


# %% one_layer_repeated
# says: Part i lives on devices[i]
# thinks: [layer] * n makes n layers.
class ColumnParallelLinear(nn.Module):
    def __init__(self, linear, devices):
        super().__init__()
        self.devices = devices
        share = linear.out_features // len(devices)
        layer = linear_on(devices[0], linear.weight[:share], linear.bias[:share])
        self.parts = nn.ModuleList([layer] * len(devices))

    def forward(self, x):
        return [part(copy(x, device)) for part, device in zip(self.parts, self.devices)]


class RowParallelLinear(nn.Module):
    def __init__(self, linear, devices):
        super().__init__()
        self.devices = devices
        share = linear.in_features // len(devices)
        self.parts = nn.ModuleList()
        for i, device in enumerate(devices):
            bias = linear.bias if i == 0 else None
            self.parts.append(linear_on(device, linear.weight[:, i * share : (i + 1) * share], bias))

    def forward(self, xs):
        total = self.parts[0](xs[0])
        for part, x in zip(self.parts[1:], xs[1:]):
            total = total + copy(part(x), self.devices[0])
        return total


# %% one_part_too_few
# says: Add all parts up
# thinks: range ends before its end, so it has to be len(devices) - 1.
class ColumnParallelLinear(nn.Module):
    def __init__(self, linear, devices):
        super().__init__()
        self.devices = devices
        share = linear.out_features // len(devices)
        self.parts = nn.ModuleList()
        for i, device in enumerate(devices):
            rows = slice(i * share, (i + 1) * share)
            self.parts.append(linear_on(device, linear.weight[rows], linear.bias[rows]))

    def forward(self, x):
        return [part(copy(x, device)) for part, device in zip(self.parts, self.devices)]


class RowParallelLinear(nn.Module):
    def __init__(self, linear, devices):
        super().__init__()
        self.devices = devices
        share = linear.in_features // len(devices)
        self.parts = nn.ModuleList()
        for i, device in enumerate(devices):
            bias = linear.bias if i == 0 else None
            self.parts.append(linear_on(device, linear.weight[:, i * share : (i + 1) * share], bias))

    def forward(self, xs):
        total = self.parts[0](xs[0])
        for part, x in zip(self.parts[1:-1], xs[1:-1]):
            total = total + copy(part(x), self.devices[0])
        return total


# %% plain_list
# says: parameters() does not find
# thinks: A list of modules in a module is found by parameters().
class ColumnParallelLinear(nn.Module):
    def __init__(self, linear, devices):
        super().__init__()
        self.devices = devices
        share = linear.out_features // len(devices)
        self.parts = []
        for i, device in enumerate(devices):
            rows = slice(i * share, (i + 1) * share)
            self.parts.append(linear_on(device, linear.weight[rows], linear.bias[rows]))

    def forward(self, x):
        return [part(copy(x, device)) for part, device in zip(self.parts, self.devices)]


class RowParallelLinear(nn.Module):
    def __init__(self, linear, devices):
        super().__init__()
        self.devices = devices
        share = linear.in_features // len(devices)
        self.parts = []
        for i, device in enumerate(devices):
            bias = linear.bias if i == 0 else None
            self.parts.append(linear_on(device, linear.weight[:, i * share : (i + 1) * share], bias))

    def forward(self, xs):
        total = self.parts[0](xs[0])
        for part, x in zip(self.parts[1:], xs[1:]):
            total = total + copy(part(x), self.devices[0])
        return total


# %% row_averages
# says: added up, not averaged
# thinks: Each device sees a part of the inputs, their results are averaged.
class ColumnParallelLinear(nn.Module):
    def __init__(self, linear, devices):
        super().__init__()
        self.devices = devices
        share = linear.out_features // len(devices)
        self.parts = nn.ModuleList()
        for i, device in enumerate(devices):
            rows = slice(i * share, (i + 1) * share)
            self.parts.append(linear_on(device, linear.weight[rows], linear.bias[rows]))

    def forward(self, x):
        return [part(copy(x, device)) for part, device in zip(self.parts, self.devices)]


class RowParallelLinear(nn.Module):
    def __init__(self, linear, devices):
        super().__init__()
        self.devices = devices
        share = linear.in_features // len(devices)
        self.parts = nn.ModuleList()
        for i, device in enumerate(devices):
            bias = linear.bias if i == 0 else None
            self.parts.append(linear_on(device, linear.weight[:, i * share : (i + 1) * share], bias))

    def forward(self, xs):
        total = self.parts[0](xs[0])
        for part, x in zip(self.parts[1:], xs[1:]):
            total = total + copy(part(x), self.devices[0])
        return total / len(self.parts)


# %% row_concatenates
# says: added, not concatenated
# thinks: The parts' results are put side by side on the first device.
import torch


class ColumnParallelLinear(nn.Module):
    def __init__(self, linear, devices):
        super().__init__()
        self.devices = devices
        share = linear.out_features // len(devices)
        self.parts = nn.ModuleList()
        for i, device in enumerate(devices):
            rows = slice(i * share, (i + 1) * share)
            self.parts.append(linear_on(device, linear.weight[rows], linear.bias[rows]))

    def forward(self, x):
        return [part(copy(x, device)) for part, device in zip(self.parts, self.devices)]


class RowParallelLinear(nn.Module):
    def __init__(self, linear, devices):
        super().__init__()
        self.devices = devices
        share = linear.in_features // len(devices)
        self.parts = nn.ModuleList()
        for i, device in enumerate(devices):
            bias = linear.bias if i == 0 else None
            self.parts.append(linear_on(device, linear.weight[:, i * share : (i + 1) * share], bias))

    def forward(self, xs):
        ys = [copy(part(x), self.devices[0]) for part, x in zip(self.parts, xs)]
        return torch.cat(ys, dim=1)


# %% row_cuts_rows
# says: by inputs is a cut of dimension 1
# thinks: Row parallel cuts W's rows, by the first index.
class ColumnParallelLinear(nn.Module):
    def __init__(self, linear, devices):
        super().__init__()
        self.devices = devices
        share = linear.out_features // len(devices)
        self.parts = nn.ModuleList()
        for i, device in enumerate(devices):
            rows = slice(i * share, (i + 1) * share)
            self.parts.append(linear_on(device, linear.weight[rows], linear.bias[rows]))

    def forward(self, x):
        return [part(copy(x, device)) for part, device in zip(self.parts, self.devices)]


class RowParallelLinear(nn.Module):
    def __init__(self, linear, devices):
        super().__init__()
        self.devices = devices
        share = linear.in_features // len(devices)
        self.parts = nn.ModuleList()
        for i, device in enumerate(devices):
            bias = linear.bias if i == 0 else None
            self.parts.append(linear_on(device, linear.weight[i * share : (i + 1) * share], bias))

    def forward(self, xs):
        total = self.parts[0](xs[0])
        for part, x in zip(self.parts[1:], xs[1:]):
            total = total + copy(part(x), self.devices[0])
        return total


# %% row_cuts_x
# says: list indices must be integers
# thinks: x comes whole, and the layer cuts it for the devices.
class ColumnParallelLinear(nn.Module):
    def __init__(self, linear, devices):
        super().__init__()
        self.devices = devices
        share = linear.out_features // len(devices)
        self.parts = nn.ModuleList()
        for i, device in enumerate(devices):
            rows = slice(i * share, (i + 1) * share)
            self.parts.append(linear_on(device, linear.weight[rows], linear.bias[rows]))

    def forward(self, x):
        return [part(copy(x, device)) for part, device in zip(self.parts, self.devices)]


class RowParallelLinear(nn.Module):
    def __init__(self, linear, devices):
        super().__init__()
        self.devices = devices
        share = linear.in_features // len(devices)
        self.parts = nn.ModuleList()
        for i, device in enumerate(devices):
            bias = linear.bias if i == 0 else None
            self.parts.append(linear_on(device, linear.weight[:, i * share : (i + 1) * share], bias))

    def forward(self, xs):
        share, total = self.parts[0].in_features, 0
        for i, part in enumerate(self.parts):
            x = copy(xs[:, i * share : (i + 1) * share], self.devices[i])
            total = total + copy(part(x), self.devices[0])
        return total


# %% row_gathers_first
# says: each part has its input already
# thinks: A layer needs its whole input, so it is brought together before it is cut again.
import torch


class ColumnParallelLinear(nn.Module):
    def __init__(self, linear, devices):
        super().__init__()
        self.devices = devices
        share = linear.out_features // len(devices)
        self.parts = nn.ModuleList()
        for i, device in enumerate(devices):
            rows = slice(i * share, (i + 1) * share)
            self.parts.append(linear_on(device, linear.weight[rows], linear.bias[rows]))

    def forward(self, x):
        return [part(copy(x, device)) for part, device in zip(self.parts, self.devices)]


class RowParallelLinear(nn.Module):
    def __init__(self, linear, devices):
        super().__init__()
        self.devices = devices
        share = linear.in_features // len(devices)
        self.parts = nn.ModuleList()
        for i, device in enumerate(devices):
            bias = linear.bias if i == 0 else None
            self.parts.append(linear_on(device, linear.weight[:, i * share : (i + 1) * share], bias))

    def forward(self, xs):
        x = torch.cat([copy(x, self.devices[0]) for x in xs], dim=1)
        xs = [copy(c, d) for c, d in zip(x.chunk(len(self.devices), dim=1), self.devices)]
        return sum(copy(part(x), self.devices[0]) for part, x in zip(self.parts, xs))


# %% row_takes_every_nth
# says: the i-th share, in order
# thinks: Every n-th input to each device is an even spread.
class ColumnParallelLinear(nn.Module):
    def __init__(self, linear, devices):
        super().__init__()
        self.devices = devices
        share = linear.out_features // len(devices)
        self.parts = nn.ModuleList()
        for i, device in enumerate(devices):
            rows = slice(i * share, (i + 1) * share)
            self.parts.append(linear_on(device, linear.weight[rows], linear.bias[rows]))

    def forward(self, x):
        return [part(copy(x, device)) for part, device in zip(self.parts, self.devices)]


class RowParallelLinear(nn.Module):
    def __init__(self, linear, devices):
        super().__init__()
        self.devices = devices
        share = linear.in_features // len(devices)
        self.parts = nn.ModuleList()
        for i, device in enumerate(devices):
            bias = linear.bias if i == 0 else None
            self.parts.append(linear_on(device, linear.weight[:, i :: len(devices)], bias))

    def forward(self, xs):
        total = self.parts[0](xs[0])
        for part, x in zip(self.parts[1:], xs[1:]):
            total = total + copy(part(x), self.devices[0])
        return total


# %% same_slice
# says: the i-th share, in order
# thinks: Slip of the pen: the slice does not depend on i.
class ColumnParallelLinear(nn.Module):
    def __init__(self, linear, devices):
        super().__init__()
        self.devices = devices
        share = linear.out_features // len(devices)
        self.parts = nn.ModuleList()
        for i, device in enumerate(devices):
            rows = slice(share)
            self.parts.append(linear_on(device, linear.weight[rows], linear.bias[rows]))

    def forward(self, x):
        return [part(copy(x, device)) for part, device in zip(self.parts, self.devices)]


class RowParallelLinear(nn.Module):
    def __init__(self, linear, devices):
        super().__init__()
        self.devices = devices
        share = linear.in_features // len(devices)
        self.parts = nn.ModuleList()
        for i, device in enumerate(devices):
            bias = linear.bias if i == 0 else None
            self.parts.append(linear_on(device, linear.weight[:, i * share : (i + 1) * share], bias))

    def forward(self, xs):
        total = self.parts[0](xs[0])
        for part, x in zip(self.parts[1:], xs[1:]):
            total = total + copy(part(x), self.devices[0])
        return total


# %% sum_on_last
# says: meet on devices[0]
# thinks: The result is where the last part is computed.
class ColumnParallelLinear(nn.Module):
    def __init__(self, linear, devices):
        super().__init__()
        self.devices = devices
        share = linear.out_features // len(devices)
        self.parts = nn.ModuleList()
        for i, device in enumerate(devices):
            rows = slice(i * share, (i + 1) * share)
            self.parts.append(linear_on(device, linear.weight[rows], linear.bias[rows]))

    def forward(self, x):
        return [part(copy(x, device)) for part, device in zip(self.parts, self.devices)]


class RowParallelLinear(nn.Module):
    def __init__(self, linear, devices):
        super().__init__()
        self.devices = devices
        share = linear.in_features // len(devices)
        self.parts = nn.ModuleList()
        for i, device in enumerate(devices):
            bias = linear.bias if i == 0 else None
            self.parts.append(linear_on(device, linear.weight[:, i * share : (i + 1) * share], bias))

    def forward(self, xs):
        last = self.devices[-1]
        return sum(copy(part(x), last) for part, x in zip(self.parts, xs))


# %% sum_without_copy
# says: on its own memory only
# thinks: Python's sum adds what the devices have computed.
class ColumnParallelLinear(nn.Module):
    def __init__(self, linear, devices):
        super().__init__()
        self.devices = devices
        share = linear.out_features // len(devices)
        self.parts = nn.ModuleList()
        for i, device in enumerate(devices):
            rows = slice(i * share, (i + 1) * share)
            self.parts.append(linear_on(device, linear.weight[rows], linear.bias[rows]))

    def forward(self, x):
        return [part(copy(x, device)) for part, device in zip(self.parts, self.devices)]


class RowParallelLinear(nn.Module):
    def __init__(self, linear, devices):
        super().__init__()
        self.devices = devices
        share = linear.in_features // len(devices)
        self.parts = nn.ModuleList()
        for i, device in enumerate(devices):
            bias = linear.bias if i == 0 else None
            self.parts.append(linear_on(device, linear.weight[:, i * share : (i + 1) * share], bias))

    def forward(self, xs):
        ys = [part(x) for part, x in zip(self.parts, xs)]
        return sum(ys)


# %% transposed
# says: torch keeps W as (outputs, inputs)
# thinks: y = x A with A = W^T, so the parts are cut from W.T.
class ColumnParallelLinear(nn.Module):
    def __init__(self, linear, devices):
        super().__init__()
        self.devices = devices
        share = linear.out_features // len(devices)
        self.parts = nn.ModuleList()
        for i, device in enumerate(devices):
            rows = slice(i * share, (i + 1) * share)
            self.parts.append(linear_on(device, linear.weight.T[:, rows], linear.bias[rows]))

    def forward(self, x):
        return [part(copy(x, device)) for part, device in zip(self.parts, self.devices)]


class RowParallelLinear(nn.Module):
    def __init__(self, linear, devices):
        super().__init__()
        self.devices = devices
        share = linear.in_features // len(devices)
        self.parts = nn.ModuleList()
        for i, device in enumerate(devices):
            bias = linear.bias if i == 0 else None
            self.parts.append(linear_on(device, linear.weight.T[i * share : (i + 1) * share], bias))

    def forward(self, xs):
        total = self.parts[0](xs[0])
        for part, x in zip(self.parts[1:], xs[1:]):
            total = total + copy(part(x), self.devices[0])
        return total


# %% whole_bias_per_column
# says: the bias is cut too
# thinks: Only the weight is cut.
class ColumnParallelLinear(nn.Module):
    def __init__(self, linear, devices):
        super().__init__()
        self.devices = devices
        share = linear.out_features // len(devices)
        self.parts = nn.ModuleList()
        for i, device in enumerate(devices):
            rows = slice(i * share, (i + 1) * share)
            self.parts.append(linear_on(device, linear.weight[rows], linear.bias))

    def forward(self, x):
        return [part(copy(x, device)) for part, device in zip(self.parts, self.devices)]


class RowParallelLinear(nn.Module):
    def __init__(self, linear, devices):
        super().__init__()
        self.devices = devices
        share = linear.in_features // len(devices)
        self.parts = nn.ModuleList()
        for i, device in enumerate(devices):
            bias = linear.bias if i == 0 else None
            self.parts.append(linear_on(device, linear.weight[:, i * share : (i + 1) * share], bias))

    def forward(self, xs):
        total = self.parts[0](xs[0])
        for part, x in zip(self.parts[1:], xs[1:]):
            total = total + copy(part(x), self.devices[0])
        return total


# %% x_not_copied
# says: on its own memory only
# thinks: x is handed to every part, torch takes it there.
class ColumnParallelLinear(nn.Module):
    def __init__(self, linear, devices):
        super().__init__()
        self.devices = devices
        share = linear.out_features // len(devices)
        self.parts = nn.ModuleList()
        for i, device in enumerate(devices):
            rows = slice(i * share, (i + 1) * share)
            self.parts.append(linear_on(device, linear.weight[rows], linear.bias[rows]))

    def forward(self, x):
        return [part(x) for part in self.parts]


class RowParallelLinear(nn.Module):
    def __init__(self, linear, devices):
        super().__init__()
        self.devices = devices
        share = linear.in_features // len(devices)
        self.parts = nn.ModuleList()
        for i, device in enumerate(devices):
            bias = linear.bias if i == 0 else None
            self.parts.append(linear_on(device, linear.weight[:, i * share : (i + 1) * share], bias))

    def forward(self, xs):
        total = self.parts[0](xs[0])
        for part, x in zip(self.parts[1:], xs[1:]):
            total = total + copy(part(x), self.devices[0])
        return total


# %% first_bias_on_all
# says: first share of the bias
# thinks: every column part gets the first bias share.
class ColumnParallelLinear(nn.Module):
    def __init__(self, linear, devices):
        super().__init__()
        self.devices = devices
        share = linear.out_features // len(devices)
        weights, biases = linear.weight.split(share, dim=0), linear.bias.split(share)
        self.parts = nn.ModuleList(linear_on(d, w, biases[0]) for d, w in zip(devices, weights))

    def forward(self, x):
        return [part(copy(x, device)) for part, device in zip(self.parts, self.devices)]


class RowParallelLinear(nn.Module):
    def __init__(self, linear, devices):
        super().__init__()
        self.devices = devices
        share = linear.in_features // len(devices)
        weights = linear.weight.split(share, dim=1)
        biases = [linear.bias] + [None] * (len(devices) - 1)
        self.parts = nn.ModuleList(linear_on(d, w, b) for d, w, b in zip(devices, weights, biases))

    def forward(self, xs):
        return sum(copy(part(x), self.devices[0]) for part, x in zip(self.parts, xs))


# %% bias_only_on_first_part
# says: bias
# thinks: as for rows, the bias once.
class ColumnParallelLinear(nn.Module):
    def __init__(self, linear, devices):
        super().__init__()
        self.devices = devices
        share = linear.out_features // len(devices)
        weights, biases = linear.weight.split(share, dim=0), linear.bias.split(share)
        self.parts = nn.ModuleList(linear_on(d, w, b) for d, w, b in zip(devices, weights, [biases[0]] + [None] * 9))

    def forward(self, x):
        return [part(copy(x, device)) for part, device in zip(self.parts, self.devices)]


class RowParallelLinear(nn.Module):
    def __init__(self, linear, devices):
        super().__init__()
        self.devices = devices
        share = linear.in_features // len(devices)
        weights = linear.weight.split(share, dim=1)
        biases = [linear.bias] + [None] * (len(devices) - 1)
        self.parts = nn.ModuleList(linear_on(d, w, b) for d, w, b in zip(devices, weights, biases))

    def forward(self, xs):
        return sum(copy(part(x), self.devices[0]) for part, x in zip(self.parts, xs))


# %% weight_not_cut
# says: not cut
# thinks: linear_on does the cutting.
class ColumnParallelLinear(nn.Module):
    def __init__(self, linear, devices):
        super().__init__()
        self.devices = devices
        self.parts = nn.ModuleList(linear_on(d, linear.weight, linear.bias) for d in devices)

    def forward(self, x):
        return [part(copy(x, device)) for part, device in zip(self.parts, self.devices)]


class RowParallelLinear(nn.Module):
    def __init__(self, linear, devices):
        super().__init__()
        self.devices = devices
        self.parts = nn.ModuleList(linear_on(d, linear.weight, linear.bias) for d in devices)

    def forward(self, xs):
        return sum(copy(part(x), self.devices[0]) for part, x in zip(self.parts, xs))


# %% gathered_and_scattered
# says: put together
# thinks: The whole result, and then the shares of it again.
class ColumnParallelLinear(nn.Module):
    def __init__(self, linear, devices):
        super().__init__()
        self.devices = devices
        self.share = linear.out_features // len(devices)
        weights, biases = linear.weight.split(self.share, dim=0), linear.bias.split(self.share)
        self.parts = nn.ModuleList(linear_on(d, w, b) for d, w, b in zip(devices, weights, biases))

    def forward(self, x):
        import torch
        ys = [part(copy(x, device)) for part, device in zip(self.parts, self.devices)]
        y = torch.cat([copy(y, self.devices[0]) for y in ys], dim=1)
        return [copy(s, d) for s, d in zip(y.split(self.share, dim=1), self.devices)]


class RowParallelLinear(nn.Module):
    def __init__(self, linear, devices):
        super().__init__()
        self.devices = devices
        share = linear.in_features // len(devices)
        weights = linear.weight.split(share, dim=1)
        biases = [linear.bias] + [None] * (len(devices) - 1)
        self.parts = nn.ModuleList(linear_on(d, w, b) for d, w, b in zip(devices, weights, biases))

    def forward(self, xs):
        return sum(copy(part(x), self.devices[0]) for part, x in zip(self.parts, xs))


# %% parts_frozen
# says: requires_grad
# thinks: The parts are copies, so they are detached.
class ColumnParallelLinear(nn.Module):
    def __init__(self, linear, devices):
        super().__init__()
        self.devices = devices
        share = linear.out_features // len(devices)
        weights, biases = linear.weight.split(share, dim=0), linear.bias.split(share)
        self.parts = nn.ModuleList(linear_on(d, w, b).requires_grad_(False) for d, w, b in zip(devices, weights, biases))

    def forward(self, x):
        return [part(copy(x, device)) for part, device in zip(self.parts, self.devices)]


class RowParallelLinear(nn.Module):
    def __init__(self, linear, devices):
        super().__init__()
        self.devices = devices
        share = linear.in_features // len(devices)
        weights = linear.weight.split(share, dim=1)
        biases = [linear.bias] + [None] * (len(devices) - 1)
        self.parts = nn.ModuleList(linear_on(d, w, b) for d, w, b in zip(devices, weights, biases))

    def forward(self, xs):
        return sum(copy(part(x), self.devices[0]) for part, x in zip(self.parts, xs))


# %% x_copied_once_for_all
# says: on its own memory only
# thinks: copy x once to the last device, use it everywhere.
class ColumnParallelLinear(nn.Module):
    def __init__(self, linear, devices):
        super().__init__()
        self.devices = devices
        share = linear.out_features // len(devices)
        weights, biases = linear.weight.split(share, dim=0), linear.bias.split(share)
        self.parts = nn.ModuleList(linear_on(d, w, b) for d, w, b in zip(devices, weights, biases))

    def forward(self, x):
        x = copy(x, self.devices[-1])
        return [part(x) for part in self.parts]


class RowParallelLinear(nn.Module):
    def __init__(self, linear, devices):
        super().__init__()
        self.devices = devices
        share = linear.in_features // len(devices)
        weights = linear.weight.split(share, dim=1)
        biases = [linear.bias] + [None] * (len(devices) - 1)
        self.parts = nn.ModuleList(linear_on(d, w, b) for d, w, b in zip(devices, weights, biases))

    def forward(self, xs):
        return sum(copy(part(x), self.devices[0]) for part, x in zip(self.parts, xs))


# %% outputs_list_grows
# says: keeps
# thinks: self.outputs collects the results.
class ColumnParallelLinear(nn.Module):
    outputs = []
    def __init__(self, linear, devices):
        super().__init__()
        self.devices = devices
        share = linear.out_features // len(devices)
        weights, biases = linear.weight.split(share, dim=0), linear.bias.split(share)
        self.parts = nn.ModuleList(linear_on(d, w, b) for d, w, b in zip(devices, weights, biases))

    def forward(self, x):
        for part, device in zip(self.parts, self.devices):
            self.outputs.append(part(copy(x, device)))
        return self.outputs


class RowParallelLinear(nn.Module):
    def __init__(self, linear, devices):
        super().__init__()
        self.devices = devices
        share = linear.in_features // len(devices)
        weights = linear.weight.split(share, dim=1)
        biases = [linear.bias] + [None] * (len(devices) - 1)
        self.parts = nn.ModuleList(linear_on(d, w, b) for d, w, b in zip(devices, weights, biases))

    def forward(self, xs):
        return sum(copy(part(x), self.devices[0]) for part, x in zip(self.parts, xs))


# %% instance_list_grows
# says: The first call of this very object was right
# thinks: self.outputs collects the results of one forward.
class ColumnParallelLinear(nn.Module):
    def __init__(self, linear, devices):
        super().__init__()
        self.devices = devices
        self.outputs = []
        share = linear.out_features // len(devices)
        weights, biases = linear.weight.split(share, dim=0), linear.bias.split(share)
        self.parts = nn.ModuleList(linear_on(d, w, b) for d, w, b in zip(devices, weights, biases))

    def forward(self, x):
        for part, device in zip(self.parts, self.devices):
            self.outputs.append(part(copy(x, device)))
        return self.outputs


class RowParallelLinear(nn.Module):
    def __init__(self, linear, devices):
        super().__init__()
        self.devices = devices
        share = linear.in_features // len(devices)
        weights = linear.weight.split(share, dim=1)
        biases = [linear.bias] + [None] * (len(devices) - 1)
        self.parts = nn.ModuleList(linear_on(d, w, b) for d, w, b in zip(devices, weights, biases))

    def forward(self, xs):
        return sum(copy(part(x), self.devices[0]) for part, x in zip(self.parts, xs))


# %% shares_reversed
# says: Part i has the i-th share, in order
# thinks: the first device gets the last share.
class ColumnParallelLinear(nn.Module):
    def __init__(self, linear, devices):
        super().__init__()
        self.devices = devices
        share = linear.out_features // len(devices)
        weights, biases = linear.weight.split(share, dim=0)[::-1], linear.bias.split(share)[::-1]
        self.parts = nn.ModuleList(linear_on(d, w, b) for d, w, b in zip(devices, weights, biases))

    def forward(self, x):
        return [part(copy(x, device)) for part, device in zip(self.parts, self.devices)]


class RowParallelLinear(nn.Module):
    def __init__(self, linear, devices):
        super().__init__()
        self.devices = devices
        share = linear.in_features // len(devices)
        weights = linear.weight.split(share, dim=1)[::-1]
        biases = [linear.bias] + [None] * (len(devices) - 1)
        self.parts = nn.ModuleList(linear_on(d, w, b) for d, w, b in zip(devices, weights, biases))

    def forward(self, xs):
        return sum(copy(part(x), self.devices[0]) for part, x in zip(self.parts, xs))


# %% shares_memory_with_linear
# says: .to copies nothing
# thinks: .to(device) copies anyway, so I leave out the clone.
def linear_on(device, weight, bias):
    layer = nn.Linear(weight.shape[1], weight.shape[0], bias=bias is not None)
    layer.weight = nn.Parameter(weight.detach().to(device))
    if bias is not None:
        layer.bias = nn.Parameter(bias.detach().to(device))
    return layer


class ColumnParallelLinear(nn.Module):
    def __init__(self, linear, devices):
        super().__init__()
        self.devices = devices
        share = linear.out_features // len(devices)
        self.parts = nn.ModuleList()
        for i, device in enumerate(devices):
            rows = slice(i * share, (i + 1) * share)
            self.parts.append(linear_on(device, linear.weight[rows], linear.bias[rows]))

    def forward(self, x):
        return [part(copy(x, device)) for part, device in zip(self.parts, self.devices)]


class RowParallelLinear(nn.Module):
    def __init__(self, linear, devices):
        super().__init__()
        self.devices = devices
        share = linear.in_features // len(devices)
        self.parts = nn.ModuleList()
        for i, device in enumerate(devices):
            bias = linear.bias if i == 0 else None
            self.parts.append(linear_on(device, linear.weight[:, i * share:(i + 1) * share], bias))

    def forward(self, xs):
        return sum(copy(part(x), self.devices[0]) for part, x in zip(self.parts, xs))


# %% last_row_left_out
# says: A slice's end is not in it
# thinks: From i * share to (i + 1) * share - 1, as the indices go.
def linear_on(device, weight, bias):
    """An nn.Linear on `device` that starts from copies of `weight` (out, in) and of `bias` (out,), or has no bias."""
    layer = nn.Linear(weight.shape[1], weight.shape[0], bias=bias is not None)
    layer.weight = nn.Parameter(weight.detach().clone())
    if bias is not None:
        layer.bias = nn.Parameter(bias.detach().clone())
    return layer.to(device)


class ColumnParallelLinear(nn.Module):
    def __init__(self, linear, devices):
        super().__init__()
        self.devices = devices
        share = linear.out_features // len(devices)
        self.parts = nn.ModuleList()
        for i in range(len(devices)):
            start, end = i * share, (i + 1) * share - 1
            self.parts.append(linear_on(devices[i], linear.weight[start:end], linear.bias[start:end]))

    def forward(self, x):
        return [part(copy(x, device)) for part, device in zip(self.parts, self.devices)]


class RowParallelLinear(nn.Module):
    def __init__(self, linear, devices):
        super().__init__()
        self.devices = devices
        share = linear.in_features // len(devices)
        self.parts = nn.ModuleList()
        for i in range(len(devices)):
            start, end = i * share, (i + 1) * share - 1
            self.parts.append(linear_on(devices[i], linear.weight[:, start:end], linear.bias if i == 0 else None))

    def forward(self, xs):
        total = self.parts[0](xs[0])
        for part, x in zip(self.parts[1:], xs[1:]):
            total = total + copy(part(x), self.devices[0])
        return total


# %% a_generator_for_a_list
# says: A generator has no length
# thinks: A generator expression is the same as a list, only better for memory.
def linear_on(device, weight, bias):
    """An nn.Linear on `device` that starts from copies of `weight` (out, in) and of `bias` (out,), or has no bias."""
    layer = nn.Linear(weight.shape[1], weight.shape[0], bias=bias is not None)
    layer.weight = nn.Parameter(weight.detach().clone())
    if bias is not None:
        layer.bias = nn.Parameter(bias.detach().clone())
    return layer.to(device)


class ColumnParallelLinear(nn.Module):
    def __init__(self, linear, devices):
        super().__init__()
        self.devices = devices
        share = linear.out_features // len(devices)
        self.parts = nn.ModuleList()
        for i, device in enumerate(devices):
            rows = slice(i * share, (i + 1) * share)
            self.parts.append(linear_on(device, linear.weight[rows], linear.bias[rows]))


    def forward(self, x):
        return (part(copy(x, d)) for part, d in zip(self.parts, self.devices))


class RowParallelLinear(nn.Module):
    def __init__(self, linear, devices):
        super().__init__()
        self.devices = devices
        share = linear.in_features // len(devices)
        self.parts = nn.ModuleList()
        for i, device in enumerate(devices):
            bias = linear.bias if i == 0 else None
            self.parts.append(linear_on(device, linear.weight[:, i * share:(i + 1) * share], bias))

    def forward(self, xs):
        return sum(copy(part(x), self.devices[0]) for part, x in zip(self.parts, xs))


# %% overwrites_the_list
# says: The list is the caller's
# thinks: I reuse the list xs for the results.
def linear_on(device, weight, bias):
    """An nn.Linear on `device` that starts from copies of `weight` (out, in) and of `bias` (out,), or has no bias."""
    layer = nn.Linear(weight.shape[1], weight.shape[0], bias=bias is not None)
    layer.weight = nn.Parameter(weight.detach().clone())
    if bias is not None:
        layer.bias = nn.Parameter(bias.detach().clone())
    return layer.to(device)


class ColumnParallelLinear(nn.Module):
    def __init__(self, linear, devices):
        super().__init__()
        self.devices = devices
        share = linear.out_features // len(devices)
        self.parts = nn.ModuleList()
        for i, device in enumerate(devices):
            rows = slice(i * share, (i + 1) * share)
            self.parts.append(linear_on(device, linear.weight[rows], linear.bias[rows]))

    def forward(self, x):
        return [part(copy(x, device)) for part, device in zip(self.parts, self.devices)]


class RowParallelLinear(nn.Module):
    def __init__(self, linear, devices):
        super().__init__()
        self.devices = devices
        share = linear.in_features // len(devices)
        self.parts = nn.ModuleList()
        for i, device in enumerate(devices):
            bias = linear.bias if i == 0 else None
            self.parts.append(linear_on(device, linear.weight[:, i * share:(i + 1) * share], bias))


    def forward(self, xs):
        for i, part in enumerate(self.parts):
            xs[i] = copy(part(xs[i]), self.devices[0])
        total = xs[0]
        for x in xs[1:]:
            total = total + x
        return total


# %% exactly_two_halves
# says: however many these are
# thinks: First half to the first device, second half to the second.
def linear_on(device, weight, bias):
    """An nn.Linear on `device` that starts from copies of `weight` (out, in) and of `bias` (out,), or has no bias."""
    layer = nn.Linear(weight.shape[1], weight.shape[0], bias=bias is not None)
    layer.weight = nn.Parameter(weight.detach().clone())
    if bias is not None:
        layer.bias = nn.Parameter(bias.detach().clone())
    return layer.to(device)


class ColumnParallelLinear(nn.Module):
    def __init__(self, linear, devices):
        super().__init__()
        self.devices = devices
        share = linear.out_features // len(devices)
        self.parts = nn.ModuleList(
            [
                linear_on(devices[0], linear.weight[:share], linear.bias[:share]),
                linear_on(devices[1], linear.weight[share:2 * share], linear.bias[share:2 * share]),
            ]
        )

    def forward(self, x):
        return [self.parts[0](x), self.parts[1](copy(x, self.devices[1]))]


class RowParallelLinear(nn.Module):
    def __init__(self, linear, devices):
        super().__init__()
        self.devices = devices
        share = linear.in_features // len(devices)
        self.parts = nn.ModuleList(
            [
                linear_on(devices[0], linear.weight[:, :share], linear.bias),
                linear_on(devices[1], linear.weight[:, share:2 * share], None),
            ]
        )

    def forward(self, xs):
        return self.parts[0](xs[0]) + copy(self.parts[1](xs[1]), self.devices[0])


# %% share_of_the_inputs
# says: That is a share of the inputs
# thinks: share = in_features // n, in both classes.
def linear_on(device, weight, bias):
    """An nn.Linear on `device` that starts from copies of `weight` (out, in) and of `bias` (out,), or has no bias."""
    layer = nn.Linear(weight.shape[1], weight.shape[0], bias=bias is not None)
    layer.weight = nn.Parameter(weight.detach().clone())
    if bias is not None:
        layer.bias = nn.Parameter(bias.detach().clone())
    return layer.to(device)


class ColumnParallelLinear(nn.Module):
    def __init__(self, linear, devices):
        super().__init__()
        self.devices = devices
        share = linear.in_features // len(devices)
        self.parts = nn.ModuleList()
        for i, device in enumerate(devices):
            rows = slice(i * share, (i + 1) * share)
            self.parts.append(linear_on(device, linear.weight[rows], linear.bias[rows]))

    def forward(self, x):
        return [part(copy(x, device)) for part, device in zip(self.parts, self.devices)]


class RowParallelLinear(nn.Module):
    def __init__(self, linear, devices):
        super().__init__()
        self.devices = devices
        share = linear.in_features // len(devices)
        self.parts = nn.ModuleList()
        for i, device in enumerate(devices):
            bias = linear.bias if i == 0 else None
            self.parts.append(linear_on(device, linear.weight[:, i * share:(i + 1) * share], bias))

    def forward(self, xs):
        return sum(copy(part(x), self.devices[0]) for part, x in zip(self.parts, xs))


# %% forward_returns_nothing
# says: Nothing came back
# thinks: The loop fills the list, the method ends.
def linear_on(device, weight, bias):
    """An nn.Linear on `device` that starts from copies of `weight` (out, in) and of `bias` (out,), or has no bias."""
    layer = nn.Linear(weight.shape[1], weight.shape[0], bias=bias is not None)
    layer.weight = nn.Parameter(weight.detach().clone())
    if bias is not None:
        layer.bias = nn.Parameter(bias.detach().clone())
    return layer.to(device)


class ColumnParallelLinear(nn.Module):
    def __init__(self, linear, devices):
        super().__init__()
        self.devices = devices
        share = linear.out_features // len(devices)
        self.parts = nn.ModuleList()
        for i, device in enumerate(devices):
            rows = slice(i * share, (i + 1) * share)
            self.parts.append(linear_on(device, linear.weight[rows], linear.bias[rows]))


    def forward(self, x):
        results = []
        for part, device in zip(self.parts, self.devices):
            results.append(part(copy(x, device)))


class RowParallelLinear(nn.Module):
    def __init__(self, linear, devices):
        super().__init__()
        self.devices = devices
        share = linear.in_features // len(devices)
        self.parts = nn.ModuleList()
        for i, device in enumerate(devices):
            bias = linear.bias if i == 0 else None
            self.parts.append(linear_on(device, linear.weight[:, i * share:(i + 1) * share], bias))

    def forward(self, xs):
        return sum(copy(part(x), self.devices[0]) for part, x in zip(self.parts, xs))


# %% no_list_for_one_device
# says: of one tensor
# thinks: With one device there is nothing to be split, so return the plain result.
def linear_on(device, weight, bias):
    """An nn.Linear on `device` that starts from copies of `weight` (out, in) and of `bias` (out,), or has no bias."""
    layer = nn.Linear(weight.shape[1], weight.shape[0], bias=bias is not None)
    layer.weight = nn.Parameter(weight.detach().clone())
    if bias is not None:
        layer.bias = nn.Parameter(bias.detach().clone())
    return layer.to(device)


class ColumnParallelLinear(nn.Module):
    def __init__(self, linear, devices):
        super().__init__()
        self.devices = devices
        share = linear.out_features // len(devices)
        self.parts = nn.ModuleList()
        for i, device in enumerate(devices):
            rows = slice(i * share, (i + 1) * share)
            self.parts.append(linear_on(device, linear.weight[rows], linear.bias[rows]))


    def forward(self, x):
        if len(self.devices) == 1:
            return self.parts[0](x)
        return [part(copy(x, d)) for part, d in zip(self.parts, self.devices)]


class RowParallelLinear(nn.Module):
    def __init__(self, linear, devices):
        super().__init__()
        self.devices = devices
        share = linear.in_features // len(devices)
        self.parts = nn.ModuleList()
        for i, device in enumerate(devices):
            bias = linear.bias if i == 0 else None
            self.parts.append(linear_on(device, linear.weight[:, i * share:(i + 1) * share], bias))

    def forward(self, xs):
        return sum(copy(part(x), self.devices[0]) for part, x in zip(self.parts, xs))


# %% keeps_the_whole_layer
# says: The whole layer is kept
# thinks: The parts are there to be looked at. The real computing is easier with the whole linear on the first
#   device.
def linear_on(device, weight, bias):
    """An nn.Linear on `device` that starts from copies of `weight` (out, in) and of `bias` (out,), or has no bias."""
    layer = nn.Linear(weight.shape[1], weight.shape[0], bias=bias is not None)
    layer.weight = nn.Parameter(weight.detach().clone())
    if bias is not None:
        layer.bias = nn.Parameter(bias.detach().clone())
    return layer.to(device)


class ColumnParallelLinear(nn.Module):
    def __init__(self, linear, devices):
        super().__init__()
        self.devices = devices
        share = linear.out_features // len(devices)
        self.parts = nn.ModuleList()
        for i, device in enumerate(devices):
            rows = slice(i * share, (i + 1) * share)
            self.parts.append(linear_on(device, linear.weight[rows], linear.bias[rows]))

        self.whole = linear_on(devices[0], linear.weight, linear.bias)

    def forward(self, x):
        pieces = self.whole(x).chunk(len(self.devices), dim=1)
        return [copy(piece, d) for piece, d in zip(pieces, self.devices)]


class RowParallelLinear(nn.Module):
    def __init__(self, linear, devices):
        super().__init__()
        self.devices = devices
        share = linear.in_features // len(devices)
        self.parts = nn.ModuleList()
        for i, device in enumerate(devices):
            bias = linear.bias if i == 0 else None
            self.parts.append(linear_on(device, linear.weight[:, i * share:(i + 1) * share], bias))

        self.whole = linear_on(devices[0], linear.weight, linear.bias)

    def forward(self, xs):
        return self.whole(torch.cat([copy(x, self.devices[0]) for x in xs], dim=1))


import torch


# %% results_through_the_host
# says: By way of the CPU
# thinks: Collect on the CPU, where everybody can write, then move to the first device.
def linear_on(device, weight, bias):
    """An nn.Linear on `device` that starts from copies of `weight` (out, in) and of `bias` (out,), or has no bias."""
    layer = nn.Linear(weight.shape[1], weight.shape[0], bias=bias is not None)
    layer.weight = nn.Parameter(weight.detach().clone())
    if bias is not None:
        layer.bias = nn.Parameter(bias.detach().clone())
    return layer.to(device)


class ColumnParallelLinear(nn.Module):
    def __init__(self, linear, devices):
        super().__init__()
        self.devices = devices
        share = linear.out_features // len(devices)
        self.parts = nn.ModuleList()
        for i, device in enumerate(devices):
            rows = slice(i * share, (i + 1) * share)
            self.parts.append(linear_on(device, linear.weight[rows], linear.bias[rows]))

    def forward(self, x):
        return [part(copy(x, device)) for part, device in zip(self.parts, self.devices)]


class RowParallelLinear(nn.Module):
    def __init__(self, linear, devices):
        super().__init__()
        self.devices = devices
        share = linear.in_features // len(devices)
        self.parts = nn.ModuleList()
        for i, device in enumerate(devices):
            bias = linear.bias if i == 0 else None
            self.parts.append(linear_on(device, linear.weight[:, i * share:(i + 1) * share], bias))


    def forward(self, xs):
        total = sum(copy(part(x), "cpu") for part, x in zip(self.parts, xs))
        return copy(total, self.devices[0])


# %% relu_in_the_column_layer
# says: an activation function
# thinks: Between two layers there is an activation, and each device can do its own.
def linear_on(device, weight, bias):
    """An nn.Linear on `device` that starts from copies of `weight` (out, in) and of `bias` (out,), or has no bias."""
    layer = nn.Linear(weight.shape[1], weight.shape[0], bias=bias is not None)
    layer.weight = nn.Parameter(weight.detach().clone())
    if bias is not None:
        layer.bias = nn.Parameter(bias.detach().clone())
    return layer.to(device)


class ColumnParallelLinear(nn.Module):
    def __init__(self, linear, devices):
        super().__init__()
        self.devices = devices
        share = linear.out_features // len(devices)
        self.parts = nn.ModuleList()
        for i, device in enumerate(devices):
            rows = slice(i * share, (i + 1) * share)
            self.parts.append(linear_on(device, linear.weight[rows], linear.bias[rows]))


    def forward(self, x):
        return [nn.functional.relu(part(copy(x, d))) for part, d in zip(self.parts, self.devices)]


class RowParallelLinear(nn.Module):
    def __init__(self, linear, devices):
        super().__init__()
        self.devices = devices
        share = linear.in_features // len(devices)
        self.parts = nn.ModuleList()
        for i, device in enumerate(devices):
            bias = linear.bias if i == 0 else None
            self.parts.append(linear_on(device, linear.weight[:, i * share:(i + 1) * share], bias))

    def forward(self, xs):
        return sum(copy(part(x), self.devices[0]) for part, x in zip(self.parts, xs))


# %% squeezes_a_batch_of_one
# says: A batch of one is a batch
# thinks: Superfluous dimensions are best squeezed away.
def linear_on(device, weight, bias):
    """An nn.Linear on `device` that starts from copies of `weight` (out, in) and of `bias` (out,), or has no bias."""
    layer = nn.Linear(weight.shape[1], weight.shape[0], bias=bias is not None)
    layer.weight = nn.Parameter(weight.detach().clone())
    if bias is not None:
        layer.bias = nn.Parameter(bias.detach().clone())
    return layer.to(device)


class ColumnParallelLinear(nn.Module):
    def __init__(self, linear, devices):
        super().__init__()
        self.devices = devices
        share = linear.out_features // len(devices)
        self.parts = nn.ModuleList()
        for i, device in enumerate(devices):
            rows = slice(i * share, (i + 1) * share)
            self.parts.append(linear_on(device, linear.weight[rows], linear.bias[rows]))

    def forward(self, x):
        return [part(copy(x, device)) for part, device in zip(self.parts, self.devices)]


class RowParallelLinear(nn.Module):
    def __init__(self, linear, devices):
        super().__init__()
        self.devices = devices
        share = linear.in_features // len(devices)
        self.parts = nn.ModuleList()
        for i, device in enumerate(devices):
            bias = linear.bias if i == 0 else None
            self.parts.append(linear_on(device, linear.weight[:, i * share:(i + 1) * share], bias))


    def forward(self, xs):
        outs = [copy(part(x), self.devices[0]) for part, x in zip(self.parts, xs)]
        total = outs[0]
        for out in outs[1:]:
            total = total + out
        return total.squeeze()


# %% a_bias_of_zeros_is_dropped
# says: A bias is missing
# thinks: A bias of zeros adds nothing, so leave it out.
def linear_on(device, weight, bias):
    if bias is not None and not bias.any():
        bias = None
    layer = nn.Linear(weight.shape[1], weight.shape[0], bias=bias is not None)
    layer.weight = nn.Parameter(weight.detach().clone())
    if bias is not None:
        layer.bias = nn.Parameter(bias.detach().clone())
    return layer.to(device)


class ColumnParallelLinear(nn.Module):
    def __init__(self, linear, devices):
        super().__init__()
        self.devices = devices
        share = linear.out_features // len(devices)
        self.parts = nn.ModuleList()
        for i, device in enumerate(devices):
            rows = slice(i * share, (i + 1) * share)
            self.parts.append(linear_on(device, linear.weight[rows], linear.bias[rows]))

    def forward(self, x):
        return [part(copy(x, device)) for part, device in zip(self.parts, self.devices)]


class RowParallelLinear(nn.Module):
    def __init__(self, linear, devices):
        super().__init__()
        self.devices = devices
        share = linear.in_features // len(devices)
        self.parts = nn.ModuleList()
        for i, device in enumerate(devices):
            bias = linear.bias if i == 0 else None
            self.parts.append(linear_on(device, linear.weight[:, i * share:(i + 1) * share], bias))

    def forward(self, xs):
        return sum(copy(part(x), self.devices[0]) for part, x in zip(self.parts, xs))


# %% copy_into_a_float32_layer
# says: has the type of what it is a copy of
# thinks: A fresh nn.Linear, and copy_ the numbers into it.
import torch


def linear_on(device, weight, bias):
    layer = nn.Linear(weight.shape[1], weight.shape[0], bias=bias is not None)
    with torch.no_grad():
        layer.weight.copy_(weight)
        if bias is not None:
            layer.bias.copy_(bias)
    return layer.to(device)


class ColumnParallelLinear(nn.Module):
    def __init__(self, linear, devices):
        super().__init__()
        self.devices = devices
        n = len(devices)
        weights, biases = linear.weight.chunk(n), linear.bias.chunk(n)
        self.parts = nn.ModuleList([linear_on(devices[i], weights[i], biases[i]) for i in range(n)])

    def forward(self, x):
        results = []
        for i in range(len(self.devices)):
            here = copy(x, self.devices[i])
            results.append(self.parts[i](here))
        return results


class RowParallelLinear(nn.Module):
    def __init__(self, linear, devices):
        super().__init__()
        self.devices = devices
        n = len(devices)
        weights = linear.weight.chunk(n, dim=1)
        biases = [linear.bias] + [None] * (n - 1)
        self.parts = nn.ModuleList([linear_on(devices[i], weights[i], biases[i]) for i in range(n)])

    def forward(self, xs):
        y = 0
        for i in range(len(self.devices)):
            y = y + copy(self.parts[i](xs[i]), self.devices[0])
        return y


# %% ends_with_relu
# says: The result is the sum of what all parts compute
# thinks: The activation belongs to the layer.
class ColumnParallelLinear(nn.Module):
    def __init__(self, linear, devices):
        super().__init__()
        self.devices = devices
        share = linear.out_features // len(devices)
        self.parts = nn.ModuleList()
        for i, device in enumerate(devices):
            rows = slice(i * share, (i + 1) * share)
            self.parts.append(linear_on(device, linear.weight[rows], linear.bias[rows]))

    def forward(self, x):
        return [part(copy(x, device)) for part, device in zip(self.parts, self.devices)]


class RowParallelLinear(nn.Module):
    def __init__(self, linear, devices):
        super().__init__()
        self.devices = devices
        share = linear.in_features // len(devices)
        self.parts = nn.ModuleList()
        for i, device in enumerate(devices):
            bias = linear.bias if i == 0 else None
            self.parts.append(linear_on(device, linear.weight[:, i * share : (i + 1) * share], bias))

    def forward(self, xs):
        total = self.parts[0](xs[0])
        for part, x in zip(self.parts[1:], xs[1:]):
            total = total + copy(part(x), self.devices[0])
        return total.relu()


# %% own_copy_without_way_back
# says: Every tensor that crosses goes through copy
# thinks: A function of my own copies as well.
import torch


class Across(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, device):
        return x.to(device)

    @staticmethod
    def backward(ctx, gradient):
        return gradient, None


class ColumnParallelLinear(nn.Module):
    def __init__(self, linear, devices):
        super().__init__()
        self.devices = devices
        share = linear.out_features // len(devices)
        self.parts = nn.ModuleList()
        for i, device in enumerate(devices):
            rows = slice(i * share, (i + 1) * share)
            self.parts.append(linear_on(device, linear.weight[rows], linear.bias[rows]))

    def forward(self, x):
        return [part(copy(x, device)) for part, device in zip(self.parts, self.devices)]


class RowParallelLinear(nn.Module):
    def __init__(self, linear, devices):
        super().__init__()
        self.devices = devices
        share = linear.in_features // len(devices)
        self.parts = nn.ModuleList()
        for i, device in enumerate(devices):
            bias = linear.bias if i == 0 else None
            self.parts.append(linear_on(device, linear.weight[:, i * share : (i + 1) * share], bias))

    def forward(self, xs):
        total = self.parts[0](xs[0])
        for part, x in zip(self.parts[1:], xs[1:]):
            total = total + Across.apply(part(x), self.devices[0])
        return total
