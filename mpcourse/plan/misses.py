"""What published trainings took, in parts of what this planner predicts, by the kind of the plan.

All rows that could be priced of the publications in tests/validation/trainings.toml count, each publication alike;
tests/validation/trainings_ratios.csv has each row's ratio. Nothing was fitted to them: a plan is predicted without what
production loses, and this is what that came to.
"""

from dataclasses import dataclass

SMALL = 1e9  # parameters
KINDS = ("small", "one node", "many nodes")


@dataclass(frozen=True)
class Miss:
    """Published seconds in parts of the predicted ones.

    kind: of the trainings, in words.
    publications, rows: how many there are.
    least, most: four of five lie between them.
    median: half lie above it.
    """

    kind: str
    publications: int
    rows: int
    least: float
    median: float
    most: float


MISSES = {
    "small": Miss("fewer than a billion parameters", 10, 254, 0.81, 1.3, 1.98),
    "one node": Miss("one node", 12, 121, 0.83, 1.09, 1.56),
    "many nodes": Miss("several nodes", 13, 162, 0.9, 1.15, 1.72),
}


def kind_of(parameters: int, gpus: int, per_node: int) -> str:
    """Return the kind of a plan, one of KINDS.

    parameters: of the whole model.
    gpus: in all.
    per_node: GPUs of a node.
    """
    return "small" if parameters < SMALL else "one node" if gpus <= per_node else "many nodes"
