"""Estimates that lean on each other."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.sharding import AxisType, NamedSharding, PartitionSpec

import ctagd_optax
from ctagd_optax._shrinkage import shrink_to_means
from tests import problems, reference_estimators


def weights(error):
    """Denominators of values with such errors, as those of quotients would be."""
    return 1 / (0.1 + error)


def shrunk(value, error, observed=None, weight=None):
    value, error = jnp.asarray(value), jnp.asarray(error)
    observed = jnp.ones(value.shape, bool) if observed is None else observed
    weight = weights(error) if weight is None else jnp.asarray(weight)
    found = jax.jit(shrink_to_means)(
        ctagd_optax.CurvatureEstimate({"x": value}, {"x": observed}, {"x": error}),
        {"x": weight},
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
    wanted = reference_estimators.shrunk(value, observed, error, weights(error))
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
    before, after = (np.abs(x - true)[unsure].mean() for x in (value, found))
    assert after < 0.2 * before
    sure = error < 0.1
    np.testing.assert_allclose(found[sure], value[sure], atol=0.1)
    assert np.std((found - true) / its_error) == pytest.approx(1, abs=0.15)


def test_a_mean_with_other_weights_does_not_look_like_spread():
    true, value, error = drawn(1000, spread=0.03)
    found, _ = shrunk(value, error, weight=np.ones(1000))
    better, _ = shrunk(value, error, weight=error**-2)
    unsure = error > 1
    for x, most in ((found, 2.0), (better, 0.05)):
        # The mean itself is off, by as much for all.
        assert np.std((x - true)[unsure]) < 0.2
        assert abs(np.mean((x - true)[unsure])) < most


def test_its_error_covers_a_spread_that_cannot_be_seen():
    covered = []
    for seed in range(50):
        rng = np.random.default_rng(seed)
        true = 3 + 0.5 * rng.standard_normal(500)
        value = true + 4 * rng.standard_normal(500)
        found, error = shrunk(value, np.full(500, 4.0))
        covered.append(np.mean(np.abs(found - true) <= 2 * error))
        assert np.median(np.abs(found - true)) < 1
    assert np.mean(covered) > 0.9


def test_coordinates_that_are_known_well_do_not_decide_for_the_others():
    """As weights of inputs that are always 0 would, under weight decay."""
    covered = []
    for seed in range(50):
        rng = np.random.default_rng(seed)
        value = np.append(2 + 3 * rng.standard_normal(9), 0.0)
        error = np.append(np.full(9, 3.0), 0.0)
        found, its_error = shrunk(value, error, weight=np.ones(10))
        assert found[-1] == its_error[-1] == 0
        covered.append(np.abs(found[:-1] - 2) <= 2 * its_error[:-1])
    assert np.mean(covered) > 0.85
    true, value, error = drawn(500, spread=0.3)
    others = np.full(1500, 1e-4)
    found, _ = shrunk(
        np.concatenate([value, others]),
        np.concatenate([error, others * 1e-4]),
        weight=np.concatenate([weights(error), others]),
    )
    np.testing.assert_allclose(np.median(found[:500]), np.median(true), rtol=0.2)
    np.testing.assert_allclose(found[500:], others, rtol=1e-3)


def test_one_that_is_far_off_and_says_so_does_not_count():
    _, value, error = drawn(500, spread=0.3)
    wanted, _ = shrunk(value, error)
    for far in (1e8, 1e14):
        more = (np.append(x, far).astype(np.float32) for x in (value, error))
        found, _ = shrunk(*more)
        np.testing.assert_allclose(found[:-1], wanted, rtol=0.02, atol=0.01)
        assert abs(found[-1] - 3) < 0.5


@pytest.mark.parametrize("scale", [1e-25, 1e-3, 1e25])
def test_units_do_not_matter(scale):
    _, value, error = (x.astype(np.float32) for x in drawn(300))
    weight = weights(error)
    for found, wanted in zip(
        shrunk(value * np.float32(scale), error * np.float32(scale), weight=weight),
        shrunk(value, error, weight=weight),
        strict=True,
    ):
        np.testing.assert_allclose(found / np.float32(scale), wanted, rtol=1e-4)


def test_where_there_is_no_mean_values_stay_as_they_are():
    for size in (0, 1, 3):
        value, error = np.arange(1.0, size + 1), np.full(size, 10.0)
        found = shrunk(value, error)
        np.testing.assert_array_equal(found, (value, error))
    value, error = np.arange(1.0, 5), np.full(4, 10.0)
    for weight in (np.zeros(4), np.asarray([1.0, -1.0, 1.0, -1.0])):
        found = shrunk(value, error, weight=weight)
        np.testing.assert_array_equal(found, (value, error))
    found, _ = shrunk(value, error)
    np.testing.assert_allclose(found, 2.5 + 0.2 * (value - 2.5))  # of 100 + 100 / 4
    for error in (0.0, 1e-30, 1.0, 1e30):
        same = np.full(4, 2.0, np.float32)
        found, its_error = shrunk(same, np.full(4, error, np.float32))
        np.testing.assert_allclose(found, 2, rtol=1e-6)
        assert np.isfinite(its_error).all()
        assert (its_error > 0).all() == (error > 0)


def test_its_derivative_is_the_share():
    _, value, error = drawn(50)
    observed = jnp.arange(50) != 3
    error = jnp.where(observed, error, jnp.inf)

    def total(value, error):
        found, its_error = shrunk(value, error, observed)
        return jnp.sum(found) + jnp.sum(jnp.where(observed, its_error, 0))

    with jax.debug_nans(True):
        share, _ = jax.grad(total, (0, 1))(jnp.asarray(value), error)
    found, _ = shrunk(value, error, observed)
    assert ((share >= 0) & (share <= 1)).all()
    # Where a value is on its way to the mean, by its share.
    unsure = observed & (error > 1)
    mean = ((found - share * value) / (1 - share))[unsure]
    np.testing.assert_allclose(mean, mean[0], rtol=1e-4)


def test_nothing_is_nan_on_the_way():
    value = jnp.asarray([1.0, 2.0, 3.0, 4.0, 0.0, jnp.inf])
    error = jnp.asarray([0.1, 0.1, 5.0, 0.0, jnp.inf, 1.0])
    estimate = ctagd_optax.CurvatureEstimate(value, value > 0, error)
    with jax.debug_nans(True):
        found = shrink_to_means(estimate, jnp.ones(6))
    np.testing.assert_array_equal(found.value[3:], value[3:])


def test_many_tensors_are_one_loop():
    values = [jnp.arange(5.0) + i for i in range(40)]
    errors = [jnp.full(5, 1.0 + i) for i in range(40)]
    seen = [v >= 0 for v in values]
    estimate = ctagd_optax.CurvatureEstimate(values, seen, errors)
    lowered = jax.jit(shrink_to_means).lower(estimate, values)
    assert lowered.as_text().count("stablehlo.while") == 1
    found = lowered.compile()(estimate, values)
    for i in (0, 7, 39):
        wanted, _ = shrunk(values[i], errors[i], weight=values[i])
        np.testing.assert_allclose(found.value[i], wanted, rtol=1e-5)


def test_sharded_values_are_not_gathered():
    _, value, error = drawn(800)
    mesh = jax.make_mesh((8,), ("x",), axis_types=(AxisType.Explicit,))
    sharding = NamedSharding(mesh, PartitionSpec("x"))
    with jax.set_mesh(mesh):
        *three, weight = (
            jax.device_put(x, sharding)
            for x in (value, value > -1e9, error, weights(error))
        )
        estimate = ctagd_optax.CurvatureEstimate(*three)
        compiled = jax.jit(shrink_to_means).lower(estimate, weight).compile()
        found = compiled(estimate, weight)
    assert "all-gather" not in compiled.as_text()
    assert found.value.sharding == sharding
    np.testing.assert_allclose(found.value, shrunk(value, error)[0], rtol=1e-6)


@pytest.mark.parametrize("steps", [40, 100])
@pytest.mark.parametrize("name", ["instrumental", "regression"])
def test_estimators_lean_on_the_tensor_under_noise(name, steps):
    curvature = jnp.asarray(np.random.default_rng(0).uniform(2.0, 4.0, 500))
    noise = jax.random.normal(jax.random.key(0), (steps, 500))

    def objective(x, noise):
        return jnp.sum(curvature * x**2 / 2 + noise * x)

    def errors(**options):
        estimator = getattr(ctagd_optax, name)(**options)
        found = problems.estimate(estimator, jnp.zeros(500), noise, objective)
        return np.asarray(found.value - curvature), np.asarray(found.standard_error)

    found, its_error = errors()
    alone, _ = errors(shrink=False)
    assert np.median(np.abs(found)) < 0.75 * np.median(np.abs(alone))
    # No bias but that of a regression over few steps.
    assert abs(np.median(found)) < max(0.5, 1.1 * abs(np.median(alone)))
    assert np.mean(np.abs(found) <= 2 * its_error) > 0.85


def test_without_momentum_nothing_leans_on_an_instrument_that_is_none():
    noise = jax.random.normal(jax.random.key(0), (100, 500))
    found = problems.estimate(
        ctagd_optax.instrumental(),
        jnp.zeros(500),
        noise,
        lambda x, noise: jnp.sum(x**2 + noise * x),
        backbone=optax.sgd(0.01),
    )
    assert np.median(found.standard_error) > 10 * 2.0
    assert np.mean(np.abs(found.value - 2) <= 2 * found.standard_error) > 0.85
