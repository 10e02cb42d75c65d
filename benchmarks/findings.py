"""RESULTS.md: what the committed comparisons answer, each answer with its table."""

import json
import math
import pathlib
import re
import statistics
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from benchmarks import (
    contests,
    corrections,
    curves,
    experiments,
    goals,
    motion,
    optimizers,
    paper,
    plots,
    profiles,
    recipes,
    sweeps,
    tables,
)

INTRODUCTION = """# Results

Every table on this page is made from the files under `benchmarks/results/` by
`python -m benchmarks report`. How constants were chosen is told as it was; those runs
are not kept. All runs are of CPU-size workloads on two cores. None is
of the paper's size: [the recipes](#the-papers-tables-at-its-size-not-run-here) for that
are at the end.

- **Literal** CT-AGD is `ct_sgd` and `ct_adam` with the paper's settings, as are its
  backbones `sgd` and `adam`. The peers have ordinary settings that nobody tuned.
- **Tuned** arms have an `@` in their names. They are the best of the trials in the next
  table, by the best accuracy of one seed on validation data, never on the test set. So
  they are tuned for accuracy, not for speed, and with three trials the learning rates
  are a factor of 10 apart.
- **Controls** leave something of CT-AGD out: `schedule_control` has its schedule with γ
  at λ_min, without curvature; `ct_sgd_no_correction` has no step at the epoch's end.
- **BatchNorm**'s running statistics are stale after a correction, when accuracy is
  taken. On the two ResNets a part of what literal CT-AGD loses may be that.
- The **cutoff** of a workload is 5 % below the best arm's accuracy. A **saving** is of
  epochs to it, in % of the reference's epochs: means over seeds, ∞ where a seed never
  arrives; – where neither does, or there was no run. A case is one cell of a table.
  Seeds are few, so a small saving may be chance; the tables of the comparisons have
  the intervals.
"""

# What each ingredient of experiments.ABLATIONS is, and how CT-AGD has it by default.
INGREDIENTS = {
    "clamp": "bounds of the curvature; 0.01 and 100 by default",
    "noise": "Gaussian noise on every quotient; none by default",
    "annealing": "the way of γ to 1 within an epoch; linear by default",
    "weighting": "weights of the quotients in their mean; later ones count more by "
    "default",
    "quantile": "the quantile ω of a tensor's curvatures that is γ; 0.1 by default",
    "pairing": "the step that a change of gradient is divided by; the one of the "
    "paper's equations by default, that of its Algorithm 1 otherwise",
    "unobserved": "coordinates that never moved by more than ε; at λ_min by default, "
    "left out otherwise",
    "correction": "the step at the end of an epoch; its rate is 0.5 by default",
    "eps": "the least movement ε that counts as evidence; 0.001 by default",
}

# The same for those of experiments.ROBUST_ABLATIONS.
ROBUST_INGREDIENTS = {
    "rule": "our first rule, whose step length is that by the promise of a step's own "
    "gradient",
    "promise": "what a step's length is measured by: the descent that holds for the "
    "next batch by default, that by a step's own gradient otherwise",
    "target": "the step length to grow to, by its upper bound; 2 Newton steps by "
    "default",
    "aim": "what is to have the target's length when the multiplier first grows: the "
    "next epoch's first step by default, its mean step otherwise",
    "first epoch": "the multiplier follows the evidence within it by default; it waits "
    "for its end otherwise",
    "decay": "of the multiplier after epochs whose steps end uphill; to 0.9 of it by "
    "default, none otherwise",
    "floor": "the share of the learning rate to which epochs fall after one at no more "
    "than the backbone's own rate whose steps end uphill; 1, so no fall, by default",
    "largest multiplier": "of the learning rate; 20 by default",
    "pooling": "one step length for all tensors by default; one for each, or the "
    "geometric mean of the two decisions, otherwise",
    "standard error": "how many of them the decisions allow for, 1 by default; that of "
    "the curvature is taken by terms by default, by gradients otherwise",
    "evidence": "lasts for an epoch by default; for about 50 steps, as long as the "
    "multiplier stays, otherwise",
    "bolder": "a longer target, errors by gradients and evidence that lasts, together",
    "descent": "whether the gradient after a step must still point along it before "
    "steps grow; it must by default",
    "dead zone": "steps shorter than 2 grow up to the first clear epoch, later those "
    "shorter than 0.25, by default; below 0.5 and 1 otherwise",
    "annealing": "linear in the learning rate by default; linear in its divisor, or "
    "none, otherwise",
    "guard": "cuts the multiplier where gradients are large; on by default",
    "parts of an epoch": "in which steps are judged; 1 by default",
    "correction": "the step at the end of an epoch: back to the path's mean by "
    "default; none, or to the root of a line for each tensor or each coordinate, "
    "otherwise",
    "where": "the correction is made where the next multiplier is at most 1 by "
    "default; everywhere otherwise",
    "trust": "how many standard errors the fall of the loss on the way back must be "
    "above 0; 2 by default",
    "reach": "of the correction to a line's root, in standard deviations of a tensor's "
    "path; 0.5 by default",
    "samples": "steps that are samples for the correction, at most; 32 by default",
}

# The largest multiplier, so that the robust method's correction is always made.
_EVERYWHERE = "correction_multiplier_max=20"

# Multiples of the best arm's epochs, for the table of the profile.
_MULTIPLES = (1.0, 1.5, 2.0, 4.0)


def draw_profile(results: pathlib.Path) -> list[pathlib.Path]:
    """Draws the profile over all comparisons; returns the files.

    Args:
      results: the folder ``benchmarks/results``.
    """
    found, arms = _profiled(contests.read(results / "compare"))
    return plots.plot_profile(found, arms, results / "compare" / "profile")


