"""A small causal transformer for characters."""

import math

import jax
import jax.numpy as jnp
from flax import nnx
from jax.typing import DTypeLike

from benchmarks.models.layers import TransformerBlock, make_dropout


class CausalTransformer(nnx.Module):
    """GPT-2's architecture and initialization, two blocks deep by default.

    Radford et al., `Language Models are Unsupervised Multitask Learners
    <https://cdn.openai.com/better-language-models/language_models_are_unsupervised_multitask_learners.pdf>`_,
    2019: pre-norm blocks, learned positions, normal(0.02) kernels with those that end a
    residual branch divided by √(2·depth), and the embedding as output matrix. The block
    is DeiT's: its GELU is exact, and ε of LayerNorm is 1e-6.

    Args:
      vocabulary: number of different tokens.
      length: the most tokens in a sequence.
      width: features of a token.
      depth: number of blocks.
      heads: attention heads.
      dropout: dropout of the embeddings and at the end of residual branches.
      dtype: dtype of the computation.
      rngs: random streams.
    """

    def __init__(
        self,
        vocabulary: int,
        length: int,
        width: int = 128,
        depth: int = 2,
        heads: int = 4,
        *,
        dropout: float = 0.0,
        dtype: DTypeLike = jnp.float32,
        rngs: nnx.Rngs,
    ):
        init = nnx.initializers.normal(0.02)
        self.length = length
        self.embedding = nnx.Embed(
            vocabulary, width, embedding_init=init, dtype=dtype, rngs=rngs
        )
        self.positions = nnx.Param(init(rngs.params(), (length, width)))
        self.dropout = make_dropout(dropout, rngs=rngs)
        self.blocks = nnx.List(
            [
                TransformerBlock(
                    width,
                    heads,
                    causal=True,
                    dropout=dropout,
                    kernel_init=init,
                    out_init=nnx.initializers.normal(0.02 / math.sqrt(2 * depth)),
                    dtype=dtype,
                    rngs=rngs,
                )
                for _ in range(depth)
            ]
        )
        self.norm = nnx.LayerNorm(width, epsilon=1e-6, dtype=dtype, rngs=rngs)

    def __call__(self, tokens: jax.Array) -> jax.Array:
        """Logits [batch, length, vocabulary] of the token after each of ``tokens``."""
        length = tokens.shape[1]
        if length > self.length:
            raise ValueError(
                f"tokens must be at most {self.length} long, as the model was made, "
                f"got {length}"
            )
        x = self.embedding(tokens)
        x = self.dropout(x + self.positions[:length].astype(x.dtype))
        for block in self.blocks:
            x = block(x)
        return self.embedding.attend(self.norm(x)).astype(jnp.float32)
