"""Estimates that lean on each other as far as they are unsure."""

import jax
import jax.numpy as jnp

from ctagd_optax._curvature import CurvatureEstimate

# Fewer values tell too little of how they spread.
_FEWEST = 4
# Bounds of log2(τ² / max h²), halved this often: to within a hundredth of an octave.
_BOUNDS = -80.0, 1.0
_HALVINGS = 13


def shrink_to_means(estimate: CurvatureEstimate) -> CurvatureEstimate:
    r"""Moves each value towards the mean of its tensor, as far as it is unsure.

    If the true values :math:`h_i` of a tensor spread about :math:`\mu` with the
    variance :math:`\tau^2`, and the estimates about them with their standard errors,
    the best linear guess of each is

    .. math::

        \tilde h_i = \mu + r_i\,(\widehat h_i - \mu), \qquad
        r_i = \frac{\tau^2}{\tau^2 + \mathrm{se}_i^2}, \qquad
        \mu = \sum_i w_i \widehat h_i \Big/ \sum_i w_i, \qquad
        w_i = \frac{1}{\tau^2 + \mathrm{se}_i^2} .

    :math:`\tau^2` is where :math:`\sum_i w_i (\widehat h_i - \mu)^2` is one less than
    the number of values (Paule and Mandel, 1982); 0 where they spread less than their
    errors say. One value known exactly does not decide it, nor one that is far off and
    says so.

    Coordinates without evidence, or without a standard error, stay as they are, and
    take no part; so do tensors with less than four others. Under differentiation
    :math:`\mu` and :math:`r_i` are constants.

    Args:
      estimate: values with standard errors.

    Returns:
      The estimate with other values, and with the standard errors that they have.

    Examples:
      >>> import jax.numpy as jnp
      >>> from ctagd_optax._curvature import CurvatureEstimate
      >>> from ctagd_optax._shrinkage import shrink_to_means
      >>> value = jnp.asarray([1.0, 2.0, 3.0, 4.0, 50.0])
      >>> error = jnp.asarray([0.1, 0.1, 0.1, 0.1, 50.0])
      >>> found = shrink_to_means(CurvatureEstimate(value, value > 0, error))
      >>> print(found.value.round(1), found.standard_error.round(1))
      [1.  2.  3.  4.  2.5] [0.1 0.1 0.1 0.1 1.4]
    """

    def one(value, observed, error):
        known = observed & jnp.isfinite(error) & jnp.isfinite(value)
        count = jnp.sum(known, dtype=value.dtype)
        # Relative to the largest, so that no square leaves the range of 32 bits.
        largest = jnp.max(jnp.where(known, jnp.abs(value), 0), initial=0)
        scale = jnp.where(largest > 0, largest, 1)
        h = jnp.where(known, value / scale, 0)
        variance = jnp.where(known, jnp.square(error / scale), jnp.inf)

        def weigh(log):
            w = 1 / (variance + jnp.exp2(log))
            total = jnp.sum(w)
            total = jnp.where(total > 0, total, 1)
            return w, total, jnp.sum(w * h) / total

        def halve(_, bounds):
            low, high = bounds
            middle = (low + high) / 2
            w, _, mean = weigh(middle)
            wider = jnp.sum(w * jnp.square(h - mean)) > count - 1
            return jnp.where(wider, middle, low), jnp.where(wider, high, middle)

        bounds = tuple(jnp.asarray(x, h.dtype) for x in _BOUNDS)
        log = sum(jax.lax.fori_loop(0, _HALVINGS, halve, bounds)) / 2
        w, total, mean = weigh(log)
        moves = known & (count >= _FEWEST)
        # r and 1 - r, the smaller of them not as a difference, which would round.
        lost = jnp.where(variance < jnp.inf, variance * w, 1)
        kept = jnp.where(lost < 0.5, 1 - lost, jnp.exp2(log) * w)
        rest = lost * jnp.exp2(log) + jnp.square(lost) / total
        shrunk = jax.lax.stop_gradient(kept) * value
        shrunk += jax.lax.stop_gradient(lost * mean * scale)
        return (
            jnp.where(moves, shrunk, value),
            jnp.where(moves, scale * jnp.sqrt(rest), error),
        )

    leaves, structure = jax.tree.flatten(estimate.value)
    found = [
        one(*each)
        for each in zip(
            leaves,
            structure.flatten_up_to(estimate.observed),
            structure.flatten_up_to(estimate.standard_error),
            strict=True,
        )
    ]
    return estimate._replace(
        value=structure.unflatten([value for value, _ in found]),
        standard_error=structure.unflatten([error for _, error in found]),
    )
