"""Plots of what the methods cost."""

import pathlib
from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullFormatter

from ctagd_optax.testbed.files import replacing

# Okabe and Ito's colours: ours in colour, others grey.
_COLORS = {
    "ct_agd(sgd)": "#009E73",
    "ct_agd(sgd), closing": "#009E73",
    "robust_ct_agd(sgd)": "#0072B2",
    "adan": "#E69F00",
    "muon": "#CC79A7",
}
_GREY = "#7F7F7F"


def _lines(axes: Axes, lines: dict[str, list[tuple[float, float]]]) -> None:
    """Draws lines with a label at the end of each, moved apart."""
    ends = []
    for name, points in lines.items():
        color = _COLORS.get(name, _GREY)
        style = ":" if "closing" in name else "-"
        axes.plot(*zip(*points, strict=True), style, color=color, linewidth=2)
        ends.append((points[-1], name, color))
    axes.set(xscale="log", yscale="log")
    plain = FuncFormatter(lambda value, _: f"{value:,g}")
    axes.yaxis.set_major_formatter(plain)
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.3)
    axes.figure.canvas.draw()
    place, height = axes.transData, float("-inf")
    for (x, y), name, color in sorted(ends, key=lambda end: end[0][1]):
        pixel = place.transform((x, y))
        height = max(height + 13, pixel[1])
        axes.annotate(
            name,
            place.inverted().transform((pixel[0], height)),
            xytext=(6, 0),
            textcoords="offset points",
            va="center",
            color=color,
            fontsize=9,
            annotation_clip=False,
        )


def _save(figure: Figure, path: pathlib.Path) -> pathlib.Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as temporary:
        figure.savefig(temporary, format="png", dpi=120, bbox_inches="tight")
    return path


def plot_compile(rows: Sequence[dict[str, Any]], path: pathlib.Path) -> pathlib.Path:
    """Draws the time to compile a step by the number of tensors."""
    figure = Figure(figsize=(6, 3.6))
    axes = figure.add_subplot()
    lines: dict[str, list[tuple[float, float]]] = {}
    for row in rows:
        point = row["tensors"], row["seconds"]
        lines.setdefault(row["optimizer"], []).append(point)
    _lines(axes, lines)
    axes.set(xlabel="tensors of 32 × 32", ylabel="seconds to compile a step")
    axes.set_xticks([n for n, _ in lines["adam"]], [f"{n}" for n, _ in lines["adam"]])
    return _save(figure, path)


def plot_steps(rows: Sequence[dict[str, Any]], path: pathlib.Path) -> pathlib.Path:
    """Draws the time of a step by the size of a single tensor."""
    figure = Figure(figsize=(6, 3.6))
    axes = figure.add_subplot()
    lines: dict[str, list[tuple[float, float]]] = {}
    for row in rows:
        if row["tensors"] > 1:
            continue
        for name, milliseconds in row["milliseconds"].items():
            if name != "robust_ct_agd(sgd), closing":  # as a step
                point = row["parameters"], milliseconds
                lines.setdefault(name, []).append(point)
    _lines(axes, lines)
    axes.set(xlabel="parameters in one tensor", ylabel="milliseconds a step")
    return _save(figure, path)


def plot_train(rows: Sequence[dict[str, Any]], path: pathlib.Path) -> pathlib.Path:
    """Draws how much longer whole steps of training take."""
    figure = Figure(figsize=(6, 2.6))
    axes = figure.add_subplot()
    for n, row in enumerate(rows):
        times = row["milliseconds"]
        for shift, name, color in (
            (-0.17, "ct_sgd", _COLORS["ct_agd(sgd)"]),
            (0.17, "robust_sgd", _COLORS["robust_ct_agd(sgd)"]),
        ):
            more = 100 * (times[name] / times["sgd"] - 1)
            axes.barh(n + shift, more, 0.32, color=color, label=name if not n else None)
    axes.axvline(9, color=_GREY, linestyle="--", linewidth=1.5)
    axes.text(9, -0.62, " the paper's 9 %", color=_GREY, fontsize=9, va="bottom")
    axes.set_yticks(range(len(rows)), [row["workload"] for row in rows])
    axes.set_ylim(len(rows) - 0.5, -0.65)
    axes.set_xlabel("% longer than a step with bare SGD")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(
        frameon=False, fontsize=9, loc="center right", bbox_to_anchor=(0.9, 0.72)
    )
    return _save(figure, path)
