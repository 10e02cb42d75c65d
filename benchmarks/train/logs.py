"""What a run says: metrics in files, and progress for people."""

import importlib.util
import json
import math
import pathlib
from collections.abc import Iterable
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
)

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


class Reporter:
    """Tells a person how a run goes; this one says nothing.

    Attributes:
      interval: seconds between two calls of ``step``.
    """

    interval = math.inf

    def step(self, step: int, figures: dict[str, Any]) -> None:
        """Called now and then during an epoch."""

    def epoch(self, row: dict[str, Any]) -> None:
        """Called at the end of an epoch, with its metrics."""

    def say(self, text: str) -> None:
        """One line."""

    def close(self) -> None:
        """Called at the end of the run."""


class Lines(Reporter):
    """Plain lines, for a log: one an epoch, and one now and then in a long one."""

    interval = 30.0

    def __init__(self, console: Console, steps_per_epoch: int, epochs: int):
        self._console = console
        self._steps_per_epoch = steps_per_epoch
        self._epochs = epochs

    def step(self, step: int, figures: dict[str, Any]) -> None:
        """A line."""
        epoch, t = divmod(step - 1, self._steps_per_epoch)
        self.say(
            f"epoch {epoch + 1}/{self._epochs}, step {t + 1}/{self._steps_per_epoch}: "
            + _figures(figures)
        )

    def epoch(self, row: dict[str, Any]) -> None:
        """A line with the epoch's figures."""
        self.say(f"epoch {row['epoch']}/{self._epochs}: {_figures(row)}")

    def say(self, text: str) -> None:
        """A line."""
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)


class Bar(Lines):
    """A bar for the epoch's steps under the lines of the epochs before it."""

    interval = 0.5

    def __init__(self, console: Console, steps_per_epoch: int, epochs: int):
        super().__init__(console, steps_per_epoch, epochs)
        self._progress = Progress(
            TextColumn("epoch {task.fields[epoch]}/{task.fields[epochs]}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[figures]}"),
            console=console,
            transient=True,
        )
        self._task = self._progress.add_task(
            "", total=steps_per_epoch, epoch=1, epochs=epochs, figures=""
        )
        self._progress.start()

    def step(self, step: int, figures: dict[str, Any]) -> None:
        """Moves the bar."""
        epoch, t = divmod(step - 1, self._steps_per_epoch)
        self._progress.update(
            self._task, completed=t + 1, epoch=epoch + 1, figures=_figures(figures)
        )

    def close(self) -> None:
        """Takes the bar away."""
        self._progress.stop()


def reporter(console: Console, steps_per_epoch: int, epochs: int) -> Reporter:
    """A bar on a terminal, plain lines elsewhere."""
    kind = Bar if console.is_terminal else Lines
    return kind(console, steps_per_epoch, epochs)


_FORMATS = {
    "train_loss": "loss {:.4g}",
    "train_accuracy": "train {:.1%}",
    "test_accuracy": "test {:.1%}",
    "validation_accuracy": "validation {:.1%}",
    "refreshed_accuracy": "refreshed {:.1%}",
    "examples_per_second": "{:,.0f} examples/s",
    "gamma": "γ {0[0]:.3g} to {0[1]:.3g}",
    "observed": "evidence {:.0%}",
    "step_high": "step at most {:.2g}",
}


def _figures(row: dict[str, Any]) -> str:
    if "gamma_min" in row:
        row = {**row, "gamma": (row["gamma_min"], row["gamma_max"])}
    shown = [form.format(row[name]) for name, form in _FORMATS.items() if name in row]
    return ", ".join(shown)
