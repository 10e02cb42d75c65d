"""Compositions that are easy to get wrong."""

import logging

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import ctagd_optax
from tests import problems

pytestmark = pytest.mark.usefixtures("default_jax")


def test_injected_hyperparameters_compile_nothing_within_an_epoch(caplog):
    # Every update makes a new optimizer.
    opt = optax.inject_hyperparams(ctagd_optax.ct_sgd)(steps_per_epoch=100)
    params = problems.params()
    state = opt.init(params)
    for _ in range(2):
        _, state = opt.update(params, state, params)
    with jax.log_compiles(), caplog.at_level(logging.WARNING):
        _, state = opt.update(params, state, params)
    compiled = [r.getMessage() for r in caplog.records if "Compil" in r.getMessage()]
    assert compiled == []


def epochs_closed(opt, gradients, ends):
    """The epochs closed after each update, where ``epoch_end`` is as given."""
    params = problems.params()
    state = opt.init(params)
    update = jax.jit(opt.update)
    closed = []
    for end in ends:
        _, state = update(gradients, state, params, epoch_end=jnp.asarray(end))
        closed.append(int(optax.tree.get(state, "epoch")))
    return closed


def test_multi_steps_loses_the_end_of_an_epoch_between_its_updates():
    opt = ctagd_optax.robust_ct_agd(optax.sgd(0.02), 100)
    opt = optax.MultiSteps(opt, every_k_schedule=2)
    ends = [True, False, False, True]
    assert epochs_closed(opt, problems.params(), ends) == [0, 0, 0, 1]


@pytest.mark.parametrize(("inside", "closed"), [(False, 0), (True, 1)])
def test_apply_if_finite_around_it_loses_the_end_of_an_epoch_at_a_nan(inside, closed):
    def guard(opt, here):
        return optax.apply_if_finite(opt, 5) if here else opt

    backbone = guard(optax.sgd(0.02), inside)
    opt = guard(ctagd_optax.robust_ct_agd(backbone, 100), not inside)
    nan = jax.tree.map(lambda p: p * np.nan, problems.params())
    assert epochs_closed(opt, nan, [True]) == [closed]


@pytest.mark.parametrize("kind", [int, complex, bool, float])
@pytest.mark.parametrize(
    "method", [ctagd_optax.ct_agd, ctagd_optax.robust_ct_agd], ids=["ct", "robust"]
)
def test_gradients_that_are_not_real_arrays_are_refused(method, kind):
    opt = method(optax.sgd(0.1), 5)
    params = {"x": jnp.ones(())}
    gradient = 1.0 if kind is float else jnp.ones((), kind)
    with pytest.raises(TypeError, match=r"gradients must be .*, got .* at \['x'\]"):
        opt.update({"x": gradient}, opt.init(params), params)
