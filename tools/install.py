"""Install packages into the environment of this Python: by uv, which takes a tenth of pip's time, or else by pip.

python tools/install.py [OPTIONS OF PIP] PACKAGES...

Run by `make setup`, as a file: nothing but Python's own library is there yet. uv is installed by pip first. It does not
read pip's settings, so those that say where packages come from are passed on; where there are others, where uv cannot
be had, or where it fails, pip does it.
"""

import os
import subprocess
import sys
from collections.abc import Mapping

# What pip calls a setting, and the environment variable by which uv takes the same.
SETTINGS = {
    "index-url": "UV_DEFAULT_INDEX",
    "extra-index-url": "UV_INDEX",
    "find-links": "UV_FIND_LINKS",
    "cert": "SSL_CERT_FILE",
    "proxy": "ALL_PROXY",
    "trusted-host": "UV_INSECURE_HOST",
    "no-index": "UV_NO_INDEX",
    "constraint": "UV_CONSTRAINT",
}
HARMLESS = {"timeout", "default-timeout", "retries", "disable-pip-version-check", "root-user-action", "progress-bar",
            "no-cache-dir", "cache-dir", "quiet", "verbose", "break-system-packages", "require-virtualenv", "no-input",
            "no-python-version-warning", "no-color", "prefer-binary", "no-warn-script-location"}  # fmt: skip


def uv_environment(listed: str) -> dict[str, str] | None:
    """Return uv's variables for what `pip config list` printed; None where a setting has no equal.

    A setting of the environment, `:env:.`, counts more than one of `install.`, and that more than one of `global.`.
    """
    settings: dict[str, tuple[int, str]] = {}
    for line in listed.splitlines():
        name, separator, value = line.partition("=")
        section, _, setting = name.partition(".")
        if not separator or section not in ("global", "install", ":env:"):
            continue
        setting = setting.replace("_", "-").lower()
        if setting in HARMLESS:
            continue
        if setting not in SETTINGS:
            return None
        rank = ("global", "install", ":env:").index(section)
        if setting not in settings or rank >= settings[setting][0]:
            settings[setting] = rank, value.strip().strip("'\"").replace("\\n", " ")
    return {SETTINGS[setting]: " ".join(value.split()) for setting, (_, value) in settings.items()}


def run(*command: str, environment: Mapping[str, str] | None = None, quiet: bool = False) -> bool:
    """Whether a command of this Python's succeeded. quiet: what it says is not shown."""
    output = subprocess.DEVNULL if quiet else None
    variables = {**os.environ, **(environment or {})}
    done = subprocess.run([sys.executable, "-m", *command], env=variables, stdout=output, stderr=output)
    return done.returncode == 0


def by_uv(arguments: list[str]) -> bool:
    """Whether uv has installed it."""
    listed = subprocess.run([sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True).stdout
    settings = uv_environment(listed)
    if settings is None:
        return False
    if not run("uv", "--version", quiet=True) and not run(
        "pip", "install", "--quiet", "--disable-pip-version-check", "-c", "constraints.txt", "uv", quiet=True
    ):
        return False
    # As pip does, all indices are asked for the best version. Python compiles a module when it is first imported.
    options = ["--quiet", "--python", sys.executable, "--index-strategy", "unsafe-best-match"]
    if settings.get("UV_NO_INDEX") in ("1", "true", "yes"):
        # All is at hand already: nothing is to be kept for the next time.
        options += ["--no-index", "--no-cache"]
    else:
        # A change in the environment must not change uv's cache.
        settings["UV_LINK_MODE"] = "copy"
    settings.pop("UV_NO_INDEX", None)
    return run("uv", "pip", "install", *options, *arguments, environment=settings, quiet=True)


def main(arguments: list[str]) -> int:
    """Exit status 0, or pip's own."""
    if os.environ.get("MPCOURSE_INSTALLER") != "pip" and by_uv(arguments):
        return 0
    return 0 if run("pip", "install", "--quiet", "--disable-pip-version-check", *arguments) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
