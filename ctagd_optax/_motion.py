"""What a step's motion tells: products of gradients with the last two moves.

Everything is done in place. XLA may write a vector over an old one as soon as nothing
reads that any more, and here each operation needs the one before it. It also keeps what
a division made, where it would calculate a sum or a product again for each use.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from ctagd_optax._trees import choose, entries, places, stack, totals, widest


class Motion(NamedTuple):
    """What is seen of a step; vectors have an entry per tensor."""

    params: optax.Params  # θ_t
    motion: Any  # v_{t-1}
    older: jax.Array  # ⟨v_{t-2}, g_t⟩
    promise: jax.Array  # ⟨u, g⟩ of the backbone's update u
    own_square: jax.Array  # ‖u‖²
    own_sum: jax.Array  # a weighted sum of its entries
    overlap: jax.Array  # ⟨v_{t-1}, g_t⟩
    square: jax.Array  # ‖v_{t-1}‖²
    sum: jax.Array  # a weighted sum of its entries
    params_square: jax.Array  # ‖θ_t‖²


def see(
    previous_params: optax.Params,
    previous_motion: Any,
    multiplier: jax.Array,
    params: optax.Params,
    gradients: optax.Updates,
    updates: optax.Updates,
) -> tuple[tuple[jax.Array, ...], Motion]:
    """Looks at a step, from the parameters and the motion before it.

    Args:
      previous_params: θ_{t-1}.
      previous_motion: v_{t-2}.
      multiplier: m_{t-1}, an entry per tensor or one for all.
      params: θ_t.
      gradients: g_t.
      updates: the backbone's.

    Returns:
      ‖g_t‖² of each tensor, and the :class:`Motion`.
    """
    tree, leaves = jax.tree.structure(params), jax.tree.leaves
    g, u = leaves(gradients), leaves(updates)
    before, old = leaves(previous_params), leaves(previous_motion)
    scale = entries(multiplier, len(g))
    weights = [_weights(x) for x in g]
    own = _products(((0, 1), (2, 1), (2, 2), (2, 3)), old, g, u, weights)
    motion = list(map(_move, leaves(params), before, scale, old, own))
    after = list(map(_follow, before, scale, motion))
    # Its products now and at the next step must have the same rounding.
    motion = list(map(_as_kept, motion, old))
    pairs = (1, 1), (0, 1), (0, 0), (0, 2), (3, 3)
    seen = _products(pairs, motion, g, weights, leaves(params))
    figures = [(*a, *b[1:]) for a, b in zip(own, seen, strict=True)]
    columns = map(stack, zip(*figures, strict=True)) if figures else [stack([])] * 8
    sizes = tuple(size for size, *_ in seen)
    kept = [v.astype(x.dtype) for v, x in zip(motion, old, strict=True)]
    return sizes, Motion(tree.unflatten(after), tree.unflatten(kept), *columns)


def _products(
    pairs: tuple[tuple[int, int], ...], *lists: list[jax.Array]
) -> list[tuple[jax.Array, ...]]:
    """For each tensor, the sums of the products of what is at these places."""

    def terms(*tensors):
        dtype = widest(tensors)
        tensors = [x.astype(dtype) for x in tensors]
        return [tensors[i] * tensors[j] for i, j in pairs]

    return totals(list(map(terms, *lists)))


def _weights(x: jax.Array) -> jax.Array:
    """Numbers from -1 to 1 that look random, a function of the place alone.

    Entries that cancel, as those of a softmax layer do, do not cancel with weights.
    """
    signed = jax.lax.bitcast_convert_type(places(x), jnp.int32)
    return signed.astype(jnp.float32) * jnp.float32(2**-31)


def _move(params, before, scale, old, own):
    """v_{t-1}; nothing where the old one has no finite product with the gradient."""
    dtype = widest((params, old))
    moved = params.astype(dtype) - before.astype(dtype)
    return choose(own[0] < jnp.inf, moved, 0) / scale.astype(dtype)


def _as_kept(motion, old):
    """The motion with the digits that are kept of it."""
    kept = jnp.finfo(old.dtype)
    if kept.bits >= jnp.finfo(motion.dtype).bits:
        return motion
    # XLA may leave out a cast there and back.
    return jax.lax.reduce_precision(motion, kept.nexp, kept.nmant)


def _follow(before, scale, motion):
    """θ_t as it was given, but for rounding."""
    params = before.astype(motion.dtype) + scale.astype(motion.dtype) * motion
    return jnp.where(jnp.isnan(params), 0, params).astype(before.dtype)
