"""Plots of comparisons and sweeps."""

import itertools
import pathlib
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, MaxNLocator

from benchmarks.analysis import curves, profiles, sweep_cells
from ctagd_optax.testbed.files import replacing

# Okabe and Ito's colours, which colour-blind people can tell apart; as in the testbed.
_COLORS = {
    "ct_sgd": "#D55E00",
    "ct_adam": "#CC79A7",
    "sgd": "#0072B2",
    "adam": "#009E73",
    "ct_sgd_no_correction": "#E69F00",
    "schedule_control": "#7F7F7F",
    "sawtooth_control": "#000000",
    "robust_sgd": "#56B4E9",
    "robust_adam": "#F0E442",
}
# All others have a marker, too, as there are not enough colours to tell them apart by.
_SPARE = ("#17BECF", "#8C564B", "#9467BD", "#A6A61A", "#2F4B7C", "#E377C2", "#1B7837")
_MARKERS = "os^DvPXh"  # one more than colours: pairs come back only after 56 arms
_ROLES = {
    "paper": {"linestyle": "-", "linewidth": 2.4, "zorder": 4},
    "ours": {"linestyle": "-", "linewidth": 2.4, "zorder": 4},
    "backbone": {"linestyle": "-", "linewidth": 1.8, "zorder": 3},
    "tuned": {
        "linestyle": (0, (5, 1, 1, 1)),
        "linewidth": 1.6,
        "zorder": 3,
        "marker": "*",
        "markersize": 7,
    },
    "control": {"linestyle": (0, (4, 2)), "linewidth": 1.6, "zorder": 3},
    "peer": {"linestyle": "-", "linewidth": 1.1, "zorder": 2},
}


def styles(roles: dict[str, str]) -> dict[str, dict[str, Any]]:
    """How to draw each arm: its colour tells the optimizer, its line the role.

    Args:
      roles: the role of each arm.

    Returns:
      Options of Matplotlib's ``plot``, different for each arm.

    Raises:
      ValueError: a role is unknown.
    """
    unknown = set(roles.values()) - set(_ROLES)
    if unknown:
        raise ValueError(
            f"roles must be among {', '.join(_ROLES)}; got {', '.join(sorted(unknown))}"
        )
    spare = zip(itertools.cycle(_SPARE), itertools.cycle(_MARKERS), strict=False)
    taken, found = set(), {}
    for name, role in roles.items():
        style = {**_ROLES[role], "color": _COLORS.get(curves.kind(name))}
        if style["color"] is None or (style["color"], role) in taken:
            style["color"], style["marker"] = next(spare)
            style["markersize"] = 4.5
        taken.add((style["color"], role))
        found[name] = style
    return found


def plot(results: dict[str, Any], path: pathlib.Path) -> pathlib.Path:
    """Draws accuracy by epoch, and how much CT-AGD knew of the curvature.

    A line is the mean over the seeds, its band their range. Where a seed diverges, the
    line ends with a cross: the mean of the others would be of other seeds. The legend
    is in the order in which the lines end. If all arms are optimizers at a few learning
    rates, bare and wrapped, there is a panel for each rate instead.

    Args:
      results: the comparison.
      path: the PNG to write.

    Returns:
      The path.
    """
    cutoff = curves.cutoff(results)
    groups = _pairs(results)
    if groups:
        return _save(_draw_pairs(results, groups, 100 * cutoff), path)
    drawn = styles({name: arm["role"] for name, arm in results["arms"].items()})
    tuned = {
        name: arm["runs"]
        for name, arm in results["arms"].items()
        if curves.is_curvature_tuned(name) and _complete(arm["runs"], "observed")
    }
    figure = Figure()
    left, *right = np.atleast_1d(
        figure.subplots(1, 2, width_ratios=(3, 2)) if tuned else figure.subplots()
    )
    _draw_accuracy(left, results, drawn, 100 * cutoff)
    for axes in right:
        _draw_trust(axes, tuned, drawn)
    figure.suptitle(results["description"], fontsize=11)
    _resize(figure, left, width=9.8 if tuned else 5.6)
    return _save(figure, path)


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
    # An arm has its colour before its averaged variant.
    plain_first = sorted(arms, key=lambda arm: "+average" in arm)
    drawn = styles({arm: comparisons[0]["arms"][arm]["role"] for arm in plain_first})
    figure = Figure()
    axes = figure.subplots()
    for i, arm in enumerate(sorted(arms, key=lambda arm: shares[arm], reverse=True)):
        # A hair's breadth apart, so that lines of the same height can all be seen.
        axes.plot(
            taus,
            100 * np.asarray(shares[arm]) - 0.4 * i,
            drawstyle="steps-post",
            markevery=0.1,
            label=_wrapped(arm),
            **drawn[arm],
        )
    axes.set(
        xlabel="τ: epochs to the cutoff, in multiples of the best arm's",
        ylabel="workloads within τ of the best, in %",
        xlim=(1, largest),
        ylim=(-0.4 * len(arms) - 2, 103),
    )
    count = len(comparisons)
    axes.set_title(f"Performance profiles over {count} workload{'s' * (count > 1)}")
    _finish(axes)
    axes.legend(**_BESIDE)
    _resize(figure, axes, width=6)
    return _save(figure, path)


