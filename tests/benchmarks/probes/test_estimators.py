"""The estimators' benchmark runs, and shows what the README says of them."""

import json

import jax.numpy as jnp
import numpy as np
import pytest

import ctagd_optax
from benchmarks.__main__ import main
from benchmarks.probes import estimators

pytestmark = pytest.mark.usefixtures("default_jax")


def test_second_gradients_beat_the_secant_under_noise(monkeypatch):
    monkeypatch.setattr(estimators, "MOMENTA", (0.85,))
    monkeypatch.setattr(estimators, "NOISES", (0.1, 1.0, 10.0))
    rows = estimators.quadratic(settled=False, draws=10, lengths=[100, 400])
    assert len(rows) == 6
    for row in rows:
        for name in ("same_batch()", "hutchinson()"):
            assert row["error"]["secant()"] > 3 * row["error"][name], row
        assert set(row["covered"]) == {"same_batch()", "hutchinson()"}


def test_measure():
    estimate = ctagd_optax.CurvatureEstimate(
        value=jnp.asarray([2.0, 5.0, -3.0, 1e3, 1.0, 1.0]),
        observed=jnp.asarray([True, False, True, True, True, True]),
        standard_error=jnp.asarray([0.1, 9.0, 1.0, 1.0, 0.3, 9.0]),
    )
    truth = jnp.asarray([0.2, 1.0, 1.0, 10.0, 0.5, 1e-3])
    errors = estimators.measure(estimate, truth)
    # Off tenfold; no evidence; negative; clamped from above; right but for 2; too flat.
    np.testing.assert_allclose(
        errors.log10, [1.0, 2.0, 2.0, 1.0, np.log10(2), np.nan], rtol=1e-5
    )
    np.testing.assert_array_equal(errors.covered, [0, 1, 0, 0, 1, np.nan])
    without = estimators.measure(estimate._replace(standard_error=None), truth)
    assert without.covered is None
    np.testing.assert_array_equal(without.log10, errors.log10)


def test_the_control_is_the_median_of_what_is_measured():
    truth = jnp.asarray([1e-3, 0.5, 2.0, 8.0, 1e3])
    control = estimators.control(truth)
    np.testing.assert_array_equal(control.value, 2)
    errors = estimators.measure(control, truth).log10
    wanted = [np.nan, np.log10(4), 0, np.log10(4), np.nan]
    np.testing.assert_allclose(errors, wanted, rtol=1e-5)


def test_the_limit_is_what_an_endless_path_along_the_noise_shows():
    hessian = jnp.asarray([[2.0, 1.0], [1.0, 4.0]])
    covariance = jnp.asarray([[1.0, 0.5], [0.5, 2.0]])
    rng = np.random.default_rng(0)
    steps = rng.multivariate_normal(np.zeros(2), covariance, 200_000)
    seen = np.sum(steps * (steps @ hessian), axis=0) / np.sum(steps**2, axis=0)
    found = estimators.limit(hessian, covariance).value
    np.testing.assert_allclose(found, seen, rtol=0.01)
    np.testing.assert_allclose(found, [2.5, 4.25])


def test_the_limit_is_the_diagonal_if_noise_is_alike_and_none_without_it(monkeypatch):
    monkeypatch.setattr(estimators, "ESTIMATORS", {})
    monkeypatch.setattr(estimators, "MOMENTA", (0.85,))
    monkeypatch.setattr(estimators, "NOISES", (0.0, 1.0))
    without, alike = estimators.quadratic(settled=False, draws=2, lengths=[4])
    assert set(without["error"]) == {estimators.CONTROL}
    assert alike["error"][estimators.LIMIT] == 0


def test_short_run(tmp_path, monkeypatch):
    out = tmp_path / "estimators.json"
    few = {"same_batch()": ctagd_optax.same_batch()}
    monkeypatch.setattr(estimators, "ESTIMATORS", few)
    monkeypatch.setattr(estimators, "MOMENTA", (0.85,))
    monkeypatch.setattr(estimators, "NOISES", (1.0,))
    monkeypatch.setattr(estimators, "BATCHES", (8,))
    monkeypatch.setattr(estimators, "HIDDEN", 2)
    arguments = ["estimators", "--draws", "2", "--lengths", "4", "8", "--out", str(out)]
    main(arguments)
    rows = json.loads(out.read_text())["rows"]
    assert [(row["problem"], row["steps"]) for row in rows] == [
        (problem, steps)
        for problem in ("quadratic", "settled", "network")
        for steps in (4, 8)
    ]
    assert all(row["coordinates"] for row in rows)
    names = {*few, estimators.CONTROL, estimators.LIMIT}
    assert all(set(row["error"]) == names for row in rows)
    assert all(0 <= error < 4 for row in rows for error in row["error"].values())
    assert all(row["error"]["same_batch()"] > 0 for row in rows)
    # A network's noise is not alike in all directions.
    assert all(row["error"][estimators.LIMIT] > 0.05 for row in rows[-2:])


def test_bad_lengths(monkeypatch, capsys):
    with pytest.raises(SystemExit):
        main(["estimators", "--lengths", "0"])
    assert "--draws and --lengths must be at least 1" in capsys.readouterr().err
