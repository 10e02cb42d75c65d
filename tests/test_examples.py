"""The examples run."""

import json
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).parent.parent
SMALL = """
kind = "compare"
workload = "tumours"
epochs = 2
seeds = 1
arms = ["adamw", "robust(adamw)"]
"""


def run(name, *arguments):
    return subprocess.run(
        [sys.executable, "-m", f"examples.{name}", *map(str, arguments)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )


def test_compare_on_your_model(tmp_path):
    manifest = tmp_path / "small.toml"
    manifest.write_text(SMALL)
    done = run("compare_on_your_model", manifest, "--out", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "out" / "results.json").read_text())
    assert list(found["arms"]) == ["adamw", "robust(adamw)"]
    assert found["arms"]["adamw"]["runs"][0]["accuracy"][-1] > 0.7
    assert "tumours: test accuracy" in done.stdout
