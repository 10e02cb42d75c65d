"""The metrics of a run, in files."""

import importlib.util
import json
import math
import pathlib
from collections.abc import Iterable
from typing import Any

from ctagd_optax.testbed.files import replacing


class Metrics:
    """One JSON object a line and epoch, each with its ``step``.

    Args:
      path: the file; lines are appended to it.
      rows: the rows to keep of a run that goes on; others in the file are dropped.
      tensorboard: folder for TensorBoard's event files as well; None writes none.
      writes: whether this process is the one that writes.

    Attributes:
      rows: all rows so far.
    """

    def __init__(
        self,
        path: pathlib.Path,
        rows: Iterable[dict[str, Any]] = (),
        tensorboard: pathlib.Path | None = None,
        writes: bool = True,
    ):
        self.rows = list(rows)
        self._path = path
        self._writes = writes
        self._board = None
        if writes:
            with replacing(path) as temporary:
                temporary.write_text("".join(map(_line, self.rows)))
            if tensorboard is not None:
                from tensorboardX import SummaryWriter

                last = self.rows[-1]["step"] if self.rows else 0
                self._board = SummaryWriter(str(tensorboard), purge_step=last + 1)

    def write(self, row: dict[str, Any]) -> None:
        """Adds a row; it is in the file when this returns."""
        self.rows.append(row)
        if self._writes:
            with self._path.open("a") as file:
                file.write(_line(row))
        if self._board is not None:
            for name, value in row.items():
                if name not in ("epoch", "step"):
                    self._board.add_scalar(name, value, row["step"])
            self._board.flush()

    def close(self) -> None:
        """Closes TensorBoard's file."""
        if self._board is not None:
            self._board.close()


def read_metrics(path: pathlib.Path) -> list[dict[str, Any]]:
    """The rows of a file of metrics; a last line that was cut off is no row."""
    if not path.exists():
        return []
    rows = []
    for number, line in enumerate(path.read_text().splitlines(keepends=True), 1):
        if not line.endswith("\n"):
            break
        try:
            rows.append(json.loads(line))
        except json.JSONDecodeError as error:
            raise ValueError(f"{path}, line {number} is not JSON: {error}") from error
    return rows


def _line(row: dict[str, Any]) -> str:
    # JSON has no NaN: what is not finite is null.
    values = {
        name: None if isinstance(value, float) and not math.isfinite(value) else value
        for name, value in row.items()
    }
    return json.dumps(values) + "\n"


def check_tensorboard() -> None:
    """Raises an ImportError that says what to install, if it is missing."""
    if importlib.util.find_spec("tensorboardX") is None:
        raise ImportError(
            "TensorBoard's files need tensorboardX: "
            "pip install 'ctagd-optax[tensorboard]'"
        )
