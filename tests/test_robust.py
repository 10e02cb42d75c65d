"""The robust method against its NumPy reference, and what it promises."""

import itertools
import re

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import ctagd_optax
from ctagd_optax._robust import MotionSums, next_multiplier, step_length
from tests import problems, reference

T = 12


def replay(options, *, learning_rate=0.02, steps=4 * T, noise=0.1, closing=None):
    """Runs the method on a noisy quadratic, and compares every step."""
    dtype = "float32"
    rng = np.random.default_rng(0)
    shapes = {"b": (4,), "w": (3, 2)}
    params = {k: jnp.asarray(rng.standard_normal(s), dtype) for k, s in shapes.items()}
    curvature = {k: rng.uniform(0.5, 8.0, s) for k, s in shapes.items()}
    opt = ctagd_optax.robust_ct_agd(
        optax.sgd(learning_rate, momentum=0.5), T, **options
    )
    update = jax.jit(opt.update)
    state, history = opt.init(params), []
    for n in range(steps):
        scale = 20.0 if n == 2 * T + 1 else 1.0  # one step for the guard
        grads = {
            k: jnp.asarray(
                scale * curvature[k] * np.asarray(params[k], np.float64)
                + noise * rng.standard_normal(shapes[k]),
                dtype,
            )
            for k in shapes
        }
        extra = {} if closing is None else {"epoch_end": closing[n]}
        updates, state = update(grads, state, params, **extra)
        history.append((params, grads, updates, state))
        params = optax.apply_updates(params, updates)
    expected, multipliers, epochs = reference.robust_ct_agd(
        [jax.tree.leaves(row[0]) for row in history],
        [jax.tree.leaves(row[1]) for row in history],
        [reference.sgd(learning_rate, 0.5) for _ in shapes],
        T,
        closing=closing,
        **options,
    )
    for n, (*_, updates, state) in enumerate(history):
        np.testing.assert_allclose(1 / state.gamma, multipliers[n], rtol=1e-4)
        for actual, wanted in zip(jax.tree.leaves(updates), expected[n], strict=True):
            np.testing.assert_allclose(actual, wanted, rtol=2e-4, atol=2e-6)
    ends = [state for *_, state in history if state.epoch_step == 0]
    for state, row in zip(ends, epochs, strict=True):
        for name, value in row.items():
            np.testing.assert_allclose(
                getattr(state.info, name), np.broadcast_to(value, (2,)), rtol=2e-3
            )
    return epochs


def noisy_epoch(opt, steps, key, size=30):
    """The sums of an epoch on a rotated quadratic with noise, and the true N."""
    rng = np.random.default_rng(0)
    basis = np.linalg.qr(rng.standard_normal((size, size)))[0]
    hessian = basis @ np.diag(np.geomspace(0.1, 10, size)) @ basis.T
    hessian = jnp.asarray(hessian, jnp.float32)

    def step(carry, key):
        x, state = carry
        g = hessian @ x + jax.random.normal(key, (size,), jnp.float32)
        updates, after = opt.update(g, state, x)
        # The order of the two does not matter to a symmetric form.
        true = state.memory.even @ hessian @ state.memory.odd
        return (x + updates, after), true

    x = jnp.zeros(size, jnp.float32)
    keys = jax.random.split(key, steps)
    (_, state), true = jax.lax.scan(step, (x, opt.init(x)), keys)
    return state.evidence.pooled, jnp.sum(true)


@pytest.mark.parametrize(
    ("options", "corrected"),
    [
        pytest.param({}, False, id="defaults"),
        pytest.param({"correction_confidence": 0.5}, False, id="growing"),
        pytest.param(
            {"correction_confidence": 0.5, "correction_multiplier_max": np.inf},
            True,
            id="bold",
        ),
        pytest.param(
            {
                "pooling": "tensor",
                "correction": "coordinate_line",
                "correction_multiplier_max": 20.0,
            },
            True,
            id="tensor",
        ),
        pytest.param(
            {
                "correction": "line",
                "correction_multiplier_max": np.inf,
                "correction_confidence": 0.5,
                "correction_limit": 0.05,
            },
            True,
            id="near",
        ),
        pytest.param(
            {"pooling": "mix", "aim": "mean", "target": 1.5, "correction": "none"},
            False,
            id="mix",
        ),
        pytest.param(
            {"promise": "own", "early_target": 0.0, "multiplier_max": 40.0},
            False,
            id="own",
        ),
        pytest.param(
            {"confidence": 0.0, "require_descent": False, "guard": np.inf},
            False,
            id="without",
        ),
        pytest.param(
            {
                "correction": "coordinate_line",
                "correction_multiplier_max": np.inf,
                "correction_samples": 3,
            },
            True,
            id="thin",
        ),
        pytest.param({"early_growth": 1.1, "early_target": 2.0}, False, id="early"),
    ],
)
def test_every_step_is_the_references(options, corrected):
    epochs = replay(options)
    multipliers = [row["multiplier"] for row in epochs]
    assert all((m > 1).all() for m in multipliers)
    assert np.max(multipliers) < options.get("multiplier_max", 20)
    assert np.any([row["relative_correction"] for row in epochs]) == corrected


