"""RESULTS.md: what the committed comparisons answer, each answer with its table."""

import json
import math
import pathlib
from collections.abc import Callable
from typing import Any, NamedTuple

from benchmarks import curves, paper, tables

INTRODUCTION = """# Results

Every number on this page is made from the files under `benchmarks/results/` by
`python -m benchmarks report`. All runs are CPU-size workloads on two cores; none is of
the paper's size. Arms without an `@` have the paper's settings, peers ordinary ones
that nobody tuned. Arms with an `@` were tuned: each got the same number of trials,
chosen on a validation part that is not the test set. A miss counts as ∞.
"""


class Comparison(NamedTuple):
    """A finished comparison, as it lies in its folder."""

    folder: pathlib.Path
    results: dict[str, Any]
    timings: dict[str, Any]

    @property
    def rows(self) -> dict[str, dict[str, Any]]:
        """The summary of each arm."""
        return {r["arm"]: r for r in curves.summary(self.results, self.timings)}


def read(folder: pathlib.Path) -> list[Comparison]:
    """The comparisons in a folder, by name."""
    return [
        Comparison(
            path.parent,
            json.loads(path.read_text()),
            json.loads((path.parent / "timings.json").read_text()),
        )
        for path in sorted(folder.glob("*/results.json"))
    ]


def page(results: pathlib.Path) -> str:
    """The text of RESULTS.md.

    Args:
      results: the folder ``benchmarks/results``.

    Returns:
      Markdown, with pictures by paths relative to ``benchmarks``.
    """
    found = read(results / "compare")
    ablations = read(results / "ablate")
    sections = [
        INTRODUCTION,
        _question(
            "Does literal CT-AGD save epochs against its backbone?",
            found,
            ("ct_sgd", "ct_adam"),
            "saved_backbone",
        ),
        _question(
            "Against a tuned backbone?", found, ("ct_sgd", "ct_adam"), "saved_tuned"
        ),
        _question(
            "Against the schedule without curvature?",
            found,
            ("ct_sgd", "ct_sgd_no_correction"),
            "saved_control",
        ),
        _trust(found),
        _ingredients(ablations),
        _cost(found, results / "overhead.json"),
        "## The comparisons\n",
        *(_comparison(c, results.parent) for c in found),
    ]
    return "\n".join(sections)


def _question(
    title: str, found: list[Comparison], arms: tuple[str, ...], key: str
) -> str:
    """One table of savings, and how often the answer is yes."""
    rows, values = [], []
    for comparison in found:
        row = {"workload": f"`{comparison.results['workload']}`"}
        for arm in arms:
            saved = comparison.rows.get(arm, {}).get(key)
            if saved is not None:
                values.append(saved)
            row[f"`{arm}`"] = tables.saving(saved)
        rows.append(row)
    yes = sum(value > 0 for value in values)
    never = sum(value == -math.inf for value in values)
    answer = (
        f"In {yes} of {len(values)} comparisons; in {never} the reference arrives at "
        "the cutoff and CT-AGD never does."
        if values
        else "Not measured."
    )
    return f"## {title}\n\n{answer}\n\n{tables.markdown(rows)}\n"


def _each(
    found: list[Comparison], cells: Callable[[dict[str, dict[str, Any]]], dict]
) -> str:
    return tables.markdown(
        {"workload": f"`{c.results['workload']}`", **cells(c.rows)} for c in found
    )


def _trust(found: list[Comparison]) -> str:
    def cells(rows):
        return {
            f"`{arm}`: {title}": tables.share(rows.get(arm, {}).get(key))
            for arm in ("ct_sgd", "ct_adam")
            for title, key in (("evidence", "evidence"), ("γ at λ_min", "at_minimum"))
        }

    return (
        "## How often is γ at λ_min, and how much evidence is there?\n\n"
        "Evidence is the share of coordinates that moved by more than ε in some step "
        "of an epoch; where γ is at λ_min, the clamp set the learning rate, not "
        "curvature. Means over tensors, epochs and seeds.\n\n"
        f"{_each(found, cells)}\n"
    )


def _ingredients(ablations: list[Comparison]) -> str:
    parts = ["## What does each ingredient contribute?\n"]
    if not ablations:
        parts.append("Not measured yet.\n")
    theirs = {entry.optimizer: entry for entry in paper.ABLATIONS}
    for comparison in ablations:
        rows = []
        for name, row in comparison.rows.items():
            number = theirs.get(name)
            rows.append(
                {
                    "arm": f"`{name}`",
                    "best, %": tables.plus_minus(row, "best", 1, scale=100),
                    "epochs to cutoff": tables.plus_minus(row, "epochs_to_cutoff", 1),
                    "epochs to own end": tables.plus_minus(row, "epochs_to_final", 1),
                    "evidence": tables.share(row["evidence"]),
                    "γ at λ_min": tables.share(row["at_minimum"]),
                    "paper: best, %": str(number.best) if number else "–",
                    "paper: epochs to own end": (
                        str(number.epochs_to_final) if number else "–"
                    ),
                }
            )
        parts += [
            f"{tables.caption(comparison.results)}\n",
            "The paper's columns are of ResNet-20 on CIFAR-10.\n",
            f"{tables.markdown(rows)}\n",
        ]
    return "\n".join(parts)


def _cost(found: list[Comparison], overhead: pathlib.Path) -> str:
    memory = json.loads(overhead.read_text())["memory"]
    [added] = [
        row["state bytes per parameter"]
        for row in memory
        if row["options"] == "defaults"
    ]

    def cells(rows):
        made = {}
        for arm, backbone in (("ct_sgd", "sgd"), ("ct_adam", "adam")):
            ours, bare = (
                rows.get(name, {}).get("seconds_per_epoch") for name in (arm, backbone)
            )
            known = ours is not None and bare is not None
            made[f"`{arm}` over `{backbone}`"] = (
                f"{100 * (ours / bare - 1):+.0f} %" if known else "–"
            )
            seconds = rows.get(arm, {}).get("compile_seconds")
            made[f"`{arm}`: compilation"] = f"{seconds:.0f} s" if seconds else "–"
        return made

    return (
        "## What does it cost?\n\n"
        "Time of an epoch over that of the bare backbone; the paper says about 9 %. "
        "Two runs at once on two cores, so take single figures with care; a small "
        "network makes the optimizer's share large. Compilation is on one core. CT-AGD "
        f"adds {added:g} bytes of state per float32 parameter, five vectors where the "
        f"paper counts four.\n\n{_each(found, cells)}\n"
    )


def _comparison(comparison: Comparison, base: pathlib.Path) -> str:
    name = comparison.results["workload"]
    rows = tables.comparison(comparison.results, comparison.timings)
    picture = (comparison.folder / "curves.png").relative_to(base).as_posix()
    return (
        f"### {name}\n\n{tables.caption(comparison.results)}\n\n"
        f"![Accuracy by epoch of every arm on {name}]({picture})\n\n"
        f"{tables.markdown(rows)}\n"
    )
