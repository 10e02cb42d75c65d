"""The workloads: the paper's at their true sizes, and those cut for a CPU."""

import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from benchmarks import data, workloads
from benchmarks.models import parameter_count
from benchmarks.train.config import Config
from benchmarks.train.run import Run
from benchmarks.workloads import WORKLOADS, workload

pytestmark = pytest.mark.usefixtures("default_jax")

# Parameters in millions, as published for the networks or counted by hand.
PAPER = {
    "cifar10_resnet20": 0.27,
    "cifar100_resnet20": 0.28,
    "tiny_imagenet_resnet20": 0.28,
    "cifar10_wrn28_4": 5.85,
    "cifar100_wrn28_4": 5.87,
    "tiny_imagenet_wrn28_4": 5.90,
    "tiny_imagenet_deit12": 5.43,
    "reddit_graphsage": 0.19,
}
SMALL = set(WORKLOADS) - set(PAPER)


def abstract_model(work):
    images = work.stand_in()
    return nnx.eval_shape(lambda: work.model(images, rngs=nnx.Rngs(0)))


def at_true_size(name):
    # Of the sizes, only the batch is smaller.
    options = {"synthetic": True, "batch_size": 2, "devices": 1}
    return Run(Config(name, "sgd", pathlib.Path("unused"), **options))


@pytest.mark.parametrize("name", PAPER)
def test_the_papers_workloads_have_their_sizes(name):
    count = parameter_count(abstract_model(workload(name)))
    assert round(count / 1e6, 2) == PAPER[name]


# One of each network; the others have other numbers of classes.
@pytest.mark.parametrize(
    "name",
    [
        "cifar10_resnet20",
        "cifar10_wrn28_4",
        "tiny_imagenet_deit12",
        "reddit_graphsage",
    ],
)
def test_a_step_of_the_papers_networks_at_true_size(name):
    run = at_true_size(name)
    before = run.init()
    weights = [np.asarray(p) for p in jax.tree.leaves(before.params)]
    state, loss = run.step(before, run.train_batch(0))
    assert np.isfinite(loss)
    assert int(state.step) == 1
    moved = [
        np.any(np.asarray(p) != w)
        for p, w in zip(jax.tree.leaves(state.params), weights, strict=True)
    ]
    assert np.mean(moved) > 0.9


def test_there_are_the_papers_pairs_and_the_small_ones():
    assert {
        "digits_mlp",
        "fashion_mnist_resnet8",
        "cifar10_small",
        "cifar10_resnet20_16",
        "cifar100_small",
        "tiny_imagenet_deit_small",
        "cora_graphsage",
        "facebook_graphsage",
        "shakespeare_transformer",
    } == SMALL
    for name in PAPER:
        assert WORKLOADS[name].description.startswith("The paper's ")
    shapes = {
        "cifar10": (32, 32, 3),
        "cifar100": (32, 32, 3),
        "tiny_imagenet": (64, 64, 3),
    }
    for name in set(PAPER) - {"reddit_graphsage"}:
        images = WORKLOADS[name].stand_in()
        [shape] = [
            s for set_name, s in shapes.items() if name.startswith(set_name + "_")
        ]
        assert images.train.images.shape[1:] == shape


@pytest.mark.parametrize("name", sorted(SMALL))
def test_small_workloads_fit_their_stand_ins(name):
    work = workload(name)
    stand_in = work.stand_in()
    pipeline = work.pipeline(stand_in, batch_size=4, seed=0)
    batch = {k: jnp.asarray(v) for k, v in pipeline.train_batch(0, 0).items()}
    constants = {k: jnp.asarray(v) for k, v in pipeline.constants.items()}

    def figures():
        model = work.model(stand_in, rngs=nnx.Rngs(0))
        return work.figures(model, batch, constants)

    found = jax.eval_shape(figures)
    assert found.loss.shape == found.accuracy.shape == (4,)
    assert parameter_count(abstract_model(work)) < 500_000
    assert 0 < work.target < 1


