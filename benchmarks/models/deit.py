"""DeiT, the data-efficient vision transformer."""

import jax
import jax.numpy as jnp
from flax import nnx
from jax.typing import DTypeLike

from benchmarks.models.layers import TransformerBlock

# DeiT's truncated normal is cut at ±2, a hundred standard deviations: a plain one.
_INIT = nnx.initializers.normal(0.02)


class DeiT(nnx.Module):
    """Vision transformer with a class token and, by option, a distillation token.

    Touvron et al., `Training data-efficient image transformers and distillation through
    attention <https://arxiv.org/abs/2012.12877>`_, 2021. The defaults are DeiT-Ti (12
    blocks of width 192) for images of 64×64 in patches of 8×8.

    Args:
      image: height and width of the images.
      patch: height and width of a patch.
      depth: number of blocks.
      width: features of a token.
      heads: attention heads.
      classes: number of classes.
      distillation: adds a second token with a head of its own.
      channels: channels of the images.
      drop_path: probability that an example skips a branch of the last block in
        training; it rises linearly from 0 at the first block.
      dtype: dtype of the computation.
      rngs: random streams.
    """

    def __init__(
        self,
        image: int = 64,
        patch: int = 8,
        depth: int = 12,
        width: int = 192,
        heads: int = 3,
        classes: int = 200,
        distillation: bool = False,
        channels: int = 3,
        *,
        drop_path: float = 0.0,
        dtype: DTypeLike = jnp.float32,
        rngs: nnx.Rngs,
    ):
        if image % patch:
            raise ValueError(f"image must be a multiple of patch={patch}, got {image}")
        extra = 2 if distillation else 1
        self.deterministic = False
        self.patches = nnx.Conv(
            channels,
            width,
            (patch, patch),
            strides=patch,
            padding="VALID",
            kernel_init=_INIT,
            dtype=dtype,
            rngs=rngs,
        )
        self.tokens = nnx.Param(_INIT(rngs.params(), (extra, width)))
        length = (image // patch) ** 2 + extra
        self.positions = nnx.Param(_INIT(rngs.params(), (length, width)))
        self.blocks = nnx.List(
            [
                TransformerBlock(
                    width,
                    heads,
                    drop_path=drop_path * i / max(depth - 1, 1),
                    kernel_init=_INIT,
                    out_init=_INIT,
                    dtype=dtype,
                    rngs=rngs,
                )
                for i in range(depth)
            ]
        )
        self.norm = nnx.LayerNorm(width, epsilon=1e-6, dtype=dtype, rngs=rngs)
        self.heads = nnx.List(
            [
                nnx.Linear(width, classes, kernel_init=_INIT, dtype=dtype, rngs=rngs)
                for _ in range(extra)
            ]
        )

    def __call__(self, images: jax.Array) -> jax.Array | tuple[jax.Array, jax.Array]:
        """Class logits of normalised images [batch, height, width, channels].

        With a distillation token, training gets the logits of both heads, for the label
        and for the teacher, and evaluation their mean.
        """
        patches = self.patches(images)
        batch, _, _, width = patches.shape
        tokens = self.tokens[...].astype(patches.dtype)
        tokens = jnp.broadcast_to(tokens, (batch, *tokens.shape))
        x = jnp.concatenate([tokens, patches.reshape(batch, -1, width)], axis=1)
        x = x + self.positions[...].astype(x.dtype)
        for block in self.blocks:
            x = block(x)
        x = self.norm(x)
        logits = [
            head(x[:, i]).astype(jnp.float32) for i, head in enumerate(self.heads)
        ]
        if len(logits) == 1:
            return logits[0]
        label, teacher = logits
        return (label + teacher) / 2 if self.deterministic else (label, teacher)
