"""Tables of a comparison, for a terminal and for Markdown."""

import math
from collections.abc import Iterable
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.table import Table

from benchmarks import curves, paper

Row = dict[str, str]

# What stands for a figure that there is not.
NOTHING = "–"

# What the terms of a comparison's table mean, in the order of its caption.
_CUTOFF = {
    "∞": "∞: a seed never reached the cutoff",
    "fell back": "fell back: seeds that were below it again later",
}
_AGAINST = {
    "saved on backbone": "the bare backbone",
    "saved on tuned": "the backbone with a tuned learning rate",
    "saved on control": "a control without curvature: of CT-AGD its schedule with the "
    "same settings, of the robust method the sawtooth",
}
_MISSES = {"never": "never", "other never": "other never"}
_OWN_END = {"epochs to own end": "Own end: within 5 % of a run's own last accuracy"}
_CURVATURE = {
    "evidence": "Evidence: share of coordinates whose curvature was seen",
    "γ at λ_min": "γ at λ_min: share of tensors and epochs in which the clamp, not "
    "curvature, set the rate",
}


def legend(rows: list[Row] | None = None) -> str:
    """What the terms in the rows of a comparison's table mean; None is all terms."""
    shown = [text for row in rows or [] for pair in row.items() for text in pair]

    def used(meanings: dict[str, str]) -> list[str]:
        return [
            meaning
            for term, meaning in meanings.items()
            if rows is None or any(text.startswith(term) for text in shown)
        ]

    saved = []
    if against := used(_AGAINST):
        saved.append(f"Saved: epochs to the cutoff, against {_listed(against)}")
    if misses := used(_MISSES):
        saved.append(f"{', '.join(misses)}: a seed of only one of the two misses")
    sentences = used(_CUTOFF), saved, used(_OWN_END), used(_CURVATURE)
    return " ".join(f"{'; '.join(clauses)}." for clauses in sentences if clauses)


def _listed(items: list[str]) -> str:
    *first, last = items
    return f"{', '.join(first)}, and {last}" if first else last


LEGEND = legend()


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
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    for i, name in enumerate(rows[0]):
        if i < texts:
            table.add_column(name, overflow="fold")
        else:
            table.add_column(name, justify="right")
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
            "best, %": plus_minus(row, "best", 1, scale=100),
            "refreshed, %": plus_minus(row, "refreshed_best", 1, scale=100),
            f"epochs to {threshold:.1f} %": plus_minus(row, "epochs_to_cutoff", 1)
            + (f" ({row['missed']} of {seeds} missed)" if row["missed"] else ""),
            "fell back": _count(row["fell_back"], seeds),
            "diverged": _count(row["diverged"], seeds),
            "saved on backbone": saving(row["saved_backbone"]),
            "saved on tuned": saving(row["saved_tuned"]),
            "saved on control": saving(row["saved_control"]),
            "epochs to own end": plus_minus(row, "epochs_to_final", 1),
            "evidence": share(row["evidence"]),
            "γ at λ_min": share(row["at_minimum"]),
            "seconds to cutoff": plus_minus(row, "seconds_to_cutoff", 1),
            "seconds an epoch": plus_minus(row, "seconds_per_epoch", 2),
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
    return filled(rows)


def filled(rows: list[Row]) -> list[Row]:
    """The rows without columns that have nothing in them."""
    used = [key for key in rows[0] if any(row[key] != NOTHING for row in rows)]
    return [{key: row[key] for key in used} for row in rows]


def brief(rows: list[Row]) -> list[Row]:
    """The columns of a comparison that fit a terminal."""
    kept = ("arm", "best", "epochs to", "saved on backbone", "evidence", "γ at")
    return [
        {k: v for k, v in row.items() if k.startswith(kept) and "own" not in k}
        for row in rows
    ]


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
        f"{results['description']}: {results['part']} accuracy over {seeds} "
        f"seed{'s' if seeds > 1 else ''}, {results['epochs']} epochs of "
        f"{results['steps_per_epoch']} steps of {results['batch_size']} examples. "
        f"Means{' ± 95 % intervals' if seeds > 1 else ''}. The cutoff "
        f"{threshold:.1f} % is 5 % below the best arm's accuracy."
    )


def plus_minus(row: dict[str, Any], key: str, digits: int, scale: float = 1) -> str:
    """A figure of a summary's row with its interval."""
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


def saving(value: float | None) -> str:
    """A saving in %; in words where one of the two never arrives."""
    if value is None:
        return NOTHING
    if math.isinf(value):
        return "other never" if value > 0 else "never"
    return f"{value:z.1f} %".replace("-", "−")
