"""The verdict on an answer: one record, made from how the run ended."""

import re
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from mpcourse.common.source import shown_path, source_lines
from mpcourse.common.words import counted, named
from mpcourse.course.check import hangs
from mpcourse.course.check.manifest import load_course
from mpcourse.course.check.monitor import Ending
from mpcourse.course.check.rank import LOADING, Job, Report
from mpcourse.course.check.rank_exit import exit_of
from mpcourse.course.check.stub_detection import raises_not_implemented
from mpcourse.course.check.stubs import stub_of

SHOWN_LINES = 12  # of what each rank printed


@dataclass
class Verdict:
    """What `mpcourse check` says of one exercise.

    kind: "passed", or what went wrong, in one or two words. np: the number of ranks at which it was decided.
    rank, line: where, if known. headline: what happened. details: further lines. why: the likely misconception.
    virtual: whether those were virtual ranks; of an answer that passed, whether it passed on virtual ranks, too.
    printed: what ranks printed, as (rank, text). sizes: the numbers of ranks that passed. seconds: wall time. file: the
    path of the answer.
    """

    exercise: str
    kind: str
    np: int
    headline: str
    rank: int | None = None
    line: int | None = None
    details: list[str] = field(default_factory=list)
    why: str = ""
    printed: list[tuple[int, str]] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    seconds: float = 0.0
    file: str = ""
    virtual: bool = False

    @property
    def passed(self) -> bool:
        return self.kind == "passed"

    @property
    def written(self) -> bool:
        """Whether there was an answer to judge, rather than the stub."""
        return self.kind != "not written yet"

    def as_dict(self) -> dict[str, Any]:
        """Return the verdict for --json."""
        return {"passed": self.passed, **asdict(self), "seconds": round(self.seconds, 3)}


def judge(job: Job, ending: Ending) -> Verdict:
    """Return the verdict on one run of `ending.size` ranks."""
    file, folder = Path(job.file), Path(job.folder)
    source = source_lines(file)

    def code(line: int | None) -> str:
        return f"line {line}: `{source[line - 1].strip()}`" if line and line <= len(source) else ""

    headline = f"passed at {counted(ending.size, 'rank')}"
    verdict = Verdict(job.name, "passed", ending.size, headline, file=shown_path(file))
    failed = [r for r in ending.reports.values() if r.kind != "passed"]
    verdict.virtual = not failed and any(r.virtual for r in ending.reports.values())
    if ending.kind == "reported" and failed:
        first = min(failed, key=lambda r: (_ORDER.index(r.kind), r.rank))
        alike = sorted(r.rank for r in failed if r.kind == first.kind and r is not first)
        _tell_report(verdict, first, job.functions, code, file)
        if first.virtual:
            verdict.np, verdict.virtual = first.virtual, True
            verdict.printed = [(rank, shortened(clean(text))) for rank, text in first.printed]
            return verdict
        if alike and first.kind not in ("stub", "missing"):
            verdict.details.append(f"{named(alike)} failed too.")
    elif ending.kind == "flood":
        number = ending.flooding or 0
        line = ending.lines.get(number)
        verdict.kind, verdict.rank, verdict.line = "output flood", number, line
        verdict.headline = f"rank {number} printed more than 1 MB and was stopped {at(code(line))}"
        verdict.why = "A loop that prints has no end, or prints once an element instead of once."
    elif ending.kind == "died":
        exited = exit_of(ending, folder)
        line = ending.lines.get(exited.rank)
        verdict.kind, verdict.rank, verdict.line, verdict.why = "vanished", exited.rank, line, exited.why
        verdict.headline = f"rank {exited.rank} {exited.did} {at(code(line)) if exited.there else ''}".rstrip()
        if line and not exited.there:
            verdict.details = [f"its last call through the communicator: {code(line)}"]
    elif ending.kind == "not started":
        verdict.kind, verdict.headline = "not started", "the ranks did not start within a minute"
        verdict.why = "Something is wrong with the machine rather than the answer: run `mpcourse doctor`."
    elif ending.kind != "reported":
        hang = hangs.explained(ending, code)
        verdict.kind, verdict.rank, verdict.line = hang.kind, hang.rank, hang.line
        verdict.headline, verdict.details, verdict.why = hang.headline, hang.details, hang.why
    verdict.printed = _printed(folder, ending.size)
    return verdict


def _stub(name: str) -> str:
    """Return the exercise as it was made; empty where a teacher has taken the solutions away."""
    course = load_course()
    try:
        return stub_of(course, course.find(name))
    except OSError:
        return ""


