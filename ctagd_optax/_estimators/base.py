"""What an estimator of the Hessian's diagonal is, and what estimators share."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax.typing import ArrayLike, DTypeLike

from ctagd_optax._sums import accumulate
from ctagd_optax._trees import (
    choose,
    entries,
    map_with_index,
    spread_like,
    wide,
)
from ctagd_optax._wrapper import Step


class CurvatureEstimate(NamedTuple):
    """Per-coordinate curvature, before any clamp.

    Attributes:
      value: tree like the parameters: the estimate, 0 where there is none.
      observed: tree of booleans: whether there is evidence for the coordinate.
      standard_error: tree like the parameters: the standard error of the value,
        infinite where there are too few samples to tell; None where the estimator keeps
        none.
      count: tree of integers like the parameters: how many samples there are; None
        where the estimator keeps none.
    """

    value: Any
    observed: Any
    standard_error: Any = None
    count: Any = None


class CurvatureEstimator(NamedTuple):
    """Pure functions that estimate the Hessian's diagonal over an epoch.

    Attributes:
      init: ``init(params, accumulator_dtype) -> (evidence, memory)``, all zeros. With
        None, sums are kept in float32 for 16-bit parameters, else in the parameter's
        dtype.
      observe: ``observe(evidence, memory, step, eps, **extra_args) -> evidence``;
        forgets the last epoch at ``step.epoch_step == 0``, and leaves out tensors
        where ``step.finite()`` does not hold, now or at the step before.
      remember: ``remember(memory, step) -> memory``: what the next step needs. At step
        0 it still gets that of the last epoch.
      estimate: ``estimate(evidence, eps) -> CurvatureEstimate``.
      spare: the name of a field of memory, if it is a NamedTuple, that is a tree like
        the parameters, replaced at each step and not read at step 0. The correction
        takes its place at the end of an epoch, which saves a vector. None is none.
    """

    init: Callable[[optax.Params, DTypeLike | None], tuple[Any, Any]]
    observe: Callable[..., Any]
    remember: Callable[[Any, Step], Any]
    estimate: Callable[[Any, ArrayLike], CurvatureEstimate]
    spare: str | None = None


def check_estimator(estimator: Any) -> None:
    """Checks that an estimator is one, and not its name or its maker."""
    if isinstance(estimator, CurvatureEstimator):
        return
    name = getattr(estimator, "__name__", estimator)
    known = isinstance(name, str) and name in ("secant", "same_batch", "hutchinson")
    raise TypeError(
        "estimator must be a CurvatureEstimator, got "
        f"{estimator if isinstance(estimator, str) else type(estimator).__name__}; "
        f"call it: estimator=ctagd_optax.{name if known else 'secant'}()"
    )


def accumulate_products(totals: Any, a: Any, b: Any, t: jax.Array) -> Any:
    """Adds the products of two trees to a tree of running sums."""
    return accumulate(totals, jax.tree.map(jnp.multiply, a, b), t)


def differences(end: Any, begin: Any, where: Sequence[jax.Array]) -> Any:
    """``end - begin`` in at least float32; 0 in tensors where ``where`` is False."""

    def difference(i, x, y):
        dtype = wide(y.dtype)
        return choose(where[i], x.astype(dtype) - y.astype(dtype), 0)

    return map_with_index(difference, end, begin)


def finite_only(tree: Any, like: Any, step: Step) -> Any:
    """A tree in the dtypes of another; NaN in tensors that the step leaves out."""
    finite = step.finite()
    return map_with_index(
        lambda i, x, y: choose(finite[i], x.astype(y.dtype), jnp.nan), tree, like
    )


def sample_key(seed: ArrayLike, step: Step, tensor: int) -> jax.Array:
    """A random key, a pure function of seed, epoch, step and tensor."""
    key = jax.random.key(seed)
    for data in (step.epoch, step.epoch_step, tensor):
        key = jax.random.fold_in(key, data)
    return key


def random_signs(seed: ArrayLike, step: Step) -> Any:
    """A tree like the parameters of 1 and -1, each with probability one half."""

    def signs(i, p):
        key = sample_key(seed, step, i)
        drawn = jax.random.rademacher(key, p.shape, p.dtype, **spread_like(p))
        # Times ones like the parameter, so that it varies over devices as that does.
        return jnp.ones_like(p) * drawn

    return map_with_index(signs, step.params)


def square_root(variance: jax.Array) -> jax.Array:
    """Root of a variance, which rounding may have made negative."""
    return jnp.sqrt(jnp.maximum(variance, 0))


def fill(values: jax.Array, like: Any) -> Any:
    """A tree of tensors, each filled with its entry of a vector."""
    scalars = entries(values, len(jax.tree.leaves(like)))
    return map_with_index(
        lambda i, x: jnp.zeros_like(x, dtype=values.dtype) + scalars[i], like
    )
