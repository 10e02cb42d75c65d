"""A workload with all that a trainer must keep: BatchNorm, dropout, augmentation.

Usage: python -m tests.benchmarks.small DIE_AT ARGUMENTS trains it as ``python -m
benchmarks train ARGUMENTS`` would, and kills itself with SIGKILL at a step.
"""

import os
import signal
import sys

import jax.numpy as jnp
from flax import nnx

from benchmarks import __main__ as command_line
from benchmarks import data, workloads
from benchmarks.train.run import Run

NAME = "small"


class Network(nnx.Module):
    """One hidden layer with BatchNorm and dropout."""

    def __init__(self, inputs, classes, *, dtype=jnp.float32, rngs):
        self.hidden = nnx.Linear(inputs, 32, dtype=dtype, rngs=rngs)
        self.norm = nnx.BatchNorm(32, dtype=dtype, rngs=rngs)
        self.dropout = nnx.Dropout(0.2, rngs=rngs)
        self.out = nnx.Linear(32, classes, dtype=dtype, rngs=rngs)

    def __call__(self, images):
        """Class logits."""
        x = self.hidden(images.reshape(len(images), -1))
        return self.out(self.dropout(nnx.relu(self.norm(x)))).astype(jnp.float32)


def _load(data_dir=None, download=True):
    del data_dir, download
    return data.synthetic(train=128, test=40, shape=(8, 8, 1), classes=4)


def _pipeline(images, **options):
    template = workloads.WORKLOADS["cifar10_small"]  # with crops and flips
    return template.pipeline(images, **options)


SMALL = workloads.WORKLOADS["cifar10_small"]._replace(
    name=NAME,
    description="A network for tests",
    load=_load,
    stand_in=_load,
    model=lambda images, **options: Network(64, images.classes, **options),
    pipeline=_pipeline,
    target=0.5,
    batch_size=16,
    epochs=3,
    validation=32,
)


if __name__ == "__main__":
    die_at, *arguments = sys.argv[1:]
    workloads.WORKLOADS[NAME] = SMALL
    taken = Run.step

    def step(self, state, batch):
        """A step, if it is not the last one."""
        if int(state.step) == int(die_at):
            os.kill(os.getpid(), signal.SIGKILL)
        return taken(self, state, batch)

    Run.step = step
    sys.exit(command_line.main(["train", "--workload", NAME, *arguments]))
