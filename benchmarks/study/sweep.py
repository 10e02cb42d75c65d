"""A method against its backbone over learning rates and lengths of an epoch.

A wrapper that finds its own step length must help where the learning rate is too low,
and must not lose where it is right, or too high. So all learning rates have one target:
5 % below the best accuracy of all runs with the same batch size.
"""

import pathlib
from collections.abc import Sequence
from typing import Any

from rich.console import Console

from benchmarks.analysis import sweep_cells
from benchmarks.files import merged, write_json
from benchmarks.locks import holding
from benchmarks.specs import arm, backbone, control, with_options
from benchmarks.study.compare import Entry, compare
from benchmarks.workloads import workload


def arms(spec: str, factors: Sequence[float]) -> list[dict[str, str]]:
    """The arms of each learning rate: backbone, method and controls.

    Args:
      spec: the method, an arm with a backbone.
      factors: what the backbone's learning rate is multiplied by.

    Returns:
      For each factor, names of arms by what they are. There is a "control" where the
      method has one; robust methods then have a "high control", too: the sawtooth that
      starts every epoch at twenty times the learning rate.

    Examples:
      >>> from benchmarks.study import sweep
      >>> sweep.arms("robust_sgd", [10.0])[0]["high control"]
      'sawtooth_control@0.1:peak=20'
    """
    spec = arm(spec).name
    bare = backbone(spec)
    if bare is None or bare == arm(spec).kind:
        raise ValueError(
            f"optimizer must be built on another, such as robust_sgd or robust(muon); "
            f"got {spec!r}"
        )
    method = arm(spec)

    def alike(name: str, **further: float) -> str:
        """An arm with the method's options, as far as it has them."""
        own = arm(name).options
        shared = {
            key: value
            for key, value in (method.options | further).items()
            if key in own and key not in ("learning_rate", "average")
        }
        pairs = ",".join(f"{key}={value}" for key, value in shared.items())
        average = "+average" * bool(method.options["average"])
        return arm(f"{name}{average}:{pairs}").name

    inner = method.options.get("backbone")
    names = {"backbone": inner if inner else alike(bare), "method": spec}
    if control(spec):
        names["control"] = alike(control(spec))
        if method.role == "ours":
            names["high control"] = alike(control(spec), peak=20)

    def at(name: str, factor: float) -> str:
        rate = arm(name).options["learning_rate"] * factor
        return with_options(name, learning_rate=rate)

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
      **options: further options of :class:`benchmarks.train.config.Config`.

    Returns:
      What the file holds.
    """
    cells, makers = [], []
    rates = arms(spec, factors)
    entries = [Entry(name, "peer") for rate in rates for name in rate.values()]
    with holding(out):
        for batch_size in batch_sizes:
            results, _ = compare(
                name,
                entries,
                seeds,
                out / f"batch_{batch_size}",
                jobs=jobs,
                console=console,
                **{**options, "batch_size": batch_size},
            )
            makers.append(results["made_by"])
            cells += [sweep_cells.cell(results, names) for names in rates]
        found = {
            "workload": workload(name).name,
            "method": arm(spec).name,
            "seeds": list(seeds),
            "made_by": merged(makers),
            "cells": cells,
        }
        write_json(out / "sweep.json", found)
    return found
