"""The README does what it says."""

import contextlib
import io
import pathlib
import re
import tomllib

from benchmarks import report

ROOT = pathlib.Path(__file__).parent.parent
TEXT = (ROOT / "README.md").read_text()


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", TEXT, flags=re.DOTALL)


def test_python_blocks_run_in_order(default_jax):
    names = {}
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        for block in blocks("python"):
            exec(compile(block, "README.md", "exec"), names)
    [shown] = blocks("text")
    assert printed.getvalue() == shown


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


def test_tables_are_those_of_the_results():
    assert report.render(TEXT) == TEXT, "run python -m benchmarks.report"


def test_every_composition_row_is_a_test():
    rows = re.findall(r"\| ✓ \| `(test_\w+)` \|", TEXT)
    tests = (ROOT / "tests" / "test_composition.py").read_text()
    defined = re.findall(r"^def (test_\w+)", tests, flags=re.MULTILINE)
    assert sorted(rows) == sorted(defined)


def test_links_lead_somewhere():
    for target in re.findall(r"\]\((?!https?:|#)([^)]+)\)", TEXT):
        assert (ROOT / target).exists(), target
