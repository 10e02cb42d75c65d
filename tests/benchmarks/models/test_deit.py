"""DeiT: sizes, tokens, initialization, modes, learning."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

from benchmarks.models import DeiT
from tests.benchmarks.models import checks

pytestmark = pytest.mark.usefixtures("default_jax")

IMAGES = jax.ShapeDtypeStruct((2, 8, 8, 3), jnp.float32)


def small(**options):
    options = {"image": 8, "patch": 4, "depth": 1, "width": 32, "heads": 2} | options
    return DeiT(classes=8, rngs=nnx.Rngs(0), **options)


@pytest.mark.parametrize(
    ("options", "parameters"),
    [
        ({}, 5_717_416),
        ({"distillation": True}, 5_910_800),
        ({"width": 768, "heads": 12}, 86_567_656),
    ],
)
def test_has_the_published_size(options, parameters):
    make = lambda: DeiT(224, 16, classes=1000, rngs=nnx.Rngs(0), **options)  # noqa: E731
    assert checks.count(make) == parameters


def test_initialization():
    model = checks.build(lambda: DeiT(depth=1, rngs=nnx.Rngs(0)))
    block = model.blocks[0]
    for kernel in (
        model.patches.kernel,
        model.positions,
        block.attention.qkv.kernel,
        block.attention.out.kernel,
        block.hidden.kernel,
        model.heads[0].kernel,
    ):
        assert np.std(kernel[...]) == pytest.approx(0.02, rel=0.03)
    assert block.norm1.epsilon == 1e-6
    np.testing.assert_array_equal(block.norm1.scale[...], 1)
    for layer in (model.patches, block.attention.qkv, block.out, model.heads[0]):
        np.testing.assert_array_equal(layer.bias[...], 0)


def test_training_gets_both_heads_and_evaluation_their_mean():
    model = checks.build(lambda: small(distillation=True))
    images = checks.images(2, 8)
    forward = nnx.jit(lambda model, x: model(x))
    model.train()
    label, teacher = forward(model, images)
    model.eval()
    mean = forward(model, images)
    assert np.abs(label - teacher).max() > 1e-3
    np.testing.assert_allclose(mean, (label + teacher) / 2, atol=1e-6)


def test_drop_path_rises_with_depth():
    model = nnx.eval_shape(lambda: small(depth=3, drop_path=0.5))
    assert [block.drop_path.rate for block in model.blocks] == [0, 0.25, 0.5]
    assert model.blocks[2].drop_path.broadcast_dims == (1, 2)


def test_dtypes():
    assert checks.computing_dtypes(small, IMAGES) == checks.FLOAT32
    half = checks.computing_dtypes(lambda: small(dtype=jnp.bfloat16), IMAGES)
    assert half == checks.BFLOAT16_ATTENTION


def test_overfits_a_batch():
    def loss(logits, labels):
        pairs = zip(logits, labels, strict=True)
        return sum(
            optax.softmax_cross_entropy_with_integer_labels(*pair).mean()
            for pair in pairs
        )

    images = checks.images(8, 8)
    labels = np.arange(8), np.arange(8)[::-1]
    make = lambda: small(distillation=True)  # noqa: E731
    assert (
        checks.final_loss(make, (images,), labels, rate=3e-3, steps=80, loss=loss) < 0.1
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"patch": 3}, "image must be a multiple of patch=3, got 8"),
        ({"heads": 5}, "width must be a multiple of heads=5, got 32"),
        ({"depth": 2, "drop_path": 1.0}, r"dropout rates must be in \[0, 1\), got 1.0"),
    ],
)
def test_bad_options(options, message):
    with pytest.raises(ValueError, match=message):
        nnx.eval_shape(lambda: small(**options))
