"""Compare `mpcourse plan` with published trainings (trainings.toml): `python -m tests.validation trainings`.

A ratio is predicted / published speed: above 1, the plan is too fast. Publications whose role is `look` may be learnt
from; `--role judge` shows the others, by which the planner is judged.
"""

import statistics
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from mpcourse.common.errors import UserError
from mpcourse.course.bench.record import Record
from mpcourse.plan import Asked, Input, Layers, Machines, Plan, Pricing, search
from mpcourse.plan.candidate import RECOMPUTATIONS
from mpcourse.plan.configuration import Configuration
from mpcourse.predict.loss import UsualLoss
from mpcourse.virtual import GPUS
from mpcourse.virtual.specs import find_gpu

FILE = Path(__file__).with_name("trainings.toml")
SPEEDS = ("tokens_s_gpu", "tflops_gpu", "mfu", "step_s", "samples_s")
CHUNKS = range(1, 9)  # where a row does not say how many parts a stage has, the fastest


@dataclass(frozen=True)
class Outcome:
    """What became of a row: its ratio and its plan, or why it is not priced."""

    row: dict[str, Any]
    ratio: float | None
    plan: Plan | None
    why: str = ""


def publications(role: str) -> list[dict[str, Any]]:
    """Return the publications of a role, each with its rows whole.

    role: "look" or "judge".
    """
    data = tomllib.loads(FILE.read_text(encoding="utf-8"))
    found = [p for p in data["publication"] if p["role"] == role]
    for p in found:
        p["rows"] = [{**p.get("all", {}), **row} for row in p["row"]]
        for row in p["rows"]:
            row["sizes"] = data["model"].get(row["model"], {})
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
        chunks = (row["chunks"],) if "chunks" in row else CHUNKS
        stated = row.get("recompute", "unknown")
        recompute = (stated,) if stated in RECOMPUTATIONS else RECOMPUTATIONS
        sizes = (row["microbatch"],) if "microbatch" in row else None
        asked = Asked(data, pipeline, tensor, chunks, recompute, (row.get("zero", 0),), sizes)
        pricing = Pricing(_layers(row["model"], _configuration(row), row["gpu"], row["length"]), machines, row["batch"])
        plans = search(pricing, asked, best=1)
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
    for name, usual in (("context", 1), ("trained", "all"), ("offload", "none"), ("weights", "")):
        if row.get(name, usual) not in (usual, False):
            return f"{name} {row[name]}"
    if "float32" in row.get("precision", "") and "mixed" not in row["precision"] and "pure" not in row["precision"]:
        return "precision float32"
    if not any(name in row for name in SPEEDS):
        return "memory alone"
    stated = row | sizes
    return next((f"{name} is not stated" for name in ("batch", "length", "vocabulary") if name not in stated), "")


def _configuration(row: dict[str, Any]) -> Configuration:
    sizes, width, heads = row["sizes"], row["sizes"]["width"], row["sizes"]["heads"]
    gated = sizes.get("gated", False)
    return Configuration(
        layers=sizes["layers"], width=width, heads=heads, groups=sizes.get("kv_heads", heads),
        head=sizes.get("head", width // heads), hidden=sizes.get("ffn", 4 * width), vocabulary=sizes["vocabulary"],
        positions=row["length"] if sizes.get("positions") == "learned" else 0, gated=gated,
        causal=sizes["kind"] == "decoder", tied=sizes.get("tied", False), qkv_bias=not gated, bias=not gated,
        sequence_parallel=row.get("sequence_parallel", True),
    )  # fmt: skip


@lru_cache(8)
def _layers(name: str, configuration: Configuration, gpu: str, length: int) -> Layers:
    return Layers(configuration.make, Input((length,), True), find_gpu(gpu), loss=UsualLoss(True))


def _ratio(row: dict[str, Any], plan: Plan) -> float:
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


def trainings(role: str = "look") -> Iterator[Record]:
    """Compare each publication of a role with the planner.

    role: "look" or "judge".
    """
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
