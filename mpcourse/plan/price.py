"""A candidate's memory and time, from the costs of layers."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache

from mpcourse.plan.candidate import Candidate, Plan, Seconds
from mpcourse.plan.layers import Layers
from mpcourse.plan.machines import Machines
from mpcourse.plan.software import Software
from mpcourse.plan.stages import Part, cut, cut_equally, part
from mpcourse.plan.states import States
from mpcourse.plan.timing import in_flight, least, makespan
from mpcourse.virtual.specs import find_link
from mpcourse.zero.model_states import held

# Kinds of bytes that the host's memory holds instead of the GPU's.
ON_HOST: dict[str, tuple[str, ...]] = {
    "none": (),
    "optimizer": ("optimizer state",),
    "parameters": ("optimizer state", "gradients", "parameters"),
}
# Bytes/s of a node's memory, in which the host updates: one processor with eight channels of DDR4-3200.
HOST_MEMORY = 8 * 25.6e9


@dataclass(frozen=True)
class Pipelined:
    """The pipeline of a candidate, whatever its ZeRO stage.

    stages: their number.
    microbatches: of a step on each replica.
    chunks: parts of the model on each stage.
    parts: of the model, part i on stage i % stages.
    transfers: seconds over each cut between two parts.
    blocking: whether a stage waits for its messages to the next one.
    parameters: that are trained, of each stage.
    frozen: parameters that are not trained, of each stage; they have weights alone.
    layers: that have parameters, of each stage: ZeRO-3 gathers one at a time.
    largest: parameters of each stage's largest layer, trained or not.
    tied: trained parameters that more than one stage holds.
    of_experts: trained parameters of each stage that are experts'.
    experts_over: ranks that share the experts of a layer.
    """

    stages: int
    microbatches: int
    chunks: int
    parts: list[Part]
    transfers: list[float]
    blocking: bool
    parameters: list[int]
    frozen: list[int]
    layers: list[int]
    largest: list[int]
    tied: int
    of_experts: list[int]
    experts_over: int

    def share(self, s: int, replicas: int) -> float:
        """Return how many trained parameters of a stage each GPU has where replicas share them.

        s: the stage.
        replicas: size of the data axis. Only every e-th of it has the same experts, if e ranks share these.
        """
        return (self.parameters[s] + (self.experts_over - 1) * self.of_experts[s]) / replicas

    @cached_property
    def forward(self) -> list[float]:
        """For each part, seconds of one micro-batch's forward, with its all-reduces and gathers."""
        return [p.forward + p.forward_sums + p.forward_exchange + p.forward_dispatch for p in self.parts]

    @cached_property
    def backward(self) -> list[float]:
        """For each part, seconds of one micro-batch's backward, with its all-reduces and gathers."""
        return [p.backward + p.backward_sums + p.backward_exchange + p.backward_dispatch for p in self.parts]

    @cached_property
    def busy(self) -> list[float]:
        """For each stage, seconds of one micro-batch."""
        return [sum(self.forward[s :: self.stages]) + sum(self.backward[s :: self.stages]) for s in range(self.stages)]

    @cached_property
    def activations(self) -> list[float]:
        """For each stage, bytes at its fullest moment."""
        peaks = []
        for s in range(self.stages):
            parts = self.parts[s :: self.stages]
            flying = in_flight(self.stages, self.microbatches, self.chunks, s)
            peaks.append(flying * sum(p.held for p in parts) + max(p.working for p in parts))
        return peaks

    @cached_property
    def least(self) -> float:
        """A lower bound of `seconds`, computed without a replay."""
        return least(self.stages, self.microbatches, self.chunks, self.forward, self.backward)

    @cached_property
    def seconds(self) -> float:
        """Seconds from the first start to the last end of all micro-batches."""
        if not self.blocking:
            return self._makespan(self.forward, self.backward, self.transfers)
        forward = [f + t for f, t in zip(self.forward, [*self.transfers, 0.0], strict=True)]
        backward = [b + t for b, t in zip(self.backward, [0.0, *self.transfers], strict=True)]
        return self._makespan(forward, backward, [0.0] * len(self.transfers))

    @cached_property
    def seconds_without_transfers(self) -> float:
        """Seconds from the first start to the last end, if messages between stages took no time."""
        return self._makespan(self.forward, self.backward, [0.0] * len(self.transfers))

    def _makespan(self, forward: list[float], backward: list[float], transfers: list[float]) -> float:
        return makespan(self.stages, self.microbatches, self.chunks, forward, backward, transfers)


