"""The figure of a layer that is cut over ranks shows which part each rank has."""

import pytest

from mpcourse import plot


def parts_of(axis, name):
    return [patch for patch in axis.patches if patch.get_gid() == name]


@pytest.mark.parametrize("ranks", [2, 4])
def test_products_are_cut_in_both_rows_and_what_is_between_them_in_the_second_alone(ranks):
    plain, sequence = plot.tensor_layer(ranks, "title").axes
    for axis in (plain, sequence):
        for name in ("Q K V", "heads", "out", "first", "GELU", "second"):
            assert len({patch.get_facecolor() for patch in parts_of(axis, name)}) == ranks
    assert len(parts_of(plain, "norm")) == 2 and len(parts_of(sequence, "norm")) == 2 * ranks
    assert len(parts_of(plain, "drop, +")) == 2 and len(parts_of(sequence, "drop, +")) == 2 * ranks


def test_a_line_stands_where_ranks_meet_with_the_calls_of_both_passes():
    plain, sequence = plot.tensor_layer(2, "title").axes
    assert [len(axis.lines) for axis in (plain, sequence)] == [4, 4]
    assert [text.get_text() for text in plain.texts].count("(all-reduce)") == 2
    assert [text.get_text() for text in sequence.texts].count("(reduce-scatter)") == 2
    assert [text.get_text() for text in sequence.texts].count("reduce-scatter") == 2


def test_ranks_that_cannot_be_told_apart_are_refused():
    with pytest.raises(ValueError, match="2 to 4 ranks"):
        plot.tensor_layer(5, "title")
