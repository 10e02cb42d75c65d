"""Where data lies, and folders that are written whole or not at all."""

import contextlib
import errno
import os
import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path


def user_folder() -> Path:
    """The data folder of a user who chose none."""
    root = os.environ.get("XDG_CACHE_HOME")
    return (Path(root) if root else Path.home() / ".cache") / "ctagd_optax" / "data"


def data_folder(data_dir: str | os.PathLike[str] | None = None) -> Path:
    """The folder asked for: the argument, else CTAGD_DATA, else the user's."""
    chosen = data_dir if data_dir is not None else os.environ.get("CTAGD_DATA")
    return Path(chosen).expanduser() if chosen else user_folder()


def beside(target: Path) -> Path:
    """A new hidden folder next to the target, whose name nobody else has."""
    target.parent.mkdir(parents=True, exist_ok=True)
    folder = target.with_name(f".{target.name}-{uuid.uuid4().hex}")
    folder.mkdir()
    return folder


@contextlib.contextmanager
def building(target: Path) -> Iterator[Path]:
    """Gives a temporary folder, which takes the target's place at the end.

    If anything is raised inside, the target stays as it was. Of two processes that
    build the same target, the last one wins, and it is whole at any time.

    Args:
      target: the folder to make.

    Yields:
      The folder to write to.
    """
    temporary = beside(target)
    try:
        yield temporary
        move(temporary, target)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def move(source: Path, target: Path) -> None:
    """Renames a folder; one that is in its place is removed."""
    while True:
        try:
            os.rename(source, target)
        except OSError as error:
            if error.errno not in (errno.EEXIST, errno.ENOTEMPTY) or target.is_file():
                raise
            aside = beside(target)
            # Another process may have moved it away already: then try again.
            with contextlib.suppress(FileNotFoundError):
                os.rename(target, aside / "old")
            shutil.rmtree(aside, ignore_errors=True)
        else:
            return
