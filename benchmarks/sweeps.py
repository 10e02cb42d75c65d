"""A method against its backbone over learning rates and lengths of an epoch.

A wrapper that finds its own step length must help where the learning rate is too low,
and must not lose where it is right, or too high. So all learning rates have one target:
5 % below the best accuracy of all runs with the same batch size.
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

# The titles of the arms of a cell.
TITLES = {
    "backbone": "bare",
    "method": "wrapped",
    "control": "control",
    "high control": "high control",
}


def arms(spec: str, factors: Sequence[float]) -> list[dict[str, str]]:
    """The arms of each learning rate: backbone, method and controls.

    Args:
      spec: the method, an arm with a backbone and a control.
      factors: what the backbone's learning rate is multiplied by.

    Returns:
      For each factor, names of arms by what they are. Robust methods have a "high
      control", too: the sawtooth that starts every epoch at their largest multiplier.

    Examples:
      >>> from benchmarks import sweeps
      >>> sweeps.arms("robust_sgd", [10.0])[0]["high control"]
      'sawtooth_control@0.1:peak=20'
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
        "method": spec,
        "control": curves.CONTROLS[kind],
    }
    if kind.startswith("robust_"):
        peak = optimizers.arm(spec).options["multiplier_max"]
        names["high control"] = f"{names['control']}:peak={peak:g}"

    def at(name: str, factor: float) -> str:
        rate = optimizers.arm(name).options["learning_rate"] * factor
        return optimizers.at_rate(name, rate)

    return [
        {what: at(name, factor) for what, name in names.items()} for factor in factors
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
      results: the comparison of all learning rates, which sets the target.
      names: the arms by what they are, as :func:`arms` gives them.

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
        "learning_rate": optimizers.arm(names["backbone"]).options["learning_rate"],
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
            "multiplier": f"{one['largest_multiplier']:.3g}",
        }
        for one in found["cells"]
    ]
