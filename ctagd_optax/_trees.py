"""Small functions over the leaves of a tree."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.typing import ArrayLike, DTypeLike

_ONE_STAGE = 4096  # entries
_GROUP = 32  # XLA makes one kernel of a sum up to this length


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
    return stack([function(*group) for group in zip(*leaves, strict=True)], dtype)


def stack(scalars: Sequence[jax.Array], dtype: DTypeLike = jnp.float32) -> jax.Array:
    """A vector of scalars, one for each tensor."""
    scalars = [x.astype(dtype) for x in scalars]
    return jnp.stack(scalars) if scalars else jnp.zeros((0,), dtype)


def map_with_index(function: Callable[..., Any], tree: Any, *rest: Any) -> Any:
    """``jax.tree.map`` whose function also gets the position of the leaf."""
    positions = iter(range(len(jax.tree.leaves(tree))))
    return jax.tree.map(lambda *x: function(next(positions), *x), tree, *rest)


def entries(vector: jax.Array, tensors: int) -> list[jax.Array]:
    """The entries of a vector as scalars; that of a vector of one is for all tensors.

    XLA compiles equal kernels once. An index would make the kernel of each tensor its
    own, at 20 ms each, so entries are picked by a sum over a mask, outside of it.
    """
    if vector.shape == (1,):
        return [vector[0]] * tensors
    scalars = []
    for first in range(0, tensors, _GROUP):
        last = min(first + _GROUP, tensors)
        group = jax.lax.slice_in_dim(vector, first, last)
        zeros = jnp.zeros_like(group)
        for mask in np.eye(last - first, dtype=np.bool_):
            chosen = jax.lax.select(jnp.asarray(mask), group, zeros)
            scalars.append(jnp.sum(chosen, dtype=vector.dtype))
    return scalars


def multiply(tree: Any, factors: list[jax.Array]) -> Any:
    """Multiplies each tensor by its factor; dtypes stay."""

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


def ratio(x: jax.Array, y: jax.Array) -> jax.Array:
    """The quotient, 0 where y is 0."""
    return jnp.where(y != 0, x / jnp.where(y != 0, y, 1), 0)


def sums(*terms: jax.Array) -> tuple[jax.Array, ...]:
    """The sums of tensors of one shape.

    One pass and one kernel for all of them, which XLA does not make of single sums on
    a CPU. Over several devices it would gather their parts, so there they are single.
    """
    size, dimensions = terms[0].size, tuple(range(terms[0].ndim))
    width = _divisor(size)
    if jax.device_count() > 1 or (width < _GROUP and size > _ONE_STAGE):
        return tuple(jnp.sum(x, dtype=x.dtype) for x in terms)

    def reduce(terms, dimensions):
        zeros = tuple(jnp.zeros((), x.dtype) for x in terms)
        return jax.lax.reduce(
            terms, zeros, lambda a, b: jax.tree.map(jax.lax.add, a, b), dimensions
        )

    if size <= _ONE_STAGE:
        return tuple(reduce(terms, dimensions))
    # In two stages: a long float32 sum would lose its last terms.
    return tuple(reduce(reduce(tuple(x.reshape(-1, width) for x in terms), (1,)), (0,)))


def _divisor(size: int) -> int:
    """The largest divisor up to the root."""
    return next((n for n in range(math.isqrt(size), 1, -1) if size % n == 0), 1)


def largest(x: jax.Array) -> jax.Array:
    """The largest magnitude, in at least float32; NaN if there is one."""
    x = jnp.abs(x).astype(wide(x.dtype))
    zero = jnp.zeros((), x.dtype)
    return jax.lax.reduce(x, zero, jax.lax.max, tuple(range(x.ndim)))


def all_finite(x: jax.Array) -> jax.Array:
    """Whether every entry of a tensor is finite."""
    # NaN passes through the maximum; all(isfinite(x)) would write a mask of x's size.
    return largest(x) < jnp.inf


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
    before = choose(start, 0, total).astype(dtype)
    return (before + term.astype(dtype)).astype(total.dtype)


def choose(condition: jax.Array, x: ArrayLike, y: ArrayLike) -> jax.Array:
    """``jnp.where`` with fewer operations for XLA: no broadcast of a scalar condition.

    One of the two must be an array; the other may be a number.
    """
    if not isinstance(x, jax.Array):
        x = jax.lax.full_like(y, x)
    if not isinstance(y, jax.Array):
        y = jax.lax.full_like(x, y)
    return jax.lax.select(condition, x, y)
