"""Trains a workload with an optimizer, on one device or many, and can be continued.

One jitted step donates the whole training state. Everything a run depends on is in that
state or a pure function of the step: a run that was stopped at any moment goes on from
its last checkpoint as if nothing had happened.
"""

import collections
import contextlib
import dataclasses
import importlib.metadata
import math
import pathlib
import platform
import time
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils

from benchmarks.data.loader import Loader
from benchmarks.files import made_by, write_json
from benchmarks.models import parameter_count
from benchmarks.train.checkpoints import Checkpoints
from benchmarks.train.config import Config
from benchmarks.train.folder import check_folder, owning, write_description
from benchmarks.train.logs import (
    Metrics,
    check_logs,
    check_rows,
    open_logs,
    read_metrics,
)
from benchmarks.train.progress import Reporter
from benchmarks.train.run import Run, multiplier_figures
from benchmarks.train.step import TrainState
from benchmarks.train.stopping import Interrupted, stop_requests

# Steps that may be under way before the host looks at a loss.
_IN_FLIGHT = 4


_VERSIONS_OF = (
    "ctagd-optax",
    "jax",
    "jaxlib",
    "optax",
    "flax",
    "orbax-checkpoint",
    "grain",
    "numpy",
)


class NonFiniteLossError(RuntimeError):
    """The loss, or a weight, is not finite any more.

    Attributes:
      step: the step at which it happened, from 0.
      tensors: the weights that are not finite after it.
      checkpoint: the last checkpoint whose weights had a finite loss.
    """

    def __init__(self, step: int, tensors: list[str], checkpoint: pathlib.Path | None):
        self.step = step
        self.tensors = tensors
        self.checkpoint = checkpoint
        super().__init__(
            f"the loss or the weights of step {step} are not finite; weights that are "
            f"not: {', '.join(tensors) or 'none'}; last good checkpoint: "
            f"{checkpoint or 'none'}"
        )


def train(
    config: Config,
    *,
    resume: bool = False,
    make_reporter: Callable[[int, int], Reporter] = lambda *_: Reporter(),
) -> dict[str, Any]:
    """Trains to the end, and returns the summary.

    The folder ``config.out`` gets ``config.json``, ``metrics.jsonl`` (a line an epoch),
    ``checkpoints/`` and, at the end, ``summary.json``.

    Args:
      config: the run.
      resume: goes on with a run that was stopped; starts one where there is none.
      make_reporter: makes what tells a person how it goes, from the steps in an epoch
        and in the whole run.

    Returns:
      The summary, as written.

    Raises:
      BlockingIOError: another process trains in the folder.
      FileExistsError: the folder holds a run, and ``resume`` is False.
      NonFiniteLossError: the loss is not finite any more.
      Interrupted: by Ctrl-C or SIGTERM, after a checkpoint.
    """
    check_logs(config.log)
    with contextlib.ExitStack() as stack:
        stack.enter_context(owning(config.out))
        check_folder(config, resume)
        if jax.process_count() > 1:  # nobody writes before all have looked
            multihost_utils.sync_global_devices("folder")
        run = Run(config)
        checkpoints = Checkpoints(config.out / "checkpoints", config.keep)
        stack.callback(checkpoints.close)
        first = jax.process_index() == 0
        report = make_reporter(run.steps_per_epoch, run.steps) if first else Reporter()
        stack.callback(report.close)
        saved = checkpoints.newest(report.say)
        if saved is not None and run.steps < saved:
            raise ValueError(
                f"epochs and steps must not end before step {saved}, which the run in "
                f"{config.out} has reached; got {run.steps} steps"
            )
        write_description(config.out, describe(run), resume)
        stopping = stack.enter_context(stop_requests())
        return _train(run, checkpoints, saved, report, stopping, stack)


def _train(
    run: Run,
    checkpoints: Checkpoints,
    saved: int | None,
    report: Reporter,
    stopping: Callable[[int], bool],
    stack: contextlib.ExitStack,
) -> dict[str, Any]:
    config, steps, total = run.config, run.steps_per_epoch, run.steps
    every = config.checkpoint_every or steps
    notes = {"seconds": 0.0, "compile_seconds": 0.0, "wait_seconds": 0.0}
    path = config.out / "metrics.jsonl"
    if saved is None:
        state = run.init()
        if path.exists():
            report.say(f"{config.out} has no checkpoint: starting at step 0")
    else:
        state, notes = checkpoints.restore(saved, run.like())
        report.say(f"going on from step {saved}: {checkpoints.path(saved)}")
    first = int(state.step)
    rows, missing = _rows_until(path, first, steps)
    check_rows(path, rows, config.part)
    writes = jax.process_index() == 0
    if writes and first < total:  # killed on the way, it has not ended
        (config.out / "summary.json").unlink(missing_ok=True)
    logs = open_logs(config.log, config.out, rows, describe(run)) if writes else []
    metrics = stack.enter_context(
        contextlib.closing(Metrics(path, rows, logs, writes=writes))
    )
    if first < total:
        report.start(first)
        notes["compile_seconds"] += run.compile(state)
    if missing or (first == total and first % steps):
        metrics.write({**run.measure(state), **_spent(notes)})

    losses: collections.deque[jax.Array] = collections.deque()
    with Loader(run.train_batch, range(first, total)) as batches:
        clock = _Clock(first, batches)
        interval = _Interval(report.interval)
        for n, batch in enumerate(batches, first + 1):
            state, loss = run.step(state, batch)
            losses.append(loss)
            if len(losses) > _IN_FLIGHT and not math.isfinite(losses.popleft()):
                _check(run, state, checkpoints)
            stop = stopping(n)
            measures = n % steps == 0 or n == total
            if not measures and interval.is_over():
                rate = clock.steps_per_second(n) * run.batch_size
                report.step(n, _running(state, n, steps, rate))
            if not (measures or stop or n % every == 0):
                continue

            _check(run, state, checkpoints)  # waits for the steps under way
            losses.clear()
            rate = clock.steps_per_second(n) * run.batch_size
            clock.stop(notes)
            if n % steps == 0:
                state = run.refreshed(state)
            if measures:
                row = {
                    **run.measure(state),
                    **_spent(notes),
                    "examples_per_second": rate,
                }
                metrics.write(row)
                report.epoch(row)
                interval.restart()
            checkpoints.save(n, state, dict(notes))
            if stop and n < total:
                checkpoints.wait()
                raise Interrupted(
                    f"stopped at step {n} and saved in {checkpoints.path(n)}; "
                    "--resume goes on"
                )
            clock = _Clock(n, batches)
    checkpoints.wait()
    summary = summarize(run, metrics.rows)
    if jax.process_index() == 0:
        write_json(config.out / "summary.json", summary)
    return summary


