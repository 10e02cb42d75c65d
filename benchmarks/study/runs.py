"""Many runs, several at once, stopped and continued; finished ones are not repeated."""

import concurrent.futures
import itertools
import multiprocessing
import os
import pathlib
import shutil
import signal
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import jax
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from benchmarks.files import read_json, write_json
from benchmarks.locks import holding
from benchmarks.specs import arm
from benchmarks.study.outcome import epochs_of, failed_step, read_rows
from benchmarks.train.config import Config
from benchmarks.train.folder import check_same_run, read_description
from benchmarks.train.loop import NonFiniteLossError, train

# Seconds in which a run is to save and stop.
_PATIENCE = 30.0


def run_folder(out: pathlib.Path, spec: str, seed: int) -> pathlib.Path:
    """Where a run of a comparison is kept."""
    return out / "runs" / arm(spec).name / str(seed)


def is_finished(config: Config) -> bool:
    """Whether a run has come to its end, good or bad.

    Raises:
      ValueError: the run in the folder is another one, has more epochs, or is damaged.
    """
    step, summary = failed_step(config), config.out / "summary.json"
    if step is None and not summary.exists():
        return False
    check_same_run(config)
    described = read_description(config.out)
    if step is None:
        done = read_json(summary, {"epochs": int}, "the end of a run")["epochs"]
    else:
        done = step // described["steps_per_epoch"] + 1
    epochs = epochs_of(config)
    if done > epochs:
        raise ValueError(
            f"epochs must be at least {done}, which the run in {config.out} has; got "
            f"{epochs}"
        )
    # A longer run that was killed leaves its own number in the description.
    if step is None and not done == described["epochs"] == epochs:
        return False
    read_rows(config)
    return True


def execute(config: Config) -> None:
    """Trains to the end, or until the loss is not finite, and says which."""
    with holding(config.out):
        try:
            train(config, resume=True)
        except NonFiniteLossError as error:
            failure = {"step": error.step, "tensors": error.tensors}
            write_json(config.out / "failure.json", failure)
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
        waiting, pending = iter(configs), {}
        try:
            # Not more at once than there are processes: what is handed over is run.
            for config in itertools.islice(waiting, jobs):
                pending[pool.submit(execute, config)] = config
            while pending:
                done, _ = concurrent.futures.wait(
                    pending, return_when=concurrent.futures.FIRST_COMPLETED
                )
                for future in done:
                    future.result()
                    for config in itertools.islice(waiting, 1):
                        pending[pool.submit(execute, config)] = config
                    yield pending.pop(future)
        except BaseException as error:
            _stop(pool)
            if isinstance(error, KeyboardInterrupt):
                text = "interrupted: the same command goes on with what is left"
                raise KeyboardInterrupt(text) from None
            raise


def _stop(pool: concurrent.futures.ProcessPoolExecutor) -> None:
    """Asks runs to save and stop, and waits for them."""
    pool.shutdown(wait=False, cancel_futures=True)
    processes = multiprocessing.active_children()
    for process in processes:
        process.terminate()
    for process in processes:
        process.join(_PATIENCE)
        process.kill()


def _start(numbers: Any, jobs: int, compiled: pathlib.Path) -> None:
    """Sets a process up: its share of the processors, and where programs are kept."""
    # Ctrl-C reaches all processes; what is to be done then the first one says.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    number = numbers.get()
    if hasattr(os, "sched_setaffinity"):
        ours = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, ours[number::jobs] or ours)
    if jax.config.jax_compilation_cache_dir is None:  # else the user's own is as good
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
