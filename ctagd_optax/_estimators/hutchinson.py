"""Hutchinson's estimator: Hessian-vector products with random signs."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from ctagd_optax._checks import check_whole
from ctagd_optax._estimators.base import (
    CurvatureEstimate,
    CurvatureEstimator,
    fill,
    random_signs,
    square_root,
)
from ctagd_optax._sums import accumulate, accumulators, values
from ctagd_optax._trees import (
    all_finite,
    counters,
    entries,
    map_with_index,
    stack,
    wide,
)


class HutchinsonEvidence(NamedTuple):
    """Mean and spread of the samples of an epoch, by Welford's recursion.

    Attributes:
      product_mean: the mean of v·Hv.
      product_deviation: Σ (v·Hv - mean)².
      sample_count: for each tensor, the samples.
      move_count: for each tensor, the steps that moved it.
    """

    product_mean: Any
    product_deviation: Any
    sample_count: jax.Array
    move_count: jax.Array


def hutchinson(every: ArrayLike = 1, seed: ArrayLike = 0) -> CurvatureEstimator:
    r"""Hutchinson's estimator: Hessian-vector products at every n-th step.

    .. math::

        \widehat H = \frac1n \sum_t v_t \odot \nabla^2 f(\theta_t)\, v_t, \qquad
        v_{t,i} = \pm 1 \text{ at random},

    per coordinate. Each sample has the mean :math:`H_{ii}` and the variance
    :math:`\sum_{j \ne i} H_{ij}^2`, whatever the noise in the gradients and wherever
    the path leads. It costs about two gradients.

    ``update`` takes ``obj_fn``, the loss of this step's batch as a function of the
    parameters, at every step, as :func:`optax.contrib.sophia` does. It is called at
    every n-th step, under ``lax.cond``.

    The standard error is that of the mean of independent samples,

    .. math::

        \mathrm{se}^2 = \frac{1}{n(n-1)} \sum_t (v_{t,i}\,(H v_t)_i - \widehat H_i)^2 .

    :math:`\varepsilon` plays no part: one sample makes every coordinate observed, but
    for tensors that the backbone never moved in the epoch, as those that it freezes.

    Args:
      every: steps from one sample to the next; the first step of an epoch has one.
      seed: seed of the signs, which are a pure function of seed, epoch, step and
        tensor.

    Returns:
      A :class:`CurvatureEstimator`. It keeps two vectors.

    Examples:
      >>> import jax, jax.numpy as jnp, optax
      >>> import ctagd_optax
      >>> def loss(x):
      ...     return jnp.sum(jnp.asarray([1.0, 4.0]) * x**2) / 2
      >>> estimator = ctagd_optax.hutchinson(every=2)
      >>> opt = ctagd_optax.ct_agd(
      ...     optax.sgd(0.1), steps_per_epoch=5, estimator=estimator
      ... )
      >>> @jax.jit
      ... def step(params, state):
      ...     gradients = jax.grad(loss)(params)
      ...     updates, state = opt.update(gradients, state, params, obj_fn=loss)
      ...     return optax.apply_updates(params, updates), state
      >>> params = jnp.asarray([1.0, -2.0])
      >>> state = opt.init(params)
      >>> for _ in range(5):
      ...     params, state = step(params, state)
      >>> estimate = estimator.estimate(state.evidence.curvature, eps=0.0)
      >>> print(estimate.value, estimate.count)
      [1. 4.] [3 3]
    """
    check_whole("every", every)

    def init(params, accumulator_dtype):
        def sums():
            return accumulators(params, accumulator_dtype)

        counts = counters(params), counters(params)
        return HutchinsonEvidence(sums(), sums(), *counts), None

    def observe(evidence, memory, step, eps, *, obj_fn=None, **extra_args):
        del memory, eps, extra_args
        if obj_fn is None:
            raise ValueError(
                "hutchinson() needs obj_fn, the loss as a function of the parameters, "
                "as an extra argument of update"
            )
        t = step.epoch_step
        due = t % every == 0

        def product():
            signs = random_signs(seed, step)
            _, change = jax.jvp(jax.grad(obj_fn), (step.params,), (signs,))
            return jax.tree.map(jnp.multiply, signs, change)

        products = jax.lax.cond(
            due, product, lambda: jax.tree.map(jnp.zeros_like, step.params)
        )
        valid = [
            due & finite & all_finite(x)
            for finite, x in zip(step.finite(), jax.tree.leaves(products), strict=True)
        ]
        count = accumulate(evidence.sample_count, stack(valid, jnp.int32), t)
        share = 1 / jnp.maximum(count, 1).astype(jnp.float32)
        shares = [
            jnp.where(one, x, 0)
            for one, x in zip(valid, entries(share, len(valid)), strict=True)
        ]

        def deviation(i, x, mean):
            dtype = wide(x.dtype)
            mean = jnp.where(t == 0, 0, mean).astype(dtype)
            return jnp.where(valid[i], x.astype(dtype) - mean, 0)

        means = values(evidence.product_mean)
        deviations = map_with_index(deviation, products, means)

        def move(i, d):
            return shares[i].astype(d.dtype) * d

        def spread(i, d):
            return (1 - shares[i]).astype(d.dtype) * d**2

        moved = [jnp.any(u != 0) for u in jax.tree.leaves(step.updates)]
        moves, spreads = (map_with_index(f, deviations) for f in (move, spread))
        return HutchinsonEvidence(
            product_mean=accumulate(evidence.product_mean, moves, t),
            product_deviation=accumulate(evidence.product_deviation, spreads, t),
            sample_count=count,
            move_count=accumulate(evidence.move_count, stack(moved, jnp.int32), t),
        )

    def remember(memory, step):
        del step
        return memory

    def estimate(evidence, eps):
        del eps
        mean, total = map(values, evidence[:2])
        count = evidence.sample_count

        def standard_error(i, total):
            samples = count[i].astype(total.dtype)
            pairs = jnp.maximum(samples * (samples - 1), 1)
            root = square_root(total / pairs)
            return jnp.where(count[i] > 1, root, jnp.inf)

        known = jnp.where(evidence.move_count > 0, count, 0)
        return CurvatureEstimate(
            value=mean,
            observed=jax.tree.map(lambda samples: samples > 0, fill(known, mean)),
            standard_error=map_with_index(standard_error, total),
            count=fill(count, mean),
        )

    return CurvatureEstimator(init, observe, remember, estimate)
