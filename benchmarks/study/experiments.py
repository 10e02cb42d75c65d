"""Many runs: every arm on every seed, side by side, stopped and continued.

A run that is finished is not repeated. Of a comparison, ``results.json`` has what the
runs came to and ``timings.json`` how long they took, so that the former is the same
however often the comparison was interrupted.
"""

import concurrent.futures
import json
import math
import multiprocessing
import os
import pathlib
import shutil
import threading
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import jax
from flax import nnx
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from benchmarks import optimizers
from benchmarks.analysis import curves
from benchmarks.files import write_json
from benchmarks.train.config import Config
from benchmarks.train.logs import read_metrics
from benchmarks.train.loop import NonFiniteLossError, check_same_run, train
from benchmarks.workloads import Workload, workload

_SERIES = {
    "accuracy": "{part}_accuracy",
    "train_loss": "train_loss",
    "refreshed_accuracy": "refreshed_accuracy",
    "gamma_min": "gamma_min",
    "gamma_max": "gamma_max",
    "gamma_at_min": "gamma_at_min",
    "observed": "observed",
}


class Entry(NamedTuple):
    """An arm of a comparison.

    Attributes:
      spec: the optimizer.
      role: why it is there: "backbone", "paper", "ours", "control", "tuned" or "peer".
    """

    spec: str
    role: str


STANDARD = (
    Entry("sgd", "backbone"),
    Entry("adam", "backbone"),
    Entry("robust_sgd", "ours"),
    Entry("robust_adam", "ours"),
    Entry("ct_sgd", "paper"),
    Entry("ct_adam", "paper"),
    Entry("ct_sgd_appendix", "paper"),
    Entry("ct_adam_appendix", "paper"),
    Entry("lbfgs", "paper"),
    Entry("ct_sgd_no_correction", "control"),
    Entry("schedule_control", "control"),
    Entry("sawtooth_control", "control"),
    Entry("adamw", "peer"),
    Entry("schedule_free", "peer"),
    Entry("prodigy", "peer"),
    Entry("muon", "peer"),
)


# What the ablations change of CT-AGD, one at a time: first the paper's, then ours.
_CHANGES = (
    "curvature_max=1000,curvature_min=0.001",
    "noise_std=0.1",  # the paper states variances: 0.01 and 0.1
    f"noise_std={math.sqrt(0.1)}",
    "annealing=none",
    "annealing=exponential",
    "weighting=uniform",
    "quantile=0.2",
    "quantile=0.5",
    "pairing=algorithm",
    "unobserved=skip",
    "correction_rate=0.05",
    "correction_rate=0.005",
    "eps=1e-5",
    "eps=1e-8",
)

# By method: the arms that have one thing changed.
ABLATIONS = {
    "ct_sgd": (
        "ct_sgd_appendix",
        "ct_sgd_no_correction",
        *(f"ct_sgd:{change}" for change in _CHANGES),
    ),
    "ct_sgd_appendix": (
        "ct_sgd",
        "ct_sgd_no_correction:curvature_max=100,curvature_min=0.01",
        *(f"ct_sgd_appendix:{change}" for change in _CHANGES),
    ),
    "robust_sgd": (
        "robust_sgd:target=1",
        "robust_sgd:target=3",
        "robust_sgd:confidence=0",
        "robust_sgd:confidence=2",
        "robust_sgd:pooling=tensor",
        "robust_sgd:multiplier_max=10",
        "robust_sgd:multiplier_max=40",
    ),
}


def ablation_arms(
    method: str = "ct_sgd", learning_rate: float | None = None
) -> tuple[Entry, ...]:
    """SGD, a method, and the method with one thing changed.

    Args:
      method: "ct_sgd", "ct_sgd_appendix" (the paper's own ablations), or "robust_sgd",
        which the sawtooth joins as its control.
      learning_rate: of all of them; None is the paper's.
    """
    if method not in ABLATIONS:
        known = ", ".join(ABLATIONS)
        raise ValueError(f"optimizer must be one of {known}; got {method!r}")
    arms = [Entry("sgd", "backbone")]
    if method == "robust_sgd":
        arms.append(Entry("sawtooth_control", "control"))
    arms.append(entry(method))
    arms += [Entry(spec, "control") for spec in ABLATIONS[method]]
    if learning_rate is None:
        return tuple(arms)
    return tuple(
        Entry(optimizers.at_rate(spec, learning_rate), role) for spec, role in arms
    )


def entry(spec: str) -> Entry:
    """An arm with the role it has by its name."""
    spec = optimizers.arm(spec).name
    for known in STANDARD:
        if known.spec == spec:
            return known
    kind = curves.kind(spec)
    if kind in ("sgd", "adam"):
        return Entry(spec, "tuned")  # a backbone at another learning rate
    if kind.startswith("robust_"):
        return Entry(spec, "ours")
    is_control = curves.is_curvature_tuned(spec) or kind.endswith("_control")
    return Entry(spec, "control" if is_control else "peer")


def standard_arms(work: Workload) -> tuple[Entry, ...]:
    """The arms of a comparison if none are given.

    L-BFGS iterates on a batch within a compiled loop, in which XLA's CPU backend runs
    convolutions far too slowly.
    """
    stand_in = work.stand_in()
    model = nnx.eval_shape(lambda: work.model(stand_in, rngs=nnx.Rngs(0)))
    convolves = any(isinstance(m, nnx.Conv) for _, m in nnx.iter_modules(model))
    return tuple(e for e in STANDARD if not (convolves and e.spec == "lbfgs"))


def run_folder(out: pathlib.Path, spec: str, seed: int) -> pathlib.Path:
    """Where a run of a comparison is kept."""
    return out / "runs" / optimizers.arm(spec).name / str(seed)


