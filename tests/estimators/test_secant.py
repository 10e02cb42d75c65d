"""The secant estimator, and what CT-AGD makes of an exact one."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import ctagd_optax
from ctagd_optax._estimators.secant import quotient_noise
from tests import problems


def true_diagonal(params):
    """The diagonal of the loss's Hessian, by jax.hessian."""
    hessian = jax.hessian(problems.loss)(params)
    return {
        k: jnp.diag(hessian[k][k].reshape(p.size, p.size)).reshape(p.shape)
        for k, p in params.items()
    }


@pytest.mark.parametrize("weighting", ["linear", "uniform"])
def test_exact_on_a_diagonal_quadratic(weighting):
    params = problems.params(jnp.float64)
    estimator = ctagd_optax.secant(weighting=weighting)
    opt = ctagd_optax.ct_agd(optax.sgd(0.02), 10, eps=0.0, estimator=estimator)
    _, state = problems.train(opt, params, 9)
    estimate = estimator.estimate(state.evidence.curvature, 0.0)
    for diagonal in (true_diagonal(params), problems.CURVATURE):
        chex.assert_trees_all_close(estimate.value, diagonal, rtol=1e-9)
    assert all(o.all() for o in jax.tree.leaves(estimate.observed))


def test_the_algorithms_pairing_is_one_step_late():
    # On f(x) = a/2·x² with rate r, Δg_t = a·Δx_t but Δx_{t+1} = (1 - r·a)·Δx_t.
    rate, a = 0.1, 4.0
    estimator = ctagd_optax.secant("algorithm")
    opt = ctagd_optax.ct_agd(optax.sgd(rate), 6, eps=0.0, estimator=estimator)
    _, state = problems.train(
        opt, jnp.asarray([1.0]), 5, objective=lambda x: jnp.sum(a * x**2 / 2)
    )
    estimate = estimator.estimate(state.evidence.curvature, 0.0)
    np.testing.assert_allclose(estimate.value, a / (1 - rate * a), rtol=1e-9)


def test_a_newton_correction_undoes_all_but_the_last_displacement():
    # The last gradient is one step old: θ_T - g_{T-1}/H = θ_T - θ_{T-1} + θ*.
    params = problems.params(jnp.float64)
    opt = ctagd_optax.ct_agd(
        optax.sgd(0.02),
        8,
        eps=0.0,
        correction_rate=1.0,
        correction_gradient="last",
        curvature_min=1e-3,
        curvature_max=1e3,
    )
    before, _ = problems.train(opt, params, 7)
    after, _ = problems.train(opt, params, 8)
    wanted = jax.tree.map(lambda x, a: -0.02 * a * x, before, true_diagonal(params))
    chex.assert_trees_all_close(after, wanted, rtol=1e-8)


def test_a_newton_correction_after_a_resting_step_lands_on_the_minimum():
    params = problems.params(jnp.float64)
    rests_last = optax.sgd(lambda n: jnp.where(n == 7, 0.0, 0.02))
    opt = ctagd_optax.ct_agd(
        rests_last,
        8,
        eps=0.0,
        correction_rate=1.0,
        correction_gradient="last",
        curvature_min=1e-3,
        curvature_max=1e3,
    )
    after, _ = problems.train(opt, params, 8)
    jax.tree.map(lambda y: np.testing.assert_allclose(y, 0.0, atol=1e-12), after)


def test_a_rotated_quadratic_biases_the_secant():
    # The secant sees Σ_j H_ij Δθ_j / Δθ_i, not H_ii: the documented limit.
    hessian = jnp.asarray([[2.0, 1.0], [1.0, 2.0]])
    estimator = ctagd_optax.secant()
    opt = ctagd_optax.ct_agd(optax.sgd(0.05), 5, eps=0.0, estimator=estimator)
    _, state = problems.train(
        opt, jnp.asarray([1.0, 1.0]), 4, objective=lambda x: x @ hessian @ x / 2
    )
    # Along (1, 1), an eigenvector with eigenvalue 3, every quotient is 3.
    estimate = estimator.estimate(state.evidence.curvature, 0.0)
    np.testing.assert_allclose(estimate.value, [3.0, 3.0], rtol=1e-9)


def test_noise_has_the_stated_law_and_is_repeatable():
    like = jnp.zeros(20_000, jnp.float32)
    step = ctagd_optax.Step(2, 3, *[None] * 8)
    noise = quotient_noise(0, step, 1, like)
    assert abs(float(noise.mean())) < 0.03
    assert abs(float(noise.std()) - 1) < 0.02
    np.testing.assert_array_equal(noise, quotient_noise(0, step, 1, like))
    for other in (
        quotient_noise(1, step, 1, like),
        quotient_noise(0, step, 0, like),
        quotient_noise(0, step._replace(epoch=1), 1, like),
        quotient_noise(0, step._replace(epoch_step=4), 1, like),
    ):
        assert abs(float(jnp.corrcoef(noise, other)[0, 1])) < 0.03


def test_traced_noise():
    @jax.jit
    def gamma(noise_std):
        estimator = ctagd_optax.secant(noise_std=noise_std)
        opt = ctagd_optax.ct_agd(optax.sgd(0.02), 5, estimator=estimator)
        return problems.train(opt, problems.params(), 5)[1].gamma

    np.testing.assert_allclose(
        gamma(0.3),
        problems.train(
            ctagd_optax.ct_agd(
                optax.sgd(0.02), 5, estimator=ctagd_optax.secant(noise_std=0.3)
            ),
            problems.params(),
            5,
        )[1].gamma,
        rtol=1e-6,
    )
    assert not np.allclose(gamma(0.3), gamma(0.0))


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"pairing": "x"}, "pairing must be one of 'equation', 'algorithm'; got 'x'"),
        ({"weighting": "x"}, "weighting must be one of 'linear', 'uniform'; got 'x'"),
        ({"noise_std": -1.0}, r"noise_std must be finite and at least 0, got -1\.0"),
    ],
)
def test_bad_input(kwargs, message):
    with pytest.raises(ValueError, match=message):
        ctagd_optax.secant(**kwargs)
