"""Plots: what is drawn, and that files are whole and repeatable."""

import itertools

import numpy as np
import pytest
from matplotlib.colors import to_rgb

from benchmarks import specs
from benchmarks.analysis import plots
from tests.benchmarks.handmade import comparison, run


@pytest.fixture
def figures(monkeypatch):
    """The figures that are saved, in order; their files are not written."""
    saved = []
    monkeypatch.setattr(plots, "_save", lambda figure, path: saved.append(figure))
    return saved


def legend(axes):
    return [text.get_text() for text in axes.get_legend().get_texts()]


TRUST = {"observed": [0.5, 0.25], "gamma_at_min": [1.0, 0.75]}


def test_styles_tell_arms_apart():
    roles = dict.fromkeys(("sgd", "adam"), "backbone") | {
        "ct_sgd": "paper",
        "ct_adam": "paper",
        "sgd@0.1": "tuned",
        "ct_sgd@0.1": "tuned",
        "ct_sgd:quantile=0.5": "paper",
        "ct_sgd_no_correction": "control",
        "schedule_control": "control",
        "sawtooth_control": "control",
    }
    peers = [name for name in specs.names() if name not in roles]
    styles = plots.styles(roles | dict.fromkeys(peers, "peer"))
    looks = {
        (to_rgb(style["color"]), style["linestyle"], style.get("marker"))
        for style in styles.values()
    }
    assert len(looks) == len(styles) > 14
    assert styles["ct_sgd"]["color"] == styles["ct_sgd@0.1"]["color"]
    assert styles["schedule_control"]["linestyle"] != "-"


def test_unknown_roles():
    with pytest.raises(ValueError, match=r"roles must be among paper, .* got referee"):
        plots.styles({"sgd": "backbone", "adam": "referee"})


def test_a_line_is_the_mean_over_seeds(figures, tmp_path):
    plots.plot(
        comparison(
            sgd=("backbone", run(0.2, 0.4), run(0.4, 0.8, seed=1)),
            ct_sgd=("paper", run(0.5, 0.9, **TRUST), run(0.5, 0.7, seed=1, **TRUST)),
        ),
        tmp_path / "curves",
    )
    left, right = figures[0].axes
    means = [line.get_ydata() for line in left.lines]
    np.testing.assert_allclose(means[:2], [[30, 60], [50, 80]])
    np.testing.assert_allclose(means[2], 76)  # the cutoff
    assert legend(left) == ["ct_sgd", "sgd"]
    assert left.get_ylabel() == "test accuracy in %, stretched near 100"
    heights = left.transData.transform([(1, 80), (1, 85), (1, 90)])[:, 1]
    assert heights[2] - heights[1] > 1.2 * (heights[1] - heights[0])
    shares = [line.get_ydata() for line in right.lines]
    np.testing.assert_allclose(shares, [[50, 25], [100, 75]])


def test_without_curvature_there_is_one_panel(figures, tmp_path):
    plots.plot(comparison(sgd=("backbone", run(0.2, 0.4))), tmp_path / "curves")
    [axes] = figures[0].axes
    assert axes.get_ylabel() == "test accuracy in %"
    assert axes.get_yscale() == "linear"


def at_rate(rate, **arms):
    """A comparison with learning rates: this one, or that after the @."""
    found = comparison(**arms)
    for name, arm in found["arms"].items():
        _, _, own = name.partition("@")
        arm["options"]["learning_rate"] = float(own or rate)
    return found


PAIR = {"sgd": ("backbone", run(0.2, 0.8)), "robust_sgd": ("ours", run(0.7, 1.0))}


def test_bare_and_wrapped_have_a_panel_for_each_learning_rate(figures, tmp_path):
    found = at_rate(
        0.01,
        **PAIR,
        ct_sgd=("paper", run(0.5, 0.9)),
        robust_sgd__3=("ours", run(0.3, 0.9), run(0.5, 0.9, seed=1)),
        sgd__3=("tuned", run(0.4, failed_step=30), run(0.2, 0.4, seed=1)),
    )
    plots.plot(found, tmp_path / "curves.png")
    low, high = figures[0].axes
    titles = [axes.get_title() for axes in (low, high)]
    assert titles == ["sgd, learning rate 0.01", "sgd, learning rate 3"]
    means = [line.get_ydata() for line in low.lines]
    np.testing.assert_allclose(means[:3], [[20, 80], [70, 100], [50, 90]])
    np.testing.assert_allclose(means[3], 95)  # the target
    # A line ends with a cross where a seed diverges.
    wrapped, bare, cross, _ = high.lines
    np.testing.assert_allclose(wrapped.get_ydata(), [40, 90])
    np.testing.assert_allclose(bare.get_ydata(), [30])
    np.testing.assert_allclose(cross.get_xydata(), [[1, 30]])
    labels = [text.get_text() for text in low.texts]
    assert labels[:3] == ["robust_ct_agd", "ct_agd", "bare"]  # from top to bottom
    colors = [to_rgb(text.get_color()) for text in low.texts[:3]]
    assert len(set(colors)) == 3
    assert to_rgb(low.lines[0].get_color()) == colors[2]


def test_labels_do_not_overlap(figures, tmp_path):
    plots.plot(
        at_rate(
            0.01,
            sgd=("backbone", run(0.2, 0.97)),
            robust_sgd=("ours", run(0.7, 0.972)),
            ct_sgd=("paper", run(0.5, 0.971)),
        ),
        tmp_path / "curves.png",
    )
    [figure] = figures
    figure.draw_without_rendering()
    boxes = [text.get_window_extent() for text in figure.axes[0].texts[:3]]
    for above, below in itertools.pairwise(boxes):
        assert above.y0 >= below.y1
    width, _ = figure.get_size_inches() * figure.dpi
    assert max(box.x1 for box in boxes) < width


