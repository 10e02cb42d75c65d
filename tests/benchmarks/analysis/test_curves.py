"""Figures of hand-made curves."""

import json
import math

import pytest

from benchmarks.analysis import curves
from tests.benchmarks.handmade import comparison, run


@pytest.mark.parametrize(
    ("curve", "expected"),
    [
        ([0.5, 0.8], math.inf),  # never
        ([0.95, 0.2], 1),  # at once
        ([0.1, 0.9, 0.2], 2),  # and falls back
        ([0.9, 0.9], 1),  # ties: the first, and exactly on it
        ([], math.inf),
    ],
)
def test_epochs_to(curve, expected):
    assert curves.epochs_to(0.9, curve) == expected


def test_epochs_to_own_final_accuracy():
    assert curves.epochs_to_final(run(0.2, 0.77, 0.75, 0.8)) == 2
    assert curves.epochs_to_final(run(0.5, 0.1)) == 1
    assert curves.epochs_to_final(run()) == math.inf


def test_a_diverged_run_never_converges():
    assert curves.epochs_to_final(run(0.2, 0.2, failed_step=70)) == math.inf


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        (run(0.5, 0.9, 0.95), False),
        (run(0.5, 0.9, 0.89, 0.95), True),
        (run(0.5, 0.6), False),
        (run(), False),
        (run(0.5, 0.95, failed_step=60), True),
        (run(0.5, 0.6, failed_step=60), False),
    ],
)
def test_falls_back(entry, expected):
    assert curves.falls_back(0.9, entry) is expected


def test_best():
    assert curves.best([0.1, 0.7, 0.3]) == 0.7
    assert curves.best([]) == 0


def test_seconds_to():
    assert curves.seconds_to(0.9, [0.1, 0.9, 0.95], [2.0, 4.5, 7.0]) == 4.5
    assert curves.seconds_to(0.9, [0.1], [2.0]) == math.inf
    with pytest.raises(ValueError, match="an entry for each of 2 epochs, got 1"):
        curves.seconds_to(0.9, [0.1, 0.9], [2.0])


def test_seconds_per_epoch_is_a_median_of_differences():
    assert curves.seconds_per_epoch([1.0, 2.0, 9.0]) == 1
    assert curves.seconds_per_epoch([3.0]) == 3
    assert math.isnan(curves.seconds_per_epoch([]))


def test_interval():
    three = curves.interval([1.0, 2.0, 3.0])
    assert three.mean == 2
    assert three.half == pytest.approx(4.3027 / 3**0.5, rel=1e-4)
    one = curves.interval([5.0])
    assert one.mean == 5
    assert math.isnan(one.half)
    missed = curves.interval([5.0, math.inf])
    assert missed.mean == math.inf
    assert math.isnan(missed.half)
    assert math.isnan(curves.interval([]).mean)


def test_cutoff_is_below_the_best_mean_of_all_arms_by_a_share():
    results = comparison(
        sgd=("backbone", run(0.5, 0.8, 0.7), run(0.6, 0.6)),  # 0.7 on average
        muon=("peer", run(0.75), run(0.65, 0.85)),  # 0.8
        adam=("backbone",),
    )
    assert curves.cutoff(results) == pytest.approx(0.95 * 0.8)


def test_a_comparison_needs_a_run():
    for results in (comparison(), comparison(sgd=("backbone",))):
        with pytest.raises(ValueError, match="results must have at least one run"):
            curves.cutoff(results)


def test_saving():
    assert curves.saving(30, 40) == 25
    assert curves.saving(40, 30) == pytest.approx(-100 / 3)
    assert curves.saving(7, 7) == 0
    assert curves.saving(math.inf, 30) == -math.inf
    assert curves.saving(30, math.inf) == math.inf
    assert math.isnan(curves.saving(math.inf, math.inf))
    assert math.isnan(curves.saving(math.nan, 3))
    assert math.isnan(curves.saving(math.nan, math.inf))


def test_references():
    results = comparison(
        sgd=("backbone",),
        **{"sgd@1+average": ("tuned",)},
        sgd__1=("tuned",),
        adam=("backbone",),
        ct_sgd=("paper",),
        ct_sgd__1=("tuned",),
        ct_adam=("paper",),
        ct_sgd_appendix=("paper",),
        schedule_control=("control",),
        muon=("peer",),
    )
    for name, rate in (
        ("ct_sgd", 0.01),
        ("ct_sgd@1", 1.0),
        ("ct_sgd_appendix", 0.01),
        ("schedule_control", 0.01),
    ):
        results["arms"][name]["options"] = {"learning_rate": rate, "quantile": rate}
    without = {"backbone": "sgd", "tuned": "sgd@1"}

    def of(name):
        return curves.references(results, name)

    assert of("ct_sgd") == {**without, "control": "schedule_control"}
    assert of("ct_sgd_appendix") == {**without, "control": "schedule_control"}
    # A control at another learning rate tells nothing.
    assert of("ct_sgd@1") == without
    assert of("ct_adam") == {"backbone": "adam"}
    assert of("schedule_control") == {"backbone": "sgd", "tuned": "sgd@1"}
    assert of("sgd@1") == {"backbone": "sgd"}
    assert of("sgd") == of("muon") == {}


