"""The hash gives the same numbers everywhere, and they look random."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.data import hashing

MASK = 2**64 - 1


def splitmix(state: int) -> int:
    """One output of splitmix64 in whole numbers without bounds."""
    z = (state + 0x9E3779B97F4A7C15) & MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return z ^ (z >> 31)


def test_published_values():
    # The first outputs of splitmix64 from seed 1234567.
    states = [1234567, (1234567 + 0x9E3779B97F4A7C15) & MASK]
    assert [int(hashing.hashed(s)) for s in states] == [
        6457827717110365317,
        3203168211198807973,
    ]


@given(st.lists(st.integers(-(2**70), 2**70), min_size=1, max_size=4))
def test_words_are_chained(words):
    state = 0
    for word in words:
        state = splitmix(state ^ (word & MASK))
    assert int(hashing.hashed(*words)) == state


def test_entries_do_not_depend_on_the_array_they_are_in():
    whole = hashing.hashed(3, np.arange(100)[:, None], np.arange(7))
    assert whole.shape == (100, 7)
    assert whole[42, 5] == hashing.hashed(3, 42, 5)
    assert len(np.unique(whole)) == whole.size


@given(st.integers(1, 2**32 - 1), st.integers(0, 2**64 - 1))
def test_below_stays_below(bound, seed):
    drawn = hashing.below(bound, seed, np.arange(50))
    assert drawn.min() >= 0
    assert drawn.max() < bound


def test_below_is_even():
    counts = np.bincount(hashing.below(9, 1, np.arange(90_000)))
    # Five standard deviations.
    assert len(counts) == 9
    assert np.abs(counts - 10_000).max() < 5 * np.sqrt(10_000 * 8 / 9)


def test_bounds_may_differ():
    bounds = np.arange(1, 200)
    drawn = hashing.below(bounds, 5, np.arange(199))
    assert (drawn < bounds).all()
    assert drawn[0] == 0


@given(st.integers(0, 300), st.integers(0, 1000))
def test_order_is_a_permutation(size, seed):
    assert sorted(hashing.order(size, seed)) == list(range(size))


def test_orders_differ():
    assert (hashing.order(50, 0) != hashing.order(50, 1)).any()
