"""What every estimator must do, against plain NumPy and against known Hessians."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import ctagd_optax
from ctagd_optax._estimators.base import random_signs
from tests import problems, reference_estimators

ESTIMATORS = {
    "secant": ctagd_optax.secant(),
    "same_batch": ctagd_optax.same_batch(every=2),
    "hutchinson": ctagd_optax.hutchinson(every=2),
}
each = pytest.mark.parametrize("name", ESTIMATORS)


@each
def test_exact_on_a_diagonal_quadratic_without_noise(name):
    estimate = problems.estimate(
        ESTIMATORS[name],
        problems.params(jnp.float64),
        jnp.arange(9),
        lambda x, _: problems.loss(x),
    )
    for key, h in problems.CURVATURE.items():
        np.testing.assert_allclose(estimate.value[key], h, rtol=1e-9)
        assert estimate.observed[key].all()
        if name == "secant":
            assert estimate.standard_error is estimate.count is None
            continue
        # Squares that cancel leave half of the digits.
        np.testing.assert_allclose(estimate.standard_error[key], 0, atol=1e-6)
        np.testing.assert_array_equal(estimate.count[key], 5)


HESSIAN = np.asarray([[2.0, 0.5, -1.0], [0.5, 1.0, 0.3], [-1.0, 0.3, 3.0]])


@each
def test_numpy_reference(name):
    """Random points and gradients: short epochs, bad gradients, one after another."""
    estimator, eps, shape = ESTIMATORS[name], 0.3, (2, 3)
    rng = np.random.default_rng(0)

    @jax.jit
    def observe(evidence, memory, step, second_params, second_gradients):
        extra = {
            "second_params": second_params,
            "second_gradients": second_gradients,
            "obj_fn": lambda x: jnp.sum(x["x"] * (x["x"] @ HESSIAN)) / 2,
        }
        return (
            estimator.observe(evidence, memory, step, eps, **extra),
            estimator.remember(memory, step),
        )

    def leaf(x):
        return {"x": jnp.asarray(x)}

    evidence, nothing = estimator.init(leaf(np.zeros(shape)), None)
    for epoch, (steps, bad) in enumerate(
        [(4, ()), (1, ()), (2, ()), (3, ()), (2, (0,)), (9, (4,)), (9, (2, 3, 8))]
    ):
        thetas, gradients, *second = rng.standard_normal((4, steps, *shape))
        for t in bad:
            gradients[t, 0, 1] = [np.nan, np.inf][t % 2]
        if 8 in bad:
            second[1][6, 1, 1] = np.nan
        memory, products = nothing, []
        for t in range(steps):
            step = problems.observed_step(
                t, leaf(thetas[t]), leaf(gradients[t]), None, epoch
            )
            step = step._replace(updates=leaf(thetas[t]))
            signs = np.asarray(random_signs(0, step)["x"])
            products.append(signs * (signs @ HESSIAN))
            evidence, memory = observe(
                evidence, memory, step, leaf(second[0][t]), leaf(second[1][t])
            )
        if name == "same_batch":
            wanted = reference_estimators.same_batch(thetas, gradients, *second, 2)
        elif name == "hutchinson":
            wanted = reference_estimators.hutchinson(products, gradients, 2)
        else:
            wanted = reference_estimators.secant(thetas, gradients, eps)
        found = estimator.estimate(evidence, eps)
        for field, expected in zip(found._fields, wanted, strict=False):
            np.testing.assert_allclose(
                getattr(found, field)["x"],
                expected,
                rtol=1e-6,
                err_msg=f"{field}, epoch {epoch}",
            )


@each
def test_state_is_plain_arrays_of_fixed_shapes(name):
    # Traced hyperparameters, 16-bit parameters, and a tensor that is left out.
    factory = optax.inject_hyperparams(ctagd_optax.ct_agd)
    opt = optax.masked(
        factory(optax.sgd(0.1), 3, estimator=ESTIMATORS[name]), {"w": True, "b": False}
    )
    params = problems.params(jnp.bfloat16)

    def loss(x):
        return problems.loss({**x, "b": params["b"]})

    with jax.numpy_dtype_promotion("standard"):  # inject_hyperparams needs it
        state = opt.init(params)
        updates, after = jax.eval_shape(
            lambda state: opt.update(
                params, state, params, grad_fn=jax.grad(loss), obj_fn=loss
            ),
            state,
        )
    chex.assert_trees_all_equal_shapes_and_dtypes(after, state)
    weak = [[x.weak_type for x in jax.tree.leaves(tree)] for tree in (state, after)]
    assert weak[0] == weak[1]
    assert updates["w"].dtype == jnp.bfloat16
    assert all(
        isinstance(x, jax.Array) and jnp.issubdtype(x.dtype, np.generic)
        for x in jax.tree.leaves(state)
    )
    assert optax.tree.get(state, "gamma").shape == (1,)


@each
def test_trains_16_bit_parameters(name):
    opt = ctagd_optax.ct_agd(
        optax.sgd(0.01, momentum=0.85),
        5,
        curvature_min=0.5,
        correction_rate=0.1,
        estimator=ESTIMATORS[name],
    )
    params = problems.params(jnp.bfloat16)
    after, state = problems.train(
        opt, params, 20, grad_fn=jax.grad(problems.loss), obj_fn=problems.loss
    )
    assert problems.loss(after) < 0.5 * problems.loss(params)
    assert state.epoch == 4
    estimate = ESTIMATORS[name].estimate(state.evidence.curvature, 0.0)
    assert estimate.value["w"].dtype == jnp.float32
    ratio = estimate.value["w"] / problems.CURVATURE["w"].astype(jnp.float32)
    assert abs(np.log10(np.median(ratio))) < 0.2


@each
def test_without_evidence(name):
    estimator = ESTIMATORS[name]
    params = {"x": jnp.ones((2, 3)), "empty": jnp.zeros((0,))}
    evidence, memory = estimator.init(params, None)
    nan = jax.tree.map(lambda p: p * jnp.nan, params)
    step = problems.observed_step(0, params, nan, nan)
    evidence = estimator.observe(
        evidence,
        memory,
        step,
        1e-3,
        grad_fn=lambda x: x,
        obj_fn=lambda x: jnp.sum(x["x"]),
    )
    estimate = estimator.estimate(evidence, 1e-3)
    assert not estimate.observed["x"].any()
    np.testing.assert_array_equal(estimate.value["x"], 0)
    chex.assert_shape(estimate.value["empty"], (0,))
    if name != "secant":
        np.testing.assert_array_equal(estimate.standard_error["x"], np.inf)
        np.testing.assert_array_equal(estimate.count["x"], 0)


@each
def test_accumulator_dtype(name):
    evidence, _ = jax.eval_shape(
        lambda p: ESTIMATORS[name].init(p, jnp.bfloat16), problems.params()
    )
    sums = [leaf for leaf in jax.tree.leaves(evidence) if leaf.ndim == 2]
    assert {leaf.dtype.name for leaf in sums} == {"bfloat16", "uint8"}
