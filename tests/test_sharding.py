"""Parameters and state over eight devices."""

import collections
import math
import re

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

import ctagd_optax
from ctagd_optax import _sums

SPECS = {"w": P("x", None), "b": P("x"), "scalar": P()}


def loss(params):
    return sum(jnp.sum(1.5 * p**2) for p in jax.tree.leaves(params))


def quadratic_step(opt):
    def step(params, state):
        grads = jax.grad(loss)(params)
        updates, state = opt.update(
            grads, state, params, grad_fn=jax.grad(loss), obj_fn=loss
        )
        return optax.apply_updates(params, updates), state

    return step


def make_params():
    rng = np.random.default_rng(0)
    return {
        "w": jnp.asarray(rng.standard_normal((64, 16)), jnp.float32),
        "b": jnp.asarray(rng.standard_normal(32), jnp.float32),
        "scalar": jnp.float32(2.0),
    }


def literal(**options):
    return ctagd_optax.ct_agd(
        optax.sgd(0.02, momentum=0.5), 4, curvature_min=0.5, **options
    )


def robust():
    backbone = optax.sgd(0.001, momentum=0.5)
    return ctagd_optax.robust_ct_agd(backbone, 4, multiplier_max=20.0)


@pytest.mark.parametrize(
    ("axis_type", "opt"),
    [
        (AxisType.Auto, literal()),
        (AxisType.Explicit, literal(unobserved="skip")),
        (
            AxisType.Auto,
            literal(unobserved="skip", estimator=ctagd_optax.same_batch(every=2)),
        ),
        (AxisType.Explicit, literal(estimator=ctagd_optax.hutchinson(every=2))),
        (AxisType.Auto, robust()),
        (AxisType.Explicit, robust()),
    ],
    ids=["auto", "explicit", "same_batch", "hutchinson", "auto-robust", "robust"],
)
def test_sharded_like_the_parameters(axis_type, opt):
    params = make_params()
    mesh = jax.make_mesh((8,), ("x",), axis_types=(axis_type,))
    shardings = {k: NamedSharding(mesh, spec) for k, spec in SPECS.items()}
    replicated = NamedSharding(mesh, P())
    state_shardings = optax.tree.map_params(
        opt,
        lambda _, sharding: sharding,
        opt.init(params),
        shardings,
        transform_non_params=lambda _: replicated,
    )
    alone, alone_state = params, opt.init(params)
    plain = jax.jit(quadratic_step(opt))
    with jax.set_mesh(mesh):
        spread = jax.device_put(params, shardings)
        state = jax.device_put(opt.init(params), state_shardings)
        step = jax.jit(quadratic_step(opt), out_shardings=(shardings, state_shardings))
        step = step.lower(spread, state).compile()
        hlo = step.as_text()
        for _ in range(9):
            spread, state = step(spread, state)
            alone, alone_state = plain(alone, alone_state)
    assert "all-gather" not in hlo
    assert (state.gamma != 1).all()
    assert spread["w"].sharding.spec == P("x", None)
    if hasattr(state.memory, "own_sum"):  # its terms cancel, their rounding does not
        sums = [s.memory.own_sum for s in (state, alone_state)]
        chex.assert_trees_all_close(*sums, atol=2e-6)
        state, alone_state = (
            s._replace(memory=s.memory._replace(own_sum=0))
            for s in (state, alone_state)
        )
    chex.assert_trees_all_close(
        (spread, state), (alone, alone_state), rtol=1e-5, atol=1e-7
    )


def test_init_follows_the_parameters_sharding():
    mesh = jax.make_mesh((8,), ("x",), axis_types=(AxisType.Explicit,))
    opt = ctagd_optax.ct_sgd(steps_per_epoch=4)
    with jax.set_mesh(mesh):
        params = jax.device_put(
            make_params(), {k: NamedSharding(mesh, s) for k, s in SPECS.items()}
        )
        state = jax.jit(opt.init)(params)
    assert state.evidence.gradient_sum["w"].sharding.spec == P("x", None)
    assert state.memory.previous_params["b"].sharding.spec == P("x")


