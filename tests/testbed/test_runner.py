"""The runner: any optimizer, exact bookkeeping, failures kept apart."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import ctagd_optax
from ctagd_optax import testbed
from ctagd_optax.testbed._runner import Simulator, simulate

BOWL = testbed.LandscapeConfig(lumps=0).stationary()
SHORT = testbed.RunConfig(max_steps=60, patience=20)


def test_paths_equal_a_plain_loop():
    result = testbed.run("sgd", learning_rate=0.02, runs=2, seed=3, config=SHORT)
    for run in range(2):
        landscape = result.landscape(run)
        optimizer = optax.sgd(0.02, momentum=0.85)
        theta = landscape.start
        state = optimizer.init(theta)
        for t in range(int(result.steps[run])):
            value, grad = jax.value_and_grad(landscape.train_loss)(theta, t)
            np.testing.assert_allclose(
                result.train_loss[run, t + 1], value, rtol=1e-4, atol=1e-4
            )
            with jax.numpy_dtype_promotion("standard"):
                updates, state = optimizer.update(grad, state, theta)
            theta = optax.apply_updates(theta, updates)
            np.testing.assert_allclose(
                result.paths[run, t + 1], theta, rtol=1e-4, atol=1e-4
            )
        np.testing.assert_allclose(
            result.test_loss[run, -1], landscape.test_average(theta), rtol=1e-4
        )
        np.testing.assert_allclose(
            result.gap[run], landscape.gap(theta), rtol=1e-3, atol=1e-4
        )


@pytest.mark.parametrize("name", ["ct-agd", "l-bfgs", "newton"])
def test_a_batch_of_runs_equals_single_ones(name):
    optimizer = testbed.get_optimizer(name)
    landscapes = testbed.make_landscapes(3, seed=2)
    together = simulate(Simulator(optimizer, SHORT, batch=3), landscapes, 0.02)
    single = Simulator(optimizer, SHORT, batch=1)
    alone = simulate(single, landscapes, 0.02)  # three batches of one
    np.testing.assert_array_equal(together.steps, alone.steps)
    np.testing.assert_array_equal(together.status, alone.status)
    np.testing.assert_allclose(together.paths, alone.paths, rtol=1e-6, atol=1e-6)


def test_one_compilation_serves_rates_and_settings():
    traces = []

    def make(rate):
        traces.append(rate)
        return optax.sgd(rate)

    simulator = Simulator(testbed.Optimizer("counted", make), SHORT, batch=2)
    simulate(simulator, testbed.make_landscapes(2), 0.01)
    count = len(traces)
    still = testbed.LandscapeConfig().stationary()
    result = simulate(simulator, testbed.make_landscapes(5, config=still), 0.03)
    assert len(traces) == count
    assert result.paths.shape == (5, 61, 2)


@pytest.mark.parametrize("name", ["l-bfgs", "newton"])
def test_second_order_methods_finish_on_a_bowl_in_a_handful_of_steps(name):
    result = testbed.run(name, runs=4, landscape=BOWL)
    assert result.converged.all()
    patience = testbed.RunConfig().patience
    assert (result.steps - patience <= 4).all()
    np.testing.assert_allclose(result.final, 0, atol=1e-6)


def test_ct_agd_estimates_two_q_on_a_bowl():
    result = testbed.run("ct-agd", runs=4, landscape=BOWL)
    closed = result.internals.closed
    first = closed.argmax(axis=1)  # the end of the first epoch
    assert (first == 20).all()
    q = np.asarray(result.landscapes.quadratic)
    curvature = result.internals.curvature[np.arange(4), first]
    # ε in the denominator of the average is 1e-3 beside Σ t = 190.
    np.testing.assert_allclose(curvature, 2 * q[:, None] * np.ones((1, 2)), rtol=1e-4)


def test_internals_are_what_the_optimizer_did():
    """γ and the correction against two updates, one of which keeps the epoch open."""
    settings = testbed.CTAGDSettings(steps_per_epoch=5)
    optimizer = settings.wrap(optax.sgd(0.01, momentum=0.85))
    config = testbed.RunConfig(max_steps=23, patience=23)
    result = testbed.run(optimizer, runs=1, config=config, settings=settings)
    landscape, internals = result.landscape(0), result.internals
    theta = landscape.start
    state = optimizer.init(theta)
    backbone = optax.sgd(0.01, momentum=0.85)
    trace = backbone.init(theta)
    epochs = 0

    @jax.jit
    def step(theta, state, trace, t):
        grad = jax.grad(landscape.train_loss)(theta, t)
        return (
            optimizer.update(grad, state, theta),
            optimizer.update(grad, state, theta, epoch_end=False),
            backbone.update(grad, trace, theta),
        )

    for t in range(int(result.steps[0])):
        with jax.numpy_dtype_promotion("standard"):
            (updates, after), (without, _), (plain, trace) = step(
                theta, state, trace, t
            )
        np.testing.assert_allclose(
            internals.correction[0, t + 1], updates - without, rtol=1e-3, atol=1e-4
        )
        np.testing.assert_allclose(
            internals.gamma[0, t + 1], np.mean(plain / without), rtol=1e-3
        )
        epochs += int(internals.closed[0, t + 1])
        assert epochs == int(after.epoch)
        theta, state = optax.apply_updates(theta, updates), after
    assert epochs == 4
    assert np.abs(internals.correction).max() > 0.1


@pytest.mark.parametrize(
    ("name", "backbone"),
    [("robust", optax.sgd(0.003, momentum=0.85)), ("robust-adam", optax.adam(0.003))],
)
def test_the_robust_method_is_the_librarys_and_its_multiplier_is_read(name, backbone):
    result = testbed.run(name, learning_rate=0.003, runs=1, config=SHORT)
    landscape, steps = result.landscape(0), int(result.steps[0])
    optimizer = ctagd_optax.robust_ct_agd(backbone, 20)

    def step(carry, t):
        theta, state, bare = carry
        value, grad = jax.value_and_grad(landscape.train_loss)(theta, t)
        updates, state = optimizer.update(grad, state, theta, value=value)
        plain, bare = backbone.update(grad, bare, theta)
        theta = optax.apply_updates(theta, updates)
        return (theta, state, bare), (theta, updates / plain)

    theta = landscape.start
    with jax.numpy_dtype_promotion("standard"):
        _, (path, ratio) = jax.lax.scan(
            step, (theta, optimizer.init(theta), backbone.init(theta)), np.arange(steps)
        )
    np.testing.assert_allclose(
        result.paths[0, 1 : steps + 1], path, rtol=1e-4, atol=1e-4
    )
    multiplier = result.internals.multiplier[0, 1 : steps + 1]
    np.testing.assert_allclose(multiplier, ratio[:, 0], rtol=1e-3)
    assert multiplier.max() > 2
    assert np.flatnonzero(result.internals.closed[0]).tolist()[0] == 20


def test_only_curvature_tuned_optimizers_have_internals():
    assert testbed.run("sgd", runs=1, config=SHORT).internals is None


def test_divergence_is_a_failure_and_stays_out_of_the_means():
    result = testbed.run("sgd", learning_rate=50.0, runs=3, config=SHORT)
    assert (result.status == "diverged").all()
    assert np.isfinite(result.paths).all()
    assert (result.steps < SHORT.max_steps).all()
    assert np.isnan(result.interval(result.final).mean)
    assert "0 of 3 converged; 3 diverged" in str(result)


def test_no_convergence_in_the_budget_is_a_failure():
    result = testbed.run("sgd", learning_rate=1e-4, runs=3, config=SHORT)
    assert (result.status == "unsettled").all()
    assert (result.steps == SHORT.max_steps).all()
    assert "3 unsettled" in str(result)


def test_jumping_about_is_not_convergence():
    """Every other point lies far above the best: no progress, but no rest either."""

    def jump(updates, state, params, **extra):
        del updates, extra
        return jnp.where(state == 0, 20.0, -20.0) * jnp.ones_like(params), 1 - state

    jumper = optax.GradientTransformationExtraArgs(
        lambda params: jnp.zeros((), jnp.int32), jump
    )
    result = testbed.run(jumper, runs=2, config=SHORT)
    assert (result.status == "unsettled").all()


def test_steps_count_the_patience():
    """An optimizer that never moves stops after exactly the patience."""
    result = testbed.run(optax.set_to_zero(), runs=2, config=SHORT)
    assert result.converged.all()
    assert (result.steps == SHORT.patience).all()
    np.testing.assert_array_equal(result.paths[:, -1], result.paths[:, 0])


def test_a_mean_is_over_converged_runs_only():
    result = testbed.run("sgd", learning_rate=0.01, runs=3, config=SHORT)
    status = np.asarray(["converged", "unsettled", "converged"])
    mixed = dataclasses.replace(result, status=status)
    expected = (result.final[0] + result.final[2]) / 2
    assert mixed.interval(mixed.final).mean == pytest.approx(float(expected))


def test_interval_is_students():
    values = [1.0, 2.0, 4.0, 8.0]
    interval = testbed.Interval.of(values)
    # t(0.975, 3 degrees) = 3.18245 from printed tables.
    assert interval.half == pytest.approx(
        3.18245 * np.std(values, ddof=1) / 2, rel=1e-5
    )
    assert str(testbed.Interval.of([3.0])) == "3.00"
    assert str(testbed.Interval.of([])) == "–"


def test_runs_do_not_depend_on_numpy_promotion_settings():
    with jax.numpy_dtype_promotion("strict"), jax.numpy_rank_promotion("raise"):
        strict = testbed.run("adam", runs=2, config=SHORT)
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        loose = testbed.run("adam", runs=2, config=SHORT)
    np.testing.assert_array_equal(strict.paths, loose.paths)


def test_own_ct_agd_without_settings_runs():
    optimizer = ctagd_optax.ct_sgd(0.02, steps_per_epoch=20, weight_decay=0.0)
    result = testbed.run(optimizer, runs=1, config=SHORT, name="mine")
    assert result.name == "mine"
    assert result.internals is None


def test_grad_fn_gives_the_gradients_of_the_step():
    def update(updates, state, params, *, grad_fn, **extra):
        del updates, extra
        return -0.01 * grad_fn(params), state

    own = optax.GradientTransformationExtraArgs(lambda _: optax.EmptyState(), update)
    found, expected = (
        testbed.run(optimizer, runs=2, config=SHORT)
        for optimizer in (own, optax.sgd(0.01))
    )
    np.testing.assert_allclose(found.paths, expected.paths, rtol=1e-6)


def test_an_estimator_that_asks_for_gradients_runs():
    optimizer = ctagd_optax.ct_agd(
        optax.sgd(0.01), 20, estimator=ctagd_optax.same_batch()
    )
    result = testbed.run(optimizer, runs=2, config=SHORT)
    assert (result.train_average[:, -1] < result.train_average[:, 0]).all()


def test_bad_arguments_are_refused():
    with pytest.raises(ValueError, match="runs"):
        testbed.run("sgd", runs=0)
    with pytest.raises(ValueError, match="learning_rate"):
        testbed.run("lion")
    with pytest.raises(ValueError, match="learning_rate"):
        testbed.run(optax.sgd(0.1), learning_rate=0.1)
    with pytest.raises(TypeError, match="GradientTransformation"):
        testbed.run(3)
    with pytest.raises(ValueError, match="CTAGDSettings"):
        testbed.run("robust", settings=testbed.RobustSettings())
    with pytest.raises(ValueError, match="patience"):
        testbed.RunConfig(patience=0)
