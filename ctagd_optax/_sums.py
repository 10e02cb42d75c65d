"""Running sums over the steps of an epoch, one like each parameter."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
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
    sums = jax.tree.map(add, values(total), terms)
    return NarrowSum(
        *(jax.tree.map(lambda x, i=i: _split(x, t)[i], sums) for i in range(2))
    )


def resolution(total: Any) -> float:
    """What is lost of sums beyond the rounding of their ``values``, as a share."""
    return 2.0**-15 if isinstance(total, NarrowSum) else 0.0


def values(total: Any) -> Any:
    """Sums as numbers to calculate with, in at least float32."""
    if not isinstance(total, NarrowSum):
        return jax.tree.map(lambda s: s.astype(wide(s.dtype)), total)

    return jax.tree.map(_join, *total)


@jax.custom_jvp
def _join(high: jax.Array, low: jax.Array) -> jax.Array:
    """The number of a bfloat16 and the next eight digits."""
    high = _cast(high, jnp.uint16).astype(jnp.uint32) << 16
    return _cast(high | (low.astype(jnp.uint32) << 8), jnp.float32)


@_join.defjvp
def _join_jvp(numbers, tangents):
    return _join(*numbers), tangents[0].astype(jnp.float32)


@jax.custom_jvp
def _split(x: jax.Array, t: jax.Array) -> tuple[jax.Array, jax.Array]:
    """A number as a bfloat16 and the next eight digits, rounded up or down.

    A sum that is rounded to the nearest stalls once terms are below its last digit.
    Here a number that is a share f of the way to the next is rounded up in a share f of
    the steps: where a threshold, which goes round by the golden ratio, is below f.
    """
    x = x.astype(jnp.float32)
    bits = _cast(x, jnp.uint32)
    threshold = places(x) + t.astype(jnp.uint32) * jnp.uint32(GOLDEN)
    # Neither out of the range of float32, nor what is no number into another.
    bits = jnp.where(jnp.abs(x) < 3.4027e38, bits + (threshold >> 24), bits)
    high = _cast((bits >> 16).astype(jnp.uint16), jnp.bfloat16)
    return high, (bits >> 8).astype(jnp.uint8)


@_split.defjvp
def _split_jvp(numbers, tangents) -> Any:  # JAX wants float0, which is no Array
    high, low = _split(*numbers)
    nothing = np.zeros(low.shape, jax.dtypes.float0)
    return (high, low), (tangents[0].astype(high.dtype), nothing)
