"""Digits that people wrote: the small set inside scikit-learn, and MNIST."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from mpcourse.common.errors import UserError
from mpcourse.data import cache
from mpcourse.data.download import download as fetch
from mpcourse.data.examples import Dataset, Examples, from_pixels, whole_number
from mpcourse.data.idx import read_idx

DIGITS = 1797
DIGIT_SIDE = 8
MIRROR = "https://ossci-datasets.s3.amazonaws.com/mnist/"
MNIST = (("train-images-idx3-ubyte", "train-labels-idx1-ubyte"), ("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"))
CHECKSUMS = {
    "train-images-idx3-ubyte.gz": "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
    "train-labels-idx1-ubyte.gz": "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
    "t10k-images-idx3-ubyte.gz": "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
    "t10k-labels-idx1-ubyte.gz": "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
}


def digits(test: int = 360, seed: int = 0) -> Dataset:
    """Return the 1797 handwritten 8x8 digits of scikit-learn (UCI, Alpaydin and Kaynak 1998), shuffled.

    test: number of digits in the test part, the first after the shuffle; the rest are the train part. 0 to 1797.
    seed: of the shuffle, 0 or more.
    Raises UserError for other numbers.
    """
    test, seed = whole_number(test, "test", most=DIGITS), whole_number(seed, "seed")
    size = DIGITS * (DIGIT_SIDE**2 + 1)
    stored = cache.remember("digits.bin", "1", size, _read_scikit_learn)
    pixels, labels = np.split(stored, [DIGITS * DIGIT_SIDE**2])
    pixels = pixels.reshape(DIGITS, DIGIT_SIDE, DIGIT_SIDE)
    order = np.random.default_rng(seed).permutation(DIGITS)
    train_part, test_part = (from_pixels(pixels[part], labels[part], white=16) for part in (order[test:], order[:test]))
    return Dataset("digits", train_part, test_part)


def _read_scikit_learn() -> np.ndarray:
    from sklearn.datasets import load_digits  # here, because it takes most of a second, once per machine

    bunch = load_digits()
    return np.concatenate([bunch.images.ravel(), bunch.target]).astype(np.uint8)


def mnist(
    folder: str | Path | None = None,
    download: bool = False,
    mirror: str = MIRROR,
    *,
    checksums: Mapping[str, str] = CHECKSUMS,
) -> Dataset:
    """Return MNIST, read from its four IDX files, plain or `.gz`.

    folder: holds them; None: the folder `mnist` of the cache.
    download: fetch the files that are missing. A download that was cut off continues where it stopped.
    mirror: address of a folder to fetch them from.
    checksums: each file's SHA-256 in hexadecimal digits, by its name with `.gz`.
    Raises UserError where files are missing, damaged or do not belong together, or where the download fails.
    """
    where = cache.folder() / "mnist" if folder is None else Path(folder).expanduser()
    missing = [name for pair in MNIST for name in pair if _find(where, name) is None]
    if download:
        for name in missing:
            fetch(f"{mirror.rstrip('/')}/{name}.gz", where / f"{name}.gz", checksums[f"{name}.gz"])
    elif missing:
        raise UserError(
            f"no {', '.join(missing)} (plain or .gz) in {where}: put the MNIST files there or name their folder with "
            "mnist(folder=...), or fetch them with mnist(download=True)"
        )
    train_part, test_part = (_read_pair(where, *pair) for pair in MNIST)
    return Dataset("mnist", train_part, test_part)


def _find(folder: Path, name: str) -> Path | None:
    return next((path for path in (folder / name, folder / f"{name}.gz") if path.is_file()), None)


def _read_pair(folder: Path, images_name: str, labels_name: str) -> Examples:
    images_path, labels_path = (_find(folder, name) or folder / name for name in (images_name, labels_name))
    images, labels = read_idx(images_path), read_idx(labels_path)
    for path, array, dimensions in ((images_path, images, 3), (labels_path, labels, 1)):
        if array.ndim != dimensions:
            raise UserError(f"{path} has {array.ndim} dimensions and {dimensions} are wanted: are two files swapped?")
    if len(images) != len(labels):
        raise UserError(
            f"{images_path} holds {len(images)} images but {labels_path} {len(labels)} labels: "
            "they are not of one set; delete both and fetch them again"
        )
    wrong = np.flatnonzero(labels > 9)
    if len(wrong):
        raise UserError(f"{labels_path}: label {wrong[0]} is {labels[wrong[0]]}, and MNIST's labels are 0 to 9")
    return from_pixels(images, labels, white=255)
