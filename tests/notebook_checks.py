"""What the notebooks say of their runs; the site's build calls ``check`` in each."""

from types import SimpleNamespace

import numpy as np


def check(name, variables):
    """Checks the text of a notebook.

    Args:
      name: the notebook, without its ending.
      variables: its variables, after its last cell.
    """
    CHECKS[name](SimpleNamespace(**variables))


def quickstart(run):
    assert run.wrapped[0] > run.bare[0] + 0.3
    assert run.wrapped[-1] > run.bare[-1]
    epochs = np.reshape(run.multipliers, (run.EPOCHS, run.STEPS))
    assert epochs[0, 0] == 1
    assert epochs[0, -1] > 5
    assert (epochs[1:, 0] > 2 * epochs[1:, -1]).all()  # it starts high and falls
    assert run.same
    assert run.seen == run.again


def any_learning_rate(run):
    for name, found in run.results.items():
        bare, wrapped = (
            run.epochs_to_target(found[kind][0]) for kind in ("bare", "wrapped")
        )
        assert (wrapped <= bare + 1).all(), name
        assert wrapped.mean() < 0.8 * bare.mean(), name
        assert bare[0] == run.NEVER, name  # the sweep starts at one that is too small
        assert abs(wrapped[-1] - bare[-1]) <= 1, name
    used, own = (x.max() / x.min() for x in (run.highest[:, -1], run.rates))
    assert 1.5 < used < own


def inside_ct_agd(run):
    np.testing.assert_allclose(run.quotients, [[1, 4]] * 7, rtol=1e-4)
    np.testing.assert_allclose(run.average, [1, 4], rtol=1e-3)
    newton = run.gradient / np.asarray(run.exact)
    np.testing.assert_allclose(run.correction, -newton / 2, rtol=1e-3)
    assert abs(run.correction[0]) > 3 * abs(run.correction[1])
    by_hand = run.path[-1] + np.asarray(run.correction)
    np.testing.assert_allclose(run.theta, by_hand, atol=1e-3)
    np.testing.assert_allclose(run.state.gamma, run.gamma, rtol=1e-3)
    for curvature in (4.0, 1.0, 0.25):
        line = np.asarray(run.two_epochs(curvature))
        np.testing.assert_allclose(line[:100], 1)
        straight = curvature - (curvature - 1) * np.arange(100) / 100
        np.testing.assert_allclose(line[100:], straight, rtol=1e-2)
    # Far from the lumps.
    np.testing.assert_allclose(run.estimated[22:30], run.truth[22:30], rtol=0.02)
    off = np.abs(run.estimated - run.truth)[10:21]
    assert off.mean() > 1
    ends = np.flatnonzero(run.inside.closed[0, :61])
    assert (run.estimated[ends].min(1) <= 0.1001).all()
    lengths = np.linalg.norm(run.inside.correction[0, ends], axis=1)
    assert (lengths > 5).all()
    np.testing.assert_allclose(run.median[0], run.exact, rtol=0.02)
    np.testing.assert_allclose(run.median[-1], 1 / run.RATE, rtol=0.3)
    assert (run.lower[-1] < 0).all()
    assert (run.upper[-1] > 10).all()


def is_it_the_curvature(run):
    epochs = {name: each.mean() for name, each in run.epochs.items()}
    control, gain = epochs["same schedule, no curvature"], epochs["SGD"]
    gain -= epochs["CT-AGD"]
    assert gain > 4
    assert 0 <= control - epochs["CT-AGD"] < 1
    assert abs(control - epochs["CT-AGD without correction"]) < 0.5
    assert epochs["sawtooth"] < min(control, epochs["CT-AGD"]) - 1
    assert epochs["SGD, tuned"] < epochs["sawtooth"]
    assert epochs["SGD, tuned"] < epochs["robust"] + 1
    assert abs(epochs["SGD, averaged weights"] - epochs["SGD"]) < 1
    assert epochs["robust"] <= epochs["sawtooth"]
    assert np.isclose(run.full[3], 0.1).mean() > 0.8


def testbed(run):
    assert run.result.paths.shape == (15, 501, 2)
    assert set(run.result.status) <= {"converged", "diverged", "unsettled"}
    assert [len(each.steps) for each in run.results] == [15] * 6
    finals = [each.interval(each.final) for each in run.results]
    means = [final.mean for final in finals]
    assert max(means) - min(means) < min(final.half for final in finals)
    assert (run.newton.steps - 50 == 1).all()
    assert abs(run.still.gap(run.theta)) < 1e-5 < run.landscape.gap(run.theta)


def scale(run):
    assert run.jax.device_count() == 8
    assert run.here < sum(leaf.nbytes for leaf in run.leaves) / 6
    # Rounding may end a step of the rule otherwise, some epochs on.
    first = slice(0, run.BATCHES)
    np.testing.assert_allclose(run.on_eight[first], run.on_one[first], rtol=1e-2)
    far = np.abs(run.on_eight - run.on_one).mean(0) / run.on_one.mean(0)
    assert (far < 0.05).all()
    assert run.name == "wrapped"
    assert run.kinds == ["all-reduce"]
    assert 0 < run.numbers < 40
    assert np.array_equal(run.log, run.again)


CHECKS = {
    "01_quickstart": quickstart,
    "02_any_learning_rate": any_learning_rate,
    "03_inside_ct_agd": inside_ct_agd,
    "04_is_it_the_curvature": is_it_the_curvature,
    "05_testbed": testbed,
    "06_scale": scale,
}
