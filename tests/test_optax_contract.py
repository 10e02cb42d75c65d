"""Optax's own test suites pass on our optimizers."""

import os
import pathlib
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parent.parent


@pytest.mark.parametrize(
    ("suite", "at_least"), [("contrib", 32), ("alias", 36), ("sharding", 8)]
)
def test_suite(suite, at_least, tmp_path):
    # The suites compile many of their computations more than once.
    cache = {
        "JAX_COMPILATION_CACHE_DIR": str(tmp_path),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    }
    run = subprocess.run(
        [sys.executable, "-m", "tests.optax_suites", suite],
        cwd=ROOT,
        env={**os.environ, **cache},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr[-4000:]
    ran = re.search(r"Ran (\d+) tests", run.stderr)
    assert ran
    assert int(ran[1]) >= at_least
    skipped = re.search(r"skipped=(\d+)", run.stderr)
    assert not skipped, f"{skipped[0]} of optax's tests did not run on our optimizers"
