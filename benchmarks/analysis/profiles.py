"""Performance profiles: on what share of workloads is an arm about as fast as any?"""

import collections
import math
from collections.abc import Sequence
from typing import Any

from benchmarks import specs
from benchmarks.analysis import curves


def labels(results: dict[str, Any]) -> dict[str, str]:
    """What each arm of a comparison is called on all workloads.

    An arm that was tuned has other options on each workload: ``sgd@0.085`` here and
    ``sgd@0.23`` there are both "sgd, tuned". Others keep their names, and so do tuned
    arms that would get the same one.

    Args:
      results: the comparison.

    Returns:
      Different labels, by the names of the arms.
    """
    found = {
        name: f"{specs.kind(name)}{'+average' * ('+average' in name)}, tuned"
        if arm["role"] == "tuned"
        else name
        for name, arm in results["arms"].items()
    }
    counts = collections.Counter(found.values())
    return {n: label if counts[label] == 1 else n for n, label in found.items()}


def relabelled(results: dict[str, Any]) -> dict[str, Any]:
    """The comparison with its arms under their :func:`labels`."""
    names = labels(results)
    arms = {names[name]: arm for name, arm in results["arms"].items()}
    return {**results, "arms": arms}


def common_arms(comparisons: Sequence[dict[str, Any]]) -> list[str]:
    """The arms that all comparisons have, in the order of the first."""
    return [
        arm
        for arm in comparisons[0]["arms"]
        if all(_runs(results, arm) for results in comparisons)
    ]


def ratios(
    comparisons: Sequence[dict[str, Any]], arms: Sequence[str]
) -> dict[str, list[float]]:
    """For each arm and workload, its epochs to the cutoff over those of the best arm.

    Epochs are means over the seeds, so a seed that misses makes the ratio infinite. The
    best is the best of these arms. Where none of them arrives, all are infinite.

    Args:
      comparisons: the results, one of each workload.
      arms: the arms to profile; every comparison must have them.

    Returns:
      The ratios, in the order of the comparisons.

    Raises:
      ValueError: there is no comparison, an arm is missing in one, or a workload is
        there twice.
    """
    if not comparisons:
        raise ValueError("comparisons must not be empty")
    workloads = [results["workload"] for results in comparisons]
    if len(set(workloads)) < len(workloads):
        raise ValueError(
            f"comparisons must be of different workloads, got {', '.join(workloads)}"
        )
    found: dict[str, list[float]] = {arm: [] for arm in arms}
    for results in comparisons:
        missing = [arm for arm in arms if not _runs(results, arm)]
        if missing:
            raise ValueError(
                f"the comparison of {results['workload']} must have runs of all arms, "
                f"it has none of {', '.join(missing)}"
            )
        epochs = curves.epochs_to_cutoff(results)
        means = {arm: curves.interval(epochs[arm]).mean for arm in arms}
        best = min(means.values())
        for arm, mean in means.items():
            found[arm].append(mean / best if math.isfinite(mean) else math.inf)
    return found


def profile(
    comparisons: Sequence[dict[str, Any]], arms: Sequence[str], taus: Sequence[float]
) -> dict[str, list[float]]:
    """For each arm, the share of workloads on which it is within τ times the best.

    Args:
      comparisons: the results, one of each workload.
      arms: the arms to profile.
      taus: the values of τ, at least 1.

    Returns:
      A share for each τ: a step function that never falls. At 1 it is the share of
      workloads on which the arm is the best; a workload it misses never counts.

    Raises:
      ValueError: a τ is below 1, or see :func:`ratios`.
    """
    if any(tau < 1 for tau in taus):
        raise ValueError(f"taus must be at least 1, got {min(taus)}")
    return {
        arm: [
            sum(math.isfinite(ratio) and ratio <= tau for ratio in values) / len(values)
            for tau in taus
        ]
        for arm, values in ratios(comparisons, arms).items()
    }


def _runs(results: dict[str, Any], arm: str) -> list[dict[str, Any]]:
    return results["arms"].get(arm, {"runs": []})["runs"]
