"""The arms: that each works, is set as it says, and is named in one way."""

import inspect
import json

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import optax.contrib
import pytest
from flax import nnx

import ctagd_optax
from benchmarks import arms, specs, transforms
from benchmarks.models import MLP, WideResNet

pytestmark = pytest.mark.usefixtures("default_jax")

WRAPPED = (
    *("schedule_free+average", "robust(muon@0.02)", "robust(schedule_free)"),
    *("ct(nadamw)", "ct(lion):estimator=same_batch", "robust(momo)"),
    *("ct_sgd:estimator=hutchinson,every=2", "mechanize(adam)"),
    *(f"{wrapper}(sgd)" for wrapper in arms.WRAPPERS),
)
CURVATURE = np.asarray([[2.0, 1.0], [1.0, 3.0]], np.float32)
SLOPE = np.asarray([1.0, -2.0], np.float32)
START = np.asarray([1.5, -0.5], np.float32)


def quadratic(x):
    return 0.5 * x @ CURVATURE @ x - SLOPE @ x


def make_step(opt, loss=quadratic):
    """A jitted step that gives the optimizer all that a trainer gives."""

    @jax.jit
    def step(params, state):
        value, grads = jax.value_and_grad(loss)(params)
        updates, state = opt.update(
            grads,
            state,
            params,
            value=value,
            grad=grads,
            value_fn=loss,
            obj_fn=loss,
            grad_fn=jax.grad(loss),
        )
        return optax.apply_updates(params, updates), state

    return step


def walk(opt, steps, params=START):
    """Parameters and states from the start on."""
    step, path = make_step(opt), [(jnp.asarray(params), opt.init(jnp.asarray(params)))]
    for _ in range(steps):
        path.append(step(*path[-1]))
    return path


@pytest.mark.parametrize("spec", [*arms.ROWS, *WRAPPED])
def test_every_arm_lowers_a_loss_of_a_flax_model(spec):
    params = nnx.state(MLP(2, hidden=(), classes=2, rngs=nnx.Rngs(0)), nnx.Param)

    def loss(params):
        return sum(jnp.sum((p - 1) ** 2) for p in jax.tree.leaves(params))

    arm = specs.arm(spec)
    opt = arm.make(100, 12)  # a literal correction may well raise it
    step = make_step(opt, loss)
    now, state = params, opt.init(params)
    for _ in range(12):
        now, state = step(now, state)
    evaluated = arm.eval_params(state, now)
    assert jax.tree.structure(evaluated) == jax.tree.structure(params)
    assert loss(evaluated) < loss(params)


@pytest.mark.parametrize("name", ["lbfgs", "sophia", "muon", "ct_sgd"])
def test_arms_take_networks_with_batchnorm_and_dropout(name):
    """Traced, not compiled: the loss is a function of parameters within loops."""
    model = nnx.eval_shape(lambda: WideResNet(10, 1, dropout=0.1, rngs=nnx.Rngs(0)))
    graph, params, rest = nnx.split(model, nnx.Param, ...)
    opt = specs.arm(name).make(3)

    def train(params, rest, images):
        def loss(params):
            network = nnx.merge(graph, params, rest, copy=True)
            return jnp.mean(network(images) ** 2)

        return make_step(opt, loss)(params, opt.init(params))

    images = jax.ShapeDtypeStruct((4, 8, 8, 3), jnp.float32)
    after, _ = jax.eval_shape(train, params, rest, images)
    assert jax.tree.structure(after) == jax.tree.structure(params)


@pytest.mark.parametrize("name", ["ct_sgd", "ct_adam"])
def test_ct_arms_are_the_papers_to_the_bit(name):
    preset = getattr(ctagd_optax, name)
    expected = walk(preset(steps_per_epoch=3), 4)
    chex.assert_trees_all_equal(walk(specs.arm(name).make(3), 4), expected)


@pytest.mark.parametrize(
    ("name", "backbone"),
    [
        ("sgd", optax.sgd(1e-2, momentum=0.85)),
        ("adam", optax.adam(1e-3, b1=0.9, b2=0.999)),
    ],
)
def test_backbones_are_the_papers_with_coupled_decay(name, backbone):
    expected = optax.chain(optax.add_decayed_weights(5e-4), backbone)
    chex.assert_trees_all_equal(
        walk(specs.arm(name).make(3), 3),
        walk(optax.with_extra_args_support(expected), 3),
    )


