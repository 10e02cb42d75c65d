"""Trains a small causal language model on the characters of a text file.

Usage: python examples/language_model.py [FILE] [--epochs 10] [--learning-rate 3e-4]
(pip install . flax). "learning rate ×" has the schedule in it, so it ends near 0.
"""

import argparse
import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

import ctagd_optax

TEXT = pathlib.Path(__file__).parent.parent / "LICENSE"
LENGTH, BATCH, WIDTH, HEADS, LAYERS = 64, 8, 64, 4, 2


class Block(nnx.Module):
    """Attention to what came before, then a small network."""

    def __init__(self, rngs: nnx.Rngs):
        self.norms = nnx.List([nnx.LayerNorm(WIDTH, rngs=rngs) for _ in range(2)])
        self.attention = nnx.MultiHeadAttention(HEADS, WIDTH, decode=False, rngs=rngs)
        self.up = nnx.Linear(WIDTH, 4 * WIDTH, rngs=rngs)
        self.down = nnx.Linear(4 * WIDTH, WIDTH, rngs=rngs)

    def __call__(self, x: jax.Array) -> jax.Array:
        """One layer of the network."""
        mask = nnx.make_causal_mask(x[..., 0])
        x = x + self.attention(self.norms[0](x), mask=mask)
        return x + self.down(nnx.gelu(self.up(self.norms[1](x))))


class Transformer(nnx.Module):
    """A decoder of a few blocks."""

    def __init__(self, letters: int, rngs: nnx.Rngs):
        self.letters = nnx.Embed(letters, WIDTH, rngs=rngs)
        self.places = nnx.Embed(LENGTH, WIDTH, rngs=rngs)
        self.blocks = nnx.List([Block(rngs) for _ in range(LAYERS)])
        self.norm = nnx.LayerNorm(WIDTH, rngs=rngs)

    def __call__(self, tokens: jax.Array) -> jax.Array:
        """Logits of the next letter at every place."""
        x = self.letters(tokens) + self.places(jnp.arange(LENGTH))
        for block in self.blocks:
            x = block(x)
        return self.letters.attend(self.norm(x))


@nnx.jit
def train_step(model: Transformer, optimizer: nnx.Optimizer, rows: jax.Array):
    """One step; rows of LENGTH + 1 tokens are inputs and, moved by one, labels."""

    def loss(model):
        logits, labels = model(rows[:, :-1]), rows[:, 1:]
        return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()

    value, grads = nnx.value_and_grad(loss)(model)
    optimizer.update(model, grads)
    return value, ctagd_optax.learning_rate_multiplier(optimizer)[0]


def main() -> None:
    """Trains, and prints a line per epoch."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", nargs="?", type=pathlib.Path, default=TEXT)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--learning-rate", type=float, default=3e-4)
    options = parser.parse_args()
    letters, tokens = np.unique(list(options.file.read_text()), return_inverse=True)
    rows = np.lib.stride_tricks.sliding_window_view(tokens, LENGTH + 1)[::LENGTH]
    steps = len(rows) // BATCH
    # Warm-up and decay go into schedule, relative to the peak: 1.
    schedule = optax.warmup_cosine_decay_schedule(
        0.0, 1.0, warmup_steps=steps // 2, decay_steps=options.epochs * steps
    )
    backbone = optax.chain(
        optax.clip_by_global_norm(1.0), optax.adamw(options.learning_rate)
    )
    tx = ctagd_optax.robust_ct_agd(backbone, steps, schedule=schedule)
    model = Transformer(len(letters), nnx.Rngs(0))
    optimizer = nnx.Optimizer(model, tx, wrt=nnx.Param)
    for epoch in range(1, options.epochs + 1):
        order = np.random.default_rng(epoch).permutation(len(rows))
        batches = rows[order[: steps * BATCH]].reshape(steps, BATCH, -1)
        figures = [train_step(model, optimizer, batch) for batch in batches]
        losses, rates = np.asarray(figures).T
        print(
            f"epoch {epoch}: loss {losses.mean():.2f}, "
            f"learning rate × {rates.max():.1f} at most"
        )


if __name__ == "__main__":
    main()
