"""What a run tells a person: a bar on a terminal, plain lines elsewhere."""

import datetime
import math
import time
from collections.abc import Iterable
from typing import Any

from rich.console import Console, RenderableType
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn
from rich.text import Text


class Reporter:
    """Tells a person how a run goes; this one says nothing.

    Attributes:
      interval: seconds between two calls of ``step``.
    """

    interval = math.inf

    def start(self, step: int) -> None:
        """Called before the step is compiled, with the steps taken so far."""

    def step(self, step: int, figures: dict[str, Any]) -> None:
        """Called now and then during an epoch."""

    def epoch(self, row: dict[str, Any]) -> None:
        """Called at the end of an epoch, with its metrics."""

    def say(self, text: str) -> None:
        """One line."""

    def close(self) -> None:
        """Called at the end of the run."""


class Lines(Reporter):
    """Plain lines, for a log: one an epoch, and one now and then in a long one.

    Args:
      console: where they go.
      steps_per_epoch: steps in an epoch.
      steps: steps of the whole run.
    """

    interval = 30.0

    def __init__(self, console: Console, steps_per_epoch: int, steps: int):
        self._console = console
        self._steps_per_epoch = steps_per_epoch
        self._steps = steps
        self._epochs = math.ceil(steps / steps_per_epoch)
        self._first: tuple[int, float] | None = None

    def step(self, step: int, figures: dict[str, Any]) -> None:
        """A line."""
        epoch, t = divmod(step - 1, self._steps_per_epoch)
        place = (
            f"epoch {epoch + 1}/{self._epochs}, step {t + 1}/{self._steps_per_epoch}"
        )
        self.say(f"{place}: {_joined([*_figures(figures), self._left(step)])}")

    def epoch(self, row: dict[str, Any]) -> None:
        """A line with the epoch's figures."""
        figures = _joined([*_figures(row), self._left(row["step"])])
        self.say(f"epoch {row['epoch']}/{self._epochs}: {figures}")

    def say(self, text: str) -> None:
        """A line."""
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)

    def _left(self, step: int) -> str:
        """The time left, by the mean pace since the first report; not known there.

        Compiling comes before the first report, and must not count as training.
        """
        now = time.perf_counter()
        if self._first is None:
            self._first = step, now
        first, start = self._first
        if not first < step < self._steps:
            return ""
        seconds = (now - start) / (step - first) * (self._steps - step)
        return f"{datetime.timedelta(seconds=round(seconds))} left"


class Bar(Lines):
    """A bar over the whole run; at most twenty of the epochs leave a line above it."""

    interval = 0.5

    def __init__(self, console: Console, steps_per_epoch: int, steps: int):
        super().__init__(console, steps_per_epoch, steps)
        self._lines_every = math.ceil(self._epochs / 20)
        self._measured: dict[str, Any] = {}
        self._bar = _TwoRows(
            TextColumn("epoch {task.fields[epoch]}/{task.fields[epochs]}"),
            BarColumn(),
            TaskProgressColumn(),
            TextColumn("{task.fields[left]}"),
            console=console,
            transient=True,
        )
        # Without a total, the bar pulses.
        self._task = self._bar.add_task(
            "", total=None, epoch=1, epochs=self._epochs, left="", figures="compiling"
        )

    def start(self, step: int) -> None:
        """Shows the bar."""
        epoch = step // self._steps_per_epoch + 1
        self._bar.update(self._task, completed=step, epoch=epoch)
        self._bar.start()

    def step(self, step: int, figures: dict[str, Any]) -> None:
        """Moves the bar."""
        epoch = (step - 1) // self._steps_per_epoch + 1
        self._move(step, epoch, {**figures, **self._measured})

    def epoch(self, row: dict[str, Any]) -> None:
        """Moves the bar; now and then leaves a line."""
        self._measured = {k: v for k, v in row.items() if k in _MEASURED}
        self._move(row["step"], row["epoch"], row)
        if row["epoch"] % self._lines_every == 0 or row["step"] == self._steps:
            super().epoch(row)

    def close(self) -> None:
        """Takes the bar away."""
        self._bar.stop()

    def _move(self, step: int, epoch: int, figures: dict[str, Any]) -> None:
        self._bar.update(
            self._task,
            refresh=True,  # an epoch may be over before the bar is drawn again
            total=self._steps,
            completed=step,
            epoch=epoch,
            left=self._left(step),
            figures=_joined(_figures(figures)),
        )


class _TwoRows(Progress):
    """The bar, and the figures below it, so that both fit 80 columns."""

    def get_renderables(self) -> Iterable[RenderableType]:
        yield from super().get_renderables()
        for task in self.tasks:
            yield Text(task.fields["figures"], no_wrap=True, overflow="ellipsis")


def reporter(console: Console, steps_per_epoch: int, steps: int) -> Reporter:
    """A bar on a terminal, plain lines elsewhere.

    Args:
      console: where it goes.
      steps_per_epoch: steps in an epoch.
      steps: steps of the whole run.
    """
    kind = Bar if console.is_terminal else Lines
    return kind(console, steps_per_epoch, steps)


_MEASURED = {
    "test_accuracy": "test {:.1%}",
    "validation_accuracy": "validation {:.1%}",
}
_FORMATS = {
    "train_loss": "loss {:.4g}",
    "train_accuracy": "train {:.1%}",
    **_MEASURED,
    "examples_per_second": "{:,.0f} examples/s",
}


def _figures(row: dict[str, Any]) -> list[str]:
    shown = [form.format(row[name]) for name, form in _FORMATS.items() if name in row]
    if "multiplier_min" in row:
        ends = [_rounded(row[f"multiplier_{end}"]) for end in ("min", "max")]
        shown.append(f"lr × {' to '.join(dict.fromkeys(ends))}")
    return shown


def _rounded(x: float) -> str:
    return f"{x:.2g}" if x < 99.5 else f"{x:.0f}"


def _joined(texts: Iterable[str]) -> str:
    return ", ".join(filter(None, texts))
