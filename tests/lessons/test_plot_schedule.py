"""The diagram of a schedule, and `mpcourse schedule`."""

import json

import matplotlib.pyplot as plt
import pytest
from matplotlib.colors import to_hex
from matplotlib.patches import Rectangle

from mpcourse import plot
from mpcourse.pipeline import (
    SCHEDULES,
    Costs,
    IllegalAction,
    gpipe,
    interleaved_one_f_one_b,
    one_f_one_b,
    replay,
    zero_bubble_h1,
)
from mpcourse.plot.style import color, shade


@pytest.fixture(autouse=True)
def close():
    yield
    plt.close("all")


def bars(axis):
    """Return what each bar is, and its (start, end) on the time axis."""
    found = {}
    for c in axis.collections:
        if c.get_gid():
            for path in c.get_paths():
                xs = path.vertices[:, 0]
                found.setdefault(c.get_gid(), []).append((xs.min(), xs.max()))
    return found


def test_every_action_is_a_bar_where_the_replay_has_it_and_every_gap_is_hatched():
    done = replay(zero_bubble_h1(3, 4))
    (axis,) = plot.schedule(done).axes
    drawn = bars(axis)
    for s, row in enumerate(done.stages):
        for t in row:
            assert drawn[f"{t.action}|{s}"] == [pytest.approx((t.start, t.end))]
        gaps = sum(b - a for a, b in drawn[f"bubble|{s}"])
        assert gaps == pytest.approx(done.idle[s])
    hatched = [c for c in axis.collections if (c.get_gid() or "").startswith("bubble")]
    assert hatched and all(c.get_hatch() for c in hatched)


def test_forward_backward_and_weight_have_three_shades_of_their_stages_colour():
    (axis,) = plot.schedule(zero_bubble_h1(2, 1)).axes
    fills = {c.get_gid(): tuple(c.get_facecolor()[0][:3]) for c in axis.collections}
    for s in range(2):
        shades = [fills[f"{kind}0|{s}"] for kind in "FIW"]
        light = [sum(f) for f in shades]
        assert light[0] > light[1] > light[2]
        assert shades[1] == pytest.approx(tuple(int(shade(color(s), 1)[i : i + 2], 16) / 255 for i in (1, 3, 5)))


def test_blocks_have_the_numbers_of_micro_batches_and_rows_their_idle_time():
    (axis,) = plot.schedule(gpipe(2, 3)).axes
    texts = [t.get_text() for t in axis.texts]
    assert [texts.count(n) for n in "012"] == [4, 4, 4]
    assert texts.count("25 % idle, 3 in flight") == 2
    assert [t.get_text() for t in axis.get_yticklabels()] == ["stage 0", "stage 1"]
    assert "2 stages, 3 micro-batches: 25 % of the time is bubble" in axis.figure.get_suptitle()


def test_chunks_have_letters_and_later_ones_a_foot():
    (axis,) = plot.schedule(interleaved_one_f_one_b(2, 2, 2)).axes
    assert {"0\na", "0\nb", "1\na", "1\nb"} <= {t.get_text() for t in axis.texts}
    blocks = {t.get_text() for t in plot.schedule(interleaved_one_f_one_b(4, 8, 2)).axes[0].texts[:128]}
    assert blocks == {f"{m}\n{chunk}" for m in range(8) for chunk in "ab"}, "short forward passes have a letter, too"
    feet = [c for c in axis.collections if not c.get_gid()]
    assert len(feet) == 2 * 2 * 2  # of the second chunk, F and B of 2 micro-batches on 2 stages


def test_the_legend_shows_the_colours_that_are_drawn_and_the_strip_of_later_chunks():
    made = plot.schedule({"a": zero_bubble_h1(2, 2), "b": interleaved_one_f_one_b(2, 2, 2)})
    drawn = [(c.get_gid()[0], to_hex(c.get_facecolor()[0])) for a in made.axes for c in a.collections if c.get_gid()]
    fills = {kind: {fill for other, fill in drawn if other == kind} for kind in "FBIW"}
    (legend,) = made.legends
    names = [text.get_text() for text in legend.get_texts()]
    assert names == ["forward", "backward", "backward, for the weights", "bubble", "chunk b"]
    shown = [to_hex(patch.get_facecolor()) for patch in legend.findobj(Rectangle)]
    assert [set(shown[i : i + 2]) for i in (0, 2, 4)] == [fills["F"], fills["B"], fills["W"]] and len(shown) == 7
    assert fills["B"] == fills["I"]


def test_numbers_too_small_to_read_are_left_out():
    (axis,) = plot.schedule(replay(gpipe(2, 8), Costs(forward=0.8, backward=10.0))).axes
    numbers = [t for t in axis.texts if t.get_text().isdigit()]
    assert len(numbers) == 16 and min(t.get_fontsize() for t in numbers) >= 5.5