@pytest.mark.parametrize(
    "arms",
    [
        {"muon": ("peer", run(0.5))},  # bare alone
        {"sgd__1": ("tuned", run(0.5))},
        {f"robust_sgd:target={n}": ("ours", run(0.5)) for n in (1, 3)},  # too many
        {
            f"{kind}__{n}": ("tuned", run(0.5))
            for n in range(1, 5)
            for kind in ("sgd", "robust_sgd")
        },
    ],
    ids=["no pair", "another rate", "many lines", "many panels"],
)
def test_other_arms_have_one_panel(figures, tmp_path, arms):
    plots.plot(at_rate(0.01, **PAIR, **arms), tmp_path / "curves.png")
    [axes] = figures[0].axes
    assert len(legend(axes)) == 2 + len(arms)


def cell(rate, **reached):
    return {
        "learning_rate": rate,
        "epochs": 20,
        "target": 0.9,
        "reached": {"control": [3, 5], **reached},
    }


def test_a_sweep_draws_what_is_not_reached_at_the_top(figures, tmp_path):
    cells = [
        cell(0.1, backbone=[2, 2], method=[1, 2]),
        cell(0.001, backbone=[None, None], method=[12, 14]),
        cell(0.01, backbone=[8, None], method=[2, 2]),
    ]
    found = {"workload": "digits_mlp", "seeds": [0, 1], "cells": cells}
    both = [{**found, "method": f"robust_{kind}"} for kind in ("sgd", "adam")]
    plots.plot_sweeps(both, tmp_path / "sweep.png")
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


@pytest.mark.parametrize("trust", [{}, TRUST], ids=["one", "two"])
def test_there_is_room_for_many_arms_with_long_names(figures, tmp_path, trust):
    options = "correction_rate=0.5,curvature_max=10,curvature_min=0.1,eps="
    arms = {
        f"ct_sgd:{options}{i}": ("paper", run(0.2, 0.4 + i / 100, **trust))
        for i in range(40)
    }
    plots.plot(comparison(**arms), tmp_path / "curves")
    [figure] = figures
    figure.draw_without_rendering()
    width, height = figure.get_size_inches() * figure.dpi
    for axes in figure.axes:
        box = axes.get_window_extent()
        assert min(box.width, box.height) > 2 * figure.dpi
    box = figure.axes[0].get_legend().get_window_extent()
    assert box.x0 >= figure.axes[0].get_window_extent().x1
    assert max(box.x1 - width, box.y1 - height, -box.y0) < 1
    assert legend(figure.axes[0])[0].count("\n") == 1


def test_a_line_ends_where_a_seed_diverges(figures, tmp_path):
    plots.plot(
        comparison(
            sgd=(
                "backbone",
                run(0.2, 0.4, 0.5),
                run(0.4, 0.2, seed=1, failed_step=60),
            ),
            lion=("peer", run(failed_step=3)),
            adam=("backbone",),
        ),
        tmp_path / "curves",
    )
    [axes] = figures[0].axes
    mean, cross, _ = axes.lines
    np.testing.assert_allclose(mean.get_xydata(), [[1, 30], [2, 30]])
    np.testing.assert_allclose(cross.get_xydata(), [[2, 30]])
    assert legend(axes)[0] == "sgd (1 of 2 diverged)"
    assert set(legend(axes)[1:]) == {"lion (1 of 1 diverged)", "adam"}


def test_profiles(figures, tmp_path):
    comparisons = [
        comparison("one", sgd=("backbone", run(1.0)), adam=("backbone", run(0.1, 1.0))),
        comparison("two", sgd=("backbone", run(1.0)), adam=("backbone", run(0.1))),
    ]
    plots.plot_profile(comparisons, ["adam", "sgd"], tmp_path / "profile")
    [axes] = figures[0].axes
    assert legend(axes) == ["sgd", "adam"]
    sgd, adam = (line.get_xydata() for line in axes.lines)
    np.testing.assert_allclose(sgd, [[1, 100], [2, 100], [4, 100]])
    np.testing.assert_allclose(adam, [[1, 0], [2, 50], [4, 50]], atol=0.5)
    with pytest.raises(ValueError, match=r"largest must be above 1, got 1\.0"):
        plots.plot_profile(comparisons, ["sgd"], tmp_path / "x", largest=1.0)


def test_a_tuned_arm_has_its_colour_before_its_average(figures, tmp_path):
    arms = {"sgd+average, tuned": run(1.0), "sgd, tuned": run(1.0)}
    found = comparison(**{name: ("tuned", only) for name, only in arms.items()})
    plots.plot_profile([found], list(arms), tmp_path / "profile")
    [axes] = figures[0].axes
    colors = {line.get_label(): line.get_color() for line in axes.lines}
    assert colors["sgd, tuned"] == plots.styles({"sgd": "backbone"})["sgd"]["color"]


def test_files_are_the_same_each_time(tmp_path):
    results = comparison(sgd=("backbone", run(0.5, 0.9)))
    contents = []
    for name in ("a", "b"):
        path = tmp_path / name / "curves.png"
        assert plots.plot(results, path) == path
        assert list((tmp_path / name).iterdir()) == [path]
        contents.append(path.read_bytes())
    assert contents[0] == contents[1]
    assert contents[0].startswith(b"\x89PNG")
