"""The figure of a matrix shows each of its numbers, and larger ones darker."""

import pytest

from mpcourse import plot


def test_each_number_is_at_its_place_and_larger_ones_are_darker():
    axis = plot.matrix({"": [[1, 20, 3], [0, 5, 6]]}, "x", "y", "title").axes[0]
    at = {t.get_position(): t.get_text() for t in axis.texts}
    assert at == {(0, 0): "1", (1, 0): "20", (2, 0): "3", (0, 1): "0", (1, 1): "5", (2, 1): "6"}
    image = axis.images[0]
    greys = image.cmap(image.norm(image.get_array()))[..., 0]
    assert greys[0, 1] == greys.min() and greys[1, 0] == greys.max()


def test_several_matrices_share_their_shades():
    left, right = plot.matrix({"a": [[1.0]], "b": [[4.0]]}, "x", "y", "title", places=1).axes
    assert left.images[0].get_clim() == right.images[0].get_clim() and left.texts[0].get_text() == "1.0"


def test_nothing_to_draw_is_refused():
    with pytest.raises(ValueError, match="no number"):
        plot.matrix({"a": []}, "x", "y", "title")
