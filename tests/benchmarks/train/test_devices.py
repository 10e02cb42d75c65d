"""Who holds what."""

import jax
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P

from benchmarks.train import devices

pytestmark = pytest.mark.usefixtures("default_jax")


def test_the_mesh_has_the_devices_asked_for():
    assert devices.make_mesh().devices.shape == (8,)
    assert devices.make_mesh(2).axis_names == ("data",)
    assert list(devices.make_mesh(2).devices) == jax.devices()[:2]
    with pytest.raises(ValueError, match="devices must be from 1 to the 8 there are"):
        devices.make_mesh(0)


def test_tensors_are_cut_along_their_longest_even_axis():
    mesh = devices.make_mesh(8)
    tree = {
        "kernel": np.zeros((3, 3, 16, 64)),
        "tall": np.zeros((512, 8)),
        "odd": np.zeros((1001, 3)),
        "small": np.zeros(64),
        "scalar": np.zeros(()),
    }
    specs = jax.tree.map(lambda s: s.spec, devices.placement(mesh, tree, shard=True))
    assert specs == {
        "kernel": P(None, None, None, "data"),
        "tall": P("data"),
        "odd": P(),
        "small": P(),
        "scalar": P(),
    }
    kept = devices.placement(mesh, tree, shard=False)
    assert {s.spec for s in jax.tree.leaves(kept)} == {P()}


def test_a_batch_is_spread_by_rows():
    mesh = devices.make_mesh(4)
    rows = np.arange(24).reshape(8, 3)
    [batch] = devices.put_batch(mesh, {"x": rows}).values()
    assert batch.sharding.spec == P("data")
    for n, shard in enumerate(sorted(batch.addressable_shards, key=lambda s: s.index)):
        np.testing.assert_array_equal(shard.data, rows[2 * n : 2 * n + 2])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("host:1", None, None), "coordinator, processes and process must be given"),
        ((None, 2, 1), "coordinator, processes and process must be given together"),
        (("host:1", 2, 2), "process must be from 0 to processes - 1 = 1, got 2"),
    ],
)
def test_bad_processes(arguments, message):
    with pytest.raises(ValueError, match=message):
        devices.connect(*arguments)
