"""The landscape against NumPy, finite differences, and the laws of its drift."""

import dataclasses

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ctagd_optax.testbed import Landscape, LandscapeConfig, make_landscapes, surface


def numpy_value(landscape, theta, snapshots, index):
    """The paper's formula, one lump after the other."""
    part = {
        f.name: np.asarray(getattr(snapshots, f.name)[index], np.float64)
        for f in dataclasses.fields(snapshots)
    }
    value = float(landscape.quadratic) * np.sum((theta - part["target"]) ** 2)
    for j in range(len(landscape.sign)):
        distance = np.sum((theta - part["center"][j]) ** 2)
        bump = part["amplitude"][j] * np.exp(-distance / (2 * part["scale"][j] ** 2))
        value += float(landscape.sign[j]) * bump
    return value


def tolerance():
    return 1e-9 if jax.config.read("jax_enable_x64") else 1e-4


@pytest.mark.parametrize("seed", [0, 1])
def test_values_equal_the_numpy_reference(seed):
    landscape = Landscape.create(jax.random.key(seed))
    rng = np.random.default_rng(seed)
    for theta in rng.normal(size=(4, 2)) * 3:
        x = jnp.asarray(theta)
        train = [numpy_value(landscape, theta, landscape.train, t) for t in range(20)]
        test = [numpy_value(landscape, theta, landscape.test, u) for u in range(10)]
        close = {"rtol": tolerance(), "atol": tolerance()}
        for step in (0, 7, 19, 20, 47):  # beyond the last snapshot it starts over
            np.testing.assert_allclose(
                landscape.train_loss(x, step), train[step % 20], **close
            )
        np.testing.assert_allclose(landscape.train_average(x), np.mean(train), **close)
        np.testing.assert_allclose(landscape.test_average(x), np.mean(test), **close)
        np.testing.assert_allclose(
            landscape.gap(x), np.mean(test) - np.mean(train), **close
        )


def test_gradients_equal_finite_differences_of_the_reference():
    landscape = Landscape.create(jax.random.key(3))
    h = 1e-5
    for theta in np.random.default_rng(0).normal(size=(4, 2)) * 2:
        expected = [
            (
                numpy_value(landscape, theta + e, landscape.train, 5)
                - numpy_value(landscape, theta - e, landscape.train, 5)
            )
            / (2 * h)
            for e in h * np.eye(2)
        ]
        gradient = jax.grad(landscape.train_loss)(jnp.asarray(theta), 25)
        np.testing.assert_allclose(gradient, expected, rtol=1e-4, atol=1e-4)


def test_same_key_same_landscape_bit_for_bit():
    first, second, other = (
        jax.tree.leaves(Landscape.create(jax.random.key(k))) for k in (5, 5, 6)
    )
    assert all(np.array_equal(a, b) for a, b in zip(first, second, strict=True))
    assert not any(
        np.array_equal(a, b)
        for a, b in zip(first, other, strict=True)
        if np.size(a) > 12  # twelve signs may be equal by chance
    )


def test_a_key_stands_for_one_landscape_in_any_precision():
    with jax.enable_x64(True):
        double = jax.tree.map(np.asarray, Landscape.create(jax.random.key(2)))
    with jax.enable_x64(False):
        single = jax.tree.map(np.asarray, Landscape.create(jax.random.key(2)))
    assert double.start.dtype == np.float64
    assert single.start.dtype == np.float32
    wide = jax.tree.map(np.float64, single)
    chex.assert_trees_all_close(double, wide, rtol=1e-5, atol=1e-5)


def test_a_batch_starts_with_the_same_landscapes_whatever_its_size():
    small, large = make_landscapes(2, seed=4), make_landscapes(5, seed=4)
    chex.assert_trees_all_equal(small, jax.tree.map(lambda x: x[:2], large))
    tuning = make_landscapes(2, seed=4, purpose="tuning")
    assert not np.intersect1d(small.start, tuning.start).size


