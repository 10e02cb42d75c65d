"""The demo, run for real but short, and its figures on hand-made curves."""

import json
import math
import sys

import pytest

from benchmarks import demo

pytestmark = pytest.mark.usefixtures("default_jax")


def test_epochs_to():
    assert demo.epochs_to(0.9, [0.1, 0.9, 0.2]) == 2
    assert demo.epochs_to(0.9, [0.95]) == 1
    assert demo.epochs_to(0.9, [0.1, 0.89]) == math.inf


def test_a_miss_counts_as_infinity():
    run = {"loss": [], "evidence": [], "at_minimum": []}
    runs = [{**run, "accuracy": [0.5, 0.96]}, {**run, "accuracy": [0.5, 0.9]}]
    arms = {"x": {"learning_rate": 0.1, "runs": runs}}
    [row] = demo.summary({"arms": arms, "target": 0.95})
    assert row["to 95%"] == "∞"
    assert row["best"] == "93.0 %"
    assert row["evidence"] == "–"


def test_data_has_three_parts_that_share_nothing():
    parts = demo.load_data()
    rows = [tuple(x.tolist()) for part in parts.values() for x in part.images]
    assert [part.labels.size for part in parts.values()] == [1197, 300, 300]
    assert len(set(rows)) == len(rows)


def test_short_run(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(
        sys, "argv", ["demo", "--epochs", "2", "--seeds", "1", "--out", str(tmp_path)]
    )
    monkeypatch.setattr(demo, "SEARCH", (0.1,))
    arms = [arm for arm in demo.ARMS if arm.label != "CT-AGD, tuned"][:5]
    monkeypatch.setattr(demo, "ARMS", arms)
    demo.main()
    out = capsys.readouterr().out
    results = json.loads((tmp_path / "results.json").read_text())
    assert list(results["arms"]) == [arm.label for arm in arms]
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["curves.png", "results.json"]
    assert all(arm.label.split()[0] in out for arm in arms)
    tuned = results["arms"]["SGD, tuned"]["runs"][0]["accuracy"]
    assert tuned[-1] > 0.5
    assert len(results["arms"]["CT-AGD"]["runs"][0]["evidence"]) == 2


def test_bad_arguments(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["demo", "--epochs", "0"])
    with pytest.raises(SystemExit) as error:
        demo.main()
    assert error.value.code == 2
    assert "--epochs must be at least 1, got 0" in capsys.readouterr().err
