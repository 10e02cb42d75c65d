"""Where data lies, and folders that are written whole or not at all."""

import contextlib
import errno
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO


def user_folder() -> Path:
    """The data folder of a user who chose none."""
    root = os.environ.get("XDG_CACHE_HOME")
    return (Path(root) if root else Path.home() / ".cache") / "ctagd_optax" / "data"


def data_folder(data_dir: str | os.PathLike[str] | None = None) -> Path:
    """The folder asked for: the argument, else CTAGD_DATA, else the user's."""
    chosen = data_dir if data_dir is not None else os.environ.get("CTAGD_DATA")
    return Path(chosen).expanduser() if chosen else user_folder()


@contextlib.contextmanager
def reserving(target: Path) -> Iterator[Path]:
    """Gives the hidden folder next to the target to one process at a time.

    What is left in it is there for the next one, even if the process is killed; the
    folder goes when nothing is.

    Args:
      target: the file or folder to make.

    Yields:
      The folder.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    folder = target.with_name(f".{target.name}.part")
    lock = folder / "lock"
    with contextlib.ExitStack() as stack:
        # After the lock is closed: a network disk keeps a file that is open.
        stack.callback(_remove_if_empty, folder)
        try:
            stack.enter_context(_lock(lock))
        except (ImportError, OSError):
            # No locks here, as on Windows: a folder of its own, which none continues.
            own = tempfile.TemporaryDirectory(
                prefix=f"{folder.name}-", dir=target.parent, ignore_cleanup_errors=True
            )
            folder = Path(stack.enter_context(own))
        stack.callback(_remove_if_alone, lock)
        yield folder


@contextlib.contextmanager
def building(target: Path, inside: str = "") -> Iterator[Path]:
    """Gives a temporary folder, which takes the target's place at the end.

    If anything is raised inside, the target stays as it was. Of two processes that
    build the same target, the last one wins, and it is whole at any time.

    Args:
      target: the folder to make.
      inside: the folder within the temporary one to take instead of all of it.

    Yields:
      The folder to write to.
    """
    with reserving(target) as folder, contextlib.ExitStack() as stack:
        new, old = folder / "new", folder / "old"
        for path in (new, old):
            # A killed process may have left it.
            shutil.rmtree(path, ignore_errors=True)
            stack.callback(shutil.rmtree, path, ignore_errors=True)
        new.mkdir()
        yield new
        _move(new / inside, target, old)


def _move(source: Path, target: Path, old: Path) -> None:
    """Renames a folder; one that is in its place becomes the old one."""
    while True:
        try:
            os.rename(source, target)
        except OSError as error:
            if error.errno not in (errno.EEXIST, errno.ENOTEMPTY) or target.is_file():
                raise
            shutil.rmtree(old, ignore_errors=True)
            # Another process may have moved it away already: then try again.
            with contextlib.suppress(FileNotFoundError):
                os.rename(target, old)
        else:
            return


def _lock(path: Path) -> IO[str]:
    """Waits for the lock on a file; it ends when this is closed or the process dies."""
    import fcntl

    while True:
        with contextlib.suppress(FileExistsError):
            path.parent.mkdir()
        # Whoever had the lock may have removed the file: then it locks nothing.
        with contextlib.ExitStack() as stack, contextlib.suppress(FileNotFoundError):
            file = stack.enter_context(path.open("a"))
            fcntl.flock(file, fcntl.LOCK_EX)
            if os.path.samestat(os.fstat(file.fileno()), path.stat()):
                stack.pop_all()
                return file


def _remove_if_alone(file: Path) -> None:
    with contextlib.suppress(OSError):
        if os.listdir(file.parent) == [file.name]:
            file.unlink()


def _remove_if_empty(folder: Path) -> None:
    with contextlib.suppress(OSError):
        folder.rmdir()
