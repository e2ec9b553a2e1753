"""Options of longer commands; without what these do, which imports torch."""

import argparse
from pathlib import Path


def add_grade(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `mpcourse grade`."""
    parser.add_argument(
        "submissions",
        metavar="SUBMISSIONS",
        type=Path,
        help="holds a folder a student, with eNN_name.py anywhere below",
    )
    parser.add_argument("--csv", type=Path, metavar="FILE", help="a row a student")
    parser.add_argument("--html", type=Path, metavar="FILE", help="a page with tables and all verdicts")
    parser.add_argument("--junit", type=Path, metavar="FOLDER", help="a JUnit file a student")
    parser.add_argument("--only", nargs="+", default=[], metavar="EXERCISE", help="e05_exchange, ... (all)")
    parser.add_argument("--jobs", type=int, metavar="N", help="answers that are checked at once (one a core)")
    parser.add_argument("--memory", type=float, default=2.0, metavar="GIB", help="each process may take more (2)")
    parser.add_argument("--similar", type=float, default=0.8, metavar="SHARE", help="list answers so much alike (0.8)")
    parser.add_argument(
        "--state", type=Path, default=Path("grades.state.json"), metavar="FILE",
        help="keeps each verdict as soon as it is there, so that a run can go on (grades.state.json)",
    )  # fmt: skip
    parser.add_argument("--no-sandbox", action="store_true", help="answers may do what you may; in a container only")


def add_export(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `mpcourse export`."""
    parser.add_argument("format", choices=["gradescope", "classroom", "nbgrader"])
    parser.add_argument("folder", metavar="DIR", type=Path, help="empty, or not there yet")
    parser.add_argument("--only", nargs="+", default=[], metavar="EXERCISE", help="e05_exchange, ... (all)")
    parser.add_argument("--wheel", type=Path, metavar="FILE", help="mpcourse's wheel, which the autograder installs")
    parser.add_argument(
        "--torch-index", metavar="URL",
        help="of gradescope and classroom: the package index that torch comes from, as PyTorch's selector shows it for "
        "CPU (pip's own, whose build for CUDA takes several gigabytes)",
    )  # fmt: skip


def add_plan(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `mpcourse plan`."""
    parser.add_argument(
        "maker", metavar="FILE:FUNCTION", nargs="?",
        help="model.py:make_model, which takes the communicator of the tensor axis, comm, or nothing, and returns an "
        "nn.Module",
    )  # fmt: skip
    parser.add_argument(
        "--model", metavar="NAME",
        help="instead: a transformer by its configuration, as gpt2-xl (an unknown name lists some), or the path of a "
        "config.json of the library transformers",
    )  # fmt: skip
    parser.add_argument(
        "--loss", metavar="NAME", help="of --model: float32, fused (in place, in half precision), chunked (float32)"
    )
    parser.add_argument(
        "--lora", nargs="+", metavar="RANK LAYER", default=[],
        help="of --model: train only adapters of this rank, on these layers of a block: q k v out gate up down (all)",
    )  # fmt: skip
    parser.add_argument("--gpus", type=int, required=True, metavar="N", help="how many, on all nodes")
    parser.add_argument("--gpu", default="A100-SXM4", metavar="NAME", help="A100-SXM4; an unknown name lists them")
    parser.add_argument("--batch", type=int, required=True, metavar="N", help="examples of a step, all replicas'")
    parser.add_argument("--length", type=int, metavar="N", help="an example is so many tokens (2048)")
    parser.add_argument("--input", type=int, nargs="+", metavar="N", help="instead: an example is floats of this shape")
    parser.add_argument(
        "--inputs", metavar="FUNCTION",
        help="instead: a function of the same file, which takes a number of examples and returns what the model takes, "
        "a tensor, a tuple, or a dict by names",
    )  # fmt: skip
    parser.add_argument(
        "--blocks", nargs="+", default=[], metavar="NAME",
        help="modules, or lists of them, between which a pipeline may cut (repeated modules are found)",
    )  # fmt: skip
    parser.add_argument(
        "--precision", default="mixed", metavar="NAME",
        help="mixed: half precision with float32 masters; autocast, half, float32 (mixed)",
    )  # fmt: skip
    parser.add_argument("--optimizer", default="adamw", metavar="NAME", help="sgd, momentum, adam, adamw, adamw8bit")
    parser.add_argument(
        "--gradients", metavar="NAME", help="half or float32: in which they add up and are sent (as the weights are)"
    )
    parser.add_argument(
        "--offload", default="none", metavar="NAME",
        help="what the host's memory holds: optimizer, its state; parameters, also weights and gradients (none)",
    )  # fmt: skip
    parser.add_argument("--gpus-per-node", type=int, default=8, metavar="N", help="8")
    parser.add_argument("--inside", metavar="LINK", help="between GPUs of a node (the NVLink that such GPUs have)")
    parser.add_argument("--between", default="InfiniBand HDR", metavar="LINK", help="each GPU's card (InfiniBand HDR)")
    for axis in ("data", "pipeline", "tensor"):
        parser.add_argument(f"--{axis}", type=int, metavar="N", help=f"only grids whose {axis} axis has this size")
    parser.add_argument(
        "--context",
        type=int,
        metavar="N",
        help="of --model: N GPUs share each sequence, and gather keys and values (1)",
    )
    parser.add_argument(
        "--expert",
        type=int,
        metavar="N",
        help="of --model: N GPUs of the data axis share the experts of each layer (1)",
    )
    parser.add_argument("--microbatch", type=int, metavar="N", help="only micro-batches of so many examples")
    parser.add_argument("--recompute", metavar="NAME", help="only this kind of recomputation: none, selective, full")
    parser.add_argument("--zero", type=int, metavar="N", help="only this stage of ZeRO, 0 to 3")
    parser.add_argument(
        "--chunks", type=int, nargs="+", default=[1], metavar="N", help="interleaved 1F1B: parts a stage may have (1)"
    )
    parser.add_argument("--json", action="store_true", help="as JSON, in bytes and seconds")


def add_predict(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `mpcourse predict`."""
    parser.add_argument("maker", metavar="FILE:FUNCTION", help="model.py:make_model, which returns an nn.Module")
    parser.add_argument("--batch", type=int, nargs="+", required=True, metavar="N", help="shape of the input")
    parser.add_argument(
        "--inputs", metavar="FUNCTION",
        help="a function of the same file, which takes a number of examples, then all of --batch, and returns what the "
        "model takes: a tensor, a tuple, or a dict by names",
    )  # fmt: skip
    parser.add_argument(
        "--precision", default="float32", metavar="NAME",
        help="autocast: products in half precision; half: everything (float32)",
    )  # fmt: skip
    parser.add_argument("--gpu", default="Tesla P100-SXM2", metavar="NAME", help="an unknown name lists what there is")
    parser.add_argument("--gpus", type=int, default=1, metavar="N", help="how many of them")
    parser.add_argument("--link", metavar="NAME", help="between two GPUs; likewise (NVLink 1; GeForce: the host)")
    parser.add_argument("--cut", default="", metavar="NAME,...", help="children after which the model is cut")
    parser.add_argument("--optimizer", choices=["sgd", "momentum", "adam", "adamw"], default="sgd")
    parser.add_argument("--tokens", type=int, metavar="VOCABULARY", help="the input is integers below this")
    parser.add_argument("--zero", type=int, default=0, metavar="STAGE", help="of ZeRO, 1, 2 or 3: what ranks share (0)")
    parser.add_argument("--ranks", type=int, metavar="N", help="how many share by --zero, with a GPU each")
    parser.add_argument("--json", action="store_true", help="as JSON, in bytes and seconds")


def add_schedule(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `mpcourse schedule`."""
    parser.add_argument("name", metavar="NAME", help="gpipe, 1f1b, ... (a wrong name lists them), or FILE:FUNCTION")
    parser.add_argument("--stages", type=int, default=4, metavar="P")
    parser.add_argument("--microbatches", type=int, default=8, metavar="M")
    parser.add_argument("--chunks", type=int, metavar="V", help="of interleaved-1f1b: parts on each stage (2)")
    parser.add_argument("--forward", type=float, default=1.0, metavar="TIME", help="of a micro-batch on a stage (1)")
    parser.add_argument("--backward", type=float, default=2.0, metavar="TIME", help="likewise, the whole of it (2)")
    parser.add_argument("--weight", type=float, metavar="TIME", help="its part for the weights (half of it)")
    parser.add_argument("--transfer", type=float, default=0.0, metavar="TIME", help="from stage to stage (0)")
    parser.add_argument("--cap", type=float, metavar="N", help="the most micro-batches that a stage may hold")
    parser.add_argument("--save", type=Path, metavar="FILE", help="draw it: .svg, .png, .pdf")
    parser.add_argument("--json", action="store_true", help="actions with their times, and the figures, as JSON")
