"""One look for all pictures: the testbed's, those of results, and the pages'.

A colour is a pair, for a light and for a dark page. Matplotlib is imported where it is
used: the library needs none.
"""

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

Colour = tuple[str, str]

INK: Colour = "#1F2328", "#E6EDF3"  # of text
GREY: Colour = "#C4C8CC", "#454B53"  # of lines without a label
PAGE: Colour = "#FFFFFF", "#0D1117"
# A surface goes from this to the page, so that every colour stands out on it.
LOW: Colour = "#A8ADB3", "#4A525C"

# Those that are seen together differ for colour-blind people, too: a panel has one bare
# optimizer, what wraps it, its controls and another optimizer.
ROBUST: Colour = "#0F5590", "#3F82FF"
CT_AGD: Colour = "#00A070", "#1FD18F"
SGD: Colour = "#8C3A10", "#CC7028"
ADAM: Colour = "#B07C00", "#F7CE46"
CONTROL: Colour = "#E033CF", "#EC4FB4"
PEER: Colour = "#6E7781", "#8B949E"

# In one picture with those around SGD.
_AROUND_ADAM = {
    "Robust (Adam)": ("#8673E6", "#B9A3F5"),
    "CT-AGD (Adam)": ("#66994C", "#74928A"),
}
_TESTBED: dict[str, Colour] = {
    "Robust (SGD)": ROBUST,
    "SGD": SGD,
    "Adam": ADAM,
    "CT-AGD": CT_AGD,
    **_AROUND_ADAM,
    "L-BFGS": INK,
    "γ = λ_min": CONTROL,
    "Newton": PEER,
    "CT-AGD, appendix": ("#2B6B6B", "#7FE0E0"),
}
_SPARE: tuple[Colour, ...] = (
    ("#C2185B", "#FF6F91"),
    ("#7A8B00", "#BCCB2C"),
    ("#0097A7", "#4DD0E1"),
    ("#5E3C99", "#9575CD"),
    ("#A1584A", "#D79B8D"),
)


def colours(names: Sequence[str]) -> list[Colour]:
    """A colour for each optimizer of the testbed; those of the table keep theirs.

    Examples:
      >>> from ctagd_optax.testbed import style
      >>> style.colours(["my own", "CT-AGD"])[1] == style.CT_AGD
      True
    """
    spare = iter(_SPARE * (1 + len(names) // len(_SPARE)))
    return [_TESTBED.get(name) or next(spare) for name in names]


@contextlib.contextmanager
def theme(dark: bool = False) -> Iterator[None]:
    """Draws and saves in the colours of a light or a dark page."""
    import matplotlib

    ink = ("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color")
    options: dict[Any, Any] = {
        **dict.fromkeys((*ink, "ytick.color"), INK[dark]),
        **dict.fromkeys(("figure.facecolor", "axes.facecolor"), PAGE[dark]),
        "grid.color": GREY[dark],
        "grid.alpha": 0.5,
        "axes.grid": True,
        "axes.axisbelow": True,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.titlesize": 10,
        "axes.labelsize": 9,
        "xtick.labelsize": 8,
        "ytick.labelsize": 8,
        "figure.titlesize": 10,
        "figure.constrained_layout.use": True,
    }
    with matplotlib.rc_context(options):
        yield


def keep(axes: Any, dark: bool = False) -> None:
    """Makes ticks and grid keep the theme: Matplotlib makes some when it draws."""
    axes.tick_params(
        color=INK[dark], labelcolor=INK[dark], grid_color=GREY[dark], grid_alpha=0.5
    )


def surface_colours(dark: bool = False) -> Any:
    """Matplotlib's colour map of a surface."""
    from matplotlib.colors import LinearSegmentedColormap

    return LinearSegmentedColormap.from_list("surface", (LOW[dark], PAGE[dark]))


def dot_sizes(count: int, smallest: float = 9.0, room: float = 10.0) -> list[float]:
    """Diameters of dots that do not hide each other: the first is on top, and smallest.

    Examples:
      >>> from ctagd_optax.testbed import style
      >>> style.dot_sizes(3)
      [9.0, 12.0, 15.0]
    """
    step = min(3.0, room / max(count - 1, 1))
    return [smallest + step * n for n in range(count)]
