"""CT-AGD with everything that people combine optimizers with; a test a row."""

import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import linen, nnx
from flax.training.train_state import TrainState

import ctagd_optax
from tests import problems

T = 5


pytestmark = pytest.mark.usefixtures("standard_promotion")


def ct_sgd(backbone=None, **options):
    """A calm CT-AGD: bounds that fit the problem, so that training converges."""
    options = {"curvature_min": 0.5, "correction_rate": 0.3, **options}
    return ctagd_optax.ct_agd(backbone or optax.sgd(0.02), T, **options)


def robust(backbone=None, **options):
    """The robust method, which finds that these steps may be longer."""
    return ctagd_optax.robust_ct_agd(backbone or optax.sgd(0.02), T, **options)


both = pytest.mark.parametrize("wrapped", [ct_sgd, robust])


assert_close = chex.assert_trees_all_close


def assert_trains(opt, steps=4 * T, **extra):
    """The loss falls, the epochs are counted, the curvature is the true one."""
    params, state = problems.train(opt, problems.params(), steps, **extra)
    assert problems.loss(params) < 0.5 * problems.loss(problems.params())
    assert optax.tree.get(state, "epoch") == steps // T
    return params, state


@both
@pytest.mark.parametrize(
    "backbone",
    [
        optax.sgd(0.02),
        optax.sgd(0.01, momentum=0.85),
        optax.sgd(0.01, momentum=0.85, nesterov=True),
        optax.adam(0.1),
        optax.adamw(0.1, weight_decay=1e-4),
        optax.yogi(0.1),
        optax.rmsprop(0.05),
        optax.lion(0.05),
        optax.adan(0.1),
        optax.adagrad(0.5),
        optax.contrib.muon(0.1),
        optax.contrib.schedule_free_sgd(0.05),
        optax.contrib.schedule_free_adamw(0.1),
        optax.scale(-0.02),
    ],
    ids=[
        "sgd",
        "momentum",
        "nesterov",
        "adam",
        "adamw",
        "yogi",
        "rmsprop",
        "lion",
        "adan",
        "adagrad",
        "muon",
        "schedule_free_sgd",
        "schedule_free_adamw",
        "stateless",
    ],
)
def test_any_backbone(backbone, wrapped):
    # Adan's memory is longer than an epoch here, so that the robust method overshoots.
    assert_trains(wrapped(backbone), 16 * T)


@pytest.mark.parametrize(
    "opt",
    [
        ct_sgd(optax.lbfgs(), correction_rate=0.0),
        robust(optax.lbfgs()),
    ],
    ids=["ct_agd", "robust_ct_agd"],
)
def test_backbone_with_extra_arguments(opt):

    def step(carry, _):
        params, state = carry
        value, grads = jax.value_and_grad(problems.loss)(params)
        updates, state = opt.update(
            grads, state, params, value=value, grad=grads, value_fn=problems.loss
        )
        return (optax.apply_updates(params, updates), state), None

    params = problems.params()
    (params, _), _ = jax.lax.scan(step, (params, opt.init(params)), length=2 * T)
    assert problems.loss(params) < 1e-4


@both
def test_chain_before(wrapped):
    clip = optax.clip_by_global_norm(1.0)
    opt = optax.chain(clip, wrapped())
    assert_trains(opt, 20 * T)
    # In float64, as XLA may round the two programs differently.
    params, _ = problems.train(opt, problems.params(jnp.float64), 20 * T)

    def clipped(params):
        grads = jax.grad(problems.loss)(params)
        return clip.update(grads, clip.init(params))[0]

    inner, x = wrapped(), problems.params(jnp.float64)
    inner_state = inner.init(x)
    for _ in range(20 * T):
        updates, inner_state = jax.jit(inner.update)(clipped(x), inner_state, x)
        x = optax.apply_updates(x, updates)
    assert_close(params, x, rtol=1e-5)


AFTER = (
    optax.add_decayed_weights(-0.001),
    optax.clip(0.3),
    optax.scale(0.5),
)


def test_chain_after_keeps_the_curvature_true():
    # What comes after CT-AGD changes the displacement, but not the quotient.
    opt = optax.chain(ct_sgd(correction_rate=0.0, quantile=1.0, eps=1e-7), *AFTER)
    _, state = assert_trains(opt, 20 * T)
    np.testing.assert_allclose(optax.tree.get(state, "gamma"), [3.0, 8.0], rtol=1e-4)