def test_options_are_those_of_the_library():
    for name in ("ct_sgd", "ct_adam"):
        known = inspect.signature(getattr(ctagd_optax, name)).parameters
        secant = inspect.signature(ctagd_optax.secant).parameters
        options = specs.arm(name).options
        assert not options.pop("average")
        assert (options.pop("estimator"), options.pop("every")) == ("secant", 1)
        assert options.pop("noise_seed") == secant["seed"].default
        # Its None is the parameters' dtype, and those are float32.
        assert options.pop("accumulator_dtype") == "float32"
        for key, value in options.items():
            parameters = known if key in known else secant
            assert value == parameters[key].default, key


@pytest.mark.parametrize("name", ["robust_sgd", "robust_adam"])
def test_robust_options_are_those_of_the_library(name):
    known = inspect.signature(ctagd_optax.robust_ct_agd).parameters
    backbone = specs.arm(name.removeprefix("robust_")).options
    options = specs.arm(name).options
    own = {key: value for key, value in options.items() if key not in backbone}
    assert own.pop("accumulator_dtype") == "float32"
    assert own == {key: known[key].default for key in own}
    assert known.keys() - own.keys() == {
        *("backbone", "steps_per_epoch", "schedule", "accumulator_dtype")
    }


def test_the_appendix_differs_by_its_clamp():
    for name in ("ct_sgd", "ct_adam"):
        ours, theirs = (specs.arm(x).options for x in (name, f"{name}_appendix"))
        changed = {key: theirs[key] for key in ours if ours[key] != theirs[key]}
        assert changed == {"curvature_min": 0.01, "curvature_max": 100.0}


def test_options_reach_the_optimizer():
    options = {"curvature_min": 0.1, "quantile": 0.5, "unobserved": "skip"}
    text = ",".join(f"{k}={v}" for k, v in options.items())
    expected = ctagd_optax.ct_sgd(
        0.05,
        steps_per_epoch=3,
        estimator=ctagd_optax.secant("algorithm", "uniform", 0.1, 7),
        **options,
    )
    arm = specs.arm(
        f"ct_sgd@0.05:{text},pairing=algorithm,weighting=uniform,noise_std=0.1,"
        "noise_seed=7"
    )
    chex.assert_trees_all_equal(walk(arm.make(3), 4), walk(expected, 4))


def test_no_correction_tunes_but_never_corrects():
    [*_, (_, state)] = walk(specs.arm("ct_sgd_no_correction@0.1").make(3), 4)
    assert state.gamma[0] > 0.5  # the curvature is between 1 and 4
    assert state.info.observed == 1
    assert state.info.relative_correction == 0
    with pytest.raises(ValueError, match="no option 'correction_rate'"):
        specs.arm("ct_sgd_no_correction:correction_rate=1")


def test_schedule_control_has_gamma_at_its_minimum_after_the_first_epoch():
    path = walk(specs.arm("schedule_control").make(2), 5)
    gammas = [float(state.gamma[0]) for _, state in path]
    np.testing.assert_allclose(gammas, [1, 1, 0.1, 0.1, 0.1, 0.1], rtol=1e-6)
    assert path[-1][1].info.relative_correction == 0


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("", [10, 7.75, 5.5, 3.25, 10, 7.75]),
        (",peak=20", [20, 15.25, 10.5, 5.75, 20, 15.25]),
    ],
    ids=["from ten", "from twenty"],
)
def test_sawtooth_control_falls_in_each_epoch(options, expected):
    opt = specs.arm(f"sawtooth_control:momentum=0,weight_decay=0{options}").make(4)
    params = jnp.zeros(())
    state, multipliers = opt.init(params), []
    for _ in range(6):
        update, state = opt.update(jnp.ones(()), state, params)
        multipliers.append(-float(update) / 1e-2)
    np.testing.assert_allclose(multipliers, expected, rtol=1e-6)


def test_average_is_the_mean_of_the_epochs_weights():
    arm = specs.arm("sgd@0.1+average")
    path = walk(arm.make(3), 5)
    plain = walk(specs.arm("sgd@0.1").make(3), 5)
    points = np.asarray([params for params, _ in path])
    np.testing.assert_array_equal(points, [params for params, _ in plain])
    for n, (params, state) in enumerate(path):
        start = (n - 1) // 3 * 3 + 1 if n else 0
        expected = points[start : n + 1].mean(0)
        np.testing.assert_allclose(arm.eval_params(state, params), expected, rtol=1e-6)


def test_average_needs_the_parameters():
    opt = transforms.averaged(optax.sgd(0.1), 3)
    with pytest.raises(ValueError, match="params must be given"):
        opt.update(START, opt.init(START))


