"""A schedule made by hand: what can be placed, why not, and what came of it."""

import random

import matplotlib.pyplot as plt
import pytest

from mpcourse import plot
from mpcourse.pipeline import IllegalAction, gpipe, one_f_one_b, replay, zero_bubble_h1
from mpcourse.pipeline.placing import Placing
from mpcourse.plot import placing as view
from mpcourse.plot.placing import PlacingView, describe


@pytest.fixture(autouse=True)
def closed():
    yield
    plt.close("all")


def placed(schedule, cap=None):
    """Place these lists in the order of their replay."""
    made = Placing(len(schedule), len(schedule[0]) // 2, cap, begin=[(0, "F")])
    order = sorted((t.start, s, t.action.kind) for s, row in enumerate(replay(schedule).stages) for t in row)
    for _, stage, kind in order[1:]:
        assert made.place(stage, kind) == ""
    return made


def names(made):
    return [[str(action) for action in row] for row in made.rows]


@pytest.mark.parametrize("p, m", [(1, 1), (1, 4), (2, 3), (4, 8), (3, 5)])
def test_who_places_1f1b_gets_1f1b_under_its_cap(p, m):
    made = placed(one_f_one_b(p, m), cap=min(p, m))
    assert made.rows == one_f_one_b(p, m) and made.complete and not made.stuck()
    assert made.run.makespan == replay(one_f_one_b(p, m)).makespan
    assert f"makespan of {made.run.makespan:g}" in describe(made)


def test_gpipe_needs_more_than_the_cap():
    assert placed(gpipe(2, 4)).run.makespan == replay(gpipe(2, 4)).makespan
    made = Placing(2, 4, cap=2, begin=[(0, "F")] * 2)
    assert "over the cap: 2 are held" in made.place(0, "F") and made.count == 2


def test_a_reason_names_what_comes_first():
    made = Placing(2, 2)
    assert made.place(0, "B").endswith("its gradient is not there yet: B0 of stage 1 comes first")
    assert made.place(1, "B").endswith("the gradient before its forward: F0 of this stage has not run")
    made = Placing(2, 2, begin=[(0, "F"), (1, "F")])
    assert made.place(1, "F").endswith("its activation is not there yet: F1 of stage 0 comes first")
    assert names(made) == [["F0"], ["F0"]]


def test_what_is_all_there_cannot_be_placed_again():
    made = Placing(1, 1)
    assert made.place(0, "F") == "stage 0 has every F already" and made.next(0, "F") is None


def test_undo_and_reset_end_at_what_was_given():
    made = Placing(2, 3, begin=[(0, "F"), (0, "F")])
    for stage, kind in ((1, "F"), (1, "B"), (0, "B")):
        assert made.place(stage, kind) == ""
    made.undo()
    assert names(made) == [["F0", "F1"], ["F0", "B0"]]
    made.reset()
    made.undo()
    assert names(made) == [["F0", "F1"], []]


@pytest.mark.parametrize("seed", range(20))
def test_whatever_is_clicked_the_schedule_is_legal_and_can_be_finished(seed):
    draw = random.Random(seed)
    p, m = draw.randint(1, 4), draw.randint(1, 6)
    cap = draw.choice([None, 1, 2, p])
    made = Placing(p, m, cap)
    while not made.complete:
        assert not made.stuck()
        before = made.count
        reason = made.place(draw.randrange(p), draw.choice("FB"))
        assert made.count == before + (not reason)
    assert replay(made.rows, cap=cap).makespan == made.run.makespan


@pytest.mark.parametrize("given", [(0, 2), (2, 0), (2, 2, None, [])])
def test_numbers_that_make_no_sense_are_refused(given):
    with pytest.raises(ValueError, match="1 or more of each"):
        Placing(*given)


def test_a_start_that_cannot_be_is_refused():
    with pytest.raises(ValueError, match=r"cannot be there at the start.*F0 of this stage has not run"):
        Placing(2, 2, begin=[(0, "B")])


def test_a_schedule_being_made_lacks_actions_and_no_other_rule():
    rows = [[("F", 0), ("F", 1)], [("F", 0)]]
    assert replay(rows, whole=False).makespan == 2 and replay(zero_bubble_h1(2, 4), whole=False).bubble > 0
    with pytest.raises(IllegalAction, match=r"is missing|not in stage"):
        replay(rows)
    with pytest.raises(IllegalAction, match="has run already"):
        replay([[("F", 0), ("F", 0)]], whole=False)


def test_buttons_place_say_why_not_and_take_back():
    made = PlacingView(Placing(2, 2, cap=2, begin=[(0, "F")]))
    names = {place: button.description for place, button in made.buttons.items()}
    assert names == {(0, "F"): "F1", (0, "B"): "B0", (1, "F"): "F0", (1, "B"): "B0"}
    green = {place for place, button in made.buttons.items() if button.button_style}
    assert green == {(0, "F"), (1, "F")}
    made.buttons[1, "B"].click()
    assert "F0 of this stage has not run" in made.says.value and made.placing.count == 1
    made.buttons[1, "F"].click()
    assert made.placing.count == 2 and "makespan 2" in made.says.value and made.buttons[1, "F"].description == "F1"
    undo, again = made.controls.children[-2].children
    undo.click()
    assert made.placing.count == 1
    for place in ((1, "F"), (1, "B"), (0, "F"), (1, "F"), (1, "B"), (0, "B"), (0, "B")):
        made.buttons[place].click()
    assert made.says.value.startswith(
        "Complete: makespan 9, 33.3 % bubble, 2 in flight at most. 1F1B has a makespan of 9"
    )
    assert {button.description for button in made.buttons.values()} == {"-"}
    again.click()
    assert made.placing.count == 1


def test_without_a_person_there_is_a_figure_and_no_button(monkeypatch):
    shown = []
    monkeypatch.setattr(view, "display", shown.append)
    monkeypatch.setattr(view.DisplayHandle, "display", lambda self, image: shown.append(type(image).__name__))
    plot.place_schedule(2, 4, cap=2)
    assert shown == ["Image"]
