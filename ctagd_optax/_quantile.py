"""Order statistics of a tensor without sorting it."""

import numbers
from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from ctagd_optax._trees import entries as entries_of
from ctagd_optax._trees import totals

_LIMB = 12  # bits; the product of two limbs is exact in 32-bit integers


class _Format(NamedTuple):
    """How a float type lays out its bits."""

    integer: jax.typing.DTypeLike
    mantissa: int
    bias: int


def _format(dtype: jax.typing.DTypeLike) -> _Format:
    info = jnp.finfo(dtype)
    integer = {16: jnp.int16, 32: jnp.int32, 64: jnp.int64}[info.bits]
    return _Format(integer, info.nmant, 1 - int(info.minexp))


def tensor_quantile(
    x: ArrayLike, q: ArrayLike, *, where: ArrayLike | None = None
) -> jax.Array:
    r"""Quantile of all entries of a tensor, with linear interpolation.

    Computes what :func:`numpy.quantile` computes by default,

    .. math::

        Q_\omega(x) = (1 - f)\, x_{(i)} + f\, x_{(i+1)},
        \qquad i + f = \omega\,(n - 1),

    where :math:`x_{(0)} \le x_{(1)} \le \ldots` are the sorted entries. Nothing is
    sorted: the bits of a float order like an integer, so :math:`x_{(i)}` is found
    exactly, bit by bit, from how many entries lie below a candidate. A pass reads the
    tensor once and reduces it to one number, so memory stays :math:`O(1)`, and a
    sharded tensor is never gathered.

    As with :func:`numpy.quantile`, a NaN among the entries makes the result NaN, and so
    does interpolation next to an infinity. The derivative is that of the entries which
    the result is made of; equal entries share it, and ``q`` is a constant.

    Args:
      x: real floating-point tensor of any shape, of 16 bits or more, with fewer than
        2**31 entries.
      q: the quantile (:math:`\omega`) in [0, 1]; may be traced, and is clipped then.
      where: boolean tensor of ``x``'s shape; entries where it is False are left out.

    Returns:
      A scalar of ``x``'s dtype; NaN if there are no entries.

    Examples:
      >>> import jax.numpy as jnp
      >>> from ctagd_optax import tensor_quantile
      >>> x = jnp.asarray([[4.0, 1.0], [3.0, 2.0]])
      >>> print(tensor_quantile(x, 0.5), tensor_quantile(x, 0.1))
      2.5 1.3
      >>> print(tensor_quantile(x, 0.5, where=x < 4.0))
      2.0
    """
    x = jnp.asarray(x)
    if not jnp.issubdtype(x.dtype, jnp.floating):
        raise TypeError(
            f"x must be a real floating-point tensor, got dtype {x.dtype.name}"
        )
    if jnp.finfo(x.dtype).bits < 16:
        raise TypeError(f"x must have at least 16 bits, got {x.dtype.name}; cast it")
    if jnp.ndim(q):
        raise TypeError(f"q must be one number, got an array of shape {jnp.shape(q)}")
    if isinstance(q, numbers.Real):
        q = float(q)
        if not 0.0 <= q <= 1.0:
            raise ValueError(f"q must be a number in [0, 1], got {q}")
    if where is not None:
        where = jnp.asarray(where)
        if where.shape != x.shape or where.dtype != jnp.bool_:
            raise ValueError(
                f"where must be a boolean tensor of shape {x.shape}, got "
                f"{where.dtype.name} of shape {where.shape}"
            )
    if x.size == 0:
        return jnp.full((), jnp.nan, x.dtype)
    entries = x.size if where is None else count(where)
    return _at_position(x, where, entries, *_position(q, entries))


