"""What checks observe, facts that cases of several exercises ask for; and the sentences that show them."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from mpcourse.course.check.facts.ranks import attributes, rebinds
from mpcourse.course.check.facts.rounding import shorter_dtype
from mpcourse.course.check.rules import filled
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
    [WANT, WANT * (1 + 1e-6), WANT * 0.996, WANT + 1.0, WANT[::-1], WANT * np.nan, WANT[1:], np.zeros(40), WANT * 1.01]
    + [WANT * (1 + 1e-6 * np.sin(WANT))],
    ids=["right", "epsilon", "factor", "shifted", "turned", "NaN", "shorter", "zeros", "one percent"]
    + ["too small for float16"],
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
