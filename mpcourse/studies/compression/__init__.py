"""Gradients that are compressed in different ways: what was trained, and what came of it."""

from mpcourse.studies.compression.shipped import Trained, shipped_compression
from mpcourse.studies.compression.study import BATCH, RATES, REPLICAS, SEEDS, STEPS, WAYS, WIDTHS

__all__ = ["BATCH", "RATES", "REPLICAS", "SEEDS", "STEPS", "WAYS", "WIDTHS", "Trained", "shipped_compression"]
