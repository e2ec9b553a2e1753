"""`glyphs`: as many digit images as you ask for, drawn from fonts and bent, the same on every rank.

Images come in blocks of 250. A block is seeded by (seed, split, block) and by nothing else. So the first images of a
large set are the images of a small one, and no set depends on the order or the number of earlier calls.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version

import numpy as np
import torch
import torch.nn.functional as F

from mpcourse.data import cache, fonts
from mpcourse.data.examples import Dataset, Examples, from_pixels, whole_number

VERSION = 1  # raise it whenever the images change: files kept by older code are then made anew
SPLITS = ("train", "test")
BLOCK = 250  # small enough to stay in the processor's cache
SIDE = 28

# How much an image differs from its font. Lengths are in half images: 1.0 is 14 pixels.
ROTATION = 0.3  # radians
SCALE = 0.15
STRETCH = 0.1  # wider and lower, or narrower and higher
SHEAR = 0.3
SHIFT = 0.15
BEND = 0.14  # of each point of a BEND_POINTS x BEND_POINTS net laid over the image
BEND_POINTS = 4


def glyphs(train: int = 60_000, test: int = 10_000, seed: int = 0) -> Dataset:
    """Make 28x28 digits drawn from fonts, turned, stretched, bent and speckled: a harder MNIST with no download.

    train, test: examples of each part, 0 or more.
    seed: 0 or more. Images depend on it only, not on the number of threads or the state of any random generator; both
    parts use the same faces with draws of their own.

    Images are made on first use, then read from the cache. (They come from matplotlib's font renderer and torch's CPU
    kernels: other versions of these, or a processor without AVX2, may round some pixels to the next of the 256 grey
    levels.)
    Raises UserError for other numbers.
    """
    train, test = whole_number(train, "train"), whole_number(test, "test")
    seed = whole_number(seed, "seed")
    return Dataset("glyphs", _examples(train, seed, "train"), _examples(test, seed, "test"))


def _examples(count: int, seed: int, split: str) -> Examples:
    made = cache.remember(
        name=f"glyphs-seed{seed}-{split}-{count}.bin",
        version=f"{VERSION}, matplotlib {version('matplotlib')}, torch {version('torch')}",
        size=count * (SIDE * SIDE + 1),
        make=lambda: _make(count, seed, split),
    )
    pixels, labels = np.split(made, [count * SIDE * SIDE])
    return from_pixels(pixels.reshape(count, SIDE, SIDE), labels, white=255)


def _make(count: int, seed: int, split: str) -> np.ndarray:
    """Make the pixels and then the labels of `count` images, as one uint8 array."""
    pixels = np.empty((count, SIDE, SIDE), dtype=np.uint8)
    labels = np.empty(count, dtype=np.uint8)
    with _one_thread():
        shapes = fonts.render()
        for start in range(0, count, BLOCK):
            end = min(start + BLOCK, count)
            made, digits = _block(shapes, seed, split, start // BLOCK)
            pixels[start:end], labels[start:end] = made[: end - start], digits[: end - start]
    return np.concatenate([pixels.ravel(), labels])


@contextmanager
def _one_thread() -> Iterator[None]:
    """Let torch use one thread within, so that no bit depends on the number of threads.

    Ranks that all render at first use do not compete for the cores either: 4 ranks of two threads on 2 cores took over
    eight times as long.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _block(shapes: torch.Tensor, seed: int, split: str, block: int) -> tuple[np.ndarray, np.ndarray]:
    """Make one block: pixels uint8 (BLOCK, SIDE, SIDE) and labels int64 (BLOCK,).

    A block is always drawn whole, because its images must not depend on how many of them are wanted.
    """
    rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(SPLITS.index(split), block)))

    def uniform(*shape: int) -> torch.Tensor:
        return torch.from_numpy(rng.random(shape, dtype=np.float32)) * 2 - 1

    labels = rng.integers(10, size=BLOCK)
    faces = rng.integers(len(shapes), size=BLOCK)
    turn, scale, stretch, shear, shift_x, shift_y, weight, ink, grain = uniform(9, BLOCK, 1, 1)
    bend_x, bend_y = F.interpolate(
        uniform(2, BLOCK, BEND_POINTS, BEND_POINTS), (SIDE, SIDE), mode="bicubic", align_corners=True
    )
    speckle = uniform(BLOCK, SIDE, SIDE)

    # Where in its font's shape does each pixel look? Both span -1 to 1.
    centres = torch.from_numpy(((2 * np.arange(SIDE) + 1) / SIDE - 1).astype(np.float32))
    x = centres.view(1, 1, SIDE) + SHIFT * shift_x + BEND * bend_x
    y = centres.view(1, SIDE, 1) + SHIFT * shift_y + BEND * bend_y
    cos, sin = torch.cos(ROTATION * turn), torch.sin(ROTATION * turn)
    x, y = cos * x + sin * y, cos * y - sin * x
    x = (x + SHEAR * shear * y) / (1 + SCALE * scale + STRETCH * stretch)
    y = y / (1 + SCALE * scale - STRETCH * stretch)

    chosen = shapes[torch.from_numpy(faces), torch.from_numpy(labels)].unsqueeze(1)
    image = F.grid_sample(chosen, torch.stack([x, y], dim=-1), align_corners=False).squeeze(1)
    image = (2.5 * (image - 0.33 - 0.13 * weight) + 0.5).clamp(0, 1)  # the place of the cut sets the stroke's weight
    image = image * (0.8 + 0.2 * ink) + speckle * (0.12 + 0.12 * grain)
    return (image.clamp(0, 1) * 255).round().to(torch.uint8).numpy(), labels
