"""What checks observe, facts that cases of several exercises ask for; and the sentences that show them."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from mpcourse.course.check.facts.messages import Sent, counting, metered, other_than_world
from mpcourse.course.check.facts.ranks import attributes, rebinds
from mpcourse.course.check.facts.rounding import shorter_dtype
from mpcourse.course.check.rules import Test, demand, filled
from mpcourse.course.check.wrong import Wrong
from mpcourse.virtual.ranks import run

WANT = np.random.default_rng(7).standard_normal(40)


def through(dtype, values=WANT):
    return torch.tensor(values).to(dtype).double().numpy()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_a_shorter_dtype_is_named(dtype):
    assert shorter_dtype(through(dtype), WANT) == str(dtype).removeprefix("torch.")
    summed = sum(through(dtype, part * WANT) for part in (0.2, 0.3, 0.5))
    assert shorter_dtype(summed, WANT) == str(dtype).removeprefix("torch.")


def test_float16_is_no_shorter_dtype_for_bfloat16():
    want = through(torch.bfloat16)
    assert shorter_dtype(want * (1 + 2.0**-9), want, unit=2.0**-8) == ""


@pytest.mark.parametrize(
    "wrong",
    [
        WANT,
        WANT * (1 + 1e-06),
        WANT * 0.996,
        WANT + 1.0,
        WANT[::-1],
        WANT * np.nan,
        WANT[1:],
        np.zeros(40),
        WANT * 1.01,
        WANT * (1 + 1e-06 * np.sin(WANT)),
    ],
    ids=[
        "right",
        "epsilon",
        "factor",
        "shifted",
        "turned",
        "NaN",
        "shorter",
        "zeros",
        "one percent",
        "too small for float16",
    ],
)
def test_what_is_no_rounding_is_not_called_so(wrong):
    assert shorter_dtype(wrong, WANT) == ""


def test_a_single_number_is_rounded_only_by_as_much_as_float32_rounds():
    assert shorter_dtype(np.float32(0.1), 0.1) == "float32"
    assert shorter_dtype(0.1 * 1.001, 0.1) == ""


@pytest.mark.parametrize("line", ["x = x + y", "a, x = y", "x = a = y"])
def test_a_parameter_that_is_bound_anew_is_seen(line):
    assert rebinds(f"def f(comm, x):\n    {line}", "f", 1)
    assert not rebinds(f"def g(comm, x):\n    {line}", "f", 1)


@pytest.mark.parametrize("line", ["x += y", "x[:] = y", "y = x", "x.a = y"])
def test_what_is_written_into_a_parameter_does_not_bind_it_anew(line):
    assert not rebinds(f"def f(comm, x):\n    {line}", "f", 1)


def test_methods_are_those_of_the_code_and_not_of_its_comments():
    assert attributes('"""comm.send(x)"""\ncomm.Send(x)  # not comm.isend') == {"Send"}


def test_a_run_tells_the_collective_calls_of_each_rank():
    def program(comm):
        comm.Barrier()
        if comm.rank == 0:
            comm.send(1, dest=1)
        else:
            comm.recv(source=0)
        comm.allreduce(1)

    assert run(program, 2).collectives == [["Barrier", "allreduce"]] * 2


def test_rounding_is_as_large_as_the_numbers_that_were_rounded():
    parts = [WANT + 10, -10 - 0 * WANT]
    rounded = sum(through(torch.float16, part) for part in parts)
    assert shorter_dtype(rounded, WANT) != "float16"
    assert shorter_dtype(rounded, WANT, scale=sum(map(np.abs, parts))) == "float16"


def test_a_sentence_shows_attributes_of_attributes_and_as_many_digits_as_it_says():
    facts = SimpleNamespace(case=SimpleNamespace(shape=(2, 3)), seconds=1 / 3)
    assert filled("{case.shape} in {seconds:.1f} s, and {} or {a, b} as they are", facts) == (
        "(2, 3) in 0.3 s, and {} or {a, b} as they are"
    )


# -- messages --


def sent_by(program, size=2):
    """Return what each virtual rank has sent in `program(comm)`, through a communicator that is not COMM_WORLD."""

    def on_rank(comm):
        given = other_than_world(comm)
        sent = counting(given)
        program(given, comm)
        given.Barrier()
        return sent()

    return run(on_rank, size).results


def exchange(comm, _):
    comm.Sendrecv(np.zeros(100), 1 - comm.rank, recvbuf=np.empty(100), source=1 - comm.rank)


def exchange_objects(comm, _):
    comm.sendrecv(np.zeros(100), 1 - comm.rank, source=1 - comm.rank)


def test_bytes_that_are_pickled_are_told_from_those_of_arrays():
    assert [(sent.nbytes, sent.pickled) for sent in sent_by(exchange)] == [(800, 0)] * 2
    assert all(sent.pickled == sent.nbytes > 800 for sent in sent_by(exchange_objects))
    assert all(sent.pickled > 800 for sent in sent_by(lambda comm, _: comm.alltoall([np.zeros(200)] * 2)))


def test_a_meter_says_what_was_sent_since_it_was_read():
    def on_rank(comm):
        sent = metered(comm)
        exchange(comm, None)
        return sent(), sent()

    assert run(on_rank, 2).results == [(Sent(800), Sent())] * 2


@pytest.mark.parametrize(
    "program, through",
    [
        (exchange, ""),
        (lambda _, world: world.allreduce(1), "allreduce()"),
        (lambda _, world: exchange(world, None), "messages"),
    ],
)
def test_what_goes_through_the_world_in_place_of_the_communicator_given_is_known(program, through):
    assert {sent.through_world for sent in sent_by(program)} == {through}


# -- rules --


class Share:
    rank = None
    pair = ("0.25", "1/4")
    seen = "half"
    part = 0.123456


def test_sentences_take_attributes_their_parts_and_formats():
    assert filled("{pair[1]} is {pair[0]}, not {part:.2g} or {seen.__class__.__name__}", Share()) == (
        "1/4 is 0.25, not 0.12 or str"
    )
    assert filled("a set {1, 2} and a dict {'a': 1} stay", Share()) == "a set {1, 2} and a dict {'a': 1} stay"


def test_an_observation_that_cannot_go_on_raises_what_its_table_says():
    demand([Test("half", lambda facts: facts.seen == "all", "all", "{seen}")], Share())
    with pytest.raises(Wrong, match="asked: all; got: half"):
        demand([Test("half", lambda facts: facts.seen == "half", "all", "{seen}", "It is one of two.")], Share())
