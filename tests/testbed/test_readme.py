"""What the README says of the testbed is what the files and the code say."""

import contextlib
import io
import json
import pathlib
import re

import pytest

from ctagd_optax.testbed._table import markdown

ROOT = pathlib.Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "results" / "testbed"


@pytest.fixture
def section():
    text = (ROOT / "README.md").read_text("utf-8")
    found = re.search(r"^## Testbed\n(.*?)(?=^## |\Z)", text, re.M | re.S)
    if not found:
        pytest.skip("the README has no section '## Testbed'")
    return found[1]


def test_the_example_prints_what_the_readme_shows(section, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, output = re.findall(r"```(?:python|text)\n(.*?)```", section, re.S)[:2]
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(code, {})
    # Another machine rounds otherwise, and one run may end a step sooner or later.
    number = re.compile(r"-?\d+\.\d+")
    assert number.sub("#", printed.getvalue()) == number.sub("#", output)
    for ours, shown in zip(
        number.findall(printed.getvalue()), number.findall(output), strict=True
    ):
        assert float(ours) == pytest.approx(float(shown), rel=0.05, abs=0.05)
    assert (tmp_path / "adam.png").stat().st_size > 10_000


def test_the_table_is_the_committed_one(section):
    data = json.loads((RESULTS / "table.json").read_text("utf-8"))
    assert markdown(data) in section
    assert data["agreement"] in " ".join(section.split())


def test_pictures_are_there_and_small(section):
    pictures = re.findall(r"\((benchmarks/results/testbed/[^)]+)\)", section)
    assert pictures
    for picture in pictures:
        assert 0 < (ROOT / picture).stat().st_size < 500_000


def test_committed_tables_are_complete():
    for name, mode in (
        ("table.json", "tuned"),
        ("table-seed1.json", "tuned"),
        ("table-seed2.json", "tuned"),
        ("table-paper.json", "paper"),
    ):
        data = json.loads((RESULTS / name).read_text("utf-8"))
        assert data["mode"] == mode
        assert data["runs"] == 15
        assert len(data["rows"]) == 14
        for row in data["rows"]:
            assert len(row["per_run"]["status"]) == 15
            assert bool(row["trials"]) == (mode == "tuned")