def test_several_schedules_share_one_time_axis_and_one_title():
    made = plot.schedule({"GPipe": gpipe(3, 4), "ZB-H1": replay(zero_bubble_h1(3, 4))}, unit="seconds")
    assert len({axis.get_xlim() for axis in made.axes}) == 1
    assert "GPipe: makespan 18, 33.3 % bubble" in made.axes[0].get_title(loc="left")
    assert made.axes[1].get_xlabel() == "seconds" and made.get_suptitle() == "3 stages, 4 micro-batches"


def test_a_measured_execution_that_begins_late_is_drawn_from_zero():
    done = replay(one_f_one_b(2, 2))
    late = type(done)([[t._replace(start=t.start + 100, end=t.end + 100) for t in row] for row in done.stages])
    assert bars(plot.schedule(late).axes[0]) == bars(plot.schedule(done).axes[0])


def test_what_cannot_run_is_not_drawn():
    with pytest.raises(IllegalAction):
        plot.schedule([[("B", 0), ("F", 0)]])
    with pytest.raises(ValueError, match="no schedule"):
        plot.schedule({})


# -- the command --


def test_the_command_tells_actions_bubble_and_activations(cli):
    done = cli("schedule", "1f1b", "--stages", 2, "--microbatches", 3)
    assert done.returncode == 0
    assert "F0 F1 B0 F2 B1 B2" in done.stdout and "25 % of the time is bubble" in done.stdout
    assert "│ 25 % │" in done.stdout and "The picture" not in done.stdout


@pytest.mark.parametrize("name", SCHEDULES)
def test_the_command_writes_json_and_a_picture(cli, tmp_path, name):
    picture = tmp_path / "out.svg"
    done = cli("schedule", name, "--stages", 3, "--microbatches", 6, "--json", "--save", picture, "--transfer", 0.1)
    told = json.loads(done.stdout)
    make = SCHEDULES[name]
    want = replay(make(3, 6, 2) if name == "interleaved-1f1b" else make(3, 6), Costs(transfer=0.1))
    assert told["bubble"] == pytest.approx(want.bubble) and told["peak"] == want.peak
    assert picture.read_text().startswith("<?xml") and "stage 2" in picture.read_text()
    assert done.stderr.strip() == f"The picture: {picture}"


def test_the_command_says_where_the_picture_is_and_counts_one_thing_as_one(cli, tmp_path):
    done = cli("schedule", "gpipe", "--stages", 1, "--microbatches", 1, "--save", tmp_path / "out.png")
    assert done.returncode == 0 and done.stdout.splitlines()[-1] == f"The picture: {tmp_path / 'out.png'}"
    assert done.stdout.startswith("gpipe, 1 stage, 1 micro-batch: 0 % of the time is bubble")
    assert "The picture" in done.stdout and done.stderr == ""


def test_the_command_replays_a_schedule_of_ones_own(cli, tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(
        "def good(p, m):\n    return [[(kind, k) for k in range(m) for kind in 'FB'] for _ in range(p)]\n"
        "def bad(p, m):\n    return [[('B', 0), ('F', 0)]] * p\n"
        "def broken(p, m):\n    return p / 0\n"
        "def short(p, m):\n    return []\n"
    )
    done = cli("schedule", f"{file}:good", "--stages", 2, "--microbatches", 2)
    assert done.returncode == 0 and "50 % of the time is bubble" in done.stdout
    done = cli("schedule", f"{file}:bad", "--stages", 2)
    assert done.returncode == 1 and "B0: the gradient before its forward: F0" in done.stderr
    done = cli("schedule", f"{file}:broken")
    assert done.returncode == 2 and "mine.py:6: ZeroDivisionError" in done.stderr
    done = cli("schedule", f"{file}:short")
    assert done.returncode == 2 and "must return a list of actions for each of 4 stages" in done.stderr


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["2f2b"], "unknown schedule '2f2b': choose one of naive, gpipe, 1f1b, interleaved-1f1b, zb-h1"),
        (["gpipe", "--stages", "0"], "stages must be a whole number, 1 or more: got 0"),
        (["gpipe", "--chunks", "2"], "--chunks belongs to interleaved-1f1b"),
        (["interleaved-1f1b", "--chunks", "0"], "chunks must be a whole number, 1 or more: got 0"),
        (["gpipe", "--weight", "9"], "weight is a part of backward"),
        (["gpipe", "--save", "out.xyz"], "its ending names no image format"),
        (["gpipe", "--save", "out"], "its ending names no image format"),
        (["gpipe", "--save", "/nowhere/out.svg"], "cannot be written"),
    ],
)
def test_the_command_says_in_one_line_what_is_wrong(cli, arguments, message):
    done = cli("schedule", *arguments)
    assert done.returncode == 2 and message in done.stderr and len(done.stderr.strip().splitlines()) == 1
    assert done.stderr.startswith("mpcourse: ")


def test_a_cap_that_is_too_small_is_told(cli):
    done = cli("schedule", "gpipe", "--cap", 3)
    assert done.returncode == 1 and "over the cap: 3 are held" in done.stderr
