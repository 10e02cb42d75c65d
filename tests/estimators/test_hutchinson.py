"""Hessian-vector products with random signs."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import ctagd_optax
from ctagd_optax._estimators.base import random_signs
from tests import problems


def test_unbiased_and_calibrated():
    size = 60
    hessian = problems.rotated_hessian(size)
    found = problems.estimate(
        ctagd_optax.hutchinson(),
        jnp.ones(size),
        jax.random.normal(jax.random.key(1), (200, size)),
        lambda x, noise: x @ hessian @ x / 2 + 5 * noise @ x,
    )
    errors = np.asarray((found.value - jnp.diag(hessian)) / found.standard_error)
    assert abs(errors.mean()) < 0.4
    assert 0.8 < errors.std() < 1.2


def test_signs_follow_seed_epoch_step_and_tensor():
    params = {"a": jnp.zeros(4000), "b": jnp.zeros(4000)}
    step = problems.observed_step(3, params, params, params, epoch=2)
    signs = random_signs(0, step)
    assert signs["a"].dtype == jnp.float64
    assert set(np.asarray(signs["a"])) == {-1.0, 1.0}
    assert abs(float(signs["a"].mean())) < 0.06
    np.testing.assert_array_equal(signs["a"], random_signs(0, step)["a"])
    for other in (
        signs["b"],
        random_signs(1, step)["a"],
        random_signs(0, step._replace(epoch=jnp.asarray(1)))["a"],
        random_signs(0, step._replace(epoch_step=jnp.asarray(4)))["a"],
    ):
        assert abs(float(jnp.mean(signs["a"] * other))) < 0.06


def test_a_negative_and_a_changing_curvature():
    # The mean of 6x over the path; other estimators see chords of it.
    points = jnp.asarray([-1.0, 0.5, 2.0])
    estimator = ctagd_optax.hutchinson()
    evidence, memory = estimator.init(points[0], None)

    @jax.jit
    def observe(evidence, t, x):
        step = problems.observed_step(t, x, 3 * x**2, x)
        return estimator.observe(evidence, memory, step, 0.0, obj_fn=lambda x: x**3)

    for t, x in enumerate(points):
        evidence = observe(evidence, t, x)
    estimate = estimator.estimate(evidence, 0.0)
    np.testing.assert_allclose(estimate.value, 6 * 0.5)
    np.testing.assert_allclose(estimate.standard_error, 6 * 1.5 / np.sqrt(3))


def test_missing_argument():
    opt = ctagd_optax.ct_agd(optax.sgd(0.1), 10, estimator=ctagd_optax.hutchinson())
    params = jnp.ones(2)
    with pytest.raises(ValueError, match=r"hutchinson\(\) needs obj_fn, the loss"):
        opt.update(params, opt.init(params), params)


def test_bad_every():
    with pytest.raises(ValueError, match="every must be a whole number of at least 1"):
        ctagd_optax.hutchinson(every=0)
