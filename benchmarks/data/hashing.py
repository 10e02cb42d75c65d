"""Random numbers that are a pure function of whole numbers.

A counter hash, rather than a NumPy generator: any entry can be drawn alone, by any
process, and no version of NumPy changes it.
"""

import numpy as np

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_FIRST = np.uint64(0xBF58476D1CE4E5B9)
_SECOND = np.uint64(0x94D049BB133111EB)


def hashed(*words: int | np.ndarray) -> np.ndarray:
    """64 well-mixed bits for each entry of the words, broadcast against each other.

    Every word passes through the finalizer of splitmix64, so the order of the words
    matters: hashed(1, 2) is not hashed(2, 1).
    """
    state = np.zeros((), np.uint64)
    with np.errstate(over="ignore"):
        for word in words:
            state = state ^ _word(word)
            state = state + _GOLDEN
            state = (state ^ (state >> np.uint64(30))) * _FIRST
            state = (state ^ (state >> np.uint64(27))) * _SECOND
            state = state ^ (state >> np.uint64(31))
    return state


def below(bound: int | np.ndarray, *words: int | np.ndarray) -> np.ndarray:
    """A whole number from 0 to bound - 1 for each entry; bounds are below 2³²."""
    high = hashed(*words) >> np.uint64(32)
    return ((high * _word(bound)) >> np.uint64(32)).astype(np.int64)


def order(size: int, *words: int) -> np.ndarray:
    """A permutation of size numbers."""
    return np.argsort(hashed(*words, np.arange(size)), kind="stable")


def _word(value: int | np.ndarray) -> np.ndarray:
    if isinstance(value, int):
        value %= 2**64
    return np.asarray(value).astype(np.uint64)
