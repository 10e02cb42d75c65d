"""The end of an epoch in the paper's method, as a pure function."""

import numbers
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.typing import ArrayLike

from ctagd_optax._checks import check_choice, check_number, concrete
from ctagd_optax._estimators.base import CurvatureEstimate
from ctagd_optax._quantile import clipped_quantiles
from ctagd_optax._trees import choose, map_with_index, stack, totals, wide, widest


class CurvatureInfo(NamedTuple):
    """How far the curvature of the last closed epoch can be trusted.

    Every field is a vector with one entry per tensor, in the order of
    ``jax.tree.leaves``. All are zero until an epoch has been closed.

    Attributes:
      observed: share of coordinates with any evidence. Where it is low, γ and the
        correction come from the clamp, not from curvature.
      clamped_low: share of coordinates whose estimate was raised to ``curvature_min``;
        with ``unobserved="clamp"`` those without evidence are among them.
      clamped_high: share of coordinates lowered to ``curvature_max``.
      relative_correction: norm of the correction over the norm of the tensor;
        infinite where that is 0 or NaN.
      left_out: samples left out of the epoch because the gradient was not finite, and
        the correction if it would take float16 parameters out of range.
    """

    observed: jax.Array
    clamped_low: jax.Array
    clamped_high: jax.Array
    relative_correction: jax.Array
    left_out: jax.Array


def close_epoch(
    estimate: CurvatureEstimate,
    gradients: optax.Updates,
    params: optax.Params,
    *,
    correction_rate: ArrayLike = 0.5,
    curvature_min: ArrayLike = 0.1,
    curvature_max: ArrayLike = 10.0,
    quantile: ArrayLike = 0.1,
    unobserved: str = "clamp",
    left_out: jax.Array | None = None,
) -> tuple[jax.Array, optax.Updates, CurvatureInfo]:
    r"""Turns an epoch's curvature estimate into a divisor and a correction step.

    .. math::

        \widehat H = \min(\max(h, \lambda_{\min}), \lambda_{\max}), \qquad
        \gamma = Q_\omega(\widehat H), \qquad
        \Delta\theta = -\eta_2\, \tilde g / \widehat H

    This is the pure function that :func:`ct_agd` runs under ``lax.cond`` at the last
    step of an epoch. It jits on its own.

    Args:
      estimate: the raw curvature :math:`h`, see :class:`CurvatureEstimate`.
      gradients: the gradient :math:`\tilde g` to correct along.
      params: the parameters; the correction's norm is reported relative to theirs.
      correction_rate: :math:`\eta_2`.
      curvature_min: :math:`\lambda_{\min}`.
      curvature_max: :math:`\lambda_{\max}`.
      quantile: :math:`\omega`.
      unobserved: "clamp" treats a coordinate without evidence as having the curvature
        0, as the paper's formula does; "skip" leaves it out of the correction and of
        the quantile. A tensor without any is left alone in both.
      left_out: for each tensor, the number of samples left out, for the info.

    Returns:
      ``(gamma, correction, info)``: :math:`\gamma`, one entry per tensor and 1 where
      there is no evidence; the step :math:`\Delta\theta` to add to the parameters,
      0 for tensors where its square is not finite; and the :class:`CurvatureInfo`.

    Examples:
      >>> import jax, jax.numpy as jnp
      >>> from ctagd_optax import close_epoch, CurvatureEstimate
      >>> estimate = CurvatureEstimate(
      ...     value=jnp.asarray([0.0, 2.0, 4.0, 500.0]),
      ...     observed=jnp.asarray([False, True, True, True]),
      ... )
      >>> gamma, correction, info = jax.jit(close_epoch, static_argnames="unobserved")(
      ...     estimate, gradients=jnp.ones(4), params=jnp.ones(4), unobserved="skip"
      ... )
      >>> print(gamma, correction, info.observed)
      [2.4] [-0.    -0.25  -0.125 -0.05 ] [0.75]
    """
    check_choice("unobserved", unobserved, ("clamp", "skip"))
    check_boundary(correction_rate, curvature_min, curvature_max, quantile)
    bounds = curvature_min, curvature_max
    # NaN is no evidence, as are sums that overflowed both ways.
    raw = jax.tree.map(
        lambda h, o: choose(o, h.astype(wide(h.dtype)), jnp.nan),
        estimate.value,
        estimate.observed,
    )

    def masks(h):
        low, high = (jnp.asarray(bound, h.dtype) for bound in bounds)
        return h < low, h > high, h == h  # which NaN is not

    counts = totals(
        [[x.astype(jnp.int32) for x in masks(h)] for h in jax.tree.leaves(raw)]
    )
    low, high, observed = (
        stack([each[i] for each in counts], jnp.int32) for i in range(3)
    )
    sizes = np.asarray([h.size for h in jax.tree.leaves(raw)], np.int32)
    skip = unobserved == "skip"
    gamma = _divisors(
        jax.tree.leaves(raw), quantile, bounds, observed, observed if skip else sizes
    )
    # Always so. With it, XLA writes corrections after the search, where ``raw`` was.
    searched = jnp.all(gamma > 0)

    def correct(i, g, h):
        low, high = (jnp.asarray(bound, h.dtype) for bound in bounds)
        # A tensor without any evidence is left alone.
        there = searched & (counts[i][2] > 0)
        if skip:
            there &= h == h
        h = jnp.where(h > low, jnp.minimum(h, high), low)  # low where it is NaN
        product = -jnp.asarray(correction_rate, h.dtype) * g.astype(h.dtype)
        # -0 is no correction: u + 0 would lose the sign of a zero.
        return choose(there, product, -0.0) / h

    correction = map_with_index(correct, gradients, raw)
    squares = _squares(*jax.lax.stop_gradient((correction, params)))
    correction = map_with_index(
        lambda i, c: choose(squares[i][0] < jnp.inf, c, -0.0), correction
    )
    length, scale = (jnp.sqrt(stack([each[i] for each in squares])) for i in range(2))
    unchanged = (length == 0) | ~jnp.isfinite(length)
    relative = jnp.where(unchanged, 0, length / scale)
    there = observed > 0

    def share(counts):
        return counts.astype(jnp.float32) / np.maximum(sizes, 1).astype(np.float32)

    info = CurvatureInfo(
        observed=share(observed),
        clamped_low=jnp.where(there, share(low if skip else low + sizes - observed), 0),
        clamped_high=share(high),
        relative_correction=jnp.where(jnp.isnan(relative), jnp.inf, relative),
        left_out=jnp.zeros(gamma.shape, jnp.int32) if left_out is None else left_out,
    )
    return jnp.where(there, gamma, 1), correction, jax.lax.stop_gradient(info)


