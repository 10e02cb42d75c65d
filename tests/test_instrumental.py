"""The previous step as an instrument."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import ctagd_optax
from tests import problems


def noisy(curvature):
    return lambda x, noise: jnp.sum(curvature * x**2 / 2 + noise * x)


@pytest.mark.parametrize("steps", [30, 300])
def test_unbiased_by_noise_and_its_standard_error_is_calibrated(steps):
    # The coordinates of a diagonal Hessian are as many independent experiments.
    curvature = jnp.broadcast_to(jnp.asarray([1.0, 4.0, 16.0])[:, None], (3, 1000))
    noise = jax.random.normal(jax.random.key(0), (steps, *curvature.shape))
    start = jnp.zeros_like(curvature)
    found = problems.estimate(
        ctagd_optax.instrumental(shrink=False), start, noise, noisy(curvature)
    )
    errors = (found.value - curvature) / found.standard_error
    assert (abs(np.median(errors, axis=1)) < 0.15).all()
    # Quantiles, as a ratio of sums has no moments.
    spread = np.subtract(*np.quantile(errors, [0.84, 0.16], axis=1)) / 2
    assert (spread > 0.85).all(), spread
    assert (spread < 1.15).all(), spread
    biased = problems.estimate(ctagd_optax.secant(), start, noise, noisy(curvature))
    assert np.median(abs(biased.value - curvature)) > 5 * np.median(
        abs(found.value - curvature)
    )


@pytest.mark.parametrize("level", [0.01, 10.0])
def test_the_level_of_noise_cancels_in_the_standard_error(level):
    noise = level * jax.random.normal(jax.random.key(0), (400, 500))
    found = problems.estimate(
        ctagd_optax.instrumental(shrink=False),
        jnp.zeros(500),
        noise,
        noisy(jnp.full((500,), 2.0)),
    )
    formula = (1 - 0.85) / (0.85 * 0.01) * np.sqrt(2 * (1 + 0.85) / 400)
    np.testing.assert_allclose(np.median(found.standard_error), formula, rtol=0.15)


def test_without_momentum_the_standard_error_tells_that_the_value_is_worthless():
    curvature = jnp.full((500,), 2.0)
    noise = jax.random.normal(jax.random.key(0), (100, 500))
    found = problems.estimate(
        ctagd_optax.instrumental(shrink=False),
        jnp.zeros(500),
        noise,
        noisy(curvature),
        backbone=optax.sgd(0.01),
    )
    assert np.median(found.standard_error) > 10 * 2.0
