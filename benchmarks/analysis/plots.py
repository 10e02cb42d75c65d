"""Plots of comparisons."""

import pathlib
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, NullLocator

from benchmarks import specs
from benchmarks.analysis import curves, profiles, style

_ROLES = {
    "backbone": {"linewidth": 1.8, "zorder": 3},
    "ours": {"linewidth": 2.4, "zorder": 5},
    "paper": {"linewidth": 2.4, "zorder": 4},
    "tuned": {"linewidth": 1.8, "zorder": 3, "linestyle": (0, (5, 1.5))},
    "control": {"linewidth": 1.8, "zorder": 3, "linestyle": (0, (1.5, 1))},
    "peer": {"linewidth": 1.5, "zorder": 3, "linestyle": (0, (6, 1.5, 1.5, 1.5))},
}
# For those that would look like another in the same panel.
_DASHES = ((0, (8, 2, 1, 2)), (0, (1, 2.5)), (0, (3, 1)), (0, (8, 3)), (0, (4, 4)))

# More lines with a colour and a label are not readable in one panel.
MOST = 8


def highlighted(results: dict[str, Any], names: Sequence[str]) -> list[str]:
    """The arms that have a colour and a label; the others are grey.

    All, if there are at most :data:`MOST`. Else one of each role: backbone, ours, the
    paper's, tuned, control and peer; then, if some roles are missing, a second of each
    until there are six. In a role, arms with default options come first, then those
    without an average of weights, then those with the best accuracy.

    Args:
      results: the comparison.
      names: the arms of a panel.

    Returns:
      Their names.

    Raises:
      ValueError: a role is unknown.
    """
    arms = results["arms"]
    unknown = {arms[name]["role"] for name in names} - set(_ROLES)
    if unknown:
        raise ValueError(
            f"roles must be among {', '.join(_ROLES)}; got {', '.join(sorted(unknown))}"
        )
    if len(names) <= MOST:
        return list(names)

    def rank(name: str) -> tuple[bool, bool, float]:
        runs = arms[name]["runs"]
        accuracy = np.mean([curves.best(run["accuracy"]) for run in runs] or [0.0])
        changed = ":" in name and arms[name]["role"] != "control"
        return changed or "_appendix" in name, "+average" in name, -float(accuracy)

    groups = [
        sorted((name for name in names if arms[name]["role"] == role), key=rank)
        for role in _ROLES
    ]
    turns = max(map(len, groups))
    in_turn = [group[n] for n in range(turns) for group in groups if n < len(group)]
    return in_turn[: len(_ROLES)]


def styles(
    results: dict[str, Any], names: Sequence[str], dark: bool
) -> dict[str, dict[str, Any]]:
    """How to draw arms with a colour: it tells the optimizer, the line tells the role.

    Args:
      results: the comparison.
      names: the arms.
      dark: for a dark page.

    Returns:
      Options of Matplotlib's ``plot``, different for each arm.
    """
    found, taken = {}, set()
    for name in names:
        look = {
            "color": style.colour(name, dark),
            "linestyle": "-",
            **_ROLES[results["arms"][name]["role"]],
        }
        spare = iter(_DASHES)
        while (look["color"], look["linestyle"]) in taken:
            look["linestyle"] = next(spare, (0, (1, 1 + len(taken))))
        taken.add((look["color"], look["linestyle"]))
        found[name] = look
    return found


def plot(
    results: dict[str, Any], path: pathlib.Path, *, dark: bool = False
) -> pathlib.Path:
    """Draws accuracy by epoch.

    A line is the mean over the seeds. Where a seed diverges it ends with a cross: the
    mean of the others would be of other seeds. There is a panel for each backbone,
    with what wraps it and with the arms that have none; :func:`highlighted` says which
    have a colour. If all arms are optimizers at a few learning rates, bare and
    wrapped, there is a panel for each rate instead.

    Args:
      results: the comparison.
      path: the PNG to write.
      dark: for a dark page.

    Returns:
      The path.
    """
    with style.theme(dark):
        pairs = _pairs(results)
        draw = _draw_pairs if pairs else _draw_backbones
        groups = pairs or _backbones(results)
        figure = draw(results, groups, dark)
        crowded = any(len(names) > MOST for names in groups.values())
        seeds = len(results["seeds"])
        figure.suptitle(
            f"{results['description']}\nmean of {seeds} seed{'s' * (seeds > 1)}"
            + "; grey: the other optimizers" * crowded
        )
        style.spread(figure)
        return style.save(figure, path)


