"""Public functions, classes and methods say what each of their arguments is, one line an argument."""

import dataclasses
import functools
import importlib
import inspect
import pkgutil
import re
import subprocess
import sys
import textwrap

import pytest

from mpcourse import virtual

ROOMS = (
    "collectives", "common.launch", "common.source", "data", "data_parallel", "grid", "large_batch", "model_parallel",
    "models", "pipeline", "plan", "predict", "split", "tensor_parallel", "zero",
)  # fmt: skip
EXAMPLES = (
    "collectives", "data_parallel", "grid", "large_batch", "model_parallel", "pipeline", "plan", "predict", "split",
    "tensor_parallel", "virtual", "zero",
)  # fmt: skip
LEANING = r"The same\b|As of\b|As the\b"  # how a docstring begins that says to read another one


def modules_of(room):
    """Return the room's modules: a folder's, or the one file; without tables of published figures, which are data."""
    room = importlib.import_module(f"mpcourse.{room}")
    below = pkgutil.walk_packages(getattr(room, "__path__", ()), f"{room.__name__}.")
    names = [module.name for module in below if "published" not in module.name]
    return [room, *map(importlib.import_module, names)]


def defined_in(module):
    """Return the public functions and classes that a module defines."""
    named = [each for name, each in vars(module).items() if not name.startswith("_")]
    return [each for each in named if is_code(each) and each.__module__ == module.__name__]


def is_code(each):
    return inspect.isclass(each) or inspect.isfunction(inspect.unwrap(each))


def is_inherited(cls, name):
    """Whether a class further up, torch's or another of the library, says what this method is for."""
    return any(name in vars(base) for base in cls.__mro__[1:])


def methods_of(cls):
    """Public methods and properties, by name, but for those that mpi4py's communicators have: their names are large."""
    for name, each in vars(cls).items():
        each = getattr(each, "fget", None) or getattr(each, "func", None) or getattr(each, "__func__", each)
        if inspect.isfunction(each) and each.__name__[0].islower() and not is_inherited(cls, name):
            yield f"{cls.__qualname__}.{name}", each


def arguments_of(each):
    """Names of what a function takes, or what is given to make a class; a record's public fields."""
    if hasattr(each, "_fields"):
        return list(each._fields)
    if dataclasses.is_dataclass(each):
        return [field.name for field in dataclasses.fields(each) if field.name[0] != "_"]
    call = vars(each).get("__init__") if inspect.isclass(each) else each
    if getattr(call, "__module__", None) != each.__module__:  # none of its own, or what typing.Protocol put there
        return []
    return [name for name in inspect.signature(call).parameters if name not in ("self", "cls")]


def lacking(name, each):
    """Return what a docstring lacks: "f has no docstring", "f: x". An argument is at the beginning of a line."""
    if not (text := vars(each).get("__doc__") if inspect.isclass(each) else each.__doc__):
        return [f"{name} has no docstring"]
    lines = re.findall(r"^ *(\w+(?:, \w+)*): ", text, re.MULTILINE)
    explained = {word for line in lines for word in line.split(", ")}
    return [f"{name}: {argument}" for argument in arguments_of(each) if argument not in explained]


def lacking_in(every):
    """Return what the docstrings of some functions, classes and their methods lack."""
    texts = []
    for each in every:
        texts += lacking(each.__qualname__, each)
        if inspect.isclass(each):
            texts += [text for name, method in methods_of(each) for text in lacking(name, method)]
    return texts


@pytest.mark.parametrize("room", ROOMS)
def test_arguments_are_told_one_a_line(room):
    assert not [text for module in modules_of(room) for text in lacking_in(defined_in(module))]


def test_arguments_of_the_virtual_cluster_and_gpus_are_told_one_a_line():
    assert not lacking_in(filter(is_code, (getattr(virtual, name) for name in virtual.__all__)))


def test_help_on_virtual_begins_with_a_page_and_goes_on_with_functions_alone():
    """The help of its ten classes had 893 lines, and no example."""
    program = "import pydoc, mpcourse.virtual as v; v.Box; print(pydoc.render_doc(v, renderer=pydoc.plaintext))"
    shown = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert len(virtual.__doc__.splitlines()) < 60 and len(shown.splitlines()) < 180
    assert "CLASSES" not in shown
    listed = set(re.findall(r"^    (\w+)\(", shown.split("FUNCTIONS")[1], re.MULTILINE)) - {"__getattr__"}
    assert listed < set(virtual.__all__)
    assert not [name for name in virtual.__all__ if not re.search(rf"\b{name}\b", virtual.__doc__)]


@pytest.mark.parametrize("room", EXAMPLES)
def test_a_room_shows_an_example_that_runs(room):
    text = importlib.import_module(f"mpcourse.{room}").__doc__
    blocks = re.findall(r"(?:^    .*\n|^\n(?=    ))+", text, re.MULTILINE)
    assert any(f"from mpcourse.{room} import" in block for block in blocks)
    names = {}
    for block in blocks:
        exec(textwrap.dedent(block), names)


def test_what_a_docstring_lacks_is_seen():
    def summed(x, y, *rest, z=0, **options):
        """Sum.

        x, y: numbers.
        rest, options: more
        of them, z: too.
        """

    class Record:
        """A record."""

        @property
        def value(self):
            return 0

        @functools.cached_property
        def other(self):
            """Something."""

    assert lacking("summed", summed) == ["summed: z"]
    assert lacking_in([Record])[0].endswith("Record.value has no docstring")
    assert len(lacking_in([Record])) == 1


@pytest.mark.parametrize("room", ROOMS)
def test_no_docstring_leans_on_another_one(room):
    texts = [inspect.getsource(module) for module in modules_of(room)]
    assert not [line for text in texts for line in re.findall(rf'"""(?:{LEANING}).*', text)]
