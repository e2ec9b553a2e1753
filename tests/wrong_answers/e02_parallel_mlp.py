"""Wrong answers to e02_parallel_mlp. What a cell holds is told in tests/answers.py."""

# %% averages
# says: added, not averaged
# thinks: Results of two devices are averaged, as in data parallel training.
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
        h0 = F.relu((a + copy(b, self.device0)) / 2)
        h1 = F.relu((b + copy(a, self.device1)) / 2)
        return (self.second0(h0) + copy(self.second1(h1), self.device0)) / 2


# %% both_meetings_on_both
# says: Four are enough
# thinks: Both meetings are alike, so one function serves both.
class ParallelMLP(nn.Module):
    def __init__(self, device0, device1, n_in=784, n_units=1000, n_out=10):
        super().__init__()
        self.device0, self.device1 = device0, device1
        self.first0 = block(n_in, n_units // 2, n_units).to(device0)
        self.first1 = block(n_in, n_units // 2, n_units).to(device1)
        self.second0 = block(n_units, n_units // 2, n_out).to(device0)
        self.second1 = block(n_units, n_units // 2, n_out).to(device1)

    def meet(self, a, b):
        return a + copy(b, self.device0), b + copy(a, self.device1)

    def forward(self, x):
        h0, h1 = self.meet(self.first0(x), self.first1(copy(x, self.device1)))
        y0, y1 = self.meet(self.second0(F.relu(h0)), self.second1(F.relu(h1)))
        return y0


# %% concatenates
# says: shapes cannot be multiplied
# thinks: Two halves of a layer are put side by side.
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
        h0 = F.relu(torch.cat([a, copy(b, self.device0)], dim=1))
        h1 = F.relu(torch.cat([copy(a, self.device1), b], dim=1))
        return self.second0(h0) + copy(self.second1(h1), self.device0)


# %% copies_again_and_again
# says: Four are enough
# thinks: A copy costs nothing, so it is written where it is needed, as often as needed.
class ParallelMLP(nn.Module):
    def __init__(self, device0, device1, n_in=784, n_units=1000, n_out=10):
        super().__init__()
        self.device0, self.device1 = device0, device1
        self.first0 = block(n_in, n_units // 2, n_units).to(device0)
        self.first1 = block(n_in, n_units // 2, n_units).to(device1)
        self.second0 = block(n_units, n_units // 2, n_out).to(device0)
        self.second1 = block(n_units, n_units // 2, n_out).to(device1)

    def hidden(self, x, device):
        a = copy(self.first0(copy(x, self.device0)), device)
        b = copy(self.first1(copy(x, self.device1)), device)
        return F.relu(a + b)

    def forward(self, x):
        y0 = self.second0(self.hidden(x, self.device0))
        y1 = self.second1(self.hidden(x, self.device1))
        return y0 + copy(y1, self.device0)


# %% detached_exchange
# says: part of the chain of gradients is cut
# thinks: What comes from the other device is data, like an input, so it is detached.
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
        h0 = F.relu(a + copy(b.detach(), self.device0))
        h1 = F.relu(b + copy(a.detach(), self.device1))
        return self.second0(h0) + copy(self.second1(h1), self.device0)


# %% ends_on_device1
# says: meet on device0
# thinks: The result is where the last block has run.
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
        h1 = F.relu(b + copy(a, self.device1))
        return copy(self.second0(h0), self.device1) + self.second1(h1)


# %% hard_coded_names
# says: on its own memory only
# thinks: There are two GPUs, vgpu:0 and vgpu:1.
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
        b = self.first1(copy(x, "vgpu:1"))
        h0 = F.relu(a + copy(b, "vgpu:0"))
        h1 = F.relu(b + copy(a, "vgpu:1"))
        return self.second0(h0) + copy(self.second1(h1), "vgpu:0")


# %% in_place_after_copies
# says: += or relu_ changes it for both
# thinks: A copy is always another tensor.
class ParallelMLP(nn.Module):
    def __init__(self, device0, device1, n_in=784, n_units=1000, n_out=10):
        super().__init__()
        self.device0, self.device1 = device0, device1
        self.first0 = block(n_in, n_units // 2, n_units).to(device0)
        self.first1 = block(n_in, n_units // 2, n_units).to(device1)
        self.second0 = block(n_units, n_units // 2, n_out).to(device0)
        self.second1 = block(n_units, n_units // 2, n_out).to(device1)

    def forward(self, x):
        h0, h1 = self.first0(x), self.first1(copy(x, self.device1))
        from1, from0 = copy(h1, self.device0), copy(h0, self.device1)
        h0 += from1
        h1 += from0
        F.relu_(h0)
        F.relu_(h1)
        y = self.second0(h0)
        y += copy(self.second1(h1), self.device0)
        return y


# %% in_place_sum
# says: counts twice
# thinks: += saves memory, and the other device is served afterwards.
class ParallelMLP(nn.Module):
    def __init__(self, device0, device1, n_in=784, n_units=1000, n_out=10):
        super().__init__()
        self.device0, self.device1 = device0, device1
        self.first0 = block(n_in, n_units // 2, n_units).to(device0)
        self.first1 = block(n_in, n_units // 2, n_units).to(device1)
        self.second0 = block(n_units, n_units // 2, n_out).to(device0)
        self.second1 = block(n_units, n_units // 2, n_out).to(device1)

    def forward(self, x):
        h0 = self.first0(x)
        h1 = self.first1(copy(x, self.device1))
        h0 += copy(h1, self.device0)
        h1 += copy(h0, self.device1)
        return self.second0(h0.relu()) + copy(self.second1(h1.relu()), self.device0)


# %% meets_on_device0_only
# says: the other needs it as well
# thinks: Results are gathered on device0; device1 goes on with what it has.
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
        h1 = F.relu(b)
        return self.second0(h0) + copy(self.second1(h1), self.device0)


# %% moves_modules
# says: Tensors cross, blocks stay
# thinks: .to(device) on a module makes it run there.
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
        b = self.first1.to(self.device0)(x)
        h = F.relu(a + b)
        return self.second0(h) + self.second1.to(self.device0)(h)


# %% no_first_meeting
# says: The first meeting is missing
# thinks: The devices work on their own until the end, and the results are added there.
class ParallelMLP(nn.Module):
    def __init__(self, device0, device1, n_in=784, n_units=1000, n_out=10):
        super().__init__()
        self.device0, self.device1 = device0, device1
        self.first0 = block(n_in, n_units // 2, n_units).to(device0)
        self.first1 = block(n_in, n_units // 2, n_units).to(device1)
        self.second0 = block(n_units, n_units // 2, n_out).to(device0)
        self.second1 = block(n_units, n_units // 2, n_out).to(device1)

    def forward(self, x):
        h0 = F.relu(self.first0(x))
        h1 = F.relu(self.first1(copy(x, self.device1)))
        return self.second0(h0) + copy(self.second1(h1), self.device0)


# %% no_relu
# says: The ReLU between the first and the second blocks is missing
# thinks: The blocks have their relus already.
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
        h1 = b + copy(a, self.device1)
        return self.second0(h0) + copy(self.second1(h1), self.device0)


# %% no_second_meeting
# says: The second meeting is missing
# thinks: After the exchange device0 has everything, so second0's result is the network's.
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
        h1 = F.relu(copy(a, self.device1) + b)
        y0 = self.second0(h0)
        y1 = self.second1(h1)
        return y0


# %% output_detached
# says: part of the chain of gradients is cut
# thinks: .data is the way to get a tensor off another device.
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
        h1 = F.relu(b + copy(a, self.device1))
        return self.second0(h0) + copy(self.second1(h1).data, self.device0)


# %% outputs_concatenated
# says: added, not concatenated
# thinks: The output is spread over the devices, so the parts are put side by side.
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
        h0 = F.relu(a + copy(b, self.device0))
        h1 = F.relu(b + copy(a, self.device1))
        return torch.cat([self.second0(h0), copy(self.second1(h1), self.device0)], dim=1)


# %% over_the_cpu
# says: Four are enough
# thinks: Two GPUs meet on the host.
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
        total = copy(a, "cpu") + copy(b, "cpu")
        h = F.relu(total)
        y0 = self.second0(copy(h, self.device0))
        y1 = self.second1(copy(h, self.device1))
        return y0 + copy(y1, self.device0)


# %% relu_at_the_end_too
# says: No ReLU after the second blocks, nor after their sum
# thinks: After each meeting comes a relu.
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
        h1 = F.relu(b + copy(a, self.device1))
        return F.relu(self.second0(h0) + copy(self.second1(h1), self.device0))


# %% relu_before_sum
# says: ReLU comes after the sum
# thinks: Relu belongs to each block, and it does not matter whether it comes before the sum.
class ParallelMLP(nn.Module):
    def __init__(self, device0, device1, n_in=784, n_units=1000, n_out=10):
        super().__init__()
        self.device0, self.device1 = device0, device1
        self.first0 = block(n_in, n_units // 2, n_units).to(device0)
        self.first1 = block(n_in, n_units // 2, n_units).to(device1)
        self.second0 = block(n_units, n_units // 2, n_out).to(device0)
        self.second1 = block(n_units, n_units // 2, n_out).to(device1)

    def forward(self, x):
        a = F.relu(self.first0(x))
        b = F.relu(self.first1(copy(x, self.device1)))
        h0 = a + copy(b, self.device0)
        h1 = b + copy(a, self.device1)
        return self.second0(h0) + copy(self.second1(h1), self.device0)


# %% relu_on_one
# says: both devices need it
# thinks: Slip of the pen: relu is written for device0 and not for device1.
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
        h1 = b + copy(a, self.device1)
        return self.second0(h0) + copy(self.second1(h1), self.device0)


# %% reused_name
# says: counts twice
# thinks: H0 in the second line is still what first0 has computed.
class ParallelMLP(nn.Module):
    def __init__(self, device0, device1, n_in=784, n_units=1000, n_out=10):
        super().__init__()
        self.device0, self.device1 = device0, device1
        self.first0 = block(n_in, n_units // 2, n_units).to(device0)
        self.first1 = block(n_in, n_units // 2, n_units).to(device1)
        self.second0 = block(n_units, n_units // 2, n_out).to(device0)
        self.second1 = block(n_units, n_units // 2, n_out).to(device1)

    def forward(self, x):
        h0 = self.first0(x)
        h1 = self.first1(copy(x, self.device1))
        h0 = h0 + copy(h1, self.device0)
        h1 = h1 + copy(h0, self.device1)
        y0 = self.second0(F.relu(h0))
        y1 = self.second1(F.relu(h1))
        return y0 + copy(y1, self.device0)


# %% second0_twice
# says: that of device1 never
# thinks: Slip of the pen after copying a line: second0 instead of second1.
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
        h1 = F.relu(copy(a, self.device1) + b)
        y0 = self.second0(h0)
        y1 = self.second0(copy(h1, self.device0))
        return y0 + y1


# %% splits_the_batch
# says: not the batch
# thinks: Two devices share the work by halves of the batch.
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
        x0, x1 = x.chunk(2)
        a = self.first0(x0)
        b = self.first1(copy(x1, self.device1))
        y0 = self.second0(F.relu(a))
        y1 = self.second1(F.relu(b))
        return torch.cat([y0, copy(y1, self.device0)])


# %% swaps
# says: only changed places
# thinks: The crossing arrows in the picture mean that each device goes on with the other's result.
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
        h0 = F.relu(copy(b, self.device0))
        h1 = F.relu(copy(a, self.device1))
        return self.second0(h0) + copy(self.second1(h1), self.device0)


# %% x_not_copied
# says: on its own memory only
# thinks: First1 takes x from wherever it is.
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
        b = self.first1(x)
        h0 = F.relu(a + copy(b, self.device0))
        h1 = F.relu(b + copy(a, self.device1))
        return self.second0(h0) + copy(self.second1(h1), self.device0)


# %% freezes_a_block
# says: freezes a block
# thinks: Only the second blocks are trained.
class ParallelMLP(nn.Module):
    def __init__(self, device0, device1, n_in=784, n_units=1000, n_out=10):
        super().__init__()
        self.device0, self.device1 = device0, device1
        self.first0 = block(n_in, n_units // 2, n_units).to(device0)
        self.first1 = block(n_in, n_units // 2, n_units).to(device1)
        self.second0 = block(n_units, n_units // 2, n_out).to(device0)
        self.second1 = block(n_units, n_units // 2, n_out).to(device1)

    def forward(self, x):
        """x: (batch, n_in) on device0. Returns (batch, n_out) on device0. Four copies, no more."""
        x1 = copy(x, self.device1)  # before device0 gets work: a copy waits for what is in its source's queue
        z0 = self.first0(x)
        z1 = self.first1(x1)
        self.first0.requires_grad_(False)
        h0 = F.relu(z0 + copy(z1, self.device0))
        h1 = F.relu(copy(z0, self.device1) + z1)
        return self.second0(h0) + copy(self.second1(h1), self.device0)


# %% one_first_block
# says: Only forward is to be written
# thinks: Both first blocks are alike, so one is enough.
class ParallelMLP(nn.Module):
    def __init__(self, device0, device1, n_in=784, n_units=1000, n_out=10):
        super().__init__()
        self.device0, self.device1 = device0, device1
        self.first0 = block(n_in, n_units // 2, n_units).to(device0)
        self.second0 = block(n_units, n_units // 2, n_out).to(device0)
        self.second1 = block(n_units, n_units // 2, n_out).to(device1)

    def forward(self, x):
        a = self.first0(x)
        b = copy(self.first0(x), self.device1)
        h0 = F.relu(a + copy(b, self.device0))
        h1 = F.relu(b + copy(a, self.device1))
        return self.second0(h0) + copy(self.second1(h1), self.device0)


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
        h1 = F.relu(b + copy(a, self.device1))
        return self.second0(h0) + Across.apply(self.second1(h1), self.device0)


# %% first1_detached
# says: The result does not depend on it, or the chain
# thinks: A copy of numbers needs no gradient.
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
        b = self.first1(copy(x, self.device1)).detach()
        h0 = F.relu(a + copy(b, self.device0))
        h1 = F.relu(b + copy(a, self.device1))
        return self.second0(h0) + copy(self.second1(h1), self.device0)


# %% tanh_for_relu
# says: Follow the picture
# thinks: One activation function is as good as another.
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
        h0 = F.tanh(a + copy(b, self.device0))
        h1 = F.tanh(b + copy(a, self.device1))
        return self.second0(h0) + copy(self.second1(h1), self.device0)


# %% no_relu_on_device0
# says: ReLU is missing on device0
# thinks: The activation happens where the other half arrives.
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
        h1 = F.relu(b + copy(a, self.device1))
        return self.second0(h0) + copy(self.second1(h1), self.device0)


# %% relu_after_second_blocks
# says: No ReLU after the second blocks, nor after their sum
# thinks: Every block ends with an activation.
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
        h1 = F.relu(b + copy(a, self.device1))
        return F.relu(self.second0(h0)) + copy(F.relu(self.second1(h1)), self.device0)


# %% second1_twice
# says: The second block of device1 counts twice
# thinks: Both halves come back from device1.
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
        h1 = F.relu(b + copy(a, self.device1))
        return 2 * copy(self.second1(h1), self.device0) + 0 * self.second0(h0)


# %% averages_at_the_first_meeting
# says: The first blocks' results are added, not averaged
# thinks: Two halves of a sum are averaged.
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
        h0 = F.relu((a + copy(b, self.device0)) / 2)
        h1 = F.relu((b + copy(a, self.device1)) / 2)
        return self.second0(h0) + copy(self.second1(h1), self.device0)


# %% adds_its_own
# says: Each device adds its own result to itself
# thinks: The other half is on this device already.
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
        h0 = F.relu(a + a)
        h1 = F.relu(b + b)
        return self.second0(h0) + copy(self.second1(h1), self.device0)


# %% half_crosses
# says: That is right to three or four digits
# thinks: What crosses may have half the bytes.
class ParallelMLP(nn.Module):
    def __init__(self, device0, device1, n_in=784, n_units=1000, n_out=10):
        super().__init__()
        self.device0, self.device1 = device0, device1
        self.first0 = block(n_in, n_units // 2, n_units).to(device0)
        self.first1 = block(n_in, n_units // 2, n_units).to(device1)
        self.second0 = block(n_units, n_units // 2, n_out).to(device0)
        self.second1 = block(n_units, n_units // 2, n_out).to(device1)

    def forward(self, x):
        def crossing(t, device):
            return copy(t.half(), device).float()

        z0 = self.first0(x)
        z1 = self.first1(crossing(x, self.device1))
        h0 = F.relu(z0 + crossing(z1, self.device0))
        h1 = F.relu(crossing(z0, self.device1) + z1)
        return self.second0(h0) + crossing(self.second1(h1), self.device0)
