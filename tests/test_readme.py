"""The README does what it says."""

import contextlib
import io
import pathlib
import re
import tomllib

import pytest

from benchmarks import __main__ as benchmarks_line
from benchmarks import optimizers, report, workloads
from ctagd_optax.testbed import __main__ as command_line

ROOT = pathlib.Path(__file__).parent.parent
TEXT = (ROOT / "README.md").read_text()


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", TEXT, flags=re.DOTALL)


def test_python_blocks_run_and_print_what_is_shown(default_jax, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names, printed, shown = {}, "", 0
    for language, block in re.findall(r"```(python|text)\n(.*?)```", TEXT, re.DOTALL):
        if language == "python":
            output = io.StringIO()
            with contextlib.redirect_stdout(output):
                exec(compile(block, "README.md", "exec"), names)
            printed = output.getvalue()
            continue
        # Another machine rounds otherwise, and a run may end a step sooner or later.
        number = re.compile(r"-?\d+\.\d+")
        assert number.sub("#", printed) == number.sub("#", block)
        ours, theirs = (list(map(float, number.findall(t))) for t in (printed, block))
        assert ours == pytest.approx(theirs, rel=0.05, abs=0.05)
        shown += 1
    assert shown == 2


def test_shell_blocks_name_what_exists():
    makefile = (ROOT / "Makefile").read_text()
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]
    lines = [line for block in blocks("bash") for line in block.splitlines()]
    assert {"pip install .", "make demo", "make test"} <= set(lines)
    for line in lines:
        if line.startswith("make "):
            assert re.search(rf"^{line[5:]}:", makefile, flags=re.MULTILINE), line
        for extra in re.findall(r"\[(\w+)\]", line):
            assert extra in extras
        if line.startswith("python -m ctagd_optax.testbed"):
            with pytest.raises(SystemExit, match=r"^0$"):
                command_line.main([line.split()[3], "--help"])
        if line.startswith("python -m benchmarks "):
            options = benchmarks_line.parser().parse_args(line.split()[3:])
            if line.split()[3] == "train":
                assert optimizers.arm(options.optimizer)
                assert workloads.workload(options.workload)


def test_tables_are_those_of_the_results():
    assert report.render(TEXT) == TEXT, "run python -m benchmarks report"


def test_every_composition_row_is_a_test():
    rows = re.findall(r"\| ✓ \| `(test_\w+)` \|", TEXT)
    tests = (ROOT / "tests" / "test_composition.py").read_text()
    defined = re.findall(r"^def (test_\w+)", tests, flags=re.MULTILINE)
    assert sorted(rows) == sorted(defined)


def test_links_lead_somewhere():
    for target in re.findall(r"\]\((?!https?:)([^)]+)\)", TEXT):
        name, _, anchor = target.partition("#")
        path = ROOT / (name or "README.md")
        assert path.exists(), target
        if anchor:
            text = re.sub(r"^```.*?^```", "", path.read_text(), flags=re.M | re.S)
            titles = re.findall(r"^#+ (.+)", text, flags=re.MULTILINE)
            slugs = [
                re.sub(r"[^\w\- ]", "", t.lower()).replace(" ", "-") for t in titles
            ]
            assert anchor in slugs, target