def test_the_correction_where_steps_are_not_to_be_longer():
    options = {"multiplier_max": 1.0, "correction_confidence": 0.5}
    for pooling in ("all", "tensor"):
        epochs = replay({**options, "pooling": pooling}, learning_rate=0.2)
        assert any((row["relative_correction"] > 0).all() for row in epochs)


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({}, id="all"),
        pytest.param({"pooling": "tensor"}, id="tensor"),
        pytest.param({"pooling": "mix"}, id="mix"),
        pytest.param({"errors": "gradients"}, id="gradients"),
    ],
)
def test_evidence_lasts_while_the_multiplier_stays(options):
    def signals(evidence_steps=50.0, **changed):
        changed = {"evidence_steps": evidence_steps, **options, **changed}
        epochs = replay(changed, learning_rate=0.005, noise=1.0)
        found = {
            name: np.stack([np.broadcast_to(row[name], 2) for row in epochs])
            for name in ("signal", "multiplier")
        }
        return found["signal"], found["multiplier"]

    at_one = {"multiplier_max": 1.0, "multiplier_min": 1.0}
    lasting, anew = signals(**at_one)[0], signals(0.0, **at_one)[0]
    np.testing.assert_array_equal(lasting[0], anew[0])
    assert (np.abs(lasting[1:] - anew[1:]) > 1e-3).all()
    # The first decision ends the use of the first epoch's evidence, and no other comes.
    held = {"threshold": 0.0, "decay": 1.0, "guard": np.inf, "multiplier_max": 2.0}
    (lasting, m), (anew, _) = signals(**held), signals(0.0, **held)
    np.testing.assert_array_equal(m, 2)
    np.testing.assert_array_equal(lasting[:2], anew[:2])
    assert (np.abs(lasting[2:] - anew[2:]) > 1e-3).all()


def test_evidence_of_all_tensors_lasts_only_if_none_changed():
    options = {"pooling": "mix", "evidence_steps": 50.0, "growth": 1.5}
    epochs = replay(options, learning_rate=3e-3, noise=1.0, steps=10 * T)
    m = np.stack([row["multiplier"] for row in epochs])
    changed = np.diff(m, axis=0) != 0
    assert (changed.sum(1) == 1).any()


def test_a_gradient_that_is_not_finite_has_no_share_of_the_error():
    rng = np.random.default_rng(0)
    rate, steps = 0.1, 9
    g = rng.standard_normal((steps, 6))
    g[4] = np.nan
    opt = ctagd_optax.robust_ct_agd(
        optax.sgd(rate), 20, errors="gradients", correction="none", multiplier_max=1.0
    )
    x = jnp.ones(6, jnp.float32)
    state, update = opt.init(x), jax.jit(opt.update)
    shares = np.zeros(steps)
    for t in range(steps):
        _, state = update(jnp.asarray(g[t], jnp.float32), state, x)
        if t >= 2 and np.isfinite(g[t - 2 : t + 1]).all():
            shares[t] -= rate * g[t - 2] @ g[t]
            shares[t - 1] += rate * g[t - 2] @ g[t - 1]
    sums = state.evidence.pooled
    by_gradients = np.sqrt((shares**2).sum())
    np.testing.assert_allclose(
        np.hypot(sums.error_by_gradients, state.evidence.last_share),
        by_gradients,
        rtol=1e-5,
    )
    wanted = np.minimum(by_gradients, sums.error_by_terms)
    np.testing.assert_allclose(sums.curvature_error, wanted, rtol=1e-5)


def test_an_epoch_without_samples_leans_on_evidence_that_lasts():
    ends = 11, 23, 25, 37, 47
    closing = [n in ends for n in range(48)]
    options = {"threshold": 0.0, "decay": 1.0, "guard": np.inf, "multiplier_max": 2.0}

    def multipliers(**changed):
        epochs = replay({**options, **changed}, learning_rate=0.005, closing=closing)
        return [row["multiplier"][0] for row in epochs]

    assert multipliers() == [2, 2, 1, 1, 1]
    assert multipliers(evidence_steps=50.0) == [2] * 5


