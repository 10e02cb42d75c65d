"""Regression of gradients on parameters."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import ctagd_optax
from tests import problems


def test_calibrated_where_the_epoch_is_long_against_the_curvature():
    # In 400 steps coordinates fall back to the minimum many times.
    curvature = jnp.broadcast_to(jnp.asarray([4.0, 16.0])[:, None], (2, 1000))
    noise = jax.random.normal(jax.random.key(0), (400, *curvature.shape))
    found = problems.estimate(
        ctagd_optax.regression(window=math.inf, shrink=False),
        jnp.zeros_like(curvature),
        noise,
        lambda x, noise: jnp.sum(curvature * x**2 / 2 + noise * x),
    )
    errors = np.asarray((found.value - curvature) / found.standard_error)
    spread = errors.std(axis=1)
    assert (spread > 0.85).all(), spread
    assert (spread < 1.15).all(), spread
    # The documented bias, from noise that the mean gradient holds.
    assert (errors.mean(axis=1) > 0).all()
    assert (errors.mean(axis=1) < 1).all()


def test_a_short_window_adds_the_documented_bias():
    # On a flat loss parameters walk at random, and there is no curvature to find.
    flat = jnp.zeros(2000)
    noise = jax.random.normal(jax.random.key(0), (400, 2000))
    medians = [
        np.median(
            problems.estimate(
                ctagd_optax.regression(window=window),
                flat,
                noise,
                lambda x, noise: jnp.sum(noise * x),
                backbone=optax.sgd(0.01),
            ).value
        )
        for window in (10, 40)
    ]
    for window, median in zip((10, 40), medians, strict=True):
        assert 0.5 < median * window * 0.01 < 2


@pytest.mark.parametrize("window", [2.0, math.inf])
def test_mean_gradient_doubles_as_the_average(window):
    estimator = ctagd_optax.regression("linear", window)
    opt = ctagd_optax.ct_agd(optax.sgd(0.0), 5, estimator=estimator, eps=0.0)
    rng = np.random.default_rng(0)
    thetas, gradients = rng.standard_normal((2, 5, 7))
    state = opt.init(jnp.zeros(7))
    assert state.evidence.gradient_sum is None
    update = jax.jit(opt.update)
    for theta, g in zip(thetas, gradients, strict=True):
        updates, state = update(jnp.asarray(g), state, jnp.asarray(theta))
    weights = np.asarray([0, 1, 2, 3, 4]) / 10
    if window == 2.0:  # shares of 1, 2/3, 1/2 and again 1/2
        weights = np.asarray([0, 1 / 12, 1 / 6, 1 / 4, 1 / 2])
    average = weights @ gradients
    np.testing.assert_allclose(
        estimator.mean_gradient(state.evidence.curvature), average, rtol=1e-6
    )
    curvature = estimator.estimate(state.evidence.curvature, 0.0)
    _, correction, _ = ctagd_optax.close_epoch(
        curvature, jnp.asarray(average), jnp.asarray(thetas[-1])
    )
    np.testing.assert_allclose(updates, correction, rtol=1e-6)


@pytest.mark.parametrize("weighting", ["uniform", "linear"])
def test_an_epoch_knows_nothing_of_the_one_before(weighting):
    estimator = ctagd_optax.regression(weighting, window=5.0, shrink=False)
    points, gradients = np.random.default_rng(0).standard_normal((2, 2, 9, 4))

    def after(*epochs):
        evidence, memory = estimator.init(jnp.zeros(4), None)
        for epoch in epochs:
            for t in range(9):
                x, g = (jnp.asarray(a[epoch, t]) for a in (points, gradients))
                step = problems.observed_step(t, x, g, None, epoch)
                evidence = estimator.observe(evidence, memory, step, 0.0)
        return estimator.estimate(evidence, 0.0)

    jax.tree.map(np.testing.assert_array_equal, after(0, 1), after(1))


def test_parameters_far_from_zero():
    # The textbook's sums of squares would cancel to nothing in 32 bits.
    noise = jax.random.normal(jax.random.key(0), (50, 100), jnp.float32)

    def objective(x, noise):
        return jnp.sum(1.5 * (x - 1000.0) ** 2 + noise * x)

    found = problems.estimate(
        ctagd_optax.regression(),
        jnp.full(100, 1001.0, jnp.float32),
        noise,
        objective,
    )
    np.testing.assert_allclose(np.median(found.value), 3.0, rtol=0.1)


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"weighting": "x"}, "weighting must be one of 'linear', 'uniform'; got 'x'"),
        ({"window": 1}, "window must be above 1, got 1"),
        ({"window": math.nan}, "window must be above 1, got nan"),
    ],
)
def test_bad_input(kwargs, message):
    with pytest.raises(ValueError, match=message):
        ctagd_optax.regression(**kwargs)
