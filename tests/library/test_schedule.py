"""Schedules as data: the published figures of each, and the reason that an illegal one is refused with."""

import random

import pytest

from mpcourse.pipeline import (
    Action,
    Costs,
    IllegalAction,
    gpipe,
    interleaved_one_f_one_b,
    naive,
    one_f_one_b,
    replay,
    zero_bubble_h1,
)
from mpcourse.pipeline.replay import checked

GRID = [(p, m) for p in range(1, 9) for m in range(1, 33)]
F, B, I, W = (lambda k, c=0, kind=kind: Action(kind, k, c) for kind in "FBIW")  # noqa: E741


@pytest.mark.parametrize("make", [gpipe, one_f_one_b])
def test_the_bubble_is_p_minus_1_over_m_plus_p_minus_1(make):
    costs = Costs(random.uniform(0.1, 1), random.uniform(0.1, 3), weight=0)
    for p, m in GRID:
        assert replay(make(p, m), costs).bubble == pytest.approx((p - 1) / (m + p - 1), abs=1e-9), (p, m, costs)


def test_activations_in_flight_are_m_for_gpipe_and_min_m_p_minus_s_for_1f1b():
    for p, m in GRID:
        assert replay(gpipe(p, m)).peak == [m] * p
        assert replay(one_f_one_b(p, m)).peak == [min(m, p - s) for s in range(p)]
        assert replay(naive(p, m)).peak == [1] * p


def test_naive_leaves_all_stages_but_one_idle():
    for p, m in GRID:
        assert replay(naive(p, m)).bubble == pytest.approx(1 - 1 / p, abs=1e-9)


@pytest.mark.parametrize("chunks", [2, 3, 4])
def test_interleaving_divides_the_bubble_by_the_number_of_chunks(chunks):
    """(1 / v)(p - 1) / m of the ideal time, and p (1 + (p - 1) / (p v)) micro-batches on the first stage."""
    for p, m in GRID:
        done = replay(interleaved_one_f_one_b(p, m, chunks), Costs(1, 2))
        if m % p == 0:
            ideal = 3 * m
            assert done.makespan - ideal == pytest.approx(ideal * (p - 1) / m / chunks, abs=1e-9), (p, m)
            if m > p:
                assert done.peak[0] == pytest.approx(p * (1 + (p - 1) / (p * chunks))), (p, m)
        # And it pays for any number of micro-batches, also where these do not go round evenly.
        assert done.bubble <= replay(one_f_one_b(p, m)).bubble + 1e-9, (p, m)


def test_interleaving_with_one_chunk_is_1f1b():
    assert interleaved_one_f_one_b(3, 5, 1) == one_f_one_b(3, 5)


@pytest.mark.parametrize("costs", [(1, 2, 1), (1, 2.2, 0.8), (1.3, 2, 0.7), (0.5, 1.1, 0.3)])
def test_zero_bubble_h1_idles_p_minus_1_times_f_plus_b_minus_2w(costs):
    forward, backward, weight = costs
    for p, m in GRID:
        done = replay(zero_bubble_h1(p, m), Costs(*costs))
        if m >= p:
            idle = (p - 1) * (forward + backward - 2 * weight)
            assert done.idle == pytest.approx([idle] * p, abs=1e-9), (p, m)
        assert done.peak == [min(m, p)] * p, (p, m)


def test_zero_bubble_h1_never_takes_longer_than_1f1b():
    for p, m in GRID:
        assert replay(zero_bubble_h1(p, m)).makespan <= replay(one_f_one_b(p, m)).makespan + 1e-9


def test_a_slow_stage_sets_the_pace():
    done = replay(one_f_one_b(3, 50), Costs([1, 2, 1], [2, 4, 2]))
    assert done.idle[1] < 0.05 * done.makespan and done.idle[0] > 0.45 * done.makespan
    assert done.busy == [150, 300, 150]


