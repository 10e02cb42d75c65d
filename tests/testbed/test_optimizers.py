"""The roster, Newton, inner iterations, and every name in Optax."""

import dataclasses
import inspect

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import ctagd_optax
from ctagd_optax import testbed
from ctagd_optax.testbed._runner import Simulator

TINY = testbed.RunConfig(max_steps=6, patience=6)


@pytest.mark.filterwarnings("ignore:.*deprecated:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:Specifying a key:UserWarning")
@pytest.mark.parametrize("name", sorted(testbed.optax_optimizers()))
def test_every_optax_optimizer_fits_the_runner(name):
    """Traced, not compiled: the arguments it needs are there, its state keeps shape."""
    simulator = Simulator(testbed.get_optimizer(name), TINY, batch=2)
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        record, steps, _ = jax.eval_shape(
            simulator._simulate, testbed.make_landscapes(2), np.ones(2)
        )
    assert record.theta.shape == (2, 7, 2)
    assert steps.shape == (2,)


@pytest.mark.parametrize(
    "name", ["sophia", "polyak_sgd", "momo", "schedule_free_sgd", "optax.lbfgs"]
)
def test_optimizers_that_need_more_than_gradients_run(name):
    result = testbed.run(
        testbed.get_optimizer(name), learning_rate=0.01, runs=1, config=TINY
    )
    assert result.status[0] != "diverged"
    assert result.steps[0] == 6
    assert result.train_average[0, -1] < result.train_average[0, 0]


def test_the_list_has_what_optax_names():
    names = testbed.optax_optimizers()
    for name in (
        "optax.sgd",
        "optax.lbfgs",
        "optax.polyak_sgd",
        "optax.contrib.sophia",
        "optax.contrib.prodigy",
        "optax.contrib.schedule_free_adamw",
    ):
        assert name in names
    assert not any("scale_by" in name for name in names)


def test_own_names_come_before_optax():
    gradient, theta = jnp.ones(2), jnp.zeros(2)
    lengths = {}
    for name in ("sgd", "optax.sgd"):
        optimizer = testbed.get_optimizer(name).make(0.1)
        state = optimizer.init(theta)
        for _ in range(2):
            updates, state = optimizer.update(gradient, state, theta)
        lengths[name] = float(updates[0])
    assert lengths["sgd"] == pytest.approx(-0.1 * 1.85)  # the paper's momentum
    assert lengths["optax.sgd"] == pytest.approx(-0.1)
    assert testbed.get_optimizer("prodigy").name == "prodigy"


def test_unknown_names_get_close_matches():
    with pytest.raises(ValueError, match=r"'newtn'; did you mean newton"):
        testbed.get_optimizer("newtn")
    with pytest.raises(ValueError, match="try one of robust"):
        testbed.get_optimizer("zzzzzz")


def test_newton_solves_a_quadratic_in_one_step():
    matrix = jnp.asarray([[3.0, 1.0], [1.0, 2.0]])

    def loss(x):
        return 0.5 * x @ matrix @ x - x[0]

    optimizer = testbed.newton()
    theta = jnp.asarray([4.0, -7.0])
    updates, _ = optimizer.update(
        jax.grad(loss)(theta), optimizer.init(theta), theta, value_fn=loss
    )
    expected = np.linalg.solve(matrix, [1.0, 0.0])
    np.testing.assert_allclose(theta + updates, expected, rtol=1e-5, atol=1e-5)


def test_newton_goes_to_a_summit_as_gladly():
    """Pure: no damping saves it from negative curvature."""

    def loss(x):
        return -jnp.sum(x**2)

    optimizer = testbed.newton()
    theta = jnp.ones(2)
    updates, _ = optimizer.update(
        jax.grad(loss)(theta), optimizer.init(theta), theta, value_fn=loss
    )
    np.testing.assert_allclose(theta + updates, 0, atol=1e-6)


def test_inner_iterations_equal_a_loop_and_stop_early():
    def loss(x):
        return jnp.sum(jnp.asarray([1.0, 3.0]) * x**2)

    optimizer = testbed.inner_iterations(optax.sgd(0.1, momentum=0.5), 4)
    theta = jnp.ones(2)
    updates, _ = optimizer.update(theta, optimizer.init(theta), theta, value_fn=loss)
    plain = optax.sgd(0.1, momentum=0.5)
    point, state = theta, plain.init(theta)
    for _ in range(4):
        step, state = plain.update(jax.grad(loss)(point), state, point)
        point = optax.apply_updates(point, step)
    np.testing.assert_allclose(theta + updates, point, rtol=1e-6)

    at_rest = jnp.zeros(2)
    state = optimizer.init(at_rest)
    updates, after = optimizer.update(at_rest, state, at_rest, value_fn=loss)
    np.testing.assert_array_equal(updates, 0)
    chex.assert_trees_all_equal(after, state)


def test_the_paper_mode_of_lbfgs_explains_the_papers_51_steps():
    optimizer = testbed.get_optimizer("l-bfgs").for_mode("paper")
    result = testbed.run(optimizer, runs=4, stationary=True)
    assert (result.steps <= 52).all()


def test_ct_agd_has_the_librarys_defaults_and_the_appendix_its_own_clamp():
    defaults = inspect.signature(ctagd_optax.ct_agd).parameters
    own = dataclasses.asdict(testbed.get_optimizer("ct-agd").settings)
    assert own.pop("steps_per_epoch") == 20
    assert own == {name: defaults[name].default for name in own}
    appendix = testbed.get_optimizer("ct-agd-appendix")
    assert appendix.name == "CT-AGD, appendix"
    clamp = {"curvature_min": 0.01, "curvature_max": 100.0}
    found = dataclasses.asdict(appendix.settings)
    assert found == {**own, **clamp, "steps_per_epoch": 20}


def test_the_control_has_no_curvature_and_no_correction():
    result = testbed.run("gamma-min", runs=2, config=testbed.RunConfig(max_steps=45))
    internals = result.internals
    assert (internals.correction == 0).all()
    np.testing.assert_allclose(internals.gamma[:, 1:21], 1)  # epoch 0
    t = np.arange(20)
    schedule = 0.1 + 0.9 * t / 20
    np.testing.assert_allclose(
        internals.gamma[:, 21:41], np.stack([schedule] * 2), rtol=1e-5
    )


@pytest.mark.parametrize(
    "optimizer", [testbed.newton(), testbed.inner_iterations(optax.sgd(0.1), 2)]
)
def test_a_missing_value_fn_is_told(optimizer):
    theta = jnp.ones(2)
    with pytest.raises(ValueError, match="value_fn"):
        optimizer.update(theta, optimizer.init(theta), theta)
