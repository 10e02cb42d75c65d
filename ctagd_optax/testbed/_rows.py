"""A row of the table, and rows as text, Markdown and JSON."""

import dataclasses
import math
from typing import Any

import numpy as np

from ctagd_optax.testbed._paper import (
    PAPER_FAILURES,
    PAPER_NUMBERS,
    PAPER_RUNS,
    agree,
)
from ctagd_optax.testbed._result import Interval, Result
from ctagd_optax.testbed._tuning import Trial

SETTINGS = ("drifting", "stationary")

# Least share of converged runs for which a mean is compared: the paper's own least.
_COMPARABLE = 12 / 15
_SIGNS = {True: "=", False: "≠", None: "?"}


@dataclasses.dataclass(frozen=True)
class Row:
    """One optimizer in one setting.

    Attributes:
      result: all its runs.
      setting: "drifting" or "stationary".
      trials: the learning-rate search; empty for the paper's rate.
    """

    result: Result
    setting: str
    trials: tuple[Trial, ...]

    @property
    def name(self) -> str:
        """The optimizer."""
        return self.result.name

    @property
    def paper(self) -> dict[str, Interval]:
        """The paper's numbers; empty where it has none."""
        return PAPER_NUMBERS.get(self.name, {}).get(self.setting, {})

    @property
    def ours(self) -> dict[str, Interval]:
        """Our numbers over the runs that converged."""
        result = self.result
        ours = {
            "final": result.interval(result.final),
            "steps": result.interval(result.steps),
        }
        if self.setting == "drifting":
            ours["gap"] = result.interval(result.gap)
        return ours

    def count(self, status: str) -> int:
        """Runs that ended this way."""
        return int(np.sum(self.result.status == status))

    @property
    def failures(self) -> int:
        """Runs that did not converge."""
        return self.result.runs - self.count("converged")

    @property
    def seconds_per_run(self) -> float:
        """Wall time of a run within its batch, without compilation."""
        return self.result.seconds / self.result.runs

    def agreement(self) -> dict[str, bool | None]:
        """For each number the paper has: whether ours is the same up to chance.

        None where too many runs failed: what is left is not a mean over landscapes.
        """
        enough = self.count("converged") >= _COMPARABLE * self.result.runs
        return {
            key: agree(value, self.paper[key]) if enough else None
            for key, value in self.ours.items()
            if key in self.paper
        }


def markdown(data: dict[str, Any]) -> str:
    """The rows of :meth:`Table.to_json` as a Markdown table, for a README.

    Args:
      data: what ``table --json`` wrote.

    Returns:
      The table; the paper's numbers are in brackets.

    Examples:
      >>> from ctagd_optax import testbed
      >>> table = testbed.make_table(runs=2, mode="paper", optimizers=["newton"])
      >>> len(testbed.markdown(table.to_json()).splitlines())
      4
    """

    def cell(row: dict[str, Any], key: str) -> str:
        texts = []
        for source in ("ours", "paper"):
            value = row[source].get(key)
            if value is not None:
                mean, half = (
                    math.nan if x is None else x for x in (value["mean"], value["half"])
                )
                texts.append(str(Interval(mean, half)))
        return texts[0] + (f" ({texts[1]})" if len(texts) > 1 else "")

    keys = ("final", "steps", "gap")
    lines = [
        "| setting | optimizer | rate | final value | steps | gap | failed |",
        "|---|---|---|---|---|---|---|",
    ]
    for setting in SETTINGS:
        for row in data["rows"]:
            if row["setting"] != setting:
                continue
            cells = [cell(row, key) if key in row["ours"] else "" for key in keys]
            failed = row["diverged"] + row["unsettled"]
            lines.append(
                f"| {setting} | {row['optimizer']} | {row['learning_rate']:g} | "
                f"{' | '.join(cells)} | {failed} of {data['runs']} |"
            )
    return "\n".join(lines)


def section(title: str, rows: list[Row], keys: tuple[str, ...]) -> str:
    """Rows as aligned text, each with the paper's numbers below it."""
    cells: list[tuple[str, ...]] = [("optimizer", "rate", *keys, "failed", "s/run")]
    for row in rows:
        ours = row.ours
        cells.append(
            (
                row.name,
                f"{row.result.learning_rate:g}",
                *(str(ours[key]) for key in keys),
                _failures(row),
                f"{row.seconds_per_run:.4f}",
            )
        )
        if row.paper:
            paper, same = row.paper, row.agreement()
            failed = PAPER_FAILURES.get((row.name, row.setting), 0)
            cells.append(
                (
                    "  paper",
                    "",
                    *(f"{paper[k]} {_SIGNS[same[k]]}" for k in keys),
                    f"{failed} of {PAPER_RUNS}",
                    f"{paper['seconds'].mean:.2f}" if "seconds" in paper else "",
                )
            )
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = []
    for cell in cells:
        texts = []
        for i, (text, width) in enumerate(zip(cell, widths, strict=True)):
            if 2 <= i < 2 + len(keys):
                # Signs hang in the margin, so that numbers line up.
                hang = text if text.endswith((" =", " ≠", " ?")) else text + "  "
                texts.append(hang.rjust(width + 2))
            else:
                texts.append(text.ljust(width) if i == 0 else text.rjust(width))
        lines.append("  ".join(texts).rstrip())
    lines.insert(1, "─" * max(map(len, lines)))
    return "\n".join([title, *lines])


def _failures(row: Row) -> str:
    text = f"{row.failures} of {row.result.runs}"
    if diverged := row.count("diverged"):
        text += f" ({diverged} diverged)"
    return text


def row_json(row: Row) -> dict[str, Any]:
    """A row as JSON data, run by run."""
    result = row.result
    return {
        "optimizer": row.name,
        "setting": row.setting,
        "learning_rate": result.learning_rate,
        "ours": _intervals_json(row.ours),
        "paper": _intervals_json(row.paper),
        "agrees": row.agreement(),
        "converged": row.count("converged"),
        "diverged": row.count("diverged"),
        "unsettled": row.count("unsettled"),
        "seconds_per_run": row.seconds_per_run,
        "trials": [dataclasses.asdict(trial) for trial in row.trials],
        "per_run": {
            "final": [_number(x) for x in result.final],
            "gap": [_number(x) for x in result.gap],
            "steps": result.steps.tolist(),
            "status": result.status.tolist(),
        },
    }


def _intervals_json(intervals: dict[str, Interval]) -> dict[str, Any]:
    return {
        key: {"mean": _number(value.mean), "half": _number(value.half)}
        for key, value in intervals.items()
    }


def _number(x: float) -> float | None:
    return round(float(x), 6) if math.isfinite(x) else None
