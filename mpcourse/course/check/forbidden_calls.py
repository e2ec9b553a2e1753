"""What an answer must write itself: it may not call the library's own, nor the solution."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from mpcourse.course.check.wrong import Wrong

PACKAGE = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class ForbiddenCalls:
    """The functions that an answer to `exercise` must not call.

    solution: how the path of its solution ends. sources: files of the library, and folders with a separator at their
    end. functions: single functions of other files, as (file, name).
    """

    exercise: str
    solution: str
    sources: tuple[str, ...] = ()
    functions: frozenset[tuple[str, str]] = frozenset()

    @classmethod
    def of(cls, exercise: str, forbidden_modules: Sequence[str]) -> "ForbiddenCalls":
        """Read what an exercise forbids.

        forbidden_modules: "package", "package.module" or "package.module:function", as the manifest has them.
        """
        sources, functions = [], set()
        for name in forbidden_modules:
            module, _, function = name.partition(":")
            place = PACKAGE.joinpath(*module.split(".")[1:])
            if function:
                functions.add((f"{place}.py", function))
            else:
                sources.append(f"{place}{os.sep}" if place.is_dir() else f"{place}.py")
        solution = os.path.join(os.sep, "solutions", f"{exercise}.py")
        return cls(exercise, solution, tuple(sources), frozenset(functions))

    def refuse(self, frame: FrameType) -> None:
        """Raise Wrong if the function that is called in this frame is one of them."""
        file, name = frame.f_code.co_filename, frame.f_code.co_name
        if file.startswith(self.sources) or (file, name) in self.functions:
            module = ".".join([PACKAGE.name, *Path(file).relative_to(PACKAGE).with_suffix("").parts])
            got = f"it runs {name} of {module}"
            why = (
                f"The library has what {self.exercise} is about, and a call of it shows nothing of what you know. "
                "Write it here yourself; the other parts of mpcourse are yours to use."
            )
        elif file.endswith(self.solution):
            got = f"it runs solutions/{self.exercise}.py"
            why = f"`mpcourse solution {self.exercise} --spoil` shows it, to compare with what you wrote yourself."
        else:
            return
        raise Wrong(f"{self.exercise} to be written in your own file", got, why)
