"""The skeleton of a curvature-tuned optimizer: everything but the curvature.

It wraps a backbone, divides its updates by an annealed divisor γ per tensor, counts
steps, and closes an epoch under ``lax.cond``. What to observe in a step, and what to
make of it at the epoch's end, is a :class:`Method`.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax.typing import DTypeLike

Gamma = jax.Array
Correction = optax.Updates
Info = Any


class Step(NamedTuple):
    """What a method sees of one first-order step.

    Attributes:
      epoch: the epoch k.
      epoch_step: the step t within the epoch, from 0.
      finite: for each tensor, whether its gradient is finite; where it is not, the
        method leaves this sample out.
      paired: for each tensor, whether this gradient and the one before it in the epoch
        are both finite, so that their difference is a sample.
      left_out: for each tensor, the samples left out of the epoch so far.
      gradients: the gradients g_t.
      params: the parameters θ_t at which they were taken.
      updates: the step θ_{t+1} - θ_t that the backbone makes after division by γ_{k,t}.
      gamma: the divisors γ_{k,t}, one per tensor.
      epoch_gamma: the γ_k that they come from.
    """

    epoch: jax.Array
    epoch_step: jax.Array
    finite: jax.Array
    paired: jax.Array
    left_out: jax.Array
    gradients: optax.Updates
    params: optax.Params
    updates: optax.Updates
    gamma: Gamma
    epoch_gamma: Gamma


class Method(NamedTuple):
    """Pure functions that turn the steps of an epoch into a divisor and a correction.

    Attributes:
      init: ``init(params) -> (evidence, memory, info)``, all zeros. Evidence is what
        accumulates over an epoch, memory what the next step needs of this one.
      divisor: ``divisor(state, fraction, gradients) -> gamma``: the divisors γ_{k,t} of
        this step from the state before it, t / T, and the gradients.
      observe: ``observe(evidence, memory, step, **extra_args) -> evidence``; at step 0
        the evidence is that of the last epoch, to be overwritten or to go on from, and
        the memory is zero.
      remember: ``remember(memory, step) -> memory``.
      close: ``close(evidence, step, gamma, info) -> (gamma, correction, info)``, from
        the evidence up to and including ``step``, and the γ and the info of the epoch
        before; the correction is added to the update.
    """

    init: Callable[[optax.Params], tuple[Any, Any, Info]]
    divisor: Callable[["CTAGDState", jax.Array, optax.Updates], jax.Array]
    observe: Callable[..., Any]
    remember: Callable[[Any, Step], Any]
    close: Callable[[Any, Step, Gamma, Info], tuple[Gamma, Correction, Info]]


class CTAGDState(NamedTuple):
    """State of a curvature-tuned optimizer.

    A figure per tensor is one entry of a vector, in the order of ``jax.tree.leaves`` of
    the parameters.

    Attributes:
      epoch: epochs closed so far (k).
      epoch_step: steps taken in the open epoch (t).
      finite: for each tensor, whether the last gradient was finite.
      not_finite: for each tensor, gradients of the open epoch that were not finite.
      gamma: for each tensor, the divisor γ_k that the open epoch started with.
      evidence: what the method gathered up to now.
      memory: what the method keeps of the last step; zero at the start of an epoch.
      info: trust figures of the last closed epoch, a :class:`CurvatureInfo` or
        :class:`RobustInfo`.
      backbone_state: state of the wrapped optimizer.
    """

    epoch: jax.Array
    epoch_step: jax.Array
    finite: jax.Array
    not_finite: jax.Array
    gamma: Gamma
    evidence: Any
    memory: Any
    info: Info
    backbone_state: optax.OptState


def wide(dtype: DTypeLike) -> DTypeLike:
    """The dtype to calculate in: at least float32."""
    return dtype if jnp.finfo(dtype).bits >= 32 else jnp.float32


def widest(tree: Any) -> DTypeLike:
    """The dtype to calculate one figure per tensor in, with the others'."""
    dtypes = [wide(x.dtype) for x in jax.tree.leaves(tree)]
    return max(dtypes, key=lambda dtype: jnp.finfo(dtype).bits, default=jnp.float32)


