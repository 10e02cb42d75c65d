"""The goals that were set for the robust method, and what was reached."""

import collections
import json
import math
import pathlib
import statistics
from collections.abc import Iterator
from typing import Any, NamedTuple

from benchmarks import contests, corrections, curves, overhead, sweeps, tables

_BELOW_ONE = math.nextafter(1.0, 0)
_ANSWERS = ("yes", "yes, within chance", "no, within chance", "no")


class Goal(NamedTuple):
    """Something we set out to reach with the robust method.

    Attributes:
      goal: what.
      of: the arm or setting.
      value: what was measured.
      limit: what it must be, at most.
      shown: the value as text, if not as a ratio.
      interval: the least and the most that other seeds might give, if known.
      control: the value of a control, as text.
    """

    goal: str
    of: str
    value: float
    limit: float
    shown: str | None = None
    interval: tuple[float, ...] = ()
    control: str = tables.NOTHING


def section(found: list[contests.Comparison], results: pathlib.Path) -> str:
    """The section of RESULTS.md on the goals.

    Args:
      found: the comparisons.
      results: the folder ``benchmarks/results``.

    Returns:
      Markdown; nothing if nothing was measured.
    """
    cost = list(_goals_of_cost(json.loads((results / "overhead.json").read_text())))
    goals = [*_goals_of_speed(found), *_goals_of_safety(results)]
    rows = [
        {
            "goal": goal.goal,
            "of": goal.of,
            "measured": contests.times(goal.value)
            if goal.shown is None
            else goal.shown,
            "met": _met(goal),
            "other seeds": " to ".join(map(contests.times, goal.interval))
            or tables.NOTHING,
            "control": goal.control,
        }
        for goal in (*goals, *cost)
    ]
    if not rows:
        return ""
    counts = collections.Counter(map(_met, goals))
    answers = "; ".join(f"{counts[x]} {x}" for x in _ANSWERS if counts[x])
    cheap = sum(_met(goal) == "yes" for goal in cost)
    return (
        "## Which of its goals does the robust method reach?\n\n"
        f"Of {len(goals)} goals of speed and safety: {answers}. Of {len(cost)} goals "
        f"of cost: {cheap} yes. Epochs are those to where the bare backbone ends, by "
        "test accuracy within 1 % or by training loss; ∞: a seed does not get there. A "
        "constant rate is the better of bare and tuned: tuned for accuracy, on one "
        "seed and for part of the epochs, a rate may be slower than the one it came "
        f"from.\n\n{tables.markdown(rows, texts=2)}\n\n"
        "- **Other seeds**: 95 % of what comes out if the seeds of each workload, or "
        "cell, are drawn anew from those that were run. Of so few seeds such intervals "
        "are rather too narrow. *Within chance*: the goal lies in the interval.\n"
        "- **Control**: the same figure of the sawtooth, which starts every epoch at "
        "ten times the rate. In the sweeps, for epochs, that of the backbone at a "
        "thousandth more than its own rate, so of chance; for broken runs, those of "
        "each control of the sweep. A run is broken if its loss is not "
        "finite, or if it ends with less than half of the test set right.\n"
    )


def _met(goal: Goal) -> str:
    """Whether a goal is met, and whether other seeds might say otherwise."""
    met = goal.value <= goal.limit
    sure = not goal.interval or all((x <= goal.limit) == met for x in goal.interval)
    return f"{'yes' if met else 'no'}{'' if sure else ', within chance'}"


def _goals_of_speed(found: list[contests.Comparison]) -> Iterator[Goal]:
    for ours, rivals in contests.RIVALS.items():
        constant = (rivals.bare, rivals.tuned)
        for key, (_, title) in contests.MEASURES.items():
            for others, goal, limit, over in (
                ((rivals.bare,), "at most 0.5 × bare, median", 0.5, statistics.median),
                ((rivals.bare,), "at most 1.05 × bare, worst", 1.05, max),
                (constant, "at most 1 × a constant rate, median", 1, statistics.median),
                (constant, "at most 1.25 × a constant rate, worst", 1.25, max),
            ):
                ratios = contests.against(found, ours, others, key)
                controls = contests.against(found, rivals.sawtooth, others, key)
                if ratios:
                    yield Goal(
                        f"{goal}, by {title}",
                        contests.arm_name(ours),
                        over(ratios),
                        limit,
                        interval=contests.redrawn(
                            contests.by_seed(found, ours, others, key), over
                        ),
                        control=contests.times(over(controls))
                        if controls
                        else tables.NOTHING,
                    )
    for ours, rivals in contests.RIVALS.items():
        for key, (_, title) in contests.MEASURES.items():
            for other in (rivals.sawtooth, rivals.high):
                ratios = contests.against(found, ours, (other,), key)
                if ratios:
                    yield Goal(
                        f"sooner than {contests.arm_name(other)}, median, by {title}",
                        contests.arm_name(ours),
                        statistics.median(ratios),
                        _BELOW_ONE,
                        interval=contests.redrawn(
                            contests.by_seed(found, ours, (other,), key),
                            statistics.median,
                        ),
                    )


