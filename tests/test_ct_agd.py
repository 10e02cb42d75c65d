"""Bad input is refused by name, and one bad gradient spoils nothing."""

import functools
import inspect

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import ctagd_optax
from tests import problems


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"steps_per_epoch": 0},
            "steps_per_epoch must be a whole number of at least 1",
        ),
        ({"steps_per_epoch": -3}, "steps_per_epoch .* got -3"),
        ({"steps_per_epoch": 2.5}, r"steps_per_epoch .* got 2\.5"),
        ({"steps_per_epoch": float("inf")}, "steps_per_epoch .* got inf"),
        ({"steps_per_epoch": jnp.asarray(0)}, "steps_per_epoch .* got 0"),
        ({"curvature_min": 0.0}, r"curvature_min must be finite and above 0, got 0\.0"),
        ({"curvature_min": float("nan")}, "curvature_min must be finite and above 0"),
        ({"curvature_max": float("inf")}, "curvature_max must be finite and above 0"),
        (
            {"curvature_min": 2.0, "curvature_max": 1.0},
            r"curvature_min must be at most curvature_max, got 2\.0 and 1\.0",
        ),
        ({"quantile": 1.1}, r"quantile must be in \[0, 1\], got 1\.1"),
        ({"quantile": -0.1}, r"quantile must be in \[0, 1\], got -0\.1"),
        ({"eps": -1e-3}, r"eps must be finite and at least 0, got -0\.001"),
        ({"correction_rate": -1.0}, "correction_rate must be finite and at least 0"),
        (
            {"correction_gradient": "mean"},
            "correction_gradient must be one of 'average', 'last'; got 'mean'",
        ),
        (
            {"unobserved": "drop"},
            "unobserved must be one of 'clamp', 'skip'; got 'drop'",
        ),
        (
            {"annealing": "cosine"},
            "annealing must be a function or one of 'linear', 'exponential', 'none'; "
            "got 'cosine'",
        ),
        ({"annealing": ["linear"]}, "annealing must be a function or one of"),
    ],
)
def test_bad_options(options, message):
    with pytest.raises(ValueError, match=message):
        ctagd_optax.ct_agd(optax.sgd(0.1), **{"steps_per_epoch": 5, **options})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"backbone": 0.1}, "backbone must be an optax.GradientTransformation"),
        (
            {"estimator": "secant"},
            r"got secant; call it: estimator=ctagd_optax\.secant\(\)",
        ),
        (
            {"estimator": ctagd_optax.hutchinson},
            r"got function; call it: estimator=ctagd_optax\.hutchinson\(\)",
        ),
        ({"accumulator_dtype": jnp.int32}, "accumulator_dtype must be .* got int32"),
        ({"quantile": optax.constant_schedule(0.1)}, "quantile must be a number, got"),
        ({"steps_per_epoch": len}, "steps_per_epoch must be a number, got"),
    ],
)
def test_bad_types(options, message):
    options = {"backbone": optax.sgd(0.1), "steps_per_epoch": 5, **options}
    with pytest.raises(TypeError, match=message):
        ctagd_optax.ct_agd(**options)


@pytest.mark.parametrize(
    ("dtype", "message"),
    [
        ("int32", r"params must be real .* got int32 at params\['x'\].*set_to_zero"),
        ("float8_e8m0fnu", r"got float8_e8m0fnu at params\['x'\]; it has no sign"),
        ("complex64", r"got complex64 at params\['x'\].*split_real_and_imaginary"),
    ],
)
def test_bad_parameters(dtype, message):
    opt = ctagd_optax.ct_sgd(steps_per_epoch=5)
    with pytest.raises(TypeError, match=message):
        opt.init({"x": jnp.ones(3, dtype)})