def page(results: pathlib.Path) -> str:
    """The text of RESULTS.md.

    Args:
      results: the folder ``benchmarks/results``.

    Returns:
      Markdown, with pictures by paths relative to ``benchmarks``.
    """
    found = contests.read(results / "compare")
    ablations = contests.read(results / "ablate" / "ct_sgd")
    sections = [
        INTRODUCTION,
        _overview(found),
        _question(
            "Does literal CT-AGD save epochs against its backbone?",
            "",
            found,
            ("ct_sgd", "ct_adam"),
            "saved_backbone",
        ),
        _question(
            "Against a tuned backbone?",
            "",
            found,
            ("ct_sgd", "ct_adam"),
            "saved_tuned",
        ),
        _question(
            "Does tuned CT-AGD save epochs against a tuned backbone?",
            "The last column is a control without curvature: SGD at a constant tuned "
            "learning rate, evaluated at the mean of each epoch's weights.",
            found,
            ("ct_sgd, tuned", "ct_adam, tuned"),
            "saved_tuned",
            ("sgd+average, tuned",),
        ),
        _question(
            "Does literal CT-AGD save epochs against its schedule without curvature?",
            "The schedule has the literal settings, so tuned CT-AGD is not compared.",
            found,
            ("ct_sgd", "ct_sgd_no_correction"),
            "saved_control",
        ),
        _best(found),
        _ends(found),
        _profile(found, results),
        _trust(found),
        _ingredients(ablations),
        _cost(found, results / "overhead.json"),
        _robust(found),
        goals.section(found, results),
        _bolder(found, results),
        _settling(found, results),
        _sub_epochs(results),
        _sweeps(results / "sweep"),
        _robust_ingredients(contests.read(results / "ablate" / "robust_sgd")),
        _corrections(results / "corrections", found),
        _motion(results / "motion.json"),
        f"## The comparisons\n\n{tables.LEGEND}\n",
        *(_comparison(c, results.parent) for c in found),
        _recipes(results),
    ]
    return "\n".join(sections)


def _overview(found: list[contests.Comparison]) -> str:
    """What was run, and how much went into tuning."""
    rows = []
    for comparison in found:
        results, searches = comparison.results, comparison.searches
        rows.append(
            {
                "workload": contests.workload(comparison),
                "what": results["description"],
                "seeds": len(results["seeds"]),
                "epochs": results["epochs"],
                "arms": len(results["arms"]),
                "arms tuned": len(searches) or tables.NOTHING,
                "trials each": _all(len(search["trials"]) for search in searches),
                "epochs a trial": _all(search["epochs"] for search in searches),
            }
        )
    return (
        f"## What was run\n\n{tables.markdown(rows, texts=2)}\n\n"
        "Where there are fewer epochs than README.md has for a workload, they were cut "
        "for time, before anything was seen. L-BFGS, with its many gradients a step, "
        "was run on digits only.\n"
    )


def _all(values: Iterable[int]) -> str:
    """The value that all have, or the values that they have."""
    return ", ".join(map(str, sorted(set(values)))) or tables.NOTHING


def _question(
    title: str,
    remark: str,
    found: list[contests.Comparison],
    arms: tuple[str, ...],
    key: str,
    controls: tuple[str, ...] = (),
) -> str:
    """One table of savings, and how often the answer is yes; controls do not count."""
    rows, values = [], []
    for comparison in found:
        row, summary = {"workload": contests.workload(comparison)}, comparison.rows
        for arm in (*arms, *controls):
            saved = summary.get(arm, {}).get(key)
            if saved is not None and arm in arms:
                values.append(saved)
            row[contests.arm_name(arm)] = tables.saving(saved)
        rows.append(row)
    parts = [f"## {title}", _answer(values), remark, tables.markdown(rows)]
    return "\n\n".join(part for part in parts if part) + "\n"


def _answer(values: list[float]) -> str:
    if not values:
        return "Not measured."
    faster = sum(value > 0 for value in values)
    level = sum(value == 0 for value in values)
    never = sum(value == -math.inf for value in values)
    slower = len(values) - faster - level
    return (
        f"Faster in {faster} of {len(values)} case{'s' * (len(values) > 1)}, level in "
        f"{level}, slower in {slower}"
        + (f"; in {never} of these a seed never arrives." if never else ".")
    )


def _profiled(
    found: list[contests.Comparison],
) -> tuple[list[dict[str, Any]], list[str]]:
    """The comparisons under common labels, and the arms that all of them have."""
    # Those without CT-AGD are of the robust method and its rivals, few arms.
    whole = [c for c in found if "ct_sgd" in c.rows] or found
    comparisons = [profiles.relabelled(c.results) for c in whole]
    return comparisons, profiles.common_arms(comparisons)


def _profile(found: list[contests.Comparison], results: pathlib.Path) -> str:
    comparisons, arms = _profiled(found)
    shares = profiles.profile(comparisons, arms, (*_MULTIPLES, math.inf))
    rows = [
        {
            "arm": contests.arm_name(arm),
            **{
                f"within {multiple:g}×": tables.share(share)
                for multiple, share in zip(_MULTIPLES, shares[arm], strict=False)
            },
            "never": tables.share(1 - shares[arm][-1]),
        }
        for arm in sorted(arms, key=lambda arm: shares[arm], reverse=True)
    ]
    count = len(comparisons)
    picture = (results / "compare" / "profile.png").relative_to(results.parent)
    return (
        "## Which arm is fast on how many workloads?\n\n"
        f"Over {count} workload{'s' * (count > 1)}: the share on which an arm's epochs "
        "to the cutoff are within a multiple of the best of these arms'; within 1×, it "
        "is the best. Never: a seed does not arrive at all. Only arms that each of "
        "these workloads has are here. A tuned arm has its own options on each.\n\n"
        f"![Performance profiles of all arms]({picture.as_posix()})\n\n"
        f"{tables.markdown(rows)}\n"
    )


