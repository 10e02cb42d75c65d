"""Workloads: data, model, loss, metric, target, batch size and epochs, by name.

The paper's come first; it does not state batch size and epochs, which are ours. The
CPU-size ones are cut so that a run takes a minute or two on one core, and say how;
their targets are about 95 % of the best accuracy of SGD as the paper sets it.
"""

import difflib
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from jax.typing import DTypeLike

from benchmarks import data, models

Batch = dict[str, jax.Array]
Set = data.Images | data.Graph | data.Text


class Figures(NamedTuple):
    """For each example of a batch, its loss and the share that was right."""

    loss: jax.Array
    accuracy: jax.Array


class Workload(NamedTuple):
    """What to train, and how far.

    Attributes:
      name: its name.
      description: one line, with what was cut.
      load: reads the set, from ``data_dir`` and with or without ``download``.
      stand_in: a small generated set of the same shapes, for speed and for tests.
      model: makes the network for a set.
      pipeline: makes the batches: of the set, with the options ``batch_size``, ``seed``
        and ``validation`` (how much of the training data to set aside).
      figures: loss and metric of a batch; called with model, batch and constants.
      target: accuracy on the test set to reach.
      batch_size: examples in a batch.
      epochs: epochs in a run.
      validation: how much of the training data a search sets aside.
    """

    name: str
    description: str
    load: Callable[..., Set]
    stand_in: Callable[[], Set]
    model: Callable[..., nnx.Module]
    pipeline: Callable[..., data.Pipeline]
    figures: Callable[[nnx.Module, Batch, Batch], Figures]
    target: float
    batch_size: int
    epochs: int
    validation: int


def workload(name: str) -> Workload:
    """The workload of a name; an unknown one is answered with the close ones."""
    if name in WORKLOADS:
        return WORKLOADS[name]
    close = difflib.get_close_matches(name, WORKLOADS)
    advice = f"did you mean {' or '.join(close)}? " if close else ""
    raise ValueError(
        f"unknown workload {name!r}; {advice}there are {', '.join(WORKLOADS)}"
    )


def _classify(logits: jax.Array, labels: jax.Array) -> Figures:
    return Figures(
        optax.softmax_cross_entropy_with_integer_labels(logits, labels),
        (logits.argmax(-1) == labels).astype(jnp.float32),
    )


def _image_figures(model: Any, batch: Batch, constants: Batch) -> Figures:
    pixels = batch["image"].astype(jnp.float32) / 255
    images = (pixels - constants["mean"]) / constants["std"]
    return _classify(model(images), batch["label"])


def _graph_figures(model: Any, batch: Batch, constants: Batch) -> Figures:
    logits = model(constants["features"], batch["node"], batch["hop1"], batch["hop2"])
    return _classify(logits, batch["label"])


def _text_figures(model: Any, batch: Batch, constants: Batch) -> Figures:
    del constants
    tokens = batch["tokens"]
    figures = _classify(model(tokens[:, :-1]), tokens[:, 1:])
    return Figures(figures.loss.mean(-1), figures.accuracy.mean(-1))


def _images(
    name: str,
    description: str,
    set_name: str,
    shape: tuple[int, int, int],
    classes: int,
    network: Callable[..., nnx.Module],
    *,
    target: float,
    epochs: int,
    validation: int,
    batch_size: int = 128,
    augment: bool = True,
    cut: dict[str, int] | None = None,
) -> Workload:
    """Images to classify; ``network`` is made for image shape and classes."""

    def load(data_dir: Any = None, download: bool = True) -> data.Images:
        images = data.load(set_name, data_dir, download=download)
        return data.cut(images, **cut) if cut else images

    def stand_in() -> data.Images:
        size = 2 * batch_size
        return data.synthetic(train=size, test=size, shape=shape, classes=classes)

    def model(
        images: data.Images, *, dtype: DTypeLike = jnp.float32, rngs: nnx.Rngs
    ) -> nnx.Module:
        size = images.train.images.shape[1:]
        return network(size, images.classes, dtype=dtype, rngs=rngs)

    def pipeline(images: data.Images, **options: Any) -> data.Pipeline:
        batches = data.ImagePipeline(images, augment=augment, **options)
        batches.constants = {
            "mean": np.asarray(images.mean, np.float32),
            "std": np.asarray(images.std, np.float32),
        }
        return batches

    return Workload(
        name,
        description,
        load,
        stand_in,
        model,
        pipeline,
        _image_figures,
        target,
        batch_size,
        epochs,
        validation,
    )


