"""The metrics of a run, in files."""

import importlib.util
import json
import math
import os
import pathlib
import uuid
import zlib
from collections.abc import Iterable, Sequence
from typing import Any, Protocol

from benchmarks.files import misfit, naming, read_json, write_json
from ctagd_optax.testbed.files import replacing


class Log(Protocol):
    """Where metrics also go."""

    def write(self, row: dict[str, Any]) -> None:
        """Adds a row."""

    def close(self) -> None:
        """Writes what is left."""


class Metrics:
    """One JSON object a line and epoch, each with its ``step``.

    Args:
      path: the file; lines are appended to it.
      rows: the rows to keep of a run that goes on; others in the file are dropped.
      logs: where rows also go.
      writes: whether this process is the one that writes.

    Attributes:
      rows: all rows so far.
    """

    def __init__(
        self,
        path: pathlib.Path,
        rows: Iterable[dict[str, Any]] = (),
        logs: Sequence[Log] = (),
        writes: bool = True,
    ):
        self.rows = list(rows)
        self._path = path
        self._logs = logs
        self._writes = writes
        if writes:
            with naming(path), replacing(path) as temporary:
                temporary.write_text("".join(map(_line, self.rows)))

    def write(self, row: dict[str, Any]) -> None:
        """Adds a row; it is on the disk when this returns."""
        self.rows.append(row)
        if self._writes:
            with naming(self._path), self._path.open("a") as file:
                file.write(_line(row))
                file.flush()
                os.fsync(file.fileno())
        for log in self._logs:
            log.write(row)

    def close(self) -> None:
        """Closes the other logs."""
        for log in self._logs:
            log.close()


class TensorBoard:
    """TensorBoard's event files, in ``tensorboard/``.

    Args:
      out: folder of the run.
      rows: the rows of the run so far.
    """

    def __init__(self, out: pathlib.Path, rows: Sequence[dict[str, Any]]):
        from tensorboardX import SummaryWriter

        folder = out / "tensorboard"
        known = bool(rows) and any(folder.glob("events.*"))
        last = rows[-1]["step"] if known else 0
        self._writer = SummaryWriter(str(folder), purge_step=last + 1)
        for row in () if known else rows:  # of a start without this log
            self.write(row)

    def write(self, row: dict[str, Any]) -> None:
        """Adds a row."""
        for name, value in _scalars(row).items():
            self._writer.add_scalar(name, value, row["step"])
        self._writer.flush()

    def close(self) -> None:
        """Closes the file."""
        self._writer.close()


class WandB:
    """A run of Weights & Biases, whose files are in ``wandb/``.

    It has every step once: ``wandb.json`` knows the run to go on with and its last
    step. Online, wandb sends what it writes; with WANDB_MODE=offline nothing is sent.

    Args:
      out: folder of the run.
      rows: the rows of the run so far; none starts a new one.
      description: what the run is, for the page of its configuration.
    """

    def __init__(
        self,
        out: pathlib.Path,
        rows: Sequence[dict[str, Any]],
        description: dict[str, Any],
    ):
        import wandb

        self._path = out / "wandb.json"
        self._known = {"id": uuid.uuid4().hex[:8], "step": 0}
        if rows and self._path.exists():
            shape = {"id": str, "step": int}
            self._known = read_json(self._path, shape, "a run of wandb")
        config = description["config"]
        try:
            self._run = wandb.init(
                dir=out,
                project=os.environ.get("WANDB_PROJECT", "ctagd-optax"),
                name=f"{config['workload']} {config['optimizer']} {config['seed']}",
                config=description,
                id=self._known["id"],
                resume="allow",
                reinit="create_new",  # not the run that a program may have open
                settings=wandb.Settings(console="off"),
            )
        except wandb.errors.UsageError as error:
            raise ValueError(
                f"log wandb: {error} With WANDB_MODE=offline it needs no account."
            ) from error
        for row in rows:  # of a start without this log
            self.write(row)

    def write(self, row: dict[str, Any]) -> None:
        """Adds a row if its step is new."""
        if row["step"] > self._known["step"]:
            self._run.log(_scalars(row), step=row["step"])
            self._known["step"] = row["step"]
            write_json(self._path, self._known)

    def close(self) -> None:
        """Waits until all is written, and sent."""
        self._run.finish()


# What a log needs; the extra that installs it has the log's name.
_MODULES = {"tensorboard": "tensorboardX", "wandb": "wandb"}


def check_logs(names: Iterable[str]) -> None:
    """Raises an ImportError that says what to install, if something is missing."""
    for name in names:
        module = _MODULES.get(name)
        if module is not None and importlib.util.find_spec(module) is None:
            raise ImportError(
                f"log {name} needs {module}: pip install 'ctagd-optax[{name}]'"
            )


def open_logs(
    names: Iterable[str],
    out: pathlib.Path,
    rows: Sequence[dict[str, Any]],
    description: dict[str, Any],
) -> list[Log]:
    """The logs beside ``metrics.jsonl``.

    Args:
      names: which, of ``benchmarks.train.config.LOGS``.
      out: folder of the run.
      rows: the rows of a run that goes on.
      description: what the run is.
    """
    logs: list[Log] = []
    if "tensorboard" in names:
        logs.append(TensorBoard(out, rows))
    if "wandb" in names:
        logs.append(WandB(out, rows, description))
    return logs


def _scalars(row: dict[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in row.items() if k != "step" and v is not None}


def read_metrics(path: pathlib.Path, end: int | None = None) -> list[dict[str, Any]]:
    """The rows of a file of metrics; a last line that was cut off is no row.

    Args:
      path: the file.
      end: the last step of interest; what comes after its row is not read.

    Returns:
      The rows, by step.

    Raises:
      ValueError: a line is damaged.
    """
    if not path.exists():
        return []
    rows: list[dict[str, Any]] = []
    lines = path.read_bytes().splitlines(keepends=True)
    for number, line in enumerate(lines, 1):
        if not line.endswith(b"\n") or (rows and end and rows[-1]["step"] >= end):
            break
        try:
            row = json.loads(line)
            if not (isinstance(row, dict) and isinstance(row.get("step"), int)):
                raise ValueError("it has no step")
            # Rows of earlier versions have none.
            if row.pop("crc32", None) not in (None, _checksum(row)):
                raise ValueError("it does not have its checksum")
        except ValueError as error:
            raise ValueError(
                f"{path}, line {number} is not a row of metrics: {error}"
            ) from error
        rows.append(row)
    return rows


def check_rows(path: pathlib.Path, rows: Iterable[dict[str, Any]], part: str) -> None:
    """Checks that rows have what all rows of a run have.

    Args:
      path: their file, for the error.
      rows: the rows.
      part: what the run is evaluated on.

    Raises:
      ValueError: one lacks a figure, or has something else in its place.
    """
    needed = {
        "epoch": int,
        "train_loss": float | None,
        f"{part}_accuracy": float,
        **dict.fromkeys(("seconds", "compile_seconds", "input_wait"), float),
    }
    for row in rows:
        wrong = misfit(row, {**dict.fromkeys(row, float | None), **needed})
        if wrong:
            raise ValueError(f"{path}, row of step {row['step']}: {wrong}")


def _line(row: dict[str, Any]) -> str:
    # JSON has no NaN: what is not finite is null.
    values = {
        name: None if isinstance(value, float) and not math.isfinite(value) else value
        for name, value in row.items()
    }
    return json.dumps({**values, "crc32": _checksum(values)}) + "\n"


def _checksum(row: dict[str, Any]) -> int:
    return zlib.crc32(json.dumps(row).encode())