def test_evidence_that_overflowed_does_not_last():
    opt = ctagd_optax.robust_ct_agd(
        optax.sgd(1e-3),
        T,
        evidence_steps=50.0,
        correction="none",
        multiplier_max=1.0,
    )
    x = jnp.ones(4, jnp.float32)
    state, update = opt.init(x), jax.jit(opt.update)
    seen = []
    for scale in (1e21, 1.0, 1.0):
        for _ in range(T):
            _, state = update(scale * x, state, x)
        seen.append(float(state.info.step_high[0]))
    assert not np.isfinite(seen[0])
    assert np.isfinite(seen[1:]).all()


@pytest.mark.parametrize(
    ("backbone", "steps", "momentum"),
    [
        (optax.sgd(0.01), 40, False),
        (optax.sgd(0.01, momentum=0.85), 10, True),
        (optax.sgd(0.01, momentum=0.85), 100, True),
        (optax.adam(1e-3), 40, True),
    ],
)
def test_the_standard_error_is_that_of_the_curvature(backbone, steps, momentum):
    """By terms it is too large with momentum, as they share gradients."""
    opt = ctagd_optax.robust_ct_agd(
        backbone,
        steps,
        errors="gradients",
        correction="none",
        multiplier_max=1.0,
        multiplier_min=1.0,
    )

    def deviation(key):
        sums, true = noisy_epoch(opt, steps, key)
        away = sums.curvature - true
        return away / sums.curvature_error, away / sums.error_by_terms

    keys = jax.random.split(jax.random.key(0), 300)
    with jax.numpy_dtype_promotion("standard"):  # for Adam
        ours, by_terms = jax.jit(jax.vmap(deviation))(keys)
    assert 0.85 < jnp.std(ours) < 1.15
    assert abs(jnp.mean(ours)) < 0.25
    assert (jnp.std(by_terms) < 0.7) == momentum


def test_growth_after_the_first_is_limited():
    options = {"target": 0.1, "early_target": 0, "growth": 1.5, "multiplier_max": 1e3}

    def multipliers(**changed):
        epochs = replay({**options, **changed}, learning_rate=3e-4)
        return [row["multiplier"][0] for row in epochs], epochs[1]["step_high"][0]

    m, length = multipliers()
    assert m[1] / m[0] == pytest.approx(0.1 / length)  # to the target
    assert m[2] < m[1]  # after the step of large gradients
    assert m[3] / m[2] == pytest.approx(1.5)  # the target is farther
    held, length = multipliers(threshold=0.05)
    assert held[1] == held[0]
    assert 0.05 < length < 0.1
    none, _ = multipliers(first_threshold=1e-3)
    assert none[0] == 1


@pytest.mark.parametrize("scale", [1.0, 1e-12])
def test_noise_is_not_certain_because_it_is_small(scale):
    rng = np.random.default_rng(0)
    noise = jnp.asarray(scale * rng.standard_normal((20, 24, 50)), jnp.float64)
    opt = ctagd_optax.robust_ct_agd(optax.sgd(0.01), 24, correction="none")

    def multiplier(gradients):
        def step(state, g):
            return opt.update(g, state, jnp.ones(50, jnp.float64))[1], None

        first = opt.init(jnp.ones(50, jnp.float64))
        return jax.lax.scan(step, first, gradients)[0].info.multiplier[0]

    assert jnp.mean(jax.jit(jax.vmap(multiplier))(noise) > 1) <= 0.1


def test_epochs_that_are_ended_by_hand():
    ends = 14, 30, 39, 41  # longer, longer, shorter, too short for a correction
    epochs = replay({}, closing=[n in ends for n in range(48)])
    assert [bool(row["multiplier"][0] > 1) for row in epochs] == [True] * 3 + [False]


def test_steps_that_are_too_long_are_shortened_to_a_newton_step():
    a, length = 2.0, 2.5
    opt = ctagd_optax.robust_ct_agd(optax.sgd(length / a), T, correction="none")
    x = jnp.asarray([1.0, -2.0], jnp.float32)
    state = opt.init(x)
    for _ in range(T):
        updates, state = opt.update(a * x, state, x)
        x = x + updates
    assert jnp.linalg.norm(x) > 10
    np.testing.assert_allclose(state.info.step_low, length, rtol=1e-5)
    np.testing.assert_allclose(1 / state.gamma, 1 / length, rtol=1e-5)
    updates, _ = opt.update(a * x, state, x)
    np.testing.assert_allclose(x + updates, 0, atol=1e-5)


def test_it_does_nothing_where_nothing_is_clear():
    backbone = optax.adam(0.1)
    opt = ctagd_optax.robust_ct_agd(
        backbone, 20, first_threshold=0.0, threshold=0.0, correction="none"
    )
    rng = np.random.default_rng(0)
    params = {"w": jnp.asarray(rng.standard_normal(50), jnp.float32)}
    with jax.numpy_dtype_promotion("standard"):
        state, bare_state = opt.init(params), backbone.init(params)
        update, bare_update = jax.jit(opt.update), jax.jit(backbone.update)
        for _ in range(60):
            g = rng.standard_normal(50) * rng.integers(0, 2, 50)
            grads = {"w": jnp.asarray(g, jnp.float32)}
            updates, state = update(grads, state, params)
            bare, bare_state = bare_update(grads, bare_state, params)
            assert np.asarray(updates["w"]).tobytes() == np.asarray(bare["w"]).tobytes()
    assert state.epoch == 3


