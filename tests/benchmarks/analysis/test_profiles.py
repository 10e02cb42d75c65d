"""Performance profiles, by hand."""

import math

import pytest

from benchmarks.analysis import profiles
from tests.benchmarks.handmade import comparison, run


def reach(*epochs):
    """A run a seed that reaches 1 at this epoch, or never."""
    return [
        run(*([0.1] * 8 if math.isinf(n) else [0.1] * (n - 1) + [1.0]), seed=seed)
        for seed, n in enumerate(epochs)
    ]


@pytest.fixture
def comparisons():
    never = math.inf
    return [
        comparison("one", sgd=("backbone", *reach(2, 4)), muon=("peer", *reach(6, 6))),
        comparison("two", sgd=("backbone", *reach(3, 3)), muon=("peer", *reach(2, 2))),
        comparison(
            "three", sgd=("backbone", *reach(3, 3)), muon=("peer", *reach(2, never))
        ),
        comparison(
            "four",
            sgd=("backbone", *reach(never, never)),
            muon=("peer", *reach(never, 1)),
            adam=("backbone", *reach(1, 1)),
        ),
    ]


def test_ratios(comparisons):
    assert profiles.ratios(comparisons, ["sgd", "muon"]) == {
        "sgd": [1, 1.5, 1, math.inf],
        "muon": [2, 1, math.inf, math.inf],
    }


def test_the_best_is_the_best_of_the_arms_given(comparisons):
    assert profiles.ratios(comparisons[:1], ["muon"]) == {"muon": [1]}


def test_profile(comparisons):
    taus = [1.0, 1.49, 1.5, 2.0, 100.0, math.inf]
    assert profiles.profile(comparisons, ["sgd", "muon"], taus) == {
        "sgd": [0.5, 0.5, 0.75, 0.75, 0.75, 0.75],
        "muon": [0.25, 0.25, 0.25, 0.5, 0.5, 0.5],
    }


def test_ties_are_both_the_best():
    tie = comparison("a", sgd=("backbone", *reach(2)), adam=("backbone", *reach(2)))
    assert profiles.profile([tie], ["sgd", "adam"], [1.0]) == {"sgd": [1], "adam": [1]}


def test_tuned_arms_are_one_arm_on_all_workloads():
    one = comparison(
        "one",
        sgd=("backbone", *reach(4)),
        sgd__85=("tuned", *reach(2)),
        **{"sgd@85+average": ("tuned", *reach(3))},
    )
    two = comparison(
        "two",
        sgd=("backbone", *reach(1)),
        sgd__23=("tuned", *reach(3)),
        **{"sgd@23+average": ("tuned", *reach(2)), "lion": ("peer", *reach(1))},
    )
    found = [profiles.relabelled(results) for results in (one, two)]
    arms = profiles.common_arms(found)
    assert arms == ["sgd", "sgd, tuned", "sgd+average, tuned"]
    assert profiles.ratios(found, arms) == {
        "sgd": [2, 1],
        "sgd, tuned": [1, 3],
        "sgd+average, tuned": [1.5, 2],
    }


def test_tuned_arms_that_cannot_be_told_apart_keep_their_names():
    both = comparison(sgd__1=("tuned", *reach(1)), sgd__2=("tuned", *reach(1)))
    assert profiles.labels(both) == {"sgd@1": "sgd@1", "sgd@2": "sgd@2"}


def test_bad_arguments(comparisons):
    with pytest.raises(ValueError, match="comparisons must not be empty"):
        profiles.ratios([], ["sgd"])
    with pytest.raises(ValueError, match="different workloads, got one, one"):
        profiles.ratios(2 * comparisons[:1], ["sgd"])
    with pytest.raises(
        ValueError, match=r"comparison of one must have .* it has none of adam"
    ):
        profiles.ratios(comparisons, ["sgd", "adam"])
    with pytest.raises(ValueError, match=r"taus must be at least 1, got 0\.5"):
        profiles.profile(comparisons, ["sgd"], [0.5, 2.0])
