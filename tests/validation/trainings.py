"""Compare `mpcourse plan` with published trainings (trainings.toml): `python -m tests.validation trainings`.

A ratio is predicted / published speed: above 1, the plan is too fast. Publications whose role is `look` may be learnt
from; `--role judge` shows the others, by which the planner is judged.
"""

import csv
import re
import statistics
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch

from mpcourse.common.errors import UserError
from mpcourse.course.bench.record import Record
from mpcourse.plan import Asked, Input, Layers, Machines, Plan, Pricing, search
from mpcourse.plan.candidate import RECOMPUTATIONS
from mpcourse.plan.configuration import ADAPTED, Configuration
from mpcourse.plan.misses import KINDS, MISSES, Miss, kind_of
from mpcourse.plan.states import states
from mpcourse.predict.loss import UsualLoss
from mpcourse.virtual import GPU, GPUS

FILE = Path(__file__).with_name("trainings.toml")
SPEEDS = ("tokens_s_gpu", "tflops_gpu", "mfu", "step_s", "samples_s")
RATIOS = Path(__file__).with_name("trainings_ratios.csv")  # of all rows, written by --page
COLUMNS = ("publication", "row", "kind", "ratio", "why")  # ratio: predicted / published speed; why: there is none
CHUNKS = range(1, 9)  # where a row does not say how many parts a stage has, the fastest
ZEROS = (0, 1)  # where a row does not say what is sharded, the faster: Megatron-LM's distributed optimizer, or nothing
# What the file calls a precision and an optimizer, and what the planner does. "fp16 mixed" is torch's autocast or the
# like of it. A training in mixed bf16 keeps 16 bytes of a parameter, whether its masters are in float32 or its weights.
PRECISION = {
    "fp32": "float32", "float32": "float32", "fp16 mixed": "autocast", "bf16 mixed": "mixed", "pure bf16": "half",
    "pure bf16 with float32 masters": "mixed",
}  # fmt: skip
OPTIMIZER = {"Adam": "adam", "AdamW": "adamw", "SGD": "momentum", "AdamW 8-bit (torchao)": "adamw8bit"}
OPTIMIZER |= {name: "adamw8bit" for name in ("AdamW 8-bit (bitsandbytes)", "Adam 8-bit (bitsandbytes)")}
OFFLOAD = {
    "none": "none", "parameters": "parameters", "parameters and optimizer": "parameters",
    "parameters, gradients and optimizer": "parameters", "DeepSpeed ZeRO-3, parameters and optimizer": "parameters",
}  # fmt: skip
OPTIMIZER["AdamW on the CPU"] = "adamw"  # with an offload
# "lora rank R on ...", as a row's `trained` may end.
ADAPTERS = {
    "all linear layers": ADAPTED, "q, v": ("q", "v"), "query_key_value": ("q", "k", "v"),
    "q, v, output and feed-forward": ("q", "v", "out", "gate", "up", "down"),
}  # fmt: skip
# torch's first choice on Hopper today. Trainings up to this year had FlashAttention-2, unless a row says otherwise.
CUDNN_SINCE = 2026


@dataclass(frozen=True)
class Outcome:
    """What became of a row: its ratio and its plan, or why it is not priced.

    ratio: predicted / published speed; None also where no speed was published.
    """

    row: dict[str, Any]
    ratio: float | None
    plan: Plan | None
    why: str = ""

    @property
    def memory(self) -> float | None:
        """Predicted / published peak of memory, without what CUDA itself takes; None where none was published."""
        if self.plan is None or "memory_gib" not in self.row:
            return None
        own = self.plan.nbytes - self.plan.memory["context and workspaces"]
        return own / (self.row["memory_gib"] * 2**30)


def publications(role: str) -> list[dict[str, Any]]:
    """Return the publications of a role, each with its rows whole.

    role: "look" or "judge".
    """
    data = tomllib.loads(FILE.read_text(encoding="utf-8"))
    found = [p for p in data["publication"] if p["role"] == role]
    for p in found:
        p["rows"] = [{**p.get("all", {}), **row} for row in p["row"]]
        for row in p["rows"]:
            row["sizes"], row["year"] = data["model"].get(row["model"], {}), p["year"]
    return found