def test_figures_of_images_are_of_normalised_pixels():
    work = workload("digits_mlp")
    images = work.load()
    pipeline = work.pipeline(images, batch_size=64, seed=0)
    seen = []

    def model(x):
        seen.append(np.asarray(x))
        return jnp.zeros((len(x), 10)).at[:, 3].set(1.0)

    totals = []
    for batch in pipeline.evaluation("train"):
        figures = work.figures(model, batch, pipeline.constants)
        totals.append(np.sum(batch["weight"] * figures.accuracy))
        np.testing.assert_allclose(
            figures.loss,
            np.where(batch["label"] == 3, 0, 1) - 1 + np.log(np.e + 9),
            rtol=1e-5,
        )
    assert sum(totals) == np.sum(images.train.labels == 3)
    pixels = np.concatenate(seen)[: len(images.train.labels)]
    assert abs(pixels.mean()) < 1e-4
    assert abs(pixels.std() - 1) < 1e-3


def test_text_figures_score_the_next_character():
    work = workload("shakespeare_transformer")
    tokens = np.asarray([[1, 2, 3], [4, 5, 6]])

    def model(x):
        np.testing.assert_array_equal(x, [[1, 2], [4, 5]])
        return 100.0 * jax.nn.one_hot(jnp.asarray([[2, 0], [5, 6]]), 8)

    figures = work.figures(model, {"tokens": tokens}, {})
    np.testing.assert_allclose(figures.accuracy, [0.5, 1.0])
    np.testing.assert_allclose(figures.loss, [50.0, 0.0], atol=1e-4)


def test_graphs_keep_their_own_validation_nodes():
    work = workload("cora_graphsage")
    graph = work.stand_in()
    pipeline = work.pipeline(graph, batch_size=7, seed=0, validation=0)
    nodes = np.concatenate([b["node"] for b in pipeline.evaluation("validation")])
    assert set(nodes) <= {*graph.validation.tolist()}
    assert not set(graph.validation.tolist()) & set(graph.train.tolist())


def test_the_stand_in_graph_is_one():
    graph = workload("cora_graphsage").stand_in()
    assert isinstance(graph, data.Graph)
    size = len(graph.labels)
    for node in (0, 1, size - 1):
        around = graph.neighbours[graph.offsets[node] : graph.offsets[node + 1]]
        assert set(around.tolist()) == {(node - 1) % size, (node + 1) % size}
        assert list(around) == sorted(around)


def test_unknown_workload():
    with pytest.raises(ValueError, match="unknown workload 'digit_mlp'; did you mean"):
        workload("digit_mlp")
    with pytest.raises(ValueError, match="'x'; there are cifar10_resnet20, "):
        workload("x")


def test_a_workload_of_your_own(monkeypatch):
    monkeypatch.setattr(workloads, "WORKLOADS", dict(workloads.WORKLOADS))
    x = np.arange(12, dtype=np.float32).reshape(6, 2)
    arrays = data.Arrays({"x": x, "y": np.arange(6)}, {"x": x[:2], "y": np.arange(2)})
    mine = workloads.from_arrays(
        "mine",
        "Six examples",
        lambda: arrays,
        lambda rngs: nnx.Linear(2, 3, rngs=rngs),
        lambda model, batch: model(batch["x"]),
        target=0.5,
        epochs=1,
        batch_size=2,
        validation=2,
    )
    workloads.register(mine)
    work = workloads.workload("mine")
    pipeline = work.pipeline(work.load(), batch_size=2, seed=0, validation=2)
    assert (pipeline.train_size, pipeline.steps_per_epoch) == (4, 2)
    seen = [pipeline.train_batch(0, step) for step in range(2)]
    seen += list(pipeline.evaluation("validation"))
    rows = np.concatenate([batch["y"] for batch in seen])
    assert sorted(rows) == list(range(6))
    for batch in seen:
        np.testing.assert_array_equal(batch["x"], x[batch["y"]])
    means = workloads.Figures(jnp.zeros(()), jnp.zeros(2))
    wrong = workloads.from_arrays(
        *("mine", "", work.load, work.model, lambda model, batch: means),
        target=1,
        epochs=1,
    )
    with pytest.raises(ValueError, match=r"figures of mine must give .* shape \(2,\);"):
        wrong.figures(None, seen[0], {})
    with pytest.raises(ValueError, match="name must not be 'digits_mlp', which is"):
        workloads.register(mine._replace(name="digits_mlp"))
    with pytest.raises(ValueError, match="dtype must be float32 for mine"):
        work.model(arrays, dtype=jnp.bfloat16, rngs=nnx.Rngs(0))
    with pytest.raises(ValueError, match=r"arrays of test must have as many rows.*'y'"):
        work.pipeline(
            arrays._replace(test={"x": x, "y": np.arange(5)}), batch_size=2, seed=0
        )
