"""What workloads are made of: data, network, loss and metric, for each kind of data."""

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
Set = data.Arrays | data.Images | data.Graph | data.Text


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


def from_arrays(
    name: str,
    description: str,
    load: Callable[[], data.Arrays],
    network: Callable[..., nnx.Module],
    figures: Callable[[nnx.Module, Batch], Figures],
    *,
    target: float,
    epochs: int,
    batch_size: int = 64,
    validation: int = 0,
) -> Workload:
    """A workload of any data that fits into memory, with a network of your own.

    Args:
      name: its name.
      description: one line.
      load: reads the set.
      network: makes the network, from the keyword ``rngs``.
      figures: loss and accuracy of each example of a batch.
      target: accuracy to reach.
      epochs: epochs in a run.
      batch_size: examples in a batch.
      validation: how many training examples a search sets aside.

    Returns:
      The workload, for :func:`benchmarks.workloads.register`.
    """

    def model(
        arrays: data.Arrays, *, dtype: DTypeLike = jnp.float32, rngs: nnx.Rngs
    ) -> nnx.Module:
        del arrays
        if dtype != jnp.float32:
            raise ValueError(f"dtype must be float32 for {name}, which sets its own")
        return network(rngs=rngs)

    def checked(model: nnx.Module, batch: Batch, constants: Batch) -> Figures:
        del constants
        found = figures(model, batch)
        rows = (len(next(iter(batch.values()))),)
        if found.loss.shape != rows or found.accuracy.shape != rows:
            raise ValueError(
                f"figures of {name} must give a loss and an accuracy for each example, "
                f"of shape {rows}; got {found.loss.shape} and {found.accuracy.shape}"
            )
        return found

    def read(data_dir: Any = None, download: bool = True) -> data.Arrays:
        del data_dir, download
        return load()

    return Workload(
        name,
        description,
        load=read,
        stand_in=load,
        model=model,
        pipeline=data.ArrayPipeline,
        figures=checked,
        target=target,
        batch_size=batch_size,
        epochs=epochs,
        validation=validation,
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


def images(
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


def graph(
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


def text(
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
