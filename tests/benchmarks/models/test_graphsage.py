"""GraphSAGE against a slow reference, and learning."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from benchmarks.models import GraphSAGE
from tests.benchmarks.models import checks

pytestmark = pytest.mark.usefixtures("default_jax")


def sample(nodes=20, batch=8, features=6):
    rng = np.random.default_rng(0)
    return (
        rng.normal(size=(nodes, features)).astype(np.float32),
        rng.permutation(nodes)[:batch],
        rng.integers(nodes, size=(batch, 4)),
        rng.integers(nodes, size=(batch, 4, 3)),
    )


def reference(model, normalize, features, node, hop1, hop2):
    """The paper's Algorithm 2, one node at a time."""

    def layer(kernel, own, neighbours):
        total = np.zeros_like(own)
        for neighbour in neighbours:
            total += neighbour
        both = np.concatenate([own, total / len(neighbours)])
        h = np.maximum(both @ np.asarray(kernel[...]), 0)
        return h / np.linalg.norm(h) if normalize else h

    first, second = model.layer1.linear.kernel, model.layer2.linear.kernel
    rows = []
    for b, v in enumerate(node):
        own = layer(first, features[v], [features[u] for u in hop1[b]])
        around = [
            layer(first, features[u], [features[w] for w in hop2[b, i]])
            for i, u in enumerate(hop1[b])
        ]
        h = layer(second, own, around)
        rows.append(h @ np.asarray(model.out.kernel[...]) + model.out.bias[...])
    return np.stack(rows)


@pytest.mark.parametrize("normalize", [True, False])
def test_equals_the_slow_reference(normalize):
    model = checks.build(
        lambda: GraphSAGE(6, 16, 3, normalize=normalize, rngs=nnx.Rngs(0))
    )
    model.out.bias[...] = jnp.asarray([1.0, 2.0, 3.0])
    arrays = sample()
    expected = reference(model, normalize, *arrays)
    logits = nnx.jit(lambda model, arrays: model(*arrays))(model, arrays)
    np.testing.assert_allclose(logits, expected, rtol=1e-4, atol=1e-5)


def test_a_node_without_active_features_stays_at_zero_with_its_gradient():
    model = checks.build(lambda: GraphSAGE(6, 5, 3, rngs=nnx.Rngs(0)))
    features, *nodes = sample()
    graph, params = nnx.split(model)

    def total(params, features):
        return nnx.merge(graph, params)(features, *nodes).sum()

    value, grads = jax.jit(jax.value_and_grad(total))(params, np.zeros_like(features))
    assert value == 0
    chex.assert_tree_all_finite(grads)


def test_initialization_and_size():
    make = lambda: GraphSAGE(602, 128, 41, rngs=nnx.Rngs(0))  # noqa: E731
    size = 2 * 602 * 128 + 2 * 128 * 128 + 128 * 41 + 41
    assert checks.count(make) == size
    model = checks.build(make)
    kernel = np.asarray(model.layer1.linear.kernel[...])
    bound = np.sqrt(6 / (2 * 602 + 128))
    assert kernel.std() == pytest.approx(bound / np.sqrt(3), rel=0.02)
    assert np.abs(kernel).max() <= bound
    np.testing.assert_array_equal(model.out.bias[...], 0)


def test_dtypes():
    arrays = sample()
    full = checks.computing_dtypes(
        lambda: GraphSAGE(6, 5, 3, rngs=nnx.Rngs(0)), *arrays
    )
    half = checks.computing_dtypes(
        lambda: GraphSAGE(6, 5, 3, dtype=jnp.bfloat16, rngs=nnx.Rngs(0)), *arrays
    )
    assert full == checks.FLOAT32
    assert half == checks.BFLOAT16


def test_overfits_a_batch():
    make = lambda: GraphSAGE(6, 32, 8, dropout=0.01, rngs=nnx.Rngs(0))  # noqa: E731
    assert checks.final_loss(make, sample(), np.arange(8), rate=3e-2, steps=100) < 0.1
