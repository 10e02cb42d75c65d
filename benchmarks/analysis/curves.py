"""Figures of a comparison: how soon its arms get where, how far, and by what.

A comparison is the data of two files, results and timings. Everything here is a pure
function of them. A run that never reaches an accuracy needs infinitely many epochs: it
is counted so, and never left out of a mean.
"""

import math
import statistics
from collections.abc import Iterable, Sequence
from typing import Any

from benchmarks.specs import backbone, control, kind
from ctagd_optax.testbed import Interval

# How far below an accuracy still counts as reaching it. Relative, as in the paper: its
# best 64.70 % gives the cutoff 61.2 %, where 5 points would give 59.7 %.
TOLERANCE = 0.05


def epochs_to(threshold: float, curve: Sequence[float]) -> float:
    """The first epoch, counted from 1, at or above the threshold; ∞ if there is none.

    Examples:
      >>> from benchmarks.analysis import curves
      >>> curves.epochs_to(0.9, [0.5, 0.9, 0.8])
      2
    """
    return next((n for n, value in enumerate(curve, 1) if value >= threshold), math.inf)


def epochs_to_final(run: dict[str, Any]) -> float:
    """Epochs until a run is within 5 % of its own last accuracy; ∞ if it diverged.

    The paper's "epochs to convergence". It flatters runs that end low.
    """
    curve = run["accuracy"]
    if run["failed_step"] is not None or not curve:
        return math.inf
    return epochs_to((1 - TOLERANCE) * curve[-1], curve)


def best(curve: Sequence[float]) -> float:
    """The highest accuracy; 0 of a run that finished no epoch."""
    return max(curve, default=0.0)


def falls_back(threshold: float, run: dict[str, Any]) -> bool:
    """Whether a run reaches the threshold and is below it again later, or diverges."""
    curve = run["accuracy"]
    reached = epochs_to(threshold, curve)
    if math.isinf(reached):
        return False
    return run["failed_step"] is not None or min(curve[int(reached) - 1 :]) < threshold


def seconds_to(
    threshold: float, curve: Sequence[float], seconds: Sequence[float]
) -> float:
    """Training seconds until the threshold, without compilation; ∞ if never.

    Args:
      threshold: the accuracy to reach.
      curve: the accuracy after each epoch.
      seconds: the training time up to the end of each epoch.

    Returns:
      The seconds at the end of the epoch that reaches it.

    Raises:
      ValueError: there are fewer times than epochs.
    """
    if len(seconds) < len(curve):
        raise ValueError(
            f"seconds must have an entry for each of {len(curve)} epochs, got "
            f"{len(seconds)}"
        )
    epoch = epochs_to(threshold, curve)
    return math.inf if math.isinf(epoch) else seconds[int(epoch) - 1]


def seconds_per_epoch(seconds: Sequence[float]) -> float:
    """The median time of an epoch, which one slow moment does not change."""
    if not seconds:
        return math.nan
    return statistics.median(
        after - before for before, after in zip([0.0, *seconds], seconds, strict=False)
    )


def interval(values: Sequence[float]) -> Interval:
    """Mean and half-width of the 95 % interval (Student's t).

    The half-width is NaN of one value, and where a value is infinite: the mean is
    infinite then. Both are NaN of no value.

    Examples:
      >>> from benchmarks.analysis import curves
      >>> print(curves.interval([1.0, 2.0, 3.0]))
      2.00 ± 2.48
      >>> curves.interval([1.0, float("inf")]).mean
      inf
    """
    if any(map(math.isinf, values)):
        return Interval(math.inf, math.nan)
    return Interval.of(values)


def cutoff(results: dict[str, Any]) -> float:
    """The accuracy that counts as arrived: 5 % below the best arm's, relatively.

    An arm's accuracy is the mean over its seeds of the best of each run.

    Args:
      results: the comparison.

    Returns:
      The cutoff, the same for all arms.

    Raises:
      ValueError: the comparison has no run.
    """
    means = [
        statistics.fmean(best(run["accuracy"]) for run in arm["runs"])
        for arm in results["arms"].values()
        if arm["runs"]
    ]
    if not means:
        raise ValueError("results must have at least one run, got none")
    return (1 - TOLERANCE) * max(means)


def epochs_to_cutoff(results: dict[str, Any]) -> dict[str, list[float]]:
    """For each arm, the epochs of each seed to the common cutoff."""
    threshold = cutoff(results)
    return {
        name: [epochs_to(threshold, run["accuracy"]) for run in arm["runs"]]
        for name, arm in results["arms"].items()
    }


def saving(epochs: float, reference: float) -> float:
    """Epochs saved against a reference, in % of the reference's.

    Args:
      epochs: epochs needed.
      reference: epochs that the reference needs.

    Returns:
      The percentage, negative where more are needed; −∞ where only the reference
      arrives, ∞ where the reference never does, NaN where neither does.

    Examples:
      >>> from benchmarks.analysis import curves
      >>> round(curves.saving(24.0, 32.4), 1)
      25.9
    """
    if math.isinf(reference):
        return math.inf if math.isfinite(epochs) else math.nan
    return 100 * (1 - epochs / reference)


def is_curvature_tuned(name: str) -> bool:
    """Whether an arm is CT-AGD, controls that leave the curvature out not counted."""
    return kind(name).startswith(("ct_", "ct("))


