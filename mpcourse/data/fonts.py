"""Digits as fonts draw them: the shapes that `glyphs()` bends.

The fonts come with matplotlib, so they are the same on every machine.
"""

import functools
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F

# Those faces of matplotlib that have ordinary digits. Left out are DejaVuSansMono, whose dotted 0 looks like an 8 when
# it is small and bent; cmmi10, whose old-style 1 is a capital I; cmti10, which older matplotlibs lack; faces of
# symbols.
FACES = (
    "DejaVuSans", "DejaVuSans-Bold", "DejaVuSans-Oblique", "DejaVuSans-BoldOblique",
    "DejaVuSerif", "DejaVuSerif-Bold", "DejaVuSerif-Italic", "DejaVuSerif-BoldItalic",
    "STIXGeneral", "STIXGeneralBol", "STIXGeneralItalic", "STIXGeneralBolIta",
    "cmb10", "cmr10", "cmss10", "cmtt10",
)  # fmt: skip
SIDE = 56  # twice the side of the images made from them
TALL = 40  # height of every digit, whatever its face
WIDE = 44  # and its largest width


def render() -> torch.Tensor:
    """Draw every digit of every face: float32 (faces, 10, SIDE, SIDE), 0 (paper) to 1 (ink), centred, with soft edges.

    They are drawn once per process, which takes as long as making 500 images of them. Do not write to them.
    """
    return torch.from_numpy(_drawn())


@functools.cache
def _drawn() -> np.ndarray:
    import matplotlib  # here, so that importing mpcourse.data does not import it
    from matplotlib.ft2font import FT2Font

    where = Path(matplotlib.get_data_path(), "fonts", "ttf")
    canvas = np.zeros((len(FACES), 10, SIDE, SIDE), dtype=np.float32)
    top = (SIDE - TALL) // 2
    for face, name in enumerate(FACES):
        font = FT2Font(str(where / f"{name}.ttf"))
        font.set_size(2 * TALL, 72)  # about 1.5 times too large, then scaled down to one height
        for digit in range(10):
            font.set_text(str(digit), 0.0)
            font.draw_glyphs_to_bitmap(antialiased=True)
            shape = _scale(np.asarray(font.get_image(), dtype=np.float32) / 255)
            left = (SIDE - shape.shape[1]) // 2
            canvas[face, digit, top : top + TALL, left : left + shape.shape[1]] = shape
    return _soften(canvas)


def _scale(image: np.ndarray) -> np.ndarray:
    height, width = image.shape
    size = (TALL, min(WIDE, round(TALL * width / height)))
    return F.interpolate(torch.from_numpy(image)[None, None], size, mode="bilinear", antialias=True)[0, 0].numpy()


def _soften(canvas: np.ndarray) -> np.ndarray:
    """Blur by (1, 2, 1) / 4 both ways, for edges that a threshold can move and no aliasing at half the size."""
    for axis in (-2, -1):  # roll wraps around, which the empty margin makes harmless
        canvas = (np.roll(canvas, 1, axis) + 2 * canvas + np.roll(canvas, -1, axis)) / 4
    return canvas
