"""The skeleton: counting, dividing, closing; and what it does not do."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import ctagd_optax
from tests import problems


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize(
    ("backbone", "annealing"),
    [
        (optax.sgd(0.1, momentum=0.9), "linear"),
        (optax.adam(0.1), "exponential"),
        (optax.lion(0.1), "none"),
    ],
    ids=["sgd-linear", "adam-exponential", "lion-none"],
)
def test_off_is_off(backbone, annealing, dtype):
    off = ctagd_optax.ct_agd(
        backbone,
        3,
        curvature_min=1.0,
        curvature_max=1.0,
        correction_rate=0.0,
        annealing=annealing,
    )
    rng = np.random.default_rng(0)
    params = {"w": jnp.asarray(rng.standard_normal(50), dtype)}
    with jax.numpy_dtype_promotion("standard"):
        state, bare_state = off.init(params), backbone.init(params)
        update, bare_update = jax.jit(off.update), jax.jit(backbone.update)
        for n in range(10):
            # Zeros of both signs, which a sum with 0 would lose.
            g = rng.standard_normal(50) * rng.integers(0, 2, 50) * (-1.0) ** n
            grads = {"w": jnp.asarray(g, dtype)}
            updates, state = update(grads, state, params)
            bare, bare_state = bare_update(grads, bare_state, params)
            assert np.asarray(updates["w"]).tobytes() == np.asarray(bare["w"]).tobytes()
            params = optax.apply_updates(params, updates)
    assert state.epoch == 3


def test_custom_annealing():
    seen = []

    def held(gamma, fraction, step):
        seen.append((gamma.shape, fraction.dtype, step.dtype))
        return jnp.full_like(gamma, 4.0)

    opt = ctagd_optax.ct_agd(optax.sgd(1.0), 5, annealing=held)
    params = problems.params()
    updates, _ = opt.update(params, opt.init(params), params)
    np.testing.assert_allclose(updates["b"], -params["b"] / 4)
    assert seen == [((2,), jnp.float32, jnp.int32)]


def test_state_has_a_fixed_structure_and_strong_dtypes():
    opt = ctagd_optax.ct_sgd(steps_per_epoch=2)
    params = problems.params(jnp.bfloat16)
    state = opt.init(params)
    _, after = jax.jit(opt.update)(params, state, params)
    chex.assert_trees_all_equal_shapes_and_dtypes(state, after)
    assert not any(x.weak_type for x in jax.tree.leaves(after))
    assert not any(x.weak_type for x in jax.tree.leaves(state))
    # Sums are wider than 16-bit parameters, differences need their bits alone.
    assert state.evidence.gradient_sum["w"].dtype == jnp.float32
    assert state.memory.previous_params["w"].dtype == jnp.bfloat16


def parameters_in_state(**options):
    """How many vectors of the parameters' size CT-AGD itself keeps."""
    params = {"w": jnp.zeros(1000, jnp.float32)}
    opt = ctagd_optax.ct_agd(optax.sgd(0.1), 5, **options)
    state = opt.init(params)
    return sum(x.size for x in jax.tree.leaves(state)) // 1000


@pytest.mark.parametrize(
    ("options", "vectors"),
    [
        ({}, 5),
        ({"correction_gradient": "last"}, 4),
        ({"estimator": ctagd_optax.secant("algorithm")}, 4),
        (
            {
                "estimator": ctagd_optax.secant("algorithm"),
                "correction_gradient": "last",
            },
            3,
        ),
        ({"estimator": ctagd_optax.same_batch()}, 4),
        (
            {
                "estimator": ctagd_optax.same_batch(),
                "correction_gradient": "last",
            },
            3,
        ),
        ({"estimator": ctagd_optax.hutchinson()}, 3),
    ],
)
def test_buffers_that_are_not_used_are_not_kept(options, vectors):
    assert parameters_in_state(**options) == vectors


def test_accumulator_dtype():
    opt = ctagd_optax.ct_agd(optax.sgd(0.1), 5, accumulator_dtype=jnp.bfloat16)
    params = problems.params()
    state = opt.init(params)
    assert state.evidence.curvature.quotient_sum["w"].dtype == jnp.bfloat16
    assert state.memory.previous_gradients["w"].dtype == jnp.float32
    _, after = jax.jit(opt.update)(params, state, params)
    assert after.evidence.gradient_sum["w"].dtype == jnp.bfloat16


def test_the_boundary_is_the_pure_function():
    params = problems.params()
    opt = ctagd_optax.ct_agd(optax.sgd(0.02), 4)
    x, state = problems.train(opt, params, 3)
    grads = jax.grad(problems.loss)(x)
    updates, after = jax.jit(opt.update)(grads, state, x)

    sums = after.evidence.curvature
    estimate = ctagd_optax.CurvatureEstimate(
        value=jax.tree.map(
            lambda n, d: n / (d + 1e-3), sums.quotient_sum, sums.mask_sum
        ),
        observed=jax.tree.map(lambda d: d > 0, sums.mask_sum),
    )
    average = jax.tree.map(lambda s: s / (6 + 1e-3), after.evidence.gradient_sum)
    gamma, correction, info = jax.jit(ctagd_optax.close_epoch)(estimate, average, x)
    np.testing.assert_allclose(gamma, after.gamma, rtol=1e-6)
    wanted = jax.tree.map(lambda g, c: -0.02 * g + c, grads, correction)
    chex.assert_trees_all_close(updates, wanted, rtol=1e-5)
    chex.assert_trees_all_close(info, after.info)