def test_schedule_free_is_evaluated_at_its_own_average():
    path = walk(specs.arm("schedule_free").make(9), 3)
    averaged = walk(specs.arm("schedule_free+average").make(9), 3)
    evaluate = specs.arm("schedule_free").eval_params
    points = []
    for params, state in path[1:]:
        points.append(evaluate(state, params))
        np.testing.assert_array_equal(
            points[-1], optax.contrib.schedule_free_eval_params(state, params)
        )
    assert np.abs(points[-1] - path[-1][0]).max() > 1e-5
    np.testing.assert_allclose(
        averaged[-1][1].average, np.mean(points, axis=0), rtol=1e-6
    )


def test_lbfgs_solves_a_quadratic_in_one_update():
    [_, (params, _)] = walk(specs.arm("lbfgs:weight_decay=0.5").make(1), 1)
    expected = np.linalg.solve(CURVATURE + 0.5 * np.eye(2), SLOPE)
    np.testing.assert_allclose(params, expected, atol=1e-4)


def test_repeated_equals_a_loop_and_stops_early():
    inner = optax.sgd(0.1, momentum=0.5)
    opt = transforms.repeated(inner, 4)
    [_, (params, state)] = walk(opt, 1)
    [*_, (expected, expected_state)] = walk(optax.with_extra_args_support(inner), 4)
    np.testing.assert_allclose(params, expected, rtol=1e-6)
    np.testing.assert_allclose(
        jax.tree.leaves(state), jax.tree.leaves(expected_state), rtol=1e-5
    )

    # The first iteration of two goes to the minimum, exactly.
    counting = optax.chain(optax.sgd(1.0), optax.scale_by_schedule(lambda _: 1.0))
    opt, zero = transforms.repeated(counting, 2), jnp.zeros(2)

    def bowl(x):
        return 0.5 * jnp.sum(x**2)

    params, state = make_step(opt, bowl)(jnp.asarray(START), opt.init(zero))
    np.testing.assert_array_equal(params, zero)
    assert optax.tree.get(state, "count") == 1


def test_repeated_stops_when_nothing_moves():
    inner = optax.chain(optax.sgd(0.0), optax.scale_by_schedule(lambda _: 1.0))
    [_, (params, state)] = walk(transforms.repeated(inner, 9), 1)
    np.testing.assert_array_equal(params, START)
    assert optax.tree.get(state, "count") == 1


@pytest.mark.parametrize("missing", ["value", "value_fn"])
def test_lbfgs_says_what_it_needs(missing):
    opt = specs.arm("lbfgs").make(1)
    extra = {"value": 1.0, "value_fn": quadratic}
    del extra[missing]
    with pytest.raises(ValueError, match="value and value_fn must be given"):
        opt.update(START, opt.init(START), START, **extra)


def test_muon_takes_convolutions_as_matrices_and_leaves_vectors_to_adam():
    rng = np.random.default_rng(0)
    grads = {
        "kernel": rng.normal(size=(3, 3, 2, 4)).astype(np.float32),
        "bias": np.asarray([1e-3, 10.0], np.float32),
    }
    opt = specs.arm("muon:weight_decay=0").make(1)
    updates, _ = jax.jit(opt.update)(grads, opt.init(grads), grads)
    values = np.linalg.svd(updates["kernel"].reshape(18, 4), compute_uv=False) / 0.02
    assert ((values > 0.6) & (values < 1.3)).all()
    first = 1 + 0.9 * 0.1 / (1 - 0.9**2)  # of Adam with Nesterov's momentum
    np.testing.assert_allclose(updates["bias"], -1e-3 * first, rtol=1e-4)


@pytest.mark.parametrize(
    ("spec", "name"),
    [
        ("sgd", "sgd"),
        ("sgd@0.01", "sgd"),
        ("sgd@.10", "sgd@0.1"),
        ("sgd@1", "sgd@1"),
        ("sgd@1e-5+average", "sgd@1e-05+average"),
        ("sgd@1e+20+average", "sgd@1e+20+average"),
        ("adam+average:b1=0.5", "adam+average:b1=0.5"),
        ("sgd:momentum=0.9, learning_rate=0.1", "sgd@0.1:momentum=0.9"),
        (
            "ct_sgd:unobserved=skip,quantile=5e-1,pairing=algorithm,eps=0.001",
            "ct_sgd:pairing=algorithm,quantile=0.5,unobserved=skip",
        ),
        ("lbfgs:iterations=5,memory_size=10", "lbfgs:iterations=5"),
        ("muon:nesterov=false", "muon:nesterov=false"),
        ("robust(muon@0.02)", "robust(muon)"),
        ("robust(muon@.1:beta=0.9):target=3", "robust(muon@0.1:beta=0.9):target=3"),
        ("robust(sgd@.1)+average:target=3", "robust_sgd@0.1+average:target=3"),
        ("ct(adam:b1=0.8):eps=0.1", "ct_adam:b1=0.8,eps=0.1"),
        ("mechanize(sgd)", "mechanize(sgd)"),
    ],
)
def test_one_name_for_the_same_options(spec, name):
    arm = specs.arm(spec)
    again = specs.arm(arm.name)
    assert arm.name == again.name == name
    assert arm.options == again.options
    assert json.loads(json.dumps(arm.options)) == arm.options


