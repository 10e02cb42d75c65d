"""The examples run, and learn."""

import json
import os
import pathlib
import re
import runpy
import socket
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parent.parent
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
SMALL = """
kind = "compare"
workload = "tumours"
epochs = 2
seeds = 1
arms = ["adamw", "robust(adamw)"]
"""


def start(name, *arguments, **environment):
    return subprocess.Popen(
        [sys.executable, "-m", f"examples.{name}", *map(str, arguments)],
        cwd=ROOT,
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(process):
    printed, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors
    return printed


@pytest.fixture
def run(default_jax, monkeypatch, capsys):
    """Runs an example in this process, which has JAX in memory already."""

    def run(name, *arguments):
        monkeypatch.setattr(sys, "argv", [name, *map(str, arguments)])
        runpy.run_path(str(ROOT / "examples" / f"{name}.py"), run_name="__main__")
        return capsys.readouterr().out

    return run


def figures(word, printed):
    return [float(n) for n in re.findall(rf"{word} (\d+\.\d+)", printed)]


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_short_with_a_line_on_its_use(path):
    text = path.read_text()
    assert len(text.splitlines()) <= 100
    assert re.search(rf"^Usage.*: python .*examples.{path.stem}", text, re.MULTILINE)


@pytest.mark.parametrize("name", ["digits_nnx", "digits_linen", "digits_equinox"])
def test_digits(run, name):
    printed = run(name)
    assert figures("test accuracy", printed)[-1] > 0.9
    assert max(figures("learning rate ×", printed)) > 5
    assert "robust_ct_agd, 5 epochs done" in printed


def test_language_model(run, tmp_path):
    text = tmp_path / "text.txt"
    text.write_text("she sells sea shells by the sea shore. " * 60)
    printed = run("language_model", text, "--epochs", 4)
    first, *_, last = figures("loss", printed)
    assert last < 0.7 * first
    assert max(figures("learning rate ×", printed)) > 1


def test_multi_host():
    with socket.socket() as free:
        free.bind(("localhost", 0))
        address = f"localhost:{free.getsockname()[1]}"
    flags = os.environ["XLA_FLAGS"].replace("count=8", "count=1")
    both = [start("multi_host", address, 2, n, XLA_FLAGS=flags) for n in range(2)]
    printed = [finish(process) for process in both]
    found = [figures("test accuracy", text) for text in printed]
    assert found[0] == found[1]
    assert found[0][-1] > 0.9
    assert max(figures("learning rate ×", printed[0])) > 5


def test_compare_on_your_model(tmp_path):
    manifest = tmp_path / "small.toml"
    manifest.write_text(SMALL)
    printed = finish(
        start("compare_on_your_model", manifest, "--out", tmp_path / "out")
    )
    found = json.loads((tmp_path / "out" / "results.json").read_text())
    assert list(found["arms"]) == ["adamw", "robust(adamw)"]
    assert found["arms"]["adamw"]["runs"][0]["accuracy"][-1] > 0.7
    assert "tumours: test accuracy" in printed
