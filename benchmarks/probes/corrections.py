"""Measures what the step at an epoch's end does to the training loss.

Usage: python -m benchmarks corrections [--workload digits_mlp] [--batch-sizes B ...]
           [--seeds 3] [--epochs 20] [--optimizers ct_sgd ct_adam ...]
           [--out benchmarks/results/corrections/WORKLOAD.json]

The last step of every epoch is taken twice from the same state, with the correction
and without; both ends are evaluated on the whole training set. The run goes on from
the end with it.
"""

import argparse
import dataclasses
import math
import pathlib
import statistics
from collections.abc import Sequence
from typing import Any

import jax
import optax
from rich.console import Console

from benchmarks import workloads
from benchmarks.analysis import tables
from benchmarks.files import write_json
from benchmarks.specs import arm, kind
from benchmarks.train.config import Config
from benchmarks.train.run import Run

# The arms that make a correction.
ARMS = ("ct_sgd", "ct_adam", "ct_sgd_appendix", "ct_adam_appendix")


def without(spec: str) -> str:
    """The arm without its correction, but with the same state.

    Args:
      spec: an arm that has one.

    Returns:
      The name of the arm.

    Raises:
      ValueError: the arm makes no correction.

    Examples:
      >>> from benchmarks.probes import corrections
      >>> corrections.without("ct_sgd:quantile=0.2")
      'ct_sgd:correction_rate=0,quantile=0.2'
    """
    if kind(spec) not in ARMS:
        raise ValueError(f"optimizers must be of {', '.join(ARMS)}; got {spec!r}")
    base, _, options = spec.partition(":")
    kept = [x for x in options.split(",") if x and not x.startswith("correction_rate=")]
    return arm(f"{base}:{','.join([*kept, 'correction_rate=0'])}").name


def changes(config: Config) -> list[float | None]:
    """What each correction of a run does to the training loss.

    Args:
      config: the run, of an arm that makes a correction.

    Returns:
      For each epoch the change, relative to the loss without the correction; the last
      is None if a correction made a loss that is not finite.
    """
    run = Run(config)
    other = Run(dataclasses.replace(config, optimizer=without(config.optimizer)))
    step_without = jax.jit(other.functions.step)
    state, found = run.init(), []
    for number in range(run.epochs * run.steps_per_epoch):
        batch = run.train_batch(number)
        if (number + 1) % run.steps_per_epoch:
            state, _ = run.step(state, batch)
            continue
        uncorrected, _ = step_without(state, batch, run.constants)
        state, _ = run.step(state, batch)
        before, after = (
            run.evaluate(end, end.batch_stats, "train")[0]
            for end in (uncorrected, state)
        )
        if not math.isfinite(before):
            break
        found.append(after / before - 1 if math.isfinite(after) else None)
        if found[-1] is None:
            break
    return found


def measure(
    workload: str,
    names: Sequence[str],
    batch_sizes: Sequence[int],
    epochs: int,
    seeds: int,
) -> dict[str, Any]:
    """The changes of all arms, as the file holds them.

    Args:
      workload: what to train.
      names: the arms.
      batch_sizes: examples in a batch, which set the steps of an epoch.
      epochs: epochs to train.
      seeds: how many seeds, from 0 on.

    Returns:
      The setting, and for each batch size and arm the changes of each seed.
    """
    return {
        "versions": {"jax": jax.__version__, "optax": optax.__version__},
        "workload": workload,
        "epochs": epochs,
        "seeds": seeds,
        "changes": {
            str(size): {
                name: [
                    changes(
                        Config(
                            workload,
                            name,
                            pathlib.Path(),
                            seed,
                            epochs,
                            batch_size=size,
                        )
                    )
                    for seed in range(seeds)
                ]
                for name in names
            }
            for size in batch_sizes
        },
    }


def rows(found: dict[str, Any]) -> list[dict[str, str]]:
    """The rows of the table: how often, and by how much, the loss went up.

    Args:
      found: what :func:`measure` returns.

    Returns:
      One row an arm and a batch size.

    Examples:
      >>> from benchmarks.probes import corrections
      >>> found = {"changes": {"64": {"ct_sgd": [[-0.1, 0.02], [-0.05, 0.001]]}}}
      >>> list(corrections.rows(found)[0].values())
      ['ct_sgd', '64', '4', '100 %', '50 %', '25 %', '+2.0 %', '−2.5 %']
    """

    def row(name: str, size: str, values: list[float]) -> dict[str, str]:
        made = [x for x in values if x != 0]
        return {
            "arm": name,
            "batch": size,
            "epochs": str(len(values)),
            "made in": tables.share(len(made) / len(values)),
            "loss raised in": tables.share(statistics.fmean(x > 0 for x in values)),
            "by over 0.5 % in": tables.share(
                statistics.fmean(x > 0.005 for x in values)
            ),
            "at most": _change(max(values)),
            "median, if made": _change(statistics.median(made or [0.0])),
        }

    return [
        row(name, size, pooled(each))
        for size, arms in found["changes"].items()
        for name, each in arms.items()
        if pooled(each)
    ]


def pooled(changes: list[list[float | None]]) -> list[float]:
    """The changes of all seeds; ∞ where a correction broke the run."""
    return [math.inf if x is None else x for seed in changes for x in seed]


def _change(value: float) -> str:
    if math.isinf(value):
        return "∞"
    if value >= 1:
        return f"{1 + value:.2g}×"
    return f"{100 * value:+.1f} %".replace("-", "−")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    add = parser.add_argument
    add("--workload", default="digits_mlp", help="what to train")
    add("--optimizers", nargs="+", default=list(ARMS), help="arms with a correction")
    add("--batch-sizes", type=int, nargs="+", help="examples in a batch (workload's)")
    add("--seeds", type=int, default=3, help="seeds 0 to N-1")
    add("--epochs", type=int, default=20, help="epochs to train")
    add(
        "--out",
        type=pathlib.Path,
        help="file to write (runs/corrections/WORKLOAD.json)",
    )


def run(args: argparse.Namespace, console: Console) -> int:
    """Measures all arms and writes the changes."""
    if min(args.seeds, args.epochs, *(args.batch_sizes or [])) < 1:
        raise ValueError("--seeds, --epochs and --batch-sizes must be at least 1")
    work = workloads.workload(args.workload)
    names = [arm(spec).name for spec in args.optimizers]
    for name in names:
        without(name)
    sizes = args.batch_sizes or [work.batch_size]
    found = measure(work.name, names, sizes, args.epochs, args.seeds)
    out = args.out or pathlib.Path(f"runs/corrections/{work.name}.json")
    write_json(out, found)
    console.print(tables.terminal(rows(found), "training loss by the correction"))
    console.print(f"Wrote {out}")
    return 0
