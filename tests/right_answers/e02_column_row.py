"""Unusual right answers to e02_column_row. What a cell holds is told in tests/answers.py."""

# %% bias_of_its_own
# thinks: No part of the row parallel layer has a bias; it is a Parameter of the layer, on devices[0].
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
            self.parts.append(linear_on(device, linear.weight[:, i * share : (i + 1) * share], None))
        self.bias = nn.Parameter(linear.bias.detach().clone().to(devices[0]))

    def forward(self, xs):
        total = self.parts[0](xs[0])
        for part, x in zip(self.parts[1:], xs[1:]):
            total = total + copy(part(x), self.devices[0])
        return total + self.bias


# %% bias_on_last
# thinks: The last part has the row parallel layer's bias.
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
            bias = linear.bias if device == devices[-1] else None
            self.parts.append(linear_on(device, linear.weight[:, i * share : (i + 1) * share], bias))

    def forward(self, xs):
        total = self.parts[0](xs[0])
        for part, x in zip(self.parts[1:], xs[1:]):
            total = total + copy(part(x), self.devices[0])
        return total


# %% chain_from_the_end
# thinks: Sums along a chain from the last device to the first, each sending what it has so far.
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
        total = self.parts[-1](xs[-1])
        for device, part, x in reversed(list(zip(self.devices, self.parts, xs))[:-1]):
            total = part(x) + copy(total, device)
        return total


# %% chunks
# thinks: Cuts with torch's chunk, in comprehensions.
class ColumnParallelLinear(nn.Module):
    def __init__(self, linear, devices):
        super().__init__()
        self.devices = devices
        share = linear.out_features // len(devices)
        weights, biases = linear.weight.chunk(len(devices)), linear.bias.chunk(len(devices))
        self.parts = nn.ModuleList(linear_on(*dwb) for dwb in zip(devices, weights, biases))

    def forward(self, x):
        return [part(copy(x, part.weight.device)) for part in self.parts]


class RowParallelLinear(nn.Module):
    def __init__(self, linear, devices):
        super().__init__()
        self.devices = devices
        share = linear.in_features // len(devices)
        weights = linear.weight.chunk(len(devices), dim=1)
        biases = [linear.bias] + [None] * (len(devices) - 1)
        self.parts = nn.ModuleList(map(linear_on, devices, weights, biases))

    def forward(self, xs):
        return sum(copy(part(x), self.devices[0]) for part, x in zip(self.parts, xs))


# %% in_place_sum
# thinks: Adds in place to the first part's result.
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
            total += copy(part(x), self.devices[0])
        return total


# %% narrow_and_functional
# thinks: Narrow instead of slices, and nn.functional.linear instead of calling the parts.
class ColumnParallelLinear(nn.Module):
    def __init__(self, linear, devices):
        super().__init__()
        self.devices = devices
        share = linear.out_features // len(devices)
        self.parts = nn.ModuleList()
        for i, device in enumerate(devices):
            self.parts.append(linear_on(device, linear.weight.narrow(0, i * share, share), linear.bias.narrow(0, i * share, share)))

    def forward(self, x):
        return [nn.functional.linear(copy(x, device), part.weight, part.bias) for part, device in zip(self.parts, self.devices)]


class RowParallelLinear(nn.Module):
    def __init__(self, linear, devices):
        super().__init__()
        self.devices = devices
        share = linear.in_features // len(devices)
        self.parts = nn.ModuleList()
        for i, device in enumerate(devices):
            bias = linear.bias if i == 0 else None
            self.parts.append(linear_on(device, linear.weight.narrow(1, i * share, share), bias))

    def forward(self, xs):
        total = self.parts[0](xs[0])
        for part, x in zip(self.parts[1:], xs[1:]):
            total = total + copy(part(x), self.devices[0])
        return total


# %% stack_and_sum
# thinks: Brings all parts together first, then sums by stack.
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
        return torch.stack(ys, dim=-1).sum(dim=-1)
