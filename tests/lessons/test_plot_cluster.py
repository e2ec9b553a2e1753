"""Figures of virtual ranks: who waits for whom, and their messages in the common figures."""

import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.colors import to_rgba
from matplotlib.text import Annotation

from mpcourse import plot
from mpcourse.collectives import naive_allreduce, ring_allreduce, rounds
from mpcourse.virtual import Deadlock, compute, run


@pytest.fixture(autouse=True)
def closed():
    yield
    plt.close("all")


def caught(program, size):
    with pytest.raises(Deadlock) as error:
        run(program, size)
    return error.value


def test_a_deadlock_is_drawn_with_its_circle():
    def program(comm):
        if comm.rank == 0:
            comm.Recv(np.zeros(2), 3)
        elif comm.rank == 5:
            comm.send(1, 4)
        elif comm.rank != 4:
            comm.Recv(np.zeros(2), comm.rank % 3 + 1)  # 1 -> 2 -> 3 -> 1

    made = plot.deadlock(caught(program, 6))
    (axis,) = made.axes
    arrows = [a.arrow_patch for a in axis.texts if isinstance(a, Annotation) and a.arrow_patch]
    bold = {arrow.get_edgecolor() for arrow in arrows if arrow.get_linewidth() > 2}
    assert len(arrows) == 5 and len(bold) == 3
    words = [t.get_text() for t in axis.texts]
    assert {"0", "1", "2", "3", "4", "5", "has returned"} <= set(words)
    assert any(w.startswith("send(dest=4, tag=0)\ntest_plot_cluster.py:") for w in words)
    assert made.get_suptitle() == "No rank can go on: 3 in a circular wait"


def test_more_ranks_than_can_be_told_apart():
    error = caught(lambda comm: comm.recv(source=(comm.rank + 1) % comm.size), 25)
    with pytest.raises(ValueError, match="25 ranks wait: no figure tells more than 24 apart"):
        plot.deadlock(error)


def test_messages_of_ranks_are_drawn_as_traffic_and_as_a_timeline():
    done = run(lambda comm: ring_allreduce(comm, np.ones(400)), 4)
    words = [t.get_text() for t in plot.traffic(done.events).axes[0].texts]
    assert len(words) == 4 and all(w.endswith("6 messages") for w in words)
    rows = [t.get_text() for t in plot.timeline(done.events).axes[0].get_yticklabels()]
    assert rows == [f"rank {r}" for r in range(4)] + [f"rank {r} -> rank {(r + 1) % 4}" for r in range(4)]


def test_chunks_are_drawn_round_by_round():
    counts = rounds(ring_allreduce, 3)
    made = plot.chunks(counts)
    panels = [axis for axis in made.axes if axis.get_title(loc="left")]
    assert [p.get_title(loc="left") for p in panels] == ["before", "round 1", "round 2", "round 3", "round 4"]
    complete = [len(p.lines) for p in panels]
    assert complete == [0, 0, 3, 6, 9]
    black = [sum(r.get_edgecolor() == (0, 0, 0, 1) for r in p.patches) for p in panels]
    assert black == [0, 3, 3, 3, 3]  # each rank changes one chunk a round
    stripes = [sum(r.get_facecolor() == to_rgba(plot.color(0)) for r in p.patches) for p in panels]
    assert stripes == [3, 4, 6, 8, 9]  # of rank 0's numbers
    (legend,) = made.legends
    assert [text.get_text() for text in legend.get_texts()] == ["changed in this round", "sum of all ranks"]
    named = [[t.get_text() for t in p.get_yticklabels()] for p in panels]
    assert named == [["rank 0", "rank 1", "rank 2"], *[[""] * 3] * 4]  # once in a row


def test_panels_of_chunks_are_shared_out_evenly_among_rows():
    for ranks, columns in ((3, 5), (4, 4), (6, 4)):  # 5, 7 and 11 panels
        grid = plot.chunks(rounds(ring_allreduce, ranks)).axes[0].get_gridspec()
        assert grid.ncols == columns and grid.nrows * columns - (2 * ranks - 1) < columns


def test_a_deadlock_of_two_is_a_flat_figure():
    def program(comm):
        comm.Recv(np.zeros(2), 1 - comm.rank)

    two = plot.deadlock(caught(program, 2))
    circle = plot.deadlock(caught(lambda comm: comm.Recv(np.zeros(2), (comm.rank + 1) % 3), 3))
    assert two.get_figheight() < 0.5 * circle.get_figheight()
    heights = {round(line.get_ydata()[0], 6) for line in two.axes[0].lines}
    assert heights == {0.0}


def test_of_chunks_some_rounds_are_drawn_and_twice_is_told():
    def twice(comm, x):
        naive_allreduce(comm, x)
        x += 16.0

    counts = rounds(twice, 2)
    made = plot.chunks(counts, [2], "my title")
    (panel,) = [axis for axis in made.axes if axis.patches]
    assert [t.get_text() for t in panel.texts] == ["2"] * 4 and not panel.lines
    with pytest.raises(ValueError, match="0 to 2"):
        plot.chunks(counts, [3])


def test_a_rank_says_which_phase_of_a_step_it_computes():
    def program(comm):
        compute(comm, 1.0, "forward")
        compute(comm, 2.0, "backward")
        compute(comm, 0.5 + comm.rank)  # rank 0 waits for a second
        comm.Sendrecv(np.ones(4), 1 - comm.rank, recvbuf=np.empty(4), source=1 - comm.rank)

    events = run(program, 2).events
    computed = [(e.name, e.phase, e.seconds) for e in events if e.lane == "rank 0" and e.kind == "compute"]
    assert computed == [("forward", "forward", 1.0), ("backward", "backward", 2.0), ("compute", "", 0.5)]
    figure = plot.timeline(events, lanes=["rank 0", "rank 0 -> rank 1"])
    labels = [text.get_text() for legend in figure.legends for text in legend.get_texts()]
    assert labels == ["forward", "backward", "no gradient", "communication", "waits"]
