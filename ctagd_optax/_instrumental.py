"""Secants with the step before as an instrument against noise."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from ctagd_optax._curvature import (
    CurvatureEstimate,
    CurvatureEstimator,
    accumulate,
    accumulate_products,
    accumulators,
    counters,
    differences,
    fill,
    finite_only,
    square_root,
)
from ctagd_optax._shrinkage import shrink_to_means
from ctagd_optax._transform import map_with_index, wide


class InstrumentalEvidence(NamedTuple):
    """Rolling sums over the samples of an epoch, with z = Δθ of the step before.

    Attributes:
      instrument_gradient: Σ z·Δg.
      instrument_step: Σ z·Δθ.
      gradient_gradient: Σ Δg².
      gradient_step: Σ Δg·Δθ.
      step_step: Σ Δθ².
      turn_turn: Σ (Δθ - z)².
      sample_count: for each tensor, the samples.
    """

    instrument_gradient: Any
    instrument_step: Any
    gradient_gradient: Any
    gradient_step: Any
    step_step: Any
    turn_turn: Any
    sample_count: jax.Array


class InstrumentalMemory(NamedTuple):
    """The two steps before.

    Attributes:
      previous_gradients: g of the step before.
      previous_params: θ of the step before.
      previous_displacement: Δθ of the step before.
      previous_paired: for each tensor, whether there is such a displacement.
    """

    previous_gradients: optax.Updates
    previous_params: optax.Params
    previous_displacement: optax.Updates
    previous_paired: jax.Array


def instrumental(*, shrink: bool = True) -> CurvatureEstimator:
    r"""Secants with the step before as an instrument, for gradients with noise.

    .. math::

        \widehat H = \frac{\sum_t z_t\, \Delta g_t}{\sum_t z_t\, \Delta\theta_t},
        \qquad z_t = \Delta\theta_{t-1} = \theta_{t-1} - \theta_{t-2},

    all per coordinate. :math:`\Delta\theta_t` depends on the noise in
    :math:`g_{t-1}`, and that is what biases the paper's quotient; :math:`z_t` was made
    before either of the two gradients of :math:`\Delta g_t` was taken. It predicts
    :math:`\Delta\theta_t` by momentum alone: with a backbone without momentum (or other
    memory) the denominator is noise, and so is the estimate; its standard error shows
    that.

    The standard error is that of gradients with independent noise of one variance,
    whose sum with :math:`z` is taken by parts, :math:`\sum_t z_t(\xi_t - \xi_{t-1})
    \approx \sum_t (z_t - z_{t+1})\,\xi_t`:

    .. math::

        \mathrm{se}^2 = \frac{\tfrac12\, s^2 \sum_t (\Delta\theta_t - z_t)^2}
                             {\left(\sum_t z_t\,\Delta\theta_t\right)^2}, \qquad
        s^2 = \frac{1}{n-1}\sum_t (\Delta g_t - \widehat H\,\Delta\theta_t)^2 .

    Noise both hides the curvature and moves the parameters by which it shows. Where
    nothing else moves them, with SGD of momentum :math:`\beta`, its level cancels:

    .. math::

        \mathrm{se} \approx \frac{1 - \beta}{\beta\,\mathrm{lr}}
                          \sqrt{\frac{2(1 + \beta)}{n}},

    for many samples. At a learning rate of 0.01 and a momentum of 0.85 that is 1.7 for
    400 of them: what is flatter needs longer epochs, or a faster motion.

    A full Hessian adds :math:`\sum_j H_{ij} \sum_t z_{t,i}\Delta\theta_{t,j} /
    \sum_t z_{t,i}\Delta\theta_{t,i}` to the value. Where noise drives the path, those
    products average out over the epoch, if noise is independent from coordinate to
    coordinate; where it is not, as in networks, or the path is smooth, they stay, and
    the standard error does not cover them.

    Coordinates that are unsure lean on the others of their tensor: each value moves
    towards the :math:`\mu` that all sums of the tensor together give by the share
    :math:`\mathrm{se}^2 / (\mathrm{se}^2 + \omega^2)` of its way, with
    :math:`\omega^2` the variance of the true values about :math:`\mu`, as it is seen
    behind their errors. The standard error that is reported is that of the result.
    Tensors with less than four coordinates stay as they are.

    :math:`\varepsilon` plays no part: to leave out short steps would choose samples by
    their noise. A coordinate is observed when its denominator is not 0.

    Args:
      shrink: whether coordinates lean on their tensor as above, which takes about as
        long as the rest of an epoch's end; False takes each for itself.

    Returns:
      A :class:`CurvatureEstimator`. It keeps nine vectors.

    Examples:
      >>> import jax.numpy as jnp, optax
      >>> import ctagd_optax
      >>> estimator = ctagd_optax.instrumental()
      >>> opt = ctagd_optax.ct_agd(
      ...     optax.sgd(0.1, momentum=0.9), steps_per_epoch=5, estimator=estimator
      ... )
      >>> params = jnp.asarray([1.0, -2.0])
      >>> state = opt.init(params)
      >>> for _ in range(5):
      ...     gradients = jnp.asarray([1.0, 4.0]) * params
      ...     updates, state = opt.update(gradients, state, params)
      ...     params = optax.apply_updates(params, updates)
      >>> estimate = estimator.estimate(state.evidence.curvature, eps=0.0)
      >>> print(estimate.value, estimate.count)
      [1. 4.] [3 3]
    """

    def init(params, accumulator_dtype):
        def sums():
            return accumulators(params, accumulator_dtype)

        def zeros():
            return jax.tree.map(jnp.zeros_like, params)

        evidence = InstrumentalEvidence(
            instrument_gradient=sums(),
            instrument_step=sums(),
            gradient_gradient=sums(),
            gradient_step=sums(),
            step_step=sums(),
            turn_turn=sums(),
            sample_count=counters(params),
        )
        return evidence, InstrumentalMemory(
            previous_gradients=zeros(),
            previous_params=zeros(),
            previous_displacement=zeros(),
            previous_paired=counters(params, jnp.bool_),
        )

    def observe(evidence, memory, step, eps, **extra_args):
        del eps, extra_args
        start = step.epoch_step == 0
        valid = step.paired & memory.previous_paired
        dx = differences(step.params, memory.previous_params, valid)
        dg = differences(step.gradients, memory.previous_gradients, valid)
        z = map_with_index(
            lambda i, x: jnp.where(valid[i], x.astype(wide(x.dtype)), 0),
            memory.previous_displacement,
        )
        turn = jax.tree.map(jnp.subtract, dx, z)

        def add(totals, a, b):
            return accumulate_products(totals, a, b, start)

        return InstrumentalEvidence(
            instrument_gradient=add(evidence.instrument_gradient, z, dg),
            instrument_step=add(evidence.instrument_step, z, dx),
            gradient_gradient=add(evidence.gradient_gradient, dg, dg),
            gradient_step=add(evidence.gradient_step, dg, dx),
            step_step=add(evidence.step_step, dx, dx),
            turn_turn=add(evidence.turn_turn, turn, turn),
            sample_count=accumulate(
                evidence.sample_count, valid.astype(jnp.int32), start
            ),
        )

    def remember(memory, step):
        moved = differences(step.params, memory.previous_params, step.paired)
        return InstrumentalMemory(
            previous_gradients=finite_only(step.gradients, step),
            previous_params=finite_only(step.params, step),
            previous_displacement=jax.tree.map(
                lambda x, p: x.astype(p.dtype), moved, step.params
            ),
            previous_paired=step.paired,
        )

    def estimate(evidence, eps):
        del eps
        *sums, count = evidence

        def value(numerator, denominator, *_):
            dtype = wide(numerator.dtype)
            total = denominator.astype(dtype)
            return jnp.where(
                total == 0, 0, numerator.astype(dtype) / jnp.where(total == 0, 1, total)
            )

        def standard_error(i, numerator, denominator, *squares):
            dtype = wide(numerator.dtype)
            total, gg, gx, xx, turns = (
                x.astype(dtype) for x in (denominator, *squares)
            )
            h = value(numerator, denominator)
            freedom = jnp.maximum(count[i] - 1, 1).astype(dtype)
            # Each gradient's noise is in two differences.
            noise = jnp.maximum(gg - h * (2 * gx - h * xx), 0) / (2 * freedom)
            known = (total != 0) & (count[i] > 1)
            return jnp.where(
                known,
                square_root(noise * turns) / jnp.where(known, jnp.abs(total), 1),
                jnp.inf,
            )

        found = CurvatureEstimate(
            value=jax.tree.map(value, *sums),
            observed=jax.tree.map(lambda d: d != 0, evidence.instrument_step),
            standard_error=map_with_index(standard_error, *sums),
            count=fill(count, evidence.instrument_step),
        )
        if not shrink:
            return found
        return shrink_to_means(found, evidence.instrument_step)

    return CurvatureEstimator(init, observe, remember, estimate)
