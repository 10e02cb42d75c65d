"""Flax NNX models of the benchmarks, one file a family.

Every model is made as ``Model(..., dtype=jnp.float32, rngs=nnx.Rngs(seed))``. ``dtype``
is what it computes in; parameters and logits are always float32. ``model.train()`` and
``model.eval()`` switch BatchNorm, dropout and DeiT's two heads.
"""

import math

import jax
from flax import nnx

from benchmarks.models.deit import DeiT
from benchmarks.models.graphsage import GraphSAGE
from benchmarks.models.mlp import MLP
from benchmarks.models.resnet import ResNet, WideResNet
from benchmarks.models.transformer import CausalTransformer

__all__ = [
    "MLP",
    "CausalTransformer",
    "DeiT",
    "GraphSAGE",
    "ResNet",
    "WideResNet",
    "parameter_count",
]


def parameter_count(model: nnx.Module) -> int:
    """Number of trained scalars; the model may be abstract (``nnx.eval_shape``)."""
    params = jax.tree.leaves(nnx.state(model, nnx.Param))
    return sum(math.prod(param.shape) for param in params)
