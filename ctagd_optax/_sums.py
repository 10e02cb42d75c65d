"""Running sums over the steps of an epoch, one like each parameter."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax.typing import DTypeLike

from ctagd_optax._trees import GOLDEN, choose, places, wide, zeros

_cast = jax.lax.bitcast_convert_type


class NarrowSum(NamedTuple):
    """A sum in bfloat16, and a byte of what that cannot hold.

    A step adds less and less to a sum in relation to it, and where that is far below
    the last digit even the best rounding leaves an error of some percent. Eight more
    digits make it a few thousandths, in epochs of any length.

    Attributes:
      high: tree of the sums in bfloat16, rounded towards 0.
      low: tree of their next eight binary digits, as uint8.
    """

    high: Any
    low: Any


def accumulators(params: optax.Params, dtype: DTypeLike | None) -> Any:
    """Sums like the parameters, all 0.

    Args:
      params: the parameters.
      dtype: of the sums; None is at least float32, bfloat16 a :class:`NarrowSum`.

    Returns:
      A tree like the parameters, or two.
    """
    if dtype is not None and jnp.dtype(dtype) == jnp.bfloat16:
        return NarrowSum(zeros(params, jnp.bfloat16), zeros(params, jnp.uint8))
    return zeros(params, dtype)


def accumulate(total: Any, terms: Any, t: jax.Array) -> Any:
    """Adds the terms of step t to running sums, which start anew at step 0."""

    def add(total, term):
        dtype = max(term.dtype, total.dtype, key=lambda dtype: dtype.itemsize)
        return choose(t == 0, 0, total).astype(dtype) + term.astype(dtype)

    if not isinstance(total, NarrowSum):
        return jax.tree.map(lambda s, x: add(s, x).astype(s.dtype), total, terms)
    bits = jax.tree.map(lambda s, x: _dither(add(s, x), t), values(total), terms)
    return NarrowSum(
        jax.tree.map(lambda x: _cast((x >> 16).astype(jnp.uint16), jnp.bfloat16), bits),
        jax.tree.map(lambda x: (x >> 8).astype(jnp.uint8), bits),
    )


def values(total: Any) -> Any:
    """Sums as numbers to calculate with, in at least float32."""
    if not isinstance(total, NarrowSum):
        return jax.tree.map(lambda s: s.astype(wide(s.dtype)), total)

    def join(high, low):
        high = _cast(high, jnp.uint16).astype(jnp.uint32) << 16
        return _cast(high | (low.astype(jnp.uint32) << 8), jnp.float32)

    return jax.tree.map(join, *total)


def _dither(x: jax.Array, t: jax.Array) -> jax.Array:
    """The bits of a number whose last eight do not count, rounded up or down.

    A sum that is rounded to the nearest stalls once terms are below its last digit.
    Here a number that is a share f of the way to the next is rounded up in a share f of
    the steps: where a threshold, which goes round by the golden ratio, is below f.
    """
    x = x.astype(jnp.float32)
    bits = _cast(x, jnp.uint32)
    threshold = places(x) + t.astype(jnp.uint32) * jnp.uint32(GOLDEN)
    return jnp.where(jnp.isfinite(x), bits + (threshold >> 24), bits)
