"""The figure of attention over ranks shows who computes each visible pair, and when."""

import pytest

from mpcourse import plot
from mpcourse.context_parallel import contiguous, striped, zigzag


def drawn(parts):
    return plot.attention({"": parts}, "title").axes[0]


@pytest.mark.parametrize("layout", [contiguous, zigzag])
@pytest.mark.parametrize("size", [1, 2, 4])
def test_the_areas_are_all_visible_pairs_and_as_large_for_each_rank_with_zigzag(layout, size):
    length, areas = 16, {}
    for patch in drawn(layout(length, size)).patches:
        box = patch.get_path().get_extents(patch.get_patch_transform())
        part = 0.5 if len(patch.get_xy()) == 4 else 1  # a triangle, with its first corner twice
        areas[patch.get_gid()] = areas.get(patch.get_gid(), 0) + part * box.width * box.height
    assert sum(areas.values()) == length**2 / 2 and len(areas) == size
    assert (len({round(area, 9) for area in areas.values()}) == 1) == (layout is zigzag or size == 1)


def test_numbers_are_steps_of_the_ring():
    texts = {
        (round(t.get_position()[0]), round(t.get_position()[1])): t.get_text() for t in drawn(contiguous(12, 3)).texts
    }
    assert sorted(texts.values()) == ["0", "0", "0", "1", "1", "2"]
    assert texts[2, 10] == "2" and texts[2, 6] == "1" and texts[6, 10] == "1"


def test_rows_and_columns_have_the_numbers_of_ranks_so_that_a_grey_print_can_be_read():
    axis = drawn(zigzag(8, 2))
    for ticks, labels in ((axis.get_xticks(), axis.get_xticklabels()), (axis.get_yticks(), axis.get_yticklabels())):
        assert {at: text.get_text() for at, text in zip(ticks, labels, strict=True)} == {1: "0", 3: "1", 5: "1", 7: "0"}


def test_stripes_are_refused():
    with pytest.raises(ValueError, match="only pieces of consecutive tokens"):
        drawn(striped(8, 2))
