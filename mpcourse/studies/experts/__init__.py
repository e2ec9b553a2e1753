"""A mixture of experts beside a dense model that costs a token as much: what was trained, and what came of it."""

from mpcourse.studies.experts.shipped import Trained, shipped_experts
from mpcourse.studies.experts.study import EVERY, EXPERTS, SEEDS, SEQUENCES, STEPS, WAYS

__all__ = ["EVERY", "EXPERTS", "SEEDS", "SEQUENCES", "STEPS", "WAYS", "Trained", "shipped_experts"]
