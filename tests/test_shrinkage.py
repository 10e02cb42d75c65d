"""Estimates that lean on each other."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding, PartitionSpec

import ctagd_optax
from ctagd_optax._shrinkage import shrink_to_means
from tests import problems, reference_estimators


def shrunk(value, error, observed=None):
    value, error = jnp.asarray(value), jnp.asarray(error)
    observed = jnp.ones(value.shape, bool) if observed is None else observed
    found = jax.jit(shrink_to_means)(
        ctagd_optax.CurvatureEstimate({"x": value}, {"x": observed}, {"x": error})
    )
    return found.value["x"], found.standard_error["x"]


def drawn(size=2000, spread=1.0, seed=0):
    """True values, estimates of them, and their errors, of all sizes."""
    rng = np.random.default_rng(seed)
    true = 3 + spread * rng.standard_normal(size)
    error = 10 ** rng.uniform(-2, 2, size)
    return true, true + error * rng.standard_normal(size), error


@pytest.mark.parametrize("spread", [0.0, 0.1, 1.0, 30.0])
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_numpy_reference(spread, dtype):
    _, value, error = drawn(200, spread)
    error[:5], error[5:8] = 0.0, np.inf
    observed = np.arange(200) % 7 != 0
    wanted = reference_estimators.shrunk(value, observed, error)
    found = shrunk(value.astype(dtype), error.astype(dtype), observed)
    for actual, expected in zip(found, wanted, strict=True):
        assert actual.dtype == dtype
        np.testing.assert_allclose(actual, expected, rtol=0.02, atol=0.01)
    # What is known exactly, not known, or not observed stays as it is.
    for kept in (slice(0, 8), ~observed):
        np.testing.assert_array_equal(found[0][kept], value[kept].astype(dtype))
        np.testing.assert_array_equal(found[1][kept], error[kept].astype(dtype))


def test_it_is_nearer_to_the_truth_and_knows_how_near():
    true, value, error = drawn()
    found, its_error = shrunk(value, error)
    unsure = error > 1
    assert (
        np.abs(found - true)[unsure].mean() < 0.2 * np.abs(value - true)[unsure].mean()
    )
    sure = error < 0.1
    np.testing.assert_allclose(found[sure], value[sure], atol=0.1)
    deviations = (found - true) / its_error
    assert np.std(deviations) == pytest.approx(1, abs=0.05)
    assert (its_error <= error).all()


def test_coordinates_that_are_known_well_do_not_decide_for_the_others():
    """As weights of inputs that are always 0 would, under weight decay."""
    true, value, error = drawn(500, spread=0.3)
    others = np.full(1500, 1e-4)
    found, _ = shrunk(
        np.concatenate([value, others]), np.concatenate([error, others * 1e-4])
    )
    sure = error < 0.1
    np.testing.assert_allclose(found[:500][sure], true[sure], rtol=0.15)
    assert np.median(found[:500]) > 0.5
    np.testing.assert_allclose(found[500:], others, rtol=1e-3)


def test_one_that_is_far_off_and_says_so_does_not_count():
    _, value, error = drawn(500, spread=0.3)
    wanted, _ = shrunk(value, error)
    value, error = (np.append(x, 1e8).astype(np.float32) for x in (value, error))
    found, _ = shrunk(value, error)
    np.testing.assert_allclose(found[:-1], wanted, rtol=0.02, atol=0.01)
    assert abs(found[-1] - 3) < 0.5


@pytest.mark.parametrize("scale", [1e-25, 1e-3, 1e25])
def test_units_do_not_matter(scale):
    _, value, error = (x.astype(np.float32) for x in drawn(300))
    for found, wanted in zip(
        shrunk(value * np.float32(scale), error * np.float32(scale)),
        shrunk(value, error),
        strict=True,
    ):
        np.testing.assert_allclose(found / np.float32(scale), wanted, rtol=1e-4)


def test_few_values_stay_as_they_are():
    for size in (0, 1, 3):
        value, error = np.arange(1.0, size + 1), np.full(size, 10.0)
        found = shrunk(value, error)
        np.testing.assert_array_equal(found, (value, error))
    found, error = shrunk(np.arange(1.0, 5), np.full(4, 10.0))
    np.testing.assert_allclose(found, 2.5)
    np.testing.assert_allclose(error, 5.0)  # of a mean of four
    np.testing.assert_array_equal(shrunk(np.zeros(4), np.ones(4))[0], 0)
    np.testing.assert_array_equal(shrunk(np.full(4, 2.0), np.zeros(4))[0], 2)


def test_its_derivative_is_the_share():
    _, value, error = drawn(50)

    def total(value):
        return jnp.sum(shrunk(value, error)[0])

    share = jax.grad(total)(jnp.asarray(value))
    found, _ = shrunk(value, error)
    assert ((share >= 0) & (share <= 1)).all()
    # Where a value is on its way to the mean, by its share.
    mean = (found - share * value) / (1 - share)
    np.testing.assert_allclose(mean[error > 1], mean[np.argmax(error)], rtol=1e-4)


def test_sharded_values_are_not_gathered():
    _, value, error = drawn(800)
    mesh = jax.make_mesh((8,), ("x",), axis_types=(AxisType.Explicit,))
    sharding = NamedSharding(mesh, PartitionSpec("x"))
    with jax.set_mesh(mesh):
        estimate = ctagd_optax.CurvatureEstimate(
            *(jax.device_put(x, sharding) for x in (value, value > -1e9, error))
        )
        compiled = jax.jit(shrink_to_means).lower(estimate).compile()
        found = compiled(estimate)
    assert "all-gather" not in compiled.as_text()
    assert found.value.sharding == sharding
    np.testing.assert_allclose(found.value, shrunk(value, error)[0], rtol=1e-6)


@pytest.mark.parametrize("name", ["instrumental", "regression"])
def test_estimators_lean_on_the_tensor_under_noise(name):
    curvature = jnp.asarray(np.random.default_rng(0).uniform(2.0, 4.0, 300))
    noise = jax.random.normal(jax.random.key(0), (40, 300))

    def objective(x, noise):
        return jnp.sum(curvature * x**2 / 2 + 3 * noise * x)

    def error(**options):
        estimator = getattr(ctagd_optax, name)(**options)
        found = problems.estimate(estimator, jnp.ones(300), noise, objective)
        assert found.observed.all()
        return np.std(found.value - curvature)  # about the bias of a regression

    assert error() < 0.5 * error(shrink=False)
