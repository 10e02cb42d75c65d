"""Estimates that lean on each other as far as they are unsure."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from ctagd_optax._curvature import CurvatureEstimate
from ctagd_optax._transform import map_with_index, per_tensor

# Fewer values tell too little of how they spread.
_FEWEST = 4
# A mean whose weights cancel to less than this is none.
_WEAKEST = 1e-3
# Bounds of log2(τ² / scale²), halved this often: to within a hundredth of an octave.
_BOUNDS = -120.0, 5.0
_HALVINGS = 14


class _Tensor(NamedTuple):
    """A tensor's estimates, in units in which nothing is above 1.

    Attributes:
      known: where there is a value and its standard error.
      usable: whether there are enough of them, and a mean.
      mean: their weighted mean, in its own units.
      distance: from the mean; 0 where nothing is known.
      variance: the squared standard error, likewise.
      mean_spread: Σ a², how much of τ² the mean has.
      mean_variance: Σ a² se², how much of their errors.
    """

    known: jax.Array
    usable: jax.Array
    mean: jax.Array
    distance: jax.Array
    variance: jax.Array
    mean_spread: jax.Array
    mean_variance: jax.Array


def shrink_to_means(estimate: CurvatureEstimate, weight: Any) -> CurvatureEstimate:
    r"""Moves each value towards the mean of its tensor, as far as it is unsure.

    If the true values of a tensor spread about :math:`\mu` with the variance
    :math:`\tau^2`, and the estimates :math:`\widehat h_i` about them with their
    standard errors, the best linear guess of each is

    .. math::

        \tilde h_i = r_i\,\widehat h_i + (1 - r_i)\,\mu, \qquad
        r_i = \frac{\omega^2}{\omega^2 + \mathrm{se}_i^2}, \qquad
        \omega^2 = \tau^2 + \sum_i a_i^2\,(\tau^2 + \mathrm{se}_i^2),

    where the last sum is the variance of the mean :math:`\mu = \sum_i a_i \widehat h_i`
    itself. Its weights :math:`a_i` are given, and not those of the standard errors, as
    estimates which are too large may claim to be sure. :math:`\tau^2` is where

    .. math::

        \sum_i \frac{(\widehat h_i - \mu)^2 - (\omega^2 - \tau^2)}
                    {\tau^2 + \mathrm{se}_i^2} = n - 2

    for :math:`n` values, which is what the sum is on average (after Paule and Mandel,
    1982), and 0 where they spread less than their errors say. The squared standard
    error of the guess is :math:`r_i^2\,\mathrm{se}_i^2 + (1 - r_i)^2 \omega^2`, with
    the :math:`\tau^2` at which the sum is a standard deviation of chance,
    :math:`\sqrt{2(n - 1)}`, less. That a value is a part of its mean is left out.

    All this takes values for unbiased, and their errors for independent. A bias that
    values share stays, while their standard errors shrink.

    Coordinates without evidence, or without a standard error, stay as they are, and
    take no part; so do tensors with less than four others. Under differentiation
    :math:`\mu` and :math:`r_i` are constants.

    Args:
      estimate: values with standard errors.
      weight: tree like the values: the weight of each in its tensor's mean; where
        values are quotients, their denominators make it that of the sums.

    Returns:
      The estimate with these values and standard errors.

    Examples:
      >>> import jax.numpy as jnp
      >>> from ctagd_optax._curvature import CurvatureEstimate
      >>> from ctagd_optax._shrinkage import shrink_to_means
      >>> value = jnp.asarray([1.0, 2.0, 3.0, 4.0, 50.0])
      >>> error = jnp.asarray([0.1, 0.1, 0.1, 0.1, 50.0])
      >>> found = shrink_to_means(
      ...     CurvatureEstimate(value, value > 0, error), weight=1 / error
      ... )
      >>> print(found.value.round(), found.standard_error.round())
      [1. 2. 3. 4. 3.] [0. 0. 0. 0. 5.]
    """
    leaves, structure = jax.tree.flatten(estimate.value)
    tensors = [
        _prepare(*each)
        for each in zip(
            leaves,
            *map(
                structure.flatten_up_to,
                (estimate.observed, estimate.standard_error, weight),
            ),
            strict=True,
        )
    ]
    counts = per_tensor(jnp.sum, [x.known for x in tensors])
    chance = jnp.sqrt(2 * jnp.maximum(counts - 1, 0))
    aims = jnp.stack([counts - 2, counts - 2 - chance])  # of the guess, of its error

    def misfits(spreads):
        def misfit(i):
            x, spread = tensors[i], spreads[i].astype(tensors[i].variance.dtype)
            own = spread * x.mean_spread + x.mean_variance
            return jnp.sum(
                jnp.where(
                    x.known, (jnp.square(x.distance) - own) / (x.variance + spread), 0
                )
            )

        return per_tensor(misfit, list(range(len(tensors))))

    def halve(_, bounds):
        low, high = bounds
        middle = (low + high) / 2
        wider = jnp.stack([misfits(each) for each in jnp.exp2(middle)]) > aims
        return jnp.where(wider, middle, low), jnp.where(wider, high, middle)

    # One loop for all tensors, as a loop for each would take long to compile.
    bounds = tuple(jnp.full_like(aims, x) for x in _BOUNDS)
    low, high = jax.lax.fori_loop(0, _HALVINGS, halve, bounds)
    spreads = jnp.exp2((low + high) / 2)

    def prior(which, i):
        """ω² of the guess (0), or of its error (1)."""
        x, spread = tensors[i], spreads[which, i].astype(tensors[i].variance.dtype)
        return spread * (1 + x.mean_spread) + x.mean_variance

    def parts(i):
        """r, and what it leaves for the mean."""
        x, spread = tensors[i], prior(0, i)
        lost = jnp.where(x.known & x.usable, x.variance / (x.variance + spread), 0)
        # Not as a difference where that would round.
        return jnp.where(lost < 0.5, 1 - lost, spread / (x.variance + spread)), lost

    def value(i, h):
        kept, lost = parts(i)
        return kept * h + lost * tensors[i].mean

    def standard_error(i, error):
        (kept, lost), variance = parts(i), tensors[i].variance
        doubt = jnp.square(lost) * prior(1, i) / jnp.where(variance > 0, variance, 1)
        return jnp.sqrt(jnp.square(kept) + doubt) * error

    return estimate._replace(
        value=map_with_index(value, estimate.value),
        standard_error=map_with_index(standard_error, estimate.standard_error),
    )


def _prepare(value, observed, error, weight) -> _Tensor:
    value, error, weight = jax.lax.stop_gradient((value, error, weight))
    known = observed & jnp.isfinite(value) & jnp.isfinite(error) & jnp.isfinite(weight)
    weight = jnp.where(known, weight.astype(value.dtype), 0)
    total = jnp.sum(weight)
    strong = jnp.abs(total) > _WEAKEST * jnp.sum(jnp.abs(weight))
    share = jnp.where(strong, weight / jnp.where(strong, total, 1), 0)
    mean = jnp.sum(share * jnp.where(known, value, 0))
    distance = jnp.where(known, value - mean, 0)
    error = jnp.where(known, error, 0)
    scale = jnp.max(jnp.maximum(jnp.abs(distance), error), initial=0)
    usable = strong & (scale > 0) & (scale < jnp.inf) & (jnp.sum(known) >= _FEWEST)
    scale = jnp.where(usable, scale, 1)
    variance = jnp.where(usable, jnp.square(error / scale), 0)
    return _Tensor(
        known=known,
        usable=usable,
        mean=jnp.where(usable, mean, 0),
        distance=jnp.where(usable, distance / scale, 0),
        variance=variance,
        mean_spread=jnp.sum(jnp.square(share)),
        mean_variance=jnp.sum(jnp.square(share) * variance),
    )