def _each(
    found: list[contests.Comparison], cells: Callable[[dict[str, dict[str, Any]]], dict]
) -> str:
    return tables.markdown(_cells(found, cells))


def _cells(
    found: list[contests.Comparison], cells: Callable[[dict[str, dict[str, Any]]], dict]
) -> list[dict[str, Any]]:
    return [{"workload": contests.workload(c), **cells(c.rows)} for c in found]


def _best(found: list[contests.Comparison]) -> str:
    def cells(rows):
        return {
            contests.arm_name(arm): tables.plus_minus(rows[arm], "best", 1, scale=100)
            if arm in rows
            else tables.NOTHING
            for arm in (
                "sgd",
                "ct_sgd",
                "ct_sgd_no_correction",
                "schedule_control",
                "sawtooth_control",
                "adam",
                "ct_adam",
            )
        }

    return (
        "## What accuracy do they reach?\n\n"
        "Best test accuracy in %, also where too few arms arrive at the cutoff to tell "
        f"savings.\n\n{tables.markdown(tables.filled(_cells(found, cells)))}\n"
    )


# Arms around each backbone, the bare one first.
_AROUND = {
    "SGD": (
        "sgd",
        "sgd, tuned",
        "sgd+average, tuned",
        "ct_sgd",
        "ct_sgd, tuned",
        "ct_sgd_no_correction",
        "schedule_control",
        "sawtooth_control",
        "robust_sgd",
        "robust_sgd:correction=none",
    ),
    "Adam": (
        "adam",
        "adam, tuned",
        "ct_adam",
        "ct_adam, tuned",
        "sawtooth_adam_control",
        "robust_adam",
    ),
}


def _epochs(found: list[contests.Comparison], arms: Iterable[str], key: str) -> str:
    """A table of epochs, ∞ where a seed never gets there."""

    def cells(rows):
        return {
            contests.arm_name(arm): tables.plus_minus(rows[arm], key, 1)
            if arm in rows
            else tables.NOTHING
            for arm in arms
        }

    return tables.markdown(tables.filled(_cells(found, cells)))


def _ends(found: list[contests.Comparison]) -> str:
    parts = [
        "## How soon are they where their bare backbone ends?\n",
        "Epochs to 1 % below the test accuracy at which the backbone, with the paper's "
        "settings and the same seed, ends. The bare backbone itself may have been "
        "there before. Other arms do not move this goal, as a very good one moves the "
        "cutoff. The 1 % is there so that one lucky last epoch decides less; on small "
        "test sets it is less than the standard error of an accuracy. The first epoch "
        "that gets there counts, whether or not the next falls back.\n",
    ]
    for backbone, arms in _AROUND.items():
        table = _epochs(found, arms, "epochs_to_backbone")
        parts.append(f"Around {backbone}:\n\n{table}\n")
    return "\n".join(parts)


def _trust(found: list[contests.Comparison]) -> str:
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


def _ingredients(ablations: list[contests.Comparison]) -> str:
    parts = ["## What does each ingredient contribute?\n"]
    if not ablations:
        parts.append("Not measured yet.\n")
    else:
        parts.append(
            "CT-AGD around SGD with one thing changed at a time, below CT-AGD as it "
            "is. The paper's columns are of ResNet-20 on CIFAR-10; it has several "
            "results for CT-AGD as it is. Its measure, epochs to a run's own end, "
            "flatters runs that end low.\n"
        )
    for comparison in ablations:
        rows = comparison.rows
        parts += [
            f"### Ablations on {comparison.results['workload']}\n",
            f"{tables.setting(comparison.results)}\n",
            f"{_effect(rows)}\n",
        ]
        for ingredient, specs in experiments.ABLATIONS.items():
            names = [optimizers.arm(spec).name for spec in specs]
            cells = [
                _ablation(ingredient, name, rows[name])
                for name in ("ct_sgd", *names)
                if name in rows
            ]
            parts += [
                f"**{ingredient.capitalize()}**: {INGREDIENTS[ingredient]}.\n",
                f"{tables.markdown(tables.filled(cells))}\n",
            ]
    return "\n".join(parts)


def _effect(rows: dict[str, dict[str, Any]]) -> str:
    """How CT-AGD as it is fares, and which changes do better."""
    whole, sgd = rows["ct_sgd"], rows["sgd"]
    changed = {n: row for n, row in rows.items() if n not in ("sgd", "ct_sgd")}
    better = [
        f"`{name}`"
        for name, row in changed.items()
        if row["epochs_to_cutoff"] < whole["epochs_to_cutoff"]
    ]
    return (
        f"SGD: {_reached(sgd)}. CT-AGD as it is: {_reached(whole)}. Of {len(changed)} "
        f"changes {len(better)} make{'s' * (len(better) == 1)} it arrive sooner"
        + (f": {', '.join(better)}." if better else ".")
    )


def _reached(row: dict[str, Any]) -> str:
    best = tables.plus_minus(row, "best", 1, scale=100)
    if row["missed"]:
        count = f"{row['missed']} of {row['seeds']}"
        return f"{best} % at best, and the cutoff missed by {count} seeds"
    return (
        f"{best} % at best, and the cutoff after "
        f"{tables.plus_minus(row, 'epochs_to_cutoff', 1)} epochs"
    )


def _ablation(ingredient: str, name: str, row: dict[str, Any]) -> dict[str, str]:
    theirs = {
        (kind, line.optimizer): line
        for line in paper.ABLATIONS
        for kind in line.ingredients
    }
    number = theirs.get((ingredient, name))
    return {
        "arm": f"`{name}`",
        "best, %": tables.plus_minus(row, "best", 1, scale=100),
        "epochs to cutoff": tables.plus_minus(row, "epochs_to_cutoff", 1),
        "epochs to own end": tables.plus_minus(row, "epochs_to_final", 1),
        "evidence": tables.share(row["evidence"]),
        "γ at λ_min": tables.share(row["at_minimum"]),
        "paper: best, %": str(number.best) if number else tables.NOTHING,
        "paper: epochs to own end": (
            str(number.epochs_to_final) if number else tables.NOTHING
        ),
    }


