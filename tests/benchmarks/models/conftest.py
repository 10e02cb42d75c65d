"""Random numbers that compile fast: most of the time of these tests otherwise."""

import jax
import pytest


@pytest.fixture(autouse=True)
def fast_random_numbers():
    """Initializers draw from XLA's own generator, not from threefry."""
    with jax.default_prng_impl("unsafe_rbg"):
        yield
