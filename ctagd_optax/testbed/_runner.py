"""Runs an optimizer on many landscapes at once and records everything."""

import dataclasses
import time
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from ctagd_optax.testbed._internals import (
    CTAGDSettings,
    Internals,
    RobustInternals,
    RobustSettings,
)
from ctagd_optax.testbed._landscape import Landscape, LandscapeConfig
from ctagd_optax.testbed._optimizers import Optimizer, get_optimizer
from ctagd_optax.testbed._result import Result

RUNNING, CONVERGED, DIVERGED = 0, 1, 2
STATUS = ("unsettled", "converged", "diverged")
"""How a run can end; all but "converged" are failures."""


@dataclasses.dataclass(frozen=True)
class RunConfig:
    r"""When a run is over: what "converged" means, which the paper leaves open.

    A run has converged when, for ``patience`` steps in a row, its train loss
    :math:`L_\mathrm{avg}(\theta)` neither fell below its best by more than
    ``tolerance`` nor rose above it by more than ``rise``. The steps of the patience are
    counted, as the paper's must be: its L-BFGS takes 51.07 ± 0.13 steps on stationary
    landscapes, one step of 20 inner iterations and fifty without progress.

    Attributes:
      max_steps: a run that has not converged by then is "unsettled", a failure. The
        paper's slowest row is 279 ± 190; this is the next round number.
      patience: steps without progress; 50, see above.
      tolerance: the least progress that counts. About 1e-4 of the depth of the valleys.
      rise: how far above its best the train loss may stray while it has no progress.
        About the depth of a valley: under drift an optimizer follows the valley as it
        moves, and SGD with the paper's learning rate still counts as converged in
        nearly all runs, as in the paper; one that jumps about aimlessly does not.
      escape: a run that is further from the target than this, or not finite, has
        diverged, a failure. Far out, as the bowl can bring a run back from hundreds of
        units, where a large correction may throw it.

    Examples:
      >>> from ctagd_optax import testbed
      >>> testbed.RunConfig(max_steps=200).patience
      50
    """

    max_steps: int = 500
    patience: int = 50
    tolerance: float = 1e-3
    rise: float = 6.0
    escape: float = 1e5

    def __post_init__(self):
        for name in ("max_steps", "patience"):
            if getattr(self, name) < 1:
                raise ValueError(
                    f"{name} must be at least 1, got {getattr(self, name)}"
                )
        for name in ("tolerance", "rise", "escape"):
            if not getattr(self, name) >= 0:
                raise ValueError(
                    f"{name} must be at least 0, got {getattr(self, name)}"
                )


class Record(NamedTuple):
    """What is written down after each step, and once before the first.

    Attributes:
      theta: the parameters.
      train_loss: value of the train snapshot that the step was made on.
      train_average: mean over the train snapshots, at the new parameters.
      test_average: mean over the test snapshots, at the new parameters.
      internals: what CT-AGD or the robust method did; None for other optimizers.
    """

    theta: Any
    train_loss: Any
    train_average: Any
    test_average: Any
    internals: Internals | RobustInternals | None


class _Carry(NamedTuple):
    record: Record
    state: Any
    best: jax.Array
    calm: jax.Array  # steps in a row without progress or rise
    status: jax.Array
    steps: jax.Array