def references(results: dict[str, Any], name: str) -> dict[str, str]:
    """The arms that an arm is to be measured against.

    Args:
      results: the comparison.
      name: the arm.

    Returns:
      Names of arms by what they are: "backbone" is the optimizer it is built on, with
      the same learning rate and options, of a tuned one that with its defaults; "tuned"
      the same with a tuned learning rate and no average of weights; "control" for
      CT-AGD its schedule without curvature, for our robust method the sawtooth, if
      learning rate and λ_min are the same. What is not there is left out; a bare
      backbone has none.
    """
    arms = results["arms"]
    bare, ours = backbone(name), arms[name]
    if bare is None or ours["role"] == "backbone":
        return {}

    def first(named, roles, options=()):
        fits = (
            other
            for role in roles
            for other, arm in arms.items()
            if kind(other) == named and arm["role"] == role and other != name
            if "+average" not in other or role == "control"
            if _alike(ours, arm, options)
        )
        return next(fits, None)

    wrapped = ours["options"].get("backbone")  # as it was named within brackets
    if kind(name) == bare:  # a tuned one
        plain = arms.get(bare, {"role": None})["role"] == "backbone"
        base = bare if plain else first(bare, ["backbone"])
    elif wrapped is not None:
        base = wrapped if wrapped in arms else None
    else:
        base = first(bare, ["backbone", "tuned", "peer"], _SHARED)
    found = {
        "backbone": base,
        "tuned": first(bare, ["tuned"]),
        "control": first(
            control(name), ["control"], ["learning_rate", "curvature_min"]
        ),
    }
    return {what: other for what, other in found.items() if other is not None}


# Options that an optimizer keeps when it is wrapped.
_SHARED = "learning_rate", "momentum", "nesterov", "b1", "b2", "weight_decay"


def _alike(
    ours: dict[str, Any], theirs: dict[str, Any], options: Iterable[str]
) -> bool:
    """Whether two arms have the same options, of those that both have."""
    both = ours["options"].keys() & theirs["options"].keys()
    return all(
        ours["options"][key] == theirs["options"][key]
        for key in both.intersection(options)
    )


def summary(
    results: dict[str, Any], timings: dict[str, Any] | None = None
) -> list[dict[str, Any]]:
    """One row of plain values an arm, over its seeds.

    Accuracies are shares, savings are in %; ``…_half`` is the half-width of a 95 %
    interval. None stands for what is undefined or was not measured, ∞ for a mean over
    seeds of which one missed.

    Args:
      results: the comparison.
      timings: its times, if they are wanted.

    Returns:
      The rows, in the comparison's order, with the keys arm, role, seeds, diverged
      (seeds), best, epochs_to_cutoff, missed (seeds that never reached it), fell_back
      (seeds that reached it and lost it), epochs_to_final, saved_backbone, saved_tuned,
      saved_control, evidence (share of coordinates), at_minimum (share of tensors and
      epochs with γ at λ_min), seconds_to_cutoff, seconds_per_epoch, compile_seconds (of
      the seed that took longest).

    Raises:
      ValueError: there is no run, or an arm's times are not those of its seeds.
    """
    threshold = cutoff(results)
    epochs = epochs_to_cutoff(results)
    rows = []
    for name, arm in results["arms"].items():
        runs = arm["runs"]
        against = references(results, name)
        row = {
            "arm": name,
            "role": arm["role"],
            "seeds": len(runs),
            "diverged": sum(run["failed_step"] is not None for run in runs),
            **_spread("best", [best(run["accuracy"]) for run in runs]),
            **_spread("epochs_to_cutoff", epochs[name]),
            "missed": sum(map(math.isinf, epochs[name])),
            "fell_back": sum(falls_back(threshold, run) for run in runs),
            **_spread("epochs_to_final", [epochs_to_final(run) for run in runs]),
        }
        for what in ("backbone", "tuned", "control"):
            other = epochs.get(against.get(what, ""), [])
            row[f"saved_{what}"] = _defined(
                saving(interval(epochs[name]).mean, interval(other).mean)
            )
        row["evidence"] = _pooled(runs, "observed")
        row["at_minimum"] = _pooled(runs, "gamma_at_min")
        rows.append({**row, **_times(threshold, name, runs, timings)})
    return rows


def _spread(name: str, values: Sequence[float]) -> dict[str, float | None]:
    both = interval(values)
    return {name: _defined(both.mean), f"{name}_half": _defined(both.half)}


def _defined(value: float) -> float | None:
    return None if math.isnan(value) else value


def _pooled(runs: list[dict[str, Any]], key: str) -> float | None:
    values = [value for run in runs for value in run[key] or ()]
    return statistics.fmean(values) if values else None


def _times(
    threshold: float,
    name: str,
    runs: list[dict[str, Any]],
    timings: dict[str, Any] | None,
) -> dict[str, float | None]:
    timed = timings["arms"].get(name, []) if timings else []
    times = {entry["seed"]: entry for entry in timed}
    seeds = [run["seed"] for run in runs]
    if times and set(times) != set(seeds):
        raise ValueError(
            f"timings of {name} must be of its seeds {sorted(seeds)}, got "
            f"{sorted(times)}"
        )
    pairs = [(run, times[run["seed"]]) for run in runs] if times else []
    return {
        **_spread(
            "seconds_to_cutoff",
            [
                seconds_to(threshold, run["accuracy"], entry["seconds"])
                for run, entry in pairs
            ],
        ),
        **_spread(
            "seconds_per_epoch",
            # A run that finished no epoch tells nothing of the time of one.
            [seconds_per_epoch(x["seconds"]) for _, x in pairs if x["seconds"]],
        ),
        # Later seeds find the program compiled.
        "compile_seconds": max(
            (x["compile_seconds"] for _, x in pairs if x["compile_seconds"]),
            default=None,
        ),
    }
