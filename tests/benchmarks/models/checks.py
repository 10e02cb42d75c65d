"""What the tests of every family check alike."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

from benchmarks.models import parameter_count


def count(make) -> int:
    """Parameters of the model that ``make`` would build; nothing is computed."""
    return parameter_count(nnx.eval_shape(make))


def images(batch: int, size: int, channels: int = 3) -> np.ndarray:
    """Images of noise."""
    shape = batch, size, size, channels
    return np.random.default_rng(0).normal(size=shape).astype(np.float32)


def build(make):
    """The model that ``make`` builds, compiled as one: far faster than op by op."""
    return nnx.jit(make)()


def final_loss(make, inputs, labels, *, rate=1e-2, steps=40, loss=None) -> float:
    """The loss on one batch after a few steps of Adam, in training mode."""
    model = build(make)
    model.train()
    graph, params, rest = nnx.split(model, nnx.Param, ...)
    opt = optax.flatten(optax.adam(rate))  # one tensor compiles faster than many

    def mean_loss(logits, labels):
        return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()

    def objective(params, rest):
        network = nnx.merge(graph, params, rest, copy=True)  # rest is of an outer trace
        value = (loss or mean_loss)(network(*inputs), labels)
        return value, nnx.split(network, nnx.Param, ...)[2]

    @jax.jit
    def step(params, rest, state):
        (value, rest), grads = jax.value_and_grad(objective, has_aux=True)(params, rest)
        updates, state = opt.update(grads, state)
        return optax.apply_updates(params, updates), rest, state, value

    state, value = opt.init(params), jnp.inf
    for _ in range(steps):
        params, rest, state, value = step(params, rest, state)
    return float(value)


def computing_dtypes(make, *inputs) -> tuple[set[str], set[str], set[str]]:
    """Dtypes of parameters, of matrix products and convolutions, and of outputs."""
    graph, state = nnx.split(nnx.eval_shape(make))

    def call(state, *inputs):
        return nnx.merge(graph, state)(*inputs)

    jaxpr = jax.make_jaxpr(call)(state, *inputs)
    products = re.findall(
        r":(\w+)\[[^\]]*\] = (?:conv_general_dilated|dot_general)\[", str(jaxpr)
    )
    params = jax.tree.leaves(nnx.filter_state(state, nnx.Param))
    return (
        {str(param.dtype) for param in params},
        set(products),
        {str(out.dtype) for out in jaxpr.out_avals},
    )


BFLOAT16 = {"float32"}, {"bf16"}, {"float32"}
BFLOAT16_ATTENTION = {"float32"}, {"bf16", "f32"}, {"float32"}  # scores add up in f32
FLOAT32 = {"float32"}, {"f32"}, {"float32"}
