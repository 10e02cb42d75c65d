"""A method against its backbone over learning rates and lengths of an epoch.

A wrapper that finds its own step length must not lose where the backbone's learning
rate is already right, or too high. So each cell of the sweep has its own levels, the
accuracies at which the bare backbone ends there, and counts the epochs to them.
"""

import math
import pathlib
import statistics
from collections.abc import Sequence
from typing import Any

from rich.console import Console

from benchmarks import curves, experiments, optimizers, tables
from benchmarks.files import write_json
from benchmarks.workloads import workload

CONTROLS = ("control", "high control", "low control")

# A run that gets less than this right is broken, where its backbone's is not.
BROKEN = 0.5

# What changes the backbone's learning rate by nothing that matters: runs part by
# rounding, as far as training is chaotic, and so show what chance does.
NOTHING_MUCH = 1.001


def high_control(spec: str, control: str) -> str:
    """The sawtooth that starts every epoch at the largest multiplier of a method.

    Examples:
      >>> from benchmarks import sweeps
      >>> sweeps.high_control("robust_sgd:multiplier_max=30", "sawtooth_control")
      'sawtooth_control:peak=30'
    """
    peak = optimizers.arm(spec).options["multiplier_max"]
    return optimizers.arm(f"{control}:peak={peak:g}").name


def low_control(spec: str, control: str) -> str:
    """The sawtooth from the backbone's rate down to the floor of a method.

    Examples:
      >>> from benchmarks import sweeps
      >>> sweeps.low_control("robust_sgd:floor=0.1", "sawtooth_control")
      'sawtooth_control:floor=0.1,peak=1'
    """
    floor = optimizers.arm(spec).options["floor"]
    return optimizers.arm(f"{control}:floor={floor:g},peak=1").name


def arms(spec: str, factors: Sequence[float]) -> list[dict[str, str]]:
    """The arms of each learning rate: backbone, controls, method and chance.

    Args:
      spec: the method, an arm with a backbone and a control.
      factors: what the backbone's learning rate is multiplied by.

    Returns:
      For each factor, names of arms by what they are. "chance" is the backbone with a
      learning rate that is a thousandth larger. Robust methods have a "high control",
      which starts where they may end up, and those with a floor a "low control", which
      always falls to it.

    Examples:
      >>> from benchmarks import sweeps
      >>> sweeps.arms("robust_sgd", [10.0])[0]["backbone"]
      'sgd@0.1'
    """
    if "@" in spec:
        raise ValueError(
            f"optimizer must have its own learning rate, which the factors change; got "
            f"{spec!r}"
        )
    kind = curves.kind(spec)
    if kind not in curves.BACKBONES or kind not in curves.CONTROLS:
        raise ValueError(
            f"optimizer must be one of {', '.join(curves.CONTROLS)}; got {spec!r}"
        )
    names = {
        "backbone": curves.BACKBONES[kind],
        "control": curves.CONTROLS[kind],
        "method": spec,
    }
    if kind.startswith("robust_"):
        names["high control"] = high_control(spec, names["control"])
        if optimizers.arm(spec).options["floor"] != 1:
            names["low control"] = low_control(spec, names["control"])

    def at(name: str, factor: float) -> str:
        rate = optimizers.arm(name).options["learning_rate"] * factor
        return optimizers.at_rate(name, rate)

    return [
        {
            **{what: at(name, factor) for what, name in names.items()},
            "chance": at(names["backbone"], NOTHING_MUCH * factor),
        }
        for factor in factors
    ]


