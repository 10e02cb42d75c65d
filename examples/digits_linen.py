"""Classifies digits with Flax Linen, and tunes AdamW's learning rate on the way.

Usage: python examples/digits_linen.py (pip install . flax scikit-learn)
"""

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import linen as nn
from flax.training.train_state import TrainState
from sklearn.datasets import load_digits

import ctagd_optax

EPOCHS, BATCH, TRAIN = 5, 32, 1440
STEPS = TRAIN // BATCH  # in an epoch


class Network(nn.Module):
    """One hidden layer."""

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """Class logits."""
        return nn.Dense(10)(nn.relu(nn.Dense(64)(x)))


@jax.jit
def train_step(state: TrainState, x: jax.Array, y: jax.Array):
    """One step: the new state, and what the learning rate was multiplied by."""

    def loss(params):
        logits = state.apply_fn({"params": params}, x)
        return optax.softmax_cross_entropy_with_integer_labels(logits, y).mean()

    # apply_gradients passes the parameters to the optimizer, which needs them.
    state = state.apply_gradients(grads=jax.grad(loss)(state.params))
    return state, ctagd_optax.learning_rate_multiplier(state)[0]


@jax.jit
def accuracy(state: TrainState, x: jax.Array, y: jax.Array) -> jax.Array:
    """The share of images that are classified right."""
    return jnp.mean(state.apply_fn({"params": state.params}, x).argmax(-1) == y)


def main() -> None:
    """Trains, and prints a line per epoch."""
    rng = np.random.default_rng(0)
    x, y = load_digits(return_X_y=True)
    order = rng.permutation(len(y))
    x, y = (x[order] / 16).astype(np.float32), y[order].astype(np.int32)
    model = Network()
    state = TrainState.create(
        apply_fn=model.apply,
        params=model.init(jax.random.key(0), x[:1])["params"],
        # Wrapping the optimizer is the only change. 3e-4 is too small here.
        tx=ctagd_optax.robust_ct_agd(optax.adamw(3e-4), steps_per_epoch=STEPS),
    )
    for epoch in range(1, EPOCHS + 1):
        largest = 0.0
        for rows in rng.permutation(TRAIN).reshape(STEPS, BATCH):
            state, multiplier = train_step(state, x[rows], y[rows])
            largest = max(largest, float(multiplier))
        found = accuracy(state, x[TRAIN:], y[TRAIN:])
        print(
            f"epoch {epoch}: test accuracy {found:.3f}, "
            f"learning rate × {largest:.1f} at most"
        )
    print(ctagd_optax.curvature_report(state, state.params))


if __name__ == "__main__":
    main()
