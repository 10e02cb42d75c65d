"""The committed results of the testbed are complete."""

import json
import pathlib

import pytest

RESULTS = pathlib.Path(__file__).parents[2] / "benchmarks" / "results" / "testbed"


@pytest.mark.parametrize(
    ("name", "mode"),
    [
        ("table.json", "tuned"),
        ("table-seed1.json", "tuned"),
        ("table-seed2.json", "tuned"),
        ("table-paper.json", "paper"),
    ],
)
def test_tables_are_complete(name, mode):
    data = json.loads((RESULTS / name).read_text("utf-8"))
    assert data["mode"] == mode
    assert data["runs"] == 15
    assert len(data["rows"]) == 14
    for row in data["rows"]:
        assert len(row["per_run"]["status"]) == 15
        assert bool(row["trials"]) == (mode == "tuned")


def test_pictures_are_small():
    for picture in ("figure.png", "explore.png", "film.gif"):
        assert 0 < (RESULTS / picture).stat().st_size < 500_000