def is_finished(config: Config) -> bool:
    """Whether a run has come to its end, good or bad.

    Raises:
      ValueError: the run in the folder is another one, or has more epochs.
    """
    failure, summary = config.out / "failure.json", config.out / "summary.json"
    if failure.exists() or summary.exists():
        check_same_run(config)
    if failure.exists() or not summary.exists():
        return failure.exists()
    epochs = config.epochs or workload(config.workload).epochs
    done = json.loads(summary.read_text())["epochs"]
    if done > epochs:
        raise ValueError(
            f"epochs must be at least {done}, which the run in {config.out} has; got "
            f"{epochs}"
        )
    return done == epochs


def execute(config: Config) -> None:
    """Trains to the end, or until the loss is not finite, and says which."""
    try:
        train(config, resume=True)
    except NonFiniteLossError as error:
        write_json(
            config.out / "failure.json", {"step": error.step, "tensors": error.tensors}
        )
    shutil.rmtree(config.out / "checkpoints", ignore_errors=True)


def run_all(
    configs: Sequence[Config], jobs: int, compiled: pathlib.Path, console: Console
) -> None:
    """Executes the runs that are not finished, several at once.

    Args:
      configs: the runs.
      jobs: how many at once, each in a process with its share of the processors.
      compiled: folder for compiled programs, as the seeds of an arm share theirs.
      console: shows how far it is.
    """
    if jobs < 1:
        raise ValueError(f"jobs must be at least 1, got {jobs}")
    waiting = [config for config in configs if not is_finished(config)]
    done = len(configs) - len(waiting)
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        console=console,
        disable=not console.is_terminal,
    ) as progress:
        task = progress.add_task("runs", total=len(configs), completed=done)
        for config in _execute_each(waiting, jobs, compiled):
            done += 1
            name = f"{config.optimizer}, seed {config.seed}"
            progress.update(task, completed=done, description=name)
            if not console.is_terminal:
                console.print(
                    f"{done}/{len(configs)}: {name}", highlight=False, soft_wrap=True
                )


def _execute_each(
    configs: list[Config], jobs: int, compiled: pathlib.Path
) -> Iterator[Config]:
    context = multiprocessing.get_context("spawn")
    numbers = context.Queue()
    for number in range(jobs):
        numbers.put(number)
    with concurrent.futures.ProcessPoolExecutor(
        jobs, context, initializer=_start, initargs=(numbers, jobs, compiled)
    ) as pool:
        pending = {pool.submit(execute, config): config for config in configs}
        try:
            for future in concurrent.futures.as_completed(pending):
                future.result()
                yield pending[future]
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _start(numbers: Any, jobs: int, compiled: pathlib.Path) -> None:
    """Sets a process up: its share of the processors, and where programs are kept."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    number = numbers.get()
    if hasattr(os, "sched_setaffinity"):
        ours = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, ours[number::jobs] or ours)
    jax.config.update("jax_compilation_cache_dir", str(compiled.absolute()))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)


def _end_with_parent() -> None:
    """Ends this process when its parent is gone, killed perhaps.

    Left alone it would go on to write to folders that a second start writes to.
    """
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def collect(
    work: Workload, arms: Sequence[Entry], configs: dict[str, list[Config]]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Results and timings of finished runs, by arm."""
    results: dict[str, Any] = {}
    timings: dict[str, Any] = {}
    described: dict[str, Any] = {}
    for entry in arms:
        name = optimizers.arm(entry.spec).name
        runs = configs[name]
        described = json.loads((runs[0].out / "config.json").read_text())
        results[name] = {
            "role": entry.role,
            "options": described["optimizer"],
            "runs": [collect_outcome(config) for config in runs],
        }
        timings[name] = [_times(config) for config in runs]
    first = next(iter(configs.values()))
    return {
        "workload": work.name,
        "description": work.description,
        "part": first[0].part,
        "epochs": described["epochs"],
        "steps_per_epoch": described["steps_per_epoch"],
        "batch_size": described["batch_size"],
        "seeds": [config.seed for config in first],
        "arms": results,
    }, {"arms": timings}


def collect_outcome(config: Config) -> dict[str, Any]:
    """What a finished run came to, epoch by epoch."""
    rows = read_metrics(config.out / "metrics.jsonl")
    failure = config.out / "failure.json"
    step = json.loads(failure.read_text())["step"] if failure.exists() else None
    series = {}
    for name, key in _SERIES.items():
        values = [row.get(key.format(part=config.part)) for row in rows]
        series[name] = None if None in values else values
    return {"seed": config.seed, **series, "failed_step": step}


def _times(config: Config) -> dict[str, Any]:
    rows = read_metrics(config.out / "metrics.jsonl")
    return {
        "seed": config.seed,
        "seconds": [row["seconds"] for row in rows],
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
      **options: further options of :class:`benchmarks.Config`.

    Returns:
      What the two files hold.
    """
    work = workload(name)
    arms = standard_arms(work) if arms is None else arms
    if not arms or not seeds:
        raise ValueError("optimizers and seeds must name at least one each")
    # An arm that is there twice keeps its first role: a search may choose the default.
    arms = list({optimizers.arm(e.spec).name: e for e in reversed(arms)}.values())[::-1]
    configs = {
        optimizers.arm(entry.spec).name: [
            Config(
                workload=work.name,
                optimizer=optimizers.arm(entry.spec).name,
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
    run_all(order, jobs, out / "compiled", console)
    results, timings = collect(work, arms, configs)
    write_json(out / "results.json", results)
    write_json(out / "timings.json", timings)
    return results, timings