def clipped_quantiles(
    tensors: Sequence[jax.Array],
    q: ArrayLike,
    bounds: tuple[ArrayLike, ArrayLike],
    present: jax.Array,
    entries: np.ndarray | jax.Array,
) -> jax.Array:
    """The quantile of each tensor, clipped to positive bounds; a vector.

    All are searched for in one loop: to compile one a tensor would take a large network
    minutes. A tensor without entries has the lower bound.

    Args:
      tensors: tensors of one dtype, float32 or float64. NaN is no entry.
      q: the quantile; a ``float`` or traced.
      bounds: the bounds.
      present: how many entries there are.
      entries: with those that are missing, which count as below the bounds.
    """
    index, fraction, rest = _position(q, entries)
    index -= entries - present
    return _clipped_at_position(tensors, bounds, present, index, fraction, rest)


def _position(q: ArrayLike, count: int | np.ndarray | jax.Array):
    """Splits q * (count - 1) into an index, its fraction f, and 1 - f."""
    if isinstance(q, float) and isinstance(count, int | np.ndarray):
        position = q * np.maximum(np.asarray(count, np.float64) - 1, 0)
        fraction = position - np.floor(position)
        return np.floor(position).astype(np.int32), fraction, 1.0 - fraction

    last = jnp.maximum(jnp.asarray(count, jnp.int32) - 1, 0)
    traced = jnp.clip(jnp.asarray(q), 0.0, 1.0)
    if traced.dtype == jnp.float64:
        index, fraction = _whole_and_rest(traced * last.astype(jnp.float64))
        return index, fraction, 1.0 - fraction

    # In float32 the product would be off by whole entries from a million entries on,
    # so both factors are cut into limbs whose products are exact.
    unit = 1 << _LIMB
    high, q_rest = _whole_and_rest(traced.astype(jnp.float32) * unit)
    low, q_rest = _whole_and_rest(q_rest * unit)
    n2, n1, n0 = last >> 2 * _LIMB, (last >> _LIMB) & (unit - 1), last & (unit - 1)
    middle = high * n0 + low * n1
    index = ((high * n2) << _LIMB) + high * n1 + low * n2 + (middle >> _LIMB)
    fraction = (
        (middle & (unit - 1)).astype(jnp.float32) / unit
        + (low * n0).astype(jnp.float32) / unit**2
        + q_rest * (last.astype(jnp.float32) / unit**2)
    )
    carry, fraction = _whole_and_rest(fraction)
    return index + carry, fraction, 1.0 - fraction


def count(mask: jax.Array) -> jax.Array:
    """The number of True entries."""
    return jnp.sum(mask, dtype=jnp.int32)


def _whole_and_rest(x: jax.Array) -> tuple[jax.Array, jax.Array]:
    whole = jnp.floor(x)
    return whole.astype(jnp.int32), x - whole


def _ordered(x: jax.Array) -> jax.Array:
    """Maps floats to integers of the same order (an involution on the bits)."""
    integer = _format(x.dtype).integer
    return _flip_negative(jax.lax.bitcast_convert_type(x, integer))


def _flip_negative(bits: jax.Array) -> jax.Array:
    return jnp.where(bits < 0, bits ^ jnp.iinfo(bits.dtype).max, bits)


@jax.custom_jvp
def _at_position(x, where, entries, index, fraction, rest):
    """The value a ``fraction`` of the way from entry ``index`` to the next."""
    lower, upper, defined = _neighbours(x, where, entries, index)
    result = _interpolate(lower, upper, fraction, rest)
    return jnp.where(defined, result, jnp.asarray(jnp.nan, result.dtype))


@_at_position.defjvp
def _at_position_jvp(primals, tangents):
    x, where, entries, index, fraction, rest = primals
    lower, upper, defined = _neighbours(x, where, entries, index)
    tangent = _derivative(x, where, tangents[0], lower, upper, fraction, rest)
    result = _interpolate(lower, upper, fraction, rest)
    return jnp.where(defined, result, jnp.asarray(jnp.nan, result.dtype)), tangent


@jax.custom_jvp
def _clipped_at_position(tensors, within, entries, index, fraction, rest):
    lower, upper = _clipped_neighbours(tensors, within, entries, index)
    return _interpolate(lower, upper, fraction, rest)