def test_options_have_the_types_of_their_defaults():
    options = specs.arm("ct_sgd@1+average:noise_seed=3,quantile=0").options
    assert options["learning_rate"] == 1.0
    assert options["noise_seed"] == 3
    assert options["average"] is True
    assert isinstance(options["learning_rate"], float)
    assert isinstance(options["quantile"], float)
    assert isinstance(options["noise_seed"], int)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("sdg", "unknown optimizer 'sdg'; did you mean sgd.*? there are sgd, adam, lb"),
        ("zzzzz", "unknown optimizer 'zzzzz'; there are sgd, adam, lbfgs"),
        ("", "optimizer '' must be NAME"),
        ("robust", r"'robust' is a wrapper: name what is in it, such as robust\(adamw"),
        (
            "sgd(adam)",
            "sgd wraps nothing; what wraps is robust, robust_no_loss, ct, mechanize",
        ),
        ("robust(ct_sgd)", r"robust\(\.\.\.\) must have a bare optimizer in its"),
        ("ct(robust(sgd))", r"ct\(\.\.\.\) must have a bare optimizer in its"),
        ("ct(sgd+average)", r"ct\(\.\.\.\) must have a bare .* and \+average behind"),
        ("robust(sdg)", "unknown optimizer 'sdg'; did you mean sgd"),
        ("robust(muon)@1", r"rate must be in the brackets: robust\(muon@1\)"),
        ("robust(muon):targt=1", "robust has no option 'targt'; it has target, "),
        ("ct(adamw):estimator=x", "estimator must be one of secant, same_batch, hutch"),
        ("ct(sgd):every=5", "every is an option of same_batch and hutchinson"),
        ("robust(sgd:target=3)", "sgd has no option 'target'; it has learning_rate"),
        ("robust(sgd):weight_decay=0", "robust has no option 'weight_decay'; it has"),
        ("mechanize(schedule_free)", "mechanize cannot wrap schedule_free, which is"),
        ("robust_sgd:accumulator_dtype=bf16", "accumulator_dtype must be one of bfl"),
        ("sgd+mean", r"optimizer 'sgd\+mean' must be NAME.*sgd@0.1\+average"),
        ("sgd@", "option 'learning_rate=' of sgd must be KEY=VALUE"),
        ("sgd@fast", "learning_rate of sgd must be a finite number.*got 'fast'"),
        ("sgd@0.1+mean", r"learning_rate of sgd must be .* got '0.1\+mean'"),
        ("sgd@nan", "learning_rate of sgd must be a finite number .* got 'nan'"),
        ("sgd@-1", "learning_rate of sgd must be .* of at least 0, got '-1'"),
        ("sgd:", "option '' of sgd must be KEY=VALUE"),
        ("sgd:momentum", "option 'momentum' of sgd must be KEY=VALUE"),
        ("sgd:momentun=1", "sgd has no option 'momentun'; it has learning_rate, mo"),
        ("sgd@1:learning_rate=2", "learning_rate of sgd must be given once"),
        ("lbfgs:iterations=2.5", "iterations of lbfgs must be a whole number"),
        ("lbfgs:iterations=0", "'lbfgs:iterations=0': iterations must be at least 1"),
        ("muon:nesterov=1", "nesterov of muon must be true or false, got '1'"),
        ("ct_sgd:quantile=2", r"'ct_sgd:quantile=2': quantile must be in \[0, 1\]"),
        ("ct_sgd:pairing=x", "pairing must be one of 'equation', 'algorithm'; got 'x'"),
    ],
)
def test_bad_specs_are_told(spec, message):
    with pytest.raises(ValueError, match=message):
        specs.arm(spec)


