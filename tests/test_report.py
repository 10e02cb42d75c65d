"""The report of trust figures."""

import functools
import json
import re

import jax
import jax.numpy as jnp
import numpy as np
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
    report = ctagd_optax.curvature_report(state, params)
    opening, evidence, header, _, b, w = str(report).splitlines()
    low, high = sorted(1 / row.gamma for row in report)
    rates = f"{low:.3g} to {high:.3g}"
    assert (
        opening == f"ct_agd, 1 epoch done: the next starts at learning rate × {rates}."
    )
    assert evidence.startswith("In the last epoch 100% of the coordinates had evidence")
    names = "tensor shape rate × γ evidence low high correction out"
    assert header.split() == names.split()
    assert len({len(line) for line in (header, b, w)}) == 1
    assert "50%" in b
    assert "2×2" in w


def test_before_the_first_epoch():
    params = {"x": jnp.float32(1.0)}
    opt = ctagd_optax.ct_sgd(steps_per_epoch=3)
    state = opt.init(params)
    text = str(ctagd_optax.curvature_report(state, params))
    assert text.startswith("ct_agd: no step has been taken yet.")
    assert "scalar" in text
    _, state = opt.update(params, state, params)
    text = str(ctagd_optax.curvature_report(state, params))
    assert text.startswith("ct_agd, epoch 1, step 1 of 3: learning rate × 1.\nγ is 1")


@pytest.mark.parametrize(
    ("options", "advice"),
    [
        ({"eps": 100.0}, "no step was longer than eps"),
        ({"steps_per_epoch": 1}, "epochs have a single step"),
    ],
)
def test_what_to_do_without_evidence(options, advice):
    opt = ctagd_optax.ct_sgd(**{"steps_per_epoch": 4, **options})
    params, state = problems.train(opt, problems.params(), 4)
    text = " ".join(ctagd_optax.curvature_report(state, params).sentences)
    assert "Without evidence γ is 1 and nothing is corrected" in text
    assert advice in text
    assert "use robust_ct_agd" in text


@functools.cache
def wrapped(rate, length, **options):
    """An optimizer that all tests with these options share, as it is compiled once."""
    opt = ctagd_optax.robust_ct_agd(optax.sgd(rate), length, **options)
    return opt.init, jax.jit(opt.update)


def robust(gradient, steps, *, rate=1e-3, length=12, value=None, **options):
    """The report of the robust method after some steps on three coordinates."""
    init, update = wrapped(rate, length, **options)
    params = {"w": jnp.ones(3, jnp.float32), "v": jnp.ones((2, 1), jnp.float32)}
    state = init(params)
    for n in range(steps):
        grads = jax.tree.map(lambda x, n=n: gradient(n, x), params)
        extra = {} if value is None else {"value": value(n)}
        updates, state = update(grads, state, params, **extra)
        params = optax.apply_updates(params, updates)
    return ctagd_optax.curvature_report(state, params)


def test_the_robust_method_in_an_open_first_epoch():
    opening, reason, *table = str(robust(lambda n, x: x, 8)).splitlines()
    assert opening.startswith("robust_ct_agd, epoch 1, step 8 of 12: multiplier ")
    assert opening.endswith(" of 1000 allowed.")
    assert reason.startswith("So far, steps at multiplier 1 are at most 0.00")
    assert reason.endswith("Newton steps long: it may grow.")
    assert len(table) == 3  # one row for all, as they are equal
    assert table[2].startswith("all 2   5 in all")
    assert table[2].split()[-5:] == ["–"] * 5


def test_a_schedule_that_is_not_relative_is_noticed(standard_promotion):
    schedule = optax.cosine_decay_schedule(3e-4, 100)
    opening, advice, *_ = robust(lambda n, x: x, 3, schedule=schedule).sentences
    assert "schedule 0.000" in opening
    expected = "The schedule was at most 0.0003 so far. It is relative to the backbone"
    assert advice.startswith(expected)
    advice = robust(lambda n, x: x, 24, schedule=schedule).sentences[1]
    assert advice.startswith(expected)


@pytest.mark.parametrize("rate", [-1.0, 5.0])
def test_a_schedule_out_of_range_is_noticed(rate):
    said = robust(lambda n, x: x, 3, schedule=lambda n: rate).sentences[1]
    assert said.startswith(f"The schedule was {rate:g}. It should be at least 0")


def test_a_schedule_that_falls_to_0_is_relative(standard_promotion):
    schedule = optax.cosine_decay_schedule(1.0, 24)
    report = robust(lambda n, x: x, 24, schedule=schedule)
    assert "The schedule was" not in " ".join(report.sentences)


@pytest.mark.parametrize("length", [1, 2, 3])
def test_epochs_that_are_too_short_to_measure(length):
    said = " ".join(robust(lambda n, x: x, 12, length=length).sentences)
    assert (
        f"four steps in an epoch to measure anything, and steps_per_epoch is {length}."
        in said
    )


def test_a_long_warm_up_is_relative(standard_promotion):
    schedule = optax.warmup_cosine_decay_schedule(0.0, 1.0, 20 * 12, 300 * 12)
    report = robust(lambda n, x: x, 12, schedule=schedule)
    assert "The schedule was" not in " ".join(report.sentences)


