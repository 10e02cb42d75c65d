"""Transformations that some arms are made of: averages, iterations, decayed losses."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

EvalParams = Callable[[optax.OptState, optax.Params], optax.Params]


def parameters(state: optax.OptState, params: optax.Params) -> optax.Params:
    """The weights to evaluate, where these are simply the parameters."""
    del state
    return params


def without_value(
    inner: optax.GradientTransformationExtraArgs,
) -> optax.GradientTransformationExtraArgs:
    """Keeps the loss from an optimizer that would listen to it."""

    def update(updates, state, params=None, *, value=None, **extra_args):
        del value
        return inner.update(updates, state, params, **extra_args)

    return optax.GradientTransformationExtraArgs(inner.init, update)


class AveragedState(NamedTuple):
    """State of :func:`averaged`.

    Attributes:
      steps: steps of the epoch that are in the average.
      average: their mean; the initial weights before the first step.
      inner_state: state of the wrapped optimizer.
    """

    steps: jax.Array
    average: optax.Params
    inner_state: optax.OptState


def averaged(
    inner: optax.GradientTransformation,
    steps_per_epoch: int,
    eval_params: EvalParams | None = None,
) -> optax.GradientTransformationExtraArgs:
    r"""Keeps the mean of the weights since the epoch began; steps are not changed.

    .. math::

        \bar\theta_1 = \theta_1, \qquad
        \bar\theta_n = \bar\theta_{n-1} + (\theta_n - \bar\theta_{n-1}) / n,
        \qquad n = 1..T,

    where :math:`\theta_n` are the weights after the epoch's n-th step.

    Args:
      inner: the optimizer that takes the steps.
      steps_per_epoch: :math:`T`; the step after it starts a new mean.
      eval_params: the weights to average, from the inner state and the parameters; None
        is the parameters themselves.

    Returns:
      The wrapped optimizer; the mean is ``state.average``.
    """
    inner = optax.with_extra_args_support(inner)
    weights = eval_params or parameters

    def init(params: optax.Params) -> AveragedState:
        # A copy, so that parameters and state can be donated together.
        return AveragedState(
            steps=jnp.zeros((), jnp.int32),
            average=jax.tree.map(jnp.copy, params),
            inner_state=inner.init(params),
        )

    def update(updates, state, params=None, **extra_args):
        if params is None:
            raise ValueError("params must be given: call update(grads, state, params)")
        updates, inner_state = inner.update(
            updates, state.inner_state, params, **extra_args
        )
        current = weights(inner_state, optax.apply_updates(params, updates))
        steps = jnp.where(state.steps >= steps_per_epoch, 0, state.steps) + 1
        average = jax.tree.map(
            lambda mean, x: jnp.where(
                steps == 1, x, mean + (x - mean) / steps.astype(x.dtype)
            ),
            state.average,
            current,
        )
        return updates, AveragedState(steps, average, inner_state)

    return optax.GradientTransformationExtraArgs(init, update)


def repeated(
    inner: optax.GradientTransformation,
    iterations: int,
    gradient_tolerance: float = 1e-7,
    change_tolerance: float = 1e-9,
) -> optax.GradientTransformationExtraArgs:
    """Makes one step of several iterations on the same batch.

    ``update`` needs ``value`` and ``value_fn``, and returns the whole displacement. The
    inner state goes on from batch to batch. The tolerances are PyTorch's.

    XLA compiles convolutions inside of loops to slow code on a CPU, so this is for
    small networks there.

    Args:
      inner: the optimizer to iterate.
      iterations: the most iterations in a step.
      gradient_tolerance: a step ends when no entry of the gradient is larger.
      change_tolerance: a step ends when an iteration changes no weight by more.

    Returns:
      The wrapped optimizer.
    """
    if iterations < 1:
        raise ValueError(f"iterations must be at least 1, got {iterations}")
    inner = optax.with_extra_args_support(inner)

    def update(
        updates,
        state,
        params=None,
        *,
        value: Any = None,
        value_fn: Any = None,
        **extra_args,
    ):
        del extra_args
        if value is None or value_fn is None:
            raise ValueError(
                "value and value_fn must be given: call update(grads, state, params, "
                "value=loss, value_fn=f)"
            )
        evaluate = _evaluation(value_fn, state)

        def unfinished(carry):
            i, _, _, _, grad, change = carry
            return (
                (i < iterations)
                & (_largest(grad) > gradient_tolerance)
                & (change > change_tolerance)
            )

        def iterate(carry):
            i, point, state, value, grad, _ = carry
            step, state = inner.update(
                grad, state, point, value=value, grad=grad, value_fn=value_fn
            )
            point = optax.apply_updates(point, step)
            return i + 1, point, state, *evaluate(point, state), _largest(step)

        far = jnp.full_like(_largest(updates), jnp.inf)
        first = jnp.zeros((), jnp.int32), params, state, value, updates, far
        _, end, state, *_ = jax.lax.while_loop(unfinished, iterate, first)
        return optax.tree.sub(end, params), state

    return optax.GradientTransformationExtraArgs(inner.init, update)


def _largest(tree: Any) -> jax.Array:
    return optax.tree.norm(tree, ord=jnp.inf)


def _evaluation(value_fn: Callable, state: optax.OptState) -> Callable:
    """Value and gradient at a point, from a line search's state where it has them."""
    if optax.tree.get(state, "grad") is None:
        return lambda point, _: jax.value_and_grad(value_fn)(point)
    from_state = optax.value_and_grad_from_state(value_fn)
    return lambda point, state: from_state(point, state=state)


def decayed_loss(
    inner: optax.GradientTransformationExtraArgs, weight_decay: float
) -> optax.GradientTransformationExtraArgs:
    """Adds weight decay to gradient and value alike, as line searches compare them.

    Args:
      inner: the optimizer.
      weight_decay: coefficient of half the squared norm.

    Returns:
      The optimizer on the decayed loss.
    """

    def penalty(params):
        return 0.5 * weight_decay * optax.tree.norm(params, squared=True)

    def update(
        updates,
        state,
        params=None,
        *,
        value: Any = None,
        value_fn: Any = None,
        **extra_args,
    ):
        if value is not None:
            value = value + penalty(params)
        extra_args["grad"] = grads = optax.tree.add_scale(updates, weight_decay, params)
        if value_fn is not None:
            extra_args["value_fn"] = lambda x: value_fn(x) + penalty(x)
        return inner.update(grads, state, params, value=value, **extra_args)

    return optax.GradientTransformationExtraArgs(inner.init, update)
