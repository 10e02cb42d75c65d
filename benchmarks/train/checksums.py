"""Checksums of a checkpoint's files, which tell whether it is as it was written."""

import hashlib
import pathlib

from benchmarks.files import read_json, write_json

NAME = "checksums.json"
# What a restored run depends on. Orbax writes files of its own beside them, later.
_FOLDERS = ("state", "notes")


def write(folder: pathlib.Path, step: int) -> None:
    """Writes the checksums of the files in a checkpoint's folder."""
    write_json(folder / NAME, {"step": step, "sha256": _digests(folder)})


def damage(folder: pathlib.Path, step: int) -> str | None:
    """What is wrong with a checkpoint that has checksums; None if nothing is."""
    try:
        known = read_json(folder / NAME, {"step": int, "sha256": dict}, "a checkpoint")
        found = _digests(folder)
    except (OSError, ValueError) as error:
        return str(error)
    if known["step"] != step:
        return f"it is that of step {known['step']}"
    for name, digest in known["sha256"].items():
        if name not in found:
            return f"{name} is missing"
        if found[name] != digest:
            return f"{name} has another checksum"
    for name in found:
        if name not in known["sha256"]:
            return f"{name} does not belong to it"
    return None


def _digests(folder: pathlib.Path) -> dict[str, str]:
    digests = {}
    for part in _FOLDERS:
        for path in sorted((folder / part).rglob("*")):
            if path.is_file():
                with path.open("rb") as file:
                    digest = hashlib.file_digest(file, "sha256").hexdigest()
                digests[path.relative_to(folder).as_posix()] = digest
    return digests