def _graph(
    name: str,
    description: str,
    set_name: str,
    features: int,
    classes: int,
    *,
    hidden: int,
    fanout: tuple[int, int],
    target: float,
    batch_size: int,
    epochs: int,
    dropout: float = 0.0,
) -> Workload:
    """Nodes to classify, with a two-layer GraphSAGE."""

    def load(data_dir: Any = None, download: bool = True) -> data.Graph:
        return data.load(set_name, data_dir, download=download)

    def stand_in() -> data.Graph:
        return _ring(4 * batch_size, features, classes)

    def model(
        graph: data.Graph, *, dtype: DTypeLike = jnp.float32, rngs: nnx.Rngs
    ) -> nnx.Module:
        return models.GraphSAGE(
            graph.features.shape[1],
            hidden,
            graph.classes,
            dropout=dropout,
            dtype=dtype,
            rngs=rngs,
        )

    def pipeline(
        graph: data.Graph, *, validation: int = 0, **options: Any
    ) -> data.Pipeline:
        del validation  # graphs come with validation nodes, which never train
        return data.GraphPipeline(graph, fanout=fanout, **options)

    return Workload(
        name,
        description,
        load,
        stand_in,
        model,
        pipeline,
        _graph_figures,
        target,
        batch_size,
        epochs,
        validation=0,
    )


