"""The pure functions of a run: a jitted step donates the whole training state."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from flax import nnx

from benchmarks.specs import Arm
from benchmarks.workloads import Batch, Workload


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


class Functions(NamedTuple):
    """The pure functions of a run; all but ``init`` are to be compiled.

    Attributes:
      init: a training state from a seed.
      step: state, batch, constants → state and the loss.
      evaluate: sums of loss, accuracy and weight, state, statistics, batch, constants →
        the sums with the batch's.
      statistics: mean, n, state, batch, constants → mean of the BatchNorm statistics of
        n batches and of this one.
    """

    init: Callable[[int], TrainState]
    step: Callable[[TrainState, Batch, Batch], tuple[TrainState, jax.Array]]
    evaluate: Callable[[jax.Array, TrainState, nnx.State, Batch, Batch], jax.Array]
    statistics: Callable[[nnx.State, int, TrainState, Batch, Batch], nnx.State]


def make_functions(
    work: Workload,
    optimizer: Arm,
    make_model: Callable[[nnx.Rngs], nnx.Module],
    steps_per_epoch: int,
    epochs: int,
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
      epochs: epochs in all, for optimizers with a schedule over them.
      accumulate: parts of a batch whose gradients are averaged.
      unroll: writes those parts out instead of looping, as XLA's CPU backend runs
        convolutions in loops slowly.
      spread: draws weights so that each device can make its part.

    Returns:
      The :class:`Functions`.
    """
    opt = optimizer.make(steps_per_epoch, epochs * steps_per_epoch)
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
            grad_fn=jax.grad(value_fn),
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

    def evaluate(sums, state, batch_stats, batch, constants):
        params = optimizer.eval_params(state.opt_state, state.params)
        model = nnx.merge(eval_graph, params, batch_stats, state.streams, copy=True)
        figures = work.figures(model, batch, constants)
        weight = batch["weight"]
        return sums + jnp.stack(
            [jnp.sum(weight * x) for x in (figures.loss, figures.accuracy, 1.0)]
        )

    def statistics(mean, n, state, batch, constants):
        params = optimizer.eval_params(state.opt_state, state.params)
        model = nnx.merge(
            statistics_graph, params, state.batch_stats, state.streams, copy=True
        )
        work.figures(model, batch, constants)
        found = nnx.state(model, nnx.BatchStat)
        mean = jax.tree.map(lambda m: jnp.where(n == 0, 0, m), mean)
        return jax.tree.map(lambda m, x: m + (x - m) / (n + 1), mean, found)

    return Functions(init, step, evaluate, statistics)
