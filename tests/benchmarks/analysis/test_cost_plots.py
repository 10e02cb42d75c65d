"""Plots of costs can be drawn from the committed results."""

import matplotlib.image
import pytest

from benchmarks.analysis import cost_plots
from benchmarks.pages import report


@pytest.mark.parametrize("part", ["compile", "steps", "train"])
def test_each_is_a_picture(part, tmp_path):
    draw = getattr(cost_plots, f"plot_{part}")
    path = draw(report.read("overhead.json")[part], tmp_path / "a" / "x.png")
    height, width, _ = matplotlib.image.imread(path).shape
    assert width > height > 200
