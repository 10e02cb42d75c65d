"""Recipes: the command for each row of the paper's tables, and how long it may take.

They are not run here, but for the testbed: :func:`check` takes two steps of each at
true shapes, and writes down which have passed. Times are estimates for the paper's GPU:
from the paper where it tells how long an epoch took, elsewhere from the operations of a
step and the pace at which the paper's own runs went.
"""

import math
import pathlib
import subprocess
import sys
import time
from typing import Any, NamedTuple

import jax
from rich.console import Console

from benchmarks import paper, specs
from benchmarks.files import read_json, write_json
from benchmarks.models import parameter_count
from benchmarks.train.config import Config
from benchmarks.train.run import Run
from benchmarks.workloads import workload

ROOT = pathlib.Path(__file__).parents[2]
HARDWARE = "one V100S, 32 GB"
# The GPU's float32 operations a second, as its maker states them.
PEAK = 16.4e12
# The paper has at least five runs behind each number.
SEEDS = 5
# By the first letters of a workload's name.
TRAINING_EXAMPLES = {
    "cifar10_": 50_000,
    "cifar100_": 50_000,
    "tiny_imagenet_": 100_000,
    "reddit_": 153_431,
}
# Losses and gradients in a step: one, and of L-BFGS one more for each of its 20
# iterations if the line search takes its first point.
EVALUATIONS = {"lbfgs": 21}
# Of the dry run. On a CPU, XLA runs convolutions in loops too slowly for more.
LBFGS_BATCH = 2

_TITLES = {
    "ct_sgd_appendix": "CT-AGD",
    "ct_adam_appendix": "CT-AGD (Adam)",
    "sgd": "SGD",
    "adam": "Adam",
    "lbfgs": "L-BFGS",
}
TESTBED = "python -m ctagd_optax.testbed table"


class Recipe(NamedTuple):
    """How to make a row of the paper's tables.

    Attributes:
      row: what the paper calls it.
      workload: what is trained.
      optimizer: the arm.
    """

    row: str
    workload: str
    optimizer: str

    @property
    def command(self) -> str:
        """The whole of it: all seeds, with the workload's epochs and batch size."""
        return (
            f"python -m benchmarks compare --workload {self.workload} "
            f"--optimizers {self.optimizer} --seeds {SEEDS}"
        )

    def dry_run(self, batch_size: int | None = None) -> str:
        """Two steps of it at true shapes, on a generated set."""
        return (
            f"python -m benchmarks train --workload {self.workload} "
            f"--optimizer {self.optimizer} --dry-run"
        ) + (f" --batch-size {batch_size}" if batch_size else "")

    @property
    def key(self) -> str:
        """What it trains; rows that share it share their runs."""
        return f"{self.workload} {self.optimizer}"


def tables() -> dict[str, list[Recipe]]:
    """The recipes, by table of the paper; the testbed, which has its own command, not.

    Three of the paper's tables have the same rows and make one here.
    """
    images, graphs = [], []
    for name, numbers in paper.NUMBERS.items():
        title = workload(name).description.removeprefix("The paper's ")
        for arm in numbers.epochs_to_final:
            rows = graphs if numbers.train_accuracy else images
            rows.append(Recipe(f"{title}: {_TITLES[arm]}", name, arm))
    return {
        "Accuracy, epochs and time on images": images,
        "Ablations: clamp and noise": _ablations("clamp", "noise"),
        "Ablations: annealing, weighting and quantile": _ablations(
            "annealing", "weighting", "quantile"
        ),
        "GraphSAGE on Reddit": graphs,
    }


def _ablations(*ingredients: str) -> list[Recipe]:
    return [
        Recipe(line.setting, "cifar10_resnet20", line.optimizer)
        for line in paper.ABLATIONS
        if not line.ingredients or set(line.ingredients) & set(ingredients)
    ]


def distinct() -> list[Recipe]:
    """One recipe for each set of runs that rows share."""
    every = [recipe for rows in tables().values() for recipe in rows]
    return list({recipe.key: recipe for recipe in every}.values())


def sizes(name: str) -> dict[str, Any]:
    """What the time of a workload depends on, with the operations XLA counts.

    Args:
      name: the workload.

    Returns:
      Parameters, batch size, steps per epoch on the real set, epochs, and FLOPs of a
      step of SGD at true shapes; nothing is compiled or run for it.
    """
    config = Config(name, "sgd", pathlib.Path(), synthetic=True, devices=1)
    run = Run(config)
    lowered = jax.jit(run.functions.step).lower(
        run.like(), run.train_batch(0), run.constants
    )
    [examples] = [
        count for start, count in TRAINING_EXAMPLES.items() if name.startswith(start)
    ]
    return {
        "parameters": parameter_count(run.abstract.params),
        "batch_size": run.batch_size,
        "steps_per_epoch": math.ceil(examples / run.batch_size),
        "epochs": run.epochs,
        "flops_per_step": lowered.cost_analysis()["flops"],
    }