def sweep(
    name: str,
    spec: str,
    factors: Sequence[float],
    batch_sizes: Sequence[int],
    seeds: Sequence[int],
    out: pathlib.Path,
    *,
    jobs: int = 1,
    console: Console,
    **options: Any,
) -> dict[str, Any]:
    """Trains all arms of all cells, and writes ``out/sweep.json``.

    Args:
      name: the workload.
      spec: the method.
      factors: what the backbone's learning rate is multiplied by.
      batch_sizes: examples in a batch, which set the steps of an epoch.
      seeds: the seeds.
      out: folder for the runs and the file.
      jobs: runs at once.
      console: shows how far it is.
      **options: further options of :class:`benchmarks.trainer.Config`.

    Returns:
      What the file holds.
    """
    cells = []
    rates = arms(spec, factors)
    entries = [
        experiments.Entry(arm, "peer") for rate in rates for arm in rate.values()
    ]
    for batch_size in batch_sizes:
        results, _ = experiments.compare(
            name,
            entries,
            seeds,
            out / f"batch_{batch_size}",
            jobs=jobs,
            console=console,
            **{**options, "batch_size": batch_size},
        )
        cells += [cell(results, names) for names in rates]
    found = {
        "workload": workload(name).name,
        "method": optimizers.arm(spec).name,
        "seeds": list(seeds),
        "cells": cells,
    }
    write_json(out / "sweep.json", found)
    return found


def cell(results: dict[str, Any], names: dict[str, str]) -> dict[str, Any]:
    """What came out at one learning rate and length of an epoch.

    Args:
      results: a comparison that has the arms.
      names: the arms by what they are, as :func:`arms` gives them.

    Returns:
      For each arm the epochs that each seed needs to where the bare backbone ends with
      that seed (None: never, or the run diverged), or None if a run of the backbone
      diverged; the accuracies with which its runs end, None for one that diverged; and
      how many did. Of the method also the smallest and the largest m = 1/γ of each run.
    """
    runs = {what: results["arms"][arm]["runs"] for what, arm in names.items()}
    broken = {
        what: sum(run["failed_step"] is not None for run in each)
        for what, each in runs.items()
    }

    def reached(each: list[dict[str, Any]]) -> list[int | None] | None:
        if broken["backbone"]:
            return None
        counts = curves.epochs_to_ends(each, runs["backbone"])
        return [
            int(count) if math.isfinite(count) and run["failed_step"] is None else None
            for run, count in zip(each, counts, strict=True)
        ]

    def end(run: dict[str, Any]) -> float | None:
        return run["accuracy"][-1] if run["failed_step"] is None else None

    return {
        "steps_per_epoch": results["steps_per_epoch"],
        "epochs": results["epochs"],
        "arms": names,
        "reached": {what: reached(each) for what, each in runs.items()},
        "ends": {what: [end(run) for run in each] for what, each in runs.items()},
        "diverged": broken,
        "multipliers": [
            [
                1 / max(run["gamma_max"] or (), default=1.0),
                1 / min(run["gamma_min"] or (), default=1.0),
            ]
            for run in runs["method"]
        ],
    }


def _has_moved(one: dict[str, Any]) -> bool:
    return any(not math.isclose(m, 1) for pair in one["multipliers"] for m in pair)


def moved(found: dict[str, Any]) -> dict[str, Any]:
    """The sweep without the cells in which no run's multiplier m ever left 1."""
    return {**found, "cells": list(filter(_has_moved, found["cells"]))}


def held(found: dict[str, Any]) -> dict[str, Any]:
    """The cells of the sweep in which no run's multiplier m ever left 1."""
    return {**found, "cells": [x for x in found["cells"] if not _has_moved(x)]}


def beside(found: dict[str, Any], other: dict[str, Any], name: str) -> dict[str, Any]:
    """The sweep, with the method of another as one more arm of each cell.

    Args:
      found: the sweep.
      other: a sweep around the same backbone, of at least the same cells.
      name: what its method is to be called.

    Returns:
      The cells of the first, of which only the epochs to the backbone's end have it.
    """

    def key(one: dict[str, Any]) -> tuple[int, str]:
        return one["steps_per_epoch"], one["arms"]["backbone"]

    methods = {key(one): one["reached"]["method"] for one in other["cells"]}
    cells = [
        {**one, "reached": {**one["reached"], name: methods[key(one)]}}
        for one in found["cells"]
    ]
    return {**found, "cells": cells}


