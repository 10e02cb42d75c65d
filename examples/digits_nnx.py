"""Classifies digits with Flax NNX, and tunes AdamW's learning rate on the way.

Usage: python examples/digits_nnx.py (pip install . flax scikit-learn)
"""

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from sklearn.datasets import load_digits

import ctagd_optax

EPOCHS, BATCH, TRAIN = 5, 32, 1440
STEPS = TRAIN // BATCH  # in an epoch


class Network(nnx.Module):
    """One hidden layer."""

    def __init__(self, rngs: nnx.Rngs):
        self.hidden = nnx.Linear(64, 64, rngs=rngs)
        self.out = nnx.Linear(64, 10, rngs=rngs)

    def __call__(self, x: jax.Array) -> jax.Array:
        """Class logits."""
        return self.out(nnx.relu(self.hidden(x)))


@nnx.jit
def train_step(model: Network, optimizer: nnx.Optimizer, x: jax.Array, y: jax.Array):
    """One step, in place; returns what the learning rate was multiplied by."""

    def loss(model):
        return optax.softmax_cross_entropy_with_integer_labels(model(x), y).mean()

    optimizer.update(model, nnx.grad(loss)(model))
    return ctagd_optax.learning_rate_multiplier(optimizer)[0]


@nnx.jit
def accuracy(model: Network, x: jax.Array, y: jax.Array) -> jax.Array:
    """The share of images that are classified right."""
    return jnp.mean(model(x).argmax(-1) == y)


def main() -> None:
    """Trains, and prints a line per epoch."""
    rng = np.random.default_rng(0)
    x, y = load_digits(return_X_y=True)
    order = rng.permutation(len(y))
    x, y = (x[order] / 16).astype(np.float32), y[order].astype(np.int32)
    model = Network(nnx.Rngs(0))
    # Wrapping the optimizer is the only change. 3e-4 is too small for this network.
    tx = ctagd_optax.robust_ct_agd(optax.adamw(3e-4), steps_per_epoch=STEPS)
    optimizer = nnx.Optimizer(model, tx, wrt=nnx.Param)
    for epoch in range(1, EPOCHS + 1):
        largest = 0.0
        for rows in rng.permutation(TRAIN).reshape(STEPS, BATCH):
            multiplier = train_step(model, optimizer, x[rows], y[rows])
            largest = max(largest, float(multiplier))
        found = accuracy(model, x[TRAIN:], y[TRAIN:])
        print(
            f"epoch {epoch}: test accuracy {found:.3f}, "
            f"learning rate × {largest:.1f} at most"
        )
    print(ctagd_optax.curvature_report(optimizer, nnx.state(model, nnx.Param)))


if __name__ == "__main__":
    main()