def collectives(hlo):
    """How many numbers each kind of collective moves in all, and the most at once."""
    total, most = collections.Counter(), collections.Counter()
    kinds = "all-gather|all-reduce|all-to-all|collective-permute|reduce-scatter"
    for shape, kind in re.findall(rf"= (.*?) ({kinds})(?:-start)?\(", hlo):
        sizes = [
            math.prod(int(n) for n in dimensions.split(",") if n)
            for dimensions in re.findall(r"\w+\[([\d,]*)\]", shape)
        ]
        total[kind] += sum(sizes)
        most[kind] = max(most[kind], *sizes)
    return total, most


LAYOUTS = {
    "data": {"w": P(), "b": P(), "scalar": P()},
    "fsdp": {"w": P("x"), "b": P("x"), "scalar": P()},
    "tensor": {"w": P(None, "y"), "b": P("y"), "scalar": P()},
    "both": {"w": P("x", "y"), "b": P(("x", "y")), "scalar": P()},
}


@pytest.mark.parametrize(
    ("axis_type", "layout"),
    [*((AxisType.Auto, layout) for layout in LAYOUTS), (AxisType.Explicit, "both")],
    ids=str,
)
@pytest.mark.parametrize("opt", [literal(), robust()], ids=["literal", "robust"])
def test_collectives_are_a_few_scalars_a_tensor(opt, axis_type, layout):
    mesh = jax.make_mesh((4, 2), ("x", "y"), axis_types=(axis_type,) * 2)
    shardings = {k: NamedSharding(mesh, s) for k, s in LAYOUTS[layout].items()}
    with jax.set_mesh(mesh):
        params = jax.device_put(make_params(), shardings)
        places = optax.tree.map_params(
            opt,
            lambda _, sharding: sharding,
            jax.eval_shape(opt.init, params),
            shardings,
            transform_non_params=lambda _: NamedSharding(mesh, P()),
        )
        state = jax.jit(opt.init, out_shardings=places)(params)
        for x, place in zip(*map(jax.tree.leaves, (state, places)), strict=True):
            assert x.sharding.is_equivalent_to(place, x.ndim)

        def step(grads, state, params):
            updates, state = opt.update(grads, state, params)
            return optax.apply_updates(params, updates), state

        # The end of the epoch is in the same program.
        program = jax.jit(step, donate_argnums=(1, 2)).lower(params, state, params)
        total, most = collectives(program.compile().as_text())
    if layout == "data":
        assert not total
        return
    assert set(total) == {"all-reduce"}
    assert most["all-reduce"] <= 2  # each is a scalar, or two of them in a vector
    assert total["all-reduce"] <= 9 * len(params)