def test_noise_does_not_bias_the_curvature():
    steps = 20_000
    opt = ctagd_optax.robust_ct_agd(
        optax.sgd(0.01, momentum=0.85),
        steps,
        first_threshold=0.0,
        correction="none",
    )
    sums, true = noisy_epoch(opt, steps, jax.random.key(0))
    error = float(sums.curvature_error[0])
    np.testing.assert_allclose(sums.curvature, true, atol=3 * error)
    assert sums.curvature > 5 * error


def test_an_epoch_of_large_gradients_steps_back():
    opt = ctagd_optax.robust_ct_agd(optax.sgd(1e-3), T, correction="none", threshold=0)
    x = jnp.ones(4, jnp.float32)
    state = opt.init(x)
    for scale in (1.0, 6.0):
        for _ in range(T):
            _, state = opt.update(scale * x, state, x)
        if scale == 1.0:
            first = 1 / state.gamma
    assert first[0] == pytest.approx(20.0)
    # 36 is 9 times what the guard lets pass.
    np.testing.assert_allclose(1 / state.gamma, 1 + (first - 1) / 9, rtol=1e-4)


def test_bounds_of_the_step_length():
    sums = MotionSums(*map(jnp.asarray, (2.0, 1.0, 10.0, -3.0, 1.0, 4.0, 1, 1, 1)))

    def bounds(by="fresh", **changes):
        changed = sums._replace(**{k: jnp.asarray(v) for k, v in changes.items()})
        return step_length(changed, jnp.asarray(2.0), promise=by)

    np.testing.assert_allclose(bounds(), (1.5, 0.2))
    np.testing.assert_allclose(bounds("own"), (0.6, 0.2))
    # A gradient that points back counts twice.
    np.testing.assert_allclose(bounds("own", overlap_sum=4.0), (1.6, 0.2))
    np.testing.assert_allclose(bounds("own", overlap_sum=6.0), (2.4, 2.2))
    np.testing.assert_allclose(bounds(overlap_sum=6.0), (1.5, 2.2))
    # Where nothing is left of the promise, a step may be of any length.
    np.testing.assert_allclose(bounds(fresh=-0.1), (np.inf, 0.2))
    np.testing.assert_allclose(bounds(fresh=0.0), (np.inf, 0.2))
    nothing = dict.fromkeys(MotionSums._fields, 0.0)
    for by in ("fresh", "own"):
        assert bounds(by, promise=-1.0)[0] < 0
        np.testing.assert_array_equal(bounds(by, **nothing), (np.inf, -np.inf))


def test_rule():
    def after(high, low, descending=True, ascending=False, m=2.0, first=False):
        known = *map(jnp.asarray, (high, low)), descending, ascending, first
        return float(next_multiplier(jnp.asarray(m), *known))

    assert after(0.1, 0.0) == 6.0  # by growth
    assert after(0.1, 0.0, m=1.0, first=True) == pytest.approx(20.0)
    assert after(0.1, 0.0, descending=False) == 2.0
    assert after(0.3, 0.0) == 2.0  # dead zone
    assert after(0.3, 0.0, m=1.0, first=True) == pytest.approx(2 / 0.3)
    assert after(0.3, 0.0, m=1.0) == after(2.1, 0.0, m=1.0, first=True) == 1.0
    assert after(3.0, 2.0) == 1.0
    assert after(np.inf, 0.0, descending=False) == 2.0
    assert after(np.inf, 0.0, False, ascending=True) == pytest.approx(1.8)
    assert after(np.inf, 4.0, False, ascending=True) == 0.5  # already below 1
    assert after(jnp.nan, 0.0) == after(0.1, -jnp.inf) == after(-0.1, 0.0) == 1.0
    assert after(jnp.nan, 0.0, m=0.5) == 0.5
    # A target below the threshold is no reason to shorten.
    one, high, low = map(jnp.asarray, (1.0, 1.5, 0.0))
    assert next_multiplier(one, high, low, True, first=True, target=1.0) == 1


