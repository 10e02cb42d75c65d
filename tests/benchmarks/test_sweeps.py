"""Sweeps over learning rates and lengths of an epoch."""

import json
import math

import pytest
from rich.console import Console

from benchmarks import sweeps
from tests.benchmarks.handmade import comparison, run

pytestmark = pytest.mark.usefixtures("default_jax")


def test_arms_share_a_learning_rate():
    first, second = sweeps.arms("robust_adam:correction=none", [0.1, 1.0])
    assert first == {
        "backbone": "adam@0.0001",
        "control": "sawtooth_adam_control@0.0001",
        "high control": "sawtooth_adam_control@0.0001:peak=20",
        "method": "robust_adam@0.0001:correction=none",
        "chance": "adam@0.0001001",
    }
    assert second["backbone"] == "adam"
    [settling] = sweeps.arms("robust_sgd:floor=0.2", [10.0])
    assert settling["low control"] == "sawtooth_control@0.1:floor=0.2,peak=1"
    assert "high control" not in sweeps.arms("ct_sgd", [1.0])[0]
    with pytest.raises(
        ValueError, match=r"optimizer must be one of ct_sgd.* got 'lion'"
    ):
        sweeps.arms("lion", [1.0])
    with pytest.raises(ValueError, match=r"its own learning rate, .* 'robust_sgd@1'"):
        sweeps.arms("robust_sgd@1", [1.0])


NAMES = {
    "backbone": "sgd",
    "control": "sawtooth_control",
    "method": "robust_sgd",
    "chance": "lion",
}


def results(**arms):
    return {
        **comparison(**{name: ("peer", *runs) for name, runs in arms.items()}),
        "steps_per_epoch": 7,
        "epochs": 3,
    }


def test_epochs_to_where_the_backbone_ends():
    found = sweeps.cell(
        results(
            sgd=[run(0.2, 0.9, 0.6), run(0.1, 0.2, 0.4, seed=1)],
            sawtooth_control=[run(0.1, 0.1, 0.1), run(0.5, 0.5, 0.5, seed=1)],
            robust_sgd=[
                run(0.6, 0.6, 0.7, gamma_min=[1.0, 0.25, 0.5], gamma_max=[1.0] * 3),
                run(0.1, 0.5, 0.3, gamma_min=[1.0] * 3, gamma_max=[1, 1, 2], seed=1),
            ],
            lion=[run(0.1, 0.6, 0.5), run(0.9, failed_step=9, seed=1)],
        ),
        NAMES,
    )
    assert found["reached"] == {
        "backbone": [2, 3],
        "control": [None, 1],
        "method": [1, 2],
        "chance": [2, None],
    }
    assert sweeps.ratios({"cells": [found]}) == [1.5 / 2.5]
    assert sweeps.ratios({"cells": [found]}, "chance") == [math.inf]
    assert sweeps.ratios({"cells": [found]}, over="control") == [0]
    assert sweeps.ratios({"cells": [found]}, "control", "chance") == []
    assert sweeps.by_seed({"cells": [found]}, over="control") == [
        [(1, math.inf), (2, 1)]
    ]
    assert sweeps.loss_at_end(found) == pytest.approx(0)
    assert found["multipliers"] == [[1, 4], [0.5, 1]]
    idle, shorter = (
        {**found, "multipliers": [pair] * 2} for pair in ([1, 1], [0.5, 1])
    )
    assert sweeps.moved({"cells": [found, idle, shorter]})["cells"] == [found, shorter]
    [row] = sweeps.rows({"cells": [found], "seeds": [0, 1]})
    assert list(row.values()) == [
        "7",
        "`sgd`",
        "50.0",
        "50.0",
        "4.0",
        "2.5",
        "∞ (1 of 2 missed)",
        "1.5",
        "diverged (1 of 2)",
    ]


def test_runs_that_diverge():
    found = sweeps.cell(
        results(
            sgd=[run(0.2, 0.9)],
            sawtooth_control=[run(0.1, failed_step=3)],
            robust_sgd=[run(0.5, 0.9)],
            lion=[run(0.5, 0.9)],
        ),
        NAMES,
    )
    assert found["diverged"] == {"backbone": 0, "control": 1, "method": 0, "chance": 0}
    assert found["ends"]["control"] == found["reached"]["control"] == [None]
    [row] = sweeps.rows({"cells": [found], "seeds": [0]})
    assert row["epochs to it: control"] == "diverged (1 of 1)"
    assert row["epochs to it: method"] == "2.0"

    found = sweeps.cell(
        results(
            sgd=[run(failed_step=1)],
            sawtooth_control=[run(0.1, 0.2)],
            robust_sgd=[run(0.5, 0.9)],
            lion=[run(0.5, 0.9)],
        ),
        NAMES,
    )
    assert found["reached"]["method"] is None
    assert sweeps.ratios({"cells": [found]}) == []
    assert sweeps.by_seed({"cells": [found]}) == []
    [row] = sweeps.rows({"cells": [found], "seeds": [0]})
    assert row["its end, %"] == row["epochs to it: method"] == "–"


def test_a_short_sweep(tmp_path):
    found = sweeps.sweep(
        "digits_mlp",
        "robust_sgd:correction=none",
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
    assert cell["reached"]["backbone"] == [1]
