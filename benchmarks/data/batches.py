"""Batches: a pure function of the seed, the epoch and the numbers of the examples.

So a run that is continued, or spread over several processes, sees the same batches.
"""

import functools
from collections.abc import Iterator
from typing import Protocol

import numpy as np

from benchmarks.data import hashing
from benchmarks.data.containers import Arrays, Graph, Images, Text

Batch = dict[str, np.ndarray]

_PADDING = 4
# What a draw is for, so that no two are the same.
_ORDER, _TOP, _LEFT, _FLIP, _OFFSET, _HOP, _ASIDE, _FIXED = range(8)


class Pipeline(Protocol):
    """Makes the batches of a set.

    Attributes:
      batch_size: examples in a batch, of all processes together.
      train_size: examples to train on.
      steps_per_epoch: batches in an epoch, the last one filled up from its start.
      constants: arrays that every batch refers to.
    """

    batch_size: int
    train_size: int
    steps_per_epoch: int
    constants: Batch

    def train_batch(self, epoch: int, step: int, rows: slice = slice(None)) -> Batch:
        """The rows of a batch that this process makes."""
        ...

    def evaluation(self, part: str, rows: slice = slice(None)) -> Iterator[Batch]:
        """A part's examples once, in full batches; "weight" is 0 for padding.

        Args:
          part: "train", "validation" or "test".
          rows: the rows of each batch that this process makes.

        Yields:
          Batches as in training, and "weight" float32 [B].
        """
        ...