def paper_seconds_per_epoch(name: str, arm: str) -> float | None:
    """Seconds of an epoch on the paper's GPU: those to the cutoff by epochs to it."""
    numbers = paper.NUMBERS[name]
    if not {arm} <= numbers.seconds_to_cutoff.keys() & numbers.epochs_to_cutoff.keys():
        return None
    return numbers.seconds_to_cutoff[arm].mean / numbers.epochs_to_cutoff[arm].mean


def paces(found: dict[str, dict[str, Any]]) -> dict[str, float]:
    """FLOPs a second of the paper's SGD on its GPU, by workload where it tells.

    Args:
      found: :func:`sizes` by workload.
    """
    made = {}
    for name, size in found.items():
        seconds = paper_seconds_per_epoch(name, "sgd")
        if seconds is not None:
            made[name] = size["flops_per_step"] * size["steps_per_epoch"] / seconds
    return made


def estimate(recipe: Recipe, found: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """How long a recipe may take on the paper's GPU, all seeds together.

    Args:
      recipe: the recipe.
      found: :func:`sizes` by workload, of all of the paper's.

    Returns:
      Seconds per epoch, what they come from, and hours.
    """
    size, arm = found[recipe.workload], specs.kind(recipe.optimizer)
    # Another clamp takes no other time.
    timed = f"{arm}_appendix" if arm in ("ct_sgd", "ct_adam") else arm
    seconds, basis = paper_seconds_per_epoch(recipe.workload, timed), "paper"
    if seconds is None:
        flops = EVALUATIONS.get(arm, 1) * size["flops_per_step"]
        pace = paces(found).get(recipe.workload) or min(paces(found).values())
        seconds, basis = flops * size["steps_per_epoch"] / pace, "operations"
    return {
        "seconds_per_epoch": round(seconds, 2),
        "basis": basis,
        "hours": round(seconds * size["epochs"] * SEEDS / 3600, 2),
    }


def check(
    path: pathlib.Path,
    console: Console,
    *,
    only: str | None = None,
    batch_size: int | None = None,
) -> dict[str, Any]:
    """Runs two steps of every recipe that has not been checked, and writes it down.

    Args:
      path: the file, which is written after every dry run; what it has is kept.
      console: shows how far it is.
      only: a workload, where not all are to be checked.
      batch_size: of the dry runs; None is the workload's, and 2 for L-BFGS.

    Returns:
      What the file holds: sizes by workload, estimates and dry runs by
      :attr:`Recipe.key`.

    Raises:
      ChildProcessError: a dry run failed.
    """
    known = {"dry_runs": {}}
    if path.exists():
        known = read_json(path, {"dry_runs": {str: dict}}, "recipes")
    found = {name: sizes(name) for name in paper.NUMBERS}
    recipes = distinct()
    done = known["dry_runs"]
    data = {
        "hardware": HARDWARE,
        "seeds": SEEDS,
        "workloads": found,
        "flops_per_second": paces(found),
        "estimates": {recipe.key: estimate(recipe, found) for recipe in recipes},
        "dry_runs": done,
    }
    write_json(path, data)
    wanted = [r for r in recipes if only in (None, r.workload) and r.key not in done]
    for number, recipe in enumerate(wanted, 1):
        smaller = batch_size or (LBFGS_BATCH if recipe.optimizer == "lbfgs" else None)
        seconds = _run(recipe.dry_run(smaller))
        done[recipe.key] = {
            "batch_size": smaller or found[recipe.workload]["batch_size"],
            "seconds": round(seconds, 1),
        }
        data["dry_runs"] = {r.key: done[r.key] for r in recipes if r.key in done}
        write_json(path, data)
        console.print(
            f"{number}/{len(wanted)}: {recipe.key}, {seconds:.0f} s",
            highlight=False,
            soft_wrap=True,
        )
    return data


def _run(command: str) -> float:
    """Runs a command of ours in a process of its own; returns the seconds."""
    start = time.perf_counter()
    run = subprocess.run(
        [sys.executable, *command.split()[1:]],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if run.returncode:
        raise ChildProcessError(f"{command} failed:\n{run.stderr[-2000:]}")
    return time.perf_counter() - start
