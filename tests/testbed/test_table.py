"""The table: fair searches, honest means, and where it agrees with the paper."""

import dataclasses
import functools
import json
import math

import numpy as np
import pytest

from ctagd_optax import testbed
from ctagd_optax.testbed._paper import PAPER_NUMBERS, verdict

NAMES = ["sgd", "adam", "lion"]
CONFIG = testbed.RunConfig(max_steps=80, patience=20)


@pytest.fixture(scope="module")
def table():
    return testbed.make_table(
        runs=3,
        mode="tuned",
        optimizers=NAMES,
        config=CONFIG,
        tuning=testbed.TuningConfig(rates=(0.01, 0.1), landscapes=2),
    )


def test_all_optimizers_are_in_both_settings(table):
    names = [row.name for row in table.select("drifting")]
    assert names == [row.name for row in table.select("stationary")]
    assert names == ["SGD", "Adam", "lion"]


def test_the_standard_table_has_the_robust_rows_the_papers_and_the_controls():
    names = [testbed.get_optimizer(n).name for n in testbed.TABLE_OPTIMIZERS]
    ours = {"Robust (SGD)", "Robust (Adam)"}
    others = {"CT-AGD, appendix", "γ = λ_min", "Newton"}
    assert len(names) == len(set(names))
    assert set(names) == ours | set(PAPER_NUMBERS) | others


def test_all_optimizers_walk_the_same_landscapes(table):
    for setting in ("drifting", "stationary"):
        starts = [row.result.paths[:, 0] for row in table.select(setting)]
        for other in starts[1:]:
            np.testing.assert_array_equal(starts[0], other)


def test_every_optimizer_has_the_same_search(table):
    for row in table.rows:
        assert [trial.rate for trial in row.trials] == [0.01, 0.1]
        assert row.result.learning_rate in (0.01, 0.1)
    assert "2 learning rates from 0.01 to 0.1, each on 2" in str(table).replace(
        "\n", " "
    )


def test_text_shows_every_row_failure_and_paper_number(table):
    text = str(table)
    for row in table.rows:
        assert row.name in text
        assert f"{row.failures} of 3" in text
        for key, interval in row.paper.items():
            if key != "seconds":
                assert str(interval) in text
    assert "0.33 to 0.54 s a run" in text
    assert "Compilation:" in text
    assert max(map(len, text.splitlines())) < 180


def test_json_is_complete_and_strict(table):
    data = json.loads(json.dumps(table.to_json(), allow_nan=False))
    assert len(data["rows"]) == 6
    for row, entry in zip(table.rows, data["rows"], strict=True):
        per_run = entry["per_run"]
        converged = [s == "converged" for s in per_run["status"]]
        assert entry["converged"] == sum(converged)
        assert entry["converged"] + entry["diverged"] + entry["unsettled"] == 3
        steps = [n for n, good in zip(per_run["steps"], converged, strict=True) if good]
        if steps:
            assert entry["ours"]["steps"]["mean"] == pytest.approx(np.mean(steps))
        else:
            assert entry["ours"]["steps"]["mean"] is None
        assert entry["learning_rate"] == row.result.learning_rate
    assert data["landscape"]["lumps"] == 12


@functools.cache
def some_result():
    return testbed.run("sgd", runs=1, config=CONFIG)


def fake_row(steps, status, name="SGD", setting="drifting"):
    n = len(steps)
    result = dataclasses.replace(
        some_result(),
        name=name,
        steps=np.asarray(steps),
        status=np.asarray(status),
        test_loss=np.full((n, 1), -3.93),
        train_average=np.full((n, 1), -3.93 - 2.81),
    )
    return testbed.Row(result, setting, ())


def test_agreement_needs_enough_runs():
    steps = [130.0, 140.0, 150.0, 135.0, 138.0]
    good = fake_row(steps, ["converged"] * 5)
    assert good.agreement() == {"final": True, "steps": True, "gap": True}
    far = fake_row([s + 300 for s in steps], ["converged"] * 5)
    assert far.agreement()["steps"] is False
    failing = fake_row(steps, ["converged"] * 3 + ["unsettled"] * 2)
    assert set(failing.agreement().values()) == {None}


def test_paired_verdicts():
    status = ["converged"] * 4 + ["unsettled"]
    slow = fake_row([100, 110, 120, 130, 500], status).result
    fast = fake_row([80, 91, 99, 111, 60], status).result
    assert verdict(fast, slow).startswith("holds, ours -20 ± ")
    assert "on 4 landscapes (1 and 1 failed)" in verdict(fast, slow)
    assert verdict(slow, fast).startswith("the opposite holds")
    assert verdict(slow, slow).startswith("not shown")
    lost = fake_row([1, 1, 1, 1, 1], ["diverged"] * 5).result
    assert verdict(lost, slow).startswith("cannot be tested")


def test_the_papers_numbers_are_consistent_with_its_text():
    """Final less gap is the train loss, near the stationary values it prints."""
    drifting, still = (
        {name: rows[setting]["final"].mean for name, rows in PAPER_NUMBERS.items()}
        for setting in ("drifting", "stationary")
    )
    gaps = {n: rows["drifting"]["gap"].mean for n, rows in PAPER_NUMBERS.items()}
    assert len(drifting) == 5
    for name in drifting:
        assert abs(drifting[name] - gaps[name] - still[name]) < 1


def test_paper_mode_takes_the_papers_rates():
    rates = {n: testbed.get_optimizer(n).paper_rate for n in testbed.TABLE_OPTIMIZERS}
    assert rates["ct-agd"] == rates["sgd"] == rates["gamma-min"] == 0.01
    assert rates["robust"] == rates["ct-agd-appendix"] == 0.01
    assert rates["adam"] == rates["ct-agd-adam"] == rates["robust-adam"] == 0.001
    assert rates["l-bfgs"] == rates["newton"] == 1
    quick = testbed.RunConfig(max_steps=3, patience=3)
    tuning = testbed.TuningConfig(rates=(0.1,), landscapes=1)
    table = testbed.make_table(
        runs=1, mode="paper", config=quick, optimizers=["adam", "lion"], tuning=tuning
    )
    # The paper has no rate for Lion: it is searched.
    assert [row.result.learning_rate for row in table.rows] == [1e-3, 1e-3, 0.1, 0.1]
    assert all(math.isnan(row.ours["steps"].half) for row in table.rows)


def test_bad_mode_is_refused():
    for function in (testbed.make_table, testbed.compare):
        with pytest.raises(ValueError, match="mode"):
            function(mode="best")