class Simulator:
    """One optimizer, compiled once, to run on batches of landscapes.

    Args:
      optimizer: the optimizer.
      config: when a run is over.
      batch: runs in a batch; other numbers of runs are cut and padded to it.
    """

    def __init__(self, optimizer: Optimizer, config: RunConfig, batch: int):
        self.optimizer = optimizer
        self.config = config
        self.batch = batch
        self.compile_seconds = 0.0
        self._compiled = None

    def __call__(
        self, landscapes: Landscape, rates: np.ndarray
    ) -> tuple[Record, np.ndarray, np.ndarray, float]:
        """Runs on a batch of landscapes, each with its own learning rate.

        Args:
          landscapes: a landscape with a leading axis.
          rates: the learning rates, ``(runs,)``.

        Returns:
          The record with leading axes ``(runs, max_steps + 1)``, the steps taken, the
          status codes, and the seconds it took.
        """
        runs = len(rates)
        landscapes = jax.tree.map(np.asarray, landscapes)
        dtype = landscapes.start.dtype
        parts, seconds = [], 0.0
        for begin in range(0, runs, self.batch):
            # The last batch is filled up with repetitions, which are cut off again.
            index = np.minimum(np.arange(begin, begin + self.batch), runs - 1)
            batch = jax.tree.map(lambda x, index=index: x[index], landscapes)
            part, elapsed = self._run(batch, rates[index].astype(dtype))
            parts.append(part)
            seconds += elapsed
        record, steps, status = jax.tree.map(
            lambda *x: np.concatenate(x)[:runs], *parts
        )
        return record, steps, status, seconds

    def _run(self, landscapes: Landscape, rates: np.ndarray) -> tuple[Any, float]:
        # Some of Optax's optimizers mix types or ranks, whatever the caller's settings.
        with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
            if self._compiled is None:
                begin = time.perf_counter()
                function = jax.jit(self._simulate).lower(landscapes, rates)
                self._compiled = function.compile()
                self.compile_seconds = time.perf_counter() - begin
            begin = time.perf_counter()
            result = jax.block_until_ready(self._compiled(landscapes, rates))
            seconds = time.perf_counter() - begin
        return jax.tree.map(np.asarray, result), seconds

    def _simulate(self, landscapes: Landscape, rates: jax.Array):
        first = jax.vmap(self._start)(landscapes, rates)

        def step(carry: _Carry, t: jax.Array) -> tuple[_Carry, Record]:
            def advance(carry: _Carry) -> _Carry:
                return jax.vmap(self._advance, in_axes=(0, 0, 0, None))(
                    landscapes, rates, carry, t
                )

            over = jnp.all(carry.status != RUNNING)
            carry = jax.lax.cond(over, lambda carry: carry, advance, carry)
            return carry, carry.record

        last, records = jax.lax.scan(step, first, jnp.arange(self.config.max_steps))
        records = jax.tree.map(
            lambda a, b: jnp.moveaxis(jnp.concatenate([a[None], b]), 0, 1),
            first.record,
            records,
        )
        return records, last.steps, last.status

    def _start(self, landscape: Landscape, rate: jax.Array) -> _Carry:
        theta = landscape.start
        state = self.optimizer.make(rate).init(theta)
        train = landscape.train_average(theta)
        internals = None
        if self.optimizer.settings is not None:
            internals = self.optimizer.settings.read(theta, state, state)
        record = Record(
            theta=theta,
            train_loss=landscape.train_loss(theta, 0),
            train_average=train,
            test_average=landscape.test_average(theta),
            internals=internals,
        )
        zero = jnp.zeros((), jnp.int32)
        return _Carry(record, state, train, calm=zero, status=zero, steps=zero)

    def _advance(
        self, landscape: Landscape, rate: jax.Array, carry: _Carry, t: jax.Array
    ) -> _Carry:
        """One step of one run; a run that is over stays as it is."""
        theta, state = carry.record.theta, carry.state

        # Optax's line search wants value_fn to take every extra argument.
        def loss(x, obj_fn=None, grad_fn=None):
            del obj_fn, grad_fn
            return landscape.train_loss(x, t)

        optimizer = optax.with_extra_args_support(self.optimizer.make(rate))
        value, grad = jax.value_and_grad(loss)(theta)
        # value, grad and value_fn are for line searches, obj_fn is Sophia's and
        # hutchinson's, grad_fn same_batch's. The next snapshot is another function, so
        # nothing may be reused from the line search.
        updates, new_state = optimizer.update(
            grad,
            state,
            theta,
            value=value,
            grad=grad,
            value_fn=loss,
            obj_fn=loss,
            grad_fn=jax.grad(loss),
        )
        moved: Any = optax.apply_updates(theta, updates)
        distance = jnp.linalg.norm(moved - landscape.train.target[0])
        train = landscape.train_average(moved)
        inside = jnp.isfinite(train) & (distance <= self.config.escape)

        progress = train < carry.best - self.config.tolerance
        strayed = train > carry.best + self.config.rise
        calm = jnp.where(progress | strayed, 0, carry.calm + 1)
        status = jnp.where(calm >= self.config.patience, CONVERGED, RUNNING)
        internals = None
        if self.optimizer.settings is not None:
            internals = self.optimizer.settings.read(theta, state, new_state)
        new = _Carry(
            record=Record(
                moved, value, train, landscape.test_average(moved), internals
            ),
            state=new_state,
            best=jnp.where(progress, train, carry.best),
            calm=calm,
            status=status.astype(carry.status.dtype),
            steps=carry.steps + 1,
        )
        # A run that escapes keeps its last record: plots and means stay finite.
        lost = carry._replace(
            status=jnp.full_like(carry.status, DIVERGED), steps=carry.steps + 1
        )
        running = carry.status == RUNNING
        return jax.tree.map(
            lambda old, a, b: jnp.where(
                running, jnp.where(inside, a.astype(old.dtype), b), old
            ),
            carry,
            new,
            lost,
        )


