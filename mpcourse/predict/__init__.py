"""Memory and time of a training step of a user's own model, on virtual GPUs, before real ones are rented.

    from mpcourse.models import ResNet50
    from mpcourse.predict import predict, show

    show(predict(ResNet50, [32, 3, 224, 224], "A100-SXM4"))

`mpcourse predict model.py:make_model --batch 32 3 224 224 --gpu A100-SXM4` does the same.
"""

from mpcourse.predict.load import beside, built, find_maker
from mpcourse.predict.show import show
from mpcourse.predict.step import OPTIMIZERS, Prediction, predict, train_step

__all__ = ["OPTIMIZERS", "Prediction", "beside", "built", "find_maker", "predict", "show", "train_step"]
