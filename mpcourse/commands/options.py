"""Options of longer commands; without what these do, which imports torch."""

import argparse


def add_plan(parser: argparse.ArgumentParser) -> None:
    """Of `mpcourse plan`."""
    parser.add_argument(
        "maker", metavar="FILE:FUNCTION",
        help="model.py:make_model, which takes the communicator of the tensor axis, comm, or nothing, and returns an "
        "nn.Sequential of layers",
    )  # fmt: skip
    parser.add_argument("--gpus", type=int, required=True, metavar="N", help="how many, on all nodes")
    parser.add_argument("--gpu", default="A100-SXM4", metavar="NAME", help="A100-SXM4; an unknown name lists them")
    parser.add_argument("--batch", type=int, required=True, metavar="N", help="examples of a step, all replicas'")
    parser.add_argument("--length", type=int, metavar="N", help="an example is so many tokens (2048)")
    parser.add_argument("--input", type=int, nargs="+", metavar="N", help="instead: an example is floats of this shape")
    parser.add_argument("--gpus-per-node", type=int, default=8, metavar="N", help="8")
    parser.add_argument("--inside", metavar="LINK", help="between GPUs of a node (the NVLink that such GPUs have)")
    parser.add_argument("--between", default="InfiniBand HDR", metavar="LINK", help="each GPU's card (InfiniBand HDR)")
    for axis in ("data", "pipeline", "tensor"):
        parser.add_argument(f"--{axis}", type=int, metavar="N", help=f"only grids whose {axis} axis has this size")
    parser.add_argument(
        "--chunks", type=int, nargs="+", default=[1], metavar="N", help="interleaved 1F1B: parts a stage may have (1)"
    )
    parser.add_argument("--json", action="store_true", help="as JSON, in bytes and seconds")


def add_predict(parser: argparse.ArgumentParser) -> None:
    """Of `mpcourse predict`."""
    parser.add_argument("maker", metavar="FILE:FUNCTION", help="model.py:make_model, which returns an nn.Module")
    parser.add_argument("--batch", type=int, nargs="+", required=True, metavar="N", help="shape of the input")
    parser.add_argument("--gpu", default="Tesla P100-SXM2", metavar="NAME", help="an unknown name lists what there is")
    parser.add_argument("--gpus", type=int, default=1, metavar="N", help="how many of them")
    parser.add_argument("--link", default="NVLink 1", metavar="NAME", help="between two GPUs; likewise")
    parser.add_argument("--cut", default="", metavar="NAME,...", help="children after which the model is cut")
    parser.add_argument("--optimizer", choices=["sgd", "momentum", "adam", "adamw"], default="sgd")
    parser.add_argument("--tokens", type=int, metavar="VOCABULARY", help="the input is integers below this")
    parser.add_argument("--zero", type=int, default=0, metavar="STAGE", help="of ZeRO, 1, 2 or 3: what ranks share (0)")
    parser.add_argument("--ranks", type=int, default=1, metavar="N", help="how many share, with a GPU each")
    parser.add_argument("--json", action="store_true", help="as JSON, in bytes and seconds")
