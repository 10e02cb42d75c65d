"""Which of two arms is sooner, on how many workloads, and whether that is chance."""

import dataclasses
import functools
import json
import math
import pathlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from benchmarks import curves, profiles, sweeps


@dataclasses.dataclass(frozen=True)
class Comparison:
    """A finished comparison, as it lies in its folder."""

    folder: pathlib.Path
    results: dict[str, Any]
    timings: dict[str, Any]

    @functools.cached_property
    def rows(self) -> dict[str, dict[str, Any]]:
        """The summary of each arm, by what it is called on all workloads."""
        names = profiles.labels(self.results)
        rows = curves.summary(self.results, self.timings)
        return {names[row["arm"]]: row for row in rows}

    @property
    def searches(self) -> list[dict[str, Any]]:
        """What was tried to tune its arms."""
        files = sorted(self.folder.glob("tuned/*.json"))
        return [json.loads(path.read_text()) for path in files]


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


def workload(comparison: Comparison) -> str:
    """The name of its workload, as Markdown."""
    return f"`{comparison.results['workload']}`"


def arm_name(label: str) -> str:
    """The label of an arm, as Markdown."""
    name, comma, rest = label.partition(", tuned")
    return f"`{name}`{comma}{rest}"


class Rivals(NamedTuple):
    """What the robust method around a backbone is measured against.

    Attributes:
      bare: the backbone.
      tuned: the same at a tuned constant learning rate.
      average: that, evaluated at averaged weights.
      sawtooth: the schedule without curvature.
      high: the same from the largest multiplier on that the method may take.
    """

    bare: str
    tuned: str
    average: str
    sawtooth: str
    high: str


RIVALS = {
    f"robust_{bare}": Rivals(
        bare,
        f"{bare}, tuned",
        f"{bare}+average, tuned",
        sawtooth,
        sweeps.high_control(f"robust_{bare}", sawtooth),
    )
    for bare, sawtooth in (
        ("sgd", "sawtooth_control"),
        ("adam", "sawtooth_adam_control"),
    )
}

# Keys of a summary that count epochs to where a backbone ends: by which series of a
# run, and what that is called.
MEASURES = {
    "epochs_to_backbone": ("accuracy", "accuracy"),
    "epochs_to_loss": ("train_loss", "training loss"),
}

# The epochs of two arms, seed by seed.
Pairs = list[tuple[float, float]]


def against(
    found: list[Comparison], ours: str, others: Sequence[str], key: str
) -> list[float]:
    """An arm's epochs over the best of others', where one of them gets there."""
    ratios = []
    for comparison in found:
        own = comparison.rows.get(ours, {}).get(key)
        best = _best_of(comparison, others, key)
        if own is not None and best is not None:
            ratios += _quotient(own, comparison.rows[best][key])
    return ratios


def _best_of(comparison: Comparison, arms: Sequence[str], key: str) -> str | None:
    """The arm with the fewest epochs in the mean; None if none was measured."""
    rows = comparison.rows
    known = [arm for arm in arms if rows.get(arm, {}).get(key) is not None]
    return min(known, key=lambda arm: rows[arm][key], default=None)


def _quotient(own: float, theirs: float) -> list[float]:
    """Epochs over others', if one of the two gets there: 0 if only the first does."""
    if math.isnan(own + theirs) or math.isinf(min(own, theirs)):
        return []
    return [0.0 if math.isinf(theirs) else own / theirs]


def by_seed(
    found: list[Comparison], ours: str, others: Sequence[str], key: str
) -> list[Pairs]:
    """Epochs of an arm and of the best of others, seed by seed, on each workload."""
    pairs, (measure, _) = [], MEASURES[key]
    for comparison in found:
        arms = {
            label: arm for arm, label in profiles.labels(comparison.results).items()
        }
        best = _best_of(comparison, others, key)
        if ours in arms and best is not None:
            own, theirs = (
                curves.epochs_to_backbone(comparison.results, arms[name], measure)
                for name in (ours, best)
            )
            both = [(own[seed], theirs[seed]) for seed in own if seed in theirs]
            pairs += [both] if both else []
    return pairs


def beyond_chance(
    found: list[Comparison], ours: str, other: str, key: str
) -> tuple[list[str], list[str]]:
    """Workloads on which an arm is sooner, and later, by more than seeds differ."""
    sooner, later = [], []
    for comparison in found:
        for pairs in by_seed([comparison], ours, (other,), key):
            sign = surely(pairs)
            if sign:
                (sooner if sign < 0 else later).append(workload(comparison))
    return sooner, later


def surely(pairs: Pairs) -> int:
    """The sign of a difference of pairs, 0 if its 95 % interval has both or misses."""
    change = curves.interval([own - theirs for own, theirs in pairs])
    if not abs(change.mean) > change.half:
        return 0
    return 1 if change.mean > 0 else -1


def redrawn(
    pairs: Iterable[Pairs], over: Callable[[list[float]], float], draws: int = 2000
) -> tuple[float, ...]:
    """The middle 95 % of a figure over ratios of means, of seeds drawn anew."""
    rng = np.random.default_rng(0)
    drawn: list[list[float]] = [[] for _ in range(draws)]
    for seeds in map(np.asarray, pairs):
        picks = rng.integers(len(seeds), size=(draws, len(seeds)))
        for each, means in zip(drawn, seeds[picks].mean(axis=1).tolist(), strict=True):
            each += _quotient(*means)
    values = sorted(over(each) for each in drawn if each)
    if not values:
        return ()
    return tuple(values[round(q * (len(values) - 1))] for q in (0.025, 0.975))


def times(ratio: float) -> str:
    """A ratio as text."""
    return "∞" if math.isinf(ratio) else f"{ratio:.2f}"