@_clipped_at_position.defjvp
def _clipped_at_position_jvp(primals, tangents):
    tensors, within, entries, index, fraction, rest = primals
    lower, upper = _clipped_neighbours(tensors, within, entries, index)
    scalars = zip(
        *(jnp.broadcast_to(x, lower.shape) for x in (lower, upper, fraction, rest)),
        strict=True,
    )
    tangent = [
        _derivative(x, None, dx, *each)
        for x, dx, each in zip(tensors, tangents[0], scalars, strict=True)
    ]
    return _interpolate(lower, upper, fraction, rest), jnp.stack(tangent)


def _derivative(x, where, tangent, lower, upper, fraction, rest):
    """That of the entries which the quantile is made of; equal ones share it."""

    def of(entry):
        equal = _ordered(x) == _ordered(entry)
        if where is not None:
            equal &= where
        total = jnp.sum(jnp.where(equal, tangent, 0))
        return total / jnp.maximum(jnp.sum(equal, dtype=entry.dtype), 1)

    dtype = lower.dtype
    return jnp.asarray(rest, dtype) * of(lower) + jnp.asarray(fraction, dtype) * of(
        upper
    )


def _neighbours(x, where, entries, index):
    """The entries of rank ``index`` and ``index + 1`` (or the last one).

    Also whether they are defined: there are entries, and none of them is NaN.
    """
    integer = jnp.iinfo(_format(x.dtype).integer)
    keys = highest = _ordered(x)
    if where is not None:  # what is left out counts neither as small nor as large
        highest = jnp.where(where, keys, integer.min)
        keys = jnp.where(where, keys, integer.max)
    low, high = jnp.min(keys), jnp.max(highest)
    # The bits of a NaN order beyond those of the infinities.
    last_key = _ordered(jnp.asarray(jnp.inf, x.dtype))
    defined = (low >= ~last_key) & (high <= last_key) & (entries > 0)
    # In jax.shard_map, keys must vary over devices from the start, as ranks may.
    nothing = (0 * (jnp.asarray(index) + entries)).astype(low.dtype)
    low, high = low + nothing, high + nothing
    found = _search(lambda key: count(keys <= key), low, high, entries, index)
    return *(_from_key(key, x.dtype) for key in found), defined


def _clipped_neighbours(tensors, within, entries, index):
    """The same of each tensor, after a clip to positive bounds."""
    dtype, shape = tensors[0].dtype, (len(tensors),)
    low, high = (
        jnp.broadcast_to(_ordered(jnp.asarray(bound, dtype)), shape) for bound in within
    )

    def counts(keys):
        # The bounds are no subnormal numbers, so the floats can be compared.
        values = entries_of(_from_key(keys, dtype), len(tensors))
        masks = [(x <= value) for x, value in zip(tensors, values, strict=True)]
        found = totals([(mask.astype(jnp.int32),) for mask in masks])
        return jnp.stack([number for (number,) in found])

    # In jax.shard_map, bounds must vary over devices from the start, as counts do.
    nothing = 0 * counts(low).astype(low.dtype)
    found = _search(counts, low + nothing, high + nothing, entries, index)
    return tuple(_from_key(key, dtype) for key in found)


def _search(counts, low, high, entries, index):
    """Keys of rank ``index`` and of the next, from how many are at or below a key."""
    following = jnp.minimum(jnp.asarray(index) + 1, jnp.maximum(entries - 1, 0))

    def bisect(bounds):
        low, high, next_low, next_high = bounds
        first = low < high  # then the next; it already has a part of its way
        key = _mean(jnp.where(first, low, next_low), jnp.where(first, high, next_high))
        below = counts(key)

        def narrow(low, high, rank):
            found = below > rank
            return (
                jnp.where(found, low, jnp.maximum(low, key + 1)),
                jnp.where(found, jnp.minimum(high, key), high),
            )

        next_bounds = narrow(next_low, next_high, following)
        low, high = (
            jnp.where(first, new, old)
            for new, old in zip(narrow(low, high, index), (low, high), strict=True)
        )
        return low, high, *next_bounds

    def searching(bounds):
        low, high, next_low, next_high = bounds
        return jnp.any((low < high) | (next_low < next_high))

    lower, _, upper, _ = jax.lax.while_loop(searching, bisect, (low, high, low, high))
    return lower, upper


