"""Sets of images: readers of the official formats, two made here, and cuts of them."""

import gzip
import importlib.util
import math
import zlib
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from benchmarks.data import hashing
from benchmarks.data.containers import Images, Split, make_images
from benchmarks.data.pickles import read_pickle

_TINY_SIDE = 64
# Of MNIST and its like.
_IDX_IMAGES, _IDX_SIDE = 60_000, 28
# What a draw is for, so that no two are the same.
_DIGITS, _TEMPLATE, _TRAIN, _TEST = range(4)


def read_cifar10(files: Mapping[str, Path]) -> Images:
    """CIFAR-10 from its six batches."""
    batches = [_cifar(files[f"data_batch_{n}"], "labels", 10) for n in range(1, 6)]
    train = Split(*(np.concatenate(parts) for parts in zip(*batches, strict=True)))
    return make_images(train, _cifar(files["test_batch"], "labels", 10), 10)


def read_cifar100(files: Mapping[str, Path]) -> Images:
    """CIFAR-100 with its hundred fine labels."""
    train, test = (_cifar(files[n], "fine_labels", 100) for n in ("train", "test"))
    return make_images(train, test, 100)


def _cifar(path: Path, key: str, classes: int) -> Split:
    contents = read_pickle(path)
    try:
        pixels, labels = contents["data"], np.asarray(contents[key])
        if pixels.dtype != np.uint8 or pixels.shape != (len(labels), 3 * 32 * 32):
            raise ValueError(f"its data are {pixels.dtype} {pixels.shape}")
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ValueError(f"{path} is not a batch of CIFAR: {error!r}") from error
    images = pixels.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
    return Split(np.ascontiguousarray(images), _labels(labels, classes, path))


def read_idx(files: Mapping[str, Path]) -> Images:
    """MNIST, or a set of the same format, from its four files."""
    splits = []
    for part in ("train", "t10k"):
        pixels = _idx(files[f"{part}-images-idx3-ubyte"], 3)
        path = files[f"{part}-labels-idx1-ubyte"]
        labels = _labels(_idx(path, 1), 10, path)
        if len(pixels) != len(labels):
            raise ValueError(
                f"{path} has {len(labels)} labels for {len(pixels)} images"
            )
        splits.append(Split(pixels[..., None], labels))
    return make_images(*splits, 10)


def _idx(path: Path, rank: int) -> np.ndarray:
    """An array of unsigned bytes: a magic number, the shape, and the entries."""
    opener = gzip.open if path.suffix == ".gz" else open
    try:
        with opener(path, "rb") as file:
            header = np.frombuffer(file.read(4 + 4 * rank), ">i4")
            if len(header) != 1 + rank or header[0] != 0x0800 + rank:
                raise ValueError(f"its header is not that of {rank} dimensions")
            shape = tuple(int(n) for n in header[1:])
            count, *sides = shape
            if not 1 <= count <= _IDX_IMAGES or set(sides) - {_IDX_SIDE}:
                raise ValueError(
                    f"its shape is {shape}, not up to {_IDX_IMAGES:,} labels or images "
                    f"of {_IDX_SIDE} by {_IDX_SIDE}"
                )
            size = math.prod(shape)
            # One byte more than there should be shows a file that is too long.
            contents = file.read(size + 1)
    except (EOFError, OSError, ValueError, zlib.error) as error:
        raise ValueError(f"{path} is not a whole idx file: {error}") from error
    if len(contents) != size:
        raise ValueError(f"{path} is not a whole idx file: its shape is {shape}")
    return np.frombuffer(contents, np.uint8).reshape(shape)


def read_tiny_imagenet(files: Mapping[str, Path]) -> Images:
    """Tiny ImageNet; its validation part is our test, as its test has no labels.

    The classes are numbered in the order of their names.
    """
    root = files["wnids.txt"].parent
    names = sorted(files["wnids.txt"].read_text().split())
    number = {name: n for n, name in enumerate(names)}
    train = []
    for name, n in number.items():
        paths = sorted((root / "train" / name / "images").glob("*.JPEG"))
        if not paths:
            raise ValueError(f"{root / 'train' / name} has no images")
        train += [(path, n) for path in paths]
    annotations = files["val/val_annotations.txt"]
    test = []
    for row in annotations.read_text().splitlines():
        file_name, name = [*row.split("\t"), ""][:2]
        if name not in number:
            raise ValueError(f"{annotations} has the class {name!r}, not in wnids.txt")
        test.append((root / "val" / "images" / file_name, number[name]))
    if not test:
        raise ValueError(f"{annotations} is empty")
    return make_images(_decode(train), _decode(test), len(names))


def tiny_imagenet_sources(files: Mapping[str, Path]) -> list[Path]:
    """What tells of a change: the lists, and the folders that hold the images."""
    root = files["wnids.txt"].parent
    return [*files.values(), *sorted(root.glob("train/*/images")), root / "val/images"]


def _decode(examples: list[tuple[Path, int]]) -> Split:
    from PIL import Image

    side = _TINY_SIDE
    images = np.empty((len(examples), side, side, 3), np.uint8)

    def decode(n: int) -> None:
        path = examples[n][0]
        try:
            with Image.open(path, formats=("JPEG",)) as image:
                if image.size != (side, side):
                    raise ValueError(f"its size is {image.size}")
                # Some are grey.
                images[n] = np.asarray(image.convert("RGB"))
        except (
            Image.DecompressionBombError,
            Image.DecompressionBombWarning,
            OSError,
            ValueError,
            SyntaxError,
        ) as error:
            raise ValueError(
                f"{path} is not a JPEG of {side} by {side}: {error}"
            ) from error

    with ThreadPoolExecutor() as pool:
        for _ in pool.map(decode, range(len(examples))):
            pass
    return Split(images, np.asarray([label for _, label in examples], np.int32))