def outcome(row: dict[str, Any]) -> Outcome:
    """Predict a row.

    row: whole, with the sizes of its model.
    """
    if why := _not_priced(row):
        return Outcome(row, None, None, why)
    tensor, pipeline = row.get("tensor", 1), row.get("pipeline", 1)
    data = row["gpus"] // (tensor * pipeline)
    try:
        machines = Machines.named(row["gpus"], row["gpu"], min(row.get("per_node", 8), row["gpus"]))
        if "between_gb_s" in row and machines.between is not None:
            card = replace(machines.between, bandwidth=row["between_gb_s"] * 1e9)
            machines = replace(machines, between=card)
        if "card_gib" in row:
            card_gpu = replace(machines.gpu, memory=row["card_gib"] * 2**30, bandwidth=row["card_gb_s"] * 1e9)
            machines = replace(machines, gpu=card_gpu)
        chunks = (row["chunks"],) if "chunks" in row else CHUNKS
        stated = row.get("recompute", "unknown")
        recompute = (stated,) if stated in RECOMPUTATIONS else RECOMPUTATIONS
        sizes = (row["microbatch"],) if "microbatch" in row else None
        zeros = (row["zero"],) if "zero" in row else ZEROS
        offload = OFFLOAD[row.get("offload", "none")]
        asked = Asked(data, pipeline, tensor, chunks, recompute, zeros, sizes, offload)
        precision, optimizer = PRECISION[row.get("precision", "bf16 mixed")], OPTIMIZER[row.get("optimizer", "AdamW")]
        cudnn = row.get("attention") in ("cuDNN flash", "fused") or row["year"] >= CUDNN_SINCE
        layers = _layers(_configuration(row), machines.gpu, row["length"], precision, cudnn)
        before = torch.backends.cuda.cudnn_sdp_enabled()
        torch.backends.cuda.enable_cudnn_sdp(cudnn)
        try:
            plans = search(Pricing(layers, machines, row["batch"], None, states(precision, optimizer)), asked, best=1)
        finally:
            torch.backends.cuda.enable_cudnn_sdp(before)
    except UserError as error:
        return Outcome(row, None, None, str(error))
    if not plans.best:
        assert plans.smallest is not None
        return Outcome(row, None, plans.smallest, f"does not fit: {plans.smallest.nbytes / 2**30:.0f} GiB")
    return Outcome(row, _ratio(row, plans.best[0]), plans.best[0])


def _not_priced(row: dict[str, Any]) -> str:
    """Return why a plan cannot price a row; "" where it can."""
    sizes = row["sizes"]
    if sizes.get("kind") not in ("decoder", "encoder"):
        return f"a model of kind {sizes.get('kind', 'unknown')}"
    for name, usual in (("context", 1), ("weights", "")):
        if row.get(name, usual) not in (usual, False):
            return f"{name} {row[name]}"
    if row.get("trained", "all") != "all" and _adapters(row) is None:
        return f"trained {row['trained']}"
    for name, of in (("precision", PRECISION), ("optimizer", OPTIMIZER), ("offload", OFFLOAD)):
        if name in row and row[name] not in of:
            return f"{name} {row[name]}"
    stated = row | sizes
    return next((f"{name} is not stated" for name in ("batch", "length", "vocabulary") if name not in stated), "")


def _adapters(row: dict[str, Any]) -> tuple[int, tuple[str, ...]] | None:
    """Return the rank of a row's adapters and the layers that have them; None where all is trained, or unknown."""
    found = re.fullmatch(r"lora rank (\d+) on (.*)", row.get("trained", "all"))
    return (int(found[1]), ADAPTERS[found[2]]) if found and found[2] in ADAPTERS else None


