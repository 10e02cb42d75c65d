"""Plots: what is drawn, and that files are whole and repeatable."""

import itertools

import numpy as np
import pytest
from matplotlib.text import Text

from benchmarks.analysis import plots, style
from tests.benchmarks.handmade import comparison, run


@pytest.fixture
def figures(monkeypatch):
    """The figures that are saved, in order; their files are not written."""
    saved = []
    monkeypatch.setattr(style, "save", lambda figure, path: saved.append(figure))
    return saved


def labels(axes):
    """The labels at the ends of lines, from top to bottom."""
    texts = [text for text in axes.texts if getattr(text, "arrow_patch", None)]
    texts.sort(key=lambda text: -text.get_position()[1])
    return [text.get_text() for text in texts]


def boxes(axes):
    texts = [text for text in axes.texts if getattr(text, "arrow_patch", None)]
    found = [Text.get_window_extent(text) for text in texts]
    return sorted(found, key=lambda box: -box.y0)


def grey(axes):
    return [line for line in axes.lines if line.get_color() == style.grey()]


def test_a_line_is_the_mean_over_seeds(figures, tmp_path):
    plots.plot(
        comparison(
            sgd=("backbone", run(0.2, 0.4), run(0.4, 0.8, seed=1)),
            ct_sgd=("paper", run(0.5, 0.9), run(0.5, 0.7, seed=1)),
        ),
        tmp_path / "curves",
    )
    [axes] = figures[0].axes
    means = [line.get_ydata() for line in axes.lines]
    np.testing.assert_allclose(means[:2], [[30, 60], [50, 80]])
    np.testing.assert_allclose(means[2], 76)  # the target
    assert labels(axes) == ["ct_sgd", "sgd"]
    assert [line.get_color() for line in axes.lines[:2]] == [
        style.colour("sgd"),
        style.colour("ct_sgd"),
    ]


def test_each_backbone_has_a_panel_and_others_are_in_all(figures, tmp_path):
    plots.plot(
        comparison(
            sgd=("backbone", run(0.2, 0.4)),
            robust_adam=("ours", run(0.5, 0.9)),
            adam=("backbone", run(0.3, 0.5)),
            sawtooth_control=("control", run(0.3, 0.6)),
            muon=("peer", run(0.3, 0.7)),
        ),
        tmp_path / "curves",
    )
    sgd, adam = figures[0].axes
    assert (sgd.get_title(), adam.get_title()) == ("SGD", "Adam")
    assert labels(sgd) == ["muon", "sawtooth_control", "sgd"]
    assert labels(adam) == ["robust_adam", "muon", "adam"]


def many(**more):
    """A comparison of more arms around SGD than can have a label."""
    options = "correction_rate=0.5,curvature_max=10,curvature_min=0.1,eps="
    variants = {
        f"ct_sgd:{options}{i}": ("paper", run(0.2, 0.4 + i / 100)) for i in range(40)
    }
    return comparison(**variants, **more)


def test_one_of_each_role_has_a_colour_if_there_are_many(figures, tmp_path):
    found = many(
        sgd=("backbone", run(0.2, 0.4)),
        ct_sgd_appendix=("paper", run(0.99)),
        ct_sgd=("paper", run(0.1, 0.3)),
        robust_sgd=("ours", run(0.5, 0.7)),
        sgd__1=("tuned", run(0.5, 0.5)),
        **{"sgd@2+average": ("tuned", run(0.5, 0.9))},
        sawtooth_control=("control", run(0.5, 0.6)),
        muon=("peer", run(0.5, 0.8)),
        adamw=("peer", run(0.5, 0.81)),
        **{"sawtooth_control:peak=20": ("control", run(0.5, 0.65))},
    )
    shown = plots.highlighted(found, list(found["arms"]))
    best = ["sawtooth_control:peak=20", "adamw"]
    assert shown == ["sgd", "robust_sgd", "ct_sgd", "sgd@1", *best]
    plots.plot(found, tmp_path / "curves")
    [axes] = figures[0].axes
    assert len(labels(axes)) == len(shown)
    assert len(grey(axes)) == len(found["arms"]) - len(shown)
    assert "grey" in figures[0].get_suptitle()