def test_chain_after_keeps_the_step_length_true():
    # The same motion, made by the backbone or by what follows, tells the same.
    steps = 3 * T
    wrap = functools.partial(
        ctagd_optax.robust_ct_agd, steps_per_epoch=T, multiplier_max=20.0
    )
    inside = wrap(optax.chain(optax.sgd(2e-3), *AFTER))
    after = optax.chain(wrap(optax.sgd(2e-3)), *AFTER)
    _, found = assert_trains(inside, steps)
    _, state = assert_trains(after, steps)
    high = [optax.tree.get(s, "step_high") for s in (found, state)]
    assert (high[0] > 0).all()
    assert_close(*high, rtol=0.25)


def test_wrapped_before_the_learning_rate():
    """As optax builds its aliases: direction, weight decay, then the learning rate."""
    parts = optax.add_decayed_weights(1e-4), optax.scale_by_learning_rate(1e-3)
    bare = optax.chain(optax.scale_by_adam(), *parts)
    wrapped = optax.chain(robust(optax.scale_by_adam()), *parts)
    slow, _ = problems.train(bare, problems.params(), 8 * T)
    fast, state = problems.train(wrapped, problems.params(), 8 * T)
    assert (optax.tree.get(state, "gamma") < 0.2).all()
    assert problems.loss(fast) < 0.8 * problems.loss(slow)


@both
def test_learning_rate_schedule(wrapped):
    schedule = optax.linear_schedule(0.05, 0.0, 4 * T)
    opt = wrapped(optax.sgd(schedule))
    params, state = assert_trains(opt)
    updates, _ = opt.update(params, state, params)
    assert_close(updates, jax.tree.map(jnp.zeros_like, updates))


@both
def test_multi_steps_counts_optimizer_steps(wrapped):
    opt = optax.MultiSteps(wrapped(), every_k_schedule=3)
    params, state = problems.train(opt, problems.params(), 3 * T * 4)
    assert optax.tree.get(state, "epoch") == 4
    plain, _ = problems.train(wrapped(), problems.params(), 4 * T)
    assert_close(params, plain, rtol=1e-5)


@both
def test_masked(wrapped):
    opt = optax.masked(wrapped(), {"w": True, "b": False})
    params = problems.params()
    state = opt.init(params)
    updates, state = opt.update(params, state, params)
    assert optax.tree.get(state, "gamma").shape == (1,)
    assert_close(updates["b"], params["b"])
    assert_close(updates["w"], -0.02 * params["w"], rtol=1e-6)


@both
def test_partition(wrapped):
    opt = optax.partition(
        {"curved": wrapped(), "plain": optax.sgd(0.02)}, {"w": "curved", "b": "plain"}
    )
    params, state = assert_trains(opt)
    assert optax.tree.get(state, "gamma").shape == (1,)
    b, _ = problems.train(optax.sgd(0.02), problems.params(), 4 * T)
    assert_close(params["b"], b["b"], rtol=1e-6)


@both
def test_freeze(wrapped):
    opt = optax.chain(wrapped(), optax.transforms.freeze({"w": False, "b": True}))
    params, _ = problems.train(opt, problems.params(), 4 * T)
    assert_close(params["b"], problems.params()["b"])
    assert np.abs(params["w"]).max() < 1.5


@pytest.mark.parametrize(
    "estimator",
    [None, ctagd_optax.secant("algorithm"), ctagd_optax.same_batch(), "hutchinson"],
)
@pytest.mark.parametrize("inside", [True, False])
def test_what_the_backbone_freezes_gets_no_correction(inside, estimator):
    if estimator == "hutchinson":
        estimator = ctagd_optax.hutchinson(every=2)
    freeze = optax.transforms.freeze({"w": False, "b": True})
    parts = {"move": optax.sgd(0.02), "rest": optax.set_to_zero()}
    backbone = (
        optax.chain(freeze, optax.sgd(0.02, momentum=0.9))
        if inside
        else optax.partition(parts, {"w": "move", "b": "rest"})
    )
    opt = ctagd_optax.ct_agd(backbone, T, estimator=estimator)
    params, state = problems.params(), opt.init(problems.params())
    gradient = jax.grad(problems.loss)

    @jax.jit
    def step(params, state):
        updates, state = opt.update(
            gradient(params), state, params, grad_fn=gradient, obj_fn=problems.loss
        )
        return optax.apply_updates(params, updates), state

    for _ in range(3 * T):
        params, state = step(params, state)
    assert_close(params["b"], problems.params()["b"], rtol=0)
    assert np.abs(params["w"] - problems.params()["w"]).max() > 0.1


