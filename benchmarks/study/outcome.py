"""What a run that has ended left in its folder, if it is whole."""

from typing import Any

from benchmarks.files import read_json
from benchmarks.train.config import Config
from benchmarks.train.folder import read_description
from benchmarks.train.logs import check_rows, read_metrics
from benchmarks.workloads import workload


def epochs_of(config: Config) -> int:
    """The epochs that a run is to have."""
    return config.epochs or workload(config.workload).epochs


def failed_step(config: Config) -> int | None:
    """The step at which the loss was not finite; None if there is no such.

    Raises:
      ValueError: the file that says so is damaged.
    """
    path = config.out / "failure.json"
    if not path.exists():
        return None
    return read_json(path, {"step": int}, "how a run failed")["step"]


def read_rows(config: Config) -> list[dict[str, Any]]:
    """The metrics of a run that has ended: a row of each epoch that it finished.

    Raises:
      ValueError: rows are missing or too many, or one lacks a figure.
    """
    path, step = config.out / "metrics.jsonl", failed_step(config)
    if step is None:
        epochs = epochs_of(config)
    else:
        epochs = step // read_description(config.out)["steps_per_epoch"]
    rows = read_metrics(path)
    check_rows(path, rows, config.part)
    if [row["epoch"] for row in rows] != list(range(1, epochs + 1)):
        raise ValueError(
            f"{path} must have a row of each of {epochs} epochs, it has {len(rows)} "
            f"rows; remove {config.out} to train it again"
        )
    return rows