def curvature_tuned(
    backbone: optax.GradientTransformation,
    steps_per_epoch: int | jax.Array,
    method: Method,
) -> optax.GradientTransformationExtraArgs:
    """Wraps a backbone into an optimizer that is tuned at the end of each epoch.

    Args:
      backbone: the first-order optimizer.
      steps_per_epoch: steps T in an epoch.
      method: how to divide, what to observe and how to close an epoch.

    Returns:
      The wrapped optimizer; its ``update`` takes ``epoch_end`` and hands all other
      extra arguments to the backbone and to the method.
    """
    backbone = optax.with_extra_args_support(backbone)

    # Jitted, so that an update outside of jit does not compile the cond at every call.
    # Evidence does not come out of the cond, which would copy it at every step; step 0
    # of the next epoch starts it anew. Memory does: it overwrites what the evidence was
    # made from, and the cond orders the two, which saves a copy of the old memory.
    @jax.jit
    def boundary(closing, gamma, info, evidence, memory, step):
        def close():
            new_gamma, correction, new_info = method.close(evidence, step, gamma, info)
            forgotten = jax.tree.map(jnp.zeros_like, memory)
            return _add(step.updates, correction), forgotten, new_gamma, new_info

        def go_on():
            return step.updates, method.remember(memory, step), gamma, info

        return jax.lax.cond(closing, close, go_on)

    def init_fn(params: optax.Params) -> CTAGDState:
        _check_params(params)
        tensors = len(jax.tree.leaves(params))
        evidence, memory, info = method.init(params)
        return CTAGDState(
            epoch=jnp.zeros((), jnp.int32),
            epoch_step=jnp.zeros((), jnp.int32),
            finite=jnp.zeros((tensors,), jnp.bool_),
            not_finite=jnp.zeros((tensors,), jnp.int32),
            gamma=jnp.ones((tensors,), jnp.float32),
            evidence=evidence,
            memory=memory,
            info=info,
            backbone_state=backbone.init(params),
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
        if params is None:
            raise ValueError(
                "params must be given: call update(gradients, state, params), as "
                "curvature is how gradients change with parameters"
            )
        _check_trees(gradients, state, params)
        updates, backbone_state = backbone.update(
            gradients, state.backbone_state, params, **extra_args
        )

        t = state.epoch_step
        length = jnp.asarray(steps_per_epoch)
        fraction = t.astype(jnp.float32) / length.astype(jnp.float32)
        fraction = jnp.minimum(fraction, 1.0)
        gamma = method.divisor(state, fraction, gradients)
        gamma = jnp.broadcast_to(gamma, state.gamma.shape).astype(jnp.float32)
        updates = _divide(updates, gamma)

        start = t == 0
        finite = per_tensor(all_finite, gradients, dtype=jnp.bool_)
        step = Step(
            epoch=state.epoch,
            epoch_step=t,
            finite=finite,
            paired=finite & state.finite & ~start,
            left_out=jnp.where(start, 0, state.not_finite)
            + (~finite).astype(jnp.int32),
            gradients=gradients,
            params=params,
            updates=updates,
            gamma=gamma,
            epoch_gamma=state.gamma,
        )
        evidence = method.observe(state.evidence, state.memory, step, **extra_args)

        closing = t >= length - 1 if epoch_end is None else jnp.asarray(epoch_end)
        updates, memory, gamma, info = boundary(
            closing, state.gamma, state.info, evidence, state.memory, step
        )
        return updates, CTAGDState(
            epoch=jnp.where(closing, optax.safe_increment(state.epoch), state.epoch),
            epoch_step=jnp.where(closing, 0, optax.safe_increment(t)),
            finite=finite,
            not_finite=step.left_out,
            gamma=gamma,
            evidence=evidence,
            memory=memory,
            info=info,
            backbone_state=backbone_state,
        )

    return optax.GradientTransformationExtraArgs(init_fn, update_fn)


def per_tensor(
    function: Callable[..., jax.Array], *trees: Any, dtype: DTypeLike = jnp.float32
) -> jax.Array:
    """Maps the leaves of trees to scalars, and stacks those into one vector."""
    leaves = [jax.tree.leaves(tree) for tree in trees]
    scalars = [function(*group).astype(dtype) for group in zip(*leaves, strict=True)]
    return jnp.stack(scalars) if scalars else jnp.zeros((0,), dtype)


def map_with_index(function: Callable[..., Any], tree: Any, *rest: Any) -> Any:
    """``jax.tree.map`` whose function also gets the position of the leaf."""
    positions = iter(range(len(jax.tree.leaves(tree))))
    return jax.tree.map(lambda *x: function(next(positions), *x), tree, *rest)


def inner(x: jax.Array, y: jax.Array) -> jax.Array:
    """The inner product of two tensors, in the wider of their dtypes."""
    dtype = widest((x, y))
    return jnp.sum(x.astype(dtype) * y.astype(dtype))


def relative_norms(tree: Any, reference: Any) -> jax.Array:
    """Norm of each tensor over that of its reference; 0 where it is 0 itself."""

    def norm(x: jax.Array) -> jax.Array:
        return optax.tree.norm(x.astype(wide(x.dtype)))

    size, scale = per_tensor(norm, tree), per_tensor(norm, reference)
    return jnp.where(size == 0, 0, size / scale)


def all_finite(x: jax.Array) -> jax.Array:
    """Whether every entry of a tensor is finite."""
    # NaN passes through the maximum; all(isfinite(x)) would write a mask of x's size.
    return jnp.max(jnp.abs(x), initial=0) < jnp.inf


def _divide(updates: optax.Updates, gamma: Gamma) -> optax.Updates:
    # One vector of reciprocals: XLA would compile a kernel for that of each tensor.
    multiplier = 1 / gamma.astype(widest(updates))

    def multiply(i, u):
        dtype = wide(u.dtype)
        return (u.astype(dtype) * multiplier[i].astype(dtype)).astype(u.dtype)

    return map_with_index(multiply, updates)


def _add(updates: optax.Updates, correction: Correction) -> optax.Updates:
    def add(u, c):
        dtype = wide(u.dtype)
        total = (u.astype(dtype) + c.astype(dtype)).astype(u.dtype)
        return jnp.where(c == 0, u, total)  # u + 0 would lose the sign of a zero

    return jax.tree.map(add, updates, correction)


def _check_params(params: optax.Params) -> None:
    for path, leaf in jax.tree_util.tree_leaves_with_path(params):
        dtype = getattr(leaf, "dtype", None)
        if dtype is None:
            found, advice = type(leaf).__name__, "make arrays of them with jnp.asarray"
        elif jnp.issubdtype(dtype, jnp.floating):
            continue
        elif jnp.issubdtype(dtype, jnp.complexfloating):
            found = dtype
            advice = "split them with optax.contrib.split_real_and_imaginary"
        else:
            found = dtype
            advice = "leave them to optax.set_to_zero with optax.partition"
        raise TypeError(
            "params must be real floating-point arrays, got "
            f"{found} at params{jax.tree_util.keystr(path)}; {advice}"
        )


def _check_trees(
    gradients: optax.Updates, state: CTAGDState, params: optax.Params
) -> None:
    if not isinstance(state, CTAGDState):
        raise TypeError(
            "state must be the CTAGDState that init returns, got "
            f"{type(state).__name__}; restore a checkpoint into the state of init"
        )
    structures = jax.tree.structure(gradients), jax.tree.structure(params)
    if structures[0] != structures[1]:
        raise ValueError(
            "gradients and params must be trees of the same structure, got "
            f"{structures[0]} and {structures[1]}"
        )
    for (path, p), g in zip(
        jax.tree_util.tree_leaves_with_path(params),
        jax.tree.leaves(gradients),
        strict=True,
    ):
        if jnp.shape(g) != jnp.shape(p):
            raise ValueError(
                "gradients and params must have the same shapes, got "
                f"{jnp.shape(g)} and {jnp.shape(p)} at {jax.tree_util.keystr(path)}"
            )
    if structures[1].num_leaves != state.gamma.shape[0]:
        raise ValueError(
            "state must come from init with these params: it was made for "
            f"{state.gamma.shape[0]} tensors, params has {structures[1].num_leaves}"
        )
