"""Unusual right answers to e02_parallel_mlp. What a cell holds is told in tests/answers.py."""

# %% clamp_for_relu
# thinks: Relu is clamp(min=0).
class ParallelMLP(nn.Module):
    def __init__(self, device0, device1, n_in=784, n_units=1000, n_out=10):
        super().__init__()
        self.device0, self.device1 = device0, device1
        self.first0 = block(n_in, n_units // 2, n_units).to(device0)
        self.first1 = block(n_in, n_units // 2, n_units).to(device1)
        self.second0 = block(n_units, n_units // 2, n_out).to(device0)
        self.second1 = block(n_units, n_units // 2, n_out).to(device1)

    def forward(self, x):
        a = self.first0(x)
        b = self.first1(copy(x, self.device1))
        h0 = (a + copy(b, self.device0)).clamp(min=0)
        h1 = (copy(a, self.device1) + b).clamp(min=0)
        return self.second0(h0) + copy(self.second1(h1), self.device0)


# %% device1_first
# thinks: Runs device1's blocks first, and adds in the other order.
class ParallelMLP(nn.Module):
    def __init__(self, device0, device1, n_in=784, n_units=1000, n_out=10):
        super().__init__()
        self.device0, self.device1 = device0, device1
        self.first0 = block(n_in, n_units // 2, n_units).to(device0)
        self.first1 = block(n_in, n_units // 2, n_units).to(device1)
        self.second0 = block(n_units, n_units // 2, n_out).to(device0)
        self.second1 = block(n_units, n_units // 2, n_out).to(device1)

    def forward(self, x):
        right = self.first1(copy(x, self.device1))
        left = self.first0(x)
        to_left, to_right = copy(right, self.device0), copy(left, self.device1)
        y = copy(self.second1(F.relu(to_right + right)), self.device0)
        y = y + self.second0(F.relu(to_left + left))
        return y


# %% loops
# thinks: Written for a list of devices, with loops and a table of copies.
class ParallelMLP(nn.Module):
    def __init__(self, device0, device1, n_in=784, n_units=1000, n_out=10):
        super().__init__()
        self.device0, self.device1 = device0, device1
        self.first0 = block(n_in, n_units // 2, n_units).to(device0)
        self.first1 = block(n_in, n_units // 2, n_units).to(device1)
        self.second0 = block(n_units, n_units // 2, n_out).to(device0)
        self.second1 = block(n_units, n_units // 2, n_out).to(device1)

    def forward(self, x):
        devices = [self.device0, self.device1]
        first, second = [self.first0, self.first1], [self.second0, self.second1]
        parts = [f(copy(x, d)) for f, d in zip(first, devices)]
        ys = []
        for device, layer in zip(devices, second):
            total = sum(copy(p, device) for p in parts)
            ys.append(layer(F.relu(total)))
        return sum(copy(y, self.device0) for y in ys)


# %% mask_for_relu
# thinks: Relu is a product with the mask of what is positive.
class ParallelMLP(nn.Module):
    def __init__(self, device0, device1, n_in=784, n_units=1000, n_out=10):
        super().__init__()
        self.device0, self.device1 = device0, device1
        self.first0 = block(n_in, n_units // 2, n_units).to(device0)
        self.first1 = block(n_in, n_units // 2, n_units).to(device1)
        self.second0 = block(n_units, n_units // 2, n_out).to(device0)
        self.second1 = block(n_units, n_units // 2, n_out).to(device1)

    def forward(self, x):
        a = self.first0(x)
        b = self.first1(copy(x, self.device1))
        h0 = a + copy(b, self.device0)
        h1 = copy(a, self.device1) + b
        y0 = self.second0(h0 * (h0 > 0))
        y1 = self.second1(h1 * (h1 > 0))
        return y0 + copy(y1, self.device0)


# %% stack_and_sum
# thinks: Sums by torch.stack(...).sum(0).
import torch


class ParallelMLP(nn.Module):
    def __init__(self, device0, device1, n_in=784, n_units=1000, n_out=10):
        super().__init__()
        self.device0, self.device1 = device0, device1
        self.first0 = block(n_in, n_units // 2, n_units).to(device0)
        self.first1 = block(n_in, n_units // 2, n_units).to(device1)
        self.second0 = block(n_units, n_units // 2, n_out).to(device0)
        self.second1 = block(n_units, n_units // 2, n_out).to(device1)

    def forward(self, x):
        a = self.first0(x)
        b = self.first1(copy(x, self.device1))
        h0 = torch.stack([a, copy(b, self.device0)]).sum(0).relu()
        h1 = torch.stack([copy(a, self.device1), b]).sum(0).relu()
        return torch.stack([self.second0(h0), copy(self.second1(h1), self.device0)]).sum(dim=0)


# %% sums_once_then_sends
# thinks: Adds and applies relu on device0 only, and sends the result to device1: four copies as well.
class ParallelMLP(nn.Module):
    def __init__(self, device0, device1, n_in=784, n_units=1000, n_out=10):
        super().__init__()
        self.device0, self.device1 = device0, device1
        self.first0 = block(n_in, n_units // 2, n_units).to(device0)
        self.first1 = block(n_in, n_units // 2, n_units).to(device1)
        self.second0 = block(n_units, n_units // 2, n_out).to(device0)
        self.second1 = block(n_units, n_units // 2, n_out).to(device1)

    def forward(self, x):
        a = self.first0(x)
        b = self.first1(copy(x, self.device1))
        h0 = F.relu(a + copy(b, self.device0))
        h1 = copy(h0, self.device1)
        return self.second0(h0) + copy(self.second1(h1), self.device0)


# %% tensor_to
# thinks: Uses Tensor.to, which does what copy does.
class ParallelMLP(nn.Module):
    def __init__(self, device0, device1, n_in=784, n_units=1000, n_out=10):
        super().__init__()
        self.device0, self.device1 = device0, device1
        self.first0 = block(n_in, n_units // 2, n_units).to(device0)
        self.first1 = block(n_in, n_units // 2, n_units).to(device1)
        self.second0 = block(n_units, n_units // 2, n_out).to(device0)
        self.second1 = block(n_units, n_units // 2, n_out).to(device1)

    def forward(self, x):
        a = self.first0(x)
        b = self.first1(x.to(self.device1))
        y0 = self.second0((a + b.to(self.device0)).relu())
        y1 = self.second1((a.to(self.device1) + b).relu())
        return y0 + y1.to(self.device0)
