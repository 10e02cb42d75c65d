"""The committed results of the testbed are complete."""

import json
import pathlib

import pytest

from ctagd_optax import testbed

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
    rows = [(row["optimizer"], row["setting"]) for row in data["rows"]]
    assert rows == [
        (testbed.get_optimizer(name).name, setting)
        for name in testbed.TABLE_OPTIMIZERS
        for setting in ("drifting", "stationary")
    ]
    for row in data["rows"]:
        assert len(row["per_run"]["status"]) == 15
        assert bool(row["trials"]) == (mode == "tuned")


def test_pictures_are_small():
    for picture in ("figure.png", "explore.png"):
        for path in (RESULTS / picture, RESULTS / picture.replace(".", "-dark.")):
            assert 0 < path.stat().st_size < 500_000
    assert 0 < (RESULTS / "film.gif").stat().st_size < 500_000