def plot_sweeps(found: Sequence[dict[str, Any]], path: pathlib.Path) -> pathlib.Path:
    """Draws epochs to the target by learning rate, a panel for each sweep.

    What a seed never reaches is drawn at the top edge.

    Args:
      found: sweeps of one batch size, see :mod:`benchmarks.study.sweep`.
      path: the PNG to write.

    Returns:
      The path.
    """
    figure = Figure(figsize=(8, 4), layout="constrained")
    panels = np.atleast_1d(figure.subplots(1, len(found), sharey=True))
    for axes, one in zip(panels, found, strict=True):
        _draw_sweep(axes, one)
    panels[0].set_ylabel("epochs to the target (fewer is better)")
    seeds, epochs = len(found[0]["seeds"]), found[0]["cells"][0]["epochs"]
    figure.suptitle(
        f"{found[0]['workload']}: mean of {seeds} seeds, {epochs} epochs", fontsize=10
    )
    return _save(figure, path)


_NAMES = {"sgd": "SGD", "adam": "Adam"}


def _draw_sweep(axes: Axes, found: dict[str, Any]) -> None:
    cells = sorted(found["cells"], key=lambda cell: cell["learning_rate"])
    rates = [cell["learning_rate"] for cell in cells]
    last = cells[0]["epochs"]
    never = 1.5 * last  # the height of the top edge
    optimizer = _NAMES[curves.parts(found["method"]).optimizer]
    for what, color in (
        ("control", _CONTROL),
        ("backbone", _BARE),
        ("method", _WRAPPED),
    ):
        epochs = np.asarray([sweep_cells.epochs(cell, what) for cell in cells])
        heights = np.minimum(epochs, never)
        axes.plot(
            *(rates, heights, "o-"),
            color=color,
            linewidth=2.2,
            markersize=5,
            clip_on=False,
            zorder=3,
        )
        _label_sweep(axes, what, np.asarray([rates, heights]), epochs, color)
    axes.set(xscale="log", yscale="log", ylim=(0.9, never))
    ticks = [1, 2, 5, 10, 20, never]
    axes.set_yticks(ticks, [*map(str, ticks[:-1]), "not\nreached"])
    axes.set_yticks([], minor=True)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda rate, _: f"{rate:g}"))
    axes.set_xlabel(f"learning rate of {optimizer}")
    axes.set_title(f"{optimizer}, target {100 * cells[0]['target']:.1f} %", fontsize=11)
    _finish(axes)


def _label_sweep(
    axes: Axes, what: str, points: np.ndarray, epochs: np.ndarray, color: str
) -> None:
    """Labels a line where there is room: beside its highest point that is reached."""
    reached = np.isfinite(epochs)
    at = int(np.argmax(np.where(reached, epochs, -1)))
    text, offset, align = {
        "backbone": ("bare", (8, 4), "left"),
        "method": ("wrapped", (-8, -8), "right"),
        "control": ("sawtooth", (-4, 0), "right"),
    }[what]
    if what == "method":
        at = min(at + 1, len(epochs) - 1)
    place = points[:, at]
    if what == "control":  # where it fails at high learning rates
        at = int(np.flatnonzero(reached).max(initial=0))
        after = points[:, min(at + 1, len(epochs) - 1)]
        place = points[:, at] ** 0.35 * after**0.65
    axes.annotate(
        text,
        place,
        xytext=offset,
        textcoords="offset points",
        ha=align,
        color=color,
        fontsize=11,
        fontweight="bold",
    )


# Of bare optimizers, the wrapped ones, and what else there is.
_BARE, _WRAPPED, _PAPER, _CONTROL = "#E69F00", "#0072B2", "#009E73", "#7F7F7F"