def test_inject_hyperparams():
    factory = optax.inject_hyperparams(ctagd_optax.ct_sgd)
    options = {"steps_per_epoch": T, "curvature_min": 0.5}
    opt = factory(learning_rate=0.02, **options)
    params, state = assert_trains(opt)
    plain = ctagd_optax.ct_sgd(0.02, **options)
    assert_close(params, problems.train(plain, problems.params(), 4 * T)[0], rtol=1e-5)

    state.hyperparams["steps_per_epoch"] = jnp.asarray(2)
    state.hyperparams["quantile"] = jnp.asarray(1.0)
    for _ in range(2):
        grads = jax.grad(problems.loss)(params)
        updates, state = jax.jit(opt.update)(grads, state, params)
        params = optax.apply_updates(params, updates)
    assert optax.tree.get(state, "epoch") == 5


def test_inject_hyperparams_into_the_wrapper():
    factory = optax.inject_hyperparams(ctagd_optax.ct_agd)
    opt = factory(optax.sgd(0.02), T, curvature_min=0.5, correction_rate=0.3)
    params, _ = assert_trains(opt)
    assert_close(
        params, problems.train(ct_sgd(), problems.params(), 4 * T)[0], rtol=1e-5
    )


def test_inject_hyperparams_into_the_robust_wrapper():
    factory = optax.inject_hyperparams(ctagd_optax.robust_ct_agd)
    options = {"target": 1.5, "schedule": optax.linear_schedule(0.0, 1.0, T)}
    params, _ = assert_trains(factory(optax.sgd(0.02), T, **options))
    plain, _ = problems.train(robust(**options), problems.params(), 4 * T)
    assert_close(params, plain, rtol=1e-4, atol=1e-6)


@both
def test_apply_if_finite(wrapped):
    opt = optax.apply_if_finite(wrapped(), max_consecutive_errors=3)
    params, state = assert_trains(opt)
    bad = jax.tree.map(lambda p: p * jnp.nan, params)
    updates, after = opt.update(bad, state, params)
    assert_close(updates, jax.tree.map(jnp.zeros_like, params))
    assert_close(after.inner_state, state.inner_state)


@both
def test_lookahead(wrapped):
    opt = optax.lookahead(wrapped(), sync_period=4, slow_step_size=0.5)
    params = optax.LookaheadParams.init_synced(problems.params())
    state = opt.init(params)

    @jax.jit
    def step(params, state):
        grads = jax.grad(lambda p: problems.loss(p.fast))(params)
        updates, state = opt.update(grads.fast, state, params)
        return optax.apply_updates(params, updates), state

    for _ in range(8 * T):
        params, state = step(params, state)
    assert problems.loss(params.slow) < 0.5 * problems.loss(problems.params())
    assert optax.tree.get(state, "epoch") == 8


@both
def test_ema(wrapped):
    assert_trains(optax.chain(wrapped(), optax.ema(0.5)), 8 * T)


@both
def test_schedule_free_around_it(wrapped):
    opt = optax.contrib.schedule_free(wrapped(), learning_rate=0.02, b1=0.9)
    params, state = problems.train(opt, problems.params(), 20 * T)
    params = optax.contrib.schedule_free_eval_params(state, params)
    assert problems.loss(params) < 0.5 * problems.loss(problems.params())


@both
def test_reduce_on_plateau(wrapped):
    opt = optax.chain(wrapped(), optax.contrib.reduce_on_plateau(patience=2))
    _, state = problems.train(opt, problems.params(), 4 * T, value=jnp.asarray(1.0))
    assert optax.tree.get(state, "epoch") == 4
    assert optax.tree.get(state, "scale") < 1e-3


@both
def test_nnx_optimizer_forwards_extra_arguments(wrapped):
    model = nnx.Linear(3, 2, rngs=nnx.Rngs(0), param_dtype=jnp.float32)
    x, y = jnp.ones((8, 3), jnp.float32), jnp.zeros((8, 2), jnp.float32)
    opt = nnx.Optimizer(model, wrapped(), wrt=nnx.Param)

    @nnx.jit
    def step(model, opt, epoch_end):
        loss, grads = nnx.value_and_grad(lambda m: jnp.mean((m(x) - y) ** 2))(model)
        opt.update(model, grads, epoch_end=epoch_end)
        return loss

    losses = [step(model, opt, n % 3 == 2) for n in range(12)]
    assert losses[-1] < 0.5 * losses[0]
    for state in (opt, opt.opt_state):
        multiplier = ctagd_optax.learning_rate_multiplier(state)
        chex.assert_shape(multiplier, (2,))
    report = ctagd_optax.curvature_report(opt, nnx.state(model, nnx.Param))
    assert [row.shape for row in report] == [(2,), (3, 2)]
    assert [row.path for row in report] == ["bias", "kernel"]
    assert "4 epochs done" in str(report)