class _Examples:
    """What the pipelines share: which examples come when."""

    def __init__(
        self,
        train: np.ndarray,
        parts: dict[str, np.ndarray],
        batch_size: int,
        seed: int,
    ):
        if batch_size < 1:
            raise ValueError(f"batch_size must be at least 1, not {batch_size}")
        if not len(train):
            raise ValueError("the set has no examples to train on")
        self.batch_size = batch_size
        self.train_size = len(train)
        self.steps_per_epoch = -(-len(train) // batch_size)
        self.constants: Batch = {}
        self._train = train
        self._parts = parts
        self._seed = seed
        # Two epochs, as the next one is prefetched while this one ends.
        self._order = functools.lru_cache(maxsize=2)(self._new_order)

    def _new_order(self, epoch: int) -> np.ndarray:
        return self._train[hashing.order(len(self._train), self._seed, _ORDER, epoch)]

    def _make(self, part: str, numbers: np.ndarray, epoch: int | None) -> Batch:
        """The examples of these numbers; without an epoch, as they are."""
        raise NotImplementedError

    def train_batch(self, epoch: int, step: int, rows: slice = slice(None)) -> Batch:
        """The rows of a batch that this process makes."""
        if epoch < 0 or not 0 <= step < self.steps_per_epoch:
            raise ValueError(
                f"epoch must be at least 0 and step from 0 to "
                f"{self.steps_per_epoch - 1}, not {epoch} and {step}"
            )
        order = self._order(epoch)
        places = np.arange(step * self.batch_size, (step + 1) * self.batch_size)[rows]
        return self._make("train", order[places % len(order)], epoch)

    def evaluation(self, part: str, rows: slice = slice(None)) -> Iterator[Batch]:
        """A part's examples once, in full batches; "weight" is 0 for padding."""
        numbers = self._parts.get(part)
        if numbers is None:
            raise ValueError(f"part must be one of {', '.join(self._parts)}: {part!r}")
        if not len(numbers):
            raise ValueError(
                f"the part {part!r} has no examples; a workload sets some aside by "
                "its validation"
            )
        return self._evaluate(part, numbers, rows)

    def _evaluate(self, part: str, numbers: np.ndarray, rows: slice) -> Iterator[Batch]:
        for start in range(0, len(numbers), self.batch_size):
            places = np.arange(start, start + self.batch_size)[rows]
            real = places < len(numbers)
            batch = self._make(part, numbers[np.where(real, places, 0)], None)
            yield {**batch, "weight": real.astype(np.float32)}


def _set_aside(size: int, test: int, validation: int) -> dict[str, np.ndarray]:
    """The numbers of the examples of each part; the same for every seed."""
    if not 0 <= validation < size:
        raise ValueError(f"validation must be from 0 to {size - 1}, not {validation}")
    aside = hashing.order(size, _ASIDE)
    return {
        "train": np.sort(aside[validation:]),
        "validation": np.sort(aside[:validation]),
        "test": np.arange(test),
    }


class ArrayPipeline(_Examples):
    """Batches of arrays, by their names.

    Args:
      arrays: the set.
      batch_size: examples in a batch.
      seed: of the order.
      validation: how many training examples to set aside; the same for every seed.
    """

    def __init__(self, arrays: Arrays, batch_size: int, seed: int, validation: int = 0):
        sizes = []
        for name, part in arrays._asdict().items():
            rows = {key: len(array) for key, array in part.items()}
            if len(set(rows.values())) != 1:
                raise ValueError(f"arrays of {name} must have as many rows, got {rows}")
            sizes += set(rows.values())
        parts = _set_aside(*sizes, validation)
        super().__init__(parts["train"], parts, batch_size, seed)
        self._arrays = arrays

    def _make(self, part: str, numbers: np.ndarray, epoch: int | None) -> Batch:
        del epoch
        arrays = self._arrays.test if part == "test" else self._arrays.train
        return {name: array[numbers] for name, array in arrays.items()}


class ImagePipeline(_Examples):
    """Batches {"image": uint8 [B, H, W, C], "label": int32 [B]}.

    Args:
      images: the set.
      batch_size: examples in a batch.
      seed: of the order and the augmentation.
      augment: in training, pads by 4 black pixels, crops at random, and mirrors half
        of the images.
      validation: how many training examples to set aside; the same for every seed.
    """

    def __init__(
        self,
        images: Images,
        batch_size: int,
        seed: int,
        augment: bool = False,
        validation: int = 0,
    ):
        sizes = (len(split.labels) for split in (images.train, images.test))
        parts = _set_aside(*sizes, validation)
        super().__init__(parts["train"], parts, batch_size, seed)
        self._images = images
        self._augment = augment

    def _make(self, part: str, numbers: np.ndarray, epoch: int | None) -> Batch:
        split = self._images.test if part == "test" else self._images.train
        images = split.images[numbers]
        if epoch is not None and self._augment:
            images = self._crop_and_flip(images, numbers, epoch)
        return {"image": images, "label": split.labels[numbers]}

    def _crop_and_flip(
        self, images: np.ndarray, numbers: np.ndarray, epoch: int
    ) -> np.ndarray:
        tops, lefts, flips = (
            hashing.below(bound, self._seed, purpose, epoch, numbers)
            for bound, purpose in (
                (2 * _PADDING + 1, _TOP),
                (2 * _PADDING + 1, _LEFT),
                (2, _FLIP),
            )
        )
        border = (_PADDING, _PADDING)
        padded = np.pad(images, ((0, 0), border, border, (0, 0)))
        windows = np.lib.stride_tricks.sliding_window_view(
            padded, images.shape[1:], axis=(1, 2, 3)
        )
        cropped = windows[np.arange(len(images)), tops, lefts, 0]
        mirrored = np.flatnonzero(flips)
        cropped[mirrored] = cropped[mirrored, :, ::-1]
        return cropped


class TextPipeline(_Examples):
    """Batches {"tokens": int32 [B, length + 1]}.

    A window predicts its last ``length`` tokens from those before them; windows share
    only the token at which one ends and the next begins. In training they begin at
    an offset that each epoch draws anew.

    Args:
      text: the set.
      batch_size: windows in a batch.
      length: tokens to predict in a window.
      seed: of the order and the offset.
      validation: how many tokens to set aside, from the end of the training text.
    """

    def __init__(
        self, text: Text, batch_size: int, length: int, seed: int, validation: int = 0
    ):
        size = len(text.train)
        if length < 1:
            raise ValueError(f"length must be at least 1, not {length}")
        if not 0 <= validation <= size - 2 * length:
            raise ValueError(
                f"the training text has {size} tokens: too few for length={length} "
                f"and validation={validation}"
            )
        bound = size - validation
        self._text = {
            "train": text.train[:bound],
            "validation": text.train[bound:],
            "test": text.test,
        }
        self._length = length
        windows = {
            part: np.arange(max(len(tokens) - 1, 0) // length)
            for part, tokens in self._text.items()
        }
        # As many as fit behind the largest offset.
        train = np.arange(bound // length - 1)
        super().__init__(train, windows, batch_size, seed)

    def _make(self, part: str, numbers: np.ndarray, epoch: int | None) -> Batch:
        offset = 0
        if epoch is not None:
            offset = int(hashing.below(self._length, self._seed, _OFFSET, epoch))
        starts = offset + numbers * self._length
        places = starts[:, None] + np.arange(self._length + 1)
        return {"tokens": self._text[part][places].astype(np.int32)}


class GraphPipeline(_Examples):
    """Batches of nodes with a sample of their neighbours, and of these neighbours'.

    {"node": int32 [B], "hop1": int32 [B, s1], "hop2": int32 [B, s1, s2], "label": int32
    [B]}; the features are a constant. Neighbours are drawn with replacement, and a
    node without any is its own. The draws of evaluation depend on the node alone.

    Args:
      graph: the set.
      batch_size: nodes in a batch.
      fanout: how many neighbours to draw of a node, and of each neighbour.
      seed: of the order and the draws.
    """

    def __init__(
        self,
        graph: Graph,
        batch_size: int,
        fanout: tuple[int, int] = (10, 25),
        seed: int = 0,
    ):
        if len(fanout) != 2 or min(fanout) < 1:
            raise ValueError(f"fanout must be two numbers of at least 1, not {fanout}")
        parts = {
            "train": graph.train,
            "validation": graph.validation,
            "test": graph.test,
        }
        super().__init__(parts["train"], parts, batch_size, seed)
        self.constants = {"features": graph.features}
        self._graph = graph
        self._fanout = fanout

    def _make(self, part: str, numbers: np.ndarray, epoch: int | None) -> Batch:
        draw = (_FIXED,) if epoch is None else (self._seed, _HOP, epoch)
        nodes = numbers.astype(np.int32)
        first, second = self._fanout
        slots = np.arange(first * (1 + second))
        # One row of draws a node: its own neighbours first, then theirs.
        drawn = hashing.hashed(*draw, nodes[:, None], slots)
        hop1 = self._neighbours(nodes[:, None], drawn[:, :first])
        drawn = drawn[:, first:].reshape(-1, first, second)
        hop2 = self._neighbours(hop1[:, :, None], drawn)
        labels = self._graph.labels[nodes]
        return {"node": nodes, "hop1": hop1, "hop2": hop2, "label": labels}

    def _neighbours(self, nodes: np.ndarray, drawn: np.ndarray) -> np.ndarray:
        offsets, neighbours = self._graph.offsets, self._graph.neighbours
        starts = offsets[nodes]
        degrees = offsets[nodes + 1] - starts
        chosen = starts + hashing.below(degrees, drawn)
        isolated = np.broadcast_to(degrees == 0, chosen.shape)
        out = np.broadcast_to(nodes, chosen.shape).copy()
        out[~isolated] = neighbours[chosen[~isolated]]
        return out
