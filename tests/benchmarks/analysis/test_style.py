"""Colours that everybody can tell apart, and labels that do not overlap."""

import itertools

import numpy as np
import pytest
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

from benchmarks import arms
from benchmarks.analysis import style
from ctagd_optax import testbed
from ctagd_optax.testbed import style as testbed_style

# What colour-blind people see, of linear RGB (Machado, Oliveira and Fernandes, 2009).
SIGHT = {
    "all cones": np.eye(3),
    "protanopia": [
        [0.152286, 1.052583, -0.204868],
        [0.114503, 0.786281, 0.099216],
        [-0.003882, -0.048116, 1.051998],
    ],
    "deuteranopia": [
        [0.367322, 0.860646, -0.227968],
        [0.280085, 0.672501, 0.047413],
        [-0.011820, 0.042940, 0.968881],
    ],
    "tritanopia": [
        [1.255528, -0.076749, -0.178779],
        [-0.078411, 0.930809, 0.147602],
        [0.004733, 0.691367, 0.303900],
    ],
}
PANELS = [
    ("sgd", "robust_sgd", "ct_sgd", "sawtooth_control", "muon"),
    ("adam", "robust_adam", "ct_adam", "sawtooth_adam_control", "muon"),
    ("sgd", "adam", "robust_sgd", "ct_sgd", "muon"),
]
LUMINANCE = np.asarray([0.2126, 0.7152, 0.0722])


def linear(colour):
    rgb = np.asarray(to_rgb(colour))
    return np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)


def lab(rgb):
    """CIELAB of linear sRGB; distances of about 2 can just be seen."""
    to_xyz = [[0.4124, 0.3576, 0.1805], LUMINANCE, [0.0193, 0.1192, 0.9505]]
    xyz = np.asarray(to_xyz) @ np.clip(rgb, 0, 1) / [0.9505, 1.0, 1.089]
    f = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.asarray([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("sight", SIGHT)
def test_colours_of_a_panel_differ_for_everybody(sight, dark):
    panels = [{name: style.colour(name, dark) for name in panel} for panel in PANELS]
    shown = [testbed.get_optimizer(name).name for name in testbed.PICTURE_OPTIMIZERS]
    pairs = zip(shown, testbed_style.colours(shown), strict=True)
    panels.append({name: pair[dark] for name, pair in pairs})
    for panel in panels:
        seen = [lab(np.asarray(SIGHT[sight]) @ linear(c)) for c in panel.values()]
        for (a, one), (b, other) in itertools.combinations(
            zip(panel, seen, strict=True), 2
        ):
            assert np.linalg.norm(one - other) > 18, (a, b)


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_labels_can_be_read_on_the_page(dark):
    with style.theme(dark):
        page = LUMINANCE @ linear(Figure().get_facecolor())
    names = [testbed.get_optimizer(name).name for name in testbed.TABLE_OPTIMIZERS]
    names += [f"spare {n}" for n in range(5)]
    shown = {
        n: p[dark] for n, p in zip(names, testbed_style.colours(names), strict=True)
    }
    for name in ("muon", *filter(arms.colour, arms.ROWS)):
        shown[name] = style.colour(name, dark)
    for name, colour in shown.items():
        own = LUMINANCE @ linear(colour)
        contrast = (max(own, page) + 0.05) / (min(own, page) + 0.05)
        assert contrast > 3, name  # as WCAG asks for graphics


def test_an_optimizer_has_one_colour():
    for name in ("robust_sgd@0.1", "robust_sgd:target=3", "robust_ct_agd(sgd)"):
        assert style.colour(name) == arms.colour("robust_sgd")[0]
    assert style.colour("ct_agd(sgd), closing", dark=True) == arms.colour("ct_sgd")[1]
    assert style.colour("muon") == style.ink()


@pytest.mark.parametrize(
    ("centres", "sizes", "expected"),
    [
        ([1, 5, 9], [2, 2, 2], [1, 5, 9]),  # there is room
        ([9, 1, 5], [2, 2, 2], [9, 1, 5]),
        ([5, 5, 5], [2, 2, 2], [3, 5, 7]),
        ([9.5, 9.6], [2, 2], [7, 9]),  # within the bounds
        ([0, 0.5, 3], [2, 2, 2], [1, 3, 5]),  # one pushes the next
        ([5], [20], [10]),  # no room: from the lower bound on
    ],
)
def test_apart(centres, sizes, expected):
    np.testing.assert_allclose(style.apart(centres, sizes, 0, 10), expected)


def test_labels_are_moved_apart_when_laid_out():
    with style.theme():
        figure = Figure(figsize=(4, 3))
        axes = figure.add_subplot()
        axes.set(xlim=(0, 1), ylim=(0, 1))
        ends = [style.End(1, 0.99 + i / 1000, f"line {i}", "black") for i in range(5)]
        style.label_ends(axes, [*ends, style.End(1, 0.2, "two\nlines", "black")])
        style.spread(figure)
        figure.draw_without_rendering()
    boxes = sorted(
        (super(type(text), text).get_window_extent() for text in axes.texts),
        key=lambda box: box.y0,
    )
    for below, above in itertools.pairwise(boxes):
        assert above.y0 >= below.y1
    width, height = figure.get_size_inches() * figure.dpi
    assert max(box.x1 for box in boxes) <= width
    assert boxes[-1].y1 <= height