def _rows_until(
    path: pathlib.Path, step: int, steps_per_epoch: int
) -> tuple[list[dict[str, Any]], bool]:
    """The rows of whole epochs up to a step, and whether the step's own is missing.

    Rows of steps that come again, or of an epoch that goes on, are left out.
    """
    ends = range(steps_per_epoch, step + 1, steps_per_epoch)
    rows = {row["step"]: row for row in read_metrics(path, step) if row["step"] in ends}
    for end in ends:
        # A row is written before its checkpoint, but the system may lose it.
        if end not in rows and end != step:
            raise ValueError(
                f"{path} lacks the row of step {end}: restore the file, or remove "
                f"{path.parent / 'checkpoints'} to start at step 0 again"
            )
    return list(rows.values()), step in ends and step not in rows


def _spent(notes: dict[str, float]) -> dict[str, float]:
    """Times for the metrics."""
    return {
        "seconds": notes["seconds"],
        "compile_seconds": notes["compile_seconds"],
        "input_wait": notes["wait_seconds"] / notes["seconds"],
    }


class _Clock:
    """Times a stretch of steps."""

    def __init__(self, step: int, batches: Loader):
        self._step = step
        self._batches = batches
        self._waited = batches.waited
        self._start = time.perf_counter()

    def steps_per_second(self, step: int) -> float:
        return (step - self._step) / (time.perf_counter() - self._start)

    def stop(self, notes: dict[str, float]) -> None:
        """Adds the time to the run's."""
        notes["seconds"] += time.perf_counter() - self._start
        notes["wait_seconds"] += self._batches.waited - self._waited


class _Interval:
    """Tells when to report: now and then, as it waits for the steps under way."""

    def __init__(self, seconds: float):
        self._seconds = seconds
        self.restart()

    def restart(self) -> None:
        self._start = time.perf_counter()

    def is_over(self) -> bool:
        """Whether it is over; if so, the next one starts."""
        over = time.perf_counter() - self._start >= self._seconds
        if over:
            self.restart()
        return over


def _check(run: Run, state: TrainState, checkpoints: Checkpoints) -> None:
    """Stops a run whose loss is not finite."""
    step = int(state.failed_step)
    if step < 0:
        return
    checkpoints.wait()
    failed = np.asarray(state.failed)
    # A checkpoint is known to be good once a later step has had a finite loss.
    good = [saved for saved in checkpoints.steps() if saved < step]
    raise NonFiniteLossError(
        step,
        [name for name, bad in zip(run.tensors(), failed, strict=True) if bad],
        checkpoints.path(max(good)) if good else None,
    )


def _running(
    state: TrainState, step: int, steps_per_epoch: int, rate: float
) -> dict[str, Any]:
    """Figures within an epoch."""
    done = (step - 1) % steps_per_epoch + 1
    return {
        "train_loss": float(state.loss) / done,
        "train_accuracy": float(state.accuracy) / done,
        "examples_per_second": rate,
        **multiplier_figures(state),
    }


def summarize(run: Run, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """What came out of a run."""
    name = f"{run.config.part}_accuracy"
    scores = [row[name] for row in rows]
    reached = [row["epoch"] for row in rows if row[name] >= run.work.target]
    last = rows[-1]
    return {
        "workload": run.work.name,
        "optimizer": run.arm.name,
        "seed": run.config.seed,
        "epochs": last["epoch"],
        "steps": last["step"],
        "parameters": parameter_count(run.abstract.params),
        f"best_{name}": max(scores),
        f"last_{name}": scores[-1],
        "last_train_loss": last["train_loss"],
        "target": run.work.target,
        "epochs_to_target": min(reached, default=None),
        "seconds": last["seconds"],
        "compile_seconds": last["compile_seconds"],
        "input_wait": last["input_wait"],
    }


def describe(run: Run) -> dict[str, Any]:
    """All that decides what a run does: options, sizes, versions and devices."""
    config = dataclasses.asdict(run.config)
    device = run.mesh.devices.flat[0]
    return {
        "config": {
            name: str(value) if isinstance(value, pathlib.Path) else value
            for name, value in config.items()
        },
        "workload": run.work.description,
        "optimizer": {"name": run.arm.name, **run.arm.options},
        "batch_size": run.batch_size,
        "epochs": run.epochs,
        "steps_per_epoch": run.steps_per_epoch,
        "refresh_batch_stats": run.refresh_batches,
        "parameters": parameter_count(run.abstract.params),
        "made_by": made_by(),
        "versions": {
            "python": platform.python_version(),
            **{name: importlib.metadata.version(name) for name in _VERSIONS_OF},
        },
        "devices": {
            "count": run.mesh.devices.size,
            "kind": device.device_kind,
            "platform": device.platform,
            "processes": jax.process_count(),
        },
    }
