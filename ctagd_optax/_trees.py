"""Small functions over the leaves of a tree."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax.typing import DTypeLike


def wide(dtype: DTypeLike) -> DTypeLike:
    """The dtype to calculate in: at least float32."""
    return dtype if jnp.finfo(dtype).bits >= 32 else jnp.float32


def widest(tree: Any) -> DTypeLike:
    """The dtype to calculate one figure per tensor in, with the others'."""
    dtypes = [wide(x.dtype) for x in jax.tree.leaves(tree)]
    return max(dtypes, key=lambda dtype: jnp.finfo(dtype).bits, default=jnp.float32)


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


def multiply(tree: Any, factors: jax.Array) -> Any:
    """Multiplies each tensor by its entry of a vector; dtypes stay."""
    factors = factors.astype(widest(tree))

    def times(i, x):
        dtype = wide(x.dtype)
        return (x.astype(dtype) * factors[i].astype(dtype)).astype(x.dtype)

    return map_with_index(times, tree)


def subtract(end: Any, begin: Any) -> Any:
    """``end - begin`` in at least float32."""

    def difference(x, y):
        dtype = wide(y.dtype)
        return x.astype(dtype) - y.astype(dtype)

    return jax.tree.map(difference, end, begin)


def inner(x: jax.Array, y: jax.Array) -> jax.Array:
    """The inner product of two tensors, in the wider of their dtypes."""
    dtype = widest((x, y))
    return jnp.sum(x.astype(dtype) * y.astype(dtype))


def square(x: jax.Array) -> jax.Array:
    """The sum of a tensor's squares."""
    return inner(x, x)


def length(x: jax.Array) -> jax.Array:
    """The norm of a tensor."""
    return jnp.sqrt(inner(x, x))


def ratio(x: jax.Array, y: jax.Array) -> jax.Array:
    """The quotient, 0 where y is 0."""
    return jnp.where(y != 0, x / jnp.where(y != 0, y, 1), 0)


def relative_norms(tree: Any, reference: Any) -> jax.Array:
    """Norm of each tensor over that of its reference; 0 where it is 0 itself."""
    size, scale = per_tensor(length, tree), per_tensor(length, reference)
    return jnp.where(size == 0, 0, size / scale)


def all_finite(x: jax.Array) -> jax.Array:
    """Whether every entry of a tensor is finite."""
    # NaN passes through the maximum; all(isfinite(x)) would write a mask of x's size.
    return jnp.max(jnp.abs(x), initial=0) < jnp.inf


def accumulators(params: optax.Params, dtype: DTypeLike | None) -> Any:
    """Zeros like the parameters, in the dtype that sums are kept in."""
    return jax.tree.map(
        lambda p: jnp.zeros_like(p, dtype=wide(p.dtype) if dtype is None else dtype),
        params,
    )


def counters(params: optax.Params, dtype: DTypeLike = jnp.int32) -> jax.Array:
    """A zero for each tensor."""
    return jnp.zeros((len(jax.tree.leaves(params)),), dtype)


def accumulate(total: jax.Array, term: jax.Array, start: jax.Array) -> jax.Array:
    """Adds to a running sum, which starts anew where ``start`` holds."""
    dtype = max(term.dtype, total.dtype, key=lambda dtype: dtype.itemsize)
    before = jnp.where(start, 0, total).astype(dtype)
    return (before + term.astype(dtype)).astype(total.dtype)