def _cost(found: list[contests.Comparison], overhead: pathlib.Path) -> str:
    memory = json.loads(overhead.read_text())["memory"]
    [added] = [
        row["state bytes per parameter"]
        for row in memory
        if row["options"] == "defaults"
    ]

    rows = []
    for comparison in found:
        row = {"workload": contests.workload(comparison)}
        timed = comparison.timings["arms"]
        for arm, backbone in (
            ("ct_sgd", "sgd"),
            ("ct_adam", "adam"),
            ("robust_sgd", "sgd"),
            ("robust_adam", "adam"),
        ):
            ours, bare = (
                curves.fastest_epoch(timed.get(name, ())) for name in (arm, backbone)
            )
            known = math.isfinite(ours) and math.isfinite(bare)
            row[f"`{arm}` over `{backbone}`"] = (
                f"{100 * (ours / bare - 1):+.0f} %".replace("-", "−")
                if known
                else tables.NOTHING
            )
        for arm in ("ct_sgd", "ct_adam"):
            seconds = comparison.rows.get(arm, {}).get("compile_seconds")
            row[f"`{arm}`: compilation"] = f"{seconds:.0f} s" if seconds else "–"
        rows.append(row)
    return (
        "## What does it cost?\n\n"
        "Time of an epoch over that of the bare backbone; the paper says about 9 %. Of "
        "each arm the fastest epoch counts, as other work ran on the same two cores "
        "and slowed the rest; what is left of that is noise of several percent, which "
        "can make a difference negative. Robust arms ran at other times than their "
        "backbones, so there it is tens of percent; README.md has what was measured "
        "side by side. A small network makes the optimizer's share large. Compilation "
        "is on one core. CT-AGD "
        f"adds {added:g} bytes of state per float32 parameter, five vectors where the "
        f"paper counts four.\n\n{tables.markdown(tables.filled(rows))}\n"
    )


def robust_table(
    found: list[contests.Comparison], key: str = "epochs_to_backbone"
) -> str:
    """Epochs of the robust method and of all that it is measured against.

    Args:
      found: the comparisons.
      key: of the rows of :func:`benchmarks.curves.summary`; by default epochs to where
        the bare backbone ends.

    Returns:
      Markdown.
    """
    parts = []
    for ours, others in contests.RIVALS.items():
        measured = [c for c in found if ours in c.rows]
        if measured:
            table = _epochs(measured, (*others, ours, f"{ours}:correction=none"), key)
            parts.append(f"Around `{others.bare}`:\n\n{table}")
    return "\n\n".join(parts) or "Not measured."


def _figure(of: Callable[[list[float]], float], ratios: list[float]) -> str:
    """A figure of some ratios, if there are any."""
    return contests.times(of(ratios)) if ratios else tables.NOTHING


def _ratios(found: list[contests.Comparison], key: str) -> str:
    """Epochs of the robust method over those of each rival: median and worst."""
    rows = []
    for ours, others in contests.RIVALS.items():
        for other in others:
            ratios = contests.against(found, ours, (other,), key)
            row = {
                "epochs of": contests.arm_name(ours),
                "over those of": contests.arm_name(other),
                "median": _figure(statistics.median, ratios),
                "worst": _figure(max, ratios),
                "sooner": f"{sum(r < 1 for r in ratios)} of {len(ratios)}",
                "later": f"{sum(r > 1 for r in ratios)} of {len(ratios)}",
            }
            if key in contests.MEASURES:
                sooner, later = contests.beyond_chance(found, ours, other, key)
                row["beyond chance"] = f"{len(sooner)} sooner, {len(later)} later"
            rows.append(row)
    return tables.markdown(rows, texts=2)


def _robust(found: list[contests.Comparison]) -> str:
    return (
        "## Does the robust method help?\n\n"
        "`robust_ct_agd` around SGD and Adam at the paper's learning rates, against "
        "the bare backbone, the same with a tuned constant learning rate, that "
        "evaluated at averaged weights, and the sawtooth, which knows nothing of "
        "curvature. An earlier rule, chosen by test accuracy on digits and on a "
        "Fashion-MNIST MLP, broke training in a cell of the sweep below. Its "
        "successor, and its constants, were chosen among some twenty variants by "
        "training loss and validation accuracy, on digits over learning rates and "
        "batch sizes, with SGD and Adam, and on four MLPs for Fashion-MNIST. That an "
        "epoch which told nothing does not use up the first decision came of a run on "
        "Cora, and that one which was clear does, of a run in the sweep that broke "
        "late. Then test curves of all workloads showed that the first epoch lost "
        "ground to the sawtooth. How m moves in it, and what the first decision aims "
        "at, was chosen among some twenty more variants, by accuracy on data set aside "
        "and by training loss of MLPs for digits and Fashion-MNIST, at five learning "
        "rates. So digits, the sweep included, and in part Fashion-MNIST flatter it; "
        "no other workload had a part in any constant, but all had been seen before. "
        "The correction, too, was chosen on MLPs for digits and Fashion-MNIST, by "
        "accuracy on data set aside and by what it does to the training loss: once "
        "among some twenty ways to follow a fitted line, then, as the best of those "
        "did next to nothing, among some ten ways to go back to the path's mean. That "
        "it is made only where m is at most 1 came of the measure below, in which "
        "nearly all rises were where m was above, and of the same MLPs. The sawtooth "
        "begins each epoch at ten times the learning rate, where m may reach twenty; "
        "so there is also one from twenty times on.\n\n"
        "Epochs to where the bare backbone ends, within 1 %:\n\n"
        f"{robust_table(found)}\n\n"
        "Over workloads; 0 where only the robust method gets there, ∞ where only the "
        "other does, and none where neither does:\n\n"
        f"{_ratios(found, 'epochs_to_backbone')}\n\n"
        "Epochs to the training loss at which the bare backbone ends. That is the "
        "mean over the batches of an epoch, so to end each epoch at a low learning "
        "rate, as the sawtooth does, is no advantage:\n\n"
        f"{robust_table(found, 'epochs_to_loss')}\n\n"
        f"{_ratios(found, 'epochs_to_loss')}\n\n"
        "Epochs to the cutoff, 5 % below the best of all arms:\n\n"
        f"{robust_table(found, 'epochs_to_cutoff')}\n\n"
        f"{_ratios(found, 'epochs_to_cutoff')}\n"
    )


