"""What commands that write files share: whether a file can be written, and counts and shares in words."""

from pathlib import Path

from mpcourse.common.errors import UserError


def check_writable(path: Path) -> None:
    """Raise UserError if `path` cannot be written; leaves it as it was."""
    try:
        new = not path.exists()
        path.open("a").close()
        if new:
            path.unlink()
    except OSError as error:
        raise UserError(f"{path} cannot be written ({error.strerror}): name another file") from None


def write(path: Path, text: str) -> None:
    """Write a file. UserError where that fails after all: a device may be full."""
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UserError(f"{path} cannot be written ({error.strerror}): name another file") from None


def real_path(path: Path) -> Path:
    """Return `path` without symbolic links. Raises UserError where they lead in a circle."""
    try:
        return path.resolve()
    except (OSError, RuntimeError):
        raise UserError(f"{path} is a symbolic link that leads back to itself: name a file") from None


def check_picture(path: Path) -> None:
    """Raise UserError if `path` cannot be written, or its ending is no format that matplotlib writes."""
    from matplotlib.backend_bases import FigureCanvasBase

    formats = FigureCanvasBase.get_supported_filetypes()
    if path.suffix[1:].lower() not in formats:
        raise UserError(f"{path}: its ending names no image format: choose one of {', '.join(sorted(formats))}")
    check_writable(path)


def percent(share: float) -> str:
    """Write a share as `75 %` or `11.1 %`."""
    return f"{round(100 * share, 1):g} %"