@both
def test_linen_train_state(wrapped):
    model = linen.Dense(2)
    x, y = jnp.ones((8, 3), jnp.float32), jnp.zeros((8, 2), jnp.float32)
    state = TrainState.create(
        apply_fn=model.apply,
        params=model.init(jax.random.key(0), x)["params"],
        tx=wrapped(),
    )

    @jax.jit
    def step(state):
        def loss(params):
            return jnp.mean((state.apply_fn({"params": params}, x) - y) ** 2)

        value, grads = jax.value_and_grad(loss)(state.params)
        return state.apply_gradients(grads=grads), value

    losses = []
    for _ in range(3 * T):
        state, value = step(state)
        losses.append(value)
    assert losses[-1] < 0.5 * losses[0]
    rows = ctagd_optax.curvature_report(state.opt_state, state.params)
    assert [row.path for row in rows] == ["bias", "kernel"]


@both
def test_trees_with_none(wrapped):
    params = {"layer": (jnp.ones(3), None), "static": None}
    opt = wrapped()
    state = opt.init(params)
    for _ in range(2 * T):
        updates, state = opt.update(params, state, params)
        params = optax.apply_updates(params, updates)
    assert updates["static"] is None
    assert params["layer"][1] is None
    assert state.epoch == 2


@both
def test_complex_parameters_in_two_parts(wrapped):
    opt = optax.contrib.split_real_and_imaginary(wrapped())
    params = jnp.asarray([1.0 + 2.0j, -3.0 + 0.5j], jnp.complex64)
    state = opt.init(params)
    for _ in range(8 * T):
        updates, state = jax.jit(opt.update)(params, state, params)
        params = optax.apply_updates(params, updates)
    assert np.abs(params).max() < 0.5
    assert optax.tree.get(state, "gamma").shape == (2,)


@both
def test_scan_equals_a_python_loop(wrapped):
    scanned, scanned_state = problems.train(wrapped(), problems.params(), 3 * T)
    opt, params = wrapped(), problems.params()
    state = opt.init(params)
    for _ in range(3 * T):
        updates, state = opt.update(jax.grad(problems.loss)(params), state, params)
        params = optax.apply_updates(params, updates)
    assert_close(params, scanned, rtol=1e-5, atol=1e-7)
    assert_close(state, scanned_state, rtol=1e-4, atol=1e-5)


@both
def test_vmap_over_seeds_keeps_the_counter_unbatched(wrapped):
    opt = wrapped()
    seeds = 4
    params = jax.tree.map(
        lambda p: jnp.stack([p * (1 + 0.1 * s) for s in range(seeds)]),
        problems.params(),
    )
    single = jax.tree.map(lambda p: p[0], params)
    axes = jax.tree.map(lambda _: 0, opt.init(single))
    axes = axes._replace(epoch=None, epoch_step=None)
    state = jax.vmap(opt.init, out_axes=axes)(params)
    grads = jax.vmap(jax.grad(problems.loss))
    update = jax.vmap(opt.update, in_axes=(0, axes, 0), out_axes=(0, axes))

    def conds(update, *arguments):
        return str(jax.make_jaxpr(update)(*arguments)).count("cond[")

    plain = conds(opt.update, jax.grad(problems.loss)(single), opt.init(single), single)
    assert conds(update, grads(params), state, params) == plain > 0

    batched = params
    for _ in range(3 * T):
        updates, state = jax.jit(update)(grads(batched), state, batched)
        batched = optax.apply_updates(batched, updates)
    assert state.epoch.shape == ()
    for s in range(seeds):
        start = jax.tree.map(lambda p, s=s: p[s], params)
        alone, _ = problems.train(opt, start, 3 * T)
        assert_close(jax.tree.map(lambda p, s=s: p[s], batched), alone, rtol=1e-4)


