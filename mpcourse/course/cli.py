"""`mpcourse doctor | list | check | ... | predict | plan | bench | lab | init`: `mpcourse --help` names all."""

import argparse
import json
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from mpcourse import __version__
from mpcourse.common.errors import UserError
from mpcourse.course.bench import NAMES, benchmark
from mpcourse.course.commands.options import add_export, add_grade, add_plan, add_predict, add_schedule
from mpcourse.course.commands.parser import OneLineParser


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command. Exit status: 0 all is well, 1 an answer or the machine failed, 2 it could not be done."""
    for name in ("SIGTERM", "SIGHUP"):  # so that what was started is ended, as after Ctrl-C
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), lambda number, frame: sys.exit(128 + number))
    try:
        parser = _parser()
        options, rest = parser.parse_known_args(arguments)
        if options.run is _lab:
            options.arguments = rest  # JupyterLab's own options
        elif rest:
            parser.error(f"unrecognized arguments: {' '.join(rest)}")
        elif options.run is None:  # no command
            parser.print_help(sys.stderr)
            sys.exit(2)
        sys.exit(options.run(options))
    except UserError as error:
        print(f"mpcourse: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        print("mpcourse: stopped", file=sys.stderr)
        sys.exit(130)
    except BrokenPipeError:  # `mpcourse list | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)


def _parser() -> argparse.ArgumentParser:
    parser = OneLineParser(
        prog="mpcourse", description="Distributed deep-learning training by hand.", allow_abbrev=False
    )
    parser.set_defaults(run=None)
    parser.add_argument("--version", action="version", version=f"mpcourse {__version__}")
    commands = parser.add_subparsers(metavar="command")

    def command(name: str, run: object, text: str, exercise: str | None = None) -> argparse.ArgumentParser:
        made = commands.add_parser(name, help=text, description=text, allow_abbrev=False)
        made.set_defaults(run=run)
        if exercise:
            made.add_argument("exercise", help=exercise)
        return made

    doctor = command("doctor", _doctor, "Is this machine ready for the course?")
    doctor.add_argument("--hosts", metavar="A,B,...", help="instead: can ranks run on these hosts together?")
    doctor.add_argument(
        "--ssh", default="ssh", metavar="COMMAND", help="how to log in to hosts, as in 'ssh -F file' (ssh)"
    )
    doctor.add_argument("--json", action="store_true", help="findings as JSON")
    listing = command("list", _list, "The exercises, and what is done.")
    listing.add_argument("--json", action="store_true", help="the table as JSON")
    progress = command("progress", _progress, "What is done and open, and which misconceptions were met and mended.")
    progress.add_argument("--html", type=Path, metavar="FILE", help="write a page for a browser instead")
    progress.add_argument("--json", action="store_true", help="as JSON")
    check = command("check", _check, "Check answers at several numbers of ranks.")
    check.add_argument("exercises", nargs="*", help="e00, e01_memory, ...; none: what `mpcourse next` tells")
    check.add_argument("--all", action="store_true", help="all exercises")
    check.add_argument("-np", "--np", type=int, metavar="N", help="only with N ranks")
    check.add_argument("--file", type=Path, help="check this file instead; progress is not touched")
    check.add_argument("--json", action="store_true", help="verdicts as JSON")
    check.add_argument("--junit", type=Path, metavar="FILE", help="also write the verdicts as JUnit XML")
    hint = command("hint", _hint, "The next hint for an exercise; each call shows one more.", "e00, e01_memory, ...")
    hint.add_argument("--json", action="store_true", help="the hints shown so far as JSON")
    command("reset", _reset, "Put an exercise back as it was; your text is kept aside.", "e00, e01_memory, ...")
    solution = command("solution", _solution, "The solution, once your own answer has passed.", "e00, e01_memory, ...")
    solution.add_argument("--spoil", action="store_true", help="show it before that")
    nextup = command("next", _next, "What to do next.")
    nextup.add_argument("--json", action="store_true", help="as JSON")
    watch = command("watch", _watch, "Check an exercise again each time its file is saved.", "e00, e01_memory, ...")
    watch.add_argument("-np", "--np", type=int, metavar="N", help="only with N ranks")
    bench = command("bench", _bench, "Measure, and compare with what the course promises.")
    bench.add_argument(
        "name",
        choices=NAMES,
        help="allreduce: sums by hand against MPI's and gloo's; context: ring attention against torch's over ranks; "
        "course: what a learner waits for; crossovers: which sum by hand is best from which size on; data-parallel: "
        "ours against torch's DDP over ranks; experts: a mixture of experts against torch's all-to-alls over ranks; "
        "pipeline: ours against torch's over ranks; scaling: training over 1, 2, "
        "... ranks and threads; setup: how long `make setup` and `make lab` take; tensor: a transformer's layers cut "
        "by hand against torch's parallelize_module over ranks; twins: ours against torch's own ways to train over "
        "ranks; two-hosts: a rank on each of two hosts against both on one; virtual: what virtual GPUs cost; "
        "zero: ZeRO's stages against torch's ZeroRedundancyOptimizer and FSDP2 over ranks",
    )
    bench.add_argument("--np", type=int, metavar="N", help="number of ranks (2; scaling: up to 4)")
    bench.add_argument("--hosts", metavar="A,B", help="two-hosts: the hosts; `mpcourse doctor --hosts` examines them")
    bench.add_argument(
        "--runs", type=int, metavar="N", help="number of measurements (5; data-parallel 15); the median counts"
    )
    bench.add_argument(
        "--save", type=Path, metavar="FILE", help="scaling: add each case to this CSV file, and skip cases in it"
    )
    bench.add_argument("--json", action="store_true", help="every run, with hardware, versions and date, as JSON")
    add_predict(
        command("predict", _predict, "Memory and time of your own model's training step on GPUs, without them.")
    )
    add_plan(command("plan", _plan, "Your own model on many GPUs: which grid fits, and which is fastest."))
    add_schedule(
        command("schedule", _schedule, "A pipeline's schedule: what each stage does and when, and its bubble.")
    )
    traced = command("trace", _trace, "Where a step's time goes, from torch.profiler's traces of several ranks.")
    traced.add_argument("files", nargs="+", metavar="FILE", help="a rank's trace each: JSON, or .json.gz")
    traced.add_argument("--json", action="store_true", help="as JSON, in seconds")
    made = command("init", _init, "Make a folder with the course for a learner; no clone is needed.")
    made.add_argument("folder", metavar="DIR", type=Path, help="empty, or not there yet")
    command("update", _update, "Bring what a newer mpcourse has into a learner's folder. What you wrote is kept.")
    add_grade(command("grade", _grade, "Teachers: check all answers of a class, each in a sandbox."))
    add_export(command("export", _export, "Teachers: the checks for Gradescope, GitHub Classroom or nbgrader."))
    command("lab", _lab, "Open JupyterLab on your next lesson. Further arguments are passed on to `jupyter lab`.")
    return parser


def _doctor(options: argparse.Namespace) -> int:
    from mpcourse.course.doctor import report

    if options.hosts is None and options.ssh != "ssh":
        raise UserError("--ssh only works with doctor --hosts")
    if options.hosts == "":
        raise UserError("--hosts names no host: mpcourse doctor --hosts a,b")
    return report(json=options.json, hosts=options.hosts or "", ssh=options.ssh)


def _list(options: argparse.Namespace) -> int:
    from mpcourse.course.commands.progress import list_exercises

    return list_exercises(options)


def _progress(options: argparse.Namespace) -> int:
    from mpcourse.course.commands.progress import show

    return show(options)


def _check(options: argparse.Namespace) -> int:
    from mpcourse.course.commands.check import check_answers

    return check_answers(options)


def _hint(options: argparse.Namespace) -> int:
    from mpcourse.course.commands.stuck import hint

    return hint(options)


def _reset(options: argparse.Namespace) -> int:
    from mpcourse.course.commands.stuck import put_back

    return put_back(options)


def _solution(options: argparse.Namespace) -> int:
    from mpcourse.course.commands.stuck import solution

    return solution(options)


def _next(options: argparse.Namespace) -> int:
    from mpcourse.course.check.manifest import load_course
    from mpcourse.course.check.progress import Progress

    course = load_course()
    exercise = Progress(course).next(course)
    if options.json:
        print(json.dumps({"exercise": exercise and exercise.name, "lesson": exercise and exercise.lesson}))
    elif exercise is None:
        print("all exercises have passed")
    else:
        file = os.path.relpath(course.exercise_file(exercise))
        print(
            f"{exercise.name}: {exercise.title} ({exercise.minutes} minutes)\n"
            f"  read   lessons/{exercise.lesson}.ipynb\n"
            f"  write  {file}\n"
            f"  check  mpcourse check {exercise.short}"
        )
    if not options.json and course.outdated:
        print(course.outdated)
    return 0


def _watch(options: argparse.Namespace) -> int:
    from mpcourse.course.commands.check import watch_answer

    return watch_answer(options)


def _bench(options: argparse.Namespace) -> int:
    if options.runs is not None and options.runs < 1:
        raise UserError(f"--runs {options.runs}: at least one run is needed")
    over_ranks = (
        "allreduce",
        "context",
        "crossovers",
        "data-parallel",
        "experts",
        "pipeline",
        "scaling",
        "tensor",
        "twins",
        "zero",
    )
    if options.np is not None and options.name not in over_ranks:
        raise UserError(f"--np only works with {', '.join(over_ranks)}")
    if options.np is not None and options.np < 2:
        raise UserError(f"--np {options.np}: a benchmark over ranks needs 2 ranks or more")
    if options.save and options.name != "scaling":
        raise UserError("--save only works with scaling")
    if options.hosts is not None and options.name != "two-hosts":
        raise UserError("--hosts only works with two-hosts")
    if options.hosts is None and options.name == "two-hosts":
        raise UserError("two-hosts needs to know which: mpcourse bench two-hosts --hosts a,b")
    from mpcourse.course.bench.show import show

    names = ("runs", "np", "save", "hosts")
    more = {name: value for name in names if (value := getattr(options, name)) is not None}
    return show(list(benchmark(options.name)(**more)), options.json)


def _predict(options: argparse.Namespace) -> int:
    from mpcourse.predict import beside, find_maker, predict, show

    inputs = None if options.inputs is None else beside(options.maker, options.inputs)
    if options.zero in (1, 2, 3) and options.ranks is None:
        raise UserError(f"--zero {options.zero} needs --ranks: how many share, such as --ranks 64")
    cut = [name.strip() for name in options.cut.split(",")] if options.cut else []
    prediction = predict(
        find_maker(options.maker), options.batch, options.gpu, options.gpus,
        link=options.link, cut=cut, optimizer=options.optimizer, tokens=options.tokens,
        zero=options.zero, ranks=1 if options.ranks is None else options.ranks, inputs=inputs,
        precision=options.precision,
    )  # fmt: skip
    if options.json:
        print(json.dumps({"model": options.maker} | prediction.as_dict(), indent=1))
    else:
        show(prediction)
    return 0 if prediction.fits else 1


def _trace(options: argparse.Namespace) -> int:
    from mpcourse.course.commands.trace import run

    return run(options)


def _plan(options: argparse.Namespace) -> int:
    from mpcourse.course.commands.plan import run

    return run(options)


def _schedule(options: argparse.Namespace) -> int:
    from mpcourse.course.commands.schedule import run

    return run(options)


def _init(options: argparse.Namespace) -> int:
    from mpcourse.course.learner import init

    return init(options.folder)


def _update(options: argparse.Namespace) -> int:
    from mpcourse.course.learner import update

    return update()


def _grade(options: argparse.Namespace) -> int:
    from mpcourse.course.grading.command import run

    return run(options)


def _export(options: argparse.Namespace) -> int:
    from mpcourse.course.grading.export import run

    return run(options)


def _lab(options: argparse.Namespace) -> int:
    from mpcourse.course.jupyter.lab import open_lab

    return open_lab(options.arguments)


if __name__ == "__main__":
    main()
