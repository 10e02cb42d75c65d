"""The sort-free quantile against NumPy's."""

import functools

import hypothesis
import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

import ctagd_optax

DTYPES = ["float16", "bfloat16", "float32", "float64"]
QUANTILES = (0.0, 0.1, 0.25, 0.3333, 0.5, 0.7, 0.95, 1.0)

quantile = jax.jit(ctagd_optax.tensor_quantile)


@functools.partial(jax.jit, static_argnums=1)
def static_quantile(x, q):
    return ctagd_optax.tensor_quantile(x, q)


def expected(x, q):
    """NumPy's quantile of the same numbers, rounded once to x's dtype."""
    wide = x if x.dtype.itemsize >= 4 else x.astype(np.float32)
    with np.errstate(all="ignore"):
        return np.quantile(wide, q).astype(x.dtype)


def assert_one_rounding(actual, x, q):
    """An entry itself is exact; between two, one rounding of either apart."""
    assert actual.dtype == x.dtype
    want, actual = np.float64(expected(x, q)), np.float64(np.asarray(actual))
    if not np.isfinite(want):
        np.testing.assert_array_equal(actual, want)
        return
    ordered = np.sort(x.ravel())
    position = q * (x.size - 1)
    neighbours = ordered[int(np.floor(position)) : int(np.ceil(position)) + 1]
    if len(np.unique(neighbours)) == 1:
        assert actual == want
    # NumPy rounds the product and the sum, a compiler may merge the two.
    with np.errstate(over="ignore"):
        spacing = np.float64(np.spacing(np.abs(neighbours).max()))
    assert abs(actual - want) <= 2 * spacing


