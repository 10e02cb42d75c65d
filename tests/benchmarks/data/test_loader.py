"""Items come in order, errors at their place, and the thread ends."""

import gc
import threading
import time
import types

import numpy as np
import pytest

from benchmarks.data import ImagePipeline, loader, synthetic
from benchmarks.data.loader import Loader

ENDLESS = range(10**9)


def alive() -> bool:
    return any(thread.name.startswith("grain") for thread in threading.enumerate())


def soon(condition) -> bool:
    deadline = time.monotonic() + 60
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.001)
    return condition()


def test_in_order():
    items = Loader(lambda n: n * n, range(3, 100), size=3)
    assert list(items) == [n * n for n in range(3, 100)]
    assert list(items) == []
    assert not alive()


def test_no_steps():
    assert list(Loader(str, range(0))) == []


def test_batches_are_those_of_the_pipeline():
    images = synthetic(train=96, test=8, shape=(8, 8, 3), classes=4, seed=0)
    pipeline = ImagePipeline(images, batch_size=32, seed=1, augment=True)

    def make(step):
        return pipeline.train_batch(*divmod(step, 3), slice(0, 16))

    # Begun in the midst of an epoch, as a continued run does.
    for step, batch in enumerate(Loader(make, range(4, 12)), 4):
        wanted = pipeline.train_batch(step // 3, step % 3)
        assert batch.keys() == wanted.keys()
        for name, rows in batch.items():
            np.testing.assert_array_equal(rows, wanted[name][:16])


def test_runs_ahead_only_so_far():
    made = []
    with Loader(made.append, ENDLESS, size=2) as items:
        assert next(items) is None
        # One is taken, two wait, and one is in hand.
        assert soon(lambda: len(made) == 4)
        time.sleep(0.02)
        assert len(made) == 4
        next(items)
        assert soon(lambda: len(made) == 5)


def test_an_error_comes_at_its_place():
    def make(n):
        if n == 2:
            raise RuntimeError("bad item")
        return n

    with Loader(make, range(5)) as items:
        assert [next(items), next(items)] == [0, 1]
        for _ in range(2):  # the item is tried again, and not left out
            with pytest.raises(RuntimeError, match="bad item"):
                next(items)
            assert not alive()


@pytest.mark.parametrize("error", [StopIteration, SystemExit, KeyboardInterrupt])
def test_an_error_that_would_not_arrive(error):
    def make(n):
        raise error

    with pytest.raises(RuntimeError, match=f"make raised {error.__name__}"):
        next(Loader(make, range(3)))


def test_closing_stops_the_thread():
    made = []
    items = Loader(made.append, ENDLESS, size=2)
    next(items)
    items.close()
    assert not alive()
    count = len(made)
    assert count <= 5
    with pytest.raises(StopIteration):
        next(items)
    items.close()
    assert len(made) == count


def test_dropping_it_stops_the_thread():
    items = Loader(str, ENDLESS)
    next(items)
    del items
    gc.collect()
    assert soon(lambda: not alive())


def test_counts_the_wait(monkeypatch):
    # Two looks at the clock an item: two seconds, then half a second.
    clock = iter([10.0, 12.0, 20.0, 20.5])
    fake = types.SimpleNamespace(perf_counter=lambda: next(clock))
    monkeypatch.setattr(loader, "time", fake)
    with Loader(str, ENDLESS) as items:
        assert items.waited == 0
        next(items)
        assert items.waited == 2.0
        next(items)
        assert items.waited == 2.5


def test_size():
    with pytest.raises(ValueError, match="size must be at least 1, not 0"):
        Loader(str, range(3), size=0)