@pytest.mark.parametrize(
    ("unobserved", "accumulator"),
    [("clamp", None), ("skip", jnp.bfloat16)],
)
def test_gradient_through_updates(unobserved, accumulator):
    target = problems.params(jnp.float64)

    def final_loss(learning_rate):
        backbone = optax.sgd(learning_rate, momentum=0.5)
        opt = ctagd_optax.ct_agd(
            backbone,
            3,
            curvature_min=0.5,
            unobserved=unobserved,
            quantile=0.4,
            accumulator_dtype=accumulator,
        )
        params, state = target, opt.init(target)
        for _ in range(7):
            # Not quadratic, so that the curvature depends on the learning rate.
            grads = jax.tree.map(lambda p: p + 0.1 * p**3, params)
            updates, state = opt.update(grads, state, params)
            params = optax.apply_updates(params, updates)
        return problems.loss(params)

    run = jax.jit(jax.value_and_grad(final_loss))
    # Narrow sums are a little too steep, or flat.
    h, rtol = (1e-5, 1e-4) if accumulator is None else (1e-3, 1e-2)
    difference = (run(0.05 + h)[0] - run(0.05 - h)[0]) / (2 * h)
    np.testing.assert_allclose(run(0.05)[1], difference, rtol=rtol)


@pytest.mark.parametrize(
    "opt",
    [
        ctagd_optax.ct_sgd(0.01, steps_per_epoch=T),
        ctagd_optax.ct_adam(0.01, steps_per_epoch=T),
        ctagd_optax.robust_ct_agd(optax.sgd(1e-4), T),
    ],
    ids=["ct_sgd", "ct_adam", "robust"],
)
def test_donation_of_params_and_state(opt):

    def step(params, state):
        updates, state = opt.update(jax.grad(problems.loss)(params), state, params)
        return optax.apply_updates(params, updates), state

    donating = jax.jit(step, donate_argnums=(0, 1))
    params, kept = problems.params(), problems.params()
    state, kept_state = opt.init(params), opt.init(kept)
    for _ in range(2 * T):
        params, state = donating(params, state)
        kept, kept_state = jax.jit(step)(kept, kept_state)
    assert_close(params, kept, rtol=1e-6)


def test_gradient_through_robust_updates_is_finite():
    target = problems.params(jnp.float64)

    def final_loss(learning_rate):
        opt = ctagd_optax.robust_ct_agd(optax.sgd(learning_rate), 4)
        params, state = target, opt.init(target)
        for _ in range(9):
            grads = jax.tree.map(lambda p: p + 0.1 * p**3, params)
            updates, state = opt.update(grads, state, params)
            params = optax.apply_updates(params, updates)
        return problems.loss(params)

    # A longer step would have been better; the multiplier counts as a constant.
    assert -jnp.inf < jax.jit(jax.grad(final_loss))(0.01) < 0


def test_tree_get_finds_every_field():
    opt = optax.chain(optax.clip(1.0), ctagd_optax.ct_adam(steps_per_epoch=T))
    state = opt.init(problems.params())
    fields = *state[1]._fields, *state[1].info._fields, "quotient_sum"
    for name in fields:
        assert optax.tree.get(state, name) is not None
    np.testing.assert_array_equal(optax.tree.get(state, "gamma"), [1.0, 1.0])
    state = ctagd_optax.robust_ct_agd(optax.adam(0.1), T).init(problems.params())
    for name in state.info._fields:
        np.testing.assert_array_equal(optax.tree.get(state, name), [0.0, 0.0])


@both
def test_init_from_shapes_alone(wrapped):
    shapes = jax.eval_shape(problems.params)
    abstract = jax.eval_shape(wrapped().init, shapes)
    concrete = wrapped().init(problems.params())
    assert jax.tree.map(jnp.shape, concrete) == jax.tree.map(
        lambda s: s.shape, abstract
    )
    assert jax.tree.structure(wrapped().init(shapes)) == jax.tree.structure(concrete)


@pytest.mark.parametrize(
    "wrapper",
    [
        functools.partial(ctagd_optax.ct_agd, curvature_min=0.5),
        ctagd_optax.robust_ct_agd,
    ],
    ids=["literal", "robust"],
)
def test_traced_steps_per_epoch(wrapper):
    @jax.jit
    def run(steps_per_epoch):
        opt = wrapper(optax.sgd(0.02), steps_per_epoch)
        return problems.train(opt, problems.params(), 12)

    for steps_per_epoch in (3, 4):
        params, state = run(steps_per_epoch)
        opt = wrapper(optax.sgd(0.02), steps_per_epoch)
        assert_close(params, problems.train(opt, problems.params(), 12)[0], rtol=1e-6)
        assert state.epoch == 12 // steps_per_epoch
