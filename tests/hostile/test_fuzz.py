"""A few of the cases of ``make fuzz``."""

import pytest

from tests.hostile import fuzz


@pytest.mark.parametrize("group", [0, 7])
def test_random_trees_and_wild_gradients(group, default_jax):
    seeds = range(group * fuzz.SHARED, group * fuzz.SHARED + 10)
    assert not [failure for found in fuzz.run(seeds) for failure in found]
