"""ResNet and Wide ResNet: sizes, shortcuts, initialization, modes, learning."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from benchmarks.models import ResNet, WideResNet, parameter_count
from benchmarks.models.resnet import _conv, shortcut
from tests.benchmarks.models import checks

pytestmark = pytest.mark.usefixtures("default_jax")

IMAGES = jax.ShapeDtypeStruct((2, 8, 8, 3), jnp.float32)


@pytest.mark.parametrize(("depth", "parameters"), [(20, 269_722), (56, 853_018)])
def test_resnet_has_the_published_size(depth, parameters):
    assert checks.count(lambda: ResNet(depth, rngs=nnx.Rngs(0))) == parameters


@pytest.mark.parametrize(
    ("depth", "widen", "millions"),
    [(28, 10, 36.5), (40, 4, 8.9), (16, 8, 11.0)],
)
def test_wide_resnet_has_the_published_size(depth, widen, millions):
    make = lambda: WideResNet(depth, widen, rngs=nnx.Rngs(0))  # noqa: E731
    assert round(checks.count(make) / 1e6, 1) == millions


def test_shortcut_is_subsampling_and_zeros():
    x = np.random.default_rng(0).normal(size=(2, 5, 4, 3)).astype(np.float32)
    expected = np.zeros((2, 3, 2, 6), np.float32)
    for i in range(3):
        for j in range(2):
            expected[:, i, j, :3] = x[:, 2 * i, 2 * j]
    np.testing.assert_array_equal(shortcut(x, 6, 2), expected)
    np.testing.assert_array_equal(shortcut(x, 3, 1), x)


@pytest.mark.parametrize("size", [4, 5])
def test_strided_convolutions_are_centred_on_the_pixels_of_the_shortcut(size):
    conv = _conv(1, 1, stride=2, dtype=jnp.float32, rngs=nnx.Rngs(0))
    conv.kernel[...] = jnp.zeros((3, 3, 1, 1)).at[1, 1].set(1.0)
    x = jnp.arange(size * size, dtype=jnp.float32).reshape(1, size, size, 1)
    np.testing.assert_array_equal(conv(x), shortcut(x, 1, 2))


def test_initialization_is_he_normal():
    model = checks.build(lambda: ResNet(8, rngs=nnx.Rngs(0)))
    kernel = np.asarray(model.blocks[2].conv2.kernel[...])
    assert kernel.shape == (3, 3, 64, 64)
    assert kernel.std() == pytest.approx(np.sqrt(2 / (9 * 64)), rel=0.02)
    assert kernel.mean() == pytest.approx(0, abs=1e-3)
    assert np.abs(kernel).max() > 3 * kernel.std()  # not cut off
    np.testing.assert_array_equal(model.blocks[0].norm2.scale[...], 1)
    np.testing.assert_array_equal(model.blocks[0].norm2.bias[...], 0)
    np.testing.assert_array_equal(model.out.bias[...], 0)


@pytest.mark.parametrize(
    "make", [lambda **k: ResNet(8, width=4, **k), lambda **k: WideResNet(10, 1, **k)]
)
def test_dtypes(make):
    full = checks.computing_dtypes(lambda: make(rngs=nnx.Rngs(0)), IMAGES)
    half = checks.computing_dtypes(
        lambda: make(dtype=jnp.bfloat16, rngs=nnx.Rngs(0)), IMAGES
    )
    assert full == checks.FLOAT32
    assert half == checks.BFLOAT16


@pytest.mark.parametrize("size", [7, 28, 64])
def test_any_size_and_one_channel(size):
    model = nnx.eval_shape(lambda: ResNet(8, classes=7, channels=1, rngs=nnx.Rngs(0)))
    images = jax.ShapeDtypeStruct((2, size, size, 1), jnp.float32)
    assert nnx.eval_shape(lambda m, x: m(x), model, images).shape == (2, 7)


def test_only_training_changes_the_statistics_of_batchnorm():
    model = checks.build(lambda: ResNet(8, width=2, rngs=nnx.Rngs(0)))
    images = checks.images(4, 4)
    forward = nnx.jit(lambda model, x: model(x))

    def statistics():
        return [np.asarray(x) for x in jax.tree.leaves(nnx.state(model, nnx.BatchStat))]

    before = statistics()
    model.train()
    trained = forward(model, images)
    after = statistics()
    assert all((a != b).any() for a, b in zip(before, after, strict=True))
    model.eval()
    evaluated = forward(model, images)
    for a, b in zip(after, statistics(), strict=True):
        np.testing.assert_array_equal(a, b)
    assert np.abs(trained - evaluated).max() > 0.1


def test_dropout_is_in_every_wide_block_by_option_and_has_no_parameters():
    def model(rate):
        return nnx.eval_shape(lambda: WideResNet(10, 1, dropout=rate, rngs=nnx.Rngs(0)))

    plain, dropping = model(0.0), model(0.3)
    assert len(jax.tree.leaves(nnx.state(plain, nnx.RngKey))) == 0
    assert len(jax.tree.leaves(nnx.state(dropping, nnx.RngKey))) == 3
    assert parameter_count(plain) == parameter_count(dropping)


@pytest.mark.parametrize(
    "make",
    [
        lambda: ResNet(8, width=4, rngs=nnx.Rngs(0)),
        lambda: WideResNet(10, 1, rngs=nnx.Rngs(0)),
    ],
)
def test_overfits_a_batch(make):
    assert checks.final_loss(make, (checks.images(8, 8),), np.arange(8)) < 0.1


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (ResNet, "depth must be 6n \\+ 2, such as 8 or 20, got 19"),
        (WideResNet, "depth must be 6n \\+ 4, such as 10 or 28, got 19"),
    ],
)
def test_bad_depth(model, message):
    with pytest.raises(ValueError, match=message):
        model(19, rngs=nnx.Rngs(0))