def _backbones(results: dict[str, Any]) -> dict[str, list[str]]:
    """The arms of each panel: a backbone, what is built on it, and what has none."""
    arms = results["arms"]
    bare = [specs.kind(name) for name in arms if arms[name]["role"] == "backbone"]
    own = {name: specs.backbone(name) for name in arms}
    panels = dict.fromkeys(b for b in own.values() if b and (b in bare or not bare))
    return {
        panel: [name for name in arms if own[name] in (panel, None)]
        for panel in panels or {None: None}
    }


def _draw_backbones(
    results: dict[str, Any], groups: dict[str, list[str]], dark: bool
) -> Figure:
    figure, panels = style.panels(len(groups), 4.6 if len(groups) > 1 else 6.6)
    lowest, highest = np.inf, 100 * curves.cutoff(results)
    for axes, (bare, names) in zip(panels, groups.items(), strict=True):
        shown = highlighted(results, names)
        looks = styles(results, shown, dark)
        ends = []
        for name in names:
            look = looks.get(name, {"color": style.grey(dark), "linewidth": 0.8})
            line = _draw_line(axes, results["arms"][name]["runs"], **look)
            if line is None:
                continue
            highest = max(highest, line[:, 1].max())
            if name in looks:
                lowest = min(lowest, line[-1, 1])
                label = _label(name, results["arms"][name])
                ends.append(style.End(*line[-1], label, look["color"]))
        style.label_ends(axes, ends)
        if len(groups) > 1:
            axes.set_title(style.TITLES.get(bare, bare))
        axes.set(xscale="log", xlim=(1, max(results["epochs"], 2)), xlabel="epoch")
        last = results["epochs"]
        ticks = [n for n in (1, 2, 3, 5, 10, 20, 50, 100) if n < 0.75 * last] + [last]
        axes.set_xticks(ticks, ticks)
        axes.xaxis.set_minor_locator(NullLocator())
    if np.isfinite(lowest):
        margin = 0.04 * (highest - 0.85 * lowest) + 0.1
        panels[0].set_ylim(0.85 * lowest, highest + margin)
    _draw_target(panels, results, dark, right=lowest > 100 * curves.cutoff(results))
    return figure


def _draw_line(
    axes: Axes, runs: Sequence[dict[str, Any]], **look: Any
) -> np.ndarray | None:
    """Draws a mean over runs in %; returns its points, None if there are none."""
    length = min((len(run["accuracy"]) for run in runs), default=0)
    if not length:
        return None
    mean = 100 * np.mean([run["accuracy"][:length] for run in runs], axis=0)
    epochs = np.arange(1, length + 1)
    axes.plot(epochs, mean, **look)
    if any(run["failed_step"] is not None for run in runs):
        axes.plot(epochs[-1], mean[-1], "x", color=look["color"], markersize=8)
    return np.stack([epochs, mean], axis=1)


def _draw_target(
    panels: Sequence[Axes], results: dict[str, Any], dark: bool, *, right: bool
) -> None:
    """Draws the target into all panels, with a label right below or left above it."""
    target = 100 * curves.cutoff(results)
    for axes in panels:
        axes.axhline(target, color=style.ink(dark), linestyle=":", linewidth=1)
    panels[0].set_ylabel(f"{results['part']} accuracy in %")
    panels[0].annotate(
        f"target {target:.1f} %",
        (int(right), target),
        xycoords=("axes fraction", "data"),
        xytext=(-4, -4) if right else (4, 4),
        textcoords="offset points",
        ha="right" if right else "left",
        va="top" if right else "bottom",
        fontsize=8,
        zorder=6,
        bbox={"color": axes.get_facecolor(), "alpha": 0.7, "pad": 0.5},
    )


def _label(name: str, arm: dict[str, Any], width: int = 28) -> str:
    """An arm's name in lines, broken before options."""
    text = name + ", tuned" * (arm["role"] == "tuned")
    lines = [""]
    for part in text.replace(":", ":\n").replace(",", ",\n").split("\n"):
        if lines[-1] and len(lines[-1] + part) > width:
            lines.append("  ")
        lines[-1] += part
    diverged = sum(run["failed_step"] is not None for run in arm["runs"])
    if diverged:
        lines.append(f"  ({diverged} of {len(arm['runs'])} diverged)")
    return "\n".join(lines)