def _these(workloads: list[str]) -> str:
    return ", ".join(workloads) or "none"


def _read_sweeps(results: pathlib.Path, methods: Iterable[str]) -> list[dict[str, Any]]:
    """The sweeps of some methods."""
    paths = sorted(results.glob("sweep/*/*/sweep.json"))
    found = (json.loads(path.read_text()) for path in paths)
    return [sweep for sweep in found if sweep["method"] in methods]


def _later_cells(results: pathlib.Path, variants: dict[str, str]) -> str:
    """In how many cells of the sweeps each method is later than its backbone."""
    parts = []
    for sweep in _read_sweeps(results, (*variants, *variants.values())):
        ratios = sweeps.ratios(sweep)
        missed = sum(map(math.isinf, ratios))
        parts.append(
            f"`{sweep['method']}` is later than its backbone by over 5 % in "
            f"{sum(r > 1.05 for r in ratios)} of {len(ratios)} cells, with seeds that "
            f"never arrive in {missed} of them"
        )
    return "; ".join(parts)


def _bolder(found: list[contests.Comparison], results: pathlib.Path) -> str:
    """The variant with sharper evidence beside the method as it is."""
    variants = {ours: f"{ours}:{experiments.BOLD}" for ours in contests.RIVALS}
    measured = _measured(found, variants)
    if not measured:
        return ""
    return (
        "## Is a bolder variant better?\n\n"
        f"`{experiments.BOLD}` takes the standard error of the curvature by gradients "
        "instead of terms, lets the evidence of short epochs add up while m stays, and "
        "grows to three Newton steps instead of two. It came of a run on Cora, whose "
        "figures showed that noise which terms share and cancel was counted twice, "
        "and that few samples an epoch never add up, so that m stayed at 3. The target "
        "was chosen among 2, 3 and 4 by accuracy on data set aside and training loss "
        "of ten MLPs for digits and Fashion-MNIST at five learning rates; 4 was sooner "
        "still there around SGD, but let the loss of noisy quadratics without momentum "
        f"rise more in between. {_beside(measured, variants)}"
        f"{_medians(measured, variants, 'bolder')}"
        f"In the sweeps below, {_later_cells(results, variants)}. Around SGD that is "
        "less safe, so it is not the default. A step length that is short only because "
        "the descent came out large by chance is no reason to grow. The larger error "
        "by terms stands in for the error of the descent, which the bound leaves out; "
        "with both errors in the bound, the variant was no sooner than the method as "
        "it is (on the MLPs).\n"
    )


def _settling(found: list[contests.Comparison], results: pathlib.Path) -> str:
    """The variant whose epochs end quietly beside the method as it is."""
    variants = {ours: f"{ours}:{experiments.SETTLING}" for ours in contests.RIVALS}
    measured = _measured(found, variants)
    if not measured:
        return ""
    rows = _variant_rows(results, variants, ("backbone", "low control"))
    return (
        "## Does it pay to settle within epochs?\n\n"
        "Where m is at most 1 and steps end uphill, noise has the better of descent. "
        f"With `{experiments.SETTLING}` the learning rate then falls to a tenth within "
        "each epoch, until one surely descends. It was chosen among some twenty ways "
        "on ten settings of six MLPs for digits and Fashion-MNIST, five learning rates "
        "each, around SGD and Adam, by accuracy on data set aside and by training "
        "loss: floors of 0.05 to 0.3, at once or by steps, with evidence or wherever m "
        "is at most 1, also where m is above 1, and with the mean rate kept by a "
        "higher start. It was run on the workloads on which m ever gets down to 1 by "
        f"itself; on the others it could not act. {_beside(measured, variants)}"
        f"Against the method as it is, {_clearly(measured, variants)}.\n\n"
        "Over the sweeps below, in which the low control falls from the backbone's "
        "rate to a tenth in all epochs, without "
        f"evidence:\n\n{tables.markdown(rows, texts=2)}\n\n"
        "By test accuracy it pays at high rates in long epochs, where the low control "
        "does as well or better; at lower rates that is far slower. By training loss "
        "it need not: in the ablation at 0.1 that ends nearly twice as high. On the "
        "DeiT around SGD, whose steps end uphill at a rate that is far too low, the "
        "training loss ends higher, too. The evidence does not tell the two apart, so "
        "it is not the default. Tried for that on the same MLPs, and on one run of the "
        "DeiT each, and left out: to try a larger m and keep it if the loss does not "
        "rise, and to weigh what an epoch gains by its loss against what noise costs "
        "by the way back to the path's mean. On the DeiT both differ from epoch to "
        "epoch by as much as there is to see.\n"
    )


