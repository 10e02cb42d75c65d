"""Attention against a slow reference, the block's branches, and dropout."""

import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from benchmarks.models.layers import Attention, TransformerBlock, make_dropout
from tests.benchmarks.models import checks

pytestmark = pytest.mark.usefixtures("default_jax")

OPTIONS = {
    "kernel_init": nnx.initializers.normal(1.0),
    "out_init": nnx.initializers.normal(1.0),
    "dtype": jnp.float32,
}


def attention_reference(model, x, causal):
    """One query of one head at a time."""
    length, width = x.shape
    size = width // model.heads
    qkv = x @ np.asarray(model.qkv.kernel[...]) + np.asarray(model.qkv.bias[...])
    mixed = np.zeros_like(x)
    for head in range(model.heads):
        part = slice(head * size, (head + 1) * size)
        q, k, v = (qkv[:, i * width : (i + 1) * width][:, part] for i in range(3))
        for i in range(length):
            seen = i + 1 if causal else length
            scores = np.exp(k[:seen] @ q[i] / np.sqrt(size))
            mixed[i, part] = scores @ v[:seen] / scores.sum()
    return mixed @ np.asarray(model.out.kernel[...]) + np.asarray(model.out.bias[...])


@pytest.mark.parametrize("causal", [False, True])
def test_attention_equals_the_slow_reference(causal):
    model = checks.build(
        lambda: Attention(6, 2, causal=causal, rngs=nnx.Rngs(0), **OPTIONS)
    )
    model.qkv.bias[...] = jnp.arange(18.0) / 9 - 1
    x = np.random.default_rng(0).normal(size=(2, 5, 6)).astype(np.float32)
    expected = [attention_reference(model, row, causal) for row in x]
    actual = nnx.jit(lambda model, x: model(x))(model, x)
    np.testing.assert_allclose(actual, expected, rtol=1e-3, atol=1e-4)


def test_a_block_whose_branches_end_in_zero_is_the_identity():
    options = OPTIONS | {"out_init": nnx.initializers.zeros}
    model = checks.build(lambda: TransformerBlock(6, 2, rngs=nnx.Rngs(0), **options))
    x = np.random.default_rng(0).normal(size=(2, 5, 6)).astype(np.float32)
    forward = nnx.jit(lambda model, x: model(x))
    np.testing.assert_array_equal(forward(model, x), x)
    model.out.bias[...] = jnp.ones(6)
    model.attention.out.bias[...] = 2 * jnp.ones(6)
    np.testing.assert_allclose(forward(model, x), x + 3, rtol=1e-6)


def test_dropout_drops_what_it_shares_together_and_only_in_training():
    drop = make_dropout(0.5, broadcast_dims=(1, 2), rngs=nnx.Rngs(0))
    x = jnp.ones((64, 3, 4))
    rows = np.asarray(drop(x)).reshape(64, -1)
    assert set(np.unique(rows)) == {0.0, 2.0}
    assert (rows == rows[:, :1]).all()
    drop.eval()
    np.testing.assert_array_equal(drop(x), x)


@pytest.mark.parametrize("rate", [-0.1, 1.0])
def test_bad_dropout(rate):
    with pytest.raises(ValueError, match=r"dropout rates must be in \[0, 1\), got"):
        make_dropout(rate, rngs=nnx.Rngs(0))
