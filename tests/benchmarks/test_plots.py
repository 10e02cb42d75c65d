"""Plots: what is drawn, and that files are whole and repeatable."""

import numpy as np
import pytest
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

from benchmarks import optimizers, plots
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
    peers = [name for name in optimizers.names() if name not in roles]
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


def test_some_arms_have_the_cutoff_of_all(figures, tmp_path):
    found = comparison(
        sgd=("backbone", run(0.2, 0.4)), adam=("backbone", run(0.3, 0.8))
    )
    plots.plot(found, tmp_path / "curves", ["sgd"])
    [axes] = figures[0].axes
    assert legend(axes) == ["sgd"]
    np.testing.assert_allclose(axes.lines[-1].get_ydata(), 76)


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
        written = plots.plot(results, tmp_path / name / "curves")
        contents.append([file.read_bytes() for file in written])
        assert [file.name for file in written] == ["curves.png", "curves.svg"]
        assert sorted((tmp_path / name).iterdir()) == written
    assert contents[0] == contents[1]
    png, svg = contents[0]
    assert png.startswith(b"\x89PNG")
    assert b"<svg" in svg


@pytest.mark.parametrize(
    ("given", "stem"),
    [("a", "a"), ("a.png", "a"), ("a.svg", "a"), ("sgd@0.1", "sgd@0.1")],
)
def test_names_of_files(tmp_path, monkeypatch, given, stem):
    monkeypatch.setattr(Figure, "savefig", lambda self, path, **_: path.touch())
    written = plots.plot(comparison(sgd=("backbone", run(0.5))), tmp_path / given)
    assert [file.name for file in written] == [f"{stem}.png", f"{stem}.svg"]