def test_a_number_of_steps_that_was_rounded_is_refused():
    make = optax.inject_hyperparams(ctagd_optax.ct_agd)
    opt = make(optax.sgd(0.1), steps_per_epoch=1001.0)
    with pytest.raises(TypeError, match=r"steps_per_epoch must be an integer, got one"):
        opt.init(jnp.ones(3, jnp.bfloat16))


def test_python_numbers_are_no_parameters():
    opt = ctagd_optax.ct_sgd(steps_per_epoch=5)
    with pytest.raises(TypeError, match=r"got float at params\['x'\]; make arrays"):
        opt.init({"x": 1.0})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"quantile": 10}, r"quantile must be in \[0, 1\], got 10"),
        ({"curvature_min": -1}, "curvature_min must be finite and above 0, got -1"),
        ({"correction_rate": -1}, "correction_rate must be finite and at least 0"),
    ],
)
def test_bad_options_of_the_boundary(options, message):
    estimate = ctagd_optax.CurvatureEstimate(jnp.ones(2), jnp.ones(2, bool))
    with pytest.raises(ValueError, match=message):
        ctagd_optax.close_epoch(estimate, jnp.ones(2), jnp.ones(2), **options)


@pytest.mark.parametrize(
    "estimator",
    [
        ctagd_optax.secant(),
        ctagd_optax.secant("algorithm"),
    ],
)
def test_no_parameters_at_all(estimator):
    # As where a label of optax.partition matches nothing.
    opt = ctagd_optax.ct_agd(optax.sgd(0.1), 2, estimator=estimator)
    state = opt.init({})
    for _ in range(3):
        updates, state = jax.jit(opt.update)({}, state, {})
    assert updates == {}
    assert state.epoch == 1


def test_bad_updates():
    opt = ctagd_optax.ct_sgd(steps_per_epoch=5)
    params = problems.params()
    state = opt.init(params)
    with pytest.raises(ValueError, match="params must be given"):
        opt.update(params, state)
    with pytest.raises(TypeError, match=r"must be the CTAGDState .* got dict"):
        opt.update(params, state._asdict(), params)
    with pytest.raises(
        ValueError, match="gradients and params must be trees of the same"
    ):
        opt.update({"w": params["w"]}, state, params)
    with pytest.raises(
        ValueError, match=r"same shapes, got \(3,\) and \(2,\) at \['b'\]"
    ):
        opt.update({**params, "b": jnp.ones(3)}, state, params)
    with pytest.raises(TypeError, match=r"params must be real .* got int32 at params"):
        opt.update(params, state, jax.tree.map(jnp.int32, params))
    bare = optax.adam(0.1).init(params)
    with pytest.raises(TypeError, match=r"got tuple; make it by this optimizer's init"):
        opt.update(params, bare, params)
    with pytest.raises(ValueError, match="made for 2 tensors, params has 1"):
        opt.update([params["w"]], state, [params["w"]])


def test_arguments_of_update_that_are_mixed_up():
    opt = ctagd_optax.ct_sgd(steps_per_epoch=5)
    params = problems.params()
    state = opt.init(params)
    with pytest.raises(TypeError, match="the arguments are swapped: call update"):
        opt.update(params, params, state)
    half = problems.params(jnp.bfloat16)
    with pytest.raises(ValueError, match="or gradients and params are swapped"):
        opt.update(params, state, half)
    with pytest.raises(ValueError, match="got bfloat16 for float32; cast them"):
        opt.update(half, state, half)
    other = ctagd_optax.robust_ct_agd(optax.sgd(0.1), 5)
    with pytest.raises(TypeError, match="robust_ct_agd got a state of another method"):
        other.update(params, state, params)
    with pytest.raises(TypeError, match="ct_agd got a state of another method"):
        opt.update(params, other.init(params), params)
    alone = ctagd_optax.robust_ct_agd(optax.sgd(0.1), 5, pooling="tensor")
    with pytest.raises(TypeError, match="or one made with other options"):
        alone.update(params, other.init(params), params)
    for flag in ("yes", jnp.asarray([True])):
        with pytest.raises(TypeError, match="epoch_end must be one boolean, got"):
            opt.update(params, state, params, epoch_end=flag)


