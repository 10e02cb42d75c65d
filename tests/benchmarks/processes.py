"""Waiting for processes that tests start."""

import time
from collections.abc import Callable
from subprocess import Popen


def wait_for(condition: Callable[[], bool], *runs: Popen, seconds: float = 120) -> None:
    """Waits until a condition holds, which must be while the processes run."""
    limit = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < limit
        assert all(run.poll() is None for run in runs)
        time.sleep(0.05)
