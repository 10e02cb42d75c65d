"""Items come in order, errors at their place, and the thread ends."""

import gc
import itertools
import threading
import time

import pytest

from benchmarks.data import prefetch, prefetching


def alive() -> bool:
    return any(thread.name == "prefetch" for thread in threading.enumerate())


def soon(condition) -> bool:
    deadline = time.monotonic() + 60
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.001)
    return condition()


def test_in_order():
    items = prefetch(lambda n: n * n, range(100), size=3)
    assert list(items) == [n * n for n in range(100)]
    assert list(items) == []
    assert not alive()


def test_runs_ahead_only_so_far():
    made = []
    with prefetch(made.append, itertools.count(), size=2) as items:
        # Two wait, and one is in hand.
        assert soon(lambda: len(made) == 3)
        time.sleep(0.02)
        assert len(made) == 3
        next(items)
        assert soon(lambda: len(made) == 4)


def test_an_error_comes_at_its_place():
    def make(n):
        if n == 2:
            raise RuntimeError("bad item")
        return n

    items = prefetch(make, range(5))
    assert [next(items), next(items)] == [0, 1]
    with pytest.raises(RuntimeError, match="bad item"):
        next(items)
    with pytest.raises(StopIteration):
        next(items)
    assert not alive()


def test_an_error_in_the_steps():
    def steps():
        yield 0
        raise KeyError("step")

    items = prefetch(str, steps())
    assert next(items) == "0"
    with pytest.raises(KeyError, match="step"):
        next(items)


def test_stop_iteration_is_not_the_end():
    items = prefetch(lambda n: next(iter(())), range(3))
    with pytest.raises(RuntimeError, match="make raised StopIteration"):
        next(items)


def test_closing_stops_the_thread():
    made = []
    items = prefetch(made.append, itertools.count())
    next(items)
    items.close()
    assert not alive()
    count = len(made)
    assert count <= 4
    with pytest.raises(StopIteration):
        next(items)
    items.close()
    assert len(made) == count


def test_dropping_it_stops_the_thread():
    items = prefetch(lambda n: n, itertools.count())
    next(items)
    del items
    gc.collect()
    assert soon(lambda: not alive())


def test_counts_the_wait(monkeypatch):
    # Two looks at the clock an item: two seconds, then half a second.
    clock = iter([10.0, 12.0, 20.0, 20.5])
    monkeypatch.setattr(prefetching.time, "perf_counter", lambda: next(clock))
    with prefetch(str, itertools.count()) as items:
        assert items.waited == 0
        next(items)
        assert items.waited == 2.0
        next(items)
        assert items.waited == 2.5


def test_size():
    with pytest.raises(ValueError, match="size must be at least 1, not 0"):
        prefetch(str, range(3), size=0)