def test_few_arms_all_have_a_label():
    found = comparison(**{f"peer{i}": ("peer", run(0.5)) for i in range(plots.MOST)})
    assert plots.highlighted(found, list(found["arms"])) == list(found["arms"])


def test_arms_with_a_colour_look_different():
    found = many(sgd=("backbone", run(0.2)), sgd__1=("tuned", run(0.2)))
    looks = plots.styles(found, list(found["arms"])[-12:], dark=False)
    seen = {(look["color"], look["linestyle"]) for look in looks.values()}
    assert len(seen) == len(looks) == 12
    assert looks["sgd"]["color"] == looks["sgd@1"]["color"]


def test_unknown_roles():
    found = comparison(sgd=("backbone", run(0.5)), adam=("referee", run(0.5)))
    with pytest.raises(ValueError, match=r"roles must be among backbone, .* got ref"):
        plots.highlighted(found, ["sgd", "adam"])


def test_there_is_room_for_long_names(figures, tmp_path):
    plots.plot(many(), tmp_path / "curves")
    [figure] = figures
    figure.draw_without_rendering()
    [axes] = figure.axes
    width, _ = figure.get_size_inches() * figure.dpi
    box = axes.get_window_extent()
    assert min(box.width, box.height) > 2 * figure.dpi
    found = boxes(axes)
    assert len(found) == 6
    assert min(one.x0 for one in found) > box.x1
    assert max(one.x1 for one in found) <= width
    for above, below in itertools.pairwise(found):
        assert above.y0 >= below.y1


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
    assert labels(low) == ["robust_ct_agd", "ct_agd", "bare"]
    colors = [line.get_color() for line in low.lines[:3]]
    assert colors == [style.colour(x) for x in ("sgd", "robust_sgd", "ct_sgd")]


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
    found = boxes(figure.axes[0])
    for above, below in itertools.pairwise(found):
        assert above.y0 >= below.y1
    width, _ = figure.get_size_inches() * figure.dpi
    assert max(box.x1 for box in found) < width


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
    assert len(labels(axes)) == min(2 + len(arms), 6 if len(arms) > 6 else 8)


def test_a_line_ends_where_a_seed_diverges(figures, tmp_path):
    plots.plot(
        comparison(
            sgd=(
                "backbone",
                run(0.2, 0.4, 0.5),
                run(0.4, 0.2, seed=1, failed_step=60),
            ),
            lion=("peer", run(failed_step=3)),
            muon=("peer",),
        ),
        tmp_path / "curves",
    )
    [axes] = figures[0].axes
    mean, cross, _ = axes.lines
    np.testing.assert_allclose(mean.get_xydata(), [[1, 30], [2, 30]])
    np.testing.assert_allclose(cross.get_xydata(), [[2, 30]])
    assert labels(axes) == ["sgd\n  (1 of 2 diverged)"]  # the others have no epoch


def test_profiles(figures, tmp_path):
    comparisons = [
        comparison("one", sgd=("backbone", run(1.0)), adam=("backbone", run(0.1, 1.0))),
        comparison("two", sgd=("backbone", run(1.0)), adam=("backbone", run(0.1))),
    ]
    plots.plot_profile(comparisons, ["adam", "sgd"], tmp_path / "profile")
    [axes] = figures[0].axes
    assert labels(axes) == ["sgd", "adam"]
    sgd, adam = (line.get_xydata() for line in axes.lines)
    np.testing.assert_allclose(sgd, [[1, 100], [2, 100], [4, 100]])
    np.testing.assert_allclose(adam, [[1, 0], [2, 50], [4, 50]], atol=0.5)
    with pytest.raises(ValueError, match=r"largest must be above 1, got 1\.0"):
        plots.plot_profile(comparisons, ["sgd"], tmp_path / "x", largest=1.0)


def test_the_best_of_a_profile_have_a_colour(figures, tmp_path):
    arms = {
        f"ct_sgd:eps={i}": ("paper", *[run(*(i + 1) * [0.1], 1.0)]) for i in range(12)
    }
    plots.plot_profile([comparison(**arms)], list(arms), tmp_path / "x", largest=20.0)
    [axes] = figures[0].axes
    assert labels(axes) == list(arms)[: plots.MOST]
    assert len(grey(axes)) == 4


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