def _variant_rows(
    results: pathlib.Path, variants: dict[str, str], rivals: Sequence[str]
) -> list[dict[str, str]]:
    """Sweeps of variants of the method, against the method and other arms."""
    rows = []
    for ours, variant in variants.items():
        whole = {x["workload"]: x for x in _read_sweeps(results, [ours])}
        for sweep in _read_sweeps(results, [variant]):
            titles = {what: f"the {what}" for what in rivals}
            if sweep["workload"] in whole:
                sweep = sweeps.beside(sweep, whole[sweep["workload"]], "as it is")
                titles["as it is"] = f"`{ours}`"
            for over, title in titles.items():
                ratios = sweeps.ratios(sweep, over=over)
                sooner, later = _sooner_and_later(ratios)
                rows.append(
                    {
                        "epochs of": f"`{variant}`",
                        "over those of": title,
                        "median": _figure(statistics.median, ratios),
                        "worst": _figure(max, ratios),
                        "sooner": f"{sooner} of {len(ratios)}",
                        "later": f"{later} of {len(ratios)}",
                    }
                )
    return rows


def _sooner_and_later(ratios: list[float]) -> tuple[int, int]:
    """How many ratios are below and above 1 by over 5 %."""
    return sum(r < 0.95 for r in ratios), sum(r > 1.05 for r in ratios)


def _measured(
    found: list[contests.Comparison], variants: dict[str, str]
) -> list[contests.Comparison]:
    """The comparisons that have a variant of the method."""
    return [c for c in found if any(arm in c.rows for arm in variants.values())]


def _beside(found: list[contests.Comparison], variants: dict[str, str]) -> str:
    """Tables of variants of the method beside the method and its control."""
    arms = [
        arm
        for ours, rivals in contests.RIVALS.items()
        for arm in (rivals.sawtooth, ours, variants[ours])
    ]
    return (
        "Epochs to where the bare backbone ends, by accuracy within 1 %:\n\n"
        f"{_epochs(found, arms, 'epochs_to_backbone')}\n\n"
        f"By training loss:\n\n{_epochs(found, arms, 'epochs_to_loss')}\n\n"
    )


def _clearly(found: list[contests.Comparison], variants: dict[str, str]) -> str:
    """Where variants are sooner and later than the method, beyond chance."""
    parts = []
    for ours, rivals in contests.RIVALS.items():
        for key, (_, measure) in contests.MEASURES.items():
            sooner, later = contests.beyond_chance(found, variants[ours], ours, key)
            parts.append(
                f"around {contests.arm_name(rivals.bare)}, by {measure}, it is sooner "
                f"on {_these(sooner)} and later on {_these(later)}"
            )
    return f"beyond what seeds differ by: {'; '.join(parts)}"


def _medians(
    found: list[contests.Comparison], variants: dict[str, str], name: str
) -> str:
    """A table of variants of the method, and of the method, against all others."""
    medians = []
    for ours, rivals in contests.RIVALS.items():
        for other in (*rivals, ours):
            row = {
                "around": contests.arm_name(rivals.bare),
                "over": contests.arm_name(other),
            }
            for key, (_, measure) in contests.MEASURES.items():
                for title, arm in (("as it is", ours), (name, variants[ours])):
                    ratios = contests.against(found, arm, (other,), key)
                    row[f"{title}, {measure}"] = _figure(statistics.median, ratios)
            medians.append(row)
    return (
        "Median over workloads of the epochs of the method as it is, and of the "
        "variant, over those of others:\n\n"
        f"{tables.markdown(medians, texts=2)}\n\n"
        f"Against the method as it is, {_clearly(found, variants)}.\n\n"
    )


def _sub_epochs(results: pathlib.Path) -> str:
    """The variant that judges its steps in parts of an epoch."""
    variants = {ours: f"{ours}:{experiments.SUB_EPOCHS}" for ours in contests.RIVALS}
    rows = _variant_rows(results, variants, ("backbone",))
    if not rows:
        return ""
    return (
        "## Do sub-epochs help in long epochs?\n\n"
        "What `steps_per_epoch` counts may also be a part of an epoch. With "
        f"`{experiments.SUB_EPOCHS}` steps are judged, and m is annealed, four times "
        "in each. Over the sweeps below, of long epochs only, by test "
        f"accuracy:\n\n{tables.markdown(rows, texts=2)}\n\n"
        "By training loss they are sooner around SGD at the paper's rate (the "
        "ablations at T = 94). On MLPs for digits and Fashion-MNIST with 100 and 120 "
        "steps an epoch, sub-epochs of about 24 steps were sooner around SGD, mostly "
        "by training loss at the paper's rate, and around Adam later by accuracy and "
        "level by loss. So whole epochs are the default.\n"
    )


def _sweeps(folder: pathlib.Path) -> str:
    parts = [
        "## Is the robust method safe at any learning rate?\n",
        "The backbone's learning rate times a factor. Epochs to 1 % below the test "
        "accuracy at which the bare backbone ends there with the same seed. The "
        "control is the sawtooth, which starts every epoch at ten times the rate; the "
        "high control starts at twenty times, the method's largest m; the low control, "
        "of a method with a floor, falls to that from the rate itself. The last column "
        "is what chance does: the backbone with a learning rate that is a thousandth "
        "larger. That null counts as later more often than as sooner, as the level is "
        "one that the backbone's own run gets to. Constants were chosen on digits, "
        "which flatters the method here.\n",
    ]
    for path in sorted(folder.glob("*/*/sweep.json")):
        found = json.loads(path.read_text())
        parts += [
            f"### `{found['method']}` on {found['workload']}\n",
            f"{len(found['seeds'])} seeds, {found['cells'][0]['epochs']} epochs. "
            f"{_broken(found)} {_sooner(found)}\n",
            f"{tables.markdown(sweeps.rows(found), texts=2)}\n",
        ]
    return "\n".join(parts)