@pytest.mark.parametrize("require_descent", [True, False])
def test_the_first_decision_is_made_once(require_descent):
    """An epoch that was clear uses it up; one that told nothing does not."""

    def multiplier(*epochs):
        """After epochs of steps of these lengths: m, and whether one was clear."""
        opt = ctagd_optax.robust_ct_agd(
            optax.sgd(1.0),
            40,
            early_target=0.0,
            first_threshold=0.1,
            threshold=0.05,
            correction="none",
            require_descent=require_descent,
        )
        x = jnp.ones(3, jnp.float32)
        state, update = opt.init(x), jax.jit(opt.update)
        for length in epochs:
            x = jnp.ones(3, jnp.float32)
            for _ in range(40):
                updates, state = update(length * x, state, x)
                x = x + updates
        return float(state.info.multiplier[0]), float(state.info.settled[0])

    m, settled = multiplier(0.06)
    assert (m > 1, settled) == (True, 1)
    assert multiplier(0.15) == multiplier(0.15, 0.06) == (1, 1)
    assert multiplier(0.0) == (1, 0)
    assert multiplier(0.0, 0.06) == (m, 1)


def test_descent_is_required_unless_told_otherwise():
    # A slope that shows in three of four steps: some descent, but none that is sure.
    gradients = np.tile([1.0, 1.0, 1.0, -1.0], 4)

    def multiplier(**options):
        opt = ctagd_optax.robust_ct_agd(
            optax.sgd(1e-3), 16, early_target=0.0, correction="none", **options
        )
        x = jnp.zeros(1, jnp.float32)
        state, update = opt.init(x), jax.jit(opt.update)
        for g in gradients:
            updates, state = update(jnp.full(1, g, jnp.float32), state, x)
            x = x + updates
        assert 0 < state.info.held[0] < 1
        return float(state.info.multiplier[0])

    options = {"first_threshold": 1e9, "target": 1e9}
    assert multiplier(**options) == 1
    assert multiplier(**options, require_descent=False) > 1


def test_a_multiplier_has_a_least_value_and_is_no_new_start_after_it():
    opt = ctagd_optax.robust_ct_agd(
        optax.sgd(1.0), 6, multiplier_min=0.5, correction="none", early_target=0.0
    )
    x = jnp.ones(2, jnp.float32)
    state, update = opt.init(x), jax.jit(opt.update)

    def epoch(x, state, curvature):
        for _ in range(6):
            updates, state = update(curvature * x, state, x)
            x = x + updates
        return state

    state = epoch(x, state, 12.0)  # steps of 12 Newton steps
    np.testing.assert_array_equal(state.info.multiplier, 0.5)
    # Of steps that are far too short now, growth is limited, as they are no first ones.
    state = epoch(x, state._replace(info=state.info._replace(settled=0 * x[:1])), 1e-3)
    np.testing.assert_array_equal(state.info.multiplier, 1.5)


def test_noise_is_not_taken_for_descent():
    """At the bottom of a noisy parabola, where D promises descent and there is none."""
    size, steps = 20, 200
    multipliers = {}
    for promise in ("fresh", "own"):
        opt = ctagd_optax.robust_ct_agd(
            optax.sgd(0.002), steps, promise=promise, correction="none"
        )

        def step(carry, key, opt=opt):
            x, state = carry
            g = x + 10 * jax.random.normal(key, (size,), jnp.float32)
            updates, state = opt.update(g, state, x)
            return (x + updates, state), None

        x = jnp.zeros(size, jnp.float32)
        keys = jax.random.split(jax.random.key(1), steps)
        (_, state), _ = jax.lax.scan(step, (x, opt.init(x)), keys)
        multipliers[promise] = float(1 / state.gamma[0])
    assert abs(state.info.held[0]) < 0.1
    assert multipliers["own"] > 5
    assert multipliers["fresh"] == 1


def test_the_first_epoch_follows_its_evidence():
    """A rate far too small: m rises within the first epoch, step by step."""

    def lengths(**options):
        opt = ctagd_optax.robust_ct_agd(
            optax.sgd(1e-3), 40, correction="none", **options
        )
        x = jnp.asarray([1.0, -2.0], jnp.float32)
        state, seen = opt.init(x), []
        for _ in range(39):
            updates, state = opt.update(2 * x, state, x)
            seen.append(float(jnp.linalg.norm(updates) / jnp.linalg.norm(2e-3 * x)))
            x = x + updates
        return seen

    for off in ({"early_target": 0.0}, {"early_growth": 1.0}):
        np.testing.assert_allclose(lengths(**off), 1, rtol=1e-4)
    rising = [1, 1, 1, 1, *(1.5 ** np.arange(2, 8))]  # one sample is not sure
    np.testing.assert_allclose(lengths()[:10], rising, rtol=1e-4)
    # Not annealed: it stays at the largest m.
    np.testing.assert_allclose(lengths()[10:], 20, rtol=1e-4)


