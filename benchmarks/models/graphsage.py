"""GraphSAGE on sampled neighbourhoods."""

import jax
import jax.numpy as jnp
from flax import nnx
from jax.typing import DTypeLike

from benchmarks.models.layers import make_dropout


class SAGELayer(nnx.Module):
    """One layer with the mean aggregator: relu(W · [self, mean of neighbours])."""

    def __init__(
        self,
        inputs: int,
        outputs: int,
        *,
        normalize: bool,
        dtype: DTypeLike,
        rngs: nnx.Rngs,
    ):
        self.normalize = normalize
        self.linear = nnx.Linear(
            2 * inputs,
            outputs,
            use_bias=False,
            kernel_init=nnx.initializers.glorot_uniform(),
            dtype=dtype,
            rngs=rngs,
        )

    def __call__(self, node: jax.Array, neighbours: jax.Array) -> jax.Array:
        """New features of nodes [..., F] from their neighbours [..., samples, F]."""
        x = jnp.concatenate([node, neighbours.mean(-2)], axis=-1)
        x = nnx.relu(self.linear(x))
        if not self.normalize:
            return x
        square = jnp.sum(x.astype(jnp.float32) ** 2, axis=-1, keepdims=True)
        # The bound keeps a node without any active feature, and its gradient, at zero.
        return x * jax.lax.rsqrt(jnp.maximum(square, 1e-12)).astype(x.dtype)


class GraphSAGE(nnx.Module):
    """Two GraphSAGE layers and a linear classifier.

    Hamilton et al., `Inductive Representation Learning on Large Graphs
    <https://arxiv.org/abs/1706.02216>`_, 2017, with the mean aggregator. The classifier
    is a layer of its own, as in the authors' supervised set-up.

    Args:
      features: features of a node.
      hidden: features after each of the two layers.
      classes: number of classes.
      dropout: dropout of what enters each layer and the classifier.
      normalize: scales what leaves a layer to length 1, as the paper does.
      dtype: dtype of the computation.
      rngs: random streams.
    """

    def __init__(
        self,
        features: int,
        hidden: int,
        classes: int,
        *,
        dropout: float = 0.0,
        normalize: bool = True,
        dtype: DTypeLike = jnp.float32,
        rngs: nnx.Rngs,
    ):
        self.dtype = dtype
        self.layer1 = SAGELayer(
            features, hidden, normalize=normalize, dtype=dtype, rngs=rngs
        )
        self.layer2 = SAGELayer(
            hidden, hidden, normalize=normalize, dtype=dtype, rngs=rngs
        )
        self.out = nnx.Linear(
            hidden,
            classes,
            kernel_init=nnx.initializers.glorot_uniform(),
            dtype=dtype,
            rngs=rngs,
        )
        self.dropout = make_dropout(dropout, rngs=rngs)

    def __call__(
        self, features: jax.Array, node: jax.Array, hop1: jax.Array, hop2: jax.Array
    ) -> jax.Array:
        """Class logits of a batch of nodes.

        Args:
          features: features of all nodes, [nodes, features].
          node: the nodes to classify, [batch].
          hop1: sampled neighbours of each, [batch, samples1].
          hop2: sampled neighbours of those, [batch, samples1, samples2].

        Returns:
          Logits, [batch, classes].
        """
        x0, x1, x2 = (
            self.dropout(features[nodes].astype(self.dtype))
            for nodes in (node, hop1, hop2)
        )
        h0 = self.dropout(self.layer1(x0, x1))
        h1 = self.dropout(self.layer1(x1, x2))
        return self.out(self.dropout(self.layer2(h0, h1))).astype(jnp.float32)