def _configuration(row: dict[str, Any]) -> Configuration:
    sizes, width, heads = row["sizes"], row["sizes"]["width"], row["sizes"]["heads"]
    gated = sizes.get("gated", False)
    return Configuration(
        layers=sizes["layers"], width=width, heads=heads, groups=sizes.get("kv_heads", heads),
        head=sizes.get("head", width // heads), hidden=sizes.get("ffn", 4 * width), vocabulary=sizes["vocabulary"],
        positions=row["length"] if sizes.get("positions") == "learned" else 0, gated=gated,
        causal=sizes["kind"] == "decoder", tied=sizes.get("tied", False), qkv_bias=not gated, bias=not gated,
        sequence_parallel=row.get("sequence_parallel", True), loss=row.get("loss", "float32"),
        lora=(_adapters(row) or (0, ()))[0], adapted=(_adapters(row) or (0, ADAPTED))[1],
    )  # fmt: skip


@lru_cache(8)
def _layers(configuration: Configuration, gpu: GPU, length: int, precision: str, cudnn: bool) -> Layers:
    return Layers(configuration.make, Input((length,), True), gpu, loss=UsualLoss(True), precision=precision)


def _ratio(row: dict[str, Any], plan: Plan) -> float | None:
    if not any(name in row for name in SPEEDS):
        return None
    seconds = plan.seconds.total
    tokens_s = row["batch"] * row["length"] / seconds / row["gpus"]
    if "tokens_s_gpu" in row:
        return tokens_s / row["tokens_s_gpu"]
    if "step_s" in row:
        return row["step_s"] / seconds
    if "samples_s" in row:
        return row["batch"] / seconds / row["samples_s"]
    if "tflops_gpu" in row:
        return plan.rate / 1e12 / row["tflops_gpu"]
    return plan.rate / GPUS[row["gpu"]].float16 / row["mfu"]


def write(page: Path) -> None:
    """Predict all rows of both roles, and write their ratios.

    page: a file, as RATIOS.
    """
    lines = [",".join(COLUMNS)]
    for publication in [*publications("look"), *publications("judge")]:
        for i, row in enumerate(publication["rows"]):
            made = outcome(row)
            ratio = "" if made.ratio is None else f"{made.ratio:.3f}"
            kind = "" if made.plan is None else _kind(row)
            lines.append(f'"{publication["name"]}",{i},{kind},{ratio},{made.why.replace(",", ";")}')
    page.write_text("\n".join([*lines, ""]), encoding="utf-8")


def _kind(row: dict[str, Any]) -> str:
    with torch.device("meta"):
        count = sum(p.numel() for p in _configuration(row).make().parameters())
    return kind_of(count, row["gpus"], min(row.get("per_node", 8), row["gpus"]))


def written() -> list[dict[str, str]]:
    """Return the rows of RATIOS."""
    with RATIOS.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def misses() -> dict[str, Miss]:
    """Return, for each kind of plan, what published seconds are of predicted ones, over all rows of RATIOS.

    Each publication counts alike, however many rows it has.
    """
    found: dict[str, dict[str, list[float]]] = {kind: {} for kind in KINDS}
    for row in written():
        if row["ratio"]:
            found[row["kind"]].setdefault(row["publication"], []).append(float(row["ratio"]))
    return {kind: _spread(kind, list(of.values())) for kind, of in found.items()}


def _spread(kind: str, groups: list[list[float]]) -> Miss:
    weighted = sorted((ratio, 1 / len(ratios) / len(groups)) for ratios in groups for ratio in ratios)
    least, median, most = (
        next(ratio for i, (ratio, _) in enumerate(weighted) if sum(w for _, w in weighted[: i + 1]) >= part - 1e-9)
        for part in (0.1, 0.5, 0.9)
    )
    return Miss(MISSES[kind].kind, len(groups), len(weighted), round(least, 2), round(median, 2), round(most, 2))


def trainings(role: str = "look") -> Iterator[Record]:
    """Compare each publication of a role with the planner.

    role: "look" or "judge"; "all": what each kind of plan missed on all rows, as mpcourse/plan/misses.py has it.
    """
    if role == "all":
        for name, miss in misses().items():
            what = f"{name}: {miss.rows} rows of {miss.publications} publications, published / predicted seconds"
            yield Record(f"{what}: median; four of five", [miss.median, miss.least, miss.most], "")
        return
    medians = []
    for publication in publications(role):
        outcomes = [outcome(row) for row in publication["rows"]]
        ratios = [o.ratio for o in outcomes if o.ratio is not None]
        reasons: dict[str, int] = {}
        for o in outcomes:
            if o.why:
                reasons[o.why] = reasons.get(o.why, 0) + 1
        what = f"{publication['name']}: {len(ratios)} of {len(outcomes)} rows priced"
        if ratios:
            medians.append(statistics.median(ratios))
            yield Record(f"{what}, median of predicted / published", [medians[-1]], "")
            yield Record(f"{publication['name']}: least and most", [min(ratios), max(ratios)], "")
        for why, count in sorted(reasons.items(), key=lambda item: -item[1])[:6]:
            yield Record(f"{publication['name']}: not priced, {why}", [count], "rows")
    if medians:
        yield Record("median of the publications' medians", [statistics.median(medians)], "")