def _pairs(results: dict[str, Any]) -> dict[tuple[str, float], list[str]]:
    """Arms by optimizer and learning rate; empty unless each is bare and wrapped.

    More than four panels, or three lines in one, are not readable.
    """
    groups: dict[tuple[str, float], list[str]] = {}
    for name, arm in results["arms"].items():
        if "learning_rate" not in arm["options"]:
            return {}
        key = curves.parts(name).optimizer, arm["options"]["learning_rate"]
        groups.setdefault(key, []).append(name)
    for names in groups.values():
        bare = [name for name in names if not curves.parts(name).wrapper]
        if len(bare) != 1 or not 2 <= len(names) <= 3:
            return {}
    return groups if len(groups) <= 4 else {}


def _draw_pairs(
    results: dict[str, Any],
    groups: dict[tuple[str, float], list[str]],
    cutoff: float,
) -> Figure:
    figure = Figure(figsize=(1.2 + 3.1 * len(groups), 3.9), layout="constrained")
    panels = np.atleast_1d(figure.subplots(1, len(groups), sharey=True))
    for axes, (key, names) in zip(panels, sorted(groups.items()), strict=True):
        optimizer, rate = key
        ends = []
        for name in names:
            runs, wrapper = results["arms"][name]["runs"], curves.parts(name).wrapper
            color = _WRAPPED if wrapper.startswith("robust") else _PAPER
            color = color if wrapper else _BARE
            values = 100 * _common([run["accuracy"] for run in runs])
            if not values.size:
                continue
            mean, epochs = values.mean(0), np.arange(1, values.shape[1] + 1)
            axes.plot(
                epochs, mean, color=color, linewidth=2.2, zorder=3 + bool(wrapper)
            )
            if any(run["failed_step"] is not None for run in runs):
                axes.plot(epochs[-1], mean[-1], "x", color=color, markersize=9)
            ends.append((mean[-1], wrapper or "bare", color))
        axes.axhline(cutoff, color="black", linestyle=":", linewidth=1, zorder=1)
        axes.set(
            xlabel="epoch",
            xlim=(1, max(results["epochs"], 2)),
            ylim=(0, 101),
        )
        axes.set_title(f"{optimizer}, learning rate {rate:g}", fontsize=11)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        _finish(axes)
        _label_ends(axes, ends)
    panels[0].set_ylabel(f"{results['part']} accuracy in %")
    panels[0].annotate(
        f"target {cutoff:.1f} %",
        (1, cutoff),
        xycoords=("axes fraction", "data"),
        xytext=(-3, -3),
        textcoords="offset points",
        ha="right",
        va="top",
        fontsize=8,
    )
    seeds = len(results["seeds"])
    figure.suptitle(
        f"{results['description']}; mean of {seeds} seed{'s' * (seeds > 1)}",
        fontsize=10,
    )
    return figure


def _label_ends(axes: Axes, ends: list[tuple[float, str, str]]) -> None:
    """Writes labels beside the ends of lines, as near as they fit.

    Args:
      axes: whose heights go from 0 to 100.
      ends: the height, label and colour of each line.
    """
    above = 108.0
    for height, text, color in sorted(ends, reverse=True):
        above = min(height, above - 6)
        axes.annotate(
            text,
            (1, above),
            xycoords=("axes fraction", "data"),
            xytext=(4, 0),
            textcoords="offset points",
            va="center",
            color=color,
            fontsize=9,
            fontweight="bold",
            annotation_clip=False,
        )


_BESIDE = {
    "loc": "upper left",
    "bbox_to_anchor": (1.01, 1),
    "frameon": False,
    "fontsize": 9,
    "handlelength": 3.2,
    "borderaxespad": 0,
}


def _resize(figure: Figure, axes: Axes, width: float, height: float = 5.4) -> None:
    """Lays a figure out, with room for a legend beside the axes, however long.

    Args:
      figure: the figure.
      axes: those with the legend.
      width: of everything else, in inches.
      height: the least, in inches.
    """
    figure.draw_without_rendering()
    legend = axes.get_legend().get_window_extent()
    figure.set_size_inches(
        width + legend.width / figure.dpi, max(height, 1 + legend.height / figure.dpi)
    )
    figure.set_layout_engine("constrained")


def _wrapped(name: str, width: int = 45) -> str:
    """An arm's name in lines, broken before options."""
    lines = [""]
    for part in name.replace(",", ",\n").split("\n"):
        if lines[-1] and len(lines[-1] + part) > width:
            lines.append("    ")
        lines[-1] += part
    return "\n".join(lines)


