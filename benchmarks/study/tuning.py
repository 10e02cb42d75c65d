"""Searches the options of an arm, on data that is not the test set.

An arm's search space is a file in ``search_spaces``. Every arm gets the same number of
trials, spread over its space by a fixed rule, and the one with the best validation
accuracy is chosen. Nothing here looks at the test set.
"""

import json
import math
import pathlib
from typing import Any

from rich.console import Console

from benchmarks import optimizers
from benchmarks.files import write_json
from benchmarks.study.experiments import collect_outcome, run_all, run_folder
from benchmarks.train.config import Config
from benchmarks.workloads import workload

SPACES = pathlib.Path(__file__).parents[1] / "search_spaces"
# No comparison has it.
SEED = 10_000
_PRIMES = (2, 3, 5, 7)


def search_space(name: str) -> dict[str, dict[str, Any]]:
    """The options that are searched for an arm, with their ranges."""
    # Arms that differ by other defaults alone share a space.
    path = SPACES / f"{name.removesuffix('_appendix')}.json"
    if not path.exists():
        known = ", ".join(sorted(p.stem for p in SPACES.glob("*.json")))
        raise ValueError(f"no search space for {name!r}; there are {known}")
    return json.loads(path.read_text())


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
      >>> from benchmarks.study.tuning import trials
      >>> trials("sgd", 3)
      ['sgd@0.0032', 'sgd@0.032', 'sgd@0.32']
    """
    if count < 1:
        raise ValueError(f"trials must be at least 1, got {count}")
    base, _, given = spec.partition(":")
    space = search_space(base.partition("@")[0].partition("+")[0])
    _check_free(spec, space)
    names = []
    for n in range(count):
        options = [given] if given else []
        for i, (key, limits) in enumerate(space.items()):
            share = (n + 0.5) / count if i == 0 else _van_der_corput(n, _PRIMES[i - 1])
            options.append(f"{key}={_within(limits, share):.2g}")
        names.append(optimizers.arm(f"{base}:{','.join(options)}").name)
    return names


def _check_free(spec: str, space: dict[str, dict[str, Any]]) -> None:
    """Raises ValueError if the arm sets an option that is searched."""
    base, _, given = spec.partition(":")
    keys = [pair.partition("=")[0].strip() for pair in given.split(",")]
    if "@" in base:
        keys.append("learning_rate")
    searched = [key for key in space if key in keys]
    if searched:
        raise ValueError(
            f"optimizer {spec!r} must not set {', '.join(searched)}, which tune "
            "searches"
        )


def _within(limits: dict[str, Any], share: float) -> float:
    low, high = limits["from"], limits["to"]
    if limits["scale"] == "log":
        return math.exp(math.log(low) + share * (math.log(high) - math.log(low)))
    return low + share * (high - low)


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
      **options: further options of :class:`benchmarks.Config`.

    Returns:
      What the file holds: the chosen optimizer, how long the trials were, and every
      trial with its best validation accuracy, 0 if its loss was not finite.
    """
    work = workload(name)
    arm = optimizers.arm(spec).name
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
    run_all(configs, jobs, out / "compiled", console)
    scores = {}
    for config in configs:
        outcome = collect_outcome(config)
        failed = outcome["failed_step"] is not None
        scores[config.optimizer] = 0.0 if failed else max(outcome["accuracy"])
    result = {
        "workload": work.name,
        "arm": arm,
        "epochs": options.get("epochs") or work.epochs,
        "chosen": max(scores, key=lambda trial: scores[trial]),
        "trials": scores,
    }
    write_json(out / "tuned" / f"{arm}.json", result)
    return result


def read_tuned(folder: pathlib.Path, name: str) -> list[str]:
    """The optimizers that searches in a folder have chosen for a workload, by arm."""
    files = sorted((folder / "tuned").glob("*.json"))
    if not files:
        raise FileNotFoundError(
            f"{folder / 'tuned'} has no results of tune; run python -m benchmarks tune "
            "first"
        )
    searches = [json.loads(path.read_text()) for path in files]
    for path, search in zip(files, searches, strict=True):
        if search["workload"] != name:
            raise ValueError(
                f"tuned must be a folder of searches on {name}, {path} is of "
                f"{search['workload']}"
            )
    return [search["chosen"] for search in searches]