# The report that tells most comes first when ranks fail in different ways.
_ORDER = ("checker", "stub", "missing", "raised", "exit", "wrong", "between ranks", "left over", "passed")


def _tell_report(verdict: Verdict, report: Report, functions: list[str], code: Any, file: Path) -> None:
    """Fill in the verdict from the report of the rank that failed."""
    verdict.rank, verdict.line, verdict.why = report.rank, report.line, report.why
    where = at(code(report.line))
    if report.kind == "stub":
        _tell_stub(verdict, report, where, file)
    elif report.kind == "missing":
        verdict.kind, verdict.headline = "nothing to call", f"{file.name} defines no function {report.message}"
        verdict.why = f"The check calls {', '.join(functions)}: keep the name, at the left margin of the file."
    elif report.kind == "raised":
        verdict.kind, verdict.headline = "exception", f"rank {report.rank} raised {report.message} {where}"
        verdict.details = [f"in the call {report.got}"] if report.got else []
        verdict.why = report.why or _why_raised(report.message)
    elif report.kind == "exit":
        verdict.kind, verdict.headline = "early exit", f"rank {report.rank} called {report.message} {where}"
        verdict.why = _why_exit(report, alone=verdict.np == 1)
    elif report.kind == "wrong":
        verdict.kind, verdict.headline = "wrong answer", f"rank {report.rank} {where}".strip()
        if report.everywhere:
            verdict.rank, verdict.headline = None, "all ranks"
        verdict.details = [f"asked: {report.asked}", f"got:   {report.got}"]
    elif report.kind == "between ranks":
        _tell_between(verdict, report, code, file)
    elif report.kind == "left over":
        verdict.kind, verdict.headline = "message left over", f"rank {report.rank} never received {report.message}"
        verdict.why = "Every send needs a receive: count both sides."
    else:
        verdict.kind, verdict.headline = "fault of the checker", f"the check itself failed: {report.message}"
        verdict.details = "".join(report.trace).splitlines()
        verdict.why = "This is a fault in mpcourse, not in your answer: please report it with the lines above."


def _tell_stub(verdict: Verdict, report: Report, where: str, file: Path) -> None:
    """Tell a NotImplementedError of the exercise's own stub from one that a library raised."""
    stub = raises_not_implemented(file, report.line, _stub(verdict.exercise))
    if not stub:
        message = f"NotImplementedError: {report.message}".removesuffix(": ")
        verdict.kind, verdict.headline = "exception", f"rank {report.rank} raised {message} {where}".rstrip()
        return
    function, other = stub
    verdict.kind, verdict.headline = "not written yet", report.message or "NotImplementedError"
    verdict.why = f"{verdict.file} is as it was at line {report.line}. Is it saved?"
    if other:
        verdict.why = (
            f"There is code in {function}, but the raise is still there at line {report.line} of {verdict.file}: "
            "delete that line once your answer is written."
        )


def _why_exit(report: Report, alone: bool) -> str:
    """Explain why ending the program is wrong. alone: whether the check asked for one rank."""
    if report.got == LOADING:
        return (
            "The check loads the file and then calls its functions: what ends the program ends the check, too. "
            'Leave it out, or put it below `if __name__ == "__main__":`.'
        )
    if alone and not report.virtual:
        return "That ends the whole program, the check's as well. Return from the function instead."
    return "The other ranks go on and wait for this one. Return from the function instead."


def _tell_between(verdict: Verdict, report: Report, code: Any, file: Path) -> None:
    """Fill in a mistake that virtual ranks found between ranks, with the learner's lines in place of their numbers."""
    lines = [re.sub(rf"{re.escape(file.name)}:(\d+)", lambda m: code(int(m[1])), text) for text in report.trace]
    if match := re.search(rf"{re.escape(file.name)}:(\d+)", "\n".join(report.trace)):
        verdict.line = int(match[1])
    verdict.kind, verdict.rank = _BETWEEN.get(report.message, report.message), None
    verdict.headline, verdict.details = lines[0], [line.strip() for line in lines[1:]]
    verdict.why = "" if "lower-case" in lines[0] else _WHY_BETWEEN.get(report.message, "")
    if "but there are ranks 0 to" in lines[0]:
        verdict.why = "No rank has that number. Write down, for 3 and for 7 ranks, who talks to whom."
    if "dest=-2," in lines[0]:
        verdict.why = (
            "That is MPI.ANY_SOURCE, no rank. A Status tells who sent once a receive was given it: "
            "comm.Recv(buffer, MPI.ANY_SOURCE, status=status), and then status.Get_source()."
        )
    if report.message == "deadlock":
        verdict.headline, verdict.why = "no rank can go on: what is waited for will never come", lines[-1]
        verdict.details.pop()


