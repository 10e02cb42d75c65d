"""Plots of costs can be drawn from the committed results, light and dark."""

import matplotlib.image
import numpy as np
import pytest

from benchmarks.analysis import cost_plots
from benchmarks.pages import report


@pytest.mark.parametrize("part", ["compile", "steps", "train"])
def test_each_is_a_picture(part, tmp_path):
    draw = getattr(cost_plots, f"plot_{part}")
    for dark in (False, True):
        path = draw(report.read("overhead.json")[part], tmp_path / "a.png", dark=dark)
        picture = matplotlib.image.imread(path)
        height, width, _ = picture.shape
        assert width > height > 200
        assert (np.median(picture[..., :3]) < 0.5) == dark