def _sooner(found: dict[str, Any]) -> str:
    """In how many cells a method is sooner, and later, than what it is set against."""

    def count(what: str, over: str) -> str:
        ratios = sweeps.ratios(found, what, over)
        sooner, later = _sooner_and_later(ratios)
        return f"in {sooner} of {len(ratios)} cells and later in {later}"

    def surely(over: str) -> str:
        signs = [contests.surely(cell) for cell in sweeps.by_seed(found, over=over)]
        return f"in {signs.count(-1)} and {signs.count(1)}"

    def worst(what: str, cells: dict[str, Any] = found) -> str:
        return contests.times(max(sweeps.ratios(cells, what), default=math.nan))

    rivals = " and ".join(
        f"sooner than the {what} {count('method', what)}"
        for what in sweeps.CONTROLS
        if sweeps.has(found, what)
    )
    moved, held = sweeps.moved(found), sweeps.held(found)["cells"]
    end = 100 * statistics.fmean(map(sweeps.loss_at_end, held)) if held else 0.0
    return (
        "Of the cells in which one of the two arrives, by over 5 %, it is sooner than "
        f"its backbone {count('method', 'backbone')} ({surely('backbone')} beyond what "
        f"seeds differ by), {rivals}. At worst it takes {worst('method')} times its "
        f"backbone's epochs. In {len(held)} of {len(found['cells'])} cells m is 1 at "
        "the end of every epoch, so that it is its backbone, but for the first epoch, "
        f"corrections and a floor; there it ends {abs(end):.1f} points "
        f"{'below' if end > 0 else 'above'} it in the mean. In the others it takes "
        f"{worst('method', moved)} times its backbone's epochs at worst. By "
        f"chance the backbone is sooner than itself {count('chance', 'backbone')}, "
        f"with {worst('chance')} times its own epochs at worst."
    )


def _broken(found: dict[str, Any]) -> str:
    """Where a method ends far below its backbone."""
    cells = [
        f"`{cell['arms']['method']}` with {cell['steps_per_epoch']} steps an epoch"
        for cell in found["cells"]
        if sweeps.loss_at_end(cell) > 0.05
    ]
    count = len(found["cells"])
    if not cells:
        return (
            f"In none of {count} cells does it end 5 points below its backbone, in the "
            "mean over seeds."
        )
    return f"It breaks training in {len(cells)} of {count} cells: {'; '.join(cells)}."


def _robust_ingredients(ablations: list[contests.Comparison]) -> str:
    title = "## What does each ingredient of the robust method contribute?\n"
    if not ablations:
        return f"{title}\nNot measured yet.\n"
    columns: dict[tuple[str, int, float], dict[str, dict[str, Any]]] = {}
    for comparison in ablations:
        # All arms of an ablation have one learning rate, which the columns name.
        results = comparison.results
        arms = {re.sub("@[^:]*", "", n): arm for n, arm in results["arms"].items()}
        rate = arms["sgd"]["options"]["learning_rate"]
        summary = curves.summary({**results, "arms": arms})
        columns[results["workload"], results["steps_per_epoch"], rate] = {
            row["arm"]: {**row, "same": _same_runs(arms, row["arm"])} for row in summary
        }
    several = len({workload for workload, *_ in columns}) > 1

    def cells(ingredient: str, name: str) -> dict[str, str]:
        row = {"ingredient": ingredient, "arm": f"`{name}`"}
        for key, title in (
            ("epochs_to_backbone", "accuracy"),
            ("epochs_to_loss", "loss"),
        ):
            for (workload, steps, rate), rows in sorted(columns.items()):
                found = rows.get(name, {})
                where = f", T = {steps}" + f", {workload}" * several
                shown = tables.plus_minus(found, key, 1) if found else tables.NOTHING
                row[f"{title} at {rate:g}{where}"] = (
                    "the same" if found.get("same") else shown
                )
        return row

    known = {name for rows in columns.values() for name in rows}
    first = ("sgd", "sawtooth_control", "robust_sgd")
    table = [cells("", name) for name in first if name in known]
    for ingredient, specs in experiments.ROBUST_ABLATIONS.items():
        names = [optimizers.arm(spec).name for spec in specs]
        table += [cells(ingredient, name) for name in names if name in known]
    settings = {
        f"{results['description']}: {len(results['seeds'])} seeds, {results['epochs']} "
        "epochs of T steps.\n"
        for results in (comparison.results for comparison in ablations)
    }
    meanings = (f"- **{k.capitalize()}**: {v}." for k, v in ROBUST_INGREDIENTS.items())
    return "\n".join(
        [
            title,
            "`robust_sgd` with one thing changed at a time, below the method as it is. "
            "Epochs to the test accuracy, within 1 %, and to the training loss at "
            "which SGD ends at that learning rate with the same seed; ∞: a seed never "
            "gets there. *The same*: all runs are those of the method as it is, to the "
            "last bit, as the ingredient does not act there. With so few seeds, most "
            "other differences are within chance.\n",
            *sorted(settings),
            f"{tables.markdown(table, texts=2)}\n",
            *meanings,
            "",
        ]
    )


def _same_runs(arms: dict[str, Any], name: str) -> bool:
    """Whether an arm that is another's variant came out the same in every epoch."""

    def series(arm: str) -> list[Any]:
        runs = arms[arm]["runs"]
        return [(run["seed"], run["accuracy"], run["train_loss"]) for run in runs]

    method = "robust_sgd"
    return method in arms and name != method and series(name) == series(method)


def _corrections(folder: pathlib.Path, comparisons: list[contests.Comparison]) -> str:
    parts = []
    for path in sorted(folder.glob("*.json")):
        found = json.loads(path.read_text())
        parts.append(
            f"On `{found['workload']}`, {found['seeds']} seeds of {found['epochs']} "
            f"epochs:\n\n{tables.markdown(corrections.rows(found))}\n\n"
        )
    rows = [row for c in comparisons if (row := _with_and_without(c))]
    return (
        "## Does the correction do harm?\n\n"
        "The last step of every epoch, taken with the correction and without it from "
        "the same state: how the loss on the whole training set differs, up to a "
        "correction that makes it not finite, which counts as a rise.\n\n"
        f"{''.join(parts)}"
        "By default it is made where the next m is at most 1, with "
        f"`{_EVERYWHERE}` everywhere. "
        "Whole runs of `robust_sgd` with either against `robust_sgd:correction=none`, "
        "in the mean over epochs and seeds: the difference of the test accuracies, and "
        "the ratio of the training losses (the mean over the batches of an epoch).\n\n"
        f"{tables.markdown(rows) if rows else 'Not measured.'}\n"
    )


