"""The folder of a run: one run in it, and one process that writes to it."""

import contextlib
import pathlib
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils

from benchmarks.files import merged, read_json, write_json
from benchmarks.locks import holding
from benchmarks.specs import arm
from benchmarks.train.config import Config
from benchmarks.workloads import workload
from ctagd_optax.testbed.files import check_writable

# What may differ between a run and its continuation.
_FREE = (
    "out",
    "data_dir",
    "download",
    "epochs",
    "steps",
    "checkpoint_every",
    "keep",
    "devices",
    "shard",
    "log",
)

# What every version has written of a run.
_DESCRIPTION = {
    "config": dict,
    "versions": dict,
    "workload": str,
    "optimizer": dict,
    "epochs": int,
    "batch_size": int,
    "steps_per_epoch": int,
    "parameters": int,
}


@contextlib.contextmanager
def owning(out: pathlib.Path) -> Iterator[None]:
    """Takes a run's folder; of several processes of a run, the first does it for all.

    Raises:
      BlockingIOError: another run has it.
    """
    with contextlib.ExitStack() as stack:
        error = None
        if jax.process_index() == 0:
            try:
                stack.enter_context(holding(out))
            except OSError as failure:
                error = failure
        if not agreed(error is None):
            raise error or BlockingIOError(
                f"out: the first process cannot use {out}, and says why"
            )
        yield


def agreed(value: int) -> int:
    """What the first process says, in all of them."""
    if jax.process_count() == 1:
        return value
    return int(multihost_utils.broadcast_one_to_all(np.int32(value)))


def check_folder(config: Config, resume: bool) -> None:
    """Nothing is overwritten, and only the same run is continued."""
    path = config.out / "config.json"
    config.out.mkdir(parents=True, exist_ok=True)
    check_writable(path)
    if not (any(config.out.glob("checkpoints/*")) or any(config.out.glob("metrics*"))):
        return
    if not resume:
        raise FileExistsError(
            f"out: {config.out} holds a run already; --resume goes on with it, another "
            "--out starts a new one"
        )
    check_same_run(config)


def check_same_run(config: Config) -> None:
    """Raises ValueError if the run in the config's folder is another one."""
    description = read_description(config.out)
    optimizer = arm(config.optimizer)
    options = {"name": optimizer.name, **optimizer.options}
    if description["optimizer"] != options:
        raise ValueError(
            f"optimizer must stay {description['optimizer']!r} to go on with the run "
            f"in {config.out}, got {options!r}"
        )
    epochs = config.epochs or workload(config.workload).epochs
    if optimizer.uses_budget and epochs != description["epochs"]:
        raise ValueError(
            f"epochs must stay {description['epochs']} to go on with the run in "
            f"{config.out}: {optimizer.name} has a schedule over all of them; got "
            f"{epochs}"
        )
    earlier = {**description["config"], "batch_size": description["batch_size"]}
    size = config.batch_size or workload(config.workload).batch_size
    now = {**vars(config), "batch_size": size}
    if "refresh_batch_stats" not in description:  # an earlier version refreshed nothing
        del now["refresh_batch_stats"]
    for name, new in now.items():
        old = earlier.get(name)
        if old != new and name not in _FREE:
            whose = ", the workload's" if getattr(config, name) is None else ""
            raise ValueError(
                f"{name} must stay {old!r} to go on with the run in {config.out}, got "
                f"{new!r}{whose}"
            )


def write_description(
    out: pathlib.Path, description: dict[str, Any], resume: bool
) -> None:
    """Writes ``config.json``, if the run it goes on with was the same."""
    path = out / "config.json"
    if resume and path.exists():
        earlier = {"refresh_batch_stats": 0, **read_description(out)}
        for name in (
            "workload",
            "steps_per_epoch",
            "parameters",
            "refresh_batch_stats",
        ):
            if earlier[name] != description[name]:
                raise ValueError(
                    f"{name} was {earlier[name]!r} when the run in {out} was started, "
                    f"and is {description[name]!r} now"
                )
        makers = [earlier["made_by"]] if "made_by" in earlier else []
        made = merged([*makers, description["made_by"]])
        description = {**description, "made_by": made}
        started = earlier.get("started_with", earlier["versions"])
        if started != description["versions"]:
            description = {**description, "started_with": started}
    if jax.process_index() == 0:
        write_json(path, description)


def read_description(out: pathlib.Path) -> dict[str, Any]:
    """Reads the ``config.json`` of a run.

    Raises:
      ValueError: it is not one.
    """
    return read_json(out / "config.json", _DESCRIPTION, "a run")
