"""The first lesson as Colab runs it: as root, with a torch and an mpirun that are there, in /content."""

import zipfile

import nbformat
import pytest

import mpcourse
from mpcourse.course.check.verdict import clean
from tests.conftest import ROOT, load_script
from tests.doors.rootfs import Layer

pytestmark = pytest.mark.timeout(900)
RUN = """
import nbformat
from nbclient import NotebookClient
book = nbformat.read("00_start_here.ipynb", 4)
NotebookClient(book, timeout=200, kernel_name="python3").execute()
nbformat.write(book, "run.ipynb")
"""
COLABS = ("torch", "numpy", "matplotlib", "ipykernel", "ipywidgets", "nbclient", "nbformat")


def _install(layer, wheels, program):
    """Install what Colab has beforehand: by uv, which takes a tenth of pip's time, from its wheel."""
    (wheel,) = wheels.glob("uv-*.whl")
    with zipfile.ZipFile(wheel) as packed:
        (name,) = (name for name in packed.namelist() if name.endswith("/scripts/uv"))
        program.write_bytes(packed.read(name))
    program.chmod(0o755)
    asked = ["--quiet", "--no-cache", "--no-index", "--find-links", wheels, "--break-system-packages"]
    layer.do(*map(str, [program, "pip", "install", "--python", layer.python, *asked, *COLABS]), shown=(wheels, program))


@pytest.fixture
def colab(base, build, workshop):
    """Return a function that runs a command on a machine like Colab's, whose index has the wheels that it needs."""
    layer = Layer(workshop / "colab", base)
    wheels = build.stages["wheels"].layer.files / "wheels"
    # Of a flag that says no, pip takes a falsy value for yes: what is imported compiles itself, a tenth of all.
    pip = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(wheels), "PIP_NO_COMPILE": "false"}
    options = {"environment": pip, "shown": (str(wheels),)}
    # Colab's Python is /usr/bin/python3, packages are in /usr/local, and beside that Python is an mpirun of its own.
    (layer.files / "usr/bin").mkdir(parents=True)
    layer.python = "/usr/local/bin/python3"
    if not (base.files / "usr/local/pyvenv.cfg").exists():  # otherwise that one leads to /usr/bin/python3
        layer.python = "/usr/bin/python3"
        (layer.files / "usr/bin/python3").symlink_to("/usr/local/bin/python3")
    other = layer.files / "usr/bin/mpirun"
    other.write_text("#!/bin/sh\necho 'mpirun (Open MPI) 4.1.2'\nexit 1\n")
    other.chmod(0o755)
    _install(layer, wheels, workshop / "uv")
    (site,) = layer.files.glob("usr/local/lib/python3*/site-packages")
    (site / "google" / "colab").mkdir(parents=True)
    (site / "google" / "colab" / "__init__.py").touch()
    (layer.files / "root/.ipython/profile_default/startup").mkdir(parents=True)
    (layer.files / "root/.ipython/profile_default/startup/colab.py").write_text("import google.colab\n")
    load_script(ROOT / "tools" / "for_colab.py").write_copies(workshop / "copies")
    layer.copy(workshop / "copies" / "00_start_here.ipynb", "/content/")
    layer.options, layer.torch = options, site / "torch" / "version.py"
    return layer


def test_the_first_lesson_runs_in_colab_and_leaves_its_torch_alone(colab):
    torch = colab.torch.stat().st_ino, colab.torch.stat().st_mtime_ns
    colab.do(colab.python, "-c", RUN, folder="/content", **colab.options)
    assert (colab.torch.stat().st_ino, colab.torch.stat().st_mtime_ns) == torch
    book = nbformat.read(colab.files / "content/run.ipynb", as_version=4)
    first, *rest = [cell for cell in book.cells if cell.cell_type == "code"]
    lines = "".join(output.text for output in first.outputs).splitlines()
    assert lines[0].startswith(f"mpcourse {mpcourse.__version__} with torch ") and len(lines) == 2
    assert lines[0].endswith(": lessons and exercises are in /content/mpcourse.")
    assert (colab.files / "content/mpcourse/lessons/scratch/both_listen.py").is_file()
    assert "0 of 1 exercise" in rest[0].outputs[0].data["text/plain"]  # the panel, of the folder that was made
    (doctor,) = (cell for cell in rest if cell.source == "!mpcourse doctor")
    doctor = clean("".join(output.get("text", "") for output in doctor.outputs))
    assert "/usr/local/bin/mpirun" in doctor and "/usr/bin/mpirun" not in doctor
