"""A multi-layer perceptron."""

import itertools
import math
from collections.abc import Sequence

import jax
import jax.numpy as jnp
from flax import nnx
from jax.typing import DTypeLike


class MLP(nnx.Module):
    """Linear layers with ReLU between; kernels start LeCun-normal, as Flax has it.

    Args:
      inputs: numbers in an input, whatever its shape.
      hidden: widths of the hidden layers.
      classes: number of classes.
      dtype: dtype of the computation.
      rngs: random streams.
    """

    def __init__(
        self,
        inputs: int,
        hidden: Sequence[int] = (64, 64),
        classes: int = 10,
        *,
        dtype: DTypeLike = jnp.float32,
        rngs: nnx.Rngs,
    ):
        widths = (inputs, *hidden)
        self.hidden = nnx.List(
            [
                nnx.Linear(a, b, dtype=dtype, rngs=rngs)
                for a, b in itertools.pairwise(widths)
            ]
        )
        self.out = nnx.Linear(widths[-1], classes, dtype=dtype, rngs=rngs)

    def __call__(self, x: jax.Array) -> jax.Array:
        """Class logits of a batch; each input is flattened."""
        x = x.reshape(x.shape[0], math.prod(x.shape[1:]))
        for layer in self.hidden:
            x = nnx.relu(layer(x))
        return self.out(x).astype(jnp.float32)
