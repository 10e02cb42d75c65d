"""Pictures hold what the results hold."""

import itertools
import sys

import matplotlib
import numpy as np
import pytest
from matplotlib.colors import to_hex
from PIL import Image

from ctagd_optax import testbed
from ctagd_optax.testbed import style
from ctagd_optax.testbed._plots import check_movie

CONFIG = testbed.RunConfig(max_steps=40, patience=20)


@pytest.fixture(scope="module")
def results():
    matplotlib.use("Agg")
    return [
        testbed.run(name, learning_rate=0.01, runs=2, config=CONFIG)
        for name in ("robust", "sgd")
    ]


def test_figure_draws_paths_and_losses(results):
    figure = testbed.plot(results, run=1)
    left, right = figure.axes[:2]
    for result in results:
        steps = int(result.steps[1])
        path = result.paths[1, : steps + 1]
        loss = result.test_loss[1, : steps + 1]
        assert any(
            np.array_equal(np.transpose(line.get_data()), path) for line in left.lines
        )
        assert any(np.array_equal(line.get_ydata(), loss) for line in right.lines)
    labels = [text.get_text() for text in figure.legends[0].get_texts()]
    for label, result in zip(labels, results, strict=True):
        assert label.startswith(f"{result.name} (")
    low, high = right.get_ylim()
    assert low < min(r.test_loss[1].min() for r in results)
    assert high > results[0].test_loss[1, 0]


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_a_figure_keeps_its_page_when_drawn_later(results, dark):
    figure = testbed.plot(results, dark=dark)
    with matplotlib.rc_context(matplotlib.rcParamsDefault):
        figure.draw_without_rendering()
    assert to_hex(figure.get_facecolor()).upper() == style.PAGE[dark]
    for axes in figure.axes:
        texts = [axes.title, axes.xaxis.label, *axes.get_xticklabels()]
        texts += axes.get_yticklabels()
        assert {to_hex(text.get_color()).upper() for text in texts} == {style.INK[dark]}
        for line in axes.get_xgridlines() if axes is figure.axes[1] else []:
            assert line.get_color() == style.GREY[dark]


def test_a_result_plots_itself(results):
    figure = results[0].plot(run=0)
    assert len(figure.legends[0].get_texts()) == 1


def test_film_has_a_frame_a_step_and_the_surface_moves(results, tmp_path):
    path = tmp_path / "film.gif"
    testbed.animate(results, path, steps=4)
    with Image.open(path) as film:
        assert film.n_frames == 5
        frames = []
        for i in range(5):
            film.seek(i)
            frames.append(np.asarray(film.convert("L"), np.float64))
    # The start and the first step show the same snapshot; from then on it drifts.
    assert np.abs(frames[1] - frames[0]).mean() > 0.01
    for before, after in itertools.pairwise(frames[1:]):
        assert np.abs(after - before).mean() > 0.1


def test_film_formats(tmp_path, monkeypatch):
    with pytest.raises(ValueError, match=r"\.gif or \.mp4"):
        check_movie(tmp_path / "film.avi")
    monkeypatch.setenv("PATH", str(tmp_path))  # a machine without ffmpeg
    with pytest.raises(ValueError, match="ffmpeg"):
        check_movie(tmp_path / "film.mp4")


def test_the_film_has_its_legend_beside_the_map_and_dots_that_all_show(
    results, tmp_path, monkeypatch
):
    from matplotlib.axes import Axes

    legends, sizes = [], []
    legend, draw = Axes.legend, Axes.plot

    def watched_legend(axes, **options):
        legends.append((axes, legend(axes, **options)))

    def watched_plot(axes, *points, **options):
        if "markersize" in options:
            sizes.append((options["zorder"], options["markersize"]))
        return draw(axes, *points, **options)

    monkeypatch.setattr(Axes, "legend", watched_legend)
    monkeypatch.setattr(Axes, "plot", watched_plot)
    testbed.animate(results, tmp_path / "film.gif", steps=1, dark=True)
    axes, found = legends[-1]
    box, around = found.get_window_extent(), axes.get_window_extent()
    assert box.x0 >= around.x1
    assert box.x1 <= axes.figure.bbox.x1
    # What lies on top is smaller by more than its edge.
    ordered = [size for _, size in sorted(set(sizes), reverse=True)]
    assert all(b - a >= 1.5 for a, b in itertools.pairwise(ordered))


def test_colors_are_distinct_and_keep_to_names():
    names = [testbed.get_optimizer(n).name for n in testbed.TABLE_OPTIMIZERS]
    names += ["lion", "prodigy"]
    palette = style.colours(names)
    for dark in (False, True):
        assert len({pair[dark] for pair in palette}) == len(names)
    assert style.colours(["CT-AGD"]) == [palette[names.index("CT-AGD")]]


def test_pictures_show_the_robust_method_first():
    assert set(testbed.PICTURE_OPTIMIZERS) < set(testbed.TABLE_OPTIMIZERS)
    names = [testbed.get_optimizer(n).name for n in testbed.PICTURE_OPTIMIZERS]
    assert names[:2] == ["Robust (SGD)", "Robust (Adam)"]


def test_what_is_missing_is_named(results, tmp_path, monkeypatch):
    for package in ("matplotlib", "plotly"):
        monkeypatch.setitem(sys.modules, package, None)
    for make in (
        testbed.plot,
        testbed.explore_page,
        lambda results: testbed.animate(results, tmp_path / "film.gif"),
    ):
        with pytest.raises(ImportError, match=r"pip install 'ctagd-optax\[testbed\]'"):
            make(results)


def test_bad_runs_are_refused(results):
    with pytest.raises(ValueError, match="run must be in"):
        testbed.plot(results, run=5)
    with pytest.raises(ValueError, match="empty"):
        testbed.plot([])
