"""The glossary and the lessons agree: each term is bold where it is first used, in the lesson it names."""

import re
from dataclasses import dataclass

import pytest

from tests.conftest import ROOT
from tests.lesson_prose import prose

SOURCES = sorted((ROOT / "lessons" / "src").glob("[0-9][0-9]_*.py"))
COLUMNS = ["term", "meaning", "lesson", "elsewhere"]


@dataclass(frozen=True)
class Term:
    name: str
    meaning: str
    lesson: str

    @property
    def pattern(self) -> re.Pattern:
        """The term, or its plural, broken over lines or not."""
        words = r"\s+".join(map(re.escape, self.name.split()))
        return re.compile(rf"(?<![\w-]){words}(?:s|es)?(?![\w-])", re.IGNORECASE)


def glossary():
    rows = [line for line in (ROOT / "docs/glossary.md").read_text().splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]
    assert cells[0] == COLUMNS and set(cells[1]) == {"---"} and all(len(row) == len(COLUMNS) for row in cells)
    return [Term(name, meaning, lesson) for name, meaning, lesson, _ in cells[2:]]


LESSONS = {path.stem[:2]: prose(path) for path in SOURCES}
TERMS = glossary()


def in_bold(text, match):
    """Whether a match lies between a pair of ** of its paragraph."""
    begin = text.rfind("\n\n", 0, match.start()) + 1
    return text[begin : match.start()].count("**") % 2 == 1


def test_a_term_stands_in_the_glossary_once_and_in_the_order_of_lessons():
    names = [term.name.lower() for term in TERMS]
    assert len(set(names)) == len(names) > 90
    assert [term.lesson for term in TERMS] == sorted(term.lesson for term in TERMS)
    assert all(term.meaning and term.lesson in LESSONS for term in TERMS)


@pytest.mark.parametrize("term", TERMS, ids=lambda term: term.name.replace(" ", "_"))
def test_a_term_is_bold_where_it_is_first_used(term):
    for lesson, text in LESSONS.items():
        if lesson > term.lesson:
            break
        if first := term.pattern.search(text):
            around = " ".join(text[max(0, first.start() - 60) : first.end() + 40].split())
            assert lesson == term.lesson, f"{term.name} is used in lesson {lesson} already: ...{around}..."
            assert in_bold(text, first), f"{term.name} is not bold where lesson {lesson} first uses it: ...{around}..."
            return
    raise AssertionError(f"{term.name} is not used in lesson {term.lesson}")
