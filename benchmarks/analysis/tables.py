"""Tables of a comparison, for a terminal and for Markdown."""

import math
import statistics
import textwrap
from collections.abc import Iterable
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.table import Table

from benchmarks import paper, specs
from benchmarks.analysis import curves

Row = dict[str, str]

# What stands for a figure that there is not.
NOTHING = "–"

# What the terms of a comparison's table mean, in the order of its caption.
_MEANINGS = {
    "∞": "∞: a seed never reached the target.",
    "fell back": "Fell back: seeds that were below it again later.",
    "saved on": "Saved: epochs to the target, in % of the baseline's.",
    "saved on backbone": "Backbone: the bare optimizer at the same learning rate.",
    "saved on tuned": "Tuned: the bare optimizer at a tuned learning rate.",
    "saved on control": "Control: a schedule without curvature.",
    "never": "Never: only the baseline gets there.",
    "other never": "Other never: the baseline does not get there.",
    "epochs to own end": "Own end: within 5 % of a run's own last accuracy.",
    "evidence": "Evidence: share of coordinates whose curvature was seen.",
    "γ at λ_min": "γ at λ_min: how often the clamp, not curvature, set the rate.",
}


def legend(rows: list[Row]) -> str:
    """What the terms in the rows of a comparison's table mean."""
    shown = [text for row in rows for pair in row.items() for text in pair]
    return " ".join(
        meaning
        for term, meaning in _MEANINGS.items()
        if any(text.startswith(term) for text in shown)
    )


def markdown(rows: Iterable[dict[str, Any]], texts: int = 1) -> str:
    """A Markdown table of rows with the same keys, the first of them texts."""
    rows = list(rows)
    lines = [
        "| " + " | ".join(rows[0]) + " |",
        "|" + "---|" * texts + "---:|" * (len(rows[0]) - texts),
        *("| " + " | ".join(map(str, row.values())) + " |" for row in rows),
    ]
    return "\n".join(lines)


def terminal(rows: Iterable[dict[str, Any]], title: str, texts: int = 1) -> Table:
    """A table to print of rows with the same keys, the first of them texts."""
    rows = list(rows)
    table = Table(
        title=title,
        title_justify="left",
        box=SIMPLE_HEAD,
        pad_edge=False,
        collapse_padding=True,
    )
    for i, name in enumerate(rows[0]):
        # Titles are broken before short texts are.
        longest = max(len(str(row[name])) for row in rows)
        broken = textwrap.fill(name, max(longest, 9), break_long_words=False)
        if i < texts:
            table.add_column(broken, overflow="fold", no_wrap=longest <= 13)
        else:
            table.add_column(broken, justify="right")
    for row in rows:
        table.add_row(*map(str, row.values()))
    return table


def comparison(
    results: dict[str, Any], timings: dict[str, Any] | None = None
) -> list[Row]:
    """The cells of a comparison's table: ours, and the paper's where it has some.

    Args:
      results: the comparison.
      timings: its times, if they are wanted.

    Returns:
      One row an arm, all with the same keys; columns with nothing in them are left out.
    """
    threshold = 100 * curves.cutoff(results)
    numbers = paper.NUMBERS.get(results["workload"], paper.Numbers())
    theirs = {
        "paper: best, %": (numbers.best, 2),
        f"paper: epochs to {numbers.cutoff} %": (numbers.epochs_to_cutoff, 1),
        "paper: epochs to own end": (numbers.epochs_to_final, 1),
        "paper: training accuracy, %": (numbers.train_accuracy, 2),
        "paper: seconds to cutoff": (numbers.seconds_to_cutoff, 0),
    }
    rows = []
    for row in curves.summary(results, timings):
        name, seeds = row["arm"], row["seeds"]
        cells = {
            "arm": name,
            "best, %": _plus_minus(row, "best", 1, scale=100),
            f"epochs to {threshold:.1f} %": _plus_minus(row, "epochs_to_cutoff", 1)
            + (f" ({row['missed']} of {seeds} missed)" if row["missed"] else ""),
            "fell back": _count(row["fell_back"], seeds),
            "diverged": _count(row["diverged"], seeds),
            "saved on backbone": _saving(row["saved_backbone"]),
            "saved on tuned": _saving(row["saved_tuned"]),
            "saved on control": _saving(row["saved_control"]),
            "epochs to own end": _plus_minus(row, "epochs_to_final", 1),
            "evidence": share(row["evidence"]),
            "γ at λ_min": share(row["at_minimum"]),
            "seconds to cutoff": _plus_minus(row, "seconds_to_cutoff", 1),
            "seconds an epoch": _plus_minus(row, "seconds_per_epoch", 2),
            "compilation, s": _interval(
                row["compile_seconds"] or math.nan, math.nan, 1
            ),
        }
        for title, (column, digits) in theirs.items():
            found = column.get(name)
            cells[title] = (
                _interval(found.mean, found.half, digits) if found else NOTHING
            )
        rows.append(cells)
    return _filled(rows)