class Pricing:
    """What candidates cost.

    layers: of the model.
    machines: the model is trained on them.
    batch: examples of a step, on all replicas together.
    software: what a training system does; None: what is usual today.
    states: bytes of weights, gradients and optimizer state; None: Adam in mixed precision.

    With layers that were made for a context axis, an example is a rank's part of a sequence, and `data` counts ranks of
    that axis, too, because they have the same weights, like replicas, and add up their gradients. The ranks of an
    expert axis are neighbours on the data axis.
    """

    def __init__(
        self,
        layers: Layers,
        machines: Machines,
        batch: int,
        software: Software | None = None,
        states: States | None = None,
    ) -> None:
        self.layers, self.machines, self.batch, self.software = layers, machines, batch, software or Software()
        self.states = states or States()
        self.pipelined: Callable[[Candidate], Pipelined] = lru_cache(None)(self._pipelined)
        self.cut: Callable[[int, int], list[int] | None] = lru_cache(None)(self.sizes)

    def pipeline(self, c: Candidate) -> Pipelined:
        """Return the candidate's pipeline, which is computed once for all its ZeRO stages.

        c: a candidate whose layers can be cut so.
        """
        return self.pipelined(Candidate(c.data, c.pipeline, c.tensor, c.microbatch, c.recompute, 0, c.chunks))

    def memory(self, c: Candidate) -> dict[str, float]:
        """Return bytes by kind on the fullest stage's GPUs.

        c: a candidate whose layers can be cut so.
        """
        run, d, gpu = self.pipeline(c), c.data, self.machines.gpu
        buckets = self.software.buckets if c.pipeline == 1 and c.zero == 0 and d > 1 else 0
        own = self.states
        gradient = own.gradient if self.software.gradients is None else self.software.gradients
        states = [
            self._held(c, run, s, weight=own.weight, gradient=gradient + buckets, state=own.state)
            for s in range(c.pipeline)
        ]
        # In ZeRO's stage 3, also the weights of a whole layer: the one whose tensors are in use, with the next in
        # flight. Where weights come from the host, also this layer's gradient, until it has been copied there.
        of_layer = own.gathered if c.zero == 3 or c.offload == "parameters" else 0.0
        of_layer += gradient if c.offload == "parameters" else 0.0
        gathered = [of_layer * n for n in run.largest]
        weight = 0.0 if c.offload == "parameters" else own.weight
        frozen = [weight * n / (d if c.zero == 3 else 1) for n in run.frozen]
        held_by = [sum(states[s].values()) + frozen[s] + run.activations[s] + gathered[s] for s in range(c.pipeline)]
        s = max(range(c.pipeline), key=lambda s: held_by[s])
        nbytes_of = states[s]
        nbytes_of |= {"frozen parameters": frozen[s]} if frozen[s] else {}
        nbytes_of |= {"activations": run.activations[s], "context and workspaces": gpu.context + 2 * gpu.workspace}
        return nbytes_of | ({"gathered": gathered[s]} if gathered[s] else {})

    def _held(self, c: Candidate, run: Pipelined, s: int, **bytes_of: float) -> dict[str, float]:
        """Return the bytes by kind of a stage's states on the GPU, from the bytes of a parameter."""
        kinds = _by_kind(c, run, s, **bytes_of)
        return {kind: nbytes for kind, nbytes in kinds.items() if kind not in ON_HOST[c.offload]}

    def host(self, c: Candidate) -> float:
        """Return the bytes that a node's memory holds for its GPUs, of the fullest stage.

        c: a candidate whose layers can be cut so.
        """
        run, own = self.pipeline(c), self.states
        frozen = own.weight / (c.data if c.zero == 3 else 1) if c.offload == "parameters" else 0.0
        bytes_of = {"weight": own.weight, "gradient": own.gradient, "state": own.state}
        states = [_by_kind(c, run, s, **bytes_of) for s in range(c.pipeline)]
        on_host = [sum(kinds[kind] for kind in ON_HOST[c.offload]) for kinds in states]
        most = max(nbytes + frozen * still for nbytes, still in zip(on_host, run.frozen, strict=True))
        return most * min(self.machines.per_node, self.machines.gpus)

    def wrapping(self, c: Candidate) -> float:
        """Return the bytes on a GPU while weights are sharded that were all put on each GPU first.

        c: a candidate of ZeRO-3 whose layers can be cut so.

        Programs that make the model on the host or without data, and put only shards on GPUs, do not need so many.
        """
        run = self.pipeline(c)
        whole = [n + still for n, still in zip(run.parameters, run.frozen, strict=True)]
        shared = [run.share(s, c.data) + still / c.data for s, still in enumerate(run.frozen)]
        return self.states.weight * max(n + share for n, share in zip(whole, shared, strict=True))

    def fits(self, c: Candidate) -> bool:
        """Return whether the fullest stage's GPUs have enough memory.

        c: a candidate whose layers can be cut so.
        """
        return sum(self.memory(c).values()) <= self.machines.gpu.memory

    def least(self, c: Candidate) -> float:
        """Return a lower bound of the seconds that `price` returns, without a replay.

        c: a candidate whose layers can be cut so.
        """
        run = self.pipeline(c)
        return run.least + self._tied(run) + self._data(c, run) + self._host(c, run) + self._update(c, run)

    def price(self, c: Candidate) -> Plan:
        """Return the candidate with its memory and its seconds by part.

        c: a candidate whose layers can be cut so.
        """
        run = self.pipeline(c)
        s = max(range(c.pipeline), key=lambda s: run.busy[s])
        sums = sum(p.forward_sums + p.backward_sums for p in run.parts[s :: c.pipeline])
        exchange = sum(p.forward_exchange + p.backward_exchange for p in run.parts[s :: c.pipeline])
        dispatch = sum(p.forward_dispatch + p.backward_dispatch for p in run.parts[s :: c.pipeline])
        whole = run.seconds_without_transfers
        m = run.microbatches
        seconds = Seconds(
            compute=m * (run.busy[s] - sums - exchange - dispatch),
            bubble=_rest(whole - m * run.busy[s], whole),
            tensor=m * sums,
            context=m * exchange,
            expert=m * dispatch,
            pipeline=_rest(run.seconds - whole, whole) + self._tied(run),
            data=self._data(c, run),
            host=self._host(c, run),
            update=self._update(c, run),
        )
        flops = m * sum(p.flops for p in run.parts) / c.pipeline
        wrapping = self.wrapping(c) if c.zero == 3 and c.offload != "parameters" else 0.0
        return Plan(c, m, self.memory(c), seconds, flops, self.host(c), wrapping)

    def total(self, c: Candidate) -> float:
        """Return the seconds of a step; `price` gives the parts, which takes one more replay.

        c: a candidate whose layers can be cut so.
        """
        run = self.pipeline(c)
        return run.seconds + self._tied(run) + self._data(c, run) + self._host(c, run) + self._update(c, run)

    def _tied(self, run: Pipelined) -> float:
        """Return the seconds in which the first and the last stage add up the gradients of what both hold."""
        stride = self.machines.per_node if self.machines.gpus > self.machines.per_node else 1
        return self.machines.sums("data", (2, 1, stride), self.states.gradient * run.tied)

    def _data(self, c: Candidate, run: Pipelined) -> float:
        """Return the seconds by which messages between replicas lengthen a step.

        Nothing hides what one layer sends: the last gradients, and ZeRO's first weights. What is hidden slows computing
        down by `Software.slowed` of its time, because the kernels that send take a part of the multiprocessors.
        Stages 0 and 1 of ZeRO add up 2 bytes per parameter once a step, while the last micro-batch's backward runs.
        Half of stage 1's, the gather of new weights, comes after the update. Stage 2 has no room for whole gradients:
        it scatters each micro-batch's, during backward. Stage 3 gathers weights for each forward and each backward,
        too.
        """
        if c.data == 1:
            return 0.0
        s = max(range(c.pipeline), key=lambda s: run.parameters[s])
        m, experts = run.microbatches, run.of_experts[s]
        rest = run.parameters[s] - experts

        def sums(bytes_of: float, times: int = 1, one_ring: bool = False, frozen: int = 0) -> float:
            """Return the seconds of all-reduces of all parameters, in so many parts."""
            return times * (
                self.machines.sums("data", c.grid, bytes_of * (rest + frozen) / times, one_ring)
                + self._over_equal_experts(c, run, bytes_of * experts / times, one_ring)
            )

        layer = min(1.0, run.largest[s] / max(1, run.parameters[s]))  # share of the traffic at an end
        backward = sum(run.backward[s :: c.pipeline])
        overlap = self.software.overlap if c.pipeline == 1 else self.software.pipeline_overlap
        if c.zero == 0:
            whole = sums(self.states.gradient)
            return self._exposed(whole, backward, whole * layer) if overlap else whole
        if c.zero < 3:
            half = sums(self.states.gradient) / 2
            if c.zero == 1:
                return half + (self._exposed(half, backward, half * layer) if overlap else half)
            return half + self._exposed(m * half, m * backward, half * layer)
        count, one_ring = run.layers[s], not self.software.whole_node
        half = sums(self.states.gradient, count, one_ring) / 2
        gather = sums(self.states.gathered, count, one_ring, run.frozen[s]) / 2
        return self._exposed(m * (2 * gather + half), m * run.busy[s], (gather + half) * layer)

    def _over_equal_experts(self, c: Candidate, run: Pipelined, nbytes: float, one_ring: bool) -> float:
        """Return the seconds of an all-reduce over the ranks of the data axis that have the same experts."""
        e = run.experts_over
        return self.machines.sum_over(c.data // e, c.tensor * e, nbytes, one_ring)

    def _exposed(self, sending: float, computing: float, least: float) -> float:
        """Return the seconds by which messages lengthen the computing beside which they are sent."""
        slowed = self.software.slowed * min(sending, computing)
        return max(sending - computing, slowed, least)

    def _host(self, c: Candidate, run: Pipelined) -> float:
        """Return the seconds of copies to and from the host that nothing hides.

        Gradients go to the host while the last micro-batch's backward runs, the last layer's after it; new weights come
        back after the update. Where weights are on the host, they come for each forward and each backward, and each
        micro-batch's gradients go, beside the computing.
        """
        if c.offload == "none":
            return 0.0
        s = max(range(c.pipeline), key=lambda s: run.parameters[s] + run.frozen[s])
        bandwidth = find_link(self.machines.gpu.host_link).bandwidth
        own, sizes = self.states, run.parameters[s] + run.frozen[s]
        layer = min(1.0, run.largest[s] / max(1, sizes))
        trained = run.parameters[s]
        gradients = own.gradient * (run.share(s, c.data) if c.zero >= 2 else trained) / bandwidth
        if c.offload == "optimizer":
            weights = own.gathered * (run.share(s, c.data) if c.zero >= 1 else trained) / bandwidth
            return weights + max(gradients - sum(run.backward[s :: c.pipeline]), gradients * layer)
        shared = run.share(s, c.data) + run.frozen[s] / c.data
        weights = own.gathered * (shared if c.zero == 3 else sizes) / bandwidth
        m, copies = run.microbatches, 2 * weights + gradients
        return max(m * (copies - run.busy[s]), copies * layer)

    def _update(self, c: Candidate, run: Pipelined) -> float:
        gpu = self.machines.gpu
        most = max(run.share(s, c.data) if c.zero >= 1 else run.parameters[s] for s in range(c.pipeline))
        own = self.states.update * most
        if c.offload != "none":  # by the host, for all GPUs of the node
            return own * min(self.machines.per_node, self.machines.gpus) / HOST_MEMORY
        return own / (gpu.bandwidth * gpu.memory_efficiency)

    def sizes(self, tensor: int, parts: int) -> list[int] | None:
        """Return how many layers each part of the model has, or None where it cannot be cut so.

        tensor: ranks of the tensor axis.
        parts: of the model.
        """
        if parts > len(self.layers.parts(tensor, 1)):
            return None
        if self.software.equal:
            return cut_equally(self.layers.structures(tensor), parts)
        return cut(self.layers.costs(tensor, 1), parts)

    def _pipelined(self, c: Candidate) -> Pipelined:
        costs, known = self.layers.costs(c.tensor, c.microbatch), self.layers.parts(c.tensor, 1)
        seconds = lru_cache(None)(lambda nbytes: self.machines.sums("tensor", c.grid, nbytes))
        context = self.layers.ranks_of_a_sequence
        gather = lru_cache(None)(lambda nbytes: self.machines.gather(context, c.tensor, nbytes))
        over = self.layers.ranks_of_experts
        dispatch = lru_cache(None)(lambda nbytes: self.machines.all_to_all(over, c.tensor, nbytes))
        parts, begin = [], 0
        held: list[dict[int, int]] = [{} for _ in range(c.pipeline)]
        frozen: list[dict[int, int]] = [{} for _ in range(c.pipeline)]
        layers, largest = [0] * c.pipeline, [0] * c.pipeline
        sizes = self.cut(c.tensor, c.pipeline * c.chunks)
        assert sizes is not None
        for i, size in enumerate(sizes):
            parts.append(part(costs[begin : begin + size], c.recompute, seconds, gather, dispatch))
            s = i % c.pipeline
            for layer in known[begin : begin + size]:
                held[s] |= layer.parameters
                frozen[s] |= layer.frozen
                own_size = sum(layer.parameters.values()) + sum(layer.frozen.values())
                layers[s], largest[s] = layers[s] + (own_size > 0), max(largest[s], own_size)
            begin += size
        transfers = [self.machines.transfer(c.grid, p.output, self.software.split_transfers) for p in parts[:-1]]
        own = [sum(stage.values()) for stage in held]
        everything: dict[int, int] = {}
        for stage in held:
            everything |= stage
        m = self.batch // c.data // c.microbatch
        tied = sum(own) - sum(everything.values())
        still = [sum(stage.values()) for stage in frozen]
        experts = self.layers.of_experts(c.tensor)
        of_experts = [sum(n for key, n in stage.items() if key in experts) for stage in held]
        return Pipelined(
            c.pipeline, m, c.chunks, parts, transfers, self.software.blocking, own, still, layers, largest, tied,
            of_experts, over,
        )  # fmt: skip


def _by_kind(c: Candidate, run: Pipelined, s: int, **bytes_of: float) -> dict[str, float]:
    """Return the bytes by kind of a stage's states, from the bytes of a parameter."""
    experts = run.of_experts[s]
    rest = held(run.parameters[s] - experts, c.zero, c.data, **bytes_of)
    theirs = held(experts, c.zero, c.data // run.experts_over, **bytes_of)
    return {kind: nbytes + theirs[kind] for kind, nbytes in rest.items()}


def _rest(seconds: float, of: float) -> float:
    """Return `seconds`, or 0 where they are only the rounding error of a difference of equal numbers."""
    return seconds if seconds > 1e-9 * of else 0.0
