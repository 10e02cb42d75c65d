"""Differences on one batch."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import ctagd_optax
from tests import problems


def test_unbiased_on_a_full_hessian_and_calibrated():
    size = 60
    hessian = problems.rotated_hessian(size)
    found = problems.estimate(
        ctagd_optax.same_batch(),
        jnp.ones(size),
        jax.random.normal(jax.random.key(1), (200, size)),
        lambda x, noise: x @ hessian @ x / 2 + 5 * noise @ x,
    )
    errors = np.asarray((found.value - jnp.diag(hessian)) / found.standard_error)
    assert abs(errors.mean()) < 0.4
    assert 0.8 < errors.std() < 1.2


def test_noise_cancels():
    curvature = jnp.asarray([1.0, 4.0, 16.0])
    found = problems.estimate(
        ctagd_optax.same_batch(every=3),
        jnp.ones(3),
        100 * jax.random.normal(jax.random.key(0), (7, 3)),
        lambda x, noise: jnp.sum(curvature * x**2 / 2 + noise * x),
    )
    np.testing.assert_allclose(found.value, curvature, rtol=1e-9)
    np.testing.assert_array_equal(found.count, 3)


def test_a_second_point_of_ones_own():
    # The parameters of the step before, which the training loop still has.
    curvature = jnp.asarray([1.0, 4.0])
    estimator = ctagd_optax.same_batch()
    opt = ctagd_optax.ct_agd(optax.sgd(0.1), 10, estimator=estimator)
    params = before = jnp.asarray([1.0, -2.0])
    state = opt.init(params)

    @jax.jit
    def step(params, before, state, batch):
        updates, state = opt.update(
            curvature * params + batch,
            state,
            params,
            second_params=before,
            second_gradients=curvature * before + batch,
        )
        return optax.apply_updates(params, updates), params, state

    for batch in np.random.default_rng(0).standard_normal((3, 2)):
        params, before, state = step(params, before, state, batch)
    estimate = estimator.estimate(state.evidence.curvature, 0.0)
    np.testing.assert_allclose(estimate.value, curvature, rtol=1e-9)


def test_one_gradient_at_every_nth_step():
    calls = []

    def grad_fn(x):
        jax.debug.callback(lambda: calls.append(1))
        return x

    estimator = ctagd_optax.same_batch(every=3)
    opt = ctagd_optax.ct_agd(optax.sgd(0.1), 7, estimator=estimator)
    problems.train(opt, jnp.ones(2), 10, lambda x: jnp.sum(x**2) / 2, grad_fn=grad_fn)
    jax.effects_barrier()
    assert len(calls) == 4  # steps 0, 3 and 6 of the first epoch, 0 of the second


@pytest.mark.parametrize(
    "extra",
    [
        {},
        {"second_params": jnp.ones(2)},
        {"second_gradients": jnp.ones(2)},
        {"grad_fn": lambda x: x, "second_params": jnp.ones(2)},
    ],
    ids=["none", "no gradients", "no params", "both"],
)
def test_missing_arguments(extra):
    opt = ctagd_optax.ct_agd(
        optax.sgd(0.1), 10, estimator=ctagd_optax.same_batch(every=3)
    )
    params = jnp.ones(2)
    with pytest.raises(
        ValueError, match="either grad_fn, or second_params and second_gradients"
    ):
        opt.update(params, opt.init(params), params, **extra)


@pytest.mark.parametrize("every", [0, -1, 1.5])
def test_bad_every(every):
    with pytest.raises(ValueError, match="every must be a whole number of at least 1"):
        ctagd_optax.same_batch(every=every)
