"""Small functions over the leaves of a tree."""

import functools
import math
import numbers
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.typing import ArrayLike, DTypeLike

_ONE_STAGE = 4096  # entries
GOLDEN = 2654435769  # 2³² by the golden ratio
_ODD = GOLDEN, 3266489917, 668265263, 374761393  # multipliers that mix bits
_GROUP = 32  # XLA makes one kernel of a sum up to this length


def wide(dtype: DTypeLike) -> DTypeLike:
    """The dtype to calculate in: at least float32."""
    return dtype if jnp.finfo(dtype).bits >= 32 else jnp.float32


def widest(tree: Any) -> DTypeLike:
    """The dtype to calculate one figure per tensor in, with the others'."""
    dtypes = [wide(x.dtype) for x in jax.tree.leaves(tree)]
    return max(dtypes, key=lambda dtype: jnp.finfo(dtype).bits, default=jnp.float32)


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
    own, at 20 ms each, so entries are picked by sums over masks, outside of it.
    """
    if vector.shape == (1,):
        return [vector[0]] * tensors
    scalars: list[jax.Array] = []
    for first in range(0, tensors, _GROUP):
        last = min(first + _GROUP, tensors)
        group = jax.lax.slice_in_dim(vector, first, last)
        zeros = jnp.zeros_like(group)
        masks = np.eye(last - first, dtype=np.bool_)
        chosen = [jax.lax.select(jnp.asarray(mask), group, zeros) for mask in masks]
        scalars += _reduce(chosen, jax.lax.add, (0,))
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


def totals(
    terms: Sequence[Sequence[jax.Array]],
    operation: Callable[..., jax.Array] = jax.lax.add,
) -> list[tuple[jax.Array, ...]]:
    """For each tensor, the sums of its terms, which have its shape; or their maxima.

    The terms of a tensor take one pass and one kernel, those of small tensors of one
    shape together, which XLA does not make of single sums on a CPU. Over several
    devices it would gather their parts, so there they are single.
    """
    alike: dict[Any, list[int]] = {}
    for i, each in enumerate(terms):
        key = tuple((x.shape, x.dtype) for x in each)
        alike.setdefault(key, []).append(i)
    found: list[tuple[jax.Array, ...]] = [()] * len(terms)
    for key, members in alike.items():
        number = len(key)
        first = terms[members[0]][0]
        small = first.size <= _ONE_STAGE and _one_device(first)
        together = max(_GROUP // number, 1) if small else 1
        for start in range(0, len(members), together):
            group = members[start : start + together]
            scalars = _total([x for i in group for x in terms[i]], operation)
            for n, i in enumerate(group):
                found[i] = tuple(scalars[n * number : (n + 1) * number])
    return found


def _one_device(x: jax.Array) -> bool:
    """Whether there is nothing to spread a tensor over."""
    return jax.device_count() == 1 and jax.typeof(x).sharding.mesh.empty


def _total(terms: Sequence[jax.Array], operation: Callable) -> Sequence[jax.Array]:
    size, every = terms[0].size, tuple(range(terms[0].ndim))
    width = _divisor(size)
    awkward = width < _GROUP and size > _ONE_STAGE
    if len(terms) == 1 or awkward or not _one_device(terms[0]):
        return [_reduce([x], operation, every)[0] for x in terms]
    if size <= _ONE_STAGE:
        return _reduce(terms, operation, every)
    # In two stages: a long float32 sum would lose its last terms.
    rows = _reduce([x.reshape(-1, width) for x in terms], operation, (1,))
    return _reduce(rows, operation, (0,))


def _reduce(
    terms: Sequence[jax.Array], operation: Callable, dimensions: tuple[int, ...]
) -> Sequence[jax.Array]:
    """Reduces several tensors in one pass. 0 must be neutral."""
    zeros = [jnp.zeros((), x.dtype) for x in terms]
    if len(terms) == 1:
        return [jax.lax.reduce(terms[0], zeros[0], operation, dimensions)]
    return jax.lax.reduce(list(terms), zeros, _on_each(operation), dimensions)


@functools.cache
def _on_each(operation: Callable) -> Callable:
    """The operation on lists; one object, so that JAX compiles its reduction once."""
    return lambda a, b: jax.tree.map(operation, a, b)


def _divisor(size: int) -> int:
    """The largest divisor up to the root."""
    return next((n for n in range(math.isqrt(size), 1, -1) if size % n == 0), 1)


def all_finite(x: jax.Array) -> jax.Array:
    """Whether every entry of a tensor is finite."""
    return largest([x])[0] < jnp.inf


def largest(tensors: Sequence[jax.Array]) -> tuple[jax.Array, ...]:
    """The largest magnitudes, in at least float32; NaN where there is one."""
    # all(isfinite(x)) would write a mask of x's size.
    terms = [(jnp.abs(x).astype(wide(x.dtype)),) for x in tensors]
    return tuple(found for (found,) in totals(terms, jax.lax.max))


def out_of_range(params: optax.Params, *steps: Any) -> jax.Array | None:
    """For each tensor, whether steps may take it out of its dtype's range.

    None where all dtypes have the range of float32, so that others pay nothing.
    """
    tensors = list(zip(*map(jax.tree.leaves, (params, *steps)), strict=True))
    limits = [min(_limit(x.dtype) for x in each[:2]) for each in tensors]
    if all(limit == math.inf for limit in limits):
        return None
    reach = [
        jnp.sum(stack(largest(each))) if limit < math.inf else jnp.zeros(())
        for each, limit in zip(tensors, limits, strict=True)
    ]
    return stack(reach) > np.asarray(limits, np.float32)


def _limit(dtype: DTypeLike) -> float:
    """The largest number that no rounding makes infinite; none for wide ranges."""
    finfo = jnp.finfo(dtype)
    most = float(finfo.max)
    return math.inf if most > 1e38 else most * (1 - float(finfo.eps))


def zeros(params: optax.Params, dtype: DTypeLike | None) -> Any:
    """Zeros like the parameters; None is their dtype, but at least float32."""
    return jax.tree.map(
        lambda p: jnp.zeros_like(p, dtype=wide(p.dtype) if dtype is None else dtype),
        params,
    )


def counters(params: optax.Params, dtype: DTypeLike = jnp.int32) -> jax.Array:
    """A zero for each tensor."""
    return jnp.zeros((len(jax.tree.leaves(params)),), dtype)


def places(x: jax.Array) -> jax.Array:
    """Integers that look random, like a tensor; a function of the place alone."""
    bits = jax.lax.full_like(x, 2246822519, jnp.uint32)
    for axis in range(x.ndim):
        place = jax.lax.broadcasted_iota(jnp.uint32, x.shape, axis, **spread_like(x))
        bits += place * jnp.uint32(_ODD[axis % len(_ODD)])
    return bits


def spread_like(x: jax.Array) -> dict[str, Any]:
    """What makes JAX spread a new tensor over an Explicit mesh as another is."""
    sharding = jax.typeof(x).sharding
    explicit = jax.sharding.AxisType.Explicit in sharding.mesh.axis_types
    return {"out_sharding": sharding} if explicit else {}


def vary_like(params: optax.Params, tree: Any) -> Any:
    """Within jax.shard_map, a tree that differs over the devices that params do.

    A loop wants the state to start as it will be: one tensor may change all figures.
    """
    same = jax.typeof(jnp.zeros((), jnp.int32))
    zeros = [jnp.zeros_like(p, jnp.int32, ()) for p in jax.tree.leaves(params)]
    nothing = sum(zero for zero in zeros if jax.typeof(zero) != same)
    if isinstance(nothing, int):
        return tree
    return jax.tree.map(lambda x: x + nothing.astype(x.dtype), tree)


def choose(condition: jax.Array, x: ArrayLike, y: ArrayLike) -> jax.Array:
    """``jnp.where`` with fewer operations for XLA: no broadcast of a scalar condition.

    One of the two must be an array; the other may be a number.
    """
    x, y = (v if isinstance(v, numbers.Number) else jnp.asarray(v) for v in (x, y))
    if isinstance(x, numbers.Number):
        x = jax.lax.full_like(y, x)
    if isinstance(y, numbers.Number):
        y = jax.lax.full_like(x, y)
    return jax.lax.select(condition, x, y)
