"""Devices: how many take part, and who holds what.

The batch is spread over one mesh axis, ``data``, which goes over all devices of all
processes. Parameters and optimizer state are held by every device or, with
``shard=True``, spread over the same axis (FSDP style). XLA does the rest.
"""

from typing import Any

import jax
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

# Smaller tensors cost more to gather than they save.
_SMALLEST_TO_SHARD = 1 << 10


def connect(
    coordinator: str | None = None,
    processes: int | None = None,
    process: int | None = None,
) -> None:
    """Joins the processes of a run; call it before anything else of JAX.

    Args:
      coordinator: HOST:PORT of the first process; None asks the cluster's environment
        (Slurm, Open MPI, Kubernetes, Cloud TPU).
      processes: how many there are.
      process: the number of this one, from 0.
    """
    given = [value is not None for value in (coordinator, processes, process)]
    if any(given) and not all(given):
        raise ValueError(
            "coordinator, processes and process must be given together, such as "
            "coordinator='host0:1234', processes=2, process=0"
        )
    if process is not None and not 0 <= process < (processes or 0):
        raise ValueError(
            f"process must be from 0 to processes - 1 = {(processes or 0) - 1}, "
            f"got {process}"
        )
    jax.distributed.initialize(coordinator, processes, process)


def make_mesh(devices: int | None = None) -> Mesh:
    """The mesh of a run: one axis, ``data``.

    Args:
      devices: how many devices to use, of all processes together; None is all.

    Returns:
      The mesh.
    """
    found = jax.devices()
    if devices is None:
        devices = len(found)
    if not 1 <= devices <= len(found):
        advice = (
            "; on a CPU, set JAX_NUM_CPU_DEVICES to make more"
            if found[0].platform == "cpu"
            else ""
        )
        raise ValueError(
            f"devices must be from 1 to the {len(found)} there are, got "
            f"{devices}{advice}"
        )
    if jax.process_count() > 1 and devices != len(found):
        raise ValueError(
            f"devices must be all {len(found)} in a run of several processes, got "
            f"{devices}"
        )
    return Mesh(np.asarray(found[:devices]), ("data",), axis_types=(AxisType.Auto,))


def placement(mesh: Mesh, tree: Any, shard: bool) -> Any:
    """Where each tensor of a training state goes.

    With ``shard``, a tensor is cut along the longest of its axes that the devices
    divide evenly. Optimizer state of a parameter's shape is cut as the parameter is.
    """
    devices = mesh.devices.size

    def place(x: Any) -> NamedSharding:
        if not shard or x.size < _SMALLEST_TO_SHARD:
            return NamedSharding(mesh, P())
        axes = [axis for axis in range(x.ndim) if x.shape[axis] % devices == 0]
        if not axes:
            return NamedSharding(mesh, P())
        longest = max(axes, key=lambda axis: x.shape[axis])
        return NamedSharding(mesh, P(*[None] * longest, "data"))

    return jax.tree.map(place, tree)


def local_rows(batch_size: int) -> slice:
    """The rows of a global batch that this process makes."""
    share = batch_size // jax.process_count()
    start = jax.process_index() * share
    return slice(start, start + share)


def put_batch(mesh: Mesh, batch: dict[str, np.ndarray]) -> dict[str, jax.Array]:
    """Makes a global batch of the rows of every process."""
    sharding = NamedSharding(mesh, P("data"))
    return {
        name: jax.make_array_from_process_local_data(sharding, rows)
        for name, rows in batch.items()
    }


def put_everywhere(mesh: Mesh, tree: dict[str, np.ndarray]) -> dict[str, jax.Array]:
    """Places what every process and every device holds in full."""
    sharding = NamedSharding(mesh, P())
    return {
        name: jax.make_array_from_callback(x.shape, sharding, np.asarray(x).__getitem__)
        for name, x in tree.items()
    }