def test_epochs_that_are_closed_later_than_counted_are_not_too_short():
    opt = ctagd_optax.robust_ct_agd(optax.sgd(1e-3), 1)
    params = jnp.ones(3, jnp.float32)
    state = opt.init(params)
    update = jax.jit(opt.update)
    for n in range(24):
        gradients = jnp.full(3, (-1.0) ** n, jnp.float32)
        updates, state = update(gradients, state, params, epoch_end=n % 12 == 11)
        params = optax.apply_updates(params, updates)
    said = " ".join(ctagd_optax.curvature_report(state, params).sentences)
    assert "four steps" not in said
    assert "The loss rises along the last step" in said


@pytest.mark.parametrize("steps", [8, 12, 36])
def test_steps_of_the_length_asked_for_do_not_grow(steps):
    report = robust(lambda n, x: x, steps, rate=0.3, target=0.1)
    assert "may grow" not in " ".join(report.sentences)


def test_a_multiplier_that_large_gradients_cut_does_not_stay():
    noises = np.random.default_rng(0).standard_normal(60).astype(np.float32)

    def gradient(n, x):
        return x if n < 24 else x + (0.2 if n < 36 else 3.0) * noises[n]

    report = robust(gradient, 48, multiplier_max=50.0)
    said = " ".join(report.sentences)
    assert 1 / report[0].gamma < 50, said
    assert "stays" not in said.replace("If it stays at 1", "")


def test_the_largest_multiplier_is_named_within_an_epoch():
    report = robust(lambda n, x: x, 8, multiplier_max=2.0)
    assert "it may grow. It is at the largest" in " ".join(report.sentences)
    report = robust(lambda n, x: x, 22, multiplier_max=2.0)
    assert "at the largest multiplier allowed: raise" in " ".join(report.sentences)


def test_a_loss_that_is_heard_is_not_asked_for():
    report = robust(noise, 9, value=lambda n: 9.0)
    assert "Gradient noise hides" in " ".join(report.sentences)
    assert "pass value" not in " ".join(report.sentences)


def test_the_robust_method_in_an_open_later_epoch():
    opening, *_ = robust(lambda n, x: x, 18).sentences
    found = re.fullmatch(
        r"robust_ct_agd, epoch 2, step 6 of 12: multiplier ([\d.]+) of 1000 allowed, "
        r"down from ([\d.]+) at the start of the epoch.",
        opening,
    )
    now, start = map(float, found.groups())
    assert 1 < now < start == 1000


@pytest.mark.parametrize(
    ("gradient", "steps", "options", "reason"),
    [
        (lambda n, x: x, 0, {}, "no step has been taken yet"),
        (lambda n, x: x, 2, {}, "Nothing is measured yet, so it is at most 1"),
        (lambda n, x: x, 12, {"length": 2}, "It takes four steps in an epoch"),
        (
            lambda n, x: x,
            24,
            {"multiplier_max": 5.0},
            "It is at the largest multiplier allowed: raise",
        ),
        (
            lambda n, x: x,
            24,
            {"multiplier_max": 5.0},
            "the next starts at multiplier 5 of 5",
        ),
        (lambda n, x: 2.5 * x, 12, {"rate": 1.0}, "Newton steps long: it shrank"),
        (lambda n, x: x, 12, {"rate": -1.0}, "Check the sign of the learning rate"),
        (
            lambda n, x: x - x + (-1.0 if n % 4 == 3 else 1.0),
            16,
            {"length": 16, "multiplier_max": 1.0},
            "Gradient noise hides how",
        ),
        (lambda n, x: x - x + (-1.0) ** n, 24, {}, "The loss rises along the last"),
        (
            lambda n, x: 0.5 * x,
            24,
            {"rate": 1.0, "multiplier_max": 1.0},
            "not clearly below 0.25, so it does not grow.",
        ),
    ],
)
def test_why_the_robust_method_does_what_it_does(gradient, steps, options, reason):
    report = robust(gradient, steps, **options)
    assert reason in " ".join(report.sentences), report.sentences