def test_transfers_delay_1f1b_more_than_gpipe():
    """Each of GPipe's waits is paid once a fill; 1F1B's stages wait for each other in every round."""
    costs = Costs(1, 2, transfer=0.2)
    assert replay(gpipe(4, 16), costs).makespan == pytest.approx(3 * 19 + 2 * 3 * 0.2)
    assert replay(one_f_one_b(4, 16), costs).makespan > replay(gpipe(4, 16), costs).makespan + 0.5


def test_a_link_carries_one_transfer_at_a_time_in_each_direction():
    done = replay(gpipe(2, 4), Costs(1, 2, transfer=3))
    there = [e for e in done.transfers if e.lane == "stage 0 -> stage 1"]
    assert [(e.name, e.start, e.end) for e in there] == [("F0", 1, 4), ("F1", 4, 7), ("F2", 7, 10), ("F3", 10, 13)]
    assert [e.name for e in done.transfers if e.lane == "stage 1 -> stage 0"] == ["B3", "B2", "B1", "B0"]


def test_events_have_a_lane_for_each_stage():
    events = replay(zero_bubble_h1(2, 2)).events
    assert {e.lane for e in events} == {"stage 0", "stage 1"}
    assert {e.phase for e in events} == {"forward", "backward", "weight"}
    assert sum(e.seconds for e in events) == 2 * 2 * 3


ILLEGAL = {
    "gradient before its forward": ([[F(0), B(0)], [B(0), F(0)]], 1, 0, "the gradient before its forward: F0"),
    "a forward twice": ([[F(0), F(0), B(0)]], 0, 1, "F0 has run already"),
    "a backward twice": ([[F(0), B(0), B(0)]], 0, 2, "B0 has run already"),
    "whole backward after half": ([[F(0), I(0), B(0)]], 0, 2, "the backward of micro-batch 0 is run twice: I0"),
    "half backward after whole": ([[F(0), B(0), I(0)]], 0, 2, "is run twice: B0"),
    "weights before input": ([[F(0), W(0), I(0)]], 0, 1, "the weights' gradients before the input's: I0"),
    "weights after a whole backward": ([[F(0), B(0), W(0)]], 0, 2, "B0 was the whole backward"),
    "an activation that never arrives": (
        [[F(0), B(0)], [F(0), B(0), F(1), B(1)]], 1, 2, "its activation never arrives: F1 is not in stage 0's list",
    ),
    "a gradient that never arrives": (
        [[F(0), F(1), B(0), B(1)], [F(0), F(1), B(0)]], 0, 3, "its gradient never arrives: B1 is not in",
    ),
    "a circle": (
        [[F(0), B(0), F(1), B(1)], [F(0), F(1), B(0), B(1)]], 0, 1,
        "in a circular wait: stage 0 is at B0 and waits for B0 of stage 1; stage 1 is at F1 and waits for F1",
    ),
    "a forward without backward": ([[F(0), F(1), B(0)]], 0, 3, "F1 has no backward: B1 is missing"),
    "half a backward": ([[F(0), I(0)]], 0, 2, "I0 is half of a backward: W0 is missing"),
    "a micro-batch left out": ([[F(0), B(0), F(2), B(2)]], 0, 4, "F1 is missing"),
    "a stage that does nothing": ([[F(0), B(0)], []], 0, 1, "its gradient never arrives: B0 is not in stage 1's"),
    "a chunk left out": ([[F(0), F(0, 1), B(0, 1), B(0)], [F(0), F(0, 1), B(0, 1)]], 0, 3, "its gradient never"),
}  # fmt: skip


@pytest.mark.parametrize("name", ILLEGAL)
def test_an_illegal_schedule_is_refused_with_its_first_illegal_action(name):
    schedule, stage, index, reason = ILLEGAL[name]
    with pytest.raises(IllegalAction) as caught:
        replay(schedule)
    assert reason in str(caught.value)
    assert (caught.value.stage, caught.value.index) == (stage, index)


def test_the_first_mistake_in_time_is_told_not_the_first_in_the_list():
    late = [F(0), F(1), F(2), F(2), B(2), B(1), B(0)]  # at time 3
    early = [F(0), B(1), F(1), F(2), B(2), B(0)]  # at time 2
    with pytest.raises(IllegalAction, match="stage 1, action 1, B1"):
        replay([late, early])


