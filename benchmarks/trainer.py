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
import os
import pathlib
import platform
import signal
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from jax.experimental import multihost_utils

import ctagd_optax
from benchmarks import devices
from benchmarks.checkpoints import Checkpoints
from benchmarks.data import Pipeline, Prefetch, prefetch
from benchmarks.files import read_json, write_json
from benchmarks.logs import Metrics, Reporter, check_tensorboard, read_metrics
from benchmarks.models import parameter_count
from benchmarks.optimizers import Arm, arm
from benchmarks.workloads import Batch, Workload, workload
from ctagd_optax.testbed.files import check_writable

# Steps that may be under way before the host looks at a loss.
_IN_FLIGHT = 4
_VERSIONS_OF = (
    "ctagd-optax",
    "jax",
    "jaxlib",
    "optax",
    "flax",
    "orbax-checkpoint",
    "numpy",
)


@dataclasses.dataclass(frozen=True)
class Config:
    """A run.

    Attributes:
      workload: its name, see ``benchmarks.workloads``.
      optimizer: its name and options, see ``benchmarks.optimizers``.
      out: folder of the run.
      seed: of weights, order and augmentation.
      epochs: epochs to train; None is the workload's number.
      steps: stops after so many steps, within an epoch too; None is at its end.
      batch_size: examples in a batch; None is the workload's number.
      data_dir: folder of the data; None is the environment's.
      download: whether a missing set may be fetched.
      synthetic: trains on a generated set of the workload's shapes.
      part: what to evaluate on: "test", or "validation", which is then set aside from
        the training data.
      dtype: dtype of the network's computation: "float32" or "bfloat16".
      accumulate: parts that a batch is cut into, whose gradients are averaged.
      refresh_batch_stats: batches from which BatchNorm statistics are taken anew for a
        second evaluation; 0 makes none.
      checkpoint_every: steps between checkpoints; None is an epoch. There is one at the
        end of every epoch, too.
      keep: checkpoints to keep.
      devices: devices to use; None is all.
      shard: also spreads parameters and optimizer state over the devices.
      tensorboard: also writes TensorBoard's files.
    """

    workload: str
    optimizer: str
    out: pathlib.Path
    seed: int = 0
    epochs: int | None = None
    steps: int | None = None
    batch_size: int | None = None
    data_dir: pathlib.Path | None = None
    download: bool = True
    synthetic: bool = False
    part: str = "test"
    dtype: str = "float32"
    accumulate: int = 1
    refresh_batch_stats: int = 0
    checkpoint_every: int | None = None
    keep: int = 2
    devices: int | None = None
    shard: bool = False
    tensorboard: bool = False

    def __post_init__(self) -> None:
        for name in (
            "epochs",
            "steps",
            "batch_size",
            "checkpoint_every",
            "accumulate",
            "keep",
        ):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} must be at least 1, got {value}")
        for name in ("seed", "refresh_batch_stats"):
            if getattr(self, name) < 0:
                raise ValueError(
                    f"{name} must be at least 0, got {getattr(self, name)}"
                )
        if self.seed >= 1 << 31:
            raise ValueError(f"seed must be below 2**31, got {self.seed}")
        for name, known in (
            ("part", ("test", "validation")),
            ("dtype", ("float32", "bfloat16")),
        ):
            if getattr(self, name) not in known:
                raise ValueError(
                    f"{name} must be one of {', '.join(known)}; got "
                    f"{getattr(self, name)!r}"
                )
        if self.synthetic and self.part == "validation":
            raise ValueError("part must be test where the set is synthetic")


# What may differ between a run and its continuation.
_FREE = (
    "out",
    "data_dir",
    "download",
    "epochs",
    "steps",
    "checkpoint_every",
    "keep",
    "devices",
    "shard",
    "tensorboard",
)


class TrainState(NamedTuple):
    """All that a run needs to go on.

    Attributes:
      step: steps taken; the position in the data, too.
      params: the weights.
      batch_stats: BatchNorm's running statistics.
      streams: random streams of dropout.
      opt_state: the optimizer's state.
      loss: sum of the epoch's losses so far.
      accuracy: sum of the epoch's training accuracies so far.
      failed_step: the first step whose loss or new weights were not finite; -1 if none
        was.
      failed: which tensors were not finite after that step.
    """

    step: jax.Array
    params: nnx.State
    batch_stats: nnx.State
    streams: nnx.State
    opt_state: optax.OptState
    loss: jax.Array
    accuracy: jax.Array
    failed_step: jax.Array
    failed: jax.Array


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