def noise(n, x):
    return x - x + (-1.0) ** (n // 2)


@pytest.mark.parametrize(
    ("value", "epochs", "said"),
    [
        (None, 1, "Or pass value=loss to update: it tries a larger one"),
        (lambda n: 9.0, 1, "The loss was 9 at the end of the epoch: a larger"),
        (lambda n: 9.0 - n // 12, 2, "at the end of the epoch, 1 lower than an epoch"),
        (lambda n: 9.0 + n // 12, 2, "the end of the epoch, 1 higher than an epoch"),
        (lambda n: 9.0 + n // 12, 3, "keeps rising, lower the backbone's learning"),
        (lambda n: 9.0 + n // 12, 2, "did not help, so it went back. The next trial"),
        (lambda n: 9.0 + n // 12, 2, "went back. The next trial comes in 2 epochs."),
        (lambda n: 9.0 + n // 12, 3, "takes a multiplier above 1 down to a third."),
    ],
)
def test_what_the_loss_said(value, epochs, said):
    report = robust(noise, 12 * epochs, value=value)
    assert said in " ".join(report.sentences), report.sentences
    assert ("pass value" in " ".join(report.sentences)) == (value is None)


def test_tensors_that_are_judged_alone_are_told_apart():
    def gradient(n, x):
        return x if x.ndim == 1 else 2500.0 * x

    report = robust(gradient, 12, pooling="tensor")
    said = "\n".join(report.sentences)
    assert "1 of 2 tensors (v): In the last epoch steps were at least" in said
    assert "1 of 2 tensors (w): In the last epoch steps were at most" in said
    assert len(str(report).splitlines()) == len(report.sentences) + 4


def test_a_schedule_is_told_apart_from_the_multiplier(standard_promotion):
    schedule = optax.linear_schedule(1.0, 0.0, 20)
    report = robust(lambda n, x: x, 11, schedule=schedule)
    assert report.sentences[0].endswith(" of 1000 allowed, schedule 0.5.")


def test_bad_input():
    params, state = trained()
    with pytest.raises(
        TypeError, match=r"an optimizer's state: call curvature_report\(state, params"
    ):
        ctagd_optax.curvature_report(params, state)
    bare = optax.sgd(0.1).init(params)
    for function in (
        lambda state: ctagd_optax.curvature_report(state, params),
        ctagd_optax.learning_rate_multiplier,
    ):
        with pytest.raises(
            ValueError, match="pass the state of an optimizer wrapped with"
        ):
            function(bare)
        with pytest.raises(
            ValueError, match=r"holds 2 .*: state\[0\]\[1\], state\[1\]"
        ):
            function((state, state))
    with pytest.raises(ValueError, match=r"state has 2 tensors, params has 1; .* None"):
        ctagd_optax.curvature_report(state, {"w": params["w"]})
    batch = jax.tree.map(lambda x: jnp.stack([x, x]), state)
    with pytest.raises(ValueError, match="state must be of one run, got a batch"):
        ctagd_optax.curvature_report(batch, params)
    one = jax.tree.map(lambda x: x[1], batch)
    assert ctagd_optax.curvature_report(one, params) == ctagd_optax.curvature_report(
        state, params
    )
    with pytest.raises(TypeError, match="call it outside of jit; inside, use learning"):
        jax.jit(lambda s: ctagd_optax.curvature_report(s, params)[0].gamma)(state)


def test_two_groups_of_a_partition_are_named():
    params = problems.params()
    opt = optax.partition(
        {name: ctagd_optax.ct_sgd(steps_per_epoch=2) for name in ("one", "two")},
        {"w": "one", "b": "two"},
    )
    state = opt.init(params)
    with pytest.raises(ValueError, match=r"state\.inner_states\['one'\]\.inner_state,"):
        ctagd_optax.learning_rate_multiplier(state)
    one = ctagd_optax.learning_rate_multiplier(state.inner_states["one"].inner_state)
    assert one.shape == (1,)


@pytest.mark.parametrize(
    "around",
    [
        lambda opt: opt,
        lambda opt: optax.chain(optax.clip(1.0), opt, optax.scale(1.0)),
        lambda opt: optax.MultiSteps(opt, 1),
        lambda opt: optax.partition({"all": opt}, "all"),
        lambda opt: optax.apply_if_finite(opt, 3),
    ],
    ids=["bare", "chain", "multi_steps", "partition", "apply_if_finite"],
)
def test_the_multiplier_that_the_last_update_had(around, standard_promotion):
    schedule = optax.linear_schedule(0.0, 1.0, 8)
    opt = ctagd_optax.robust_ct_agd(
        optax.sgd(1e-3), 12, schedule=schedule, multiplier_max=20.0
    )
    opt = around(opt)
    params = problems.params()
    state = opt.init(params)
    np.testing.assert_array_equal(ctagd_optax.learning_rate_multiplier(state), 1)

    @jax.jit
    def step(params, state):
        grads = jax.tree.map(jnp.sign, params)
        updates, state = opt.update(grads, state, params)
        told = ctagd_optax.learning_rate_multiplier(state)
        return optax.apply_updates(params, updates), state, told, -updates["b"] / 1e-3

    seen = []
    for _ in range(15):
        x, state, told, truth = step(params, state)
        np.testing.assert_allclose(told[0], np.abs(truth), rtol=1e-5)
        params, seen = x, [*seen, float(told[0])]
    assert seen[0] == 0
    assert max(seen) == pytest.approx(20.0)


def test_injected_hyperparameters_do_not_hide_it(standard_promotion):
    factory = optax.inject_hyperparams(ctagd_optax.robust_ct_agd)
    state = factory(optax.sgd(0.1), 5).init(problems.params())
    np.testing.assert_array_equal(ctagd_optax.learning_rate_multiplier(state), 1)


def test_tensors_that_are_kept_from_it():
    opt = optax.masked(ctagd_optax.ct_sgd(steps_per_epoch=1), {"w": True, "b": False})
    params = problems.params()
    _, state = opt.update(params, opt.init(params), params)
    [row] = ctagd_optax.curvature_report(state, {**params, "b": None})
    assert row.path == "w"