def _filled(rows: list[Row]) -> list[Row]:
    used = [key for key in rows[0] if any(row[key] != NOTHING for row in rows)]
    return [{key: row[key] for key in used} for row in rows]


def progress(results: dict[str, Any]) -> list[Row]:
    """How far each arm is after a few epochs, for somebody who is new to all this.

    Args:
      results: the comparison.

    Returns:
      One row an arm: what it is made of, mean accuracies in %, and epochs to the
      target, ∞ if a seed never gets there.
    """
    last = results["epochs"]
    shown = sorted({1, min(3, last), last})
    target = f"epochs to {100 * curves.cutoff(results):.1f} %"
    epochs = curves.epochs_to_cutoff(results)

    def accuracy(runs: list[dict[str, Any]], epoch: int) -> str:
        if not runs or any(len(run["accuracy"]) < epoch for run in runs):
            return "diverged" if runs else NOTHING
        return f"{100 * statistics.fmean(r['accuracy'][epoch - 1] for r in runs):.1f}"

    return [
        {
            "optimizer": specs.parts(name).optimizer,
            "learning rate": f"{arm['options']['learning_rate']:g}",
            "wrapped by": specs.parts(name).wrapper or NOTHING,
            **{f"{n} epoch{'s' * (n > 1)}": accuracy(arm["runs"], n) for n in shown},
            target: _interval(curves.interval(epochs[name]).mean, math.nan, 1),
        }
        for name, arm in results["arms"].items()
    ]


def progress_caption(results: dict[str, Any]) -> str:
    """What the numbers of :func:`progress` are."""
    seeds = len(results["seeds"])
    return (
        f"{results['description']}.\n"
        f"{'Means of ' * (seeds > 1)}{seeds} seed{'s' * (seeds > 1)}. The target, "
        f"{100 * curves.cutoff(results):.1f} %, is 5 % below the best accuracy of all. "
        "∞: a seed never got there."
    )


def caption(results: dict[str, Any], rows: list[Row]) -> str:
    """What the numbers of a comparison's table are, and what they mean.

    Args:
      results: the comparison.
      rows: the table's rows, whose terms are explained.

    Returns:
      The text below the table.
    """
    return f"{setting(results)} {legend(rows)}".rstrip()


def setting(results: dict[str, Any]) -> str:
    """What the numbers of a comparison's table are."""
    seeds = len(results["seeds"])
    threshold = 100 * curves.cutoff(results)
    return (
        f"{results['description']}. {results['part'].capitalize()} accuracy of {seeds} "
        f"seed{'s' if seeds > 1 else ''}; {results['epochs']} epochs of "
        f"{results['steps_per_epoch']} steps with batches of {results['batch_size']}. "
        f"Means{' ± 95 % intervals' if seeds > 1 else ''}. The target "
        f"{threshold:.1f} % is 5 % below the best arm's accuracy."
    )


def _plus_minus(row: dict[str, Any], key: str, digits: int, scale: float = 1) -> str:
    mean, half = (
        math.nan if row[name] is None else scale * row[name]
        for name in (key, f"{key}_half")
    )
    return _interval(mean, half, digits)


def _interval(mean: float, half: float, digits: int) -> str:
    if math.isnan(mean):
        return NOTHING
    if math.isinf(mean):
        return "∞"
    return f"{mean:.{digits}f}" + ("" if math.isnan(half) else f" ± {half:.{digits}f}")


def _count(number: int, seeds: int) -> str:
    return f"{number} of {seeds}" if number else NOTHING


def share(value: float | None) -> str:
    """A share in %."""
    return NOTHING if value is None else f"{100 * value:.0f} %"


def _saving(value: float | None) -> str:
    if value is None:
        return NOTHING
    if math.isinf(value):
        return "other never" if value > 0 else "never"
    return f"{value:z.1f} %".replace("-", "−")
