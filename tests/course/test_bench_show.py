"""The table of a benchmark: read at 80 columns, by case, with what is promised and kept in one line."""

import pytest

from mpcourse.course.bench.record import Record
from mpcourse.course.bench.show import show


@pytest.fixture
def told(capsys):
    """Return what `show` prints of these records, and its exit status."""

    def printed(*records):
        status = show(records, as_json=False)
        return capsys.readouterr().out, status

    return printed


def test_records_of_one_case_stand_under_its_name_which_is_told_once(told):
    table, _ = told(
        Record("MLP, batch 32: plain loop", [11.0, 12.0, 10.5], "runs/s"),
        Record("MLP, batch 32: at once", [150.0, 151.0, 152.0], "runs/s"),
        Record("MLP, batch 64: plain loop", [1.0, 2.0, 3.0], "runs/s"),
        Record("alone", [1500.4, 0.5, 0.01234]),
    )
    lines = [line.rstrip() for line in table.splitlines()]
    assert lines[0].split() == ["median", "least", "most", "unit"]
    assert lines[1] == "MLP, batch 32"
    assert lines[2].split("  ", 2)[1] == "plain loop" and lines[2].split() == [
        "plain",
        "loop",
        "11",
        "10.50",
        "12",
        "runs/s",
    ]
    assert lines[3].split() == ["at", "once", "151", "150", "152", "runs/s"]
    assert lines[4].split() == ["MLP,", "batch", "64:", "plain", "loop", "2", "1", "3", "runs/s"]
    assert lines[5].split() == ["alone", "0.50", "0.0123", "1500", "s"]
    assert "Medians, least and most come from 3 runs." in lines and "romise" not in table


def test_every_line_fits_80_columns_and_no_word_is_broken(told):
    words = "parameters of twelve networks that were trained together differ from those of the plain loop by".split()
    table, _ = told(
        Record(f"a case: {' '.join(words)}", [1.0, 2.0], "times as fast", 1.5, at_least=True),
        Record("a case: of other runs", [1.0, 2.0, 3.0], "millionths", 1e-3),
        Record(f"a case that has a long name, {' '.join(words)}: one", [123456.0], "examples/s"),
    )
    assert all(len(line) <= 80 for line in table.splitlines())
    cells = [line[:30].split() for line in table.splitlines()]
    assert set(words) <= {word for line in cells for word in line}
    assert table.splitlines()[0].split() == ["median", "least", "most", "runs", "unit", "promise"]


def test_what_is_promised_and_kept_is_said_in_one_line(told):
    kept = Record("a: slow", [1.0], "%", 15.0), Record("b: fast", [3.0], "times", 2.0, at_least=True)
    table, status = told(*kept)
    assert status == 0 and "<= 15" in table and ">= 2" in table and "2 of 2, are kept." in table
    table, status = told(*kept, Record("c: slower", [16.0], "%", 15.0))
    assert status == 1 and "<= 15 broken" in table and "Of 3 promised bounds 1 broken: c: slower." in table
    table, status = told(Record("a", [1.0]), Record("b", [2.0]))
    assert status == 0 and "romise" not in table and table.split()[0] == "figure"


def test_a_promise_may_be_a_lower_bound():
    assert Record("faster", [1.3, 1.1, 1.2], promise=1.2, at_least=True).kept
    assert not Record("slower", [1.3, 1.1, 1.1], promise=1.2, at_least=True).kept
    assert not Record("longer", [1.3, 1.1, 1.3], promise=1.2).kept
