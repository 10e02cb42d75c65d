"""The causal transformer: size, causality, initialization, learning."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from benchmarks.models import CausalTransformer
from tests.benchmarks.models import checks

pytestmark = pytest.mark.usefixtures("default_jax")


def small(**options):
    return CausalTransformer(11, 12, width=32, rngs=nnx.Rngs(0), **options)


def test_has_the_size_of_gpt2():
    make = lambda: CausalTransformer(50257, 1024, 768, 12, 12, rngs=nnx.Rngs(0))  # noqa: E731
    assert checks.count(make) == 124_439_808


def test_a_token_sees_nothing_after_it():
    tokens = np.random.default_rng(0).integers(11, size=(2, 12))
    changed = tokens.copy()
    changed[:, 7] = (tokens[:, 7] + 1) % 11
    forward = nnx.jit(lambda model, x: model(x))
    model = checks.build(small)
    before, after = forward(model, tokens), forward(model, changed)
    assert before.shape == (2, 12, 11)
    np.testing.assert_array_equal(before[:, :7], after[:, :7])
    assert (np.abs(before[:, 7:] - after[:, 7:]).max(-1) > 1e-6).all()


def test_initialization():
    model = checks.build(lambda: CausalTransformer(65, 128, rngs=nnx.Rngs(0)))
    block = model.blocks[1]
    for kernel in (
        model.embedding.embedding,
        model.positions,
        block.attention.qkv.kernel,
        block.hidden.kernel,
    ):
        assert np.std(kernel[...]) == pytest.approx(0.02, rel=0.03)
    for kernel in (block.attention.out.kernel, block.out.kernel):
        assert np.std(kernel[...]) == pytest.approx(0.01, rel=0.03)
    np.testing.assert_array_equal(block.attention.qkv.bias[...], 0)


def test_dtypes():
    tokens = jax.ShapeDtypeStruct((2, 12), jnp.int32)
    assert checks.computing_dtypes(small, tokens) == checks.FLOAT32
    half = checks.computing_dtypes(lambda: small(dtype=jnp.bfloat16), tokens)
    assert half == checks.BFLOAT16_ATTENTION


def test_overfits_a_batch():
    tokens = np.random.default_rng(0).integers(11, size=(4, 13))
    make = lambda: small(depth=1)  # noqa: E731
    inputs, labels = tokens[:, :-1], tokens[:, 1:]
    assert checks.final_loss(make, (inputs,), labels, steps=60) < 0.1


def test_too_long():
    with pytest.raises(ValueError, match=r"tokens must be at most 12 long.*got 13"):
        checks.build(lambda: small()(jnp.zeros((1, 13), jnp.int32)))
