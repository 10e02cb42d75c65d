"""ResNet in its CIFAR form, and Wide ResNet.

Convolutions and the classifier start He-normal (fan-in), as in He et al., `Delving Deep
into Rectifiers <https://arxiv.org/abs/1502.01852>`_, 2015; biases start at zero.
"""

import jax
import jax.numpy as jnp
from flax import nnx
from jax.typing import DTypeLike

from benchmarks.models.layers import make_dropout

_HE_NORMAL = nnx.initializers.variance_scaling(2.0, "fan_in", "normal")


def _conv(
    inputs: int,
    outputs: int,
    *,
    size: int = 3,
    stride: int = 1,
    dtype: DTypeLike,
    rngs: nnx.Rngs,
) -> nnx.Conv:
    # Not "SAME", which would centre strided windows off the pixels a shortcut takes.
    return nnx.Conv(
        inputs,
        outputs,
        (size, size),
        strides=stride,
        padding=size // 2,
        use_bias=False,
        kernel_init=_HE_NORMAL,
        dtype=dtype,
        rngs=rngs,
    )


def _norm(features: int, *, dtype: DTypeLike, rngs: nnx.Rngs) -> nnx.BatchNorm:
    return nnx.BatchNorm(features, momentum=0.9, dtype=dtype, rngs=rngs)


def _classifier(
    features: int, classes: int, *, dtype: DTypeLike, rngs: nnx.Rngs
) -> nnx.Linear:
    return nnx.Linear(features, classes, kernel_init=_HE_NORMAL, dtype=dtype, rngs=rngs)


def shortcut(x: jax.Array, features: int, stride: int) -> jax.Array:
    """He et al.'s option A: every stride-th pixel, and zeros as new channels."""
    x = x[:, ::stride, ::stride, :]
    return jnp.pad(x, ((0, 0), (0, 0), (0, 0), (0, features - x.shape[-1])))


class ResidualBlock(nnx.Module):
    """Two convolutions with BatchNorm, and a shortcut without parameters."""

    def __init__(
        self, inputs: int, outputs: int, stride: int, dtype: DTypeLike, rngs: nnx.Rngs
    ):
        self.outputs = outputs
        self.stride = stride
        self.conv1 = _conv(inputs, outputs, stride=stride, dtype=dtype, rngs=rngs)
        self.norm1 = _norm(outputs, dtype=dtype, rngs=rngs)
        self.conv2 = _conv(outputs, outputs, dtype=dtype, rngs=rngs)
        self.norm2 = _norm(outputs, dtype=dtype, rngs=rngs)

    def __call__(self, x: jax.Array) -> jax.Array:
        """Transforms feature maps."""
        y = nnx.relu(self.norm1(self.conv1(x)))
        y = self.norm2(self.conv2(y))
        return nnx.relu(y + shortcut(x, self.outputs, self.stride))


