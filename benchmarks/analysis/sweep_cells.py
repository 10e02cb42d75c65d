"""The cells of a sweep: what came out at one learning rate and length of an epoch."""

import math
import statistics
from typing import Any

from benchmarks.analysis import curves, tables
from benchmarks.specs import arm

# The titles of the arms of a cell.
TITLES = {
    "backbone": "bare",
    "method": "wrapped",
    "control": "control",
    "high control": "high control",
}


def cell(results: dict[str, Any], names: dict[str, str]) -> dict[str, Any]:
    """What came out at one learning rate and length of an epoch.

    Args:
      results: the comparison of all learning rates, which sets the target.
      names: the arms by what they are, see :func:`benchmarks.study.sweep.arms`.

    Returns:
      The setting; for each arm the epochs that each seed needs to the target (None:
      never, or the run diverged), the accuracies with which its runs end (None: it
      diverged) and how many diverged; and the largest multiplier of the method.
    """
    target = curves.cutoff(results)
    runs = {what: results["arms"][arm]["runs"] for what, arm in names.items()}

    def reached(run: dict[str, Any]) -> int | None:
        epochs = curves.epochs_to(target, run["accuracy"])
        arrived = math.isfinite(epochs) and run["failed_step"] is None
        return int(epochs) if arrived else None

    def end(run: dict[str, Any]) -> float | None:
        return run["accuracy"][-1] if run["failed_step"] is None else None

    gammas = [gamma for run in runs["method"] for gamma in run["gamma_min"] or ()]
    return {
        "steps_per_epoch": results["steps_per_epoch"],
        "epochs": results["epochs"],
        "target": target,
        "learning_rate": arm(names["backbone"]).options["learning_rate"],
        "arms": names,
        "reached": {what: list(map(reached, each)) for what, each in runs.items()},
        "ends": {what: list(map(end, each)) for what, each in runs.items()},
        "diverged": {
            what: sum(run["failed_step"] is not None for run in each)
            for what, each in runs.items()
        },
        "largest_multiplier": 1 / min(gammas, default=1.0),
    }


def epochs(one: dict[str, Any], what: str) -> float:
    """Mean epochs of an arm to the target; ∞ where a seed never gets there."""
    counts = one["reached"][what]
    return math.inf if None in counts else statistics.fmean(counts)


def accuracy(one: dict[str, Any], what: str) -> float | None:
    """Mean accuracy of an arm at the end; None where a run diverged."""
    ends = one["ends"][what]
    return None if None in ends else statistics.fmean(ends)


def _three_digits(number: float) -> str:
    return f"{float(f'{number:.3g}'):g}"  # 1000, not 1e+03


def rows(found: dict[str, Any]) -> list[dict[str, str]]:
    """The rows of the table of a sweep: epochs to the target, and final accuracies."""

    def to_target(one: dict[str, Any], what: str) -> str:
        mean, seeds = epochs(one, what), len(one["reached"][what])
        if math.isfinite(mean):
            return f"{mean:.1f}"
        if one["diverged"][what] == seeds:
            return "diverged"
        missed = one["reached"][what].count(None)
        return "∞" if missed == seeds else f"∞ ({missed} of {seeds} missed)"

    def end(one: dict[str, Any], what: str) -> str:
        value = accuracy(one, what)
        return tables.NOTHING if value is None else f"{100 * value:.1f}"

    return [
        {
            "learning rate": f"{one['learning_rate']:g}",
            "steps an epoch": str(one["steps_per_epoch"]),
            **{
                title: to_target(one, what)
                for what, title in TITLES.items()
                if what in one["arms"]
            },
            "bare at the end, %": end(one, "backbone"),
            "wrapped at the end, %": end(one, "method"),
            "multiplier": _three_digits(one["largest_multiplier"]),
        }
        for one in found["cells"]
    ]
