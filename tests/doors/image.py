"""An image as Docker builds it of a Dockerfile, and containers of it, in root file systems of a test's own.

What is proved is that the instructions do, in order and on a Debian with Python and pip, what they are there for. What
is not: that Docker reads the file as `dockerfile.py` does, and what the named base image holds.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from tests.doors.dockerfile import Instruction, context, expanded, parse
from tests.doors.rootfs import ENVIRONMENT, Layer, NotMade

ARGUMENTS = ("http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY")  # that Docker passes on


@dataclass
class Image:
    """layer: its files. The others: what its instructions said of a container. log: what they printed, by line."""

    layer: Layer
    environment: dict[str, str] = field(default_factory=lambda: dict(ENVIRONMENT))
    user: str = "root"
    folder: str = "/"
    entrypoint: list[str] = field(default_factory=list)
    command: list[str] = field(default_factory=list)
    port: int = 0
    log: dict[int, str] = field(default_factory=dict)


def pip_settings() -> tuple[dict[str, str], tuple[str, ...]]:
    """Return this machine's settings of pip as variables, and the files that they name: packages come from here."""
    listed = subprocess.run([sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True).stdout
    variables, shown = {}, set()
    for line in sorted(listed.splitlines(), key=lambda line: line.startswith(":env:")):  # the environment counts most
        name, _, value = line.partition("=")
        text = value.strip("'\"").replace("\\n", " ")
        variables[f"PIP_{name.partition('.')[2].replace('-', '_').upper()}"] = text
        for word in text.split():  # an index leads to files beside it
            path = os.path.dirname(word.removeprefix("file://")) if word.startswith("file://") else word
            shown |= {path} if os.path.exists(path) else set()
    return variables, tuple(sorted(path for path in shown if path.startswith("/")))


class Build:
    """A build of the Dockerfile in `root`, in `folder`, an empty one. arguments: those of --build-arg."""

    def __init__(self, root: Path, folder: Path, base: Layer, arguments: dict[str, str]) -> None:
        self.folder, self.base, self.arguments = folder, base, arguments
        self.context = folder / "context"
        for name in context(root, (root / ".dockerignore").read_text().splitlines()):
            (self.context / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(root / name, self.context / name)
        self.stages: dict[str, Image] = {}
        self.image: Image | None = None
        self.given: dict[str, str] = {}
        self.instructions = parse((root / "Dockerfile").read_text())
        self.last = max(step.line for step in self.instructions if step.name == "FROM")
        self.seconds: dict[int, float] = {}

    def run(self) -> Image:
        """Carry out all instructions. Raises NotMade where one fails."""
        for step in self.instructions:
            began = time.monotonic()
            getattr(self, f"_{step.name.lower()}")(step)
            self.seconds[step.line] = time.monotonic() - began
        assert self.image
        return self.image

    def _from(self, step: Instruction) -> None:
        found = re.fullmatch(r"python:3\.\d+-slim-\w+(?: AS (\w+))?", step.text)
        if not found:
            raise NotMade(f"line {step.line}: {step.text} is no image that we have something for")
        name = found[1] or "image"
        self.image = self.stages[name] = Image(Layer(self.folder / name, self.base))
        self.given = {}

    def _arg(self, step: Instruction) -> None:
        name, _, default = step.text.partition("=")
        self.given[name] = self.arguments.get(name, default)

    def _env(self, step: Instruction) -> None:
        for word in shlex.split(step.text):
            name, _, value = word.partition("=")
            self.image.environment[name] = expanded(value, self.image.environment)

    def _workdir(self, step: Instruction) -> None:
        self.image.folder = os.path.join(self.image.folder, step.text)
        self.image.layer.do("mkdir", "-p", self.image.folder)

    def _user(self, step: Instruction) -> None:
        self.image.user = step.text

    def _expose(self, step: Instruction) -> None:
        self.image.port = int(step.text)

    def _entrypoint(self, step: Instruction) -> None:
        self.image.entrypoint = step.words()

    def _cmd(self, step: Instruction) -> None:
        self.image.command = step.words()

    def _copy(self, step: Instruction) -> None:
        *sources, target = step.text.split()
        source = self.context
        if sources[0].startswith("--from="):
            # All that we copy from a stage was made in it, and so is among its own files.
            source = self.stages[sources.pop(0).removeprefix("--from=")].layer.files
        if (len(sources) > 1 and not target.endswith("/")) or any(name.startswith("--") for name in sources):
            raise NotMade(f"line {step.line}: COPY {step.text} is not known here")
        if target.startswith("."):
            target = os.path.normpath(os.path.join(self.image.folder, target)) + "/" * target.endswith("/")
        for name in sources:
            path = source / name.lstrip("/")
            if not path.exists():
                raise NotMade(f"line {step.line}: {name} is not there, or .dockerignore keeps it out")
            self.image.layer.copy(path, target)

    def _run(self, step: Instruction) -> None:
        """Let the first stage use the network and this machine's settings of pip, and the last one only apt's."""
        first, apt = step.line < self.last, "apt-get " in step.text
        variables, shown = pip_settings() if first else ({}, ())
        passed = {name: os.environ[name] for name in ARGUMENTS if name in os.environ}
        text = self.image.layer.do(
            *("/bin/sh", "-c", step.text),
            user=self.image.user,
            folder=self.image.folder,
            environment=self.image.environment | passed | variables | self.given,
            network=first or apt,
            shown=shown,
            timeout=400,
        )
        self.image.log[step.line] = text


class Container:
    """A container of an image, without a network. Its files are kept from one command to the next, as in a volume."""

    def __init__(self, image: Image, folder: Path) -> None:
        self.image, self.layer = image, Layer(folder, image.layer)

    def run(self, *command: str, user: str = "", **options) -> subprocess.CompletedProcess[str]:
        """`docker run --network none IMAGE COMMAND`; with no command, the image's own."""
        words, more = self._asked(command, user)
        return self.layer.run(*words, **more, **options)

    def start(self, log: Path, *command: str, user: str = "") -> subprocess.Popen[bytes]:
        """Run a command in the background, with its output in a file; `end` ends it."""
        words, more = self._asked(command, user)
        with log.open("wb") as output:
            return subprocess.Popen(
                self.layer.command(*words, **more), stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT
            )

    def _asked(self, command: tuple[str, ...], user: str) -> tuple[list[str], dict]:
        image = self.image
        return [*image.entrypoint, *(command or image.command)], {
            "user": user or image.user,
            "folder": image.folder,
            "environment": image.environment,
        }


def end(process: subprocess.Popen) -> None:
    """End a container that runs in the background. When its first process has ended, so have all others."""
    with suppress(psutil.NoSuchProcess):
        for first in psutil.Process(process.pid).children():
            first.kill()
    process.wait(timeout=20)
