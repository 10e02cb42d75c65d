"""Makes batches ahead of time, on a thread."""

import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

Step = TypeVar("Step")
Item = TypeVar("Item")


class _Buffer:
    """What the thread and the consumer share."""

    def __init__(self, size: int):
        self.size = size
        self.ready: deque = deque()
        self.changed = threading.Condition()
        self.stopped = False

    def stop(self) -> None:
        with self.changed:
            self.stopped = True
            self.ready.clear()
            self.changed.notify_all()

    def put(self, entry: tuple) -> bool:
        """Waits for room; false if nobody wants it any more."""
        with self.changed:
            self.changed.wait_for(lambda: self.stopped or len(self.ready) < self.size)
            if not self.stopped:
                self.ready.append(entry)
                self.changed.notify_all()
            return not self.stopped

    def get(self) -> tuple:
        with self.changed:
            self.changed.wait_for(lambda: self.ready or self.stopped)
            if self.stopped:
                return "end", None
            self.changed.notify_all()
            return self.ready.popleft()


def _fill(buffer: _Buffer, make: Callable, steps: Iterable) -> None:
    try:
        for step in steps:
            if not buffer.put(("item", make(step))):
                return
    except BaseException as error:
        buffer.put(("error", error))
    else:
        buffer.put(("end", None))


class Prefetch(Iterator[Item]):
    """Items made ahead; see prefetch.

    Attributes:
      waited: seconds the consumer has waited for items so far.
    """

    def __init__(self, make: Callable[[Step], Item], steps: Iterable[Step], size: int):
        self.waited = 0.0
        self._buffer = _Buffer(size)
        # The thread does not hold self, so that dropping self can stop it.
        self._thread = threading.Thread(
            target=_fill, args=(self._buffer, make, steps), daemon=True, name="prefetch"
        )
        weakref.finalize(self, self._buffer.stop)
        self._thread.start()

    def __next__(self) -> Item:
        start = time.perf_counter()
        kind, value = self._buffer.get()
        self.waited += time.perf_counter() - start
        if kind == "item":
            return value
        self.close()
        if kind == "error":
            if isinstance(value, StopIteration):
                # It would pass for the end of the items.
                raise RuntimeError("make raised StopIteration") from value
            raise value
        raise StopIteration

    def close(self) -> None:
        """Stops the thread and waits for it to end."""
        self._buffer.stop()
        self._thread.join()

    def __enter__(self) -> "Prefetch[Item]":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def prefetch(
    make: Callable[[Step], Item], steps: Iterable[Step], size: int = 2
) -> Prefetch[Item]:
    """Yields make(step) for every step, in order, made ahead on a thread.

    An exception in make is raised where its item would have come. Closing the result,
    leaving its ``with`` block or dropping it stops the thread after the item in hand.

    Args:
      make: makes an item; runs on the thread.
      steps: what to make items of; may be endless.
      size: how many finished items may wait.

    Returns:
      An iterator; its attribute ``waited`` counts the seconds spent waiting for it.
    """
    if size < 1:
        raise ValueError(f"size must be at least 1, not {size}")
    return Prefetch(make, steps, size)