def ratios(
    found: dict[str, Any], what: str = "method", over: str = "backbone"
) -> list[float]:
    """Mean epochs of one arm over those of another, in the cells that one arrives in.

    Args:
      found: the sweep.
      what: whose epochs.
      over: over whose.

    Returns:
      A ratio a cell, 0 where only the first arrives with all seeds, ∞ where only the
      second does. Cells in which neither does, or the backbone diverges, are left out.

    Examples:
      >>> from benchmarks import sweeps
      >>> cells = [{"method": [2, 4], "backbone": [8, 4]}, {"method": [1, None]}]
      >>> cells[1]["backbone"] = [9, 9]
      >>> sweeps.ratios({"cells": [{"reached": cell} for cell in cells]})
      [0.5, inf]
    """
    pairs = [
        [_mean(cell["reached"][name]) for name in (what, over)]
        for cell in found["cells"]
    ]
    return [
        0.0 if math.isinf(theirs) else ours / theirs
        for ours, theirs in pairs
        if min(ours, theirs) < math.inf
    ]


def by_seed(
    found: dict[str, Any], what: str = "method", over: str = "backbone"
) -> list[list[tuple[float, float]]]:
    """For each cell, the epochs of two arms seed by seed, ∞ where one never arrives."""
    return [
        [
            (math.inf if own is None else own, math.inf if theirs is None else theirs)
            for own, theirs in zip(
                cell["reached"][what], cell["reached"][over], strict=True
            )
        ]
        for cell in found["cells"]
        if cell["reached"][what] is not None
    ]


def has(found: dict[str, Any], what: str) -> bool:
    """Whether every cell has an arm."""
    return all(what in cell["arms"] for cell in found["cells"])


def broken(found: dict[str, Any], what: str) -> int:
    """Runs of an arm that broke, by loss or by accuracy, where the backbone's did not.

    Examples:
      >>> from benchmarks import sweeps
      >>> ends = {"backbone": [0.9, 0.9, 0.1], "method": [0.8, None, 0.05]}
      >>> sweeps.broken({"cells": [{"ends": ends}]}, "method")
      1
    """

    def is_broken(end: float | None) -> bool:
        return end is None or end < BROKEN

    return sum(
        is_broken(own) and not is_broken(bare)
        for cell in found["cells"]
        for own, bare in zip(cell["ends"][what], cell["ends"]["backbone"], strict=True)
    )


def _mean(counts: list[int | None] | None) -> float:
    if counts is None or None in counts:
        return math.inf
    return statistics.fmean(counts)


def loss_at_end(one: dict[str, Any]) -> float:
    """By how much a method's mean accuracy ends below its backbone's, in a cell.

    A run that diverged ends at 0.
    """
    ours, theirs = (
        statistics.fmean(x or 0.0 for x in one["ends"][what])
        for what in ("method", "backbone")
    )
    return theirs - ours


def rows(found: dict[str, Any]) -> list[dict[str, str]]:
    """The rows of the table of a sweep."""

    def epochs(one: dict[str, Any], what: str) -> str:
        if one["diverged"][what]:
            return f"diverged ({one['diverged'][what]} of {len(found['seeds'])})"
        counts = one["reached"][what]
        if counts is None:
            return tables.NOTHING
        missed = counts.count(None)
        if missed:
            return f"∞ ({missed} of {len(counts)} missed)"
        return f"{statistics.fmean(counts):.1f}"

    def end(values: list[float | None]) -> str:
        known = [value for value in values if value is not None]
        mean = statistics.fmean(known) if len(known) == len(values) else None
        return tables.NOTHING if mean is None else f"{100 * mean:.1f}"

    return [
        {
            "steps an epoch": str(one["steps_per_epoch"]),
            "backbone": f"`{one['arms']['backbone']}`",
            "its end, %": end(one["ends"]["backbone"]),
            "method's end, %": end(one["ends"]["method"]),
            "its largest m": f"{max(largest for _, largest in one['multipliers']):.1f}",
            **{
                f"epochs to it: {what}": epochs(one, what)
                for what in ("backbone", *CONTROLS, "method", "chance")
                if what in one["reached"]
            },
        }
        for one in found["cells"]
    ]
