"""Trains in several processes, each with its own part of every batch.

Usage, on each host: python examples/multi_host.py HOST0:PORT PROCESSES PROCESS
(pip install . scikit-learn). To try it on one machine, in two terminals:
``localhost:7791 2 0`` and ``localhost:7791 2 1``.
"""

import argparse

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P
from sklearn.datasets import load_digits

import ctagd_optax

EPOCHS, BATCH, TRAIN = 5, 32, 1440
STEPS = TRAIN // BATCH  # in an epoch
# Wrapping the optimizer is the only change. 3e-4 is too small for this network.
OPTIMIZER = ctagd_optax.robust_ct_agd(optax.adamw(3e-4), steps_per_epoch=STEPS)


def init(seed: jax.Array):
    """Parameters of one hidden layer, and the optimizer's state."""
    keys = jax.random.split(jax.random.key(seed))
    params = {
        "hidden": jax.random.normal(keys[0], (64, 64)) / 8,
        "out": jax.random.normal(keys[1], (64, 10)) / 8,
    }
    return params, OPTIMIZER.init(params)


def logits(params: dict, x: jax.Array) -> jax.Array:
    """Class logits."""
    return jax.nn.relu(x @ params["hidden"]) @ params["out"]


@jax.jit
def train_step(params: dict, state: optax.OptState, x: jax.Array, y: jax.Array):
    """One step. The mean runs over all processes, so the gradients are equal in all."""

    def loss(params):
        losses = optax.softmax_cross_entropy_with_integer_labels(logits(params, x), y)
        return losses.mean()

    updates, state = OPTIMIZER.update(jax.grad(loss)(params), state, params)
    multiplier = ctagd_optax.learning_rate_multiplier(state)[0]
    return optax.apply_updates(params, updates), state, multiplier


@jax.jit
def accuracy(params: dict, x: np.ndarray, y: np.ndarray) -> jax.Array:
    """The share of images that are classified right."""
    return jnp.mean(logits(params, x).argmax(-1) == y)


def main() -> None:
    """Trains; every process prints a line per epoch."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("coordinator", help="HOST:PORT of the first process")
    parser.add_argument("processes", type=int)
    parser.add_argument("process", type=int, help="the number of this one, from 0")
    options = parser.parse_args()
    # On Slurm, Kubernetes or Cloud TPU, initialize() finds its arguments itself.
    jax.distributed.initialize(options.coordinator, options.processes, options.process)
    mesh = jax.make_mesh((jax.device_count(),), ("data",), axis_types=(AxisType.Auto,))
    by_rows, whole = NamedSharding(mesh, P("data")), NamedSharding(mesh, P())
    rng = np.random.default_rng(0)  # the same in every process, so is the order
    x, y = load_digits(return_X_y=True)
    order = rng.permutation(len(y))
    x, y = (x[order] / 16).astype(np.float32), y[order].astype(np.int32)
    params, state = jax.jit(init, out_shardings=whole)(0)
    for epoch in range(1, EPOCHS + 1):
        largest = 0.0
        for rows in rng.permutation(TRAIN).reshape(STEPS, BATCH):
            mine = np.array_split(rows, jax.process_count())[jax.process_index()]
            batch = [
                jax.make_array_from_process_local_data(by_rows, data[mine])
                for data in (x, y)
            ]
            params, state, multiplier = train_step(params, state, *batch)
            largest = max(largest, float(multiplier))
        found = accuracy(params, x[TRAIN:], y[TRAIN:])
        print(
            f"process {jax.process_index()}, epoch {epoch}: test accuracy {found:.3f}, "
            f"learning rate × {largest:.1f} at most"
        )


if __name__ == "__main__":
    main()
