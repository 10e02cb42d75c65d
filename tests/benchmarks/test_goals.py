"""Goals, and whether they are met."""

import json
import math

import pytest

from benchmarks import goals


def test_goals_of_safety(tmp_path):
    changes = {
        "64": {"robust_sgd": [[-0.1, 0.002]], "ct_sgd": [[9.0]]},
        "16": {"robust_sgd": [[0.0, None]], "robust_sgd:correction=line": [[9.0]]},
    }
    path = tmp_path / "corrections" / "digits_mlp.json"
    path.parent.mkdir()
    path.write_text(json.dumps({"workload": "digits_mlp", "changes": changes}))
    of = "`robust_sgd` on `digits_mlp`, made in 3 of 4 epochs"
    assert [goal[1:5] for goal in goals._goals_of_safety(tmp_path)] == [
        (of, 0.5, pytest.approx(0.05), "50 %"),
        (of, math.inf, pytest.approx(0.005), "inf %"),
    ]


def test_goals_of_cost():
    milliseconds = {
        "ct_agd(sgd)": 4.0,
        "robust_ct_agd(sgd)": 5.0,
        "robust_ct_agd(sgd), sampling": 5.0 + 0.2 * 390 / 28,
        "robust_ct_agd(sgd), no correction": 3.0,
    }
    measured = {
        "memory": [{"options": "robust_ct_agd", "state bytes per parameter": 20.0}],
        "steps": {"1000": {"milliseconds": milliseconds}},
    }
    size = "1,000 parameters"
    assert [goal[1:4] for goal in goals._goals_of_cost(measured)] == [
        ("`robust_ct_agd`", 5.0, 5),
        *(
            (
                f"`robust_ct_agd(sgd)`, mean of {steps} steps, {size}",
                pytest.approx(value, rel=1e-3),
                1.2,
            )
            for steps, value in ((390, 1.3), (24, 1.598))
        ),
        (f"`robust_ct_agd(sgd), no correction`, {size}", 0.75, 1.2),
    ]


@pytest.mark.parametrize(
    ("value", "interval", "answer"),
    [
        (0.9, (), "yes"),
        (1.1, (), "no"),
        (0.9, (0.8, 1.0), "yes"),
        (0.9, (0.8, 1.1), "yes, within chance"),
        (1.1, (1.01, 1.2), "no"),
        (1.1, (1.0, 1.2), "no, within chance"),
        (math.inf, (0.9, math.inf), "no, within chance"),
    ],
)
def test_whether_a_goal_is_met(value, interval, answer):
    goal = goals.Goal("at most 1", "it", value, 1.0, interval=interval)
    assert goals._met(goal) == answer
