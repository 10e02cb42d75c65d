"""Classifies digits with Equinox, and tunes AdamW's learning rate on the way.

Usage: python examples/digits_equinox.py (pip install . equinox scikit-learn)
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from sklearn.datasets import load_digits

import ctagd_optax

EPOCHS, BATCH, TRAIN = 5, 32, 1440
STEPS = TRAIN // BATCH  # in an epoch
# Wrapping the optimizer is the only change. 3e-4 is too small for this network.
OPTIMIZER = ctagd_optax.robust_ct_agd(optax.adamw(3e-4), steps_per_epoch=STEPS)


@eqx.filter_jit
def train_step(model: eqx.nn.MLP, state: optax.OptState, x: jax.Array, y: jax.Array):
    """One step: model, state, and what the learning rate was multiplied by."""

    @eqx.filter_grad
    def gradients(model):
        logits = jax.vmap(model)(x)
        return optax.softmax_cross_entropy_with_integer_labels(logits, y).mean()

    # The optimizer needs the parameters: the arrays of the model, not its functions.
    params = eqx.filter(model, eqx.is_inexact_array)
    updates, state = OPTIMIZER.update(gradients(model), state, params)
    multiplier = ctagd_optax.learning_rate_multiplier(state)[0]
    return eqx.apply_updates(model, updates), state, multiplier


@eqx.filter_jit
def accuracy(model: eqx.nn.MLP, x: jax.Array, y: jax.Array) -> jax.Array:
    """The share of images that are classified right."""
    return jnp.mean(jax.vmap(model)(x).argmax(-1) == y)


def main() -> None:
    """Trains, and prints a line per epoch."""
    rng = np.random.default_rng(0)
    x, y = load_digits(return_X_y=True)
    order = rng.permutation(len(y))
    x, y = (x[order] / 16).astype(np.float32), y[order].astype(np.int32)
    model = eqx.nn.MLP(64, 10, width_size=64, depth=1, key=jax.random.key(0))
    state = OPTIMIZER.init(eqx.filter(model, eqx.is_inexact_array))
    for epoch in range(1, EPOCHS + 1):
        largest = 0.0
        for rows in rng.permutation(TRAIN).reshape(STEPS, BATCH):
            model, state, multiplier = train_step(model, state, x[rows], y[rows])
            largest = max(largest, float(multiplier))
        found = accuracy(model, x[TRAIN:], y[TRAIN:])
        print(
            f"epoch {epoch}: test accuracy {found:.3f}, "
            f"learning rate × {largest:.1f} at most"
        )
    params = eqx.filter(model, eqx.is_inexact_array)
    print(ctagd_optax.curvature_report(state, params))


if __name__ == "__main__":
    main()