def _labels(labels: np.ndarray, classes: int, path: Path) -> np.ndarray:
    if labels.ndim != 1 or labels.dtype.kind not in "iu" or not labels.size:
        raise ValueError(f"{path} has no list of labels")
    if labels.min() < 0 or labels.max() >= classes:
        raise ValueError(
            f"{path} has labels from {labels.min()} to {labels.max()}, "
            f"not from 0 to {classes - 1}"
        )
    return labels.astype(np.int32)


def _sklearn_digits() -> tuple[np.ndarray, np.ndarray]:
    """Levels of grey, and labels, from the file in scikit-learn's wheel.

    Its own loader imports most of SciPy first, which takes longer than an epoch.
    """
    found = importlib.util.find_spec("sklearn")
    for folder in found.submodule_search_locations or () if found else ():
        path = Path(folder, "datasets", "data", "digits.csv.gz")
        if path.exists():
            table = np.loadtxt(path, delimiter=",")
            return table[:, :-1], table[:, -1]
    from sklearn.datasets import load_digits

    return load_digits(return_X_y=True)


def digits() -> Images:
    """Scikit-learn's digits, 8 by 8: 1,497 to train and 300 to test, always the same.

    Their 17 levels of grey are spread over 0 to 255.
    """
    levels, labels = _sklearn_digits()
    order = hashing.order(len(labels), _DIGITS)
    images = np.rint(levels[order] * (255 / 16)).astype(np.uint8)
    images, labels = images.reshape(-1, 8, 8, 1), labels[order].astype(np.int32)
    train, test = (Split(images[s], labels[s]) for s in (np.s_[:-300], np.s_[-300:]))
    return make_images(train, test, 10)


def synthetic(
    *,
    train: int = 1024,
    test: int = 256,
    shape: tuple[int, int, int] = (32, 32, 3),
    classes: int = 10,
    seed: int = 0,
) -> Images:
    """Images that can be learnt: a 4 by 4 patchwork for each class, half noise.

    Args:
      train: how many examples to train on.
      test: how many to test on.
      shape: height, width and channels.
      classes: how many classes; they take turns.
      seed: another seed gives other patchworks and other noise.

    Returns:
      The same images for the same arguments, on any machine.
    """
    if min(train, test, classes, *shape) < 1 or len(shape) != 3:
        raise ValueError(
            "train, test, classes and the three numbers of shape must be at least 1, "
            f"not {train}, {test}, {classes} and {shape}"
        )
    height, width, channels = shape
    patches = _bytes((classes, 4, 4, channels), seed, _TEMPLATE)
    rows, columns = np.arange(height) * 4 // height, np.arange(width) * 4 // width
    templates = patches[:, rows[:, None], columns[None, :]]

    def split(size: int, purpose: int) -> Split:
        labels = (np.arange(size) % classes).astype(np.int32)
        noise = _bytes((size, *shape), seed, purpose)
        return Split(templates[labels] // 2 + noise // 2, labels)

    return make_images(split(train, _TRAIN), split(test, _TEST), classes)


def _bytes(shape: tuple[int, ...], *words: int) -> np.ndarray:
    """Random bytes."""
    size = math.prod(shape)
    drawn = hashing.hashed(*words, np.arange(-(-size // 8))).astype("<u8")
    return drawn.view(np.uint8)[:size].reshape(shape)


def cut(
    images: Images,
    *,
    train: int | None = None,
    test: int | None = None,
    resolution: int | None = None,
    classes: int | None = None,
) -> Images:
    """A smaller set: always the same examples, as many of each class.

    Args:
      images: the set to cut.
      train: how many examples to train on, the first of each class; the remainder of
        a division by the classes goes to the lowest. All of them if None.
      test: how many to test on, likewise.
      resolution: the side of the images, a whole fraction of theirs; a pixel becomes
        the rounded mean of the area it covers.
      classes: keeps only the labels below this.

    Returns:
      The set, in memory, with its own mean and std.
    """
    kept = images.classes if classes is None else classes
    if not 1 <= kept <= images.classes:
        raise ValueError(f"classes must be from 1 to {images.classes}, not {classes}")
    splits = []
    for name, split, size in (
        ("train", images.train, train),
        ("test", images.test, test),
    ):
        rows = _balanced(name, split.labels, kept, size)
        pixels = _shrink(split.images[rows], resolution)
        splits.append(Split(pixels, split.labels[rows]))
    return make_images(*splits, kept)


def _balanced(
    name: str, labels: np.ndarray, classes: int, size: int | None
) -> np.ndarray:
    if size is None:
        return np.flatnonzero(labels < classes)
    if size < 1:
        raise ValueError(f"{name} must be at least 1, not {size}")
    rows = []
    for label in range(classes):
        wanted = size // classes + (label < size % classes)
        found = np.flatnonzero(labels == label)
        if len(found) < wanted:
            raise ValueError(
                f"{name}={size} needs {wanted} examples of class {label}, "
                f"and there are {len(found)}"
            )
        rows.append(found[:wanted])
    return np.sort(np.concatenate(rows))


def _shrink(images: np.ndarray, resolution: int | None) -> np.ndarray:
    count, height, width, channels = images.shape
    if resolution is None or resolution == height == width:
        return images
    if resolution < 1 or height != width or height % resolution:
        raise ValueError(
            f"resolution must divide the side of square images, not {resolution} "
            f"of {height} by {width}"
        )
    factor = height // resolution
    blocks = images.reshape(count, resolution, factor, resolution, factor, channels)
    area = factor * factor
    total = blocks.sum((2, 4), dtype=np.uint32)
    return ((total + area // 2) // area).astype(np.uint8)