def _pairs(results: dict[str, Any]) -> dict[tuple[str, float], list[str]]:
    """Arms by optimizer and learning rate; empty unless each is bare and wrapped.

    More than four panels, or three lines in one, are not readable.
    """
    groups: dict[tuple[str, float], list[str]] = {}
    for name, arm in results["arms"].items():
        if "learning_rate" not in arm["options"]:
            return {}
        key = specs.parts(name).optimizer, arm["options"]["learning_rate"]
        groups.setdefault(key, []).append(name)
    for names in groups.values():
        bare = [name for name in names if not specs.parts(name).wrapper]
        if len(bare) != 1 or not 2 <= len(names) <= 3:
            return {}
    return dict(sorted(groups.items())) if len(groups) <= 4 else {}


def _draw_pairs(
    results: dict[str, Any],
    groups: dict[tuple[str, float], list[str]],
    dark: bool,
) -> Figure:
    figure, panels = style.panels(len(groups), 3.1 + 1.2 / len(groups))
    for axes, ((optimizer, rate), names) in zip(panels, groups.items(), strict=True):
        ends = []
        for name in names:
            wrapper, color = specs.parts(name).wrapper, style.colour(name, dark)
            look = {"color": color, "linewidth": 2.2, "zorder": 3 + bool(wrapper)}
            line = _draw_line(axes, results["arms"][name]["runs"], **look)
            if line is not None:
                ends.append(style.End(*line[-1], wrapper or "bare", color))
        style.label_ends(axes, ends)
        axes.set(xlabel="epoch", xlim=(1, max(results["epochs"], 2)), ylim=(0, 101))
        axes.set_title(f"{optimizer}, learning rate {rate:g}")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    _draw_target(panels, results, dark, right=True)
    return figure


def plot_profile(
    comparisons: Sequence[dict[str, Any]],
    arms: Sequence[str],
    path: pathlib.Path,
    *,
    largest: float = 4.0,
) -> pathlib.Path:
    """Draws performance profiles: see :func:`benchmarks.analysis.profiles.profile`.

    Args:
      comparisons: the results, one of each workload.
      arms: the arms to profile.
      path: the PNG to write.
      largest: where the axis of τ ends.

    Returns:
      The path.

    Raises:
      ValueError: ``largest`` is not above 1, or see
        :func:`benchmarks.analysis.profiles.ratios`.
    """
    if largest <= 1:
        raise ValueError(f"largest must be above 1, got {largest}")
    ratios = profiles.ratios(comparisons, arms)
    steps = {ratio for values in ratios.values() for ratio in values if ratio < largest}
    taus = sorted({1.0, *steps, largest})
    shares = profiles.profile(comparisons, arms, taus)
    with style.theme():
        figure, [axes] = style.panels(1, 6.6, 4.2)
        # Those that get to the most workloads, and to them soonest, have a colour.
        order = sorted(arms, key=lambda arm: shares[arm][::-1], reverse=True)
        looks = styles(comparisons[0], order[:MOST], dark=False)
        ends = []
        for i, arm in enumerate(order):
            # A hair's breadth apart, so that lines of the same height can all be seen.
            heights = 100 * np.asarray(shares[arm]) - 0.4 * i
            look = looks.get(arm, {"color": style.grey(), "linewidth": 0.8})
            axes.plot(taus, heights, drawstyle="steps-post", **look)
            if arm in looks:
                label = _label(arm, {"role": "", "runs": []})
                ends.append(style.End(largest, heights[-1], label, look["color"]))
        style.label_ends(axes, ends)
        axes.set(
            xlabel="τ: epochs to the target, in multiples of the best optimizer's",
            ylabel="workloads within τ of the best, in %",
            xlim=(1, largest),
            ylim=(-0.4 * len(arms) - 2, 103),
        )
        count = len(comparisons)
        axes.set_title(f"Performance profiles over {count} workload{'s' * (count > 1)}")
        style.spread(figure)
        return style.save(figure, path)
