"""Result files."""

import json
import pathlib
from typing import Any

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


def write_json(path: pathlib.Path, value: Any) -> None:
    """Writes a value as JSON that is easy to read and to compare, or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as temporary:
        temporary.write_text(json.dumps(value, indent=1) + "\n")
