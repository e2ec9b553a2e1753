"""Where a learner stands: what is done and open, and what was met and mended, by lesson; as all shows of it need it."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from mpcourse.common.words import counted
from mpcourse.course.check.manifest import Course, Exercise, Lesson
from mpcourse.course.check.misconceptions import Met
from mpcourse.course.check.progress import Done, History, Progress, moment


@dataclass(frozen=True)
class Standing:
    """One exercise."""

    exercise: Exercise
    done: Done
    history: History

    @property
    def state(self) -> str:
        """ "done", "begun" once an answer was checked or a hint shown, else "open"."""
        if self.done.passed_at:
            return "done"
        return "begun" if self.done.attempts or self.done.hints else "open"

    def facts(self) -> list[str]:
        """What there is to tell beside its state, each in a few words."""
        facts = []
        if self.done.attempts:
            facts.append(counted(self.done.attempts, "check"))
        if self.done.passed_at and self.history.tried_at and self.done.passed_at != self.history.tried_at:
            time = moment(self.done.passed_at) - moment(self.history.tried_at)
            facts.append(f"passed {duration(time.total_seconds())} after the first")
        if self.done.hints:
            facts.append(counted(self.done.hints, "hint"))
        if self.done.spoiled:
            facts.append("solution shown" + " before it passed" * (self.state == "done"))
        return facts

    def as_dict(self) -> dict[str, Any]:
        return {
            "exercise": self.exercise.name,
            "title": self.exercise.title,
            "state": self.state,
            "tried_at": self.history.tried_at,
            "passed_at": self.done.passed_at,
            "tries": self.done.attempts,
            "hints": self.done.hints,
            "solution_shown": self.done.spoiled,
            "misconceptions": [asdict(met) for met in self.history.met],
        }


@dataclass(frozen=True)
class LessonStanding:
    """A lesson and its exercises."""

    lesson: Lesson
    exercises: Sequence[Standing]

    @property
    def name(self) -> str:
        """ "02 Split with copy"."""
        return f"{self.lesson.id[:2]} {self.lesson.title}"

    @property
    def begun(self) -> bool:
        return any(each.state != "open" for each in self.exercises)


def standings(course: Course, progress: Progress) -> list[LessonStanding]:
    """All lessons that have exercises, in the course's order."""
    every = [(lesson, [e for e in course.exercises if e.lesson == lesson.id]) for lesson in course.lessons]
    return [
        LessonStanding(lesson, [Standing(e, progress.of(e), progress.history(e)) for e in exercises])
        for lesson, exercises in every
        if exercises
    ]


def all_of(lessons: Sequence[LessonStanding]) -> list[Standing]:
    """The exercises of all these lessons, in order."""
    return [each for lesson in lessons for each in lesson.exercises]


def done_of(exercises: Sequence[Standing]) -> int:
    """How many have passed."""
    return sum(each.state == "done" for each in exercises)


def misconceptions(exercises: Sequence[Standing]) -> list[tuple[Exercise, Met]]:
    """All that were met, those first that are not mended yet."""
    found = [(each.exercise, met) for each in exercises for met in each.history.met]
    return sorted(found, key=lambda pair: pair[1].mended_at is not None)


def dates_of(met: Met) -> str:
    """ "met on 3 May 2026, twice; mended on 4 May 2026"."""
    often = {1: "", 2: ", twice"}.get(met.times, f", {met.times} times")
    mended = f"mended on {day(met.mended_at)}" if met.mended_at else "not mended yet"
    return f"met on {day(met.met_at)}{often}; {mended}"


def summary(exercises: Sequence[Standing]) -> list[str]:
    """Sentences on all of it: how much is done, since when, and what was met."""
    passed = [moment(each.done.passed_at) for each in exercises if each.done.passed_at]
    tried = [moment(each.history.tried_at) for each in exercises if each.history.tried_at]
    lines = [f"{done_of(exercises)} of {counted(len(exercises), 'exercise')} done."]
    if begun := [*tried, *passed]:
        lines.append(
            f"You began on {_day(min(begun))}" + (f"; the last one passed on {_day(max(passed))}." if passed else ".")
        )
    checks, hints = (sum(getattr(each.done, name) for each in exercises) for name in ("attempts", "hints"))
    if checks or hints:
        lines.append(f"{counted(checks, 'check')} and {counted(hints, 'hint')} so far.")
    if met := misconceptions(exercises):
        mended = sum(each.mended_at is not None for _, each in met)
        lines.append(f"You met {counted(len(met), 'misconception')} and mended {mended}.")
    return lines


def day(kept: str) -> str:
    """ "3 May 2026", of a moment as it is kept."""
    return _day(moment(kept))


def _day(when: Any) -> str:
    return f"{when.day} {when:%B} {when.year}"


def duration(seconds: float) -> str:
    """In the largest unit of which there are two: "90 seconds", "15 minutes", "30 hours", "3 days"."""
    for unit, length in (("day", 86400), ("hour", 3600), ("minute", 60)):
        if seconds >= 2 * length:
            return counted(round(seconds / length), unit)
    return counted(max(0, round(seconds)), "second")