class Interrupted(KeyboardInterrupt):
    """The run was asked to stop, and has been saved."""


class Functions(NamedTuple):
    """The pure functions of a run; all but ``init`` are to be compiled.

    Attributes:
      init: a training state from a seed.
      step: state, batch, constants → state and the loss.
      evaluate: state, statistics, batch, constants → sums of loss, accuracy and weight.
      statistics: state, batch, constants → BatchNorm statistics of the batch.
    """

    init: Callable[[int], TrainState]
    step: Callable[[TrainState, Batch, Batch], tuple[TrainState, jax.Array]]
    evaluate: Callable[[TrainState, nnx.State, Batch, Batch], jax.Array]
    statistics: Callable[[TrainState, Batch, Batch], nnx.State]


def make_functions(
    work: Workload,
    optimizer: Arm,
    make_model: Callable[[nnx.Rngs], nnx.Module],
    steps_per_epoch: int,
    accumulate: int = 1,
    unroll: bool = False,
    spread: bool = False,
) -> Functions:
    """Makes the functions of a run.

    Args:
      work: the workload, for its loss and metric.
      optimizer: the arm.
      make_model: makes the network.
      steps_per_epoch: optimizer steps in an epoch.
      accumulate: parts of a batch whose gradients are averaged.
      unroll: writes those parts out instead of looping, as XLA's CPU backend runs
        convolutions in loops slowly.
      spread: draws weights so that each device can make its part.

    Returns:
      The :class:`Functions`.
    """
    opt = optimizer.make(steps_per_epoch)
    split = (nnx.Param, nnx.BatchStat, ...)
    abstract = nnx.eval_shape(lambda: make_model(nnx.Rngs(0)))
    abstract.train()
    graph, *_ = nnx.split(abstract, *split)
    abstract.eval()
    eval_graph, *_ = nnx.split(abstract, *split)
    abstract.train()
    for _, module in nnx.iter_modules(abstract):
        if isinstance(module, nnx.BatchNorm):
            module.momentum = 0.0  # the new statistics are then the batch's own
    statistics_graph, *_ = nnx.split(abstract, *split)

    def init(seed: int) -> TrainState:
        # Only threefry draws each device's part there, and the same numbers however
        # they are spread; but to compile it takes a CPU most of the set-up time.
        weights = "threefry2x32" if spread else "rbg"
        rngs = nnx.Rngs(
            params=jax.random.key(seed, impl=weights), dropout=jax.random.key(seed)
        )
        _, params, batch_stats, streams = nnx.split(make_model(rngs), *split)
        return TrainState(
            step=jnp.zeros((), jnp.int32),
            params=params,
            batch_stats=batch_stats,
            streams=streams,
            opt_state=opt.init(params),
            loss=jnp.zeros((), jnp.float32),
            accuracy=jnp.zeros((), jnp.float32),
            failed_step=jnp.full((), -1, jnp.int32),
            failed=jnp.zeros((len(jax.tree.leaves(params)),), jnp.bool_),
        )

    def loss(params, batch_stats, streams, batch, constants):
        model = nnx.merge(graph, params, batch_stats, streams, copy=True)
        figures = work.figures(model, batch, constants)
        _, _, batch_stats, streams = nnx.split(model, *split)
        return figures.loss.mean(), (figures.accuracy.mean(), batch_stats, streams)

    def gradients(params, batch_stats, streams, batch, constants):
        """Loss, accuracy and gradients of a batch, and what else has changed."""
        if accumulate == 1:
            (value, (accuracy, *rest)), grads = jax.value_and_grad(loss, has_aux=True)(
                params, batch_stats, streams, batch, constants
            )
            return (value, accuracy, grads), rest
        # Every part takes every n-th example, so that each device keeps its rows.
        parts = jax.tree.map(
            lambda x: x.reshape(-1, accumulate, *x.shape[1:]).swapaxes(0, 1), batch
        )

        def add(carry, part):
            total, rest = carry
            (value, (accuracy, *rest)), grads = jax.value_and_grad(loss, has_aux=True)(
                params, *rest, part, constants
            )
            share = jax.tree.map(lambda x: x / accumulate, (value, accuracy, grads))
            return (optax.tree.add(total, share), rest), None

        nothing = jnp.zeros(()), jnp.zeros(()), optax.tree.zeros_like(params)
        (total, rest), _ = jax.lax.scan(
            add,
            (nothing, [batch_stats, streams]),
            parts,
            unroll=accumulate if unroll else 1,
        )
        return total, rest

    def step(state: TrainState, batch: Batch, constants: Batch):
        inputs = state.batch_stats, state.streams, batch, constants

        def value_fn(params):
            return loss(params, *inputs)[0]

        (value, accuracy, grads), (batch_stats, streams) = gradients(
            state.params, *inputs
        )
        updates, opt_state = opt.update(
            grads,
            state.opt_state,
            state.params,
            value=value,
            grad=grads,
            value_fn=value_fn,
            obj_fn=value_fn,
        )
        params = optax.apply_updates(state.params, updates)
        # NaN passes through the maximum, so one number a tensor tells.
        bad = ~jnp.isfinite(
            jnp.stack([jnp.max(jnp.abs(p)) for p in jax.tree.leaves(params)])
        )
        fails = (state.failed_step < 0) & (~jnp.isfinite(value) | bad.any())
        start = state.step % steps_per_epoch == 0
        new = TrainState(
            step=state.step + 1,
            params=params,
            batch_stats=batch_stats,
            streams=streams,
            opt_state=opt_state,
            loss=jnp.where(start, 0, state.loss) + value,
            accuracy=jnp.where(start, 0, state.accuracy) + accuracy,
            failed_step=jnp.where(fails, state.step, state.failed_step),
            failed=jnp.where(fails, bad, state.failed),
        )
        return new, value

    def evaluate(state, batch_stats, batch, constants):
        params = optimizer.eval_params(state.opt_state, state.params)
        model = nnx.merge(eval_graph, params, batch_stats, state.streams, copy=True)
        figures = work.figures(model, batch, constants)
        weight = batch["weight"]
        return jnp.stack(
            [jnp.sum(weight * x) for x in (figures.loss, figures.accuracy, 1.0)]
        )

    def statistics(state, batch, constants):
        params = optimizer.eval_params(state.opt_state, state.params)
        model = nnx.merge(
            statistics_graph, params, state.batch_stats, state.streams, copy=True
        )
        work.figures(model, batch, constants)
        return nnx.state(model, nnx.BatchStat)

    return Functions(init, step, evaluate, statistics)


