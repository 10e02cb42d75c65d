"""Result files."""

import contextlib
import functools
import json
import pathlib
import re
import subprocess
from collections.abc import Iterable, Iterator
from typing import Any

import ctagd_optax
from ctagd_optax.testbed.files import replacing


def read_json(path: pathlib.Path, keys: set[str], what: str) -> dict[str, Any]:
    """Reads a JSON object.

    Args:
      path: the file.
      keys: what it must have.
      what: what such a file describes, for the error.

    Returns:
      The object.

    Raises:
      ValueError: the file is not JSON, or describes something else.
    """
    try:
        value = json.loads(path.read_text())
    except ValueError as error:
        raise ValueError(f"{path} is not JSON: {error}") from error
    if not (isinstance(value, dict) and keys <= set(value)):
        raise ValueError(f"{path} does not describe {what}")
    return value


@contextlib.contextmanager
def naming(path: pathlib.Path) -> Iterator[None]:
    """Names a file in the error where it cannot be written: the system does not."""
    try:
        yield
    except OSError as error:
        raise OSError(f"cannot write {path}: {error.strerror or error}") from error


def write_json(path: pathlib.Path, value: Any) -> None:
    """Writes a value as JSON, or not at all; a list of numbers is one line."""
    text = json.dumps(value, indent=1)
    text = re.sub(r"\[[^][{}\"]*\]", lambda found: " ".join(found[0].split()), text)
    with naming(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as temporary:
            temporary.write_text(text.replace("[ ", "[").replace(" ]", "]") + "\n")


def rounded(values: Iterable[float]) -> list[float]:
    """Numbers to five digits, which is more than a curve means."""
    return [float(f"{value:.5g}") for value in values]


def merged(makers: Iterable[dict[str, str | None]]) -> dict[str, str | None]:
    """The versions and the commits of several makers; those that differ in a list.

    Examples:
      >>> from benchmarks.files import merged
      >>> merged([{"commit": "a"}, {"commit": "b"}, {"commit": "a"}])
      {'commit': 'a, b'}
    """
    found: dict[str, dict[str, None]] = {}
    for maker in makers:
        for key, value in maker.items():
            known = found.setdefault(key, {})
            known.update(dict.fromkeys(value.split(", ") if value else ()))
    return {key: ", ".join(values) or None for key, values in found.items()}


@functools.cache
def made_by() -> dict[str, str | None]:
    """The version and the commit that make a result; no commit outside a checkout."""
    folder = pathlib.Path(__file__).parent
    try:
        found = subprocess.run(
            ["git", "describe", "--always", "--dirty", "--exclude=*", "--abbrev=12"],
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
        )
        commit = found.stdout.strip() or None
    except FileNotFoundError:
        commit = None
    return {"version": ctagd_optax.__version__, "commit": commit}
