"""Sweeps over learning rates and lengths of an epoch."""

import json
import math

import pytest
from rich.console import Console

from benchmarks.analysis import sweep_cells
from benchmarks.study import sweep
from tests.benchmarks.handmade import comparison, run

pytestmark = pytest.mark.usefixtures("default_jax")


def test_arms_share_a_learning_rate():
    first, second = sweep.arms("robust_adam:pooling=tensor", [0.1, 1.0])
    assert first == {
        "backbone": "adam@0.0001",
        "method": "robust_adam@0.0001:pooling=tensor",
        "control": "sawtooth_adam_control@0.0001",
        "high control": "sawtooth_adam_control@0.0001:peak=20",
    }
    assert second["backbone"] == "adam"
    assert "high control" not in sweep.arms("ct_sgd", [1.0])[0]
    assert sweep.arms("robust(muon)", [10.0]) == [
        {"backbone": "muon@0.2", "method": "robust(muon@0.2)"}
    ]
    [changed] = sweep.arms("robust_sgd+average:momentum=0.9,target=3", [1.0])
    assert changed["backbone"] == "sgd+average:momentum=0.9"
    assert changed["high control"] == "sawtooth_control+average:momentum=0.9,peak=20"
    [inner] = sweep.arms("robust(muon:beta=0.9)", [1.0])
    assert inner["backbone"] == "muon:beta=0.9"
    assert sweep.arms("robust(sgd)", [1.0]) == sweep.arms("robust_sgd", [1.0])
    for bare in ("lion", "sgd"):
        with pytest.raises(
            ValueError, match=f"must be built on another.* got '{bare}'"
        ):
            sweep.arms(bare, [1.0])
    with pytest.raises(ValueError, match="'robust_sgd@1' must not set learning_rate"):
        sweep.arms("robust_sgd@1", [1.0])


NAMES = {"backbone": "sgd", "method": "robust_sgd", "control": "sawtooth_control"}


def results(**arms):
    return {
        **comparison(**{name: ("peer", *runs) for name, runs in arms.items()}),
        "steps_per_epoch": 7,
        "epochs": 3,
    }


def test_epochs_to_the_target_of_all_learning_rates():
    found = sweep_cells.cell(
        results(
            sgd=[run(0.2, 0.97, 0.6), run(0.1, 0.2, 0.4, seed=1)],
            sawtooth_control=[run(0.1, 0.1, 0.1), run(0.5, 0.5, 0.5, seed=1)],
            robust_sgd=[
                run(0.94, 0.95, 0.7, gamma_min=[1.0, 0.25, 0.5]),
                run(0.96, 0.5, 0.3, gamma_min=[1.0] * 3, seed=1),
            ],
            sgd__1=[run(1.0), run(1.0, seed=1)],  # another learning rate
        ),
        NAMES,
    )
    assert found["target"] == pytest.approx(0.95)
    assert found["learning_rate"] == 0.01
    assert found["reached"] == {
        "backbone": [2, None],
        "method": [2, 1],
        "control": [None, None],
    }
    assert sweep_cells.epochs(found, "method") == 1.5
    assert sweep_cells.epochs(found, "backbone") == math.inf
    assert sweep_cells.accuracy(found, "method") == pytest.approx(0.5)
    assert found["largest_multiplier"] == 4
    [row] = sweep_cells.rows({"cells": [found]})
    assert row == {
        "learning rate": "0.01",
        "steps an epoch": "7",
        "bare": "∞ (1 of 2 missed)",
        "wrapped": "1.5",
        "control": "∞",
        "bare at the end, %": "50.0",
        "wrapped at the end, %": "50.0",
        "multiplier": "4",
    }


def test_runs_that_diverge():
    found = sweep_cells.cell(
        results(
            sgd=[run(failed_step=1)],
            sawtooth_control=[run(0.1, 0.9, failed_step=30)],
            robust_sgd=[run(0.5, 0.9)],
        ),
        NAMES,
    )
    assert found["diverged"] == {"backbone": 1, "method": 0, "control": 1}
    assert found["ends"]["control"] == found["reached"]["control"] == [None]
    assert sweep_cells.accuracy(found, "backbone") is None
    [row] = sweep_cells.rows({"cells": [found]})
    assert row["bare"] == row["control"] == "diverged"
    assert row["bare at the end, %"] == "–"
    assert (row["wrapped"], row["wrapped at the end, %"]) == ("2.0", "90.0")


def test_a_short_sweep(tmp_path):
    found = sweep.sweep(
        "digits_mlp",
        "robust_sgd",
        [1.0],
        [512],
        [0],
        tmp_path,
        console=Console(quiet=True),
        epochs=1,
    )
    assert json.loads((tmp_path / "sweep.json").read_text()) == found
    [cell] = found["cells"]
    assert cell["steps_per_epoch"] == 3
    assert set(cell["reached"]) == set(sweep_cells.TITLES)
    # One of the arms is the best, so it gets to the target.
    assert [1] in cell["reached"].values()
