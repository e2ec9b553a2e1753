"""The image, built once for all tests here, and containers of it."""

import os
import shutil
from itertools import count

import pytest

from tests.conftest import ROOT
from tests.doors.image import Build, Container
from tests.doors.rootfs import NotMade, not_allowed, with_python

NUMBERS = count(1)


@pytest.fixture(scope="session")
def workshop():
    """Return a folder for root file systems, on the clone's disk: an image is 3 GB, and /tmp may be memory."""
    folder = ROOT / "build" / f"doors-{os.getpid()}"
    folder.mkdir(parents=True)
    try:
        if why := not_allowed(folder):
            pytest.skip(why)
        yield folder
    finally:
        shutil.rmtree(folder)


@pytest.fixture(scope="session")
def base(workshop):
    """Return what replaces Docker's image of Python: this machine's operating system with this Python in /usr/local."""
    return with_python(workshop / "base")


@pytest.fixture(scope="session")
def build(workshop, base):
    """Return the finished build. $TORCH_INDEX is its build argument, as it is make's. If it fails, all its tests do."""
    build = Build(ROOT, workshop / "build", base, {"TORCH_INDEX": os.environ.get("TORCH_INDEX", "")})
    try:
        build.run()
    except NotMade as error:
        pytest.fail(str(error)[-4000:], pytrace=False)
    print("".join(f"\nline {line}: {seconds:.0f} s" for line, seconds in build.seconds.items() if seconds > 1))
    return build


@pytest.fixture
def container(build, workshop):
    """Return a container of the image, without a network."""
    container = Container(build.image, workshop / f"container-{next(NUMBERS)}")
    yield container
    shutil.rmtree(container.layer.folder)