def _mean(low: jax.Array, high: jax.Array) -> jax.Array:
    """The mean of integers, without overflow."""
    return (low & high) + ((low ^ high) >> 1)


def _from_key(key: jax.Array, dtype) -> jax.Array:
    return jax.lax.bitcast_convert_type(_flip_negative(key), dtype)


def _interpolate(lower, upper, fraction, rest):
    """(1 - f) * lower + f * upper, from the nearer end, as numpy does it."""
    dtype = lower.dtype
    if dtype == jnp.float16:
        lower, upper = lower.astype(jnp.float32), upper.astype(jnp.float32)
    elif dtype == jnp.bfloat16:
        lower, upper = _widen_bfloat16(lower), _widen_bfloat16(upper)
    wide = lower.dtype
    near_upper = jnp.asarray(fraction) >= 0.5
    fraction, rest = jnp.asarray(fraction, wide), jnp.asarray(rest, wide)

    def lerp(a, b):
        gap = b - a
        return jnp.where(near_upper, b - gap * rest, a + gap * fraction)

    # Hardware that flushes subnormals to zero would lose them here, so small numbers
    # are interpolated after a shift of their exponents.
    small = (jnp.abs(lower) < 1) & (jnp.abs(upper) < 1)
    shifted = _shift_down(lerp(_shift_up(lower), _shift_up(upper)))
    result = jnp.where(small, _bits(shifted), _bits(lerp(lower, upper)))
    entry = (fraction == 0) & jnp.isfinite(upper - lower)
    result = jnp.where(entry, _bits(lower), result)
    if dtype == jnp.bfloat16:
        return _narrow_bfloat16(result)
    return jax.lax.bitcast_convert_type(result, wide).astype(dtype)


def _bits(x: jax.Array) -> jax.Array:
    return jax.lax.bitcast_convert_type(x, _format(x.dtype).integer)


def _sign_and_magnitude(x: jax.Array):
    bits = _bits(x)
    sign = bits & jnp.iinfo(bits.dtype).min
    return sign, bits ^ sign


def _exponent_shift(dtype) -> int:
    return _format(dtype).bias // 2


def _shift_up(x: jax.Array) -> jax.Array:
    """Returns x * 2**shift for |x| < 1, exact for subnormal x too."""
    _, mantissa, bias = _format(x.dtype)
    shift = _exponent_shift(x.dtype)
    sign, magnitude = _sign_and_magnitude(x)
    subnormal = magnitude.astype(x.dtype) * 2.0 ** (1 - bias - mantissa + shift)
    bits = jnp.where(
        magnitude < (1 << mantissa), _bits(subnormal), magnitude + (shift << mantissa)
    )
    return jax.lax.bitcast_convert_type(bits | sign, x.dtype)


def _shift_down(x: jax.Array) -> jax.Array:
    """Returns x * 2**-shift, rounded once, to a subnormal where it is one."""
    integer, mantissa, bias = _format(x.dtype)
    shift = _exponent_shift(x.dtype)
    sign, magnitude = _sign_and_magnitude(x)
    subnormal = jnp.round(jnp.abs(x) * 2.0 ** (bias + mantissa - 1 - shift))
    bits = jnp.where(
        magnitude < ((shift + 1) << mantissa),
        subnormal.astype(integer),
        magnitude - (shift << mantissa),
    )
    return jax.lax.bitcast_convert_type(bits | sign, x.dtype)


def _widen_bfloat16(x: jax.Array) -> jax.Array:
    return jax.lax.bitcast_convert_type(_bits(x).astype(jnp.int32) << 16, jnp.float32)


def _narrow_bfloat16(bits: jax.Array) -> jax.Array:
    """Bits of a float32 to the nearest bfloat16, ties to even."""
    half = 0x7FFF + ((bits >> 16) & 1)
    return jax.lax.bitcast_convert_type(
        ((bits + half) >> 16).astype(jnp.int16), jnp.bfloat16
    )
