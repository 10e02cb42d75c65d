"""A method against its backbone over learning rates and lengths of an epoch.

A wrapper that finds its own step length must help where the learning rate is too low,
and must not lose where it is right, or too high. So all learning rates have one target:
5 % below the best accuracy of all runs with the same batch size.
"""

import pathlib
from collections.abc import Sequence
from typing import Any

from rich.console import Console

from benchmarks import optimizers
from benchmarks.analysis import curves, sweep_cells
from benchmarks.files import write_json
from benchmarks.study import experiments
from benchmarks.workloads import workload


def arms(spec: str, factors: Sequence[float]) -> list[dict[str, str]]:
    """The arms of each learning rate: backbone, method and controls.

    Args:
      spec: the method, an arm with a backbone and a control.
      factors: what the backbone's learning rate is multiplied by.

    Returns:
      For each factor, names of arms by what they are. Robust methods have a "high
      control", too: the sawtooth that starts every epoch at their largest multiplier.

    Examples:
      >>> from benchmarks.study import sweeps
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
      **options: further options of :class:`benchmarks.Config`.

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
        cells += [sweep_cells.cell(results, names) for names in rates]
    found = {
        "workload": workload(name).name,
        "method": optimizers.arm(spec).name,
        "seeds": list(seeds),
        "cells": cells,
    }
    write_json(out / "sweep.json", found)
    return found
