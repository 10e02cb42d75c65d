"""A comparison: every arm on every seed.

``results.json`` has what the runs came to and ``timings.json`` how long they took, so
that the former is the same however often the comparison was interrupted.
"""

import pathlib
from collections.abc import Sequence
from typing import Any, NamedTuple

from flax import nnx
from rich.console import Console

from benchmarks.arms import STANDARD
from benchmarks.files import merged, read_json, rounded, write_json
from benchmarks.locks import holding
from benchmarks.specs import arm
from benchmarks.study.outcome import epochs_of, failed_step, read_rows
from benchmarks.study.runs import run_all, run_folder
from benchmarks.train.config import Config
from benchmarks.train.folder import read_description
from benchmarks.workloads import Workload, workload

_SERIES = {
    "accuracy": "{part}_accuracy",
    "train_loss": "train_loss",
    "gamma_min": "gamma_min",
    "gamma_max": "gamma_max",
    "gamma_at_min": "gamma_at_min",
    "observed": "observed",
}

# What later steps need of results.json.
_RESULTS = {
    "workload": str,
    "epochs": int,
    "seeds": [int],
    "arms": {
        str: {"role": str, "runs": [{"accuracy": [float], "failed_step": int | None}]}
    },
}


class Entry(NamedTuple):
    """An arm of a comparison.

    Attributes:
      spec: the optimizer.
      role: why it is there, see :class:`benchmarks.specs.Arm`.
    """

    spec: str
    role: str


def entry(spec: str) -> Entry:
    """An arm with the role it has by its name."""
    found = arm(spec)
    return Entry(found.name, found.role)


def standard_arms(work: Workload) -> tuple[Entry, ...]:
    """The arms of a comparison if none are given.

    L-BFGS iterates on a batch within a compiled loop, in which XLA's CPU backend runs
    convolutions far too slowly.
    """
    stand_in = work.stand_in()
    model = nnx.eval_shape(lambda: work.model(stand_in, rngs=nnx.Rngs(0)))
    convolves = any(isinstance(m, nnx.Conv) for _, m in nnx.iter_modules(model))
    return tuple(entry(s) for s in STANDARD if not (convolves and s == "lbfgs"))


def collect(
    work: Workload, arms: Sequence[Entry], configs: dict[str, list[Config]]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Results and timings of finished runs, by arm."""
    results: dict[str, Any] = {}
    timings: dict[str, Any] = {}
    described: dict[str, Any] = {}
    for entry in arms:
        name = arm(entry.spec).name
        runs = configs[name]
        described = read_description(runs[0].out)
        results[name] = {
            "role": entry.role,
            "options": described["optimizer"],
            "made_by": makers(runs),
            "runs": [collect_outcome(config) for config in runs],
        }
        timings[name] = [_times(config) for config in runs]
    first = next(iter(configs.values()))
    return {
        "workload": work.name,
        "description": work.description,
        "part": first[0].part,
        "epochs": epochs_of(first[0]),
        "steps_per_epoch": described["steps_per_epoch"],
        "batch_size": described["batch_size"],
        "seeds": [config.seed for config in first],
        "made_by": merged(result["made_by"] for result in results.values()),
        "arms": results,
    }, {"arms": timings}


def read_results(path: pathlib.Path) -> dict[str, Any]:
    """Reads a ``results.json``.

    Raises:
      ValueError: it is not one.
    """
    what = "a comparison, as the results.json of compare does"
    return read_json(path, _RESULTS, what)


def makers(configs: Sequence[Config]) -> dict[str, str | None]:
    """The versions and commits that trained some runs."""
    paths, shape = (c.out / "config.json" for c in configs), {str: str | None}
    described = (read_json(path, {"made_by": shape}, "a run") for path in paths)
    return merged(run["made_by"] for run in described)


def collect_outcome(config: Config) -> dict[str, Any]:
    """What a finished run came to, epoch by epoch."""
    rows = read_rows(config)
    series = {}
    for name, key in _SERIES.items():
        values = [row.get(key.format(part=config.part)) for row in rows]
        series[name] = None if None in values else rounded(values)
    return {"seed": config.seed, **series, "failed_step": failed_step(config)}


def _times(config: Config) -> dict[str, Any]:
    rows = read_rows(config)
    return {
        "seed": config.seed,
        "seconds": rounded([row["seconds"] for row in rows]),
        "compile_seconds": rows[-1]["compile_seconds"] if rows else None,
    }


def compare(
    name: str,
    arms: Sequence[Entry] | None,
    seeds: Sequence[int],
    out: pathlib.Path,
    *,
    jobs: int = 1,
    console: Console,
    **options: Any,
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Trains every arm on every seed, and writes ``results.json`` and ``timings.json``.

    Args:
      name: the workload.
      arms: the arms; None is :func:`standard_arms`.
      seeds: the seeds.
      out: folder for the runs and the files.
      jobs: runs at once.
      console: shows how far it is.
      **options: further options of :class:`benchmarks.train.config.Config`.

    Returns:
      What the two files hold.

    Raises:
      BlockingIOError: another process writes to the folder.
    """
    work = workload(name)
    arms = standard_arms(work) if arms is None else arms
    if not arms or not seeds:
        raise ValueError("optimizers and seeds must name at least one each")
    # An arm that is there twice keeps its first role: a search may choose the default.
    arms = list({arm(e.spec).name: e for e in reversed(arms)}.values())[::-1]
    configs = {
        arm(entry.spec).name: [
            Config(
                workload=work.name,
                optimizer=arm(entry.spec).name,
                out=run_folder(out, entry.spec, seed),
                seed=seed,
                keep=1,
                **options,
            )
            for seed in seeds
        ]
        for entry in arms
    }
    # By seed, so that all arms have a run early on.
    order = [runs[i] for i in range(len(seeds)) for runs in configs.values()]
    with holding(out):
        run_all(order, jobs, out / "compiled", console)
        results, timings = collect(work, arms, configs)
        write_json(out / "results.json", results)
        write_json(out / "timings.json", timings)
    return results, timings
