"""Makes batches ahead of time, with Grain."""

import time
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import grain

Step = TypeVar("Step")
Item = TypeVar("Item")


class _Items(grain.MapDataset[Item]):
    """The items by number, each made when it is asked for."""

    def __init__(self, make: Callable[[Step], Item], steps: Sequence[Step]):
        super().__init__()
        self._make = make
        self._steps = steps

    def __len__(self) -> int:
        return len(self._steps)

    def __getitem__(self, number: int) -> Item:
        try:
            return self._make(self._steps[number])
        except BaseException as error:
            # The one would pass for the end of the items, the others end Grain's thread
            # without a word, and the consumer would wait for ever.
            if isinstance(error, StopIteration) or not isinstance(error, Exception):
                raise RuntimeError(f"make raised {type(error).__name__}") from error
            raise


class Loader(Iterator[Item]):
    """Yields make(step) for every step, in order, made ahead on a thread.

    An exception in make is raised where its item would have come. Closing the loader,
    leaving its ``with`` block or dropping it stops the thread after the item in hand.

    Args:
      make: makes an item; runs on the thread.
      steps: what to make items of.
      size: how many finished items may wait.

    Attributes:
      waited: seconds the consumer has waited for items so far.
    """

    def __init__(
        self, make: Callable[[Step], Item], steps: Sequence[Step], size: int = 8
    ):
        if size < 1:
            raise ValueError(f"size must be at least 1, not {size}")
        self.waited = 0.0
        # One thread that runs ahead by itself costs the consumer less for each item
        # than Grain's pool of threads, which is handed every item by the consumer.
        items = _Items(make, steps).to_iter_dataset(
            grain.ReadOptions(num_threads=0, prefetch_buffer_size=0), allow_nones=True
        )
        self._items: grain.DatasetIterator[Item] | None = iter(
            grain.experimental.ThreadPrefetchIterDataset(
                items, prefetch_buffer_size=size
            )
        )

    def __next__(self) -> Item:
        if self._items is None:
            raise StopIteration
        start = time.perf_counter()
        try:
            return next(self._items)
        finally:
            self.waited += time.perf_counter() - start

    def close(self) -> None:
        """Stops the thread and waits for it to end."""
        if self._items is not None:
            self._items.close()
            # Grain's iterator prints an error if it is still there at the very end.
            self._items = None

    def __enter__(self) -> "Loader[Item]":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