@pytest.mark.parametrize(
    "name",
    ["epoch_ends", "end_of_epoch", "epochend", "EPOCH_END", "new_epoch", "epochs"],
)
def test_a_misspelt_epoch_end(name):
    opt = ctagd_optax.ct_sgd(steps_per_epoch=5)
    params = problems.params()
    state = opt.init(params)
    if name == "epochs":  # it may be the backbone's
        opt.update(params, state, params, **{name: True})
        return
    with pytest.raises(TypeError, match=f"no argument '{name}'; did you mean epoch_en"):
        opt.update(params, state, params, **{name: True})


@pytest.mark.parametrize("preset", [ctagd_optax.ct_sgd, ctagd_optax.ct_adam])
def test_bad_learning_rates_of_presets(preset):
    with pytest.raises(TypeError, match=r"got an optimizer; to wrap one, use ct_agd\("):
        preset(optax.sgd(0.1), steps_per_epoch=5)
    with pytest.raises(
        TypeError, match=r"got the function .*, which makes an optimizer"
    ):
        preset(optax.adam, steps_per_epoch=5)
    with pytest.raises(ValueError, match="learning_rate must be finite and at least 0"):
        preset(-0.1, steps_per_epoch=5)
    with pytest.raises(TypeError, match="learning_rate must be a number, got 'fast'"):
        preset("fast", steps_per_epoch=5)


@pytest.mark.parametrize("preset", [ctagd_optax.ct_sgd, ctagd_optax.ct_adam])
def test_schedules_may_have_a_learning_rate_of_their_own(preset):
    def decay(step, learning_rate, total):
        return learning_rate * jnp.maximum(0.0, 1 - step / total)

    schedule = functools.partial(decay, learning_rate=0.1, total=100)
    preset(schedule, steps_per_epoch=5)
    preset(
        lambda step, learning_rate=0.1: learning_rate / (1 + step), steps_per_epoch=5
    )


def test_one_nan_gradient_leaves_the_epoch_intact():
    estimator = ctagd_optax.secant()
    opt = ctagd_optax.ct_agd(
        optax.apply_if_finite(optax.sgd(0.02), 5), 10, eps=0.0, estimator=estimator
    )
    params = problems.params(jnp.float64)
    state = opt.init(params)
    for n in range(9):
        grads = jax.grad(problems.loss)(params)
        if n == 4:
            grads["w"] = grads["w"].at[0, 1].set(jnp.nan)
        updates, state = jax.jit(opt.update)(grads, state, params)
        params = optax.apply_updates(params, updates)
    estimate = estimator.estimate(state.evidence.curvature, 0.0)
    chex.assert_trees_all_close(estimate.value, problems.CURVATURE, rtol=1e-9)
    np.testing.assert_array_equal(state.not_finite, [0, 1])
    _, state = opt.update(params, state, params)
    np.testing.assert_array_equal(state.info.left_out, [0, 1])


@pytest.mark.parametrize("correction_gradient", ["average", "last"])
def test_a_nan_gradient_at_the_boundary_corrects_nothing_by_it(correction_gradient):
    opt = ctagd_optax.ct_agd(
        optax.apply_if_finite(optax.sgd(0.02), 5),
        3,
        correction_gradient=correction_gradient,
    )
    params, state = problems.train(opt, problems.params(), 2)
    bad = jax.tree.map(lambda p: p * jnp.nan, params)
    updates, state = jax.jit(opt.update)(bad, state, params)
    assert state.epoch == 1
    chex.assert_tree_all_finite(updates)
    moved = any(np.any(u != 0) for u in jax.tree.leaves(updates))
    assert moved == (correction_gradient == "average")


