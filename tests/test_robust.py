"""The robust method against its NumPy reference, and what it promises."""

import inspect
import itertools
import re

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import ctagd_optax
from ctagd_optax._robust import Settings, robust_method
from ctagd_optax._rule import (
    Loss,
    MotionSums,
    Rule,
    Trial,
    follow,
    judge,
    next_multiplier,
    step_length,
)
from ctagd_optax._wrapper import curvature_tuned
from tests import problems, reference

T = 12
DEFAULTS = {
    name: option.default
    for name, option in inspect.signature(ctagd_optax.robust_ct_agd).parameters.items()
    if name in Settings._fields
}


def with_rule(backbone, steps_per_epoch, *, schedule=None, **options):
    """The method with other constants than its own."""
    rule = Rule(**{k: options.pop(k) for k in Rule._fields if k in options})
    settings = {k: options.pop(k, default) for k, default in DEFAULTS.items()}
    method = robust_method(Settings(**settings), rule=rule, **options)
    return curvature_tuned(backbone, steps_per_epoch, method, schedule)


def replay(
    options, *, learning_rate=0.02, steps=4 * T, noise=0.1, closing=None, values=None
):
    """Runs the method on a noisy quadratic, and compares every step."""
    dtype = "float32"
    rng = np.random.default_rng(0)
    shapes = {"b": (4,), "w": (3, 2)}
    params = {k: jnp.asarray(rng.standard_normal(s), dtype) for k, s in shapes.items()}
    curvature = {k: rng.uniform(0.5, 8.0, s) for k, s in shapes.items()}
    opt = with_rule(optax.sgd(learning_rate, momentum=0.5), T, **options)
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
        extra |= {} if values is None else {"value": values[n]}
        updates, state = update(grads, state, params, **extra)
        history.append((params, grads, updates, state))
        params = optax.apply_updates(params, updates)
    expected, applied, multipliers, epochs = reference.robust_ct_agd(
        [jax.tree.leaves(row[0]) for row in history],
        [jax.tree.leaves(row[1]) for row in history],
        [reference.sgd(learning_rate, 0.5) for _ in shapes],
        T,
        closing=closing,
        values=values,
        **options,
    )
    for n, (*_, updates, state) in enumerate(history):
        np.testing.assert_allclose(1 / state.gamma, multipliers[n], rtol=1e-4)
        np.testing.assert_allclose(state.multiplier, applied[n], rtol=1e-4, atol=1e-6)
        chex.assert_trees_all_close(
            jax.tree.leaves(updates),
            [x.astype(dtype) for x in expected[n]],
            rtol=3e-4,
            atol=3e-6,
        )
    ends = [state for *_, state in history if state.epoch_step == 0]
    for state, row in zip(ends, epochs, strict=True):
        for name, value in row.items():
            found = getattr(state.info, name)
            np.testing.assert_allclose(
                found, np.broadcast_to(value, (2,)), rtol=3e-3, atol=1e-4
            )
    return [m for n, m in enumerate(multipliers) if history[n][-1].epoch_step == 0]


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({}, id="defaults"),
        pytest.param({"pooling": "tensor"}, id="tensor"),
        pytest.param({"target": 1.5, "multiplier_max": 5.0}, id="target"),
        pytest.param({"confidence": 0.0, "guard": 1e9}, id="sure"),
        pytest.param({"early_target": 0.0, "multiplier_max": 40.0}, id="late"),
        pytest.param({"early_growth": 1.1, "early_target": 2.0}, id="early"),
    ],
)
def test_every_step_is_the_references(options):
    multipliers = replay(options)
    assert all((m > 1).all() for m in multipliers)
    assert np.max(multipliers) <= options.get("multiplier_max", 20)


