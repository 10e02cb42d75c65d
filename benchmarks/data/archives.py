"""Unpacks archives, trusting none of what they say.

Only files and folders are made, never links, by names that were checked here, and no
more bytes are written than the set is known to have.
"""

import contextlib
import gzip
import shutil
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Generator
from pathlib import Path, PurePosixPath
from typing import IO

from benchmarks.data.folders import building
from benchmarks.files import naming

# Names, and contents where it is a file.
_Entries = Generator[tuple[str, IO[bytes] | None], None, None]
# Blocks of a tar that are not contents: headers, and what fills the last block.
_TAR_OVERHEAD = 1 << 20
# Twice as many as Tiny-ImageNet has; an empty one takes room, too.
_MOST_ENTRIES = 1 << 18


def extract(archive: Path, target: Path, inside: str = "", *, limit: int) -> None:
    """Unpacks an archive; the target is there only when it is whole.

    Args:
      archive: a .zip or .tar.gz file.
      target: the folder to make.
      inside: the folder within the archive that becomes the target; all of it if
        empty. Nothing else is unpacked.
      limit: the most bytes that it may unpack to.

    Raises:
      ValueError: the archive is damaged, lacks the folder, would write outside it,
        has something that is no file or folder, or is larger than the limit.
    """
    entries = _zip_entries if archive.suffix == ".zip" else _tar_entries
    top = PurePosixPath(inside)
    with naming(target), building(target, inside) as folder:
        try:
            with contextlib.closing(entries(archive, limit)) as found:
                for n, (name, contents) in enumerate(found):
                    if n == _MOST_ENTRIES:
                        raise ValueError(f"it has more than {_MOST_ENTRIES:,} entries")
                    path = _checked(name)
                    if path.is_relative_to(top):
                        _write(folder / path, contents)
        except (
            EOFError,
            FileExistsError,
            NotADirectoryError,
            RuntimeError,  # a zip with a password
            ValueError,
            gzip.BadGzipFile,
            tarfile.TarError,
            zipfile.BadZipFile,
            zlib.error,
        ) as error:
            raise ValueError(f"{archive} cannot be unpacked: {error}") from error
        if not (folder / inside).is_dir():
            raise ValueError(f"{archive} has no folder {inside}")


def _write(path: Path, contents: IO[bytes] | None) -> None:
    """Makes a file, or a folder where there are no contents."""
    if contents is None:
        path.mkdir(parents=True, exist_ok=True)
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("xb") as file:
        shutil.copyfileobj(contents, file)


def _checked(name: str) -> PurePosixPath:
    """The path of an entry, which stays below the folder on any system."""
    path = PurePosixPath(name)
    if ".." in path.parts or path.is_absolute() or set(name) & set("\\:\0"):
        raise ValueError(f"its entry {name!r:.100} leads outside")
    return path


def _zip_entries(archive: Path, limit: int) -> _Entries:
    with zipfile.ZipFile(archive) as file:
        entries = file.infolist()
        # No entry gives more than the list says.
        _check_size(sum(entry.file_size for entry in entries), limit)
        for entry in entries:
            kind = stat.S_IFMT(entry.external_attr >> 16)
            if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
                raise ValueError(_no_file(entry.filename))
            if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                raise ValueError(f"its entry {entry.filename!r:.100} is not deflated")
            if entry.header_offset < 0:
                raise ValueError(f"its entry {entry.filename!r:.100} is not in it")
            if entry.is_dir():
                yield entry.filename, None
            else:
                with file.open(entry) as contents:
                    yield entry.filename, contents


def _tar_entries(archive: Path, limit: int) -> _Entries:
    with gzip.open(archive) as raw:
        stream = _Limited(raw, limit)
        size = 0
        with tarfile.open(fileobj=stream, mode="r|") as tar:
            for entry in tar:
                if entry.isdir():
                    yield entry.name, None
                    continue
                if entry.type not in (tarfile.REGTYPE, tarfile.AREGTYPE):
                    raise ValueError(_no_file(entry.name))
                # Holes would take no room in the stream.
                if entry.issparse() or entry.size < 0:
                    raise ValueError(f"its entry {entry.name!r:.100} has holes")
                size += entry.size
                _check_size(size, limit)
                yield entry.name, tar.extractfile(entry)
        while stream.read(1 << 16):  # to its end, where the checksum is
            pass


class _Limited:
    """A stream that is not read to its end if it is too long."""

    def __init__(self, raw: IO[bytes], limit: int):
        self._raw = raw
        self._limit = limit
        self._done = 0

    def read(self, size: int) -> bytes:
        contents = self._raw.read(size)
        self._done += len(contents)
        if self._done > self._limit + _TAR_OVERHEAD:
            _check_size(self._done, self._limit)
        return contents


def _no_file(name: str) -> str:
    return f"its entry {name!r:.100} is no file and no folder"


def _check_size(size: int, limit: int) -> None:
    if size > limit:
        raise ValueError(f"it has more than {limit:,} bytes, the most of this set")
