"""The paper's estimator: difference quotients along the path."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax.typing import ArrayLike

from ctagd_optax._checks import check_choice, check_number
from ctagd_optax._estimators.base import (
    CurvatureEstimate,
    CurvatureEstimator,
    finite_only,
    sample_key,
)
from ctagd_optax._sums import accumulate, accumulators, values
from ctagd_optax._trees import (
    choose,
    map_with_index,
    spread_like,
    subtract,
    wide,
)
from ctagd_optax._wrapper import Step


class SecantEvidence(NamedTuple):
    """Rolling sums of the paper's quotients.

    Attributes:
      quotient_sum: S_num = Σ t·m·h.
      mask_sum: S_den = Σ t·m.
    """

    quotient_sum: Any
    mask_sum: Any


class SecantMemory(NamedTuple):
    """The step before.

    Attributes:
      previous_gradients: g of the step before.
      previous_params: θ of the step before; None for the "algorithm" pairing.
    """

    previous_gradients: optax.Updates
    previous_params: optax.Params | None


def quotient_noise(seed: int, step: Step, tensor: int, like: jax.Array) -> jax.Array:
    """Standard normal noise, a pure function of seed, epoch, step and tensor."""
    key = sample_key(seed, step, tensor)
    return jax.random.normal(key, like.shape, like.dtype, **spread_like(like))


def _moved(p: jax.Array, u: jax.Array) -> jax.Array:
    """How far an update takes a parameter, which may round it away."""
    if wide(p.dtype) == p.dtype:
        return u
    dtype, info = wide(u.dtype), jnp.finfo(p.dtype)
    end = p.astype(dtype) + u.astype(dtype)
    # A cast there and back may be left out by XLA.
    end = jax.lax.reduce_precision(end, info.nexp, info.nmant)
    return end - p.astype(dtype)


def secant(
    pairing: str = "equation",
    weighting: str = "linear",
    noise_std: ArrayLike = 0.0,
    seed: int = 0,
) -> CurvatureEstimator:
    r"""The paper's estimator: an average of difference quotients along the path.

    .. math::

        m_t = [\,|\Delta\theta_t| > \varepsilon\,], \qquad
        h_t = m_t\, \Delta g_t / \Delta\theta_t, \qquad
        \widehat H = \frac{\sum_{t=1}^{T-1} t\, h_t}
                          {\sum_{t=1}^{T-1} t\, m_t + \varepsilon},

    all per coordinate, with :math:`\Delta g_t = g_t - g_{t-1}`. Where the Hessian is
    diagonal and gradients carry no noise, it is exact up to the :math:`\varepsilon` in
    the denominator. A full Hessian adds :math:`\sum_j H_{ij}\Delta\theta_j /
    \Delta\theta_i`, and independent noise in the two gradients biases every quotient.

    Args:
      pairing: "equation" takes :math:`\Delta\theta_t = \theta_t - \theta_{t-1}`, the
        points where the two gradients were taken. "algorithm" is the paper's
        pseudo-code to the letter, :math:`\theta_{t+1} - \theta_t`, one step late; it
        needs no stored parameters, but takes our own update for the whole
        displacement, so nothing later in a chain may change it.
      weighting: "linear" weighs the quotient of step t by t; "uniform" by 1.
      noise_std: standard deviation of the Gaussian noise added to every quotient (the
        paper's ablation).
      seed: seed of that noise.

    Returns:
      A :class:`CurvatureEstimator`.

    Examples:
      >>> import jax.numpy as jnp, optax
      >>> import ctagd_optax
      >>> opt = ctagd_optax.ct_agd(
      ...     optax.sgd(0.1),
      ...     steps_per_epoch=5,
      ...     estimator=ctagd_optax.secant(weighting="uniform"),
      ... )
      >>> state = opt.init(jnp.ones(3))
      >>> print(state.gamma)
      [1.]
    """
    check_choice("pairing", pairing, ("equation", "algorithm"))
    check_choice("weighting", weighting, ("linear", "uniform"))
    check_number("noise_std", noise_std, 0)
    noiseless = isinstance(noise_std, int | float) and noise_std == 0

    def init(params, accumulator_dtype):
        evidence = SecantEvidence(
            quotient_sum=accumulators(params, accumulator_dtype),
            mask_sum=accumulators(params, accumulator_dtype),
        )

        def gradient(p):  # which may be wider than the parameters
            given = accumulator_dtype is not None
            narrow = given and p.dtype == jnp.dtype(accumulator_dtype)
            return jnp.zeros_like(p, dtype=p.dtype if narrow else wide(p.dtype))

        return evidence, SecantMemory(
            previous_gradients=jax.tree.map(gradient, params),
            previous_params=(
                jax.tree.map(jnp.zeros_like, params) if pairing == "equation" else None
            ),
        )

    def displacement(memory, step):
        if pairing == "algorithm":
            return jax.tree.map(_moved, step.params, step.updates)
        return subtract(step.params, memory.previous_params)

    def observe(evidence, memory, step, eps, **extra_args):
        del extra_args
        if not jax.tree.leaves(step.gradients):
            return evidence  # there is nothing to transpose below
        t = step.epoch_step
        factor = t if weighting == "linear" else jnp.ones_like(t)
        finite = step.finite()

        def sample(i, g, g_before, dx):
            dtype = wide(g_before.dtype)
            dx = dx.astype(dtype)
            # What the step before left out is NaN.
            bound = choose(finite[i] & (t > 0), jnp.asarray(eps, dtype), jnp.inf)
            mask = jnp.abs(dx) > bound
            # Both ends are rounded alike, or that would be taken for curvature.
            change = g.astype(g_before.dtype).astype(dtype) - g_before.astype(dtype)
            if pairing == "algorithm":
                mask &= ~jnp.isnan(change)
            h = choose(mask, change, 0) / choose(mask, dx, 1)
            if not noiseless:
                noise = jnp.asarray(noise_std, dtype) * quotient_noise(seed, step, i, h)
                h += choose(mask, noise, 0)
            weight = factor.astype(dtype)
            return SecantEvidence(weight * h, weight * mask.astype(dtype))

        samples = map_with_index(
            sample,
            step.gradients,
            memory.previous_gradients,
            displacement(memory, step),
        )
        terms = jax.tree.transpose(
            jax.tree.structure(step.gradients),
            jax.tree.structure(SecantEvidence(0, 0)),
            samples,
        )
        return SecantEvidence(
            *(accumulate(s, x, t) for s, x in zip(evidence, terms, strict=True))
        )

    def remember(memory, step):
        # A sample that is left out is NaN: the next one has no pair.
        return SecantMemory(
            previous_gradients=finite_only(
                step.gradients, memory.previous_gradients, step
            ),
            previous_params=(
                finite_only(step.params, step.params, step)
                if pairing == "equation"
                else None
            ),
        )

    def estimate(evidence, eps):
        numerators, denominators = map(values, evidence)

        def value(numerator, denominator):
            total = denominator + jnp.asarray(eps, numerator.dtype)
            return numerator / choose(denominator > 0, total, 1)

        return CurvatureEstimate(
            value=jax.tree.map(value, numerators, denominators),
            observed=jax.tree.map(lambda d: d > 0, denominators),
        )

    return CurvatureEstimator(
        init, observe, remember, estimate, spare="previous_gradients"
    )
