"""Figures of tensors, one by one and together."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ctagd_optax import _trees


@pytest.fixture(params=[True, False], ids=["one", "several"])
def devices(request, monkeypatch):
    monkeypatch.setattr(_trees, "_one_device", lambda x: request.param)


SHAPES = [(), (7,), (0, 3), *[(3, 5)] * 40, (50, 100), (100, 60), (5003,)]


def test_totals(devices):
    rng = np.random.default_rng(0)
    terms = [
        (rng.standard_normal(shape), rng.integers(0, 9, shape).astype(np.int32))
        for shape in SHAPES
    ]
    found = jax.jit(_trees.totals)(jax.tree.map(jnp.asarray, terms))
    for scalars, tensors in zip(found, terms, strict=True):
        np.testing.assert_allclose(scalars, [x.sum() for x in tensors], atol=1e-12)
        assert [x.dtype for x in scalars] == [jnp.float64, jnp.int32]


def test_totals_of_many_numbers_lose_none(devices):
    ones = jnp.ones((1 << 12, 1 << 13), jnp.float32)
    terms = [[ones, 2 * ones]]
    assert [float(x) for x in _trees.totals(terms)[0]] == [1 << 25, 1 << 26]


def test_largest(devices):
    tensors = [np.full(shape, -2.0, np.float32) for shape in SHAPES]
    tensors[1][3], tensors[4][0, 0] = np.nan, -np.inf
    found = jax.jit(_trees.largest)(tensors)
    expected = [float(np.abs(x).max(initial=0)) for x in tensors]
    np.testing.assert_array_equal(found, expected)
    half = _trees.largest([jnp.ones(3, jnp.bfloat16)])
    assert half[0].dtype == jnp.float32


@pytest.mark.parametrize("tensors", [1, 5, 32, 70])
def test_entries(tensors):
    vector = np.arange(tensors, dtype=np.float32)
    vector[-1] = np.inf
    found = jax.jit(_trees.entries, static_argnums=1)(vector, tensors)
    np.testing.assert_array_equal(found, vector)
    assert len(_trees.entries(jnp.ones(1), tensors)) == tensors


def test_choose():
    x = jnp.arange(3.0)
    np.testing.assert_array_equal(_trees.choose(jnp.asarray(True), x, 0), x)
    np.testing.assert_array_equal(_trees.choose(x > 1, 7, x), [0, 1, 7])


def test_one_device_of_an_explicit_mesh_has_nothing_to_reshape(monkeypatch):
    monkeypatch.setattr(jax, "device_count", lambda: 1)
    mesh = jax.make_mesh((1,), ("x",), axis_types=(jax.sharding.AxisType.Explicit,))
    with jax.set_mesh(mesh):
        spec = jax.sharding.PartitionSpec(None, "x")
        place = jax.sharding.NamedSharding(mesh, spec)
        x = jax.device_put(jnp.ones((128, 256)), place)
        found = jax.jit(lambda x: _trees.totals([[x, 2 * x]]))(x)
    assert [float(total) for total in found[0]] == [128 * 256, 2 * 128 * 256]
