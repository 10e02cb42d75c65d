"""Regression of gradients on parameters."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from ctagd_optax._checks import check_choice, check_number
from ctagd_optax._curvature import (
    CurvatureEstimate,
    CurvatureEstimator,
    accumulate,
    accumulators,
    counters,
    fill,
    square_root,
)
from ctagd_optax._shrinkage import shrink_to_means
from ctagd_optax._transform import map_with_index, wide


class RegressionEvidence(NamedTuple):
    """Weighted means and second moments, by Welford's recursion.

    Attributes:
      params_mean: θ̄, the mean of the parameters.
      gradients_mean: ḡ, the mean of the gradients.
      params_params: Σ w·(θ - θ̄)².
      params_gradients: Σ w·(θ - θ̄)(g - ḡ).
      gradients_gradients: Σ w·(g - ḡ)².
      weight: for each tensor, Σ w.
      squared_weight: for each tensor, Σ w².
      sample_count: for each tensor, the samples.
    """

    params_mean: Any
    gradients_mean: Any
    params_params: Any
    params_gradients: Any
    gradients_gradients: Any
    weight: jax.Array
    squared_weight: jax.Array
    sample_count: jax.Array


def regression(
    weighting: str = "uniform", window: ArrayLike = 50.0, *, shrink: bool = True
) -> CurvatureEstimator:
    r"""Regression of the gradient on the parameter, coordinate by coordinate.

    .. math::

        \widehat H = \frac{\sum_t w_t (\theta_t - \bar\theta)(g_t - \bar g)}
                          {\sum_t w_t (\theta_t - \bar\theta)^2}.

    The noise in :math:`g_t` comes after :math:`\theta_t`, so it does not bias each
    product as it does a secant. The sums are kept by Welford's recursion, which
    subtracts running means, with a mean that forgets:

    .. math::

        r_t = \max\Bigl(\frac{w_t}{\sum_{s \le t} w_s}, \frac1N\Bigr), \qquad
        \bar g \leftarrow \bar g + r_t (g_t - \bar g), \qquad
        S_{\theta g} \leftarrow S_{\theta g}
            + w_t (1 - r_t)(\theta_t - \bar\theta)(g_t - \bar g).

    The window :math:`N` is a compromise. Over a long one, parameters under noise alike
    in all directions spread as :math:`H^{-1}`, and the regression of a full Hessian
    tends to :math:`1/(H^{-1})_{ii}`, which is below :math:`H_{ii}`. Over a short one
    they walk as noise pushes them, and the mean gradient holds noise that they have
    answered to, which adds about one over :math:`N` times the learning rate (and times
    one minus the momentum). An infinite window is the plain regression over the epoch.
    In networks noise follows the Hessian, which turns this around: in the long run
    their parameters spread more alike in all directions, so that long windows come
    closer to :math:`H_{ii}`, while short ones see the curvature along the noise, which
    is larger.

    The mean gradient :math:`\bar g` doubles as :func:`ct_agd`'s average gradient
    :math:`\tilde g`, which then needs no vector of its own. With linear weights and an
    infinite window it is the paper's, with a finite one that of about the last
    :math:`N` steps.

    The standard error is that of a regression with independent residuals,

    .. math::

        \mathrm{se}^2 = \frac{S_{gg} / S_{\theta\theta} - \widehat H^2}{n' - 2},
        \qquad n' = \Bigl(\sum_t w_t\Bigr)^2 \Big/ \sum_t w_t^2 .

    It covers neither of the two biases above.

    Coordinates that are unsure lean on the others of their tensor: each value moves
    towards :math:`\mu = \sum_i S_{\theta g,i} / \sum_i S_{\theta\theta,i}` by the
    share :math:`\mathrm{se}^2 / (\mathrm{se}^2 + \omega^2)` of its way, with
    :math:`\omega^2` the variance of the true values about :math:`\mu`, as it is seen
    behind their errors. The standard error that is reported is that of the result.
    Tensors with less than four coordinates stay as they are.

    :math:`\varepsilon` plays no part. A coordinate is observed when it has moved and
    there are three samples, as a line through two always fits.

    Args:
      weighting: "uniform" weighs every step by 1; "linear" weighs step t by t, as the
        paper does, and so tells less of an epoch that starts far from the minimum.
      window: steps :math:`N` that the means look back; ``math.inf`` is the epoch.
      shrink: whether coordinates lean on their tensor as above, which takes about as
        long as the rest of an epoch's end; False takes each for itself.

    Returns:
      A :class:`CurvatureEstimator`. It keeps five vectors, and saves
      :func:`ct_agd`'s own.

    Examples:
      >>> import jax.numpy as jnp, optax
      >>> import ctagd_optax
      >>> estimator = ctagd_optax.regression()
      >>> opt = ctagd_optax.ct_agd(
      ...     optax.sgd(0.1), steps_per_epoch=5, estimator=estimator
      ... )
      >>> params = jnp.asarray([1.0, -2.0])
      >>> state = opt.init(params)
      >>> for _ in range(5):
      ...     gradients = jnp.asarray([1.0, 4.0]) * params
      ...     updates, state = opt.update(gradients, state, params)
      ...     params = optax.apply_updates(params, updates)
      >>> estimate = estimator.estimate(state.evidence.curvature, eps=0.0)
      >>> print(estimate.value.round(3), estimate.count)
      [1. 4.] [5 5]
    """
    check_choice("weighting", weighting, ("linear", "uniform"))
    check_number("window", window, 1, above=True, infinite=True)

    def init(params, accumulator_dtype):
        def sums():
            return accumulators(params, accumulator_dtype)

        evidence = RegressionEvidence(
            # Differences from the means need every bit, and a coarse one stops moving.
            params_mean=accumulators(params, None),
            gradients_mean=accumulators(params, None),
            params_params=sums(),
            params_gradients=sums(),
            gradients_gradients=sums(),
            weight=counters(params, jnp.float32),
            squared_weight=counters(params, jnp.float32),
            sample_count=counters(params),
        )
        return evidence, None

    def observe(evidence, memory, step, eps, **extra_args):
        del memory, eps, extra_args
        start = step.epoch_step == 0
        t = step.epoch_step if weighting == "linear" else jnp.ones_like(step.epoch_step)
        w = jnp.where(step.finite, t, 0).astype(jnp.float32)
        weight = accumulate(evidence.weight, w, start)
        share = jnp.where(
            w > 0,
            jnp.maximum(
                w / jnp.where(weight > 0, weight, 1),
                1 / jnp.asarray(window, jnp.float32),
            ),
            0,
        )

        def deviations(values, means):
            def deviation(i, x, mean, p):
                dtype = wide(p.dtype)
                mean = jnp.where(start, 0, mean).astype(dtype)
                return jnp.where(step.finite[i], x.astype(dtype) - mean, 0)

            return map_with_index(deviation, values, means, step.params)

        dx = deviations(step.params, evidence.params_mean)
        dg = deviations(step.gradients, evidence.gradients_mean)

        def move(means, by):
            return map_with_index(
                lambda i, mean, d: accumulate(
                    mean, share[i].astype(d.dtype) * d, start
                ),
                means,
                by,
            )

        def add(totals, a, b):
            scale = w * (1 - share)
            return map_with_index(
                lambda i, s, x, y: accumulate(
                    s, scale[i].astype(x.dtype) * x * y, start
                ),
                totals,
                a,
                b,
            )

        return RegressionEvidence(
            params_mean=move(evidence.params_mean, dx),
            gradients_mean=move(evidence.gradients_mean, dg),
            params_params=add(evidence.params_params, dx, dx),
            params_gradients=add(evidence.params_gradients, dx, dg),
            gradients_gradients=add(evidence.gradients_gradients, dg, dg),
            weight=weight,
            squared_weight=accumulate(evidence.squared_weight, w**2, start),
            sample_count=accumulate(
                evidence.sample_count, (w > 0).astype(jnp.int32), start
            ),
        )

    def remember(memory, step):
        del step
        return memory

    def estimate(evidence, eps):
        del eps
        count = evidence.sample_count
        moments = (
            evidence.params_params,
            evidence.params_gradients,
            evidence.gradients_gradients,
        )
        effective = evidence.weight**2 / jnp.where(
            evidence.squared_weight > 0, evidence.squared_weight, 1
        )

        def observed(i, xx, *_):
            return (xx > 0) & (count[i] >= 3)

        def value(i, xx, xg, *_):
            dtype, seen = wide(xx.dtype), observed(i, xx)
            slope = xg.astype(dtype) / jnp.where(seen, xx.astype(dtype), 1)
            return jnp.where(seen, slope, 0)

        def standard_error(i, xx, xg, gg):
            dtype, h = wide(xx.dtype), value(i, xx, xg)
            freedom = effective[i] - 2
            known = observed(i, xx) & (freedom > 0)
            spread = gg.astype(dtype) / jnp.where(known, xx.astype(dtype), 1) - h**2
            spread /= jnp.where(freedom > 0, freedom, 1).astype(dtype)
            return jnp.where(known, square_root(spread), jnp.inf)

        found = CurvatureEstimate(
            value=map_with_index(value, *moments),
            observed=map_with_index(observed, *moments),
            standard_error=map_with_index(standard_error, *moments),
            count=fill(count, evidence.params_params),
        )
        return shrink_to_means(found, evidence.params_params) if shrink else found

    def mean_gradient(evidence):
        return jax.tree.map(
            lambda mean: mean.astype(wide(mean.dtype)), evidence.gradients_mean
        )

    return CurvatureEstimator(init, observe, remember, estimate, mean_gradient)