def _with_and_without(comparison: contests.Comparison) -> dict[str, str] | None:
    """What the robust method's correction does to whole runs on a workload."""
    arms = comparison.results["arms"]
    without = arms.get("robust_sgd:correction=none")
    row = {"workload": contests.workload(comparison)}
    for title, options in (("", ""), (", everywhere", f":{_EVERYWHERE}")):
        ours = arms.get(f"robust_sgd{options}")
        if ours is None or without is None:
            continue

        def pairs(key: str, ours: Any = ours) -> Iterator[tuple[float, float]]:
            for run, other in zip(ours["runs"], without["runs"], strict=True):
                yield from zip(run[key], other[key], strict=False)

        points = 100 * statistics.fmean(x - y for x, y in pairs("accuracy"))
        ratio = statistics.geometric_mean(x / y for x, y in pairs("train_loss"))
        row[f"accuracy, points{title}"] = f"{points:+.2f}".replace("-", "−")
        row[f"training loss{title}"] = f"{100 * (ratio - 1):+.2f} %".replace("-", "−")
    return row if len(row) > 1 else None


def _motion(path: pathlib.Path) -> str:
    found = json.loads(path.read_text())
    return (
        "## Can its evidence tell a better learning rate?\n\n"
        "SGD at several learning rates, while the robust method looks on with its "
        "multiplier held at 1. N/SE is the curvature along the motion over its "
        "standard error; P/D and O/D are the descent by the next batch and the "
        "gradient after a step, over what steps promise by their own gradients. Means "
        f"over {found['seeds']} seeds and the second half of {found['epochs']} "
        "epochs.\n\n"
        f"{tables.markdown(motion.rows(found))}\n\n"
        "Where P/D and O/D are alike at every learning rate, while the loss is not, "
        "curvature has settled to the learning rate, whatever that is: gradients "
        "shrink as it grows. Then the length of a step does not tell a better one.\n"
    )


def _comparison(comparison: contests.Comparison, base: pathlib.Path) -> str:
    name = comparison.results["workload"]
    rows = tables.comparison(comparison.results, comparison.timings)
    picture = (comparison.folder / "curves.png").relative_to(base).as_posix()
    return (
        f"### {name}\n\n{tables.setting(comparison.results)}\n\n"
        f"![Accuracy by epoch of every arm on {name}]({picture})\n\n"
        f"{tables.markdown(rows)}\n"
    )


def _recipes(results: pathlib.Path) -> str:
    data = json.loads((results / "recipes.json").read_text())
    seconds = json.loads((results / "testbed" / "table.json").read_text())["seconds"]
    made = recipes.tables()
    keys = {recipe.key for rows in made.values() for recipe in rows}
    paces = [pace / 1e12 for pace in data["flops_per_second"].values()]
    parts = [
        "## The paper's tables, at its size (not run here)\n",
        "One command for each row. It trains "
        f"{data['seeds']} seeds, with the workload's epochs and batch size, which the "
        "paper does not state. Rows of a workload share a folder: when they are done, "
        "the command with all their optimizers trains nothing again and makes one "
        "table.\n",
        "**Not run here**, but for two steps: with the row's network and shapes, and "
        "its batch size where no other is named, on two busy CPU cores and generated "
        "data. A column has the seconds that took, with compilation and evaluation. "
        f"Of {len(keys)} different runs {len(data['dry_runs'])} have passed.\n",
        "**Hours are estimates**, of all seeds on the paper's GPU, a Tesla V100S. The "
        "paper's seconds to the cutoff over its epochs to it are the time of an epoch; "
        "times our epochs and seeds, that makes the hours. So they suppose that "
        "we are as fast as its PyTorch. By the operations that XLA counts in a step, "
        f"its SGD went at {min(paces):.1f} to {max(paces):.1f} TFLOP/s, where the GPU "
        f"can do {recipes.PEAK / 1e12:g}.\n",
        "Where the paper gives no time, marked with *, it is operations over such a "
        "pace. For L-BFGS it is SGD's on the same workload, with "
        f"{recipes.EVALUATIONS['lbfgs']} gradients a step. For GraphSAGE it is the "
        "slowest of all; to sample neighbours on the host comes on top, and may well "
        "take longer.\n",
    ]
    for title, rows in made.items():
        cells = [_recipe(recipe, data) for recipe in rows]
        parts.append(f"### {title}\n\n{tables.markdown(cells, texts=3)}\n")
    parts.append(
        "### The testbed\n\n"
        f"Its table runs here: `{recipes.TESTBED}`, all rows in "
        f"{sum(seconds.values()):.0f} s on the same two cores. README.md has it.\n"
    )
    return "\n".join(parts)


def _recipe(recipe: recipes.Recipe, data: dict[str, Any]) -> dict[str, str]:
    guess, dry = data["estimates"][recipe.key], data["dry_runs"].get(recipe.key)
    size = data["workloads"][recipe.workload]["batch_size"]
    status = "not yet"
    if dry:
        smaller = dry["batch_size"] != size
        status = f"pass, {dry['seconds']:.0f} s" + (
            f", batch of {dry['batch_size']}" if smaller else ""
        )
    return {
        "row": recipe.row,
        "command": f"`{recipe.command}`",
        "hardware": data["hardware"],
        "hours": f"{guess['hours']:.1f}{'*' * (guess['basis'] == 'operations')}",
        "two steps here": status,
        **{
            f"paper: {title}": str(number) if number else tables.NOTHING
            for title, number in recipe.numbers.items()
        },
    }
