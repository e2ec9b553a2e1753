"""CONTRIBUTING's table of rooms is complete, and imports go downwards only."""

import ast
import re

import pytest

from tests.conftest import ROOT

LIBRARY = ROOT / "mpcourse"
FILES = sorted(LIBRARY.rglob("*.py"))


def floors():
    """Room -> floor, as CONTRIBUTING's table has them."""
    rows = re.findall(r"^\| (\d+) \| ([^|]*) \|", (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"), re.MULTILINE)
    return {room: int(floor) for floor, rooms in rows for room in re.findall(r"`([\w/]+?)(?:\.py|/)`", rooms)}


def name_of(file):
    """`mpcourse.split.copy`; of a package its own."""
    return ".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def room_of(module):
    """Return the folder or file below `mpcourse`, or below `mpcourse.course`; None for these two."""
    parts = module.split(".")[1:]
    return "/".join(parts[:2] if parts[:1] == ["course"] else parts[:1]) or None


def is_program(node):
    """Whether this is `if __name__ == "__main__":`."""
    return isinstance(node, ast.If) and ast.unparse(node.test) == "__name__ == '__main__'"


def imports(text, at_once=False, typing=True):
    """Modules of the library that source text imports, wherever it does.

    at_once: only what it does when it is imported itself. typing: what stands under TYPE_CHECKING, too.
    """
    found, nodes = set(), [node for node in ast.parse(text).body if not is_program(node)]
    while nodes:
        node = nodes.pop()
        if isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif not typing and isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            nodes += node.orelse
        elif not at_once or isinstance(node, ast.If | ast.Try | ast.With):
            nodes += ast.iter_child_nodes(node)
    return {module for module in found if module.split(".")[0] == "mpcourse"}


def upwards(room, text, known):
    """Return the rooms that source text of `room` imports although they are not below it."""
    others = {room_of(module) for module in imports(text)} & set(known)
    return sorted(other for other in others if other != room and known[other] >= known[room])


def test_every_room_stands_in_the_table_once():
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    named = [r for row in re.findall(r"^\| \d+ \| ([^|]*) \|", text, re.MULTILINE) for r in re.findall(r"`(\S+)`", row)]
    rooms = [*LIBRARY.iterdir(), *(LIBRARY / "course").iterdir()]
    there = {
        file.relative_to(LIBRARY).as_posix() + "/" * file.is_dir()
        for file in rooms
        if file.is_dir() or file.suffix == ".py"
    }
    there -= {"__init__.py", "course/__init__.py", "__pycache__/", "course/__pycache__/"}
    assert sorted(named) == sorted(there - {"course/"})


def test_the_library_is_seen_at_a_glance():
    rooms = [file for file in LIBRARY.iterdir() if file.name != "__pycache__"]
    assert len(rooms) <= 23  # half of them are subjects of lessons


@pytest.mark.parametrize("room", sorted(floors()))
def test_imports_go_downwards(room):
    known = floors()
    found = {}
    for file in FILES:
        if room_of(name_of(file)) == room and (above := upwards(room, file.read_text(encoding="utf-8"), known)):
            found[name_of(file)] = above
    assert not found


def test_an_import_upwards_is_seen_wherever_it_stands():
    known = {"split": 3, "plot": 5, "virtual": 1, "pipeline": 4}
    assert upwards("split", "def f():\n    from mpcourse.plot import lines", known) == ["plot"]
    assert upwards("split", "import mpcourse.pipeline.ranks\nfrom mpcourse import plot", known) == ["pipeline", "plot"]
    assert upwards("split", "from mpcourse.virtual import run\nfrom mpcourse.split import copy", known) == []
    assert upwards("split", 'if __name__ == "__main__":\n    from mpcourse import plot', known) == []


def graph_of(at_once):
    """Which modules each module imports when it is run; without those that gather what their folder has."""
    modules = {name_of(file): file for file in FILES if file.name != "__init__.py"}
    return {
        name: imports(file.read_text(encoding="utf-8"), at_once, typing=False) & set(modules) - {name}
        for name, file in modules.items()
    }


def circles(graph):
    """Return the sets of modules each of which reaches all others of its set by its imports, and theirs."""
    reached = {}
    for start in graph:
        seen, coming = set(), [start]
        while coming:
            new = graph[coming.pop()] - seen
            seen |= new
            coming += new
        reached[start] = seen
    return {frozenset(a for a in seen if one in reached[a]) for one, seen in reached.items() if one in seen}


def test_no_circle_of_imports_within_functions_is_larger_than_two_files():
    assert not [sorted(circle) for circle in circles(graph_of(at_once=False)) if len(circle) > 2]


def test_a_circle_is_seen_wherever_it_is_entered():
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}}) == {frozenset("abc")}
    assert not circles({"a": {"b"}, "b": {"c"}, "c": set()})


def test_no_module_imports_itself_through_others():
    """As it is imported; what a function imports when it is called is there by then."""
    graph = graph_of(at_once=True)
    while leaves := [name for name, found in graph.items() if not found & set(graph)]:
        for name in leaves:
            del graph[name]
    assert not graph
