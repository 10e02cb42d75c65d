"""Result files."""

import contextlib
import functools
import json
import pathlib
import re
import reprlib
import subprocess
from collections.abc import Iterable, Iterator
from typing import Any

import ctagd_optax
from ctagd_optax.testbed.files import replacing

# What the types of JSON's values are called.
_NAMES = {
    int: "a whole number",
    float: "a number",
    str: "a text",
    list: "a list",
    dict: "an object",
    int | None: "a whole number or null",
    float | None: "a number or null",
    str | None: "a text or null",
}


def misfit(value: Any, shape: Any, name: str = "it") -> str | None:
    """What keeps a value from having a shape.

    Args:
      value: the value, as JSON has it.
      shape: a type, of which ``float`` is any number; a list of one shape, that of all
        items; or an object's shapes by the keys that it must have, or by ``str`` alone
        that of all its values.
      name: what the value is called in the answer.

    Returns:
      The first thing that is wrong, or None.

    Examples:
      >>> from benchmarks.files import misfit
      >>> misfit({"a": {"b": 1.5}}, {"a": {"b": int}})
      'a.b must be a whole number, got 1.5'
    """
    kind = type(shape) if isinstance(shape, dict | list) else shape
    wide = int | kind if kind in (float, float | None) else kind
    if isinstance(value, bool) or not isinstance(value, wide):  # True is an int, too
        return f"{name} must be {_NAMES[kind]}, got {reprlib.repr(value)}"
    parts: dict[Any, tuple[Any, Any]] = {}
    if isinstance(shape, list):
        parts = {n: (item, shape[0]) for n, item in enumerate(value)}
    elif isinstance(shape, dict):
        missing = shape.keys() - value.keys() - {str}
        if missing:
            return f"{name} must have {', '.join(sorted(missing))}"
        keys = value if str in shape else shape
        parts = {key: (value[key], shape.get(str) or shape[key]) for key in keys}
    for key, (part, wanted) in parts.items():
        wrong = misfit(part, wanted, f"{name}.{key}".removeprefix("it."))
        if wrong:
            return wrong
    return None


def read_json(path: pathlib.Path, shape: dict[Any, Any], what: str) -> dict[str, Any]:
    """Reads a JSON object.

    Args:
      path: the file.
      shape: what it must have, see :func:`misfit`; it may have more.
      what: what such a file describes, for the error.

    Returns:
      The object.

    Raises:
      ValueError: the file is not JSON, or describes something else.
    """
    try:
        value = json.loads(path.read_text())
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is not JSON: {error}") from error
    wrong = misfit(value, shape)
    if wrong:
        raise ValueError(f"{path} does not describe {what}: {wrong}")
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
