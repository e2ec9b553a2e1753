"""Memory and time of a training step of a person's own model, on virtual GPUs, before real ones are rented."""

from mpcourse.predict.load import built, find_maker
from mpcourse.predict.show import show
from mpcourse.predict.step import OPTIMIZERS, Prediction, predict, train_step

__all__ = ["OPTIMIZERS", "Prediction", "built", "find_maker", "predict", "show", "train_step"]
