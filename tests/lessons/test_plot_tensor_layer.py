"""The figure of a layer that is cut over ranks shows which part each rank has."""

import pytest

from mpcourse import plot


def drawn(ranks, sequence):
    return plot.tensor_layer(ranks, "title", sequence).axes[0]


def parts_of(axis, name):
    return [patch for patch in axis.patches if patch.get_gid() == name]


def texts_of(axis):
    return [text.get_text() for text in axis.texts]


@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("sequence", [False, True])
def test_products_are_always_cut_and_what_is_between_them_with_sequence_parallelism(ranks, sequence):
    axis = drawn(ranks, sequence)
    for name in ("Q K V", "heads", "out", "first", "GELU", "second"):
        assert len({patch.get_facecolor() for patch in parts_of(axis, name)}) == ranks
    for name in ("norm", "drop, +"):
        assert len(parts_of(axis, name)) == 2 * (ranks if sequence else 1)


def test_each_rank_has_columns_of_each_of_queries_keys_and_values():
    colors = [patch.get_facecolor() for patch in sorted(parts_of(drawn(2, False), "Q K V"), key=lambda p: p.get_x())]
    assert colors == colors[:2] * 3 and colors[0] != colors[1]


def test_rows_of_a_matrix_touch_and_tokens_lie_apart():
    def room(name):
        upper, lower = parts_of(drawn(2, True), name)[:2]
        return upper.get_y() - (lower.get_y() + lower.get_height())

    assert abs(room("out")) < 1e-9 and room("norm") > 0.1


@pytest.mark.parametrize("sequence", [False, True])
def test_every_part_says_how_it_is_cut(sequence):
    said = texts_of(drawn(2, sequence))
    assert [said.count(f"by {cut}") for cut in ("columns", "heads", "rows")] == [3, 1, 2]
    assert said.count("by tokens") == 4 * sequence


def test_a_line_is_drawn_where_ranks_meet_with_the_calls_of_both_passes():
    plain, sequence = drawn(2, False), drawn(2, True)
    assert [len(axis.lines) for axis in (plain, sequence)] == [4, 4]
    assert texts_of(plain).count("(all-reduce)") == 2
    assert texts_of(sequence).count("(reduce-scatter)") == texts_of(sequence).count("reduce-scatter") == 2


def test_ranks_that_cannot_be_told_apart_are_refused():
    with pytest.raises(ValueError, match="2 to 4 ranks"):
        plot.tensor_layer(5, "title")
