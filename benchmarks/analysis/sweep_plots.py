"""Plots of sweeps over learning rates."""

import pathlib
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter

from benchmarks import specs
from benchmarks.analysis import style, sweep_cells


def plot_sweeps(
    found: Sequence[dict[str, Any]], path: pathlib.Path, *, dark: bool = False
) -> pathlib.Path:
    """Draws epochs to the target by learning rate, a panel for each sweep.

    What a seed never reaches is drawn at the top edge.

    Args:
      found: sweeps of one batch size, see :mod:`benchmarks.study.sweep`.
      path: the PNG to write.
      dark: for a dark page.

    Returns:
      The path.
    """
    with style.theme(dark):
        figure, panels = style.panels(len(found), 4.1)
        for axes, one in zip(panels, found, strict=True):
            _draw_sweep(axes, one, dark)
        panels[0].set_ylabel("epochs to the target (fewer is better)")
        seeds, epochs = len(found[0]["seeds"]), found[0]["cells"][0]["epochs"]
        figure.suptitle(
            f"{found[0]['workload']}: mean of {seeds} seeds, {epochs} epochs"
        )
        return style.save(figure, path)


def _draw_sweep(axes: Axes, found: dict[str, Any], dark: bool) -> None:
    cells = sorted(found["cells"], key=lambda cell: cell["learning_rate"])
    rates = [cell["learning_rate"] for cell in cells]
    last = cells[0]["epochs"]
    never = 1.5 * last  # the height of the top edge
    bare = specs.parts(found["method"]).optimizer
    title = style.TITLES[bare]
    for what, name in (
        ("control", "sawtooth_control"),
        ("backbone", bare),
        ("method", found["method"]),
    ):
        color = style.colour(name, dark)
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
    axes.set_xlabel(f"learning rate of {title}")
    axes.set_title(f"{title}, target {100 * cells[0]['target']:.1f} %")


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
        if at < 2:  # at the left edge is no room
            offset, align = (-16, -34), "left"
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
        fontsize=10,
        fontweight="bold",
    )