class Run:
    """A run in its place: data, devices, compiled functions.

    Args:
      config: the run.
    """

    def __init__(self, config: Config):
        self.config = config
        self.work = workload(config.workload)
        self.arm = arm(config.optimizer)
        if self.arm.calls_loss and config.accumulate > 1:
            raise ValueError(
                f"accumulate must be 1 with {self.arm.name}, which itself calls the "
                f"loss of the whole batch; got {config.accumulate}"
            )
        self.mesh = devices.make_mesh(config.devices)
        self.batch_size = config.batch_size or self.work.batch_size
        self.epochs = config.epochs or self.work.epochs
        self._check_batch()
        data_set = (
            self.work.stand_in()
            if config.synthetic
            else self.work.load(config.data_dir, download=config.download)
        )
        self.pipeline: Pipeline = self.work.pipeline(
            data_set,
            batch_size=self.batch_size,
            seed=config.seed,
            validation=self.work.validation if config.part == "validation" else 0,
        )
        # A generated set is there for its shapes, whatever the number of examples.
        if not config.synthetic and self.batch_size > self.pipeline.train_size:
            raise ValueError(
                f"batch_size must be at most {self.pipeline.train_size}, the number of "
                f"training examples, got {self.batch_size}"
            )
        self.rows = devices.local_rows(self.batch_size)
        self.constants = devices.put_everywhere(self.mesh, self.pipeline.constants)
        dtype = jnp.dtype(config.dtype)
        self.functions = make_functions(
            self.work,
            self.arm,
            lambda rngs: self.work.model(data_set, dtype=dtype, rngs=rngs),
            self.pipeline.steps_per_epoch,
            config.accumulate,
            unroll=self.mesh.devices.flat[0].platform == "cpu",
            spread=config.shard,
        )
        self.abstract = jax.eval_shape(self.functions.init, 0)
        self.placement = devices.placement(self.mesh, self.abstract, config.shard)
        self._step = None
        self._evaluate = jax.jit(self.functions.evaluate)
        self._statistics = jax.jit(self.functions.statistics)

    def _check_batch(self) -> None:
        parts = self.config.accumulate * self.mesh.devices.size
        if self.batch_size % parts:
            raise ValueError(
                f"batch_size must be a multiple of accumulate times devices, "
                f"{self.config.accumulate} × {self.mesh.devices.size} = {parts}; got "
                f"{self.batch_size}"
            )

    @property
    def steps_per_epoch(self) -> int:
        """Optimizer steps in an epoch."""
        return self.pipeline.steps_per_epoch

    def tensors(self) -> list[str]:
        """The paths of the parameters, in the order of the state's vectors."""
        paths, _ = jax.tree_util.tree_flatten_with_path(self.abstract.params)
        return [_path(path) for path, _ in paths]

    def init(self) -> TrainState:
        """The training state before the first step, made where it belongs."""
        make = jax.jit(self.functions.init, out_shardings=self.placement)
        return make(self.config.seed)

    def like(self) -> TrainState:
        """Shapes, dtypes and places of a training state."""
        return jax.tree.map(
            lambda x, place: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=place),
            self.abstract,
            self.placement,
        )

    def compile(self, state: TrainState) -> float:
        """Compiles the step; returns the seconds it took."""
        start = time.perf_counter()
        step = jax.jit(
            self.functions.step,
            donate_argnums=0,
            out_shardings=(self.placement, None),
        )
        self._step = step.lower(state, self.train_batch(0), self.constants).compile()
        return time.perf_counter() - start

    def train_batch(self, step: int) -> Batch:
        """The batch of a step, on the devices."""
        epoch, t = divmod(step, self.steps_per_epoch)
        batch = self.pipeline.train_batch(epoch, t, self.rows)
        return devices.put_batch(self.mesh, batch)

    def step(self, state: TrainState, batch: Batch) -> tuple[TrainState, jax.Array]:
        """One step of training; the old state is gone after it."""
        if self._step is None:
            self.compile(state)
        return self._step(state, batch, self.constants)

    def evaluate(
        self, state: TrainState, batch_stats: nnx.State, part: str | None = None
    ) -> tuple[float, float]:
        """Mean loss and accuracy on a part of the data, by default the run's."""
        total = None
        for batch in self.pipeline.evaluation(part or self.config.part, self.rows):
            sums = self._evaluate(
                state, batch_stats, devices.put_batch(self.mesh, batch), self.constants
            )
            total = sums if total is None else total + sums
        loss, accuracy, weight = np.asarray(total, np.float64)
        return loss / weight, accuracy / weight

    def refreshed(self, state: TrainState, batches: int) -> nnx.State:
        """BatchNorm statistics of the weights to evaluate, over training batches."""
        epoch = (int(state.step) - 1) // self.steps_per_epoch
        mean = None
        for n in range(batches):
            batch = self.train_batch(
                epoch * self.steps_per_epoch + n % self.steps_per_epoch
            )
            found = self._statistics(state, batch, self.constants)
            mean = (
                found
                if mean is None
                else jax.tree.map(lambda m, x, n=n: m + (x - m) / (n + 1), mean, found)
            )
        return mean

    def measure(self, state: TrainState) -> dict[str, Any]:
        """The figures of the epoch so far."""
        step = int(state.step)
        epoch, t = divmod(step - 1, self.steps_per_epoch)
        loss, accuracy = self.evaluate(state, state.batch_stats)
        part = self.config.part
        row = {
            "epoch": epoch + 1,
            "step": step,
            "train_loss": float(state.loss) / (t + 1),
            "train_accuracy": float(state.accuracy) / (t + 1),
            f"{part}_loss": loss,
            f"{part}_accuracy": accuracy,
        }
        if self.config.refresh_batch_stats and jax.tree.leaves(state.batch_stats):
            stats = self.refreshed(state, self.config.refresh_batch_stats)
            row["refreshed_loss"], row["refreshed_accuracy"] = self.evaluate(
                state, stats
            )
        lowest = self.arm.options.get("curvature_min")
        return {**row, **curvature_figures(state, lowest)}