def test_a_wrapped_optimizer_is_measured_against_the_bare_one_at_its_learning_rate():
    results = comparison(
        **{"sgd": ("backbone",), "sgd@1": ("backbone",), "adamw@1": ("peer",)},
        **{"robust_sgd@1": ("ours",), "robust_sgd@2": ("ours",)},
        **{"robust(adamw@1)": ("ours",)},
    )
    for name, arm in results["arms"].items():
        rate = name.strip(")").partition("@")[2] or 0.01
        arm["options"] = {"learning_rate": float(rate), "name": name}
    found = {name: curves.references(results, name) for name in results["arms"]}
    assert found["robust_sgd@1"] == {"backbone": "sgd@1"}
    assert found["robust_sgd@2"] == found["sgd@1"] == {}
    assert found["robust(adamw@1)"] == {"backbone": "adamw@1"}


def test_a_wrapped_optimizer_is_not_measured_against_one_with_other_options():
    results = comparison(
        **{"sgd@0.1": ("backbone",), "sgd": ("backbone",), "sgd@0.3": ("tuned",)},
        **{"robust(sgd:momentum=0.9)": ("ours",), "robust(sgd)": ("ours",)},
    )
    for name in ("robust(sgd:momentum=0.9)", "robust(sgd)"):
        results["arms"][name]["options"] = {"backbone": name[7:-1]}
    found = {name: curves.references(results, name) for name in results["arms"]}
    assert "backbone" not in found["robust(sgd:momentum=0.9)"]
    assert found["robust(sgd)"]["backbone"] == "sgd"
    assert found["sgd@0.3"]["backbone"] == "sgd"  # that with its defaults


def test_summary():
    results = comparison(
        sgd=("backbone", run(0.5, 0.7, 0.8), run(0.5, 0.79, 0.8, seed=1)),
        ct_sgd=(
            "paper",
            run(0.9, 1.0, 1.0, observed=[0.5, 0.0, 1.0], gamma_at_min=[1.0, 1.0, 0.0]),
            run(
                0.8,
                0.96,
                1.0,
                seed=1,
                observed=[0.0, 0.0, 0.0],
                gamma_at_min=[1.0, 1.0, 1.0],
            ),
        ),
        schedule_control=(
            "control",
            run(0.9, 0.96, 0.9),
            run(0.95, 0.3, seed=1, failed_step=9),
        ),
    )
    timings = {
        "arms": {
            "ct_sgd": [
                {"seed": 1, "seconds": [3.0, 6.0, 9.0], "compile_seconds": 4.0},
                {"seed": 0, "seconds": [1.0, 2.0, 3.0], "compile_seconds": 2.0},
            ]
        }
    }
    sgd, ct, control = curves.summary(results, timings)

    assert sgd["best"] == pytest.approx(0.8)
    assert sgd["epochs_to_cutoff"] == math.inf
    assert sgd["epochs_to_cutoff_half"] is None
    assert (sgd["missed"], sgd["seeds"], sgd["diverged"]) == (2, 2, 0)
    assert sgd["saved_backbone"] is sgd["saved_tuned"] is sgd["saved_control"] is None
    assert sgd["epochs_to_final"] == 2.5  # 0.76 is within 5 % of 0.8
    assert sgd["seconds_to_cutoff"] is sgd["evidence"] is sgd["at_minimum"] is None

    assert ct["epochs_to_cutoff"] == 2
    assert ct["epochs_to_cutoff_half"] == 0
    assert (ct["missed"], ct["fell_back"]) == (0, 0)
    assert ct["saved_backbone"] == math.inf
    assert ct["saved_control"] == pytest.approx(-100 / 3)
    assert ct["evidence"] == 0.25
    assert ct["at_minimum"] == pytest.approx(5 / 6)
    assert ct["seconds_to_cutoff"] == 4
    assert ct["seconds_per_epoch"] == 2
    assert ct["compile_seconds"] == 4

    assert control["epochs_to_cutoff"] == 1.5
    assert (control["fell_back"], control["diverged"]) == (2, 1)
    assert control["epochs_to_final"] == math.inf
    assert json.loads(json.dumps([sgd, ct, control])) == [sgd, ct, control]


def test_one_seed_has_no_interval():
    [row] = curves.summary(comparison(sgd=("backbone", run(0.5, 0.9))))
    assert (row["best"], row["best_half"]) == (0.9, None)
    assert (row["epochs_to_cutoff"], row["epochs_to_cutoff_half"]) == (2, None)


def test_an_arm_without_runs_has_no_figures():
    _, row = curves.summary(comparison(sgd=("backbone", run(0.5)), adam=("backbone",)))
    assert row["seeds"] == row["missed"] == 0
    assert row["best"] is row["epochs_to_cutoff"] is None


def test_times_must_be_of_the_same_seeds():
    results = comparison(sgd=("backbone", run(0.5), run(0.6, seed=1)))
    timings = {"arms": {"sgd": [{"seed": 0, "seconds": [1.0], "compile_seconds": 1.0}]}}
    with pytest.raises(
        ValueError, match=r"timings of sgd must be of its seeds \[0, 1\]"
    ):
        curves.summary(results, timings)


def test_a_run_that_finished_no_epoch_counts_as_a_miss():
    results = comparison(sgd=("backbone", run(0.9), run(seed=1, failed_step=3)))
    times = [
        {"seed": 0, "seconds": [2.0], "compile_seconds": 1.0},
        {"seed": 1, "seconds": [], "compile_seconds": 1.0},
    ]
    [row] = curves.summary(results, {"arms": {"sgd": times}})
    assert row["best"] == pytest.approx(0.45)
    assert row["missed"] == 1
    assert row["seconds_to_cutoff"] == math.inf
    assert row["seconds_per_epoch"] == 2
