"""Make the exercise that a learner opens from the solution, and put it back when asked.

In a solution, the learner's part is between two marker comments; the first names the task:

    # solution: gather the greetings on rank 0
    return comm.gather(...)
    # end of solution

A program that is to be mended has a faulty part there, which the learner finds in its place:

    # solution: rank 0 divides by the number of all examples
    # found: return total / len(own)
    return total / count
    # end of solution
"""

import re
import subprocess
from datetime import datetime
from pathlib import Path

from mpcourse.common.errors import UserError
from mpcourse.course.check.manifest import Course, Exercise, load_course

_PART = re.compile(
    r"^(?P<indent>[ \t]*)# solution: (?P<task>[^\n]+)\n.*?^(?P=indent)# end of solution[ \t]*\n",
    re.MULTILINE | re.DOTALL,
)
_FOUND = re.compile(r"^([ \t]*)# found:(?: (.*)|)\n", re.MULTILINE)


def make_stub(name: str, solution: str) -> str:
    """Make an exercise's text from a solution's. Raises ValueError where markers are missing or unpaired."""

    def written(part: re.Match[str]) -> str:
        if found := _FOUND.findall(part[0]):
            return "".join(f"{indent}{line}\n" for indent, line in found if line)
        return f'{part["indent"]}raise NotImplementedError("{name}: {part["task"]}")\n'

    stub, parts = _PART.subn(written, solution)
    if not parts or re.search(r"# (solution:|found:|end of solution)", stub):
        raise ValueError(f"{name}: `# solution: <task>` and `# end of solution` must come in pairs, equally indented")
    return stub


def hollow(solution: str) -> str:
    """Remove what the learner is to write from a solution: it gives nothing away, and its stub is the same."""
    return _PART.sub(
        lambda part: (
            f"{part['indent']}# solution: {part['task']}\n"
            + "".join(found[0] for found in _FOUND.finditer(part[0]))
            + f"{part['indent']}# end of solution\n"
        ),
        solution,
    )


def solution_only(solution: str) -> str:
    """Remove the marker comments from a solution, for showing."""
    return re.sub(r"^[ \t]*# (solution: [^\n]+|found:[^\n]*|end of solution)[ \t]*\n", "", solution, flags=re.MULTILINE)


def stub_of(course: Course, exercise: Exercise) -> str:
    """Return the exercise as it was before anyone wrote in it."""
    return make_stub(exercise.name, course.solution_file(exercise).read_text(encoding="utf-8"))


def write_stubs(course: Course) -> list[str]:
    """Bring exercises/ in step with solutions/; what was done, a line each. Someone's work is kept."""
    lines = []
    for exercise in course.exercises:
        path, stub = course.exercise_file(exercise), stub_of(course, exercise)
        present = path.read_text(encoding="utf-8") if path.exists() else None
        if present == stub:
            lines.append(f"{exercise.name}: unchanged")
        elif present is None or present == committed(course, exercise):
            path.write_text(stub, encoding="utf-8")
            lines.append(f"{exercise.name}: written")
        else:
            lines.append(
                f"{exercise.name}: kept, it holds work of yours (`mpcourse reset {exercise.short}` puts it aside)"
            )
    return lines


def committed(course: Course, exercise: Exercise) -> str | None:
    """Read the exercise's text in the last commit; None where there is no git or no such file."""
    path = course.exercise_file(exercise).relative_to(course.root).as_posix()
    try:
        done = subprocess.run(["git", "-C", str(course.root), "show", f"HEAD:{path}"], capture_output=True, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.decode() if done.returncode == 0 else None


def reset(course: Course, exercise: Exercise, kept_in: Path) -> Path | None:
    """Put the stub back. The learner's text goes to a new file in `kept_in`; its path (None: no text)."""
    path, stub = course.exercise_file(exercise), stub_of(course, exercise)
    copy = None
    try:
        if path.exists() and path.read_text(encoding="utf-8", errors="replace") != stub:
            kept_in.mkdir(parents=True, exist_ok=True)
            stamp = datetime.now().strftime("%Y%m%d-%H%M%S-%f")
            copy = kept_in / f"{exercise.name}-{stamp}.py"
            copy.write_bytes(path.read_bytes())
        path.write_text(stub, encoding="utf-8")
    except OSError as error:
        raise UserError(f"{error.filename}: {error.strerror}: copy the course to a folder that you may write") from None
    return copy


if __name__ == "__main__":
    print("\n".join(write_stubs(load_course())))
