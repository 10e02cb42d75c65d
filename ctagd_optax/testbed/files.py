"""Writes files whole or not at all."""

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Gives a temporary path beside the file, which takes its place at the end.

    If anything is raised inside, the file stays as it was.

    Args:
      path: the file to write.

    Yields:
      The path to write to, with the same suffix.

    Raises:
      OSError: the folder is not there or cannot be written to.

    Examples:
      >>> import tempfile, pathlib
      >>> from ctagd_optax.testbed.files import replacing
      >>> with tempfile.TemporaryDirectory() as folder:
      ...     target = pathlib.Path(folder) / "a.txt"
      ...     with replacing(target) as temporary:
      ...         _ = temporary.write_text("done")
      ...     print(target.read_text(), [p.name for p in target.parent.iterdir()])
      done ['a.txt']
    """
    target = Path(path)
    if target.is_dir():
        raise IsADirectoryError(f"{target} is a directory")
    handle, name = tempfile.mkstemp(
        dir=target.parent, prefix=f".{target.stem}-", suffix=target.suffix
    )
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        # A crash of the system must not leave the new name with nothing in it.
        with temporary.open("rb+") as file:
            os.fsync(file.fileno())
        # mkstemp's files are private; the result gets what a plain open() would give.
        mask = os.umask(0)
        os.umask(mask)
        temporary.chmod(0o666 & ~mask)
        os.replace(temporary, target)
    finally:
        temporary.unlink(missing_ok=True)


def check_writable(path: str | os.PathLike[str]) -> None:
    """Raises an OSError where a file could not be written; writes nothing.

    Args:
      path: the file to be written later.
    """
    target = Path(path)
    if target.is_dir():
        raise IsADirectoryError(f"{target} is a directory")
    try:
        with tempfile.NamedTemporaryFile(dir=target.parent, prefix=f".{target.stem}-"):
            pass
    except OSError as error:
        # The system names the temporary file, which means nothing to the reader.
        raise OSError(f"cannot write {target}: {error.strerror}") from error