@pytest.mark.parametrize(
    "schedule",
    [
        pytest.param(optax.linear_schedule(0.0, 1.0, T), id="warm-up"),
        pytest.param(optax.cosine_decay_schedule(1.0, 4 * T - 1), id="cosine"),
        pytest.param(
            optax.piecewise_constant_schedule(1.0, {T + 3: 0.1, 2 * T: 0.0}),
            id="piecewise",
        ),
        pytest.param(
            optax.warmup_cosine_decay_schedule(0.0, 1.0, T // 2, 4 * T), id="both"
        ),
    ],
)
@pytest.mark.parametrize("pooling", ["all", "tensor"])
def test_every_step_with_a_schedule_is_the_references(
    schedule, pooling, standard_promotion
):
    replay({"schedule": schedule, "pooling": pooling})


def test_epochs_that_are_ended_by_hand():
    ends = 14, 30, 39, 41  # longer, longer, shorter, too short to know anything
    multipliers = replay({}, closing=[n in ends for n in range(48)])
    assert [bool(m[0] > 1) for m in multipliers] == [True] * 3 + [False]


def test_growth_after_the_first_is_limited():
    options = {"target": 0.1, "early_target": 0, "growth": 1.5, "multiplier_max": 1e3}
    m = [x[0] for x in replay(options, learning_rate=3e-4)]
    assert 1 < m[1] / m[0] < 1.5  # to the target
    assert m[2] < m[1]  # after the step of large gradients
    assert m[3] / m[2] == pytest.approx(1.5)  # the target is farther
    held = replay({**options, "threshold": 0.05}, learning_rate=3e-4)
    assert held[1][0] == held[0][0]
    assert replay({**options, "first_threshold": 1e-3}, learning_rate=3e-4)[0][0] == 1


# The loss


@pytest.mark.parametrize(
    ("pooling", "values"),
    [
        pytest.param("all", [2.0 * 0.98**n for n in range(8 * T)], id="falls"),
        pytest.param("tensor", [2.0 + np.cos(n / 9) for n in range(8 * T)], id="both"),
    ],
)
def test_every_step_with_a_loss_is_the_references(values, pooling):
    options = {"pooling": pooling, "permission": 1e-3, "early_target": 0.0}
    replay({**options, "threshold": 0.0}, steps=8 * T, values=values)


def test_what_the_loss_says():
    """One epoch after another; ``after`` is what the curvature makes of m."""
    past = Trial(*(jnp.zeros(1, jnp.float32) for _ in Trial._fields))

    def epoch(loss, m, after=None, promise=0.01):
        nonlocal past
        loss, promise, m, after = (
            jnp.asarray([x], jnp.float32)
            for x in (loss, promise, m, m if after is None else after)
        )
        chosen, past = judge(past, Loss(loss, promise), m, after, Rule())
        return pytest.approx(float(chosen[0]))

    assert epoch(2.0, 1.0) == 3.0  # the first loss: nothing to compare with
    assert epoch(1.0, 3.0) == 9.0  # it fell
    assert epoch(0.9, 9.0) == 3.0  # by less than half as much: taken back
    assert past.failures == 1
    assert epoch(0.5, 3.0, after=2.7) == 3.0  # it fell, so nothing decays
    assert epoch(0.1, 3.0, promise=0.0) == 3.0  # promises nothing: no permission
    assert epoch(0.09, 3.0, after=2.7) == 2.7  # it falls too little to hold it
    assert past.tried == 0


def test_a_trial_that_fails_is_taken_back_and_waits():
    past = Trial(*(jnp.asarray([x], jnp.float32) for x in (4.1, 0.1, 0.0, 0.0, 0.0)))
    multiplier, seen, loss, tried = 1.0, [], 4.1, False
    for _ in range(20):
        loss -= 0.01 if multiplier > 1 and tried else 0.1  # trials make it slower
        figures = (jnp.asarray([x], jnp.float32) for x in (loss, 1e-3))
        m = jnp.asarray([multiplier], jnp.float32)
        chosen, past = judge(past, Loss(*figures), m, m, Rule())
        tried = bool(past.tried[0] > 0)
        multiplier = float(chosen[0])
        seen.append(round(multiplier))
    trials = [n for n, m in enumerate(seen) if m == 3]
    assert np.diff(trials).tolist() == [3, 4, 6]  # 1, 2 and 4 ends without one
    assert set(seen) == {1, 3}


@pytest.mark.parametrize("largest", [1.0, 2.0])
def test_a_multiplier_at_its_largest_is_no_trial(largest):
    opt = ctagd_optax.robust_ct_agd(optax.sgd(1e-3), 8, multiplier_max=largest)
    params = jnp.ones(3, jnp.float32)
    state = opt.init(params)
    update = jax.jit(opt.update)
    seen = []
    for n in range(8 * 6):
        gradients = jnp.full(3, (-1.0) ** (n // 2), jnp.float32)
        value = 9.0 - (n // 8) ** 0.25  # falls, and ever more slowly
        updates, state = update(gradients, state, params, value=value)
        params = optax.apply_updates(params, updates)
        if n % 8 == 7:
            seen.append((float(1 / state.gamma[0]), float(state.info.tried[0])))
    assert [m for m, _ in seen] == [largest] * 6
    assert [tried for _, tried in seen] == [float(largest > 1)] + [0.0] * 5
    assert state.info.failures[0] == 0


@pytest.mark.parametrize("largest", [7.0, 1000.0])  # 1 / (1 / 7) is not 7
def test_a_multiplier_that_curvature_took_to_its_largest_is_no_trial(largest):
    opt = ctagd_optax.robust_ct_agd(optax.sgd(1e-5), 12, multiplier_max=largest)
    params, losses = jnp.ones(3, jnp.float32), 9.0 - 0.1 * np.arange(9)
    losses[6:] += 0.09  # in one epoch it falls by little
    state, update = opt.init(params), jax.jit(opt.update)
    for n in range(12 * 9):
        updates, state = update(params, state, params, value=losses[n // 12])
        params = optax.apply_updates(params, updates)
        if n >= 12 * 2 and n % 12 == 11:
            assert 1 / state.gamma[0] == pytest.approx(largest)
            assert state.info.tried[0] == state.info.failures[0] == 0


def test_a_loss_that_rises_shrinks_a_multiplier_above_one():
    past = Trial(*(jnp.asarray([x], jnp.float32) for x in (1.0, 0.1, 0.0, 0.0, 0.0)))
    for m, expected in ((9.0, 3.0), (2.0, 1.0), (0.5, 0.5)):
        m = jnp.asarray([m], jnp.float32)
        loss = Loss(*jnp.asarray([[1.5], [0.0]], jnp.float32))
        chosen, _ = judge(past, loss, m, m, Rule())
        assert chosen[0] == pytest.approx(expected)


def test_the_last_fifth_of_an_epoch_weighs_most():
    loss = Loss(*jnp.full((2, 1), 7.0, jnp.float32))  # of the epoch before
    one = jnp.ones(1, jnp.float32)
    for t in range(100):
        value = 1.0 if t >= 80 else 0.0
        value = jnp.nan if t % 7 == 3 else value
        loss = follow(loss, value, one, jnp.asarray(t))
    assert 0.8 < loss.mean_loss[0] < 0.9
    assert loss.promised[0] == pytest.approx(1.0)
    unknown = follow(Loss(0 * one, 0 * one), None, one, jnp.asarray(0))
    assert unknown == Loss(0 * one, 0 * one)
    with pytest.raises(ValueError, match=r"value must be one number.* shape \(2,\)"):
        follow(loss, jnp.ones(2), one, jnp.asarray(0))
    for value in ((1.0, {"accuracy": 0.5}), lambda: 1.0, "1.0"):
        with pytest.raises(TypeError, match=r"one number.*: pass the loss alone"):
            follow(loss, value, one, jnp.asarray(0))


def test_without_a_loss_it_is_as_before():
    def run(**extra):
        opt = ctagd_optax.robust_ct_agd(optax.sgd(0.01), 10)
        params = problems.params()
        state, update = opt.init(params), jax.jit(opt.update)
        for _ in range(40):
            grads = jax.grad(problems.loss)(params)
            updates, state = update(grads, state, params, **extra)
            params = optax.apply_updates(params, updates)
        return params, state.info

    bare, info = run()
    np.testing.assert_array_equal(jnp.stack(info[8:13]), 0)
    chex.assert_trees_all_equal(run(value=jnp.nan), (bare, info))


def test_no_step_above_the_backbones_moves_far(standard_promotion):
    """A line has no curvature: m grows until steps are a tenth of the parameters."""
    opt = ctagd_optax.robust_ct_agd(optax.sgd(1e-3), 40)
    start = jnp.full(4, 1.0, jnp.float32)
    _, _, m = descend(opt, lambda x, _: jnp.ones_like(x), start, 30)
    x = 1 - 1e-3 * np.cumsum(np.r_[0, m[:-1, 0]])
    limit = np.maximum(0.1 * np.abs(x) / 1e-3, 1)
    assert (m[:, 0] <= 1.001 * limit).all()
    assert m.max() > 20  # which was near the limit
    assert (m[15:20, 0] > 0.99 * limit[15:20]).any()


def descend(opt, gradient, x, steps, seed=0):
    """Runs an optimizer on a vector; ``gradient(x, key)`` in a jitted scan."""

    def step(carry, key):
        x, state = carry
        updates, state = opt.update(gradient(x, key), state, x)
        return (optax.apply_updates(x, updates), state), state.multiplier

    @jax.jit
    def run(x, keys):
        return jax.lax.scan(step, (x, opt.init(x)), keys)

    (x, state), multipliers = run(x, jax.random.split(jax.random.key(seed), steps))
    return x, state, multipliers


# Schedules


def test_a_schedule_does_not_change_what_is_found(standard_promotion):
    """On a parabola evidence per unit of the schedule is the same at any rate."""

    def multiplier(schedule):
        opt = with_rule(optax.sgd(0.01), 20, schedule=schedule, early_target=0.0)
        _, state, _ = descend(opt, lambda x, _: 2.0 * x, jnp.ones(3, jnp.float32), 20)
        return float(1 / state.gamma[0])

    assert multiplier(None) == multiplier(1.0) > 1
    for schedule in (
        0.1,
        optax.linear_schedule(0.0, 1.0, 20),
        optax.cosine_decay_schedule(1.0, 20),
    ):
        assert multiplier(schedule) == pytest.approx(multiplier(None), rel=0.1)


def test_a_decay_to_nothing_is_followed_to_the_end(standard_promotion):
    """The multiplier does not grow against the decay, as it would inside."""
    steps, rate = 400, 0.3
    schedule = optax.cosine_decay_schedule(1.0, steps)

    def noisy(x, key):
        return x + 0.3 * jax.random.normal(key, x.shape, x.dtype)

    opt = ctagd_optax.robust_ct_agd(optax.sgd(rate), 20, schedule=schedule)
    x, state, applied = descend(opt, noisy, jnp.ones(10, jnp.float32), steps)
    assert float(applied[-1, 0]) < 1e-3
    assert jnp.linalg.norm(x) < 0.3
    assert np.isfinite(np.concatenate(jax.tree.leaves(state.info))[:3]).all()


def test_warm_up_from_zero_is_no_reason_to_grow(standard_promotion):
    schedule = optax.linear_schedule(0.0, 1.0, 60)
    opt = ctagd_optax.robust_ct_agd(optax.sgd(0.5), 20, schedule=schedule)
    x, state, applied = descend(opt, lambda x, _: 2.0 * x, jnp.ones(3, jnp.float32), 80)
    # At its peak a step is one Newton step, so m is at most 2, whatever s was.
    relative = applied[1:, 0] / jnp.minimum(jnp.arange(1, 80) / 60, 1)
    assert float(relative.max()) <= 2.01
    assert not any(np.isnan(leaf).any() for leaf in jax.tree.leaves(state))
    assert jnp.abs(x).max() < 1e-3


def test_a_schedule_of_zeros_moves_nothing_and_breaks_nothing():
    opt = ctagd_optax.robust_ct_agd(optax.sgd(0.5), 5, schedule=lambda _: 0.0)
    x, state, applied = descend(opt, lambda x, _: 2.0 * x, jnp.ones(3, jnp.float32), 15)
    chex.assert_trees_all_equal(x, jnp.ones(3, jnp.float32))
    chex.assert_trees_all_equal(applied, jnp.zeros_like(applied))
    np.testing.assert_array_equal(state.gamma, 1)


def test_a_schedule_inside_the_backbone_stays_safe(standard_promotion):
    steps = 300
    schedule = optax.warmup_cosine_decay_schedule(0.0, 0.1, 20, steps)
    opt = ctagd_optax.robust_ct_agd(optax.sgd(schedule, momentum=0.9), 20)
    bare = optax.sgd(schedule, momentum=0.9)

    def noisy(x, key):
        return x + jax.random.normal(key, x.shape, x.dtype)

    x, *_ = descend(opt, noisy, jnp.full(50, 10.0, jnp.float32), steps)
    state, y = bare.init(x), jnp.full(50, 10.0, jnp.float32)
    for key in jax.random.split(jax.random.key(0), steps):
        updates, state = bare.update(noisy(y, key), state, y)
        y = y + updates
    assert jnp.linalg.norm(x) < 1.5 * jnp.linalg.norm(y)


# Evidence


def noisy_epoch(opt, steps, key, size=30):
    """The sums of an epoch on a rotated quadratic with noise, and the true N."""
    hessian = problems.rotated_hessian(size).astype(jnp.float32)

    def step(carry, key):
        x, state = carry
        g = hessian @ x + jax.random.normal(key, (size,), jnp.float32)
        updates, after = opt.update(g, state, x)
        moved = x - state.memory.previous_params
        ready = state.epoch_step >= 2
        true = jnp.where(ready, state.memory.previous_motion @ hessian @ moved, 0)
        return (x + updates, after), true

    x = jnp.zeros(size, jnp.float32)
    keys = jax.random.split(key, steps)
    (_, state), true = jax.lax.scan(step, (x, opt.init(x)), keys)
    return state.evidence.sums, jnp.sum(true)


def test_noise_does_not_bias_the_curvature():
    steps = 20_000
    opt = with_rule(optax.sgd(0.01, momentum=0.85), steps, early_target=0.0)
    sums, true = noisy_epoch(opt, steps, jax.random.key(0))
    error = float(sums.curvature_error[0])
    np.testing.assert_allclose(sums.curvature, true, atol=3 * error)
    assert sums.curvature > 5 * error


@pytest.mark.parametrize("scale", [1.0, 1e-6])
def test_noise_is_not_certain_because_it_is_small(scale):
    opt = ctagd_optax.robust_ct_agd(optax.sgd(0.01), 24)

    def gamma(seed):
        def noise(x, key):
            return scale * jax.random.normal(key, x.shape, x.dtype)

        start = jnp.zeros(50, jnp.float64)
        return descend(opt, noise, start, 24, seed)[1].gamma[0]

    found = jax.vmap(gamma)(jnp.arange(300))
    assert jnp.mean(found < 1) <= 0.16  # how often a normal is above one deviation


def test_noise_is_not_taken_for_descent():
    """At the bottom of a noisy parabola, where D promises descent and there is none."""

    def noisy(x, key):
        return x + 10 * jax.random.normal(key, x.shape, x.dtype)

    opt = ctagd_optax.robust_ct_agd(optax.sgd(0.002), 200)
    _, state, _ = descend(opt, noisy, jnp.zeros(20, jnp.float32), 200, seed=1)
    assert abs(state.info.held[0]) < 0.1
    assert state.gamma[0] == 1


def test_steps_that_are_too_long_are_shortened_to_a_newton_step():
    a, length = 2.0, 2.5
    opt = ctagd_optax.robust_ct_agd(optax.sgd(length / a), T)
    start = jnp.asarray([1.0, -2.0], jnp.float32)
    x, state, _ = descend(opt, lambda x, _: a * x, start, T)
    assert jnp.linalg.norm(x) > 10
    np.testing.assert_allclose(state.info.step_low, length, rtol=1e-5)
    np.testing.assert_allclose(1 / state.gamma, 1 / length, rtol=1e-5)
    updates, _ = opt.update(a * x, state, x)
    np.testing.assert_allclose(x + updates, 0, atol=1e-4)


def test_it_does_nothing_where_nothing_is_clear():
    backbone = optax.adam(0.1)
    opt = with_rule(backbone, 20, early_target=0.0, first_threshold=0.0, threshold=0.0)
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
            params = optax.apply_updates(params, updates)
    assert state.epoch == 3


def test_an_epoch_of_large_gradients_steps_back():
    opt = with_rule(optax.sgd(1e-5), T, threshold=0.0, multiplier_max=20.0)
    x = jnp.ones(4, jnp.float32)
    state = opt.init(x)
    for scale in (1.0, 6.0):
        for _ in range(T):
            updates, state = opt.update(scale * jnp.ones_like(x), state, x)
            x = x + updates
        if scale == 1.0:
            first = 1 / state.gamma
    assert first[0] == pytest.approx(20.0)
    # 36 is 9 times what the guard lets pass.
    np.testing.assert_allclose(1 / state.gamma, 1 + (first - 1) / 9, rtol=1e-4)


# The rule


def test_bounds_of_the_step_length():
    sums = MotionSums(*map(jnp.asarray, (2.0, 1.0, 10.0, -3.0, 4.0, 1.0)))

    def bounds(**changes):
        changed = sums._replace(**{k: jnp.asarray(v) for k, v in changes.items()})
        return step_length(changed, jnp.asarray(2.0))

    np.testing.assert_allclose(bounds(), (1.5, 0.2, 1))
    # A gradient that points back counts.
    np.testing.assert_allclose(bounds(overlap=6.0), (1.5, 2.2, 1))
    # Where nothing is left of the promise, a step may be of any length.
    np.testing.assert_allclose(bounds(fresh=-0.1), (np.inf, 0.2, 0))
    np.testing.assert_allclose(bounds(fresh=0.0), (np.inf, 0.2, 0))
    np.testing.assert_allclose(bounds(fresh=-1.1), (np.inf, 0.2, -1))
    assert bounds(promise=-1.0)[0] < 0
    nothing = dict.fromkeys(MotionSums._fields, 0.0)
    np.testing.assert_array_equal(bounds(**nothing), (np.inf, -np.inf, 0))


def test_rule():
    def after(high, low, trend=1, m=2.0, first=False):
        known = *map(jnp.asarray, (high, low)), trend, first
        return float(next_multiplier(jnp.asarray(m), *known))

    assert after(0.1, 0.0) == 6.0  # by growth
    assert after(0.1, 0.0, m=1.0, first=True) == pytest.approx(20.0)
    assert after(0.1, 0.0, trend=0) == 2.0
    assert after(0.3, 0.0) == 2.0  # dead zone
    assert after(0.3, 0.0, m=1.0, first=True) == pytest.approx(2 / 0.3)
    assert after(0.3, 0.0, m=1.0) == after(2.1, 0.0, m=1.0, first=True) == 1.0
    assert after(3.0, 2.0) == 1.0
    assert after(np.inf, 0.0, trend=0) == 2.0
    assert after(np.inf, 0.0, trend=-1) == pytest.approx(1.8)
    assert after(np.inf, 4.0, trend=-1) == 0.5  # already below 1
    assert after(jnp.nan, 0.0) == after(0.1, -jnp.inf) == after(-0.1, 0.0) == 1.0
    assert after(jnp.nan, 0.0, m=0.5) == 0.5
    # A target below the threshold is no reason to shorten.
    one, high, low = map(jnp.asarray, (1.0, 1.5, 0.0))
    assert next_multiplier(one, high, low, 1, first=True, target=1.0) == 1


def test_the_first_decision_is_made_once():
    """An epoch that was clear uses it up; one that told nothing does not."""

    def multiplier(*epochs):
        """After epochs of steps of these lengths: m, and whether one was clear."""
        opt = with_rule(
            optax.sgd(1.0), 40, early_target=0.0, first_threshold=0.1, threshold=0.05
        )
        x = jnp.ones(3, jnp.float32)
        state, update = opt.init(x), jax.jit(opt.update)
        for length in epochs:
            x = jnp.ones(3, jnp.float32)
            for _ in range(40):
                updates, state = update(length * x, state, x)
                x = x + updates
        return float(1 / state.gamma[0]), float(state.info.settled[0])

    m, settled = multiplier(0.06)
    assert (m > 1, settled) == (True, 1)
    assert multiplier(0.15) == multiplier(0.15, 0.06) == (1, 1)
    assert multiplier(0.0) == (1, 0)
    assert multiplier(0.0, 0.06) == (m, 1)


def test_descent_must_be_clear():
    # A slope that shows in three of four steps: some descent, but none that is sure.
    gradients = np.tile([1.0, 1.0, 1.0, -1.0], 4)

    def multiplier(confidence):
        opt = with_rule(
            optax.sgd(1e-3),
            16,
            early_target=0.0,
            first_threshold=1e9,
            target=1e9,
            confidence=confidence,
        )
        x = jnp.zeros(1, jnp.float32)
        state, update = opt.init(x), jax.jit(opt.update)
        for g in gradients:
            updates, state = update(jnp.full(1, g, jnp.float32), state, x)
            x = x + updates
        assert 0 < state.info.held[0] < 1
        return float(1 / state.gamma[0])

    assert multiplier(1.0) == 1
    assert multiplier(0.1) > 1


def test_a_multiplier_has_a_least_value_and_is_no_new_start_after_it():
    opt = with_rule(optax.sgd(1.0), 6, multiplier_min=0.5, early_target=0.0)
    x = jnp.ones(2, jnp.float32)
    state, update = opt.init(x), jax.jit(opt.update)

    def epoch(x, state, curvature):
        for _ in range(6):
            updates, state = update(curvature * x, state, x)
            x = x + updates
        return state

    state = epoch(x, state, 12.0)  # steps of 12 Newton steps
    np.testing.assert_array_equal(1 / state.gamma, 0.5)
    # Of steps that are far too short now, growth is limited, as they are no first ones.
    state = epoch(x, state._replace(info=state.info._replace(settled=0 * x[:1])), 1e-3)
    np.testing.assert_allclose(1 / state.gamma, 1.5)


def test_the_first_epoch_follows_its_evidence():
    """A rate far too small: m rises within the first epoch, step by step."""

    def applied(**options):
        opt = with_rule(optax.sgd(1e-3), 40, multiplier_max=20.0, **options)
        start = jnp.asarray([1.0, -2.0], jnp.float32)
        return descend(opt, lambda x, _: 2 * x, start, 39)[2][:, 0]

    for off in ({"early_target": 0.0}, {"early_growth": 1.0}):
        np.testing.assert_allclose(applied(**off), 1, rtol=1e-4)
    rising = [1, 1, 1, 1, *(1.5 ** np.arange(2, 8))]  # one sample is not sure
    np.testing.assert_allclose(applied()[:10], rising, rtol=1e-4)
    # Not annealed: it stays at the largest m.
    np.testing.assert_allclose(applied()[10:], 20, rtol=1e-4)


def test_the_first_epoch_does_not_pass_the_target():
    opt = ctagd_optax.robust_ct_agd(optax.sgd(0.01), 40, target=0.05)
    _, _, applied = descend(opt, lambda x, _: x, jnp.ones(3, jnp.float32), 39)
    assert 1 < applied.max() * 0.01 / 0.05 * 5 <= 5.01


def test_evidence_that_gets_clear_late_in_the_first_epoch():
    """Noise, then none: m is as long as the evidence vouches for, not its limit."""
    rng = np.random.default_rng(0)
    opt = ctagd_optax.robust_ct_agd(optax.sgd(0.01), 100)
    x = jnp.full(10, 10.0, jnp.float32)
    state, seen = opt.init(x), []
    for n in range(99):
        high, *_ = step_length(state.evidence.sums, jnp.ones(1, jnp.float32))
        noise = 30.0 * rng.standard_normal(10) if n < 20 else 0.0
        updates, state = opt.update(x + jnp.asarray(noise, jnp.float32), state, x)
        seen.append((float(state.multiplier[0]), float(high[0])))
        x = x + updates
    m, high = np.asarray(seen).T
    np.testing.assert_allclose(m[:20], 1, rtol=1e-5)
    longer = m > 1.001
    assert longer.any()
    np.testing.assert_allclose(m[longer], 0.7 / high[longer], rtol=1e-4)
    assert m.max() < 20  # which 1.5 to the power of 20 is far above


def test_curvature_that_rises_within_the_first_epoch():
    """eˣ - x from far to the left, where it is a line and looks like one."""
    opt = ctagd_optax.robust_ct_agd(optax.sgd(0.5), 40)
    x = jnp.asarray([-5.0], jnp.float32)
    state, update = opt.init(x), jax.jit(opt.update)
    for _ in range(80):
        updates, state = update(jnp.exp(x) - 1, state, x)
        x = x + updates
        assert abs(x[0]) < 6
    assert abs(x[0]) < 0.1


def test_steps_that_lead_uphill_let_the_multiplier_decay():
    a = jnp.asarray([1.0, 10.0], jnp.float32)
    opt = with_rule(optax.sgd(0.01), 20, decay=0.5, guard=1e9, stride=1e9)
    x = jnp.asarray([1.0, 1.0], jnp.float32)
    state, update = opt.init(x), jax.jit(opt.update)
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


# True motion


@pytest.mark.parametrize(
    ("factor", "pooling"),
    [(0.1, "all"), (-0.01, "all"), (-0.01, "tensor"), (3.0, "all")],
)
def test_what_follows_in_a_chain_may_scale(factor, pooling):
    """A method before a scaling finds what the method around the whole finds."""
    sign = 1.0 if factor > 0 else -1.0  # optax.sgd descends, its negative must too
    rate = 0.004 / abs(factor)
    opts = (
        ctagd_optax.robust_ct_agd(
            optax.chain(optax.sgd(sign * rate), optax.scale(factor)), T, pooling=pooling
        ),
        optax.chain(
            ctagd_optax.robust_ct_agd(optax.sgd(sign * rate), T, pooling=pooling),
            optax.scale(factor),
        ),
    )
    (x, inside), (y, after) = (
        problems.train(opt, problems.params(), 3 * T) for opt in opts
    )
    found = [optax.tree.get(state, "gamma") for state in (inside, after)]
    assert (found[0] < 1).all()
    chex.assert_trees_all_close(*found, rtol=1e-3)
    chex.assert_trees_all_close(x, y, rtol=1e-3, atol=1e-6)


def test_a_tensor_that_never_moves_says_nothing():
    """Frozen by what follows: its gradients do not make steps look short."""

    def gamma(frozen):
        opt = ctagd_optax.robust_ct_agd(optax.sgd(0.02), T)
        if frozen:
            opt = optax.chain(opt, optax.transforms.freeze({"w": True, "b": False}))
        params = problems.params() if frozen else {"b": problems.params()["b"]}

        def loss(x):
            bowl = jnp.sum(problems.CURVATURE["b"].astype(jnp.float32) * x["b"] ** 2)
            return bowl / 2 + (1e3 * jnp.sum(x["w"]) if frozen else 0.0)

        _, state = problems.train(opt, params, 3 * T, loss)
        return optax.tree.get(state, "gamma")[0]

    assert gamma(frozen=False) < 1
    assert gamma(frozen=True) == pytest.approx(float(gamma(frozen=False)), rel=1e-3)


def test_an_update_that_is_not_applied_is_no_motion():
    opt = ctagd_optax.robust_ct_agd(optax.sgd(1e-3), 5)
    x = jnp.ones(3, jnp.float32)
    state = opt.init(x)
    for _ in range(10):
        _, state = opt.update(x, state, x)
    np.testing.assert_array_equal(state.gamma, 1)
    np.testing.assert_array_equal(state.info.step_low, -np.inf)


# Gradients that are not finite


def test_a_gradient_that_is_not_finite_is_left_out():
    skip = optax.apply_if_finite(optax.sgd(0.01), max_consecutive_errors=5)
    opt = ctagd_optax.robust_ct_agd(skip, 8)
    params = problems.params()
    state, update = opt.init(params), jax.jit(opt.update)
    for n in range(16):
        grads = jax.grad(problems.loss)(params)
        if n in (3, 12):
            grads["b"] = grads["b"].at[0].set(jnp.nan if n == 3 else jnp.inf)
        updates, state = update(grads, state, params)
        params = optax.apply_updates(params, updates)
        chex.assert_tree_all_finite((updates, params))
    np.testing.assert_array_equal(state.info.left_out, [1, 0])
    assert np.isfinite(state.info.step_high).all()
    assert (1 / state.gamma > 1).all()


def test_a_tensor_that_is_never_finite_does_not_speak_for_the_others():
    def run(bad):
        """Four epochs with a gradient of b that is bad, or 0, and a large last one."""
        backbone = optax.chain(optax.zero_nans(), optax.sgd(1e-3))
        opt = ctagd_optax.robust_ct_agd(backbone, 10)
        params = problems.params()
        state, update = opt.init(params), jax.jit(opt.update)
        for n in range(41):
            grads = {"w": jnp.ones_like(params["w"]), "b": bad(n) * params["b"]}
            if n == 40:
                grads["w"] *= 1e3
            updates, state = update(grads, state, params)
            params = optax.apply_updates(params, updates)
        return state, updates

    finite, moved = run(lambda n: 0.0)
    state, updates = run(lambda n: jnp.nan if n < 40 else 0.0)
    # The guard knows how large gradients were.
    np.testing.assert_allclose(state.info.gradient_square, finite.info.gradient_square)
    np.testing.assert_allclose(updates["w"], moved["w"], rtol=1e-4)
    # And a step with a gradient that is not finite is not lengthened.
    _, updates = run(lambda n: jnp.nan)
    np.testing.assert_allclose(updates["w"], -1e-3 * 1e3, rtol=1e-5)


@pytest.mark.parametrize("turn", [1, -1], ids=["straight", "turned"])
@pytest.mark.parametrize("pooling", ["all", "tensor"])
def test_updates_whose_entries_cancel(pooling, turn, default_jax):
    # Those of a softmax layer sum to 0, so the sum does not tell which way it moved.
    rng = np.random.default_rng(0)
    inputs = jnp.asarray(rng.random((500, 20)), jnp.float32)
    labels = jnp.asarray((inputs @ rng.standard_normal((20, 5))).argmax(-1))

    def loss(params):
        logits = inputs @ params["w"] + params["b"]
        return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()

    opt = ctagd_optax.robust_ct_agd(
        optax.sgd(turn * 1e-2), 14, pooling=pooling, multiplier_max=20.0
    )
    opt = optax.chain(opt, optax.scale(turn))
    start = jnp.asarray(0.1 * rng.standard_normal((20, 5)), jnp.float32)
    params = {"w": start, "b": jnp.zeros(5)}
    state = opt.init(params)

    @jax.jit
    def step(params, state):
        updates, state = opt.update(jax.grad(loss)(params), state, params)
        return optax.apply_updates(params, updates), state

    for _ in range(3):
        for _ in range(14):
            params, state = step(params, state)
        # Without noise, the next gradient promises what a step's own did.
        assert (state[0].info.held > 0.7).all()
        assert (state[0].info.held < 1.2).all()
    assert (state[0].gamma < 0.5).all()


@pytest.mark.parametrize("size", [1e-13, 1.0, 1e12])
def test_which_way_it_moved_is_known_at_any_size(size, default_jax):
    # Products of two squares would leave float32's range.
    opt = optax.chain(ctagd_optax.robust_ct_agd(optax.sgd(-1e-3), 9), optax.scale(-1.0))
    params = {"w": size * jnp.asarray([1.0, -1.0, 2.0]), "b": jnp.asarray([0.0])}
    state = opt.init(params)
    for _ in range(5):
        updates, state = jax.jit(opt.update)(params, state, params)
        params = optax.apply_updates(params, updates)
    assert state[0].evidence.agreement < 0
    assert state[0].evidence.sums.promise > 0


def test_a_jump_out_of_range_does_not_hide_which_way_it_moved(default_jax):
    opt = ctagd_optax.robust_ct_agd(optax.sgd(1e-3), 9)
    params = {"w": 1e12 * jnp.asarray([1.0, -1.0, 2.0])}
    state = opt.init(params)
    for t in range(8):
        given = jax.tree.map(lambda p: 1e20 * p, params) if t == 3 else params
        updates, state = jax.jit(opt.update)(params, state, given)
        params = optax.apply_updates(params, updates)
    assert jnp.isfinite(state.evidence.agreement)


@pytest.mark.parametrize("accumulator", [None, jnp.bfloat16])
def test_the_first_move_is_true_in_any_dtype(accumulator, default_jax):
    opt = ctagd_optax.robust_ct_agd(optax.sgd(1e-5), 9, accumulator_dtype=accumulator)
    params = {"w": jnp.asarray(np.random.default_rng(0).random(50), jnp.float32)}
    state = opt.init(params)
    for _ in range(3):
        updates, state = jax.jit(opt.update)(params, state, params)
        np.testing.assert_allclose(
            state.memory.previous_params["w"], params["w"], rtol=1e-6
        )
        params = optax.apply_updates(params, updates)
    # P, of a loss with the Hessian 1: the step's length is its learning rate.
    expected = 1e-5 * jnp.sum(params["w"] ** 2)
    np.testing.assert_allclose(state.evidence.sums.fresh[0], expected, rtol=0.02)


# State and costs


@pytest.mark.parametrize(
    ("dtype", "accumulator", "bytes_each"),
    [
        (jnp.float32, None, 8),
        (jnp.float32, jnp.bfloat16, 6),
        (jnp.bfloat16, None, 6),
        (jnp.bfloat16, jnp.bfloat16, 4),
    ],
)
def test_two_vectors_in_the_state(dtype, accumulator, bytes_each):
    opt = ctagd_optax.robust_ct_agd(optax.sgd(0.1), 5, accumulator_dtype=accumulator)
    state = opt.init({"w": jnp.zeros(1000, dtype)})
    large = [x for x in jax.tree.leaves(state) if x.size == 1000]
    assert len(large) == 2
    assert sum(x.nbytes for x in large) == 1000 * bytes_each


@pytest.mark.parametrize("steps", [1, 2, 3])
def test_short_epochs_hold_back(steps):
    opt = ctagd_optax.robust_ct_agd(optax.sgd(1e-4), steps)
    _, state = problems.train(opt, problems.params(), 4 * steps)
    assert not any(np.isnan(x).any() for x in state.info)
    np.testing.assert_array_equal(state.gamma, 1)
    if steps < 3:
        np.testing.assert_array_equal(state.info.step_high, np.inf)
        np.testing.assert_array_equal(state.info.step_low, -np.inf)


def test_a_step_is_traced_once():
    opt = ctagd_optax.robust_ct_agd(optax.sgd(0.1), 5)
    params = problems.params()
    state = opt.init(params)

    @jax.jit
    @chex.assert_max_traces(n=1)
    def step(params, state):
        updates, state = opt.update(jax.grad(problems.loss)(params), state, params)
        return optax.apply_updates(params, updates), state

    for _ in range(12):
        params, state = step(params, state)
    assert state.epoch == 2


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


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"pooling": "none"}, "pooling must be one of 'all', 'tensor'; got 'none'"),
        ({"target": 0.0}, "target must be finite and above 0, got 0.0"),
        ({"target": None}, "target must be a number, got None"),
        ({"confidence": -1.0}, "confidence must be finite and at least 0, got -1.0"),
        ({"steps_per_epoch": "5"}, "steps_per_epoch must be a number, got '5'"),
        ({"steps_per_epoch": 0}, "steps_per_epoch must be a whole number of at least"),
        ({"steps_per_epoch": True}, "steps_per_epoch must be a whole number of at"),
        (
            {"multiplier_min": 0.0},
            "multiplier_min must be above 0 and at most 1, got 0",
        ),
        (
            {"multiplier_min": 2.0},
            "multiplier_min must be above 0 and at most 1, got 2",
        ),
        ({"multiplier_max": 0.05}, "multiplier_max must be finite and at least 1, got"),
        ({"schedule": "cosine"}, "schedule must be a function of the step count"),
        ({"schedule": optax.sgd(0.1)}, "schedule must be a function of the step count"),
        ({"schedule": -1.0}, "schedule is relative to the backbone's learning rate"),
        ({"schedule": 5.0}, "schedule is relative to the backbone's learning rate: at"),
        ({"backbone": 0.1}, "backbone must be an optax.GradientTransformation"),
        ({"accumulator_dtype": jnp.int8}, "accumulator_dtype must be one of bfloat16"),
    ],
)
def test_bad_arguments(options, message):
    options = {"backbone": optax.sgd(0.1), "steps_per_epoch": 5, **options}
    with pytest.raises((TypeError, ValueError), match=re.escape(message)):
        ctagd_optax.robust_ct_agd(**options)


def test_a_schedule_of_vectors_is_refused():
    opt = ctagd_optax.robust_ct_agd(optax.sgd(0.1), 5, schedule=lambda n: jnp.ones(3))
    x = jnp.ones(3)
    with pytest.raises(ValueError, match="schedule must return one number"):
        opt.update(x, opt.init(x), x)


def test_a_schedule_without_a_return_is_refused():
    opt = ctagd_optax.robust_ct_agd(optax.sgd(0.1), 5, schedule=lambda n: None)
    x = jnp.ones(3)
    with pytest.raises(TypeError, match="must return a number; it returned None"):
        opt.update(x, opt.init(x), x)