def curvature_figures(
    state: TrainState, curvature_min: float | None = None
) -> dict[str, float]:
    """CT-AGD's γ and trust figures, over the tensors; nothing for other optimizers."""

    def is_ours(node: Any) -> bool:
        return isinstance(node, ctagd_optax.CTAGDState)

    if not any(map(is_ours, jax.tree.leaves(state.opt_state, is_leaf=is_ours))):
        return {}
    rows = ctagd_optax.curvature_report(state.opt_state, state.params)
    gammas = [row.gamma for row in rows]
    told = ("path", "shape", "gamma", "left_out")
    means = [name for name in rows[0]._fields if name not in told]
    figures = {
        "gamma_min": min(gammas),
        "gamma_median": float(np.median(gammas)),
        "gamma_max": max(gammas),
        **{
            name: float(np.mean([getattr(row, name) for row in rows])) for name in means
        },
    }
    if curvature_min is not None:
        lowest = [gamma <= 1.001 * curvature_min for gamma in gammas]
        figures["gamma_at_min"] = float(np.mean(lowest))
    return figures


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
        and the number of epochs.

    Returns:
      The summary, as written.

    Raises:
      FileExistsError: the folder holds a run, and ``resume`` is False.
      NonFiniteLossError: the loss is not finite any more.
      Interrupted: by Ctrl-C or SIGTERM, after a checkpoint.
    """
    _check_folder(config, resume)
    if config.tensorboard:
        check_tensorboard()
    if jax.process_count() > 1:  # nobody writes before all have looked
        multihost_utils.sync_global_devices("folder")
    run = Run(config)
    _write_description(run, resume)
    checkpoints = Checkpoints(config.out / "checkpoints", config.keep)
    first = jax.process_index() == 0
    report = make_reporter(run.steps_per_epoch, run.epochs) if first else Reporter()
    try:
        with _stop_requests() as stopping:
            return _train(run, checkpoints, report, stopping)
    finally:
        report.close()
        checkpoints.close()


def _train(
    run: Run,
    checkpoints: Checkpoints,
    report: Reporter,
    stopping: Callable[[int], bool],
) -> dict[str, Any]:
    config, steps = run.config, run.steps_per_epoch
    total = min(run.epochs * steps, config.steps or run.epochs * steps)
    every = config.checkpoint_every or steps
    notes = {"seconds": 0.0, "compile_seconds": 0.0, "wait_seconds": 0.0}
    saved = checkpoints.last()
    if saved is None:
        state = run.init()
    else:
        state, notes = checkpoints.restore(saved, run.like())
        report.say(f"going on from step {saved}: {checkpoints.path(saved)}")
    first = int(state.step)
    if total < first:
        raise ValueError(
            f"epochs and steps must not end before step {first}, which the run in "
            f"{config.out} has reached; got {total} steps"
        )
    path = config.out / "metrics.jsonl"
    rows = [
        row  # not of steps that come again, nor of an epoch that goes on
        for row in read_metrics(path)
        if row["step"] <= first and row["step"] % steps == 0
    ]
    metrics = Metrics(
        path,
        rows,
        config.out / "tensorboard" if config.tensorboard else None,
        writes=jax.process_index() == 0,
    )
    if first < total:
        notes["compile_seconds"] += run.compile(state)
    elif first % steps:
        metrics.write({**run.measure(state), **_spent(notes)})

    losses: collections.deque[jax.Array] = collections.deque()
    with prefetch(run.train_batch, range(first, total)) as batches:
        clock = _Clock(first, batches)
        for n, batch in enumerate(batches, first + 1):
            state, loss = run.step(state, batch)
            losses.append(loss)
            if len(losses) > _IN_FLIGHT and not math.isfinite(losses.popleft()):
                _check(run, state, checkpoints)
            stop = stopping(n)
            measures = n % steps == 0 or n == total
            if not (measures or stop or n % every == 0):
                if clock.is_time_to_report(report.interval):
                    rate = clock.steps_per_second(n) * run.batch_size
                    report.step(n, _running(state, n, steps, rate))
                continue

            _check(run, state, checkpoints)  # waits for the steps under way
            losses.clear()
            rate = clock.steps_per_second(n) * run.batch_size
            clock.stop(notes)
            if measures:
                row = {
                    **run.measure(state),
                    **_spent(notes),
                    "examples_per_second": rate,
                }
                metrics.write(row)
                report.epoch(row)
            checkpoints.save(n, state, dict(notes))
            if stop and n < total:
                checkpoints.wait()
                raise Interrupted(
                    f"stopped at step {n} and saved in {checkpoints.path(n)}; "
                    "--resume goes on"
                )
            clock = _Clock(n, batches)
    metrics.close()
    checkpoints.wait()
    summary = summarize(run, metrics.rows)
    if jax.process_index() == 0:
        write_json(config.out / "summary.json", summary)
    return summary


def _spent(notes: dict[str, float]) -> dict[str, float]:
    """Times for the metrics."""
    return {
        "seconds": notes["seconds"],
        "compile_seconds": notes["compile_seconds"],
        "input_wait": notes["wait_seconds"] / notes["seconds"],
    }


class _Clock:
    """Times a stretch of steps."""

    def __init__(self, step: int, batches: Prefetch):
        self._step = step
        self._batches = batches
        self._waited = batches.waited
        self._start = self._reported = time.perf_counter()

    def steps_per_second(self, step: int) -> float:
        return (step - self._step) / (time.perf_counter() - self._start)

    def is_time_to_report(self, interval: float) -> bool:
        """True now and then, as a look at the state waits for the steps under way."""
        now = time.perf_counter()
        if now - self._reported < interval:
            return False
        self._reported = now
        return True

    def stop(self, notes: dict[str, float]) -> None:
        """Adds the time to the run's."""
        notes["seconds"] += time.perf_counter() - self._start
        notes["wait_seconds"] += self._batches.waited - self._waited


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
    shown = ("gamma_min", "gamma_max", "observed", "step_high")
    return {
        "train_loss": float(state.loss) / done,
        "train_accuracy": float(state.accuracy) / done,
        "examples_per_second": rate,
        **{k: v for k, v in curvature_figures(state).items() if k in shown},
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
        "parameters": parameter_count(run.abstract.params),
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


def _check_folder(config: Config, resume: bool) -> None:
    """Nothing is overwritten, and only the same run is continued."""
    path = config.out / "config.json"
    config.out.mkdir(parents=True, exist_ok=True)
    check_writable(path)
    if not (any(config.out.glob("checkpoints/*")) or any(config.out.glob("metrics*"))):
        return
    if not resume:
        raise FileExistsError(
            f"out: {config.out} holds a run already; --resume goes on with it, another "
            "--out starts a new one"
        )
    check_same_run(config)


def check_same_run(config: Config) -> None:
    """Raises ValueError if the run in the config's folder is another one."""
    description = _read_description(config.out / "config.json")
    optimizer = arm(config.optimizer)
    options = {"name": optimizer.name, **optimizer.options}
    if description["optimizer"] != options:
        raise ValueError(
            f"optimizer must stay {description['optimizer']!r} to go on with the run "
            f"in {config.out}, got {options!r}"
        )
    earlier = {**description["config"], "batch_size": description["batch_size"]}
    size = config.batch_size or workload(config.workload).batch_size
    now = {**vars(config), "batch_size": size}
    for name, new in now.items():
        old = earlier.get(name)
        if old != new and name not in _FREE:
            whose = ", the workload's" if getattr(config, name) is None else ""
            raise ValueError(
                f"{name} must stay {old!r} to go on with the run in {config.out}, got "
                f"{new!r}{whose}"
            )


def _read_description(path: pathlib.Path) -> dict[str, Any]:
    return read_json(path, {"config", "versions"}, "a run")


def _write_description(run: Run, resume: bool) -> None:
    """Writes ``config.json``, if the run it goes on with was the same."""
    path = run.config.out / "config.json"
    description = describe(run)
    if resume and path.exists():
        earlier = _read_description(path)
        for name in ("workload", "steps_per_epoch", "parameters"):
            if earlier[name] != description[name]:
                raise ValueError(
                    f"{name} was {earlier[name]!r} when the run in {run.config.out} "
                    f"was started, and is {description[name]!r} now"
                )
        started = earlier.get("started_with", earlier["versions"])
        if started != description["versions"]:
            description["started_with"] = started
    if jax.process_index() == 0:
        write_json(path, description)


@contextlib.contextmanager
def _stop_requests() -> Iterator[Callable[[int], bool]]:
    """A function that tells after a step whether to stop there.

    The first Ctrl-C or SIGTERM asks for it, a second one ends the program at once. The
    processes of a run agree on a step.
    """
    if threading.current_thread() is not threading.main_thread():
        yield lambda step: False  # signals reach the main thread alone
        return
    requested = threading.Event()
    together = jax.process_count() > 1
    # Of several processes, JAX takes SIGTERM itself and finds a step for all of them.
    signals = (signal.SIGINT,) if together else (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.getsignal(number) for number in signals}

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    def request(number: int, frame: Any) -> None:
        del number, frame
        requested.set()
        restore()
        if together:
            os.kill(os.getpid(), signal.SIGTERM)

    for number in signals:
        signal.signal(number, request)
    try:
        yield (
            multihost_utils.reached_preemption_sync_point
            if together
            else lambda step: requested.is_set()
        )
    finally:
        restore()


def _path(path: tuple) -> str:
    return jax.tree_util.keystr(path, simple=True, separator=".").removesuffix(".value")
