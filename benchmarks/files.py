"""Result files."""

import json
import pathlib
from typing import Any

from ctagd_optax.testbed.files import replacing


def write_json(path: pathlib.Path, value: Any) -> None:
    """Writes a value as JSON that is easy to read and to compare, or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as temporary:
        temporary.write_text(json.dumps(value, indent=1) + "\n")
