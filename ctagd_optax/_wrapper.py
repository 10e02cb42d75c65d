"""The skeleton of a curvature-tuned optimizer: everything but the curvature.

It wraps a backbone, multiplies its updates by one number per tensor, counts steps, and
closes an epoch under ``lax.cond``. What to observe in a step, and what to make of it at
the epoch's end, is a :class:`Method`.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax.core import Tracer

from ctagd_optax._checks import (
    check_backbone,
    check_extra_args,
    check_flag,
    check_not_wrapped,
    check_params,
    check_update,
    check_whole,
    parameters,
)
from ctagd_optax._trees import (
    choose,
    entries,
    multiply,
    out_of_range,
    stack,
    vary_like,
    wide,
    widest,
)

Gamma = jax.Array
Info = Any


class Step(NamedTuple):
    """What a method sees of one first-order step.

    Attributes:
      epoch: the epoch k.
      epoch_step: the step t within the epoch, from 0.
      sizes: a scalar for each tensor, not finite where its gradient is not, or is so
        large that the method cannot use it.
      figures: what else the method's ``look`` found.
      left_out: for each tensor, the samples left out of the epoch so far.
      gradients: the gradients g_t.
      params: the parameters θ_t at which they were taken.
      updates: the backbone's update times schedule / gamma.
      gamma: the divisors γ_{k,t}, one per tensor.
      schedule: the schedule's relative learning rate s of this step, 1 without one.
    """

    epoch: jax.Array
    epoch_step: jax.Array
    sizes: tuple[jax.Array, ...]
    figures: Any
    left_out: jax.Array
    gradients: optax.Updates
    params: optax.Params
    updates: optax.Updates
    gamma: Gamma
    schedule: jax.Array

    def finite(self) -> tuple[jax.Array, ...]:
        """A scalar for each tensor: whether its size is finite.

        Where it is not, the method leaves this sample out.
        """
        return tuple(x < jnp.inf for x in self.sizes)

    def finite_vector(self) -> jax.Array:
        """The same, as one vector."""
        return stack(self.sizes, widest(self.sizes)) < jnp.inf


class Method(NamedTuple):
    """Pure functions that turn the steps of an epoch into a divisor and a correction.

    Attributes:
      name: what users call it by.
      corrects: whether ``close`` has a correction.
      spare: a field of memory, a tree like the parameters, that ``remember`` replaces
        and step 0 does not read; the correction comes out in it. None is none.
      init: ``init(params) -> (evidence, memory, info)``, all zeros. Evidence is what
        accumulates over an epoch, memory what the next step needs of this one.
      look: ``look(memory, gradients, params, updates) -> (sizes, figures)``, see
        :class:`Step`; the updates are the backbone's.
      divisor: ``divisor(state, fraction, sizes, figures) -> gamma``: the divisors
        γ_{k,t} of this step from the state before it, t / T, and what ``look`` found;
        one for each tensor, or one for all.
      observe: ``observe(evidence, memory, step, **extra_args) -> evidence``; at step 0
        evidence and memory are those of the last epoch, to be forgotten.
      remember: ``remember(memory, step) -> memory``.
      close: ``close(evidence, step, gamma, info) -> (gamma, correction, info)``, from
        the evidence up to and including ``step``, and the γ and the info of the epoch
        before; the correction is added to the update, None is none.
    """

    name: str
    corrects: bool
    spare: str | None
    init: Callable[[optax.Params], tuple[Any, Any, Info]]
    look: Callable[..., tuple[tuple[jax.Array, ...], Any]]
    divisor: Callable[..., jax.Array]
    observe: Callable[..., Any]
    remember: Callable[[Any, Step], Any]
    close: Callable[[Any, Step, Gamma, Info], tuple[Gamma, optax.Updates | None, Info]]


class CTAGDState(NamedTuple):
    """State of a curvature-tuned optimizer.

    A figure per tensor is one entry of a vector, in the order of ``jax.tree.leaves`` of
    the parameters.

    Attributes:
      epoch: epochs closed so far (k).
      epoch_step: steps taken in the open epoch (t).
      epoch_length: steps in an epoch (T).
      step_count: steps taken in all, which the schedule is called with.
      not_finite: for each tensor, gradients of the open epoch that were not finite.
      gamma: for each tensor, the divisor γ_k that the open epoch started with.
      multiplier: for each tensor, what the backbone's last update was multiplied by;
        1 before the first.
      evidence: what the method gathered up to now.
      memory: what the method keeps of the last steps.
      info: figures of the last closed epoch, a :class:`CurvatureInfo` or
        :class:`RobustInfo`.
      backbone_state: state of the wrapped optimizer.
    """

    epoch: jax.Array
    epoch_step: jax.Array
    epoch_length: jax.Array
    step_count: jax.Array
    not_finite: jax.Array
    gamma: Gamma
    multiplier: jax.Array
    evidence: Any
    memory: Any
    info: Info
    backbone_state: optax.OptState


def curvature_tuned(
    backbone: optax.GradientTransformation,
    steps_per_epoch: int | jax.Array,
    method: Method,
    schedule: optax.ScalarOrSchedule | None = None,
) -> optax.GradientTransformationExtraArgs:
    """Wraps a backbone into an optimizer that is tuned at the end of each epoch.

    Args:
      backbone: the first-order optimizer.
      steps_per_epoch: steps T in an epoch.
      method: how to divide, what to observe and how to close an epoch.
      schedule: a relative learning rate, by step; None is 1.

    Returns:
      The wrapped optimizer; its ``update`` takes ``epoch_end`` and hands all other
      extra arguments to the backbone and to the method.
    """
    check_backbone(backbone)
    check_whole("steps_per_epoch", steps_per_epoch)
    named = parameters(backbone.update)
    hears_value = "value" in parameters(method.observe)
    backbone = optax.with_extra_args_support(backbone)

    # Jitted, so that an update outside of jit does not compile the cond at every call.
    # Evidence does not come out of the cond, which would copy it at every step; step 0
    # of the next epoch starts it anew. Where there is a correction, memory does: it
    # overwrites what the evidence was made from, and the cond orders the two, which
    # saves a copy of the old memory. The correction comes out in a part of memory, as
    # the next epoch forgets it, which saves a vector of its own.
    @jax.jit
    def boundary(closing, gamma, info, evidence, memory, step):
        def vary(*trees):  # in jax.shard_map, over devices: both branches or neither
            nothing = 0 * step.left_out
            return jax.tree.map(lambda x: x + nothing.astype(x.dtype), trees)

        def close():
            new_gamma, correction, new_info = method.close(evidence, step, gamma, info)
            return *vary(new_gamma, new_info), carried(memory, step, correction)

        def go_on():
            return *vary(gamma, info), carried(memory, step)

        return jax.lax.cond(closing, close, go_on)

    def carried(memory, step, correction=None):
        if not method.corrects:
            return None, None
        after = method.remember(memory, step)
        if method.spare is None:
            return after, _add(step.updates, correction)
        if correction is not None:
            correction = jax.tree.map(
                lambda c, x: c.astype(x.dtype),
                correction,
                getattr(after, method.spare),
            )
            after = after._replace(**{method.spare: correction})
        return after, None

    def init_fn(params: optax.Params) -> CTAGDState:
        check_params(params)
        tensors = len(jax.tree.leaves(params))
        figures = (
            jnp.zeros((tensors,), jnp.int32),
            jnp.ones((tensors,), jnp.float32),
            jnp.ones((tensors,), jnp.float32),
        )
        evidence, memory, info, figures = vary_like(
            params, (*method.init(params), figures)
        )
        backbone_state = backbone.init(params)
        check_not_wrapped(backbone_state, CTAGDState)
        return CTAGDState(
            epoch=jnp.zeros((), jnp.int32),
            epoch_step=jnp.zeros((), jnp.int32),
            epoch_length=jnp.asarray(steps_per_epoch, jnp.int32),
            step_count=jnp.zeros((), jnp.int32),
            not_finite=figures[0],
            gamma=figures[1],
            multiplier=figures[2],
            evidence=evidence,
            memory=memory,
            info=info,
            backbone_state=backbone_state,
        )

    def update_fn(
        updates: optax.Updates,
        state: Any,
        params: optax.Params | None = None,
        *,
        epoch_end: bool | jax.Array | None = None,
        **extra_args: Any,
    ) -> tuple[optax.Updates, CTAGDState]:
        gradients = updates
        check_extra_args(extra_args, named, hears_value=hears_value)
        check_flag("epoch_end", epoch_end)
        if params is None:
            raise ValueError(
                "params must be given: call update(gradients, state, params), as "
                "curvature is how gradients change with parameters"
            )
        check_update(method, CTAGDState, gradients, state, params)
        updates, backbone_state = backbone.update(
            gradients, state.backbone_state, params, **extra_args
        )

        t = state.epoch_step
        length = jnp.asarray(steps_per_epoch)
        fraction = t.astype(jnp.float32) / length.astype(jnp.float32)
        fraction = jnp.minimum(fraction, 1.0)
        sizes, figures = method.look(state.memory, gradients, params, updates)
        gamma = jnp.atleast_1d(
            jnp.asarray(method.divisor(state, fraction, sizes, figures))
        )
        relative_rate = _scheduled(schedule, state.step_count)
        dtype, tensors = widest(updates), state.gamma.shape

        def divide(gamma):
            # One vector for all: XLA would compile a kernel for each reciprocal.
            multiplier = relative_rate.astype(dtype) / gamma.astype(dtype)
            return multiplier, multiply(updates, entries(multiplier, *tensors))

        multiplier, divided = divide(gamma)
        beyond = out_of_range(params, divided)
        if beyond is not None:  # a γ below 1 did it, or the backbone
            beyond = jnp.any(beyond) if gamma.shape == (1,) else beyond
            gamma = jnp.where(beyond, jnp.maximum(gamma, 1), gamma)
            multiplier, divided = divide(gamma)
        updates = divided

        start = t == 0
        step = Step(
            epoch=state.epoch,
            epoch_step=t,
            sizes=sizes,
            figures=figures,
            left_out=jnp.where(start, 0, state.not_finite),
            gradients=gradients,
            params=params,
            updates=updates,
            gamma=jnp.broadcast_to(gamma, tensors).astype(jnp.float32),
            schedule=relative_rate,
        )
        left_out = step.left_out + (~step.finite_vector()).astype(jnp.int32)
        step = step._replace(left_out=left_out)
        evidence = method.observe(state.evidence, state.memory, step, **extra_args)
        evidence = vary_like(state.gamma, evidence)

        closing = t >= length - 1 if epoch_end is None else jnp.asarray(epoch_end)
        gamma, info = state.gamma, state.info
        if any(isinstance(x, Tracer) for x in (t, closing)) or closing:
            gamma, info, (memory, corrected) = boundary(
                closing, gamma, info, evidence, state.memory, step
            )
        else:
            # Nothing to compile, as optax.inject_hyperparams makes a new optimizer,
            # and so a new boundary, for every update.
            memory, corrected = carried(state.memory, step)
        if not method.corrects:
            memory = method.remember(state.memory, step)
        elif corrected is not None:
            updates = corrected
        else:
            correction = jax.tree.map(
                lambda c: choose(closing, c, -0.0),  # u + 0 would lose the sign of a 0
                getattr(memory, str(method.spare)),
            )
            updates = _add(updates, correction)
        return updates, CTAGDState(
            epoch=jnp.where(closing, optax.safe_increment(state.epoch), state.epoch),
            epoch_step=jnp.where(closing, 0, optax.safe_increment(t)),
            epoch_length=jnp.asarray(steps_per_epoch, jnp.int32),
            step_count=jnp.asarray(optax.safe_increment(state.step_count)),
            not_finite=step.left_out,
            gamma=gamma,
            multiplier=jnp.broadcast_to(multiplier, tensors).astype(jnp.float32),
            evidence=evidence,
            memory=memory,
            info=info,
            backbone_state=backbone_state,
        )

    return optax.GradientTransformationExtraArgs(init_fn, update_fn)


def _scheduled(schedule: optax.ScalarOrSchedule | None, count: jax.Array) -> jax.Array:
    """The relative learning rate of a step."""
    rate = schedule(count) if callable(schedule) else schedule
    if callable(schedule) and rate is None:
        raise TypeError("schedule must return a number; it returned None")
    rate = jnp.asarray(1.0 if rate is None else rate, jnp.float32)
    if rate.shape:
        raise ValueError(
            "schedule must return one number, the relative learning rate of a step; "
            f"got an array of shape {rate.shape}"
        )
    return rate


def _add(updates: optax.Updates, correction: optax.Updates | None) -> optax.Updates:
    if correction is None:
        return updates

    def add(u, c):
        dtype = wide(u.dtype)
        return (u.astype(dtype) + c.astype(dtype)).astype(u.dtype)

    return jax.tree.map(add, updates, correction)