def test_evidence_that_gets_clear_late_in_the_first_epoch():
    """Noise, then none: m is as long as the evidence vouches for, not its limit."""
    rng = np.random.default_rng(0)
    opt = ctagd_optax.robust_ct_agd(optax.sgd(0.01), 100, correction="none")
    x = jnp.full(10, 10.0, jnp.float32)
    state, seen = opt.init(x), []
    for n in range(99):
        high, _ = step_length(state.evidence.pooled, jnp.ones(1, jnp.float32))
        noise = 30.0 * rng.standard_normal(10) if n < 20 else 0.0
        g = x + jnp.asarray(noise, jnp.float32)
        updates, state = opt.update(g, state, x)
        seen.append((float(jnp.linalg.norm(updates / (0.01 * g))), float(high[0])))
        x = x + updates
    m, high = np.asarray(seen).T / np.array([[np.sqrt(10)], [1]])
    np.testing.assert_allclose(m[:20], 1, rtol=1e-5)
    longer = m > 1.001
    assert longer.any()
    np.testing.assert_allclose(m[longer], 0.7 / high[longer], rtol=1e-4)
    assert m.max() < 20  # which 1.5 to the power of 20 is far above


def test_curvature_that_rises_within_the_first_epoch():
    """eˣ - x from far to the left, where it is a line and looks like one."""
    opt = ctagd_optax.robust_ct_agd(optax.sgd(0.5), 40)
    x = jnp.asarray([-5.0], jnp.float32)
    state = opt.init(x)
    update = jax.jit(opt.update)
    for _ in range(80):
        updates, state = update(jnp.exp(x) - 1, state, x)
        x = x + updates
        assert abs(x[0]) < 6
    assert abs(x[0]) < 0.1


def test_steps_that_lead_uphill_let_the_multiplier_decay():
    a = jnp.asarray([1.0, 10.0], jnp.float32)
    opt = ctagd_optax.robust_ct_agd(
        optax.sgd(0.01), 20, decay=0.5, correction="none", guard=jnp.inf
    )
    x = jnp.asarray([1.0, 1.0], jnp.float32)
    state = opt.init(x)
    update = jax.jit(opt.update)
    rng, seen = np.random.default_rng(0), []
    for _ in range(6):
        for _ in range(20):
            noise = jnp.asarray(rng.normal(size=2), jnp.float32)
            updates, state = update(a * (x + noise), state, x)
            x = x + updates
        seen.append((float(1 / state.gamma[0]), float(state.info.held[0])))
    fell = [
        after / before
        for (before, _), (after, held) in itertools.pairwise(seen)
        if before > 1 and held < 0
    ]
    assert seen[0][0] > 1
    assert any(0.5 - 1e-3 <= ratio < 1 for ratio in fell), (seen, fell)


@pytest.mark.parametrize("pooling", ["all", "tensor", "mix"])
@pytest.mark.parametrize("longer", [False, True], ids=["", "longer"])
def test_epochs_that_follow_one_uphill_fall_to_the_floor(pooling, longer):
    options = {"pooling": pooling, "floor": 0.3, "multiplier_max": 1.0}
    # Half as long again as they should be: the rate then stays at the floor.
    closing = [n % 18 == 17 for n in range(10 * 18)] if longer else None
    epochs = replay(
        options, learning_rate=0.06, noise=1.0, steps=10 * 18, closing=closing
    )
    floors = np.stack([np.broadcast_to(row["floor"], 2) for row in epochs])
    assert {*floors.ravel()} == {0.3, 1.0}
    # Which way it went decides; what is not clear changes nothing.
    held = np.stack([np.broadcast_to(row["held"], 2) for row in epochs])
    before = np.concatenate([np.ones((1, 2)), floors[:-1]])
    assert (held[floors < before] < 0).all()
    assert (held[floors > before] > 0).all()


def test_the_floor_waits_for_the_multiplier_to_be_one():
    a = jnp.asarray([1.0, 10.0], jnp.float32)
    opt = ctagd_optax.robust_ct_agd(
        optax.sgd(0.01), 20, decay=0.5, floor=0.1, correction="none"
    )
    x = jnp.asarray([1.0, 1.0], jnp.float32)
    state, update = opt.init(x), jax.jit(opt.update)
    rng, seen = np.random.default_rng(0), []
    for _ in range(12):
        m = float(1 / state.gamma[0])
        for _ in range(20):
            noise = jnp.asarray(rng.normal(size=2), jnp.float32)
            updates, state = update(a * (x + noise), state, x)
            x = x + updates
        seen.append((m, float(state.info.held[0]), float(state.info.floor[0])))
    assert any(m > 1 and held < 0 for m, held, _ in seen)
    assert all(floor == 1 for m, _, floor in seen if m > 1)
    assert seen[-1][2] == np.float32(0.1)


