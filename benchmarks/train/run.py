"""A run in its place: data, devices, compiled functions, figures."""

import sys
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

import ctagd_optax
from benchmarks.data import Pipeline
from benchmarks.specs import arm
from benchmarks.train import devices
from benchmarks.train.config import Config
from benchmarks.train.step import TrainState, make_functions
from benchmarks.workloads import Batch, workload


class Run:
    """A run in its place: data, devices, compiled functions.

    Args:
      config: the run.

    Attributes:
      refresh_batches: training batches from which BatchNorm statistics are taken anew
        at the end of an epoch; 0 where there is no correction, or no BatchNorm.
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
        self.pipeline.evaluation(config.part)  # raises if there is nothing to evaluate
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
            self.epochs,
            config.accumulate,
            unroll=self.mesh.devices.flat[0].platform == "cpu",
            spread=config.shard,
        )
        self.abstract = jax.eval_shape(self.functions.init, 0)
        self.placement = devices.placement(self.mesh, self.abstract, config.shard)
        self._step = None
        self._evaluate = jax.jit(self.functions.evaluate)
        self._statistics = jax.jit(
            self.functions.statistics, out_shardings=self.placement.batch_stats
        )
        corrects = self.arm.options.get("correction_rate", 0) > 0
        is_normed = bool(jax.tree.leaves(self.abstract.batch_stats))
        self.refresh_batches = (
            min(config.refresh_batch_stats, self.steps_per_epoch)
            if corrects and is_normed
            else 0
        )

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

    @property
    def steps(self) -> int:
        """Optimizer steps in the whole run."""
        return min(self.epochs * self.steps_per_epoch, self.config.steps or sys.maxsize)

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
        # Placed as a result is: else the first batch has a program of its own.
        start = {"sums": np.zeros(3, np.float32)}
        sums = devices.put_everywhere(self.mesh, start)["sums"]
        for batch in self.pipeline.evaluation(part or self.config.part, self.rows):
            batch = devices.put_batch(self.mesh, batch)
            # Programs of several processes that wait for each other are few at a time:
            # JAX runs a limited number, and each process could start other ones first.
            jax.block_until_ready(sums)
            sums = self._evaluate(sums, state, batch_stats, batch, self.constants)
        loss, accuracy, weight = np.asarray(sums, np.float64)
        return loss / weight, accuracy / weight

    def refreshed(self, state: TrainState) -> TrainState:
        """The state with BatchNorm statistics of the weights to evaluate.

        They are means over training batches of the epoch that has just ended. A
        correction moves the weights at once, and the running statistics are of weights
        before it. Training does not read them: its next steps are the same.
        """
        if not self.refresh_batches:
            return state
        start = int(state.step) - self.steps_per_epoch
        mean = state.batch_stats
        for n in range(self.refresh_batches):
            batch = self.train_batch(start + n)
            jax.block_until_ready(mean)  # as in evaluate
            mean = self._statistics(mean, n, state, batch, self.constants)
        return state._replace(batch_stats=mean)

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
        lowest = self.arm.options.get("curvature_min")
        return {**row, **curvature_figures(state, lowest)}


def curvature_figures(
    state: TrainState, curvature_min: float | None = None
) -> dict[str, float]:
    """The methods' figures over the tensors; nothing for other optimizers."""
    if not _is_wrapped(state):
        return {}
    rows = ctagd_optax.curvature_report(state.opt_state, state.params)
    gammas = [row.gamma for row in rows]
    told = ("path", "shape", "gamma", "left_out")
    means = [name for name in rows[0]._fields if name not in told]
    figures = {
        **multiplier_figures(state),
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


def multiplier_figures(state: TrainState) -> dict[str, float]:
    """What the last update was multiplied by; nothing for other optimizers."""
    if not _is_wrapped(state):
        return {}
    multipliers = np.asarray(ctagd_optax.learning_rate_multiplier(state.opt_state))
    return {
        "multiplier_min": float(multipliers.min()),
        "multiplier_max": float(multipliers.max()),
    }


def _is_wrapped(state: TrainState) -> bool:
    def is_ours(node: Any) -> bool:
        return isinstance(node, ctagd_optax.CTAGDState)

    return any(map(is_ours, jax.tree.leaves(state.opt_state, is_leaf=is_ours)))


def _path(path: tuple) -> str:
    return jax.tree_util.keystr(path, simple=True, separator=".").removesuffix(".value")
