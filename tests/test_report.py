"""The report of trust figures."""

import json

import jax
import jax.numpy as jnp
import optax
import pytest

import ctagd_optax
from tests import problems


def trained():
    opt = optax.chain(
        optax.clip_by_global_norm(100.0),
        ctagd_optax.ct_agd(optax.sgd(0.02), 5, curvature_min=0.6, curvature_max=5.0),
    )
    return problems.train(opt, problems.params(), 5)


def test_rows_are_plain_numbers_by_path():
    params, state = trained()
    report = ctagd_optax.curvature_report(state, params)
    assert [(row.path, row.shape) for row in report] == [("b", (2,)), ("w", (2, 2))]
    b, w = report
    # Of b's curvatures 0.5 and 3 one is below the bounds; of w's 1, 2, 4, 8 one above.
    assert (b.observed, b.clamped_low, b.clamped_high) == (1.0, 0.5, 0.0)
    assert (w.observed, w.clamped_low, w.clamped_high) == (1.0, 0.0, 0.25)
    assert w.gamma == pytest.approx(1.3, rel=1e-3)
    assert w.relative_correction > 0
    assert w.left_out == 0
    json.dumps([row._asdict() for row in report])


def test_table_is_readable():
    params, state = trained()
    text = str(ctagd_optax.curvature_report(state, params))
    lines = text.splitlines()
    assert lines[0] == "Curvature after 1 epoch"
    assert lines[1].split() == [
        "tensor",
        "shape",
        "γ",
        "evidence",
        "low",
        "high",
        "correction",
        "out",
    ]
    assert len(lines) == 5
    assert len({len(line) for line in lines[1:]}) == 1
    assert "50%" in lines[3]
    assert "2×2" in lines[4]


def test_before_the_first_epoch():
    params = {"x": jnp.float32(1.0)}
    state = ctagd_optax.ct_sgd(steps_per_epoch=3).init(params)
    text = str(ctagd_optax.curvature_report(state, params))
    assert text.startswith("Curvature: no epoch has been closed yet")
    assert "scalar" in text


def test_bad_input():
    params, state = trained()
    with pytest.raises(ValueError, match="exactly one CTAGDState, found 0"):
        ctagd_optax.curvature_report(optax.sgd(0.1).init(params), params)
    with pytest.raises(ValueError, match="exactly one CTAGDState, found 2"):
        ctagd_optax.curvature_report((state, state), params)
    with pytest.raises(ValueError, match=r"state has 2 tensors, params has 1; .* None"):
        ctagd_optax.curvature_report(state, {"w": params["w"]})
    batch = jax.tree.map(lambda x: jnp.stack([x, x]), state)
    with pytest.raises(ValueError, match="state must be of one run, got a batch"):
        ctagd_optax.curvature_report(batch, params)
    one = jax.tree.map(lambda x: x[1], batch)
    assert ctagd_optax.curvature_report(one, params) == ctagd_optax.curvature_report(
        state, params
    )


def test_tensors_that_are_kept_from_it():
    opt = optax.masked(ctagd_optax.ct_sgd(steps_per_epoch=1), {"w": True, "b": False})
    params = problems.params()
    _, state = opt.update(params, opt.init(params), params)
    [row] = ctagd_optax.curvature_report(state, {**params, "b": None})
    assert row.path == "w"
