"""Fetch a file whose SHA-256 is known.

Data goes into a `.part` file, which a later call continues. Only a whole, checked file gets the final name.
"""

import hashlib
import os
import urllib.request
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

from mpcourse.common.errors import UserError
from mpcourse.common.files import alone_with

CHUNK = 1 << 16
TIMEOUT = 30.0  # seconds without a byte


def download(url: str, path: Path, sha256: str, timeout: float = TIMEOUT) -> None:
    """Fetch a file, continuing `<path>.part` where an earlier call was cut off.

    url: of the file.
    path: where it is put, once it is whole and checked.
    sha256: its digest, in hexadecimal digits.
    timeout: seconds without a byte.

    Any number of ranks may call this at once: one fetches, the others wait and then find the file.
    Raises UserError where the server cannot be reached or refuses, the connection is lost (the `.part` stays), the
    digest is wrong (the `.part` goes), or the file cannot be written.
    """
    part = path.with_name(path.name + ".part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with alone_with(path.parent):
            if path.exists():  # another rank was first
                return
            if not part.exists() or _sha256(part) != sha256:  # a kill just before the rename leaves a whole .part
                _receive(url, part, timeout)
                digest = _sha256(part)
                if digest != sha256:
                    part.unlink()
                    raise UserError(f"{url} has SHA-256 {digest}, not {sha256}: try again, or name another mirror")
            os.replace(part, path)
    except OSError as error:  # of the disk: _receive turns the network's errors into UserErrors
        reason = error.strerror or error
        raise UserError(f"cannot write {path}: {reason}; free some space or name another folder") from error


def _receive(url: str, part: Path, timeout: float) -> None:
    """Append to `part` what it lacks, or write it anew where the server does not send the rest alone."""
    from tqdm.auto import tqdm

    have = part.stat().st_size if part.exists() else 0
    response = _open(url, have, timeout)
    if response is None:  # `part` is not the beginning of this file
        have = 0
        response = _open(url, have, timeout)
    if response.status != 206:  # the whole file, even if a part was asked for
        have = 0
    length = getattr(response, "length", None)  # None where the server does not say
    total = None if length is None else have + length
    with (
        response,
        open(part, "ab" if have else "wb") as file,
        tqdm(total=total, initial=have, unit="B", unit_scale=True, desc=part.stem) as bar,
    ):
        while chunk := _read(response, url, part):
            file.write(chunk)
            bar.update(len(chunk))
            have += len(chunk)
    if total is not None and have < total:
        raise UserError(_lost(url, part, f"{have} of {total} bytes came"))


def _open(url: str, have: int, timeout: float) -> Any:
    """Return the response to a request for `url` from byte `have` on, or None where there is no such byte."""
    try:
        request = urllib.request.Request(url, headers={"Range": f"bytes={have}-"} if have else {})
        response = urllib.request.urlopen(request, timeout=timeout)
    except HTTPError as error:
        if error.code == 416 and have:
            return None
        raise UserError(f"{url}: the server answers {error.code} {error.reason}; name another mirror") from error
    except (OSError, HTTPException, ValueError) as error:  # no route, timeout, not HTTP, not an address
        reason = getattr(error, "reason", error)
        raise UserError(f"cannot fetch {url}: {reason}; check the connection or name another mirror") from error
    starts = response.headers.get("Content-Range", f"bytes {have}-")
    if have and response.status == 206 and not starts.startswith(f"bytes {have}-"):
        response.close()
        return None
    return response


def _read(response: Any, url: str, part: Path) -> bytes:
    try:
        return response.read(CHUNK)
    except (OSError, HTTPException) as error:
        raise UserError(_lost(url, part, str(error) or type(error).__name__)) from error


def _lost(url: str, part: Path, reason: str) -> str:
    return f"lost the connection to {url} ({reason}): run it again to go on from {part.name}"


def _sha256(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
