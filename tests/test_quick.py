"""`make quick` takes the tests that are nearest to a change, as far as there is time."""

from tests.quick import BUDGET, chosen, distances


def test_a_change_is_looked_for_by_what_tests_import():
    run, exercises, later = chosen(["mpcourse/pipeline/schedule.py"], {})
    assert "test_schedule.py" in run and "test_readme.py" not in run and not exercises and later


def test_what_is_imported_from_near_comes_first_and_the_rest_is_told():
    seconds = {"test_schedule.py": BUDGET}
    run, _, later = chosen(["mpcourse/pipeline/schedule.py"], seconds)
    assert "test_schedule.py" in [*run, *later] and sum(seconds.get(file, 5.0) for file in run) <= BUDGET


def test_the_answers_to_an_exercise_are_judged_where_its_check_or_they_have_changed():
    for path in (
        "mpcourse/check/cases/e03_balance.py",
        "tests/wrong_answers/e03_balance.py",
        "solutions/e03_balance.py",
    ):
        assert chosen([path], {})[1] == {"e03_balance"}


def test_a_program_that_a_test_starts_is_as_near_as_a_module():
    assert distances("tests.test_servers")["tests.programs.servers_truth"] == 1