def _draw_accuracy(
    axes: Axes,
    results: dict[str, Any],
    drawn: dict[str, dict[str, Any]],
    cutoff: float,
) -> None:
    ends = {}
    for name, arm in results["arms"].items():
        runs, style = arm["runs"], drawn[name]
        values = 100 * _common([run["accuracy"] for run in runs])
        epochs = np.arange(1, values.shape[1] + 1)
        diverged = sum(run["failed_step"] is not None for run in runs)
        label = _wrapped(name)
        label += f" ({diverged} of {len(runs)} diverged)" if diverged else ""
        ends[label] = values[:, -1].mean() if values.size else -1.0, style
        if not values.size:
            continue
        mean = values.mean(0)
        axes.plot(epochs, mean, markevery=_every(results["epochs"]), **style)
        axes.fill_between(
            epochs,
            values.min(0),
            values.max(0),
            color=style["color"],
            alpha=min(0.09, 1 / len(results["arms"])),
            linewidth=0,
        )
        if diverged:
            axes.plot(epochs[-1], mean[-1], "x", color=style["color"], markersize=9)
    axes.axhline(cutoff, color="black", linestyle=":", linewidth=1, zorder=1)
    axes.annotate(
        f"cutoff {cutoff:.1f} %",
        (0, cutoff),
        xycoords=("axes fraction", "data"),
        xytext=(3, 3),
        textcoords="offset points",
        fontsize=8,
    )
    high = cutoff > 70
    if high:
        _stretch(axes)
    seeds = len(results["seeds"])
    axes.set(
        xlabel="epoch",
        ylabel=f"{results['part']} accuracy in %" + ", stretched near 100" * high,
        xlim=(1, max(results["epochs"], 2)),
    )
    axes.set_title(
        f"Accuracy: mean and range of {seeds} seeds" if seeds > 1 else "Accuracy"
    )
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    _finish(axes)
    ordered = sorted(ends.items(), key=lambda item: item[1][0], reverse=True)
    handles = [Line2D([], [], label=label, **style) for label, (_, style) in ordered]
    axes.legend(handles=handles, **_BESIDE)


def _stretch(axes: Axes) -> None:
    """Gives accuracies near 100 %, where the arms meet, more room."""
    low, high = axes.dataLim.intervaly
    end = 104.0  # of the scale: 100 % must be at a finite height
    axes.set_yscale(
        "function",
        functions=(
            lambda y: -np.log(np.maximum(end - y, 1e-3)),
            lambda z: end - np.exp(-z),
        ),
    )
    axes.set_yticks([*range(0, 80, 20), *range(80, 101, 5)])
    axes.set_ylim(max(low - 2, 0), min(high + 0.5, 100.5))


def _draw_trust(
    axes: Axes,
    tuned: dict[str, list[dict[str, Any]]],
    drawn: dict[str, dict[str, Any]],
) -> None:
    meanings = {"observed": "-", "gamma_at_min": (0, (1, 1.2))}
    for name, runs in tuned.items():
        for key, line in meanings.items():
            share = 100 * _common([run[key] for run in runs]).mean(0)
            style = {**drawn[name], "linestyle": line, "linewidth": 1.8}
            axes.plot(
                np.arange(1, len(share) + 1),
                share,
                markevery=_every(len(share)),
                **style,
            )
    axes.set(xlabel="epoch", ylabel="share in %", xlim=(1, None), ylim=(-3, 127))
    axes.set_yticks(range(0, 101, 20))
    axes.set_title("How much of it is curvature?")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    _finish(axes)
    texts = ("coordinates with evidence", "tensors with γ at λ_min")
    handles = [
        Line2D([], [], color="black", linestyle=line, linewidth=1.8, label=text)
        for text, line in zip(texts, meanings.values(), strict=True)
    ]
    axes.legend(handles=handles, loc="upper right", frameon=False, fontsize=9)


def _complete(runs: list[dict[str, Any]], key: str) -> bool:
    return bool(runs) and all(run[key] for run in runs)


def _common(lists: Sequence[Sequence[float]]) -> np.ndarray:
    """The lists as rows, cut to the shortest."""
    length = min(map(len, lists), default=0)
    return np.asarray([values[:length] for values in lists]).reshape(len(lists), length)


def _every(epochs: int) -> int:
    return max(epochs // 10, 1)


def _finish(axes: Axes) -> None:
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)


def _save(figure: Figure, path: pathlib.Path) -> pathlib.Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as temporary:
        figure.savefig(temporary, dpi=130)
    return path
