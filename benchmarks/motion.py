"""Measures what the evidence along the motion says at several learning rates.

Usage: python -m benchmarks.motion [--workloads W ...] [--factors F ...] [--seeds 3]
           [--epochs 8] [--optimizer robust_sgd] [--out benchmarks/results/motion.json]

The robust method runs with its multiplier held at 1, so that it is its backbone and
only looks on. If its figures are the same at every learning rate, they cannot tell
which of these is best.
"""

import argparse
import math
import pathlib
import statistics
from collections.abc import Sequence
from typing import Any

import jax
import optax
from rich.console import Console

from benchmarks import optimizers, tables, workloads
from benchmarks.files import write_json
from benchmarks.trainer import Config, Run

# Of a line of metrics.jsonl: what is kept, and the title of its column.
FIGURES = {
    "signal": "N/SE",
    "held": "P/D",
    "overlap": "O/D",
    "gradient_square": "mean ‖g‖²",
    "train_loss": "training loss, last epoch",
}


def onlooker(spec: str, factor: float) -> str:
    """The method at a multiple of its learning rate, with its multiplier held at 1.

    Args:
      spec: a robust arm with its own learning rate.
      factor: what that is multiplied by.

    Returns:
      The name of the arm.

    Raises:
      ValueError: the arm is not a robust one, or has options.

    Examples:
      >>> from benchmarks import motion
      >>> motion.onlooker("robust_sgd", 10)
      'robust_sgd@0.1:correction=none,multiplier_max=1,multiplier_min=1'
    """
    if spec not in ("robust_sgd", "robust_adam"):
        raise ValueError(f"optimizer must be robust_sgd or robust_adam; got {spec!r}")
    held = f"{spec}:correction=none,multiplier_max=1,multiplier_min=1"
    rate = optimizers.arm(held).options["learning_rate"] * factor
    return optimizers.at_rate(held, rate)


def figures(config: Config) -> list[dict[str, float | None]]:
    """The figures of every epoch of a run; none that are not finite."""
    run = Run(config)
    state, found = run.init(), []
    for number in range(run.epochs * run.steps_per_epoch):
        state, _ = run.step(state, run.train_batch(number))
        if (number + 1) % run.steps_per_epoch == 0:
            row = run.measure(state)
            values = {name: row[name] for name in FIGURES}
            found.append(
                {k: v if math.isfinite(v) else None for k, v in values.items()}
            )
    return found


def measure(
    names: Sequence[str],
    spec: str,
    factors: Sequence[float],
    seeds: int,
    epochs: int,
    data_dir: pathlib.Path | None = None,
) -> dict[str, Any]:
    """The figures of all workloads and learning rates, as the file holds them.

    Args:
      names: the workloads.
      spec: the method.
      factors: what its learning rate is multiplied by.
      seeds: how many seeds, from 0 on.
      epochs: epochs to train.
      data_dir: folder of the data; None is the environment's.

    Returns:
      The setting, and for each workload and learning rate the figures of each seed.
    """

    def at(name: str, factor: float) -> dict[str, Any]:
        arm = onlooker(spec, factor)
        return {
            "learning_rate": optimizers.arm(arm).options["learning_rate"],
            "runs": [
                figures(
                    Config(name, arm, pathlib.Path(), seed, epochs, data_dir=data_dir)
                )
                for seed in range(seeds)
            ],
        }

    return {
        "versions": {"jax": jax.__version__, "optax": optax.__version__},
        "method": spec,
        "seeds": seeds,
        "epochs": epochs,
        "workloads": {name: [at(name, f) for f in factors] for name in names},
    }


def rows(found: dict[str, Any]) -> list[dict[str, str]]:
    """The rows of the table: one a workload and learning rate.

    Figures are means over seeds and over the second half of the epochs, in which
    training is under way; the loss is that of the last epoch.

    Args:
      found: what :func:`measure` returns.

    Returns:
      The rows.
    """

    def mean(runs: list[list[dict[str, float | None]]], name: str) -> str:
        values = [
            row[name]
            for run in runs
            for row in (run[-1:] if name == "train_loss" else run[len(run) // 2 :])
        ]
        known = [value for value in values if value is not None]
        if len(known) < len(values):
            return tables.NOTHING
        return f"{statistics.fmean(known):.3g}".replace("-", "−")

    return [
        {
            "workload": f"`{name}`",
            "learning rate": f"{entry['learning_rate']:g}",
            **{title: mean(entry["runs"], key) for key, title in FIGURES.items()},
        }
        for name, entries in found["workloads"].items()
        for entry in entries
    ]


def main() -> None:
    """Measures all workloads and writes the figures."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.motion",
        description="Measure what the evidence along the motion says.",
    )
    add = parser.add_argument
    add("--workloads", nargs="+", default=["digits_mlp"], help="what to train")
    add("--optimizer", default="robust_sgd", help="robust_sgd or robust_adam")
    add(
        "--factors",
        type=float,
        nargs="+",
        default=[0.1, 0.3, 1.0, 3.0, 10.0],
        help="multiples of the backbone's learning rate",
    )
    add("--seeds", type=int, default=3, help="seeds 0 to N-1")
    add("--epochs", type=int, default=8, help="epochs to train")
    add("--data-dir", type=pathlib.Path, help="folder of the data")
    add(
        "--out",
        type=pathlib.Path,
        default=pathlib.Path("benchmarks/results/motion.json"),
    )
    args = parser.parse_args()
    if min(args.seeds, args.epochs) < 1:
        parser.error("--seeds and --epochs must be at least 1")
    if not all(0 < factor < math.inf for factor in args.factors):
        parser.error("--factors must be finite and above 0")
    try:
        names = [workloads.workload(name).name for name in args.workloads]
        onlooker(args.optimizer, 1.0)
    except ValueError as error:
        parser.error(str(error))
    found = measure(
        names, args.optimizer, args.factors, args.seeds, args.epochs, args.data_dir
    )
    write_json(args.out, found)
    console = Console()
    console.print(tables.terminal(rows(found), "evidence along the motion"))
    console.print(f"Wrote {args.out}")


if __name__ == "__main__":
    main()
