"""Figures of collectives and of parameter servers say what the records hold."""

import matplotlib.pyplot as plt
import numpy as np
import pytest

from mpcourse import plot
from mpcourse.data_parallel.servers import Push
from mpcourse.virtual import Event


@pytest.fixture(autouse=True)
def closed():
    yield
    plt.close("all")


def texts(axis):
    return [text.get_text() for text in axis.texts]


def computed(worker, start, end):
    return Event(lane=f"rank {worker}", name="compute", kind="compute", start=start, end=end)


def test_each_bar_has_the_staleness_of_its_gradient():
    events = [computed(1, 1.0, 1.04), computed(2, 1.0, 1.01), computed(2, 1.01, 1.02), computed(2, 1.5, 1.6)]
    brought = [Push(2, 0, True, 0.01), Push(2, 1, True, 0.02), Push(1, 2, False, 0.04), Push(2, 5, True, 0.6)]
    (axis,) = plot.pushes(events, brought, "title", end=0.1).axes
    assert texts(axis) == ["-", "0", "1"]  # rank 1's came too late; what begins after the end is not drawn
    assert [round(bar.get_x(), 9) for bar in axis.patches] == [0, 0, 10] and len(
        {b.get_facecolor() for b in axis.patches}
    ) == 3
    assert sum(len(line.get_xdata()) == 2 and max(line.get_xdata()) in (10, 20) for line in axis.lines) == 2
    assert [tick.get_text() for tick in axis.get_yticklabels()] == ["server receives", "rank 1", "rank 2"]


def test_a_gradient_under_way_in_the_end_is_not_drawn():
    events = [computed(1, 0.0, 0.01), computed(1, 0.01, 0.02)]
    (axis,) = plot.pushes(events, [Push(1, 0, True, 0.01)], "title", end=0.1).axes
    assert texts(axis) == ["0"]


def legend(figure):
    return [text.get_text() for text in figure.legends[0].get_texts()]


def test_the_legend_of_gradients_names_what_is_drawn_and_nothing_else():
    fresh, stale, late = Push(1, 0, True, 0.01), Push(1, 3, True, 0.02), Push(1, 0, False, 0.02)
    at_once = [computed(1, 0.0, 0.01), computed(1, 0.01, 0.02)]
    names = ["gradient of the newest weights", "stale gradient"]
    assert legend(plot.pushes(at_once, [fresh, stale], "title", end=0.1)) == names
    waited = [computed(1, 0.0, 0.01), computed(1, 0.05, 0.06)]
    names = ["gradient of the newest weights", "dropped gradient", "worker waits"]
    assert legend(plot.pushes(waited, [fresh, late], "title", end=0.1)) == names


def test_counts_are_compared_on_equal_axes_and_in_one_colour():
    figure = plot.counts({"a": [0, 0, 2], "b": [9]}, "staleness", "gradients", "title")
    left, right = figure.axes
    assert left.get_xlim() == right.get_xlim() and left.get_ylim() == right.get_ylim()
    assert left.get_ylabel() == "gradients (%)" and right.get_ylabel() == ""
    assert [round(bar.get_height(), 1) for bar in left.patches] == [66.7, 33.3]
    assert len({bar.get_facecolor() for axis in figure.axes for bar in axis.patches}) == 1


def test_accuracy_is_drawn_against_each_count_as_mean_and_two_standard_errors():
    axes = {"updates": {"a": [1, 2]}, "seconds": {"a": [0.5, 3.0]}}
    left, right = plot.accuracy_against(axes, {"a": [[10.0, 20.0], [30.0, 20.0]]}, "title").axes
    assert [list(line.get_xdata()) for axis in (left, right) for line in axis.lines] == [[1, 2], [0.5, 3.0]]
    assert list(left.lines[0].get_ydata()) == [20.0, 20.0]
    band = left.collections[0].get_paths()[0].vertices[:, 1]
    assert band.min() == pytest.approx(0.0) and band.max() == pytest.approx(40.0)  # 20 -+ 2 * 10
    assert left.get_ylabel() == "test accuracy (%), 2 seeds"


def test_dots_show_a_mean_and_two_standard_errors_of_each_way_in_each_panel():
    panels = {"seconds": {"a": [1.0, 3.0], "b": [4.0, 4.0]}, "accuracy": {"a": [10.0, 30.0], "b": [50.0, 70.0]}}
    left, right = plot.dots(panels, "title").axes
    drawn = [[(line.get_xdata()[0], line.get_ydata()[0]) for line in axis.lines] for axis in (left, right)]
    assert drawn == [[(2.0, 0), (4.0, 1)], [(20.0, 0), (60.0, 1)]]
    bars = [[bar.get_segments()[0][:, 0].tolist() for bar in axis.collections] for axis in (left, right)]
    assert bars == [[[0.0, 4.0], [4.0, 4.0]], [[0.0, 40.0], [40.0, 80.0]]]
    assert [tick.get_text() for tick in left.get_yticklabels()] == ["a", "b"]
    assert not any(tick.get_text() for tick in right.get_yticklabels())
    assert (left.get_xlabel(), right.get_xlabel()) == ("seconds", "accuracy")


def test_a_box_shows_where_a_number_comes_from_and_what_was_added():
    before = plot.marked(3)
    after = np.zeros_like(before)
    after[0] = before.sum(axis=0)
    (axis,) = plot.collectives({"reduce": (before, after)}, "title", columns=1).axes
    words = texts(axis)
    assert words[:9] == [letter + place for letter in "ABC" for place in "012"] and words[-4:-1] != ["", "", ""]
    stripes = [patch for patch in axis.patches if patch.get_width() == pytest.approx(1 / 3)]
    assert len(stripes) == 9 and len({patch.get_facecolor() for patch in stripes}) == 3


def test_sums_of_marked_numbers_tell_all_their_parts():
    numbers = plot.marked(7)
    assert numbers.shape == (7, 7) and len({int(n) for n in numbers.flat}) == 49
    assert int(numbers.sum()) == 2**49 - 1
    for ranks in (0, 8):
        with pytest.raises(ValueError, match="1 to 7 ranks"):
            plot.marked(ranks)
