"""Pictures of the data."""

from matplotlib.figure import Figure

from mpcourse.data import Examples
from mpcourse.plot.style import INK, figure


def contact_sheet(examples: Examples, title: str, columns: int = 10, rows: int = 3) -> Figure:
    """Show the first images of each class, a column for each class, so that the spread within a class is seen."""
    made, (axis,) = figure(title, height=0.55 * rows + 0.8)
    side = examples.images.shape[-1]
    for digit in range(columns):
        chosen = examples.images[examples.labels == digit][:rows, 0]
        for row, image in enumerate(chosen):
            left, top = digit * (side + 1), row * (side + 1)
            axis.imshow(image, cmap="gray_r", extent=(left, left + side, top + side, top), vmin=0, vmax=1)
    axis.set_xlim(-1, columns * (side + 1))
    axis.set_ylim(rows * (side + 1), -1)
    axis.set_xticks([d * (side + 1) + side / 2 for d in range(columns)], [str(d) for d in range(columns)])
    axis.set_yticks([])
    axis.grid(False)
    axis.spines[:].set_visible(False)
    axis.tick_params(length=0, colors=INK)
    return made
