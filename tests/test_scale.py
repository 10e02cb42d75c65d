"""What a step costs XLA: kernels, copies and temporary memory, on one device."""

import re

import jax
import jax.numpy as jnp
import optax
import pytest

import ctagd_optax
from ctagd_optax import _trees
from tests import test_reference, test_robust

pytestmark = pytest.mark.usefixtures("default_jax", "one_device")


@pytest.fixture
def one_device(monkeypatch):
    """As most users have it; the tests run with eight."""
    monkeypatch.setattr(_trees, "_one_device", lambda x: True)


def backbone():
    return optax.sgd(0.1, momentum=0.9)


METHODS = {
    "literal": lambda: ctagd_optax.ct_agd(backbone(), 5),
    "robust": lambda: ctagd_optax.robust_ct_agd(backbone(), 5),
}
methods = pytest.mark.parametrize("method", METHODS)


def program(opt, tensors, shape):
    def step(params, state, grads):
        updates, state = opt.update(grads, state, params)
        return optax.apply_updates(params, updates), state

    params = {
        f"w{n:03d}": jax.ShapeDtypeStruct(shape, jnp.float32) for n in range(tensors)
    }
    state = jax.eval_shape(opt.init, params)
    step = jax.jit(step, donate_argnums=(0, 1))
    return step.lower(params, state, params).compile()


def kernels(hlo):
    """All kernels, and how many differ, which is what XLA has to compile."""
    called = re.findall(r" fusion\(.*?calls=%([\w.\-]+)", hlo)
    bodies = dict(re.findall(r"^%([\w.\-]+) \(.*?\{\n(.*?)^\}", hlo, re.M | re.S))
    plain = {
        re.sub(r"%[\w.\-]+|, metadata=\{.*?\}", "", bodies[name]) for name in called
    }
    return len(called), len(plain)


@methods
@pytest.mark.parametrize("tensors", [1, 20])
def test_temporary_memory(method, tensors):
    shape = (200, 500)
    found = program(METHODS[method](), tensors, shape).memory_analysis()
    bytes_each = found.temp_size_in_bytes / (tensors * 200 * 500)
    assert bytes_each < {"literal": 4.5, "robust": 0.5}[method]


@methods
def test_nothing_large_is_copied(method):
    hlo = program(METHODS[method](), 3, (200, 500)).as_text()
    assert not re.findall(r"f32\[200,500\]\S* copy\(", hlo)
    assert hlo.count(" conditional(") == 1  # the epoch's end, once


@methods
def test_kernels_of_equal_tensors_are_equal(method):
    few, more = (
        kernels(program(METHODS[method](), tensors, (4, 8)).as_text())
        for tensors in (8, 40)
    )
    each = (more[0] - few[0]) / 32
    assert each <= {"literal": 14, "robust": 5}[method]
    # One more for a group of 32, here and there.
    assert more[1] - few[1] <= 8


@pytest.mark.parametrize("pooling", ["all", "tensor"])
def test_robust_is_the_references_on_one_device(pooling, strict_jax):
    with jax.enable_x64(True), jax.numpy_dtype_promotion("strict"):
        test_robust.test_every_step_is_the_references({"pooling": pooling})


@pytest.mark.parametrize("unobserved", ["clamp", "skip"])
def test_literal_is_the_references_on_one_device(unobserved, strict_jax):
    tree = {"a": ((3, 2), "float32"), "b": ((3, 2), "float32")}
    problem = {"tree": tree, "seed": 0, "steps_per_epoch": 4, "momentum": 0.85}
    switches = {**test_reference.DEFAULTS, "unobserved": unobserved}
    with jax.enable_x64(True), jax.numpy_dtype_promotion("strict"):
        test_reference.check(switches, {**problem, "options": {}})
