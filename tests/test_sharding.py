"""Parameters and state over eight devices."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

import ctagd_optax

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
    return ctagd_optax.robust_ct_agd(optax.sgd(0.001, momentum=0.5), 4)


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
