"""Plots of what the methods cost."""

import pathlib
from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullFormatter

from benchmarks.analysis import style

_PLAIN = FuncFormatter(lambda value, _: f"{value:,.10g}")


def _lines(axes: Axes, lines: dict[str, list[tuple[float, float]]], dark: bool) -> None:
    """Draws lines with a label at the end of each."""
    ends = []
    for name, points in lines.items():
        color = style.colour(name, dark)
        line = ":" if "closing" in name else "-"
        axes.plot(*zip(*points, strict=True), line, color=color, linewidth=2)
        label = name.replace(", closing", ",\n  end of an epoch")
        ends.append(style.End(*points[-1], label, color))
    axes.set(xscale="log", yscale="log")
    axes.xaxis.set_major_formatter(_PLAIN)
    axes.yaxis.set_major_formatter(_PLAIN)
    axes.xaxis.set_minor_formatter(NullFormatter())
    style.label_ends(axes, ends)
    style.spread(axes.figure)


def plot_compile(
    rows: Sequence[dict[str, Any]], path: pathlib.Path, *, dark: bool = False
) -> pathlib.Path:
    """Draws the time to compile a step by the number of tensors."""
    lines: dict[str, list[tuple[float, float]]] = {}
    for row in rows:
        point = row["tensors"], row["seconds"]
        lines.setdefault(row["optimizer"], []).append(point)
    with style.theme(dark):
        figure = Figure(figsize=(7, 3.8))
        axes = figure.add_subplot()
        axes.set(xlabel="tensors of 32 × 32", ylabel="seconds to compile a step")
        _lines(axes, lines, dark)
        axes.set_xticks([tensors for tensors, _ in next(iter(lines.values()))])
        return style.save(figure, path)


def plot_steps(
    rows: Sequence[dict[str, Any]], path: pathlib.Path, *, dark: bool = False
) -> pathlib.Path:
    """Draws the time of a step by the size of a single tensor."""
    lines: dict[str, list[tuple[float, float]]] = {}
    for row in rows:
        if row["tensors"] > 1:
            continue
        for name, milliseconds in row["milliseconds"].items():
            if name != "robust_ct_agd(sgd), closing":  # as a step
                point = row["parameters"], milliseconds
                lines.setdefault(name, []).append(point)
    with style.theme(dark):
        figure = Figure(figsize=(7, 3.8))
        axes = figure.add_subplot()
        axes.set(xlabel="parameters in one tensor", ylabel="milliseconds a step")
        _lines(axes, lines, dark)
        return style.save(figure, path)


def plot_train(
    rows: Sequence[dict[str, Any]], path: pathlib.Path, *, dark: bool = False
) -> pathlib.Path:
    """Draws how much longer whole steps of training take."""
    with style.theme(dark):
        figure = Figure(figsize=(7, 0.9 + 0.7 * len(rows)))
        axes = figure.add_subplot()
        axes.grid(axis="y", visible=False)
        for n, row in enumerate(rows):
            times = row["milliseconds"]
            for shift, name in ((-0.19, "ct_sgd"), (0.19, "robust_sgd")):
                more = 100 * (times[name] / times["sgd"] - 1)
                color = style.colour(name, dark)
                axes.barh(n + shift, more, 0.34, color=color)
                axes.annotate(
                    f"{name}  {more:+.1f} %".replace("-", "−"),
                    (max(more, 0), n + shift),
                    xytext=(4, 0),
                    textcoords="offset points",
                    va="center",
                    fontsize=9,
                    color=color,
                    bbox={"color": axes.get_facecolor(), "pad": 1},
                )
        axes.axvline(0, color=style.ink(dark), linewidth=1)
        axes.axvline(9, color=style.ink(dark), linestyle=":", linewidth=1.2)
        axes.annotate(
            "the paper's 9 %",
            (9, 1),
            xycoords=("data", "axes fraction"),
            xytext=(0, 2),
            textcoords="offset points",
            ha="center",
            fontsize=8,
        )
        axes.set_yticks(range(len(rows)), [row["workload"] for row in rows])
        axes.set_ylim(len(rows) - 0.5, -0.5)
        axes.set_xlim(right=max(1.4 * axes.get_xlim()[1], 11))
        axes.set_xlabel("% longer than a step with bare SGD")
        return style.save(figure, path)