def _ring(nodes: int, features: int, classes: int) -> data.Graph:
    """A ring in which a node's features tell its class; half of it trains."""
    labels = (np.arange(nodes) * classes // nodes).astype(np.int32)
    around = np.arange(nodes)[:, None] + np.asarray([-1, 1])
    numbers = np.arange(nodes, dtype=np.int32)
    return data.Graph(
        features=np.eye(classes, features, dtype=np.float32)[labels],
        labels=labels,
        offsets=np.arange(nodes + 1, dtype=np.int64) * 2,
        neighbours=np.sort(around % nodes).astype(np.int32).reshape(-1),
        train=numbers[::2],
        validation=numbers[1::4],
        test=numbers[3::4],
        classes=classes,
    )


def _text(
    name: str,
    description: str,
    *,
    length: int,
    width: int,
    characters: int,
    target: float,
    batch_size: int,
    epochs: int,
    validation: int,
) -> Workload:
    """The next character of Shakespeare, with a two-layer causal transformer."""

    def load(data_dir: Any = None, download: bool = True) -> data.Text:
        text = data.load("shakespeare", data_dir, download=download)
        return text._replace(train=text.train[:characters])

    def stand_in() -> data.Text:
        size = (2 * batch_size + 1) * length + 1
        tokens = (np.arange(size) % 65).astype(np.uint8)
        return data.Text(tokens, tokens, tuple(map(chr, range(32, 97))))

    def model(
        text: data.Text, *, dtype: DTypeLike = jnp.float32, rngs: nnx.Rngs
    ) -> nnx.Module:
        return models.CausalTransformer(
            len(text.vocabulary), length, width=width, dtype=dtype, rngs=rngs
        )

    def pipeline(text: data.Text, **options: Any) -> data.Pipeline:
        return data.TextPipeline(text, length=length, **options)

    return Workload(
        name,
        description,
        load,
        stand_in,
        model,
        pipeline,
        _text_figures,
        target,
        batch_size,
        epochs,
        validation,
    )


def _resnet(depth: int, width: int = 16) -> Callable[..., nnx.Module]:
    def make(size, classes, **options):
        return models.ResNet(depth, classes, channels=size[-1], width=width, **options)

    return make


def _wide_resnet(size, classes, **options):
    return models.WideResNet(28, 4, classes, channels=size[-1], **options)


def _deit(**config: int) -> Callable[..., nnx.Module]:
    def make(size, classes, **options):
        return models.DeiT(
            image=size[0], channels=size[-1], classes=classes, **config, **options
        )

    return make


def _mlp(size, classes, **options):
    return models.MLP(int(np.prod(size)), (64, 64), classes, **options)


_CIFAR, _TINY = (32, 32, 3), (64, 64, 3)
_SETS = {
    "cifar10": ("CIFAR-10", _CIFAR, 10),
    "cifar100": ("CIFAR-100", _CIFAR, 100),
    "tiny_imagenet": ("Tiny-ImageNet", _TINY, 200),
}
_NETWORKS = {
    "resnet20": ("ResNet-20", _resnet(20)),
    "wrn28_4": ("WRN-28-4", _wide_resnet),
    "deit12": ("DeiT-12", _deit(patch=8, depth=12, width=192, heads=3)),
}


def _paper(set_name: str, network: str, target: float) -> Workload:
    title, shape, classes = _SETS[set_name]
    label, make = _NETWORKS[network]
    return _images(
        f"{set_name}_{network}",
        f"The paper's {label} on {title}",
        set_name,
        shape,
        classes,
        make,
        target=target,
        epochs=200,
        validation=5_000,
    )


# The paper's targets are its common cutoffs, 5 % below the best accuracy of all.
_ALL = (
    _paper("cifar10", "resnet20", 0.857),
    _paper("cifar100", "resnet20", 0.612),
    _paper("tiny_imagenet", "resnet20", 0.443),
    _paper("cifar10", "wrn28_4", 0.889),
    _paper("cifar100", "wrn28_4", 0.702),
    _paper("tiny_imagenet", "wrn28_4", 0.555),
    _paper("tiny_imagenet", "deit12", 0.304),
    _graph(
        "reddit_graphsage",
        "The paper's two-layer GraphSAGE on Reddit",
        "reddit",
        602,
        41,
        hidden=128,
        fanout=(10, 25),
        target=0.9,
        batch_size=512,
        epochs=60,
    ),
    _images(
        "digits_mlp",
        "scikit-learn's 8×8 digits, all of them; two hidden layers of 64",
        "digits",
        (8, 8, 1),
        10,
        _mlp,
        target=0.92,
        epochs=40,
        validation=300,
        batch_size=64,
        augment=False,
    ),
    _images(
        "fashion_mnist_resnet8",
        "Fashion-MNIST cut to 10,240 images of 14×14; ResNet-8 of width 8",
        "fashion_mnist",
        (14, 14, 1),
        10,
        _resnet(8, 8),
        target=0.8,
        epochs=15,
        validation=2_048,
        augment=False,
        cut={"train": 10_240, "test": 2_000, "resolution": 14},
    ),
    _images(
        "cifar10_small",
        "CIFAR-10 cut to 10,240 images of 16×16; ResNet-8 of width 8",
        "cifar10",
        (16, 16, 3),
        10,
        _resnet(8, 8),
        target=0.39,
        epochs=15,
        validation=2_048,
        cut={"train": 10_240, "test": 2_000, "resolution": 16},
    ),
    _images(
        "cifar100_small",
        "CIFAR-100 cut to 10,000 images of 16×16; ResNet-8 of width 8",
        "cifar100",
        (16, 16, 3),
        100,
        _resnet(8, 8),
        target=0.065,
        epochs=15,
        validation=2_000,
        cut={"train": 10_000, "test": 2_000, "resolution": 16},
    ),
    _images(
        "tiny_imagenet_deit_small",
        "Tiny-ImageNet cut to 20 classes, 5,000 images of 32×32; DeiT of 4 blocks "
        "and width 64",
        "tiny_imagenet",
        (32, 32, 3),
        20,
        _deit(patch=8, depth=4, width=64, heads=2),
        target=0.25,
        epochs=15,
        validation=1_000,
        cut={"train": 5_000, "test": 1_000, "resolution": 32, "classes": 20},
    ),
    _graph(
        "cora_graphsage",
        "Cora's public split (140 nodes to train on); GraphSAGE of width 64",
        "cora",
        1_433,
        7,
        hidden=64,
        fanout=(10, 10),
        target=0.72,
        batch_size=14,
        epochs=30,
        dropout=0.5,
    ),
    _graph(
        "facebook_graphsage",
        "Facebook pages, all of them; GraphSAGE of width 32 on 5×5 neighbours",
        "facebook",
        4_714,
        4,
        hidden=32,
        fanout=(5, 5),
        target=0.89,
        batch_size=128,
        epochs=10,
    ),
    _text(
        "shakespeare_transformer",
        "Tiny Shakespeare cut to 150,000 characters; transformer of width 64, "
        "context 64",
        length=64,
        width=64,
        characters=150_000,
        target=0.26,
        batch_size=32,
        epochs=15,
        validation=15_000,
    ),
)

WORKLOADS = {entry.name: entry for entry in _ALL}