def test_to_settle_within_epochs_lowers_the_loss():
    """At a high rate, where noise rules; and changes nothing while it does not."""
    a = jnp.geomspace(0.1, 10, 30, dtype=jnp.float32)

    def losses(floor, key):
        opt = ctagd_optax.robust_ct_agd(
            optax.sgd(0.02, momentum=0.85), 20, floor=floor, correction="none"
        )

        def step(carry, key):
            x, state = carry
            g = a * x + jax.random.normal(key, (30,), jnp.float32)
            updates, state = opt.update(g, state, x)
            return (x + updates, state), jnp.sum(a * (x + updates) ** 2)

        x = jnp.full(30, 20.0, jnp.float32)
        keys = jax.random.split(key, 400)
        return jax.lax.scan(step, (x, opt.init(x)), keys)[1].reshape(20, 20)[:, -1]

    keys = jax.random.split(jax.random.key(0), 50)
    with_floor, without = (
        jax.jit(jax.vmap(losses, (None, 0)))(floor, keys).mean(0)
        for floor in (0.1, 1.0)
    )
    np.testing.assert_array_equal(with_floor[:2], without[:2])
    assert with_floor[-5:].mean() < 0.75 * without[-5:].mean()


def test_a_gradient_that_is_not_finite_is_left_out():
    skip = optax.apply_if_finite(optax.sgd(0.01), max_consecutive_errors=5)
    opt = ctagd_optax.robust_ct_agd(skip, 8)
    params = problems.params()
    state = opt.init(params)
    update = jax.jit(opt.update)
    for n in range(16):
        grads = jax.grad(problems.loss)(params)
        if n in (3, 12):
            grads["b"] = grads["b"].at[0].set(jnp.nan if n == 3 else jnp.inf)
        updates, state = update(grads, state, params)
        params = optax.apply_updates(params, updates)
        assert all(np.isfinite(x).all() for x in jax.tree.leaves((updates, params)))
    np.testing.assert_array_equal(state.info.left_out, [1, 0])
    assert np.isfinite(state.info.step_high).all()
    assert (state.info.multiplier > 1).all()


def test_a_tensor_that_is_never_finite_does_not_speak_for_the_others():
    def run(bad, **options):
        """Two epochs with a gradient of b that is bad, or 0, and a large last one."""
        backbone = optax.chain(optax.zero_nans(), optax.sgd(1e-3))
        opt = ctagd_optax.robust_ct_agd(backbone, 10, correction="none", **options)
        params = problems.params()
        state, update = opt.init(params), jax.jit(opt.update)
        sums = []
        for n in range(41):
            grads = {"w": jnp.ones_like(params["w"]), "b": bad(n) * params["b"]}
            if n == 40:
                grads["w"] *= 1e3
            updates, state = update(grads, state, params)
            sums.append(float(state.evidence.pooled.promise[0]))
        return state, updates, sums

    finite, moved, sums = run(lambda n: 0.0, evidence_steps=5.0)
    state, updates, others = run(
        lambda n: jnp.nan if n < 40 else 0.0, evidence_steps=5.0
    )
    # The guard knows how large gradients were, and evidence fades as it does else.
    np.testing.assert_allclose(state.info.gradient_square, finite.info.gradient_square)
    np.testing.assert_allclose(updates["w"], moved["w"], rtol=1e-5)
    np.testing.assert_allclose(others, sums, rtol=1e-5)
    # And a step with a gradient that is not finite is not lengthened.
    _, updates, _ = run(lambda n: jnp.nan)
    np.testing.assert_allclose(updates["w"], -1e-3 * 1e3, rtol=1e-5)


@pytest.mark.parametrize(
    ("options", "vectors"),
    [
        ({"correction": "none"}, 2),
        ({}, 4),
        ({"correction": "line"}, 4),
        ({"correction": "coordinate_line"}, 7),
    ],
)
def test_vectors_in_the_state(options, vectors):
    opt = ctagd_optax.robust_ct_agd(
        optax.sgd(0.1), 5, accumulator_dtype=jnp.bfloat16, **options
    )
    state = opt.init({"w": jnp.zeros(1000, jnp.float32)})
    large = [x for x in jax.tree.leaves(state) if x.size == 1000]
    assert len(large) == vectors
    # The means of parameters and gradients keep their bits.
    wide = sum(x.dtype != jnp.bfloat16 for x in large)
    assert wide == 2 * (options.get("correction") != "none")


@pytest.mark.parametrize(
    ("steps", "options"), [(1, {}), (2, {}), (3, {}), (3, {"evidence_steps": 50})]
)
def test_short_epochs_hold_back_unless_evidence_lasts(steps, options):
    opt = ctagd_optax.robust_ct_agd(
        optax.sgd(1e-4), steps, correction="none", **options
    )
    params = problems.params()
    state = opt.init(params)
    update = jax.jit(opt.update)
    for _ in range(4 * steps):
        updates, state = update(jax.grad(problems.loss)(params), state, params)
        params = optax.apply_updates(params, updates)
    assert not any(np.isnan(x).any() for x in state.info)
    np.testing.assert_array_equal(state.info.multiplier > 1, bool(options))
    if steps < 3:
        np.testing.assert_array_equal(state.info.step_high, np.inf)
        np.testing.assert_array_equal(state.info.step_low, -np.inf)


