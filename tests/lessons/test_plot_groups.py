"""The figure of a grid's communicators says what the grid says."""

import pytest

from mpcourse import plot

GROUPS = {"data": [(0, 2), (1, 3)], "tensor": [(0, 1), (2, 3)]}


def test_ranks_of_one_communicator_share_a_letter_and_a_colour():
    made = plot.groups(GROUPS, [0, 0, 1, 1], "title")
    data, tensor = made.axes
    assert [t.get_text() for t in data.texts] == ["0 A", "1 B", "2 A", "3 B", "node 0", "node 1"]
    assert [t.get_text() for t in tensor.texts] == ["0 A", "1 A", "2 B", "3 B"]
    fills = [patch.get_facecolor() for patch in data.patches[:4]]
    assert fills[0] == fills[2] != fills[1] == fills[3]


def test_a_panel_says_how_many_groups_cross_nodes():
    data, tensor = plot.groups(GROUPS, [0, 0, 1, 1], "title").axes
    assert data.get_title("left") == "data: 2 of 2 groups cross nodes"
    assert tensor.get_title("left") == "tensor: each group inside one node"


def test_groups_that_are_not_all_ranks_are_refused():
    with pytest.raises(ValueError, match="the data axis are not the ranks 0 to 3"):
        plot.groups({"data": [(0, 1), (1, 3)]}, [0, 0, 1, 1], "title")