def test_every_name_has_a_line():
    assert len(specs.descriptions()) == len(arms.ROWS) + len(arms.WRAPPERS)
    assert all(0 < len(line) < 80 for line in specs.descriptions().values())


def test_any_backbone_can_be_wrapped():
    bare = optax.with_extra_args_support(specs.arm("muon@0.1").make(3))
    expected = ctagd_optax.robust_ct_agd(bare, 3, target=3.0)
    path = walk(specs.arm("robust(muon@0.1):target=3").make(3), 4)
    chex.assert_trees_all_equal(path, walk(expected, 4))
    with_hutchinson = ctagd_optax.ct_agd(
        optax.lion(3e-4, weight_decay=5e-4),
        3,
        estimator=ctagd_optax.hutchinson(2),
        accumulator_dtype=jnp.float32,
    )
    path = walk(specs.arm("ct(lion):estimator=hutchinson,every=2").make(3), 4)
    chex.assert_trees_all_equal(path, walk(with_hutchinson, 4))


def test_the_inner_state_tells_what_to_evaluate():
    arm = specs.arm("robust(schedule_free)")
    params, state = walk(arm.make(9), 3)[-1]
    expected = optax.contrib.schedule_free_eval_params(state.backbone_state, params)
    np.testing.assert_array_equal(arm.eval_params(state, params), expected)


def test_nadamw_warms_up_and_ends_at_zero():
    opt = specs.arm("nadamw:weight_decay=0,warmup=0.1").make(5, 20)
    sizes, state = [], opt.init(jnp.zeros(()))
    for _ in range(20):
        update, state = opt.update(jnp.ones(()), state, jnp.zeros(()))
        sizes.append(-float(update))
    assert sizes[0] == 0
    assert np.argmax(sizes) == 2
    assert sizes[-1] < 0.01 * max(sizes)
    with pytest.raises(ValueError, match="total_steps must be given: nadamw needs"):
        specs.arm("nadamw").make(5)
    assert specs.arm("robust(nadamw)").uses_budget
    assert not specs.arm("robust(sgd)").uses_budget


def test_who_calls_the_loss():
    calling = [name for name in arms.ROWS if specs.arm(name).calls_loss]
    assert calling == ["lbfgs", "sophia"]
    assert specs.arm("ct(lion):estimator=same_batch").calls_loss
    assert not specs.arm("ct(lion)").calls_loss


@pytest.mark.parametrize(
    ("spec", "parts", "backbone", "control"),
    [
        ("sgd@0.1", ("sgd", ""), "sgd", None),
        ("muon", ("muon", ""), None, None),
        ("robust_sgd", ("sgd", "robust_ct_agd"), "sgd", "sawtooth_control"),
        ("robust(muon@1)", ("muon", "robust_ct_agd"), "muon", None),
        (
            "ct_adam_appendix:eps=1",
            ("adam", "ct_agd, appendix, eps=1"),
            *("adam", None),
        ),
        ("sawtooth_adam_control", ("sawtooth_adam_control", ""), "adam", None),
    ],
)
def test_what_an_arm_is_made_of(spec, parts, backbone, control):
    assert specs.parts(spec) == parts
    assert specs.backbone(spec) == backbone
    assert specs.control(spec) == control


def test_options_go_where_they_belong():
    name = specs.with_options("sgd", learning_rate=0.123456789)
    assert specs.arm(name).options["learning_rate"] == 0.123456789
    name = specs.with_options("robust(muon):pooling=tensor", learning_rate=1, target=3)
    assert name == "robust(muon@1):pooling=tensor,target=3"
    with pytest.raises(
        ValueError, match=r"'sgd@0.1' must not set learning_rate itself"
    ):
        specs.with_options("sgd@0.1", learning_rate=1)


def test_backbones_and_controls_are_arms():
    for name in arms.ROWS:
        for other in (specs.backbone(name), specs.control(name)):
            assert other is None or other in arms.ROWS


def test_an_arm_without_the_loss_never_hears_it():
    params = {"w": jnp.ones(3)}
    passed = {"value": 2.0, "value_fn": jnp.sum, "obj_fn": jnp.sum, "grad_fn": jnp.cos}
    heard = {}
    for name in ("robust(sgd)", "robust_no_loss(sgd)"):
        opt = specs.arm(name).make(5, 10)
        state = opt.init(params)
        for _ in range(5):
            _, state = opt.update(params, state, params, **passed)
        heard[name] = float(state.info.loss[0])
    assert heard == {"robust(sgd)": 2.0, "robust_no_loss(sgd)": 0.0}