# What virtual ranks call their mistakes, in the words of a verdict.
_BETWEEN = {
    "truncated": "message too long",
    "datatypes": "another type of number",
    "collectives": "different collective calls",
    "counts": "different counts",
    "buffer": "not a buffer",
    "never received": "message left over",
    "never waited": "request left over",
    "changed": "changed while in use",
    "misuse": "impossible call",
}
_WHY_BETWEEN = {
    "truncated": "A receive needs room for all that was sent, which may be longer than what this rank sends.",
    "datatypes": "Take the buffer of the array's own dtype: np.empty_like(x), or np.empty(n, x.dtype).",
    "collectives": "Every rank of the communicator must make the same collective calls, in the same order.",
    "never received": "Every send needs a receive: count both sides.",
    "never waited": "Isend and Irecv only begin, and so does Iallreduce. Keep their requests, and Wait for each.",
    "changed": "From its beginning to its Wait a request has its buffer for itself.",
}

_RAISED = (
    (r"array split does not result in an equal", "p need not divide the length: np.array_split cuts unevenly."),
    (r"index 0 is out of bounds for axis 0 with size 0", "An empty array has no first number: x may be empty."),
    (
        r"slice indices must be integers",
        "Bounds are integers: // divides integers, while / and np.linspace give floats.",
    ),
    (
        r"Expected all tensors to be on the same device|invalid gradient at index \d+ - expected device|"
        r"assigned grad has data located on a different device",
        "A GPU computes on its own memory only: copy(x, device) brings a tensor there first.",
    ),
    (r"save_for_backward can only save", "ctx.save_for_backward is for tensors. Anything else: ctx.name = value."),
    (
        r"Invalid (rank|root)|MPI_ERR_(RANK|ROOT)",
        "There is no such rank here: ranks go from 0 to comm.size - 1, and comm.size may be any.",
    ),
    (
        r"assigned grad|assign a gradient",
        "A gradient is a tensor of its parameter's shape and dtype: torch.from_numpy(x) makes one of an array, "
        ".view_as(p) and .to(p.dtype) bring it into that form.",
    ),
    (
        r"numpy\(\) on Tensor that requires grad|tensor requires a gradient: send",
        "Autograd watches a parameter: p.detach() and p.data are the same memory without that.",
    ),
    (r"truncat|TRUNCATE", "The message is longer than the buffer that receives it."),
    (
        r"Insufficient space in Bsend buffer|MPI_ERR_BUFFER",
        "Bsend copies into memory that MPI.Attach_buffer was given, and there is none left. Isend and Wait need none.",
    ),
    (
        r"TypeError: [A-Z]\w+\(\) takes (at least|exactly)|cannot map .* to MPI datatype|"
        r"message: expecting|a (buffer|bytes-like object) is required|object is not a buffer",
        "Upper-case methods (Send, Gather) move arrays into a receive buffer; the lower-case ones move any object.",
    ),
)


def _why_raised(message: str) -> str:
    """Explain mpi4py's most common exceptions."""
    return next((why for pattern, why in _RAISED if re.search(pattern, message)), "")


def at(code: str) -> str:
    """Return `at line 3: ...`, or nothing where no line is known."""
    return f"at {code}" if code else ""


def clean(text: str) -> str:
    """Remove what could move the cursor, change colours or ring: control characters and escape sequences."""
    text = re.sub(r"\x1b(\[[0-9;?]*[ -/]*[@-~]|\][^\x07\x1b]*(\x07|\x1b\\)?|.)", "", text)
    return re.sub(r"[^\n\t\x20-\x7e\xa0-\U0010ffff]", "", text)


def shortened(text: str) -> str:
    """Cut what a rank printed to its first lines, and each line to its beginning."""
    lines = text.splitlines()
    return "\n".join([line[:200] for line in lines[:SHOWN_LINES]] + (["..."] if len(lines) > SHOWN_LINES else []))


def _printed(folder: Path, size: int) -> list[tuple[int, str]]:
    printed = []
    for i in range(size):
        path = folder / f"rank{i}.out"
        if path.exists():
            with path.open("rb") as file:
                shown = shortened(clean(file.read(20_000).decode(errors="replace")))
            if shown:
                printed.append((i, shown))
    return printed