def _goals_of_safety(results: pathlib.Path) -> Iterator[Goal]:
    for path in sorted(results.glob("sweep/*/*/sweep.json")):
        sweep = json.loads(path.read_text())
        if (
            sweep["method"] not in contests.RIVALS
        ):  # a variant, which has no goals of its own
            continue
        of = f"`{sweep['method']}`, {len(sweep['cells'])} cells of its sweep"
        if not sweeps.ratios(sweep):  # the backbone diverges everywhere
            continue
        yield Goal(
            "at most 1.05 × bare, worst",
            of,
            max(sweeps.ratios(sweep)),
            1.05,
            interval=contests.redrawn(sweeps.by_seed(sweep), max),
            control=contests.times(
                max(sweeps.ratios(sweep, "chance"), default=math.nan)
            ),
        )
        controls = [what for what in sweeps.CONTROLS if sweeps.has(sweep, what)]
        for what in controls:
            yield Goal(
                f"sooner than the {what}, median cell",
                of,
                statistics.median(sweeps.ratios(sweep, over=what)),
                _BELOW_ONE,
                interval=contests.redrawn(
                    sweeps.by_seed(sweep, over=what), statistics.median
                ),
            )
        more = sweeps.broken(sweep, "method")
        yield Goal(
            "no run broken where bare is not",
            of,
            more,
            0,
            str(more),
            control=", ".join(str(sweeps.broken(sweep, what)) for what in controls),
        )
    for path in sorted(results.glob("corrections/*.json")):
        yield from _goals_of_correction(json.loads(path.read_text()))


def _goals_of_correction(found: dict[str, Any]) -> Iterator[Goal]:
    """That a default correction does no harm, at any learning rate."""
    sizes = found["changes"].values()
    for arm in dict.fromkeys(arm for each in sizes for arm in each):
        values = corrections.pooled(
            [seed for each in sizes for seed in each.get(arm, ())]
        )
        if curves.kind(arm) not in contests.RIVALS or ":" in arm or not values:
            continue
        made = sum(x != 0 for x in values)
        of = f"`{arm}` on `{found['workload']}`, made in {made} of {len(values)} epochs"
        often, worst = statistics.fmean(x > 0 for x in values), max(values)
        for goal, value, limit in (
            ("correction raises the loss in under 5 % of epochs", often, 0.05),
            ("correction raises the loss by under 0.5 %", worst, 0.005),
        ):
            # Below, not at, the limit.
            below = math.nextafter(limit, 0)
            yield Goal(goal, of, value, below, f"{100 * value:.2g} %")


def _goals_of_cost(measured: dict[str, Any]) -> Iterator[Goal]:
    state = {
        row["options"]: row["state bytes per parameter"] / 4
        for row in measured["memory"]
    }
    for options, limit in (
        ('robust_ct_agd, correction="none"', 2),
        ("robust_ct_agd", 5),
    ):
        if options in state:
            goal = f"at most {limit} vectors of state"
            vectors = state[options]
            yield Goal(goal, f"`{options}`", vectors, limit, f"{vectors:g}")
    for size, entry in measured.get("steps", {}).items():
        milliseconds = entry["milliseconds"]
        alone = "robust_ct_agd(sgd), no correction"
        for arm, value in (
            # CIFAR-10 and digits in the paper's batches.
            *(
                (
                    f"`robust_ct_agd(sgd)`, mean of {steps} steps",
                    overhead.mean_of_epoch(milliseconds, steps),
                )
                for steps in (390, 24)
            ),
            (f"`{alone}`", milliseconds[alone]),
        ):
            ratio = value / milliseconds["ct_agd(sgd)"]
            goal, of = "a step at most 1.2 × literal CT-AGD's", f"{int(size):,}"
            yield Goal(goal, f"{arm}, {of} parameters", ratio, 1.2)
