"""Unpacks archives, trusting none of the names in them."""

import stat
import tarfile
import zipfile
import zlib
from pathlib import Path, PurePosixPath, PureWindowsPath

from benchmarks.data.folders import building


def extract(archive: Path, target: Path, inside: str = "") -> None:
    """Unpacks an archive; the target is there only when it is whole.

    Args:
      archive: a .zip or .tar.gz file.
      target: the folder to make.
      inside: the folder within the archive that becomes the target; all of it if
        empty.

    Raises:
      ValueError: the archive is damaged, lacks the folder, or would write outside it.
    """
    with building(target, inside) as folder:
        try:
            if archive.suffix == ".zip":
                _unzip(archive, folder)
            else:
                with tarfile.open(archive) as tar:
                    tar.extractall(folder, filter="data")
        except (
            EOFError,
            NotImplementedError,
            tarfile.TarError,
            zipfile.BadZipFile,
            zlib.error,
        ) as error:
            raise ValueError(f"{archive} cannot be unpacked: {error}") from error
        if not (folder / inside).is_dir():
            raise ValueError(f"{archive} has no folder {inside}")


def _unzip(archive: Path, folder: Path) -> None:
    with zipfile.ZipFile(archive) as file:
        for entry in file.infolist():
            name = entry.filename
            outside = (
                ".." in PurePosixPath(name).parts
                or PurePosixPath(name).is_absolute()
                or bool(PureWindowsPath(name).anchor)
                or "\\" in name
            )
            if outside or stat.S_ISLNK(entry.external_attr >> 16):
                raise ValueError(f"{archive} has an entry {name!r} that leads outside")
        file.extractall(folder)