def test_a_memory_cap_refuses_the_forward_that_is_over_it():
    with pytest.raises(IllegalAction, match=r"stage 0, action 3, F3: .* over the cap: 3 are held"):
        replay(gpipe(2, 4), cap=3)
    assert replay(one_f_one_b(4, 99), cap=4).peak[0] == 4
    with pytest.raises(IllegalAction, match="over the cap"):
        replay(one_f_one_b(4, 99), cap=3)
    assert replay(interleaved_one_f_one_b(2, 4, 2), cap=2.5).peak[0] == 2.5
    with pytest.raises(IllegalAction, match="over the cap"):
        replay(interleaved_one_f_one_b(2, 4, 2), cap=2)


def test_plain_tuples_are_a_schedule_too():
    assert checked([[("F", 0), ["B", 0, 0]]]) == [[F(0), B(0)]]
    assert replay([(("F", 0), ("B", 0))]).makespan == 3


@pytest.mark.parametrize(
    "schedule, message",
    [
        ([], "empty"),
        ([[], []], "empty"),
        ([["F0"]], "'F0' is no action"),
        ([[("X", 0)]], "no action"),
        ([[("F",)]], "no action"),
        ([[("F", -1)]], "micro-batch and a chunk from 0 on"),
        ([[("F", 1.0)]], "micro-batch and a chunk from 0 on"),
        ([[("F", True)]], "micro-batch and a chunk from 0 on"),
        ([[("F", 0, -1)]], "micro-batch and a chunk from 0 on"),
    ],
)
def test_what_is_no_schedule_is_refused(schedule, message):
    with pytest.raises(ValueError, match=message):
        replay(schedule)


@pytest.mark.parametrize(
    "costs, message",
    [
        (Costs(forward=-1), "forward must be 0 or more"),
        (Costs(backward=float("inf")), "backward must be 0 or more and finite"),
        (Costs(transfer=float("nan")), "transfer must be 0 or more"),
        (Costs(weight=3), "weight is a part of backward"),
        (Costs([1, 2, 3]), "forward has 3 costs, but the schedule has 2 parts"),
    ],
)
def test_costs_that_make_no_sense_are_refused(costs, message):
    with pytest.raises(ValueError, match=message):
        replay(gpipe(2, 2), costs)


@pytest.mark.parametrize("make", [naive, gpipe, one_f_one_b, zero_bubble_h1])
@pytest.mark.parametrize("sizes", [(0, 1), (1, 0), (-1, 2), (2, 1.5), (True, 2)])
def test_impossible_sizes_are_refused(make, sizes):
    with pytest.raises(ValueError, match="must be a whole number, 1 or more"):
        make(*sizes)
    with pytest.raises(ValueError, match="chunks must be a whole number"):
        interleaved_one_f_one_b(2, 2, 0)


def test_a_transfer_may_differ_from_cut_to_cut():
    done = replay(naive(3, 1), Costs(1, 2, transfer=[0.5, 4]))
    assert done.makespan == 3 * 3 + 2 * (0.5 + 4)
    assert [e.end - e.start for e in done.transfers] == [0.5, 4, 4, 0.5]
    with pytest.raises(ValueError, match="transfer has 3 costs, but the schedule has 2 cuts between parts"):
        replay(naive(3, 1), Costs(transfer=[1, 1, 1]))


def test_a_checkpoint_costs_a_forward_more_but_not_where_backward_follows_at_once():
    assert replay(gpipe(1, 4), Costs(1, 2, again=1)).makespan == 4 * 3 + 3  # B3 follows F3
    assert replay(one_f_one_b(1, 4), Costs(1, 2, again=1)).makespan == 4 * 3
    first, last = replay(gpipe(2, 3), Costs(1, 2, again=[1, 10])).busy
    assert (first, last) == (3 * 3 + 2, 3 * 3 + 2 * 10)  # the first stage waits after its last F, but it follows