def _divisors(
    curvature: list[jax.Array],
    quantile: ArrayLike,
    bounds: tuple[ArrayLike, ArrayLike],
    observed: jax.Array,
    entries: np.ndarray | jax.Array,
) -> jax.Array:
    """γ of each tensor: the quantile of its clamped curvature."""
    gamma = jnp.ones((len(curvature),), jnp.float32)
    omega = float(quantile) if isinstance(quantile, numbers.Real) else quantile
    by_dtype: dict[Any, list[int]] = {}
    for i, h in enumerate(curvature):
        by_dtype.setdefault(h.dtype, []).append(i)
    for positions in by_dtype.values():
        at = np.asarray(positions)
        found = clipped_quantiles(
            [curvature[i] for i in positions], omega, bounds, observed[at], entries[at]
        )
        gamma = gamma.at[at].set(found.astype(jnp.float32))
    return gamma


def _squares(*trees: Any) -> list[tuple[jax.Array, ...]]:
    """For each tensor, its sum of squares in each tree."""
    leaves = zip(*map(jax.tree.leaves, trees), strict=True)
    return totals([[x.astype(widest(each)) ** 2 for x in each] for each in leaves])


def check_boundary(
    correction_rate: Any, curvature_min: Any, curvature_max: Any, quantile: Any
) -> None:
    """Checks the numbers that close an epoch; traced ones are taken as they come."""
    check_number("correction_rate", correction_rate, 0)
    for name, bound in (
        ("curvature_min", curvature_min),
        ("curvature_max", curvature_max),
    ):
        check_number(name, bound, 0, above=True)
        number, finfo = concrete(name, bound), jnp.finfo(jnp.float32)
        least, most = float(finfo.tiny), float(finfo.max)
        if number is not None and not least <= number <= most:
            raise ValueError(
                f"{name} must be from {least:.2g} to {most:.2g}, the range of float32; "
                f"got {bound}"
            )
    low = concrete("curvature_min", curvature_min)
    high = concrete("curvature_max", curvature_max)
    if low is not None and high is not None and low > high:
        raise ValueError(
            "curvature_min must be at most curvature_max, got "
            f"{curvature_min} and {curvature_max}"
        )
    omega = concrete("quantile", quantile)
    if omega is not None and not 0 <= omega <= 1:
        raise ValueError(f"quantile must be in [0, 1], got {quantile}")