@pytest.mark.parametrize("opt", [literal(), robust()], ids=["literal", "robust"])
def test_gradients_of_a_part_of_the_batch_on_each_device(opt, default_jax):
    mesh = jax.make_mesh((8,), ("data",), axis_types=(AxisType.Auto,))
    batch = jax.random.normal(jax.random.key(0), (64, 16))

    def batch_loss(params, batch):
        return jnp.mean((batch @ params["w"].T) ** 2) + loss(params)

    def device_step(params, state, batch):
        def mean_loss(params):  # over all devices, so its gradients are, too
            return jax.lax.pmean(batch_loss(params, batch), "data")

        updates, state = opt.update(jax.grad(mean_loss)(params), state, params)
        return optax.apply_updates(params, updates), state

    def whole_step(params, state, batch):
        grads = jax.grad(batch_loss)(params, batch)
        updates, state = opt.update(grads, state, params)
        return optax.apply_updates(params, updates), state

    spread = jax.jit(
        jax.shard_map(
            device_step,
            mesh=mesh,
            in_specs=(P(), P(), P("data")),
            out_specs=(P(), P()),
        )
    )
    results = []
    for step in (spread, jax.jit(whole_step)):
        params, state = make_params(), opt.init(make_params())
        for _ in range(9):
            params, state = step(params, state, batch)
        results.append((params, state.gamma))
    assert (results[0][1] != 1).all()
    chex.assert_trees_all_close(*results, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("opt", [literal(), robust()], ids=["literal", "robust"])
def test_a_model_of_its_own_on_each_device(opt, default_jax):
    def step(carry, _):
        params, state = carry
        updates, state = opt.update(jax.grad(loss)(params), state, params)
        return (optax.apply_updates(params, updates), state), None

    def train(params):
        start = params, opt.init(params)
        (params, state), _ = jax.lax.scan(step, start, length=9)
        return params, state.gamma

    # A device has two rows of a tensor, and its own gamma.
    params = {"w": make_params()["w"]}
    mesh = jax.make_mesh((8,), ("data",), axis_types=(AxisType.Auto,))
    spread = jax.shard_map(train, mesh=mesh, in_specs=P("data"), out_specs=P("data"))
    found, gamma = jax.jit(spread)(params)
    rows = len(params["w"]) // 8
    for n in range(8):
        mine = jax.tree.map(lambda x, n=n: x[n * rows : (n + 1) * rows], params)
        expected, alone = jax.jit(train)(mine)
        np.testing.assert_allclose(gamma[n], alone[0], rtol=1e-4)
        np.testing.assert_allclose(
            found["w"][n * rows : (n + 1) * rows], expected["w"], rtol=1e-4, atol=1e-6
        )


DRAWS = {
    "same_batch": lambda: literal(estimator=ctagd_optax.same_batch()),
    "hutchinson": lambda: literal(estimator=ctagd_optax.hutchinson()),
    "noise": lambda: literal(estimator=ctagd_optax.secant(noise_std=0.1)),
    "sums": lambda: literal(accumulator_dtype=jnp.bfloat16),
    "robust": robust,
}


@pytest.mark.parametrize(
    ("name", "axis_type"),
    [
        *((name, AxisType.Explicit) for name in DRAWS),
        ("hutchinson", AxisType.Auto),
        ("sums", AxisType.Auto),
    ],
    ids=str,
)
def test_no_device_makes_a_whole_tensor(name, axis_type, default_jax):
    mesh = jax.make_mesh((4, 2), ("x", "y"), axis_types=(axis_type,) * 2)
    opt, place = DRAWS[name](), NamedSharding(mesh, P("y", "x"))
    params = jax.ShapeDtypeStruct((48, 112), jnp.float32, sharding=place)
    with jax.set_mesh(mesh):
        places = optax.tree.map_params(
            opt,
            lambda _, sharding: sharding,
            jax.eval_shape(opt.init, params),
            place,
            transform_non_params=lambda _: NamedSharding(mesh, P()),
        )
        state = jax.tree.map(
            lambda x, place: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=place),
            jax.eval_shape(opt.init, params),
            places,
        )
        hlo = jax.jit(quadratic_step(opt)).lower(params, state).compile().as_text()
    sizes = {
        math.prod(int(n) for n in shape.split(","))
        for shape in re.findall(r"\w\[([\d,]+)\]", hlo)
    }
    assert 24 * 28 in sizes
    assert max(sizes) <= 2 * 24 * 28  # two words of random bits


@pytest.mark.parametrize("axis_type", [AxisType.Explicit, AxisType.Auto], ids=str)
def test_sums_of_16_bits_are_rounded_alike_on_many_devices(axis_type):
    rng = np.random.default_rng(0)
    total = _sums.accumulators(jnp.zeros((16, 8)), jnp.bfloat16)
    term = jnp.asarray(rng.standard_normal((16, 8)), jnp.float32)
    alone = jax.jit(_sums.accumulate)(total, term, jnp.int32(3))
    mesh = jax.make_mesh((4, 2), ("x", "y"), axis_types=(axis_type,) * 2)
    with jax.set_mesh(mesh):
        place = NamedSharding(mesh, P("y", "x"))
        spread = jax.device_put((total, term), place)
        found = jax.jit(_sums.accumulate)(*spread, jnp.int32(3))
    assert all(x.sharding.is_equivalent_to(place, 2) for x in found)
    chex.assert_trees_all_equal(*jax.tree.map(np.asarray, (found, alone)))