class ResNet(nnx.Module):
    """ResNet of depth 6n + 2 for small images.

    He et al., `Deep Residual Learning for Image Recognition
    <https://arxiv.org/abs/1512.03385>`_, 2016, section 4.2: three groups of n blocks
    with 16, 32 and 64 channels, and shortcuts without parameters.

    Args:
      depth: 6n + 2; 20 in the paper, 8 for a CPU.
      classes: number of classes.
      channels: channels of the images.
      width: channels of the first group.
      dtype: dtype of the computation.
      rngs: random streams.
    """

    def __init__(
        self,
        depth: int = 20,
        classes: int = 10,
        channels: int = 3,
        width: int = 16,
        *,
        dtype: DTypeLike = jnp.float32,
        rngs: nnx.Rngs,
    ):
        if depth < 8 or (depth - 2) % 6:
            raise ValueError(f"depth must be 6n + 2, such as 8 or 20, got {depth}")
        self.stem = _conv(channels, width, dtype=dtype, rngs=rngs)
        self.norm = _norm(width, dtype=dtype, rngs=rngs)
        blocks, inputs = [], width
        for group in range(3):
            outputs = width * 2**group
            for i in range((depth - 2) // 6):
                stride = 2 if group > 0 and i == 0 else 1
                blocks.append(ResidualBlock(inputs, outputs, stride, dtype, rngs))
                inputs = outputs
        self.blocks = nnx.List(blocks)
        self.out = _classifier(inputs, classes, dtype=dtype, rngs=rngs)

    def __call__(self, images: jax.Array) -> jax.Array:
        """Class logits of normalised images [batch, height, width, channels]."""
        x = nnx.relu(self.norm(self.stem(images)))
        for block in self.blocks:
            x = block(x)
        return self.out(x.mean((1, 2))).astype(jnp.float32)


class WideBlock(nnx.Module):
    """Pre-activation block; a 1×1 convolution where the width changes."""

    def __init__(
        self,
        inputs: int,
        outputs: int,
        stride: int,
        dropout: float,
        dtype: DTypeLike,
        rngs: nnx.Rngs,
    ):
        self.norm1 = _norm(inputs, dtype=dtype, rngs=rngs)
        self.conv1 = _conv(inputs, outputs, stride=stride, dtype=dtype, rngs=rngs)
        self.norm2 = _norm(outputs, dtype=dtype, rngs=rngs)
        self.dropout = make_dropout(dropout, rngs=rngs)
        self.conv2 = _conv(outputs, outputs, dtype=dtype, rngs=rngs)
        self.shortcut = nnx.data(
            None
            if inputs == outputs
            else _conv(inputs, outputs, size=1, stride=stride, dtype=dtype, rngs=rngs)
        )

    def __call__(self, x: jax.Array) -> jax.Array:
        """Transforms feature maps."""
        y = nnx.relu(self.norm1(x))
        if self.shortcut is not None:
            x = self.shortcut(y)
        y = self.dropout(nnx.relu(self.norm2(self.conv1(y))))
        return x + self.conv2(y)


class WideResNet(nnx.Module):
    """Wide ResNet of depth 6n + 4.

    Zagoruyko and Komodakis, `Wide Residual Networks
    <https://arxiv.org/abs/1605.07146>`_, 2016: three groups of n pre-activation blocks
    with 16k, 32k and 64k channels.

    Args:
      depth: 6n + 4.
      widen: the factor k.
      classes: number of classes.
      channels: channels of the images.
      dropout: dropout between the two convolutions of a block.
      dtype: dtype of the computation.
      rngs: random streams.
    """

    def __init__(
        self,
        depth: int = 28,
        widen: int = 4,
        classes: int = 10,
        channels: int = 3,
        *,
        dropout: float = 0.0,
        dtype: DTypeLike = jnp.float32,
        rngs: nnx.Rngs,
    ):
        if depth < 10 or (depth - 4) % 6:
            raise ValueError(f"depth must be 6n + 4, such as 10 or 28, got {depth}")
        inputs = 16
        self.stem = _conv(channels, inputs, dtype=dtype, rngs=rngs)
        blocks = []
        for group in range(3):
            outputs = 16 * widen * 2**group
            for i in range((depth - 4) // 6):
                stride = 2 if group > 0 and i == 0 else 1
                blocks.append(WideBlock(inputs, outputs, stride, dropout, dtype, rngs))
                inputs = outputs
        self.blocks = nnx.List(blocks)
        self.norm = _norm(inputs, dtype=dtype, rngs=rngs)
        self.out = _classifier(inputs, classes, dtype=dtype, rngs=rngs)

    def __call__(self, images: jax.Array) -> jax.Array:
        """Class logits of normalised images [batch, height, width, channels]."""
        x = self.stem(images)
        for block in self.blocks:
            x = block(x)
        x = nnx.relu(self.norm(x))
        return self.out(x.mean((1, 2))).astype(jnp.float32)
