"""Layers that several families share."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
from flax import nnx
from jax.typing import DTypeLike


def make_dropout(
    rate: float, *, rngs: nnx.Rngs, broadcast_dims: Sequence[int] = ()
) -> nnx.Dropout:
    """Dropout that keeps a random state only where it needs one."""
    if not 0 <= rate < 1:
        raise ValueError(f"dropout rates must be in [0, 1), got {rate}")
    return nnx.Dropout(
        rate, broadcast_dims=broadcast_dims, rngs=rngs if rate > 0 else None
    )


class Attention(nnx.Module):
    """Multi-head self-attention.

    Queries, keys and values come from one matrix with biases, as in DeiT and GPT-2: an
    optimizer that works tensor by tensor sees the tensors of the published models.
    """

    def __init__(
        self,
        width: int,
        heads: int,
        *,
        causal: bool,
        kernel_init: nnx.Initializer,
        out_init: nnx.Initializer,
        dtype: DTypeLike,
        rngs: nnx.Rngs,
    ):
        if width % heads:
            raise ValueError(f"width must be a multiple of heads={heads}, got {width}")
        self.heads = heads
        self.causal = causal
        self.qkv = nnx.Linear(
            width, 3 * width, kernel_init=kernel_init, dtype=dtype, rngs=rngs
        )
        self.out = nnx.Linear(
            width, width, kernel_init=out_init, dtype=dtype, rngs=rngs
        )

    def __call__(self, x: jax.Array) -> jax.Array:
        """Mixes the tokens of [batch, length, width]."""
        batch, length, width = x.shape
        qkv = self.qkv(x).reshape(batch, length, 3, self.heads, width // self.heads)
        q, k, v = jnp.moveaxis(qkv, 2, 0)
        mixed = jax.nn.dot_product_attention(q, k, v, is_causal=self.causal)
        return self.out(mixed.reshape(batch, length, width))


class TransformerBlock(nnx.Module):
    """Pre-norm block: attention, then two layers with an exact GELU between.

    Args:
      width: features of a token.
      heads: attention heads.
      causal: whether a token sees only itself and those before it.
      dropout: dropout at the end of both residual branches.
      drop_path: probability that an example skips a residual branch in training.
      kernel_init: initializer of the kernels; biases are zero.
      out_init: initializer of the two kernels that end a residual branch.
      dtype: dtype of the computation.
      rngs: random streams.
    """

    def __init__(
        self,
        width: int,
        heads: int,
        *,
        causal: bool = False,
        dropout: float = 0.0,
        drop_path: float = 0.0,
        kernel_init: nnx.Initializer,
        out_init: nnx.Initializer,
        dtype: DTypeLike,
        rngs: nnx.Rngs,
    ):
        self.norm1 = nnx.LayerNorm(width, epsilon=1e-6, dtype=dtype, rngs=rngs)
        self.attention = Attention(
            width,
            heads,
            causal=causal,
            kernel_init=kernel_init,
            out_init=out_init,
            dtype=dtype,
            rngs=rngs,
        )
        self.norm2 = nnx.LayerNorm(width, epsilon=1e-6, dtype=dtype, rngs=rngs)
        self.hidden = nnx.Linear(
            width, 4 * width, kernel_init=kernel_init, dtype=dtype, rngs=rngs
        )
        self.out = nnx.Linear(
            4 * width, width, kernel_init=out_init, dtype=dtype, rngs=rngs
        )
        self.dropout = make_dropout(dropout, rngs=rngs)
        self.drop_path = make_dropout(drop_path, broadcast_dims=(1, 2), rngs=rngs)

    def __call__(self, x: jax.Array) -> jax.Array:
        """Transforms the tokens of [batch, length, width]."""
        branch = self.attention(self.norm1(x))
        x = x + self.drop_path(self.dropout(branch))
        branch = self.out(nnx.gelu(self.hidden(self.norm2(x)), approximate=False))
        return x + self.drop_path(self.dropout(branch))