@pytest.mark.parametrize(
    ("field", "relative", "std"),
    [("center", False, 0.2), ("amplitude", True, 0.05), ("scale", True, 0.03)],
)
def test_drift_has_the_stated_moments(field, relative, std):
    config = LandscapeConfig(lumps=40, scale_drift=0.03)
    batch = make_landscapes(30, seed=1, config=config)
    whole = np.concatenate(
        [getattr(batch.train, field), getattr(batch.test, field)], axis=1
    ).astype(np.float64)
    steps = np.diff(whole, axis=1)
    if relative:
        steps = steps / whole[:, :-1]
    n = steps.size
    assert n > 30_000
    # Five standard errors of each sample moment of a normal distribution.
    assert abs(steps.mean()) < 5 * std / n**0.5
    assert abs(steps.var() / std**2 - 1) < 5 * (2 / n) ** 0.5
    kurtosis = np.mean((steps - steps.mean()) ** 4) / steps.var() ** 2
    assert abs(kurtosis - 3) < 5 * (24 / n) ** 0.5
    lagged = np.mean(steps[:, 1:] * steps[:, :-1]) / std**2
    assert abs(lagged) < 5 / (n * 28 / 29) ** 0.5  # one step tells nothing of the next


def test_target_drift_moves_the_bowl_and_is_off_by_default():
    still = make_landscapes(20)
    np.testing.assert_array_equal(
        still.train.target, still.train.target[:, :1] + 0 * still.train.target
    )
    moving = make_landscapes(200, config=LandscapeConfig(target_drift=0.1))
    steps = np.diff(np.asarray(moving.train.target), axis=1)
    assert abs(steps.std() / 0.1 - 1) < 5 * (0.5 / steps.size) ** 0.5


def test_first_draws_follow_their_ranges():
    config = LandscapeConfig()
    batch = make_landscapes(300, config=config)
    for values, (low, high) in (
        (batch.quadratic, config.quadratic),
        (batch.train.amplitude[:, 0], config.amplitude),
        (batch.train.scale[:, 0], config.scale),
        (
            np.linalg.norm(batch.start - batch.train.target[:, 0], axis=-1),
            config.start_distance,
        ),
    ):
        values = np.asarray(values, np.float64)
        assert low - 1e-5 <= values.min() < low + 0.1 * (high - low)
        assert high - 0.1 * (high - low) < values.max() <= high + 1e-5
    share = np.mean(np.asarray(batch.sign) < 0)
    assert abs(share - 0.5) < 5 * 0.5 / batch.sign.size**0.5


def test_stationary_is_the_first_snapshot_held():
    config = LandscapeConfig()
    noisy, still = make_landscapes(3), make_landscapes(3, config=config.stationary())
    np.testing.assert_array_equal(still.start, noisy.start)
    for name in ("center", "amplitude", "scale", "target"):
        first = np.asarray(getattr(noisy.train, name))[:, :1]
        for part in (still.train, still.test):
            values = np.asarray(getattr(part, name))
            np.testing.assert_array_equal(values, np.broadcast_to(first, values.shape))
    one = jax.tree.map(lambda x: x[0], still)
    assert abs(one.gap(one.start)) < 1e-5


def test_default_levels_are_those_the_docstring_states():
    axis = jnp.linspace(-6, 6, 33)

    def levels(landscape):
        values = surface(landscape.train_average, axis, axis).reshape(-1)
        points = jnp.stack(jnp.meshgrid(axis, axis), axis=-1).reshape(-1, 2)
        lowest = jnp.argmin(values)
        return values[lowest], landscape.gap(points[lowest])

    lowest, gap = jax.jit(lambda x: jax.lax.map(levels, x))(make_landscapes(100, 11))
    assert abs(np.mean(lowest) + 6.3) < 2.5 * np.std(lowest) / 10
    assert abs(np.mean(gap) - 2.1) < 2.5 * np.std(gap) / 10


def test_surface_is_indexed_as_contours_want_it():
    x, y = jnp.asarray([0.0, 1.0, 2.0]), jnp.asarray([5.0, 6.0])
    values = surface(lambda theta: theta[0] + 10 * theta[1], x, y)
    np.testing.assert_allclose(values, [[50, 51, 52], [60, 61, 62]])


@pytest.mark.parametrize(
    "bad",
    [
        {"lumps": -1},
        {"train_snapshots": 0},
        {"amplitude": (3.0, 1.0)},
        {"scale": (0.0, 1.0)},
        {"center_drift": -0.1},
        {"negative": 1.5},
    ],
)
def test_bad_constants_are_refused(bad):
    [name] = bad
    with pytest.raises(ValueError, match=name):
        LandscapeConfig(**bad)


def test_a_landscape_without_lumps_is_the_bowl():
    landscape = Landscape.create(jax.random.key(0), LandscapeConfig(lumps=0))
    hessian = jax.hessian(landscape.train_average)(landscape.start)
    np.testing.assert_allclose(
        hessian, 2 * float(landscape.quadratic) * np.eye(2), rtol=1e-5, atol=1e-5
    )
