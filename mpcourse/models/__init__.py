"""The networks of the lessons."""

from mpcourse.models.resnet import ResNet50
from mpcourse.models.small import conv_net, mlp, mnist_cnn, transformer
from mpcourse.models.unet import UNet3D
from mpcourse.models.vgg import VGG16

__all__ = ["VGG16", "ResNet50", "UNet3D", "conv_net", "mlp", "mnist_cnn", "transformer"]
