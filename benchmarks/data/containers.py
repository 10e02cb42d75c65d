"""What the sets are made of: plain arrays with fixed dtypes."""

from typing import NamedTuple

import numpy as np


class Split(NamedTuple):
    """Examples: images uint8 [N, H, W, C] and labels int32 [N]."""

    images: np.ndarray
    labels: np.ndarray


class Images(NamedTuple):
    """Images to classify; mean and std are those of pixel / 255 over train."""

    train: Split
    test: Split
    classes: int
    mean: tuple[float, ...]
    std: tuple[float, ...]


class Arrays(NamedTuple):
    """Examples of any kind: arrays by name, whose rows are the examples."""

    train: dict[str, np.ndarray]
    test: dict[str, np.ndarray]


class Graph(NamedTuple):
    """An undirected graph whose nodes are to be classified.

    The neighbours of node i are neighbours[offsets[i] : offsets[i + 1]], sorted, each
    once, never i itself. Features are float32 [N, F], labels int32 [N], offsets int64
    [N + 1], neighbours int32 [E]; train, validation and test are int32 node numbers.
    """

    features: np.ndarray
    labels: np.ndarray
    offsets: np.ndarray
    neighbours: np.ndarray
    train: np.ndarray
    validation: np.ndarray
    test: np.ndarray
    classes: int


class Text(NamedTuple):
    """Characters as numbers in a vocabulary: uint8 where they fit, else int32."""

    train: np.ndarray
    test: np.ndarray
    vocabulary: tuple[str, ...]


def make_images(train: Split, test: Split, classes: int) -> Images:
    """Images with the mean and standard deviation of their training pixels."""
    channels = train.images.shape[-1]
    levels = np.arange(256) / 255
    mean, std = [], []
    for channel in range(channels):
        # Counting the 256 values is exact and needs no copy in floating point.
        counts = np.bincount(train.images[..., channel].reshape(-1), minlength=256)
        share = counts / counts.sum()
        middle = float(share @ levels)
        mean.append(middle)
        std.append(float(np.sqrt(share @ (levels - middle) ** 2)))
    return Images(train, test, classes, tuple(mean), tuple(std))


def to_arrays(data: Images | Graph | Text) -> dict[str, np.ndarray]:
    """The container as named arrays, to be written."""
    arrays = {}
    for name, value in data._asdict().items():
        if isinstance(value, Split):
            arrays[f"{name}_images"], arrays[f"{name}_labels"] = value
        else:
            arrays[name] = np.asarray(value)
    return arrays


def from_arrays(arrays: dict[str, np.ndarray]) -> Images | Graph | Text:
    """The container that to_arrays took apart."""
    if "vocabulary" in arrays:
        letters = tuple(arrays["vocabulary"].tolist())
        return Text(arrays["train"], arrays["test"], letters)
    if "offsets" in arrays:
        return Graph(**{**arrays, "classes": int(arrays["classes"])})
    return Images(
        Split(arrays["train_images"], arrays["train_labels"]),
        Split(arrays["test_images"], arrays["test_labels"]),
        int(arrays["classes"]),
        tuple(arrays["mean"].tolist()),
        tuple(arrays["std"].tolist()),
    )
