"""How plots look: one colour an optimizer, light or dark, labels at the lines.

The colours and the theme are the testbed's.
"""

import io
import pathlib
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.text import Annotation, Text
from PIL import Image

from benchmarks import arms
from benchmarks.specs import kind
from ctagd_optax.testbed.files import replacing
from ctagd_optax.testbed.style import GREY, INK, theme

__all__ = [
    "TITLES",
    "End",
    "apart",
    "colour",
    "grey",
    "ink",
    "label_ends",
    "panels",
    "save",
    "spread",
    "theme",
]

# What a title calls a bare optimizer.
TITLES = {"sgd": "SGD", "adam": "Adam"}


def colour(name: str, dark: bool = False) -> str:
    """The colour of an optimizer.

    Args:
      name: an arm, or a wrapper with its optimizer in brackets.
      dark: on a dark page.

    Returns:
      The colour; that of text if the optimizer has none of its own.

    Examples:
      >>> from benchmarks.analysis import style
      >>> style.colour("robust_sgd@0.1") == style.colour("robust_ct_agd(sgd)")
      True
    """
    name = name.replace("robust_ct_agd(", "robust(").replace("ct_agd(", "ct(")
    return (arms.colour(kind(name)) or INK)[dark]


def ink(dark: bool = False) -> str:
    """The colour of text."""
    return INK[dark]


def grey(dark: bool = False) -> str:
    """The colour of lines without a label."""
    return GREY[dark]


def panels(count: int, width: float, height: float = 3.8) -> tuple[Figure, np.ndarray]:
    """A figure with panels side by side, of this size in inches each."""
    figure = Figure(figsize=(width * count, height))
    return figure, np.atleast_1d(figure.subplots(1, count, sharey=True))


class End(NamedTuple):
    """The end of a line and what to write there.

    Attributes:
      x: where the line ends.
      y: at what height.
      label: the text.
      colour: its colour, and the line's.
    """

    x: float
    y: float
    label: str
    colour: str


def label_ends(axes: Axes, ends: Sequence[End]) -> None:
    """Writes labels right of the axes, each joined to the end of its line.

    :func:`spread` moves them apart when the figure is laid out.
    """
    for end in ends:
        axes.annotate(
            end.label,
            (end.x, end.y),
            xytext=(1.04, 0.5),
            textcoords="axes fraction",
            va="center",
            color=end.colour,
            fontsize=9,
            arrowprops={
                "arrowstyle": "-",
                "color": end.colour,
                "linewidth": 0.7,
                "alpha": 0.7,
                "shrinkA": 1,
                "shrinkB": 1,
                "relpos": (0, 0.5),
            },
            annotation_clip=False,
        )


def spread(figure: Figure) -> None:
    """Lays a figure out, and moves labels at the ends of lines apart."""
    figure.draw_without_rendering()
    figure.set_layout_engine("none")  # what moves now shall not move the axes
    for axes in figure.axes:
        labels = [
            text
            for text in axes.texts
            if isinstance(text, Annotation) and text.arrow_patch is not None
        ]
        if not labels:
            continue
        box = axes.get_window_extent()
        heights = apart(
            [axes.transData.transform(label.xy)[1] for label in labels],
            [1.1 * Text.get_window_extent(label).height for label in labels],
            box.y0,
            box.y1,
        )
        for label, height in zip(labels, heights, strict=True):
            label.set_position((1.04, (height - box.y0) / box.height))


def apart(
    centres: Sequence[float], sizes: Sequence[float], low: float, high: float
) -> list[float]:
    """Centres of intervals that do not overlap, as near as can be to the wanted ones.

    Args:
      centres: the wanted ones.
      sizes: of the intervals.
      low: where the first may begin.
      high: where the last is to end; it may end later if there is no room.

    Returns:
      The centres, in the same order.

    Examples:
      >>> from benchmarks.analysis import style
      >>> style.apart([5.0, 5.0, 9.0], [2.0, 2.0, 1.0], 0.0, 10.0)
      [4.0, 6.0, 9.0]
    """
    blocks: list[tuple[list[int], float]] = []  # touching intervals, and their start

    def start(items: list[int]) -> float:
        before = np.cumsum([0.0, *(sizes[i] for i in items)])
        wanted = [
            centres[i] - sizes[i] / 2 - offset
            for i, offset in zip(items, before, strict=False)
        ]
        return max(min(float(np.mean(wanted)), high - float(before[-1])), low)

    for i in sorted(range(len(centres)), key=lambda i: centres[i]):
        items = [i]
        while blocks:
            others, at = blocks[-1]
            if at + sum(sizes[j] for j in others) <= start(items):
                break
            items = others + items
            blocks.pop()
        blocks.append((items, start(items)))
    found = [0.0] * len(centres)
    for items, at in blocks:
        for i in items:
            found[i] = at + sizes[i] / 2
            at += sizes[i]
    return found


def save(figure: Figure, path: pathlib.Path) -> pathlib.Path:
    """Writes a figure as PNG, whole or not at all.

    Args:
      figure: the figure.
      path: the PNG to write; its folder is made.

    Returns:
      The path.
    """
    drawn = io.BytesIO()
    figure.savefig(drawn, format="png", dpi=110)
    # A few colours are enough, and make a third of the size.
    picture = Image.open(drawn).convert("RGB").quantize(96, dither=Image.Dither.NONE)
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as temporary:
        picture.save(temporary, format="png", optimize=True)
    return path
