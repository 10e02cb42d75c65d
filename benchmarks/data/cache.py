"""Decoded sets, kept as arrays that are mapped into memory rather than read."""

import json
import os
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np

from benchmarks.data.folders import building
from benchmarks.files import naming, write_json


def cached(
    folders: Iterable[Path],
    sources: Iterable[Path],
    make: Callable[[], dict[str, np.ndarray]],
) -> dict[str, np.ndarray]:
    """The arrays kept in one of the folders, or made and kept there.

    They are made anew if the sources or the files kept are not what they were.

    Args:
      folders: where to keep them, in order of preference; one that cannot be written
        to is passed over.
      sources: files or folders that the arrays are made of.
      make: makes the arrays by name.

    Returns:
      The arrays, read-only and mapped into memory unless no folder could be written.
    """
    folders, sources = list(folders), list(sources)
    mark = fingerprint(sources)
    for folder in folders:
        arrays = _read(folder, mark)
        if arrays is not None:
            return arrays
    arrays = make()
    for folder in folders:
        if _writable(folder.parent):
            _write(folder, arrays, mark)
            return _read(folder, mark) or arrays
    return arrays


def fingerprint(sources: Iterable[Path]) -> list[list]:
    """Name, size and time of change of each source."""
    marks = []
    for source in sources:
        status = source.stat()
        marks.append([source.name, status.st_size, status.st_mtime_ns])
    return marks


def _writable(folder: Path) -> bool:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return False
    return os.access(folder, os.W_OK | os.X_OK)


def _write(folder: Path, arrays: dict[str, np.ndarray], mark: list) -> None:
    with naming(folder), building(folder) as temporary:
        entries = {}
        for name, array in arrays.items():
            path = temporary / f"{name}.npy"
            np.save(path, array, allow_pickle=False)
            entries[name] = {
                "shape": list(array.shape),
                "dtype": array.dtype.str,
                "bytes": path.stat().st_size,
            }
        write_json(temporary / "manifest.json", {"sources": mark, "arrays": entries})


def _read(folder: Path, mark: list) -> dict[str, np.ndarray] | None:
    """The arrays, or None if any of them is not as the manifest says."""
    try:
        manifest = json.loads((folder / "manifest.json").read_text())
        if manifest["sources"] != mark:
            return None
        arrays = {}
        for name, entry in manifest["arrays"].items():
            path = folder / f"{name}.npy"
            array = np.load(path, mmap_mode="r", allow_pickle=False)
            found = [list(array.shape), array.dtype.str, path.stat().st_size]
            if found != [entry["shape"], entry["dtype"], entry["bytes"]]:
                return None
            # Indexing a plain array is faster than indexing a memmap.
            arrays[name] = np.asarray(array)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    return arrays
