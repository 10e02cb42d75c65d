"""The skeleton: counting, dividing, closing; and what it does not do."""

from typing import Any, NamedTuple

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
    assert state.evidence.curvature.quotient_sum.high["w"].dtype == jnp.bfloat16
    assert state.memory.previous_gradients["w"].dtype == jnp.float32
    _, after = jax.jit(opt.update)(params, state, params)
    assert after.evidence.gradient_sum.high["w"].dtype == jnp.bfloat16


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


@pytest.mark.parametrize("kind", ["dict", "tuple", "tree", "none", "named"])
def test_memory_of_an_estimator_may_be_any_tree(kind):
    # One that keeps the mean gradient of all steps, which nothing may overwrite.
    class Memory(NamedTuple):
        average: Any

    wrap, unwrap = {
        "dict": (lambda x: {"a": x}, lambda m: m["a"]),
        "tuple": (lambda x: (x,), lambda m: m[0]),
        "tree": (lambda x: x, lambda m: m),
        "none": (lambda x: None, lambda m: None),
        "named": (Memory, lambda m: m.average),
    }[kind]
    inner = ctagd_optax.secant()

    def init(params, dtype):
        evidence, memory = inner.init(params, dtype)
        zeros = jax.tree.map(jnp.zeros_like, params)
        return (evidence, memory), wrap(zeros)

    def observe(evidence, memory, step, eps, **extra):
        del memory, extra
        found = inner.observe(evidence[0], evidence[1], step, eps)
        return found, inner.remember(evidence[1], step)

    def remember(memory, step):
        if kind == "none":
            return None
        mean = jax.tree.map(lambda a, g: (a + g) / 2, unwrap(memory), step.gradients)
        return wrap(mean)

    estimator = ctagd_optax.CurvatureEstimator(
        init, observe, remember, lambda e, eps: inner.estimate(e[0], eps)
    )
    opt = ctagd_optax.ct_agd(optax.sgd(0.1), 3, estimator=estimator)
    plain = ctagd_optax.ct_agd(optax.sgd(0.1), 3)
    params = same = problems.params()
    state, plain_state = opt.init(params), plain.init(params)
    mean = jax.tree.map(jnp.zeros_like, params)
    for _ in range(7):
        grads, same_grads = map(jax.grad(problems.loss), (params, same))
        mean = jax.tree.map(lambda a, g: (a + g) / 2, mean, grads)
        updates, state = jax.jit(opt.update)(grads, state, params)
        params = optax.apply_updates(params, updates)
        updates, plain_state = jax.jit(plain.update)(same_grads, plain_state, same)
        same = optax.apply_updates(same, updates)
    chex.assert_trees_all_close(params, same, rtol=1e-6)
    if kind != "none":
        chex.assert_trees_all_close(unwrap(state.memory), mean, rtol=1e-6)


@pytest.mark.parametrize("wrap", [ctagd_optax.ct_agd, ctagd_optax.robust_ct_agd])
def test_a_state_of_numpy_arrays(wrap):
    opt = wrap(optax.sgd(0.1), 3)
    params = problems.params()
    state = opt.init(params)
    for _ in range(4):
        grads = jax.grad(problems.loss)(params)
        plain = jax.tree.map(np.asarray, (grads, state, params))
        expected, _ = opt.update(grads, state, params)
        updates, state = opt.update(*plain)
        chex.assert_trees_all_equal(updates, expected)
        params = optax.apply_updates(params, updates)


@pytest.mark.parametrize(
    "annealing", [lambda *_: 2.0, lambda *_: jnp.float32(2), lambda g, *_: 0 * g + 2]
)
def test_annealing_may_return_one_number(annealing):
    opt = ctagd_optax.ct_agd(optax.sgd(0.1), 3, annealing=annealing)
    params = problems.params()
    updates, state = opt.update(params, opt.init(params), params)
    chex.assert_trees_all_close(updates, jax.tree.map(lambda p: -0.05 * p, params))
    np.testing.assert_array_equal(state.multiplier, 0.5)


@pytest.mark.parametrize("name", ["loss", "val", "values", "Value", "batch_loss"])
def test_a_loss_by_another_name_is_not_lost(name):
    opt, params = ctagd_optax.robust_ct_agd(optax.sgd(0.1), 5), problems.params()
    state = opt.init(params)
    with pytest.raises(TypeError, match=f"no argument '{name}'; pass it as value=loss"):
        opt.update(params, state, params, **{name: 1.0})
    opt.update(params, state, params, loss=1.0, value=1.0)  # a backbone may take it


@pytest.mark.parametrize("method", [ctagd_optax.ct_agd, ctagd_optax.robust_ct_agd])
def test_arguments_that_the_backbone_has_by_name_reach_it(method):
    def update(updates, state, params=None, *, loss, new_epoch, **extra_args):
        return jax.tree.map(lambda g: -loss * g, updates), state

    backbone = optax.GradientTransformationExtraArgs(lambda _: (), update)
    opt, params = method(backbone, 5), problems.params()
    extra = {"loss": 0.5, "new_epoch": True, "epoch_index": 3}
    updates, _ = opt.update(params, opt.init(params), params, **extra)
    chex.assert_trees_all_close(updates, jax.tree.map(lambda p: -0.5 * p, params))
    with pytest.raises(TypeError, match="'last_epoch'; did you mean epoch_end"):
        opt.update(params, opt.init(params), params, last_epoch=True, **extra)


@pytest.mark.parametrize("name", ["value_fn", "loss", "new_epoch"])
def test_a_function_is_for_the_backbone_or_the_estimator(name):
    opt, params = ctagd_optax.ct_sgd(steps_per_epoch=5), problems.params()
    opt.update(params, opt.init(params), params, **{name: problems.loss})


def test_what_is_wrapped_is_not_wrapped_again():
    backbone = optax.chain(optax.clip(1.0), ctagd_optax.ct_sgd(steps_per_epoch=5))
    for method in (ctagd_optax.ct_agd, ctagd_optax.robust_ct_agd):
        with pytest.raises(ValueError, match="backbone is wrapped already"):
            method(backbone, 5).init(problems.params())
