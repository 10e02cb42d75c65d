"""Compares optimizers on a network and data of your own.

Usage, from the checkout's root: python -m examples.compare_on_your_model
(pip install ".[bench]"). It takes a minute or two. What is compared stands in the
manifest beside this file; another manifest can be given, and all options of
``python -m benchmarks study``.
"""

import pathlib
import sys

import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import train_test_split

from benchmarks import workloads
from benchmarks.__main__ import main
from benchmarks.data import Arrays


class Network(nnx.Module):
    """Put your network here."""

    def __init__(self, rngs: nnx.Rngs):
        self.hidden = nnx.Linear(30, 32, rngs=rngs)
        self.out = nnx.Linear(32, 2, rngs=rngs)

    def __call__(self, x):
        """Class logits."""
        return self.out(nnx.relu(self.hidden(x)))


def load() -> Arrays:
    """Put your data here: arrays by name, whose rows are the examples."""
    x, y = load_breast_cancer(return_X_y=True)
    x = ((x - x.mean(0)) / x.std(0)).astype(np.float32)
    parts = train_test_split(x, y.astype(np.int32), test_size=0.3, random_state=0)
    x_train, x_test, y_train, y_test = parts
    return Arrays({"x": x_train, "y": y_train}, {"x": x_test, "y": y_test})


def figures(model: Network, batch: dict) -> workloads.Figures:
    """Put your loss here, and an accuracy; each example has one of both."""
    logits = model(batch["x"])
    loss = optax.softmax_cross_entropy_with_integer_labels(logits, batch["y"])
    return workloads.Figures(
        loss, (logits.argmax(-1) == batch["y"]).astype(jnp.float32)
    )


# When the module is imported, as the processes of a comparison import it, too.
workloads.register(
    workloads.from_arrays(
        "tumours",
        "Breast tumours, 30 measurements each; one hidden layer of 32",
        load,
        Network,
        figures,
        target=0.95,
        epochs=15,
        batch_size=32,
        validation=80,
    )
)

if __name__ == "__main__":
    manifest = str(pathlib.Path(__file__).with_suffix(".toml"))
    sys.exit(main(["study", *(sys.argv[1:] or [manifest, "--jobs", "2"])]))
