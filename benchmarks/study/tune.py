"""Searches the options of an arm, on data that is not the test set.

An arm's search space is in its row of :mod:`benchmarks.arms`. Every arm gets the same
number of trials, spread over its space by a fixed rule, and the one with the best
validation accuracy is chosen. Nothing here looks at the test set.
"""

import math
import pathlib
from typing import Any

from rich.console import Console

from benchmarks.files import read_json, write_json
from benchmarks.locks import holding
from benchmarks.specs import arm, with_options
from benchmarks.study.compare import collect_outcome, makers
from benchmarks.study.runs import run_all, run_folder
from benchmarks.train.config import Config
from benchmarks.workloads import workload

# No comparison has it.
SEED = 10_000
_PRIMES = (2, 3, 5, 7)


def trials(spec: str, count: int) -> list[str]:
    """The optimizers to try: ``count`` points spread over the search space.

    The first option goes through its range in even steps, the others follow van der
    Corput sequences (a Hammersley set). Numbers are rounded to two digits.

    Args:
      spec: the arm; options that it gives are kept, and must not be searched ones.
      count: how many.

    Returns:
      Canonical names.

    Examples:
      >>> from benchmarks.study.tune import trials
      >>> trials("sgd", 3)
      ['sgd@0.0032', 'sgd@0.032', 'sgd@0.32']
    """
    if count < 1:
        raise ValueError(f"trials must be at least 1, got {count}")
    space = arm(spec).search
    names = []
    for n in range(count):
        point = {}
        for i, (key, (low, high)) in enumerate(space.items()):
            share = (n + 0.5) / count if i == 0 else _van_der_corput(n, _PRIMES[i - 1])
            place = math.log(low) + share * (math.log(high) - math.log(low))
            point[key] = float(f"{math.exp(place):.2g}")
        names.append(with_options(spec, **point))
    return list(dict.fromkeys(names))


def _van_der_corput(n: int, base: int) -> float:
    """The digits of n + 1 in a base, mirrored behind the point."""
    n, share, digit = n + 1, 0.0, 1.0
    while n:
        digit /= base
        n, rest = divmod(n, base)
        share += rest * digit
    return share


def tune(
    name: str,
    spec: str,
    count: int,
    out: pathlib.Path,
    *,
    jobs: int = 1,
    console: Console,
    **options: Any,
) -> dict[str, Any]:
    """Tries an arm's search space, and writes ``out/tuned/ARM.json``.

    Args:
      name: the workload.
      spec: the arm.
      count: trials.
      out: folder for the runs and the file.
      jobs: runs at once.
      console: shows how far it is.
      **options: further options of :class:`benchmarks.train.config.Config`.

    Returns:
      What the file holds: the chosen optimizer, how long the trials were, and every
      trial with its best validation accuracy, 0 if its loss was not finite.
    """
    work = workload(name)
    name_of_arm = arm(spec).name
    configs = [
        Config(
            workload=work.name,
            optimizer=trial,
            out=run_folder(out / "tuning", trial, SEED),
            seed=SEED,
            part="validation",
            keep=1,
            **options,
        )
        for trial in trials(spec, count)
    ]
    with holding(out):
        run_all(configs, jobs, out / "compiled", console)
        scores = {}
        for config in configs:
            outcome = collect_outcome(config)
            failed = outcome["failed_step"] is not None
            scores[config.optimizer] = 0.0 if failed else max(outcome["accuracy"])
        result = {
            "workload": work.name,
            "arm": name_of_arm,
            "epochs": options.get("epochs") or work.epochs,
            "chosen": max(scores, key=lambda trial: scores[trial]),
            "trials": scores,
            "made_by": makers(configs),
        }
        write_json(out / "tuned" / f"{name_of_arm}.json", result)
    return result


def read_tuned(folder: pathlib.Path, name: str) -> list[str]:
    """The optimizers that searches in a folder have chosen for a workload, by arm."""
    files = sorted((folder / "tuned").glob("*.json"))
    if not files:
        raise FileNotFoundError(
            f"{folder / 'tuned'} has no results of tune; run python -m benchmarks tune "
            "first"
        )
    shape = {"workload": str, "chosen": str}
    searches = [read_json(path, shape, "a search of tune") for path in files]
    for path, search in zip(files, searches, strict=True):
        if search["workload"] != name:
            raise ValueError(
                f"tuned must be a folder of searches on {name}, {path} is of "
                f"{search['workload']}"
            )
    return [search["chosen"] for search in searches]
