"""Keeps what Orbax logs off the console.

Whatever fails in it is raised, and told in a line by our own code; its log has hundreds
of lines about the same failure, and some about nothing.
"""

import logging
import os
import sys
import traceback
from typing import Any

import orbax.checkpoint as ocp

_ORBAX = os.path.dirname(ocp.__file__)


def silence_orbax() -> None:
    """Drops its log, and what its tasks say that are left after a failure."""
    for name in ("absl", "asyncio"):
        logger = logging.getLogger(name)
        if _is_not_of_orbax not in logger.filters:
            logger.addFilter(_is_not_of_orbax)
    if not isinstance(sys.unraisablehook, _Hook):
        sys.unraisablehook = _Hook(sys.unraisablehook)


def _is_not_of_orbax(record: logging.LogRecord) -> bool:
    files = [record.pathname]
    error = record.exc_info[1] if record.exc_info else None
    if error is not None:
        frames = traceback.walk_tb(error.__traceback__)
        files += [frame.f_code.co_filename for frame, _ in frames]
    # What writes Orbax's files leaves no frames.
    if any(name in str(error) for name in ("tensorstore", "OCDBT")):
        return False
    return not any(file.startswith(_ORBAX) for file in files)


class _Hook:
    """Drops errors of writes that end after Orbax has given up waiting for them."""

    def __init__(self, before: Any):
        self._before = before

    def __call__(self, unraisable: Any) -> None:
        late = isinstance(unraisable.exc_value, RuntimeError)
        if not (late and str(unraisable.exc_value) == "Event loop is closed"):
            self._before(unraisable)