def test_updates_outside_of_jit_are_compiled_once():
    opt = ctagd_optax.robust_ct_agd(optax.sgd(0.1), 5)
    params = problems.params()
    state = opt.init(params)
    compiled = []

    def listen(name, seconds, **kwargs):
        del seconds, kwargs
        if name == "/jax/core/compile/backend_compile_duration":
            compiled.append(name)

    for n in range(15):
        if n == 10:  # by now every kind of step has been taken
            jax.monitoring.register_event_duration_secs_listener(listen)
        updates, state = opt.update(jax.grad(problems.loss)(params), state, params)
        params = optax.apply_updates(params, updates)
    jax.clear_caches()
    jax.jit(lambda x: x + 1)(params["w"])
    jax.monitoring.unregister_event_duration_listener(listen)
    assert len(compiled) == 1  # the last, which shows that compilations are seen


def test_a_step_copies_no_vector():
    size = 100_003
    opt = ctagd_optax.robust_ct_agd(optax.sgd(0.1, momentum=0.9), 5)

    def step(params, state, grads):
        updates, state = opt.update(grads, state, params)
        return optax.apply_updates(params, updates), state

    params = jnp.ones(size, jnp.float32)
    lowered = jax.jit(step, donate_argnums=(0, 1)).lower(
        params, opt.init(params), params
    )
    hlo = lowered.compile().as_text()
    copies = rf"f32\[{size}\]\S* copy\("
    entry = hlo[hlo.index("ENTRY") :]
    assert entry.count("conditional(") == 2  # the path, and the boundary
    assert not re.findall(copies, entry)
    # In all branches together: the zeros of the closed epoch's memory.
    assert len(re.findall(copies, hlo)) <= 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"pooling": "none"}, "pooling must be one of 'all', 'tensor', 'mix'"),
        ({"aim": "last"}, "aim must be one of 'mean', 'peak'; got 'last'"),
        ({"errors": "none"}, "errors must be one of 'terms', 'gradients'; got 'none'"),
        ({"evidence_steps": -1}, "evidence_steps must be at least 0, got -1"),
        ({"promise": "D"}, "promise must be one of 'fresh', 'own'; got 'D'"),
        ({"correction_samples": 0}, "correction_samples must be a whole number of at"),
        (
            {"correction_multiplier_max": -1},
            "correction_multiplier_max must be at least 0, got -1",
        ),
        ({"decay": 1.1}, "decay must be above 0 and at most 1, got 1.1"),
        ({"correction": None}, "correction must be one of 'mean', 'line'"),
        ({"growth": 0.5}, "growth must be finite and at least 1, got 0.5"),
        ({"early_growth": 0.5}, "early_growth must be finite and at least 1, got 0.5"),
        ({"floor": 0.0}, "floor must be above 0 and at most 1, got 0.0"),
        ({"floor": 1.5}, "floor must be above 0 and at most 1, got 1.5"),
        ({"guard": 0.0}, "guard must be above 0, got 0.0"),
        ({"target": 0.0}, "target must be finite and above 0, got 0.0"),
        ({"target": None}, "target must be a number, got None"),
        ({"steps_per_epoch": "5"}, "steps_per_epoch must be a number, got '5'"),
        ({"multiplier_min": 0.0}, "multiplier_min must be finite and above 0, got 0.0"),
        ({"multiplier_max": 0.05}, "multiplier_max must be finite and at least 0.1"),
        ({"steps_per_epoch": 0}, "steps_per_epoch must be a whole number of at least"),
    ],
)
def test_bad_arguments(options, message):
    with pytest.raises((TypeError, ValueError), match=re.escape(message)):
        ctagd_optax.robust_ct_agd(optax.sgd(0.1), **{"steps_per_epoch": 5, **options})


def test_report():
    opt = ctagd_optax.robust_ct_agd(optax.sgd(0.01), 5)
    params, state = problems.train(opt, problems.params(), 5)
    report = ctagd_optax.curvature_report(state, params)
    b, w = report
    assert (b.path, w.path) == ("b", "w")
    assert b.multiplier == pytest.approx(1 / b.gamma)
    assert b.step_high == w.step_high > 0
    header = str(report).splitlines()[1]
    names = "tensor shape γ q⁺ q⁻ N/SE O/D P/D floor correction out"
    assert header.split() == names.split(" ")