def entries(kind, dtype, size, rng):
    """Test entries of a kind, in a dtype."""
    info = ml_dtypes.finfo(dtype)
    tiny, smallest, largest = map(
        np.float64, (info.tiny, info.smallest_subnormal, info.max)
    )
    x = rng.standard_normal(size)
    if kind == "constant":
        x = np.full(size, -2.5)
    elif kind == "ties":
        x = np.round(2 * x) / 2
    elif kind == "positive":
        x = 10 ** rng.uniform(-2, 2, size)
    elif kind == "subnormal":
        x = rng.integers(-50, 50, size) * smallest
    elif kind == "around the smallest normal":
        x = x * 2 * tiny
    elif kind == "huge":
        x = rng.uniform(-0.4, 0.4, size) * largest
    x = x.astype(dtype)
    if kind == "infinities":
        x[rng.integers(0, size, size // 3 + 1)] = np.inf
        x[rng.integers(0, size, size // 3 + 1)] = -np.inf
    return x


@pytest.mark.parametrize("x64", [True, False], ids=["x64", "x32"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    "kind",
    [
        "normal",
        "constant",
        "ties",
        "positive",
        "subnormal",
        "around the smallest normal",
        "huge",
        "infinities",
    ],
)
def test_equals_numpy(kind, dtype, x64):
    if dtype == "float64" and not x64:
        return
    rng = np.random.default_rng(0)
    with jax.enable_x64(x64):
        for size in (1, 2, 1000):
            x = entries(kind, dtype, size, rng)
            for q in map(jnp.asarray, QUANTILES):
                assert_one_rounding(quantile(x, q), x, float(q))
        assert_one_rounding(static_quantile(x, 0.7), x, 0.7)


@pytest.mark.parametrize(
    ("size", "quantiles"), [(10**5, (0.1, 0.7654321, 1.0)), (3 * 10**6, (0.7654321,))]
)
def test_position_is_exact_in_large_float32_tensors(size, quantiles):
    x = np.random.default_rng(0).permutation(size).astype(np.float32)
    with jax.enable_x64(False):
        for q in quantiles:
            assert_one_rounding(static_quantile(x, q), x, q)
            traced = jnp.float32(q)
            assert_one_rounding(quantile(x, traced), x, float(traced))


@hypothesis.given(
    values=st.lists(
        st.floats(width=32, allow_nan=True, allow_infinity=True), min_size=1, max_size=9
    ),
    q=st.floats(0, 1),
)
@hypothesis.settings(max_examples=200)
def test_any_floats(values, q):
    x = np.asarray(values, np.float32)
    assert_one_rounding(quantile(x, q), x, q)


@hypothesis.given(
    values=st.lists(
        st.tuples(st.floats(-10, 10), st.booleans()), min_size=8, max_size=8
    ),
    q=st.floats(0, 1),
)
@hypothesis.settings(max_examples=200)
def test_where_leaves_entries_out(values, q):
    x, where = (np.asarray(column) for column in zip(*values, strict=True))
    actual = quantile(x, q, where=where)
    if where.any():
        assert_one_rounding(actual, x[where], q)
    else:
        assert np.isnan(actual)


def test_left_out_entries_may_be_nan_or_infinite():
    x = np.asarray([np.nan, 1.0, np.inf, 2.0, -np.inf])
    where = np.asarray([False, True, False, True, False])
    assert quantile(x, 1.0, where=where) == 2.0
    assert quantile(x, 0.5, where=where) == 1.5


def test_empty_and_nan():
    assert np.isnan(ctagd_optax.tensor_quantile(jnp.zeros((0, 3)), 0.5))
    assert np.isnan(ctagd_optax.tensor_quantile(jnp.asarray([1.0, jnp.nan]), 0.0))


def test_scalar():
    assert ctagd_optax.tensor_quantile(jnp.float32(3.0), 0.2) == 3.0


def test_vmap():
    x = jnp.asarray(np.random.default_rng(0).standard_normal((5, 17)))
    batched = jax.vmap(lambda row: ctagd_optax.tensor_quantile(row, 0.3))(x)
    np.testing.assert_allclose(batched, np.quantile(x, 0.3, axis=1), rtol=1e-15)


def test_a_rank_of_its_own_on_each_device():
    mesh = jax.make_mesh((8,), ("data",), axis_types=(AxisType.Auto,))
    x = np.random.default_rng(0).standard_normal(17).astype(np.float32)
    q = jnp.linspace(0, 1, 8, dtype=jnp.float32)
    find = jax.shard_map(
        lambda x, q: ctagd_optax.tensor_quantile(x, q[0], where=x == x)[None],
        mesh=mesh,
        in_specs=(P(), P("data")),
        out_specs=P("data"),
    )
    np.testing.assert_allclose(jax.jit(find)(x, q), np.quantile(x, q), rtol=1e-6)


def test_derivative_is_that_of_the_entries():
    x = jnp.asarray([3.0, 1.0, 2.0, 5.0])
    gradient = jax.grad(ctagd_optax.tensor_quantile)(x, 0.5)
    np.testing.assert_allclose(gradient, [0.5, 0, 0.5, 0])
    tied = jax.grad(ctagd_optax.tensor_quantile)(jnp.asarray([1.0, 1.0, 4.0]), 0.0)
    np.testing.assert_allclose(tied, [0.5, 0.5, 0])
    where = jnp.asarray([True, True, False, True])
    skipped = jax.grad(lambda x: ctagd_optax.tensor_quantile(x, 0.5, where=where))(x)
    np.testing.assert_allclose(skipped, [1, 0, 0, 0])


@pytest.mark.parametrize("axis_type", [AxisType.Auto, AxisType.Explicit])
@pytest.mark.parametrize("spec", [P("x", "y"), P(("x", "y")), P(None, "x"), P()])
def test_sharded_tensors_are_not_gathered(axis_type, spec):
    mesh = jax.make_mesh((4, 2), ("x", "y"), axis_types=(axis_type,) * 2)
    values = np.random.default_rng(0).standard_normal((64, 128)).astype(np.float32)
    with jax.set_mesh(mesh):
        x = jax.device_put(values, NamedSharding(mesh, spec))
        compiled = static_quantile.lower(x, 0.1).compile()
        assert compiled(x) == expected(values, 0.1)
        assert "all-gather" not in compiled.as_text()
        masked = jax.jit(lambda x, w: ctagd_optax.tensor_quantile(x, 0.1, where=w))
        compiled = masked.lower(x, x > 0).compile()
        assert_one_rounding(compiled(x, x > 0), values[values > 0], 0.1)
        assert "all-gather" not in compiled.as_text()


@pytest.mark.parametrize(
    ("args", "error", "message"),
    [
        ((jnp.arange(3), 0.5), TypeError, "x must be a real floating-point tensor"),
        ((jnp.ones(3) * 1j, 0.5), TypeError, "got dtype complex"),
        ((jnp.ones(3), 1.5), ValueError, r"q must be a number in \[0, 1\], got 1.5"),
        ((jnp.ones(3), float("nan")), ValueError, "q must be a number in"),
        ((jnp.ones(3), jnp.ones(2)), TypeError, r"one number, got .* shape \(2,\)"),
    ],
)
def test_bad_input(args, error, message):
    with pytest.raises(error, match=message):
        ctagd_optax.tensor_quantile(*args)


def test_bad_mask():
    with pytest.raises(
        ValueError, match=r"where must be a boolean tensor of shape \(3,"
    ):
        ctagd_optax.tensor_quantile(jnp.ones(3), 0.5, where=jnp.ones(2, bool))
