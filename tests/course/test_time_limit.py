"""An answer that computes too long is ended with the reason, at its line; what ends in time is left alone."""

import signal
import time

import pytest

from mpcourse.course.check.answer import Answer
from mpcourse.course.check.time_limit import within_seconds
from mpcourse.course.check.wrong import Wrong


def answer(tmp_path, body):
    file = tmp_path / "answer.py"
    file.write_text(f"import math\n\n\ndef f():\n    {body}\n")
    return Answer.load(file)


@pytest.mark.parametrize("body", ["while True: math.sqrt(2)", "sum(1 for _ in iter(int, 1))"])
def test_an_answer_that_takes_too_long_is_ended_with_the_reason_and_its_line(tmp_path, body):
    learners = answer(tmp_path, body)
    with pytest.raises(Wrong) as caught, within_seconds(learners, 0.2, "an answer", "too many steps"):
        learners.call("f")
    assert caught.value.asked == "an answer" and caught.value.got == "none after 0.2 s of computing"
    assert caught.value.why == "too many steps" and learners.line == 5


def test_an_answer_in_time_leaves_no_alarm_behind(tmp_path):
    learners = answer(tmp_path, "return 3")
    before = signal.getsignal(signal.SIGVTALRM)
    with within_seconds(learners, 0.05, "an answer", "too many steps"):
        assert learners.call("f") == 3
    end = time.process_time() + 0.2
    while time.process_time() < end:
        pass
    assert signal.getsignal(signal.SIGVTALRM) == before
    assert signal.getitimer(signal.ITIMER_VIRTUAL) == (0.0, 0.0)
