"""A folder belongs to one process at a time."""

import contextlib
import contextvars
import json
import os
import pathlib
import platform
import sys
import time
import warnings
from collections.abc import Iterator
from typing import IO

NAME = ".lock"
# A process that was killed may take a moment to be gone.
_PATIENCE = 1.0
# Of the byte that is locked on Windows, behind all that the file holds.
_PLACE = 1 << 30
# Folders that the code which calls this has taken already.
_held: contextvars.ContextVar[frozenset[pathlib.Path]] = contextvars.ContextVar(
    "held", default=frozenset()
)


@contextlib.contextmanager
def holding(folder: pathlib.Path) -> Iterator[None]:
    """Takes a folder, makes it if need be, and gives it back at the end.

    The system itself gives it back if the process dies, killed perhaps. Within the
    block the same folder may be taken again.

    Args:
      folder: the folder.

    Raises:
      BlockingIOError: another process, or another thread, has it.
    """
    folder = folder.absolute()
    if folder in _held.get():
        yield
        return
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / NAME
    file = _locked(path)
    token = _held.set(_held.get() | {folder})
    try:
        yield
    finally:
        _held.reset(token)
        # Windows removes no file that is open, and need not.
        with contextlib.suppress(OSError):
            path.unlink()
        file.close()


def in_use(folder: pathlib.Path) -> BlockingIOError:
    """The error for a folder that another process has: which one, and what to do."""
    try:
        owner = json.loads((folder / NAME).read_text())
        who = (
            f"process {owner['pid']} on {owner['host']}, started {owner['started']} as "
            f"{owner['command']!r}"
        )
    except (OSError, ValueError, TypeError, KeyError):
        who = "another process"
    return BlockingIOError(
        f"out: {folder} is in use by {who}; wait until it ends, stop it, or give "
        "another --out"
    )


def _locked(path: pathlib.Path) -> IO[bytes]:
    """The file, open and locked, with who has it."""
    deadline = time.monotonic() + _PATIENCE
    while True:
        with contextlib.ExitStack() as stack:
            file = stack.enter_context(_open(path))
            if _lock(file):
                # Whoever had the lock has removed the file: then it locks nothing.
                with contextlib.suppress(FileNotFoundError):
                    if os.path.samestat(os.fstat(file.fileno()), path.stat()):
                        _write_owner(file)
                        stack.pop_all()
                        return file
                continue
        if time.monotonic() >= deadline:
            raise in_use(path.parent)
        time.sleep(0.05)


def _open(path: pathlib.Path) -> IO[bytes]:
    try:
        return path.open("ab+", buffering=0)
    except OSError as error:
        raise OSError(f"cannot write {path.parent}: {error.strerror}") from error


def _lock(file: IO[bytes]) -> bool:
    """Locks a file; False if another process has."""
    try:
        if sys.platform == "win32":
            import msvcrt

            file.seek(_PLACE)
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
        else:
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        return False
    except OSError as error:
        warnings.warn(
            f"{file.name} cannot be locked ({error.strerror}): make sure that nothing "
            "else writes to its folder",
            stacklevel=2,
        )
    return True


def _write_owner(file: IO[bytes]) -> None:
    owner = {
        "pid": os.getpid(),
        "host": platform.node(),
        "started": time.strftime("%Y-%m-%d %H:%M:%S"),
        "command": " ".join(sys.orig_argv)[:200],
    }
    # It is for the reader of an error; a full disk shows elsewhere.
    with contextlib.suppress(OSError):
        file.truncate(0)
        file.write(json.dumps(owner).encode())
