"""Which of two arms is sooner, from hand-made comparisons."""

import math

import pytest

from benchmarks import contests
from tests.benchmarks.handmade import comparison, run, write


@pytest.fixture
def found(tmp_path):
    """One comparison, in which one seed of three arms differs."""
    results = comparison(
        sgd=("backbone", run(0.5, 0.9), run(0.5, 0.9, seed=1)),
        sgd__2=("tuned", run(0.5, 0.5), run(0.9, 0.9, seed=1)),
        sawtooth_control=("control", run(0.5, 0.9)),
        robust_sgd=("ours", run(0.1, 0.9, seed=1), run(0.9, 0.9)),
    )
    write(tmp_path / "digits_mlp", results, dict.fromkeys(results["arms"], 1.0))
    return contests.read(tmp_path)


def test_epochs_are_paired_by_seed(found):
    key = "epochs_to_backbone"
    assert contests.by_seed(found, "robust_sgd", ("sgd",), key) == [[(2, 2), (1, 2)]]
    pairs = contests.by_seed(found, "robust_sgd", ("sawtooth_control",), key)
    assert pairs == [[(1, 2)]]
    assert contests.by_seed(found, "robust_sgd", ("adam",), key) == []
    assert contests.by_seed(found, "robust_adam", ("sgd",), key) == []


def test_the_best_of_others_is_what_counts(found):
    key = "epochs_to_backbone"
    assert contests.against(found, "robust_sgd", ("sgd",), key) == [0.75]
    # A seed of the tuned one never arrives.
    assert contests.against(found, "robust_sgd", ("sgd, tuned",), key) == [0]
    assert contests.against(found, "robust_sgd", ("sgd", "sgd, tuned"), key) == [0.75]
    both = contests.by_seed(found, "robust_sgd", ("sgd", "sgd, tuned"), key)
    assert both == contests.by_seed(found, "robust_sgd", ("sgd",), key)


def test_surely():
    assert contests.surely([(1.0, 3.0), (1.0, 3.5), (1.0, 3.0)]) == -1
    assert contests.surely([(3.0, 1.0), (3.5, 1.0), (3.0, 1.0)]) == 1
    assert contests.surely([(1.0, 3.0), (1.0, 3.0)]) == -1
    assert contests.surely([(1.0, 3.0), (3.0, 1.0), (1.0, 2.0)]) == 0
    assert contests.surely([(2.0, 2.0), (2.0, 2.0)]) == 0
    # One seed tells nothing, nor does one that never arrives.
    assert contests.surely([(1.0, 3.0)]) == 0
    assert contests.surely([(1.0, 3.0), (math.inf, 3.0), (1.0, 3.0)]) == 0


def test_beyond_chance(tmp_path):
    for name, curve in (("a", (0.9, 0.9, 0.9)), ("b", (0.1, 0.1, 0.9))):
        results = comparison(
            name,
            sgd=("backbone", *(run(0.1, 0.9, 0.9, seed=n) for n in range(3))),
            robust_sgd=("ours", *(run(*curve, seed=n) for n in range(3))),
        )
        write(tmp_path / name, results, dict.fromkeys(results["arms"], 1.0))
    found = contests.read(tmp_path)
    clear = contests.beyond_chance(found, "robust_sgd", "sgd", "epochs_to_backbone")
    assert clear == (["`a`"], ["`b`"])


def test_redrawn_seeds():
    # One workload is certain, one depends on the seeds, one only the first gets to.
    certain, open_, alone = (
        [(1.0, 2.0)] * 3,
        [(1.0, 2.0), (4.0, 2.0)],
        [(9.0, math.inf)],
    )
    assert contests.redrawn([certain], max) == (0.5, 0.5)
    assert contests.redrawn([certain, open_], max) == (0.5, 2)
    assert contests.redrawn([certain, open_], min) == (0.5, 0.5)
    assert contests.redrawn([certain, alone], min) == (0, 0)
    assert contests.redrawn([[(math.inf, math.inf)], [(math.nan, 1.0)]], max) == ()
    assert contests.redrawn([], max) == ()
    # Most draws of two seeds hold one that never arrives.
    assert contests.redrawn([[(math.inf, 2.0), (2.0, 2.0)]], max) == (1, math.inf)
