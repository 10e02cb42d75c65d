"""The perceptron: size, shape of inputs, learning."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from benchmarks.models import MLP
from tests.benchmarks.models import checks

pytestmark = pytest.mark.usefixtures("default_jax")


def test_size():
    make = lambda: MLP(64, rngs=nnx.Rngs(0))  # noqa: E731
    assert checks.count(make) == 2 * (64 * 64 + 64) + 64 * 10 + 10


def test_without_hidden_layers_it_is_linear_in_the_flattened_input():
    model = MLP(12, hidden=(), classes=3, rngs=nnx.Rngs(0))
    x = np.random.default_rng(0).normal(size=(5, 2, 2, 3)).astype(np.float32)
    expected = x.reshape(5, 12) @ np.asarray(model.out.kernel[...])
    np.testing.assert_allclose(model(x), expected, rtol=1e-5, atol=1e-6)


def test_dtypes():
    images = jax.ShapeDtypeStruct((2, 4, 4, 1), jnp.float32)
    full = checks.computing_dtypes(lambda: MLP(16, rngs=nnx.Rngs(0)), images)
    half = checks.computing_dtypes(
        lambda: MLP(16, dtype=jnp.bfloat16, rngs=nnx.Rngs(0)), images
    )
    assert full == checks.FLOAT32
    assert half == checks.BFLOAT16


def test_overfits_a_batch():
    images = checks.images(8, 4, 1)
    make = lambda: MLP(16, rngs=nnx.Rngs(0))  # noqa: E731
    assert checks.final_loss(make, (images,), np.arange(8)) < 0.1
