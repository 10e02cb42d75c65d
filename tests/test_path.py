"""Corrections at an epoch's end, to the path's mean and to the root of a line."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import ctagd_optax

ANYWHERE = {"correction_multiplier_max": np.inf}


def epoch(gradient, x, learning_rate, steps, **options):
    """Takes an epoch's steps.

    Args:
      gradient: of the step's number and the parameters.
      x: the parameters.
      learning_rate: of SGD.
      steps: how many.
      **options: of the method.

    Returns:
      The parameters before each step; those after the last, without the correction; and
      the correction.
    """
    opt, bare = (
        ctagd_optax.robust_ct_agd(
            optax.sgd(learning_rate), steps, multiplier_max=1.0, **{**options, **other}
        )
        for other in ({}, {"correction": "none"})
    )

    def step(carry, n):
        x, state, other = carry
        g = gradient(n, x)
        updates, state = opt.update(g, state, x)
        alone, other = bare.update(g, other, x)
        return (x + updates, state, other), (x, x + alone, updates - alone)

    start = x, opt.init(x), bare.init(x)
    _, (path, ends, moved) = jax.jit(
        lambda carry: jax.lax.scan(step, carry, jnp.arange(steps))
    )(start)
    return path, ends[-1], moved[-1]


def noisy(curvature, key, noise=1.0):
    def gradient(n, x):
        z = jax.random.normal(jax.random.fold_in(key, n), x.shape)
        return curvature * x + noise * z

    return gradient


def test_where_steps_go_back_and_forth_the_mean_is_the_end():
    # From 1 to -1 and back, so every gradient points to the mean of those before.
    path, end, moved = epoch(lambda n, x: x, jnp.ones(3), 2.0, 40)
    np.testing.assert_allclose(np.abs(path), 1, rtol=1e-6)
    weights = np.arange(1.0, 21)
    mean = (weights[:, None] * np.asarray(path[20:])).sum(0) / weights.sum()
    # The mean is on the other side of the bottom, and so is its gradient.
    x, slopes = np.asarray(path[20:, 0]), []
    for n in range(1, 20):
        before = np.average(x[:n], weights=weights[:n])
        slopes.append(3 * weights[n] * x[n] * (x[n] - before))
    fall = (np.sum(slopes) - 2 * np.sqrt(np.sum(np.square(slopes)))) / weights.sum()
    rise = 3 * mean[0] * (mean[0] - end[0])
    share = fall / (fall + max(rise, 0))
    assert 0.9 < share <= 1
    np.testing.assert_allclose(moved, share * (mean - end), rtol=1e-4)


def test_while_the_path_descends_it_does_not_go_back():
    for curvature in (0.0, 0.1, 1.0):
        _, _, moved = epoch(lambda n, x, a=curvature: 1 + a * x, jnp.ones(50), 0.05, 40)
        np.testing.assert_array_equal(moved, 0)


def test_the_way_back_lowers_the_loss_of_noisy_steps():
    curvature = jnp.geomspace(0.1, 10.0, 100)

    def changes(key):
        start = jnp.zeros(100)
        _, end, moved = epoch(noisy(curvature, key), start, 0.1, 200)

        def loss(x):
            return jnp.sum(curvature * x**2)

        return loss(end + moved) / loss(end)

    ratios = jax.vmap(changes)(jax.random.split(jax.random.key(0), 50))
    assert jnp.mean(ratios < 1) > 0.9
    assert jnp.median(ratios) < 0.5
    assert jnp.max(ratios) < 1.05


def test_a_walk_of_noise_alone_is_seldom_taken_for_one_to_correct():
    def moved(key, confidence):
        gradient = noisy(0.0, key)
        options = {"correction_confidence": confidence}
        return jnp.any(epoch(gradient, jnp.zeros(100), 0.1, 40, **options)[2] != 0)

    keys = jax.random.split(jax.random.key(0), 500)
    often = [jnp.mean(jax.vmap(moved, (0, None))(keys, c)) for c in (0.0, 2.0)]
    assert often[0] == pytest.approx(0.5, abs=0.1)
    assert often[1] < 0.05


def test_what_batches_without_replacement_cost():
    """Their noise adds up to nothing, which looks like a fall; the damage is small."""
    steps, slope = 40, 0.03

    def costs(key):
        noise = jax.random.normal(key, (steps, 1000))
        noise -= jnp.mean(noise, 0, keepdims=True)

        def gradient(n, x):
            return slope + noise[n] + 0 * x

        _, end, moved = epoch(gradient, jnp.zeros(1000), 0.01, steps)
        return jnp.any(moved != 0), jnp.sum(moved) / -jnp.sum(end)

    made, lost = jax.vmap(costs)(jax.random.split(jax.random.key(0), 100))
    assert jnp.mean(made) > 0.5
    assert 0 < jnp.mean(lost) < 0.03


def test_no_correction_while_a_step_is_to_be_longer():
    """One tensor goes back and forth, another slowly down."""

    def moved(most, slow=0.01, pooling="tensor"):
        opt = ctagd_optax.robust_ct_agd(
            optax.sgd(1.9), 40, pooling=pooling, correction_multiplier_max=most
        )
        params = {"a": jnp.ones(3), "b": jnp.ones(2)}

        def step(carry, _):
            params, state = carry
            grads = {"a": params["a"], "b": slow * params["b"]}
            updates, state = opt.update(grads, state, params)
            return (optax.apply_updates(params, updates), state), None

        start = params, opt.init(params)
        (_, state), _ = jax.lax.scan(step, start, length=40)
        return state.info.multiplier > 1, state.info.relative_correction > 0

    longer, correction = jax.jit(moved)(1.0)  # also if it is traced
    np.testing.assert_array_equal(longer, [False, True])
    assert not correction.any()
    assert moved(np.inf)[1].all()
    longer, correction = moved(1.0, slow=1.0)
    assert not longer.any()
    assert correction.all()
    longer, correction = moved(1.0, pooling="all")
    assert not longer.any()
    assert correction.all()
    assert not moved(0.0, slow=1.0)[1].any()


def test_a_gradient_that_is_not_finite_is_no_sample():
    def gradient(n, x):
        return jnp.where(n == 30, jnp.nan, 1.0) * x

    opt = ctagd_optax.robust_ct_agd(
        optax.apply_if_finite(optax.sgd(2.0), 5), 40, multiplier_max=1.0
    )
    params = {"a": jnp.ones(3), "b": jnp.ones(2)}
    state = opt.init(params)
    update = jax.jit(opt.update)
    for n in range(40):
        grads = {"a": gradient(n, params["a"]), "b": params["b"]}
        updates, state = update(grads, state, params)
        if n == 38:
            np.testing.assert_array_equal(state.evidence.path.samples, [18, 19])
        params = optax.apply_updates(params, updates)
    for x in jax.tree.leaves(params):
        assert (jnp.abs(x) < 0.5).all()


def test_a_tensor_without_a_mean_does_not_count():
    """One whose gradients are finite in an early epoch, and then too rarely."""

    def ends(weight, finite):
        opt = ctagd_optax.robust_ct_agd(
            optax.chain(optax.zero_nans(), optax.sgd(1.9)),
            20,
            multiplier_max=1.0,
            correction_confidence=0.0,
        )
        params = {"a": jnp.full(2, weight), "b": jnp.ones(3)}
        state = opt.init(params)
        update = jax.jit(opt.update)
        for n in range(40):
            known = n < 20 or n in finite
            grads = {"a": params["a"] if known else jnp.full(2, jnp.nan)}
            grads["b"] = params["b"]
            updates, state = update(grads, state, params)
            params = optax.apply_updates(params, updates)
        return params, state

    _, state = ends(1.0, finite=(30, 32))
    np.testing.assert_array_equal(state.evidence.path.samples, [2, 10])
    np.testing.assert_array_equal(state.info.relative_correction > 0, [False, True])
    for finite in ((), (30,)):
        params, state = ends(100.0, finite)
        assert state.info.relative_correction[0] == 0
        assert state.info.relative_correction[1] > 0
        # What the other does is its own affair.
        alone, _ = ends(0.0, finite)
        np.testing.assert_allclose(params["b"], alone["b"], rtol=1e-2)


def corrected(params, learning_rate=0.1, steps=12, **options):
    """Two epochs of steps back and forth, and a step of the third."""
    opt = ctagd_optax.robust_ct_agd(
        optax.sgd(learning_rate), steps, multiplier_max=1.0, **options
    )

    def step(carry, n):
        params, state = carry
        grads = jax.tree.map(lambda x: 19 * x + (-0.5) ** n.astype(x.dtype), params)
        updates, state = opt.update(grads, state, params)
        return (optax.apply_updates(params, updates), state), None

    (params, state), _ = jax.lax.scan(step, (params, opt.init(params)), jnp.arange(25))
    return params, state.info.relative_correction


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float32, jnp.float64])
def test_the_way_back_in_every_dtype(dtype):
    params = {"a": jnp.ones(3, dtype), "b": -jnp.ones((2, 2), dtype)}
    found, moved = corrected(params, accumulator_dtype=jnp.bfloat16)
    wanted, _ = corrected(jax.tree.map(lambda x: x.astype(jnp.float64), params))
    assert (moved > 0.1).all()
    tolerance = 0.05 if dtype == jnp.bfloat16 else 1e-5
    for x, y in zip(*map(jax.tree.leaves, (found, wanted)), strict=True):
        assert x.dtype == dtype
        np.testing.assert_allclose(x.astype(jnp.float64), y, atol=tolerance)


def test_the_way_back_under_transformations():
    params = {"a": jnp.ones(3), "b": -jnp.ones((2, 2))}
    wanted, moved = corrected(params)
    assert (moved > 0.1).all()

    def close(found):
        for x, y in zip(*map(jax.tree.leaves, (found, wanted)), strict=True):
            np.testing.assert_allclose(x, y, rtol=1e-6)

    close(jax.jit(lambda p, t: corrected(p, steps=t)[0])(params, 12))
    several = jax.tree.map(lambda x: jnp.stack([x, 2 * x]), params)
    close(jax.tree.map(lambda x: x[0], jax.vmap(lambda p: corrected(p)[0])(several)))

    def loss(rate):
        return optax.tree.norm(corrected(params, rate)[0], squared=True)

    assert jnp.isfinite(jax.grad(loss)(0.1))


@pytest.mark.parametrize("correction", ["mean", "line", "coordinate_line"])
def test_two_samples_are_no_ground(correction):
    options = {"correction": correction, "correction_confidence": 0.0}
    for a in (1.0, 19.0):
        _, _, moved = epoch(lambda n, x, a=a: a * x, jnp.ones(3), 0.1, 4, **options)
        np.testing.assert_array_equal(moved, 0)
    _, _, moved = epoch(lambda n, x: 19 * x, jnp.ones(3), 0.1, 6, **options)
    assert (moved != 0).all()


def test_the_correction_goes_to_the_root_of_the_line():
    curvature = jnp.asarray([0.5, 1.0, 2.0, 4.0])
    for correction, a in (("coordinate_line", curvature), ("line", jnp.full(4, 2.0))):
        opt = ctagd_optax.robust_ct_agd(
            optax.sgd(0.05),
            8,
            correction=correction,
            correction_limit=1e3,
            **ANYWHERE,
        )
        x = jnp.asarray([1.0, -2.0, 3.0, -1.0])
        state = opt.init(x)
        for _ in range(8):
            updates, state = opt.update(a * x, state, x)
            x = x + updates
        np.testing.assert_allclose(x, 0, atol=1e-5)


@pytest.mark.parametrize("correction", ["line", "coordinate_line"])
def test_only_a_line_that_rises_is_followed(correction):
    def moved(curvature):
        """The correction at the end of an epoch."""
        opt, bare = (
            ctagd_optax.robust_ct_agd(optax.sgd(0.1), 12, correction=c, **ANYWHERE)
            for c in (correction, "none")
        )
        x = jnp.zeros(50, jnp.float32)
        state, other = opt.init(x), bare.init(x)
        for _ in range(12):
            g = 1 + curvature * x
            alone, other = bare.update(g, other, x)
            updates, state = opt.update(g, state, x)
            x = x + updates
        return jnp.linalg.norm(updates - alone)

    assert moved(0.0) == 0
    assert moved(-0.1) == 0
    assert moved(0.1) > 0


@pytest.mark.parametrize("correction", ["line", "coordinate_line"])
def test_the_correction_stays_within_reach(correction):
    opt, bare = (
        ctagd_optax.robust_ct_agd(optax.sgd(0.01), 8, correction=c, **ANYWHERE)
        for c in (correction, "none")
    )
    x, path = jnp.asarray([1.0, -2.0, 3.0]), []
    state, other = opt.init(x), bare.init(x)
    for _ in range(8):
        path.append(x)
        alone, other = bare.update(x, other, x)
        updates, state = opt.update(x, state, x)
        x = x + updates
    weights = np.arange(1.0, 5)[:, None]
    late = np.stack(path[4:])
    mean = (weights * late).sum(0) / weights.sum()
    deviation = np.sqrt((weights * (late - mean) ** 2).sum(0) / weights.sum())
    moved = np.asarray(updates - alone)
    # The root is far, so both go as far as they may.
    if correction == "line":
        moved, deviation = np.linalg.norm(moved), np.linalg.norm(deviation)
    np.testing.assert_allclose(np.abs(moved), 0.5 * deviation, rtol=1e-4)


def test_a_slope_within_its_error_is_not_followed():
    rng = np.random.default_rng(0)
    noise = jnp.asarray(rng.normal(size=(40, 500)), jnp.float32)

    def moved(curvature, confidence):
        """The correction at the end of an epoch of noisy gradients."""
        opt, bare = (
            ctagd_optax.robust_ct_agd(
                optax.sgd(0.1),
                40,
                correction=c,
                correction_confidence=confidence,
                **ANYWHERE,
            )
            for c in ("line", "none")
        )
        x = jnp.zeros(500, jnp.float32)
        state, other = opt.init(x), bare.init(x)
        for z in noise:
            g = curvature * x + z
            alone, other = bare.update(g, other, x)
            updates, state = opt.update(g, state, x)
            x = x + updates
        return float(jnp.linalg.norm(updates - alone))

    assert moved(0.02, confidence=2.0) == 0
    assert moved(0.02, confidence=0.0) > 0
    assert moved(8.0, confidence=2.0) > 0


@pytest.mark.parametrize("correction", ["line", "coordinate_line"])
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_the_line_in_bfloat16(correction, dtype):
    x = jnp.full(64, 100.0, dtype)
    opt = ctagd_optax.robust_ct_agd(
        optax.sgd(1e-5), 200, correction=correction, accumulator_dtype=jnp.bfloat16
    )
    state = opt.init(x)
    update = jax.jit(opt.update)
    for _ in range(199):
        updates, state = update(2 * x, state, x)
        x = x + updates
    line = state.evidence.path.fit
    total, base = (jnp.sum(s.astype(x.dtype)) for s in (line.slope_sum, line.spread))
    assert total / base == pytest.approx(2, rel=0.1)
