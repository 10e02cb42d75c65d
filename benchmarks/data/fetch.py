"""Downloads files: checked, resumed, and in place only when whole."""

import contextlib
import hashlib
import http.client
import os
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

from benchmarks.data.folders import reserving
from benchmarks.files import naming

_CHUNK = 1 << 18
# Twice as many as the largest set has: a server that never ends fills no disk.
_MOST_BYTES = 1 << 32
# Too early, too many: worth another try, unlike the other answers from 400 to 499.
_PASSING = frozenset({408, 425, 429})


class FetchError(OSError):
    """A file that could not be had; the message says from where and why."""


class _PassingError(Exception):
    """A failure that may pass."""


def fetch(
    address: str,
    target: Path,
    *,
    checksum: str | None,
    tries: int = 5,
    timeout: float = 30.0,
    pause: float = 1.0,
) -> None:
    """Downloads a file.

    What arrived before a failure is kept beside the target and continued by the next
    try, or the next call, if the server vouches that the file is still the same. Of
    two processes, one waits for the other. A file in place that has the checksum stays.

    Args:
      address: where it is.
      target: where to put it.
      checksum: "md5:…" or "sha256:…" in hexadecimal; None if none is known.
      tries: attempts before giving up.
      timeout: seconds without a byte after which the connection counts as stalled.
      pause: seconds before the second try; doubled before each further one.

    Raises:
      FetchError: the server does not have it, every try failed, or the file is not
        the one the checksum is of.
    """
    with _progress(target.name) as show, reserving(target) as part:
        data, validator = part / "data", part / "validator"
        try:
            # Another process may have put it there meanwhile.
            if not (target.is_file() and matches(target, checksum)):
                for attempt in range(tries):
                    try:
                        resumed = _attempt(address, data, validator, timeout, show)
                        _verify(address, data, checksum, resumed)
                        break
                    except _PassingError as failure:
                        if attempt + 1 == tries:
                            raise FetchError(
                                f"{address} failed {tries} times, at last: {failure}"
                            ) from failure
                        time.sleep(pause * 2**attempt)
                os.replace(data, target)
            validator.unlink(missing_ok=True)
        finally:
            # One without the other cannot be continued.
            if not (data.exists() and validator.exists()):
                data.unlink(missing_ok=True)
                validator.unlink(missing_ok=True)


def digest(path: Path, algorithm: str) -> str:
    """The file's checksum in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, algorithm).hexdigest()


def matches(path: Path, checksum: str | None) -> bool:
    """Whether the file has the checksum; without one, every file has."""
    if checksum is None:
        return True
    algorithm, _, expected = checksum.partition(":")
    return digest(path, algorithm) == expected


def _verify(address: str, path: Path, checksum: str | None, resumed: bool) -> None:
    if matches(path, checksum):
        return
    path.unlink()
    message = f"what {address} sent does not have the checksum {checksum}"
    if resumed:
        raise _PassingError(message)
    raise FetchError(message)


def _attempt(
    address: str,
    data: Path,
    validator: Path,
    timeout: float,
    show: Callable[[int, int | None], None],
) -> bool:
    """One request; returns whether it continued an earlier one."""
    request = urllib.request.Request(address)
    request.add_header("User-Agent", "ctagd-optax")
    # A compressed answer could not be continued.
    request.add_header("Accept-Encoding", "identity")
    start = data.stat().st_size if data.exists() and validator.exists() else 0
    if start:
        request.add_header("Range", f"bytes={start}-")
        request.add_header("If-Range", validator.read_text())
    try:
        response = urllib.request.urlopen(request, timeout=timeout)
    except urllib.error.HTTPError as error:
        error.close()
        if error.code == 416:
            data.unlink(missing_ok=True)
        elif 400 <= error.code < 500 and error.code not in _PASSING:
            raise FetchError(f"{address} answers {error.code} {error.reason}") from None
        raise _PassingError(f"the server answers {error.code} {error.reason}") from None
    except (OSError, http.client.HTTPException) as error:
        raise _PassingError(str(error) or type(error).__name__) from error
    with response:
        return _receive(address, response, data, validator, start, show)


def _receive(
    address: str,
    response: http.client.HTTPResponse,
    data: Path,
    validator: Path,
    start: int,
    show: Callable[[int, int | None], None],
) -> bool:
    resumed = response.status == 206
    if resumed and not (
        response.headers.get("Content-Range", "").startswith(f"bytes {start}-")
        and _validator(response) in ("", validator.read_text())
    ):
        data.unlink(missing_ok=True)
        raise _PassingError("the server sent another part than the one asked for")
    if not resumed:
        start = 0
        validator.unlink(missing_ok=True)
    length = response.headers.get("Content-Length")
    if length and not length.isdecimal():
        raise _PassingError(f"the server gives the length {length!r:.50}")
    total = start + int(length) if length else None
    done = start
    with naming(data), data.open("ab" if resumed else "wb") as file:
        if not resumed and _validator(response):
            validator.write_text(_validator(response))
        while done <= _MOST_BYTES and (chunk := _read(response)):
            file.write(chunk)
            done += len(chunk)
            show(done, total)
    if done > _MOST_BYTES:
        data.unlink()
        raise FetchError(f"{address} sends more than {_MOST_BYTES:,} bytes")
    if total is not None and done != total:
        raise _PassingError(f"the connection ended after {done:,} of {total:,} bytes")
    return resumed


def _read(response: http.client.HTTPResponse) -> bytes:
    try:
        return response.read1(_CHUNK)
    except (OSError, http.client.HTTPException) as error:
        raise _PassingError(str(error) or type(error).__name__) from error


def _validator(response: http.client.HTTPResponse) -> str:
    """What identifies the file's contents to If-Range: a weak tag does not."""
    tag = response.headers.get("ETag", "")
    if tag and not tag.startswith("W/"):
        return tag
    return "" if tag else response.headers.get("Last-Modified", "")


@contextlib.contextmanager
def _progress(name: str) -> Iterator[Callable[[int, int | None], None]]:
    """Gives a function that shows how many bytes are done, and of how many."""
    console = Console(stderr=True)
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    ) as progress:
        task = progress.add_task(name, total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)
