"""Checkpoints: whole or not there."""

import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from benchmarks.train.checkpoints import Checkpoints
from benchmarks.train.devices import make_mesh

pytestmark = pytest.mark.usefixtures("default_jax")


@pytest.fixture
def checkpoints(tmp_path):
    made = Checkpoints(tmp_path, keep=2)
    yield made
    made.close()


def state(value):
    return {
        "weights": jnp.full((4, 2), value),
        "half": jnp.full(3, value, jnp.bfloat16),
        "count": jnp.int32(value),
        "key": jax.random.key(value),
        "nothing": None,
    }


def test_what_was_saved_comes_back(checkpoints):
    checkpoints.save(3, state(3), {"seconds": 1.5})
    checkpoints.wait()
    found, notes = checkpoints.restore(3, state(0))
    assert notes == {"seconds": 1.5}
    assert found["half"].dtype == jnp.bfloat16
    assert found["nothing"] is None
    np.testing.assert_array_equal(found["weights"], 3.0)
    assert int(found["count"]) == 3
    assert jax.random.uniform(found["key"]) == jax.random.uniform(jax.random.key(3))


def test_the_last_ones_are_kept(checkpoints):
    assert checkpoints.last() is None
    for step in (1, 2, 5):
        checkpoints.save(step, state(step), {})
    checkpoints.wait()
    assert checkpoints.last() == 5
    assert not checkpoints.path(1).exists()
    assert checkpoints.path(2).is_dir()


def test_donating_what_is_being_saved_does_not_change_it(checkpoints):
    x = jnp.arange(1_000_000, dtype=jnp.float32)
    increase = jax.jit(lambda x: x + 1, donate_argnums=0)
    checkpoints.save(1, {"x": x}, {})
    for _ in range(5):
        x = increase(x)
    checkpoints.wait()
    found, _ = checkpoints.restore(1, {"x": x})
    np.testing.assert_array_equal(found["x"], np.arange(1_000_000, dtype=np.float32))


def test_a_half_written_one_is_not_seen(checkpoints, tmp_path):
    checkpoints.save(1, state(1), {})
    checkpoints.wait()
    # What a process leaves that is killed while it writes.
    shutil.copytree(
        tmp_path / "1" / "state", tmp_path / "2.orbax-checkpoint-tmp" / "state"
    )
    again = Checkpoints(tmp_path)
    assert again.last() == 1
    again.close()


def test_another_placement_is_taken_on(checkpoints):
    checkpoints.save(1, {"x": jnp.arange(8.0)}, {})
    checkpoints.wait()
    sharding = NamedSharding(make_mesh(8), P("data"))
    like = {"x": jax.device_put(jnp.zeros(8), sharding)}
    found, _ = checkpoints.restore(1, like)
    assert found["x"].sharding == sharding
    np.testing.assert_array_equal(found["x"], np.arange(8.0))


def test_bad_keep(tmp_path):
    with pytest.raises(ValueError, match="keep must be at least 1, got 0"):
        Checkpoints(tmp_path, keep=0)