def make_landscapes(
    runs: int,
    seed: int = 0,
    config: LandscapeConfig | None = None,
    *,
    purpose: str = "test",
) -> Landscape:
    """Draws the landscapes of an experiment, one key each.

    The first landscapes are the same whatever ``runs`` is.

    Args:
      runs: how many.
      seed: the experiment's seed.
      config: the landscape's constants.
      purpose: "test", or "tuning" for landscapes that share nothing with those.

    Returns:
      A landscape with a leading axis, of NumPy arrays.

    Examples:
      >>> from ctagd_optax import testbed
      >>> testbed.make_landscapes(3).start.shape
      (3, 2)
    """
    if runs < 1:
        raise ValueError(f"runs must be at least 1, got {runs}")
    key = jax.random.fold_in(jax.random.key(seed), ("test", "tuning").index(purpose))
    # One at a time and not jitted: its small operations are compiled once, whatever
    # the number of runs and the constants are.
    drawn = [Landscape.create(jax.random.fold_in(key, i), config) for i in range(runs)]
    return jax.tree.map(lambda *x: np.stack(x), *drawn)


def run(
    optimizer: optax.GradientTransformation | Optimizer | str,
    *,
    learning_rate: float | None = None,
    runs: int = 15,
    seed: int = 0,
    stationary: bool = False,
    landscape: LandscapeConfig | None = None,
    config: RunConfig | None = None,
    settings: CTAGDSettings | RobustSettings | None = None,
    name: str | None = None,
) -> Result:
    """Runs an optimizer on landscapes of the testbed.

    Args:
      optimizer: an Optax optimizer; or a name, see :func:`get_optimizer`.
      learning_rate: for an optimizer by name; None is the paper's.
      runs: number of landscapes.
      seed: which landscapes.
      stationary: whether to hold the landscapes at their first snapshot.
      landscape: constants of the landscape.
      config: when a run is over.
      settings: for an optimizer that is CT-AGD or the robust method, what reads its
        internals; for a name, CT-AGD's constants.
      name: what to call the optimizer.

    Returns:
      The :class:`Result`.

    Examples:
      >>> from ctagd_optax import testbed
      >>> result = testbed.run("newton", runs=3, stationary=True)
      >>> result.name, result.runs
      ('Newton', 3)
    """
    if isinstance(optimizer, str):
        if isinstance(settings, RobustSettings):
            raise ValueError("settings of an optimizer by name must be CTAGDSettings")
        optimizer = get_optimizer(optimizer, settings)
    if isinstance(optimizer, optax.GradientTransformation):
        if learning_rate is not None:
            raise ValueError(
                "learning_rate must be None for an optimizer that is made already"
            )
        made = optimizer
        optimizer = Optimizer(name or "optimizer", lambda _: made, settings=settings)
        rate = float("nan")
    elif isinstance(optimizer, Optimizer):
        rate = optimizer.paper_rate if learning_rate is None else learning_rate
        if rate is None:
            raise ValueError(
                f"learning_rate must be given for {optimizer.name}: the paper has none"
            )
    else:
        raise TypeError(
            "optimizer must be an optax.GradientTransformation such as "
            f"optax.adam(0.1), or a name such as 'adam'; got {type(optimizer).__name__}"
        )
    if name is not None:
        optimizer = dataclasses.replace(optimizer, name=name)
    landscape = landscape or LandscapeConfig()
    landscapes = make_landscapes(
        runs, seed, landscape.stationary() if stationary else landscape
    )
    simulator = Simulator(optimizer, config or RunConfig(), batch=runs)
    return simulate(simulator, landscapes, rate)


def simulate(simulator: Simulator, landscapes: Landscape, rate: float) -> Result:
    """Runs a simulator at one learning rate and gathers the result."""
    record, steps, status, seconds = simulator(
        landscapes, np.full(landscapes.start.shape[0], rate)
    )
    return Result(
        name=simulator.optimizer.name,
        landscapes=landscapes,
        learning_rate=rate,
        paths=record.theta,
        train_loss=record.train_loss,
        train_average=record.train_average,
        test_loss=record.test_average,
        steps=steps,
        status=np.asarray(STATUS)[status],
        internals=record.internals,
        seconds=seconds,
        compile_seconds=simulator.compile_seconds,
    )
