"""Plots of hand-made sweeps."""

import numpy as np

from benchmarks.analysis import style, sweep_plots


def cell(rate, **reached):
    return {
        "learning_rate": rate,
        "epochs": 20,
        "target": 0.9,
        "reached": {"control": [3, 5], **reached},
    }


def test_a_sweep_draws_what_is_not_reached_at_the_top(tmp_path, monkeypatch):
    figures = []
    monkeypatch.setattr(style, "save", lambda figure, path: figures.append(figure))
    cells = [
        cell(0.1, backbone=[2, 2], method=[1, 2]),
        cell(0.001, backbone=[None, None], method=[12, 14]),
        cell(0.01, backbone=[8, None], method=[2, 2]),
    ]
    found = {"workload": "digits_mlp", "seeds": [0, 1], "cells": cells}
    both = [{**found, "method": f"robust_{kind}"} for kind in ("sgd", "adam")]
    sweep_plots.plot_sweeps(both, tmp_path / "sweep.png")
    sgd, adam = figures[0].axes
    assert sgd.get_title() == "SGD, target 90.0 %"
    assert adam.get_xlabel() == "learning rate of Adam"
    sawtooth, bare, wrapped = (line.get_xydata() for line in sgd.lines)
    top = sgd.get_ylim()[1]
    np.testing.assert_allclose(sawtooth, [[0.001, 4], [0.01, 4], [0.1, 4]])
    np.testing.assert_allclose(bare, [[0.001, top], [0.01, top], [0.1, 2]])
    np.testing.assert_allclose(wrapped, [[0.001, 13], [0.01, 2], [0.1, 1.5]])
    assert top > 20
    assert sgd.get_yticklabels()[-1].get_text() == "not\nreached"
    assert {text.get_text() for text in sgd.texts} == {"bare", "wrapped", "sawtooth"}