def test_quotients_that_overflow_both_ways_are_no_evidence():
    opt = ctagd_optax.ct_agd(optax.sgd(0.0), 4, correction_rate=1e-38)
    points = [0.0, 1e-2, 2e-2, 3e-2]
    slopes = [0.0, 3e38, -3e38, 3e38]
    state = opt.init(jnp.zeros(2, jnp.float32))
    for x, g in zip(points, slopes, strict=True):
        grads = jnp.asarray([g, x], jnp.float32)
        updates, state = jax.jit(opt.update)(grads, state, jnp.full(2, x, jnp.float32))
    assert np.isnan(state.evidence.curvature.quotient_sum[0])
    np.testing.assert_allclose(state.info.observed, 0.5)
    assert np.isfinite(updates).all()


@pytest.mark.parametrize("unobserved", ["clamp", "skip"])
def test_a_tensor_without_evidence_is_left_alone(unobserved):
    # One tensor's gradients are too small to move anything by eps.
    grads = {"w": jnp.full(3, 1e-6), "b": jnp.full(2, 0.1)}
    opt = ctagd_optax.ct_agd(
        optax.sgd(1.0), 3, unobserved=unobserved, correction_gradient="last"
    )
    params = jax.tree.map(jnp.ones_like, grads)
    state = opt.init(params)
    for _ in range(3):
        updates, state = opt.update(grads, state, params)
        params = optax.apply_updates(params, updates)
    np.testing.assert_array_equal(state.info.observed, [1.0, 0.0])
    np.testing.assert_allclose(state.gamma, [0.1, 1.0], rtol=1e-6)
    np.testing.assert_array_equal(updates["w"], -grads["w"])
    np.testing.assert_array_equal(state.info.clamped_low, [1.0, 0.0])


@pytest.mark.parametrize("unobserved", ["clamp", "skip"])
def test_epochs_of_one_step_are_the_backbones(unobserved):
    opt = ctagd_optax.ct_agd(optax.sgd(0.02), 1, unobserved=unobserved)
    params, state = problems.train(opt, problems.params(), 20)
    plain, _ = problems.train(optax.sgd(0.02), problems.params(), 20)
    chex.assert_trees_all_close(params, plain, rtol=1e-6)
    np.testing.assert_array_equal(state.gamma, 1)


def test_the_clamp_of_the_ablation_is_the_default():
    for factory in (ctagd_optax.ct_agd, ctagd_optax.ct_sgd, ctagd_optax.ct_adam):
        options = inspect.signature(factory).parameters
        assert options["curvature_min"].default == 0.1
        assert options["curvature_max"].default == 10.0


def test_export_to_every_platform():
    opt = ctagd_optax.ct_sgd(steps_per_epoch=4)

    def step(params, state):
        updates, state = opt.update(jax.grad(problems.loss)(params), state, params)
        return optax.apply_updates(params, updates), state

    params = problems.params()
    exported = jax.export.export(jax.jit(step), platforms=("cpu", "cuda", "tpu"))(
        params, opt.init(params)
    )
    assert exported.platforms == ("cpu", "cuda", "tpu")
    expected = jax.jit(step)(params, opt.init(params))
    actual = exported.call(params, opt.init(params))
    chex.assert_trees_all_close(actual, expected)


@pytest.mark.parametrize("unobserved", ["clamp", "skip"])
def test_it_settles_near_a_minimum(unobserved):
    # Steps get shorter than ε, and what is left without evidence is left alone.
    opt = ctagd_optax.ct_agd(optax.sgd(0.01, momentum=0.85), 20, unobserved=unobserved)
    params, _ = problems.train(opt, problems.params(), 400)
    assert problems.loss(params) < 1e-6


@pytest.mark.parametrize("preset", ["ct_sgd", "ct_adam"])
def test_an_unknown_option_of_a_preset(preset):
    with pytest.raises(TypeError, match=f"{preset} has no option 'schedule'; .* give"):
        getattr(ctagd_optax, preset)(steps_per_epoch=5, schedule=lambda step: 1.0)
