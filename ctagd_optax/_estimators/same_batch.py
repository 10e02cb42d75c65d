"""Gradient differences on one batch, in which the noise cancels."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from ctagd_optax._checks import check_whole
from ctagd_optax._estimators.base import (
    CurvatureEstimate,
    CurvatureEstimator,
    accumulate_products,
    differences,
    fill,
    random_signs,
    square_root,
)
from ctagd_optax._sums import accumulate, accumulators, resolution, values
from ctagd_optax._trees import (
    all_finite,
    counters,
    map_with_index,
    stack,
)


class SameBatchEvidence(NamedTuple):
    """Rolling sums over the samples of an epoch.

    Attributes:
      displacement_square: Σ Δθ².
      displacement_change: Σ Δθ·Δg.
      change_square: Σ Δg².
      sample_count: for each tensor, the samples.
    """

    displacement_square: Any
    displacement_change: Any
    change_square: Any
    sample_count: jax.Array


def same_batch(every: ArrayLike = 1, seed: ArrayLike = 0) -> CurvatureEstimator:
    r"""Gradient differences on one batch, for one more gradient at every n-th step.

    .. math::

        \widehat H = \frac{\sum_t \Delta\theta_t\, \Delta g_t}
                          {\sum_t \Delta\theta_t^2}, \qquad
        \Delta g_t = g(\theta_t + \Delta\theta_t; B_t) - g(\theta_t; B_t),

    all per coordinate. Both gradients are of the batch :math:`B_t`, so what they differ
    by is curvature, not noise. ``update`` takes, at every step, either

    - ``grad_fn``: a function of parameters that returns the gradients of this step's
      batch, just as ``update`` receives them. It is called at every n-th step, under
      ``lax.cond``, at :math:`\Delta\theta_t = v_t \odot u_t`: as far away as the
      backbone's update :math:`u_t`, but with signs :math:`v_{t,i} = \pm 1` at random;
      or
    - ``second_params`` and ``second_gradients``: another point of your choice, such as
      the parameters of the step before, and the gradients of this step's batch there.
      They are read at every n-th step.

    A full Hessian adds :math:`\sum_{j \ne i} H_{ij} \sum_t \Delta\theta_{t,i}
    \Delta\theta_{t,j} / \sum_t \Delta\theta_{t,i}^2`. With random signs its mean is 0,
    so the estimate is unbiased; along the steps themselves it is not, as they follow
    gradients, and those follow the Hessian. Least squares weighs a sample by its
    :math:`\Delta\theta^2`: an average of quotients would let the shortest displacements
    decide, of which the rest of the Hessian makes the most.

    The standard error is that of least squares with independent residuals,

    .. math::

        \mathrm{se}^2 = \frac{1}{n-1} \left(
            \frac{\sum_t \Delta g_t^2}{\sum_t \Delta\theta_t^2} - \widehat H^2 \right).

    Random signs make them so, as long as all displacements are of about one size. It
    is too small where they shrink a lot within the epoch, so that a few samples decide,
    and for points along the path, where momentum makes one displacement like the next.

    :math:`\varepsilon` plays no part: a coordinate that moved is observed.

    Args:
      every: steps from one sample to the next; the first step of an epoch has one.
      seed: seed of the signs, which are a pure function of seed, epoch, step and
        tensor.

    Returns:
      A :class:`CurvatureEstimator`. It keeps three vectors.

    Examples:
      >>> import jax, jax.numpy as jnp, optax
      >>> import ctagd_optax
      >>> def loss(x, batch):
      ...     return jnp.sum(jnp.asarray([1.0, 4.0]) * x**2) / 2 + jnp.dot(batch, x)
      >>> estimator = ctagd_optax.same_batch()
      >>> opt = ctagd_optax.ct_agd(
      ...     optax.sgd(0.1), steps_per_epoch=5, estimator=estimator
      ... )
      >>> @jax.jit
      ... def step(params, state, batch):
      ...     grad_fn = lambda x: jax.grad(loss)(x, batch)
      ...     gradients = grad_fn(params)
      ...     updates, state = opt.update(gradients, state, params, grad_fn=grad_fn)
      ...     return optax.apply_updates(params, updates), state
      >>> params = jnp.asarray([1.0, -2.0])
      >>> state = opt.init(params)
      >>> for batch in jax.random.normal(jax.random.key(0), (5, 2)):
      ...     params, state = step(params, state, batch)
      >>> estimate = estimator.estimate(state.evidence.curvature, eps=0.0)
      >>> print(estimate.value.round(3), estimate.count)
      [1. 4.] [5 5]
    """
    check_whole("every", every)

    def init(params, accumulator_dtype):
        def sums():
            return accumulators(params, accumulator_dtype)

        return SameBatchEvidence(sums(), sums(), sums(), counters(params)), None

    def probe(grad_fn, step):
        signs = random_signs(seed, step)
        point = jax.tree.map(
            lambda p, v, u: p + v * u.astype(p.dtype), step.params, signs, step.updates
        )
        return point, jax.tree.map(
            lambda y, g: y.astype(g.dtype), grad_fn(point), step.gradients
        )

    def observe(
        evidence,
        memory,
        step,
        eps,
        *,
        grad_fn=None,
        second_params=None,
        second_gradients=None,
        **extra_args,
    ):
        del memory, eps, extra_args
        given = second_params is not None, second_gradients is not None
        if any(given) if grad_fn is not None else not all(given):
            raise ValueError(
                "same_batch() needs either grad_fn, or second_params and "
                "second_gradients, as extra arguments of update"
            )
        due = step.epoch_step % every == 0
        if grad_fn is not None:
            second_params, second_gradients = jax.lax.cond(
                due,
                lambda: probe(grad_fn, step),
                lambda: (step.params, step.gradients),
            )
        valid = [
            due & finite & all_finite(g)
            for finite, g in zip(
                step.finite(), jax.tree.leaves(second_gradients), strict=True
            )
        ]
        dx = differences(second_params, step.params, valid)
        dg = differences(second_gradients, step.gradients, valid)

        def add(totals, a, b):
            return accumulate_products(totals, a, b, step.epoch_step)

        return SameBatchEvidence(
            displacement_square=add(evidence.displacement_square, dx, dx),
            displacement_change=add(evidence.displacement_change, dx, dg),
            change_square=add(evidence.change_square, dg, dg),
            sample_count=accumulate(
                evidence.sample_count, stack(valid, jnp.int32), step.epoch_step
            ),
        )

    def remember(memory, step):
        del step
        return memory

    def estimate(evidence, eps):
        del eps
        *sums, count = evidence
        sums = list(map(values, sums))

        def value(xx, xg, *_):
            return xg / jnp.where(xx > 0, xx, 1)

        def standard_error(i, xx, xg, gg):
            known = (xx > 0) & (count[i] > 1)
            mean = value(xx, xg)
            # A difference below the last digit of the sums tells nothing.
            least = mean**2 * resolution(evidence.change_square)
            spread = jnp.maximum(gg / jnp.where(xx > 0, xx, 1) - mean**2, least)
            freedom = jnp.maximum(count[i] - 1, 1).astype(xx.dtype)
            return jnp.where(known, square_root(spread / freedom), jnp.inf)

        return CurvatureEstimate(
            value=jax.tree.map(value, *sums),
            observed=jax.tree.map(lambda xx: xx > 0, sums[0]),
            standard_error=map_with_index(standard_error, *sums),
            count=fill(count, sums[0]),
        )

    return CurvatureEstimator(init, observe, remember, estimate)
