"""Every switch of CT-AGD against the plain NumPy reference, at every step."""

import itertools

import chex
import hypothesis
import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import ctagd_optax
from ctagd_optax._estimators.secant import quotient_noise
from tests import reference

SWITCHES = {
    "annealing": ("linear", "exponential", "none"),
    "pairing": ("equation", "algorithm"),
    "weighting": ("linear", "uniform"),
    "correction_gradient": ("average", "last"),
    "unobserved": ("clamp", "skip"),
    "noise_std": (0.0, 0.3),
}
COMBINATIONS = [
    dict(zip(SWITCHES, values, strict=True))
    for values in itertools.product(*SWITCHES.values())
    # Annealing knows nothing of the quotients.
    if values[0] == "linear" or values[1:3] + values[5:] == ("equation", "linear", 0)
]
# A 16-bit update is rounded once from a float32 result.
TOLERANCE = {"float64": 2e-6, "float32": 2e-5, "bfloat16": 1e-2, "float16": 2e-3}

shapes = st.sampled_from([(), (0,), (7,), (2, 1, 4)])
leaves = st.tuples(shapes, st.sampled_from(list(TOLERANCE)))
trees = st.recursive(
    leaves | st.none(),
    lambda inner: (
        st.dictionaries(st.sampled_from("abc"), inner, max_size=2)
        | st.lists(inner, max_size=2).map(lambda items: {"list": items})
        | st.tuples(inner, inner).map(lambda pair: {"pair": pair})
    ),
    max_leaves=4,
)


@st.composite
def problems(draw):
    """A tree of leaf specifications, and the numbers of a run."""
    return {
        "tree": {"root": draw(trees), "always": draw(leaves)},
        "seed": draw(st.integers(0, 2**32 - 1)),
        "steps_per_epoch": draw(st.sampled_from([3, 1, 2, 5])),
        "momentum": draw(st.sampled_from([0.0, 0.85])),
        "options": {
            "correction_rate": draw(st.sampled_from([0.0, 0.05, 0.5])),
            "quantile": draw(st.sampled_from([0.0, 0.1, 0.5, 1.0])),
            "eps": draw(st.sampled_from([0.0, 1e-3, 3e-2])),
            **draw(
                st.sampled_from(
                    [
                        {"curvature_min": 1e-2, "curvature_max": 1e2},
                        {"curvature_min": 1e-1, "curvature_max": 1e1},
                        {"curvature_min": 0.5, "curvature_max": 0.5},
                    ]
                )
            ),
        },
    }


def is_spec(node):
    return isinstance(node, tuple) and isinstance(node[-1], str)


def run(opt, params, gradient, steps, **update_args):
    """The points, gradients, updates and states of a run."""
    state = opt.init(params)
    update = opt.update
    history = []
    for n in range(steps):
        grads = gradient(params, n)
        extra = {name: values[n] for name, values in update_args.items()}
        updates, state = update(grads, state, params, **extra)
        history.append((params, grads, updates, state))
        params = optax.apply_updates(params, updates)
    return history


def noisy_quadratic(rng, params, steps):
    """Gradients a·θ + noise, of the parameters' dtypes.

    They are bounded, as many of the settings make a run diverge.
    """
    curvatures = jax.tree.map(lambda p: rng.uniform(-0.5, 8.0, p.shape), params)
    noises = [
        jax.tree.map(lambda p: rng.standard_normal(p.shape), params)
        for _ in range(steps)
    ]

    def gradient(params, n):
        return jax.tree.map(
            lambda p, a, e: jnp.asarray(
                np.clip(a * np.asarray(p, np.float64) + e, -100, 100), p.dtype
            ),
            params,
            curvatures,
            noises[n],
        )

    return gradient


def compare(history, backbone, steps_per_epoch, switches, options, closing=None):
    """Replays the run of each tensor with the reference, and compares every step."""
    columns = [
        [jax.tree.leaves(part) for part in step[:3]] for step in history
    ]  # [n][params, gradients, updates][tensor]
    states = [step[3] for step in history]
    for i, tensor in enumerate(columns[0][0]):

        def noise(k, t, i=i, tensor=tensor):
            dtype = jnp.float64 if tensor.dtype == jnp.float64 else jnp.float32
            step = ctagd_optax.Step(k, t, *[None] * 8)
            like = jax.ShapeDtypeStruct(tensor.shape, dtype)
            return switches["noise_std"] * np.asarray(quotient_noise(0, step, i, like))

        kwargs = {k: v for k, v in switches.items() if k != "noise_std"}
        updates, gammas, epochs = reference.ct_agd(
            [row[0][i] for row in columns],
            [row[1][i] for row in columns],
            backbone(),
            steps_per_epoch,
            closing=closing,
            noise=noise if switches["noise_std"] else None,
            **kwargs,
            **options,
        )
        tolerance = TOLERANCE[tensor.dtype.name]
        # The algorithm's quotient divides by an update that was rounded to the dtype.
        figure_tolerance = max(
            tolerance if switches["pairing"] == "algorithm" else 0.0, 1e-4
        )
        for n, (row, state) in enumerate(zip(columns, states, strict=True)):
            actual = np.asarray(row[2][i], np.float64)
            scale = np.abs(updates[n]).max(initial=1e-12)
            np.testing.assert_allclose(
                actual,
                updates[n],
                rtol=tolerance,
                atol=tolerance * scale,
                err_msg=f"{n}",
            )
            np.testing.assert_allclose(state.gamma[i], gammas[n], rtol=figure_tolerance)
            assert row[2][i].dtype == tensor.dtype
        for name, value in (epochs[-1] if epochs else {}).items():
            if name in states[-1].info._fields:
                figure = getattr(states[-1].info, name)[i]
                np.testing.assert_allclose(
                    figure, value, rtol=figure_tolerance, err_msg=name
                )


def check(switches, problem):
    """Runs CT-AGD on a problem and compares every step with the reference."""
    rng = np.random.default_rng(problem["seed"])
    params = jax.tree.map(
        lambda spec: jnp.asarray(rng.standard_normal(spec[0]), spec[1]),
        problem["tree"],
        is_leaf=is_spec,
    )
    # Momentum kept in 16 bits is rounded at every step, so it would drift away.
    exact = all(p.dtype in (jnp.float32, jnp.float64) for p in jax.tree.leaves(params))
    momentum = problem["momentum"] if exact else 0.0
    steps_per_epoch = problem["steps_per_epoch"]
    opt = ctagd_optax.ct_agd(
        optax.sgd(0.05, momentum=momentum),
        steps_per_epoch,
        annealing=switches["annealing"],
        correction_gradient=switches["correction_gradient"],
        unobserved=switches["unobserved"],
        estimator=ctagd_optax.secant(
            switches["pairing"], switches["weighting"], switches["noise_std"]
        ),
        **problem["options"],
    )
    steps = 3 * steps_per_epoch
    opt = opt._replace(update=jax.jit(opt.update))
    history = run(opt, params, noisy_quadratic(rng, params, steps), steps)
    compare(
        history,
        lambda: reference.sgd(0.05, momentum),
        steps_per_epoch,
        switches,
        problem["options"],
    )


@pytest.mark.parametrize(
    "switches", COMBINATIONS, ids=lambda s: "-".join(map(str, s.values()))
)
def test_every_combination_of_switches(switches):
    tree = {
        "matrix": ((3, 2), "float32"),
        "nested": ({"scalar": ((), "float32"), "none": None}, []),
    }
    problem = {"tree": tree, "seed": 0, "steps_per_epoch": 4, "momentum": 0.85}
    check(switches, {**problem, "options": {}})


@hypothesis.given(switches=st.sampled_from(COMBINATIONS), problem=problems())
@hypothesis.settings(max_examples=8, phases=[hypothesis.Phase.generate])
def test_random_trees_and_numbers(switches, problem):
    check(switches, problem)


DEFAULTS = {name: values[0] for name, values in SWITCHES.items()}


@pytest.mark.parametrize(
    ("preset", "backbone"),
    [
        (ctagd_optax.ct_sgd, lambda: reference.sgd(1e-2, 0.85, 5e-4)),
        (ctagd_optax.ct_adam, lambda: reference.adam(1e-3, weight_decay=5e-4)),
    ],
    ids=["ct_sgd", "ct_adam"],
)
def test_presets_are_the_papers_set_ups(preset, backbone):
    rng = np.random.default_rng(0)
    params = {"w": jnp.asarray(rng.standard_normal((20, 3))), "b": jnp.zeros(3)}
    gradient = noisy_quadratic(rng, params, 40)
    with jax.numpy_dtype_promotion("standard"):  # optax.adam needs it
        history = run(preset(steps_per_epoch=10), params, gradient, 40)
    compare(history, backbone, 10, DEFAULTS, {})


@pytest.mark.parametrize("given", [True, False], ids=["epoch_end", "counter"])
def test_epochs_that_end_early_and_late(given):
    rng = np.random.default_rng(1)
    params = {"w": jnp.asarray(rng.standard_normal(30))}
    closing = [n in (2, 9, 13) for n in range(16)] if given else None
    opt = ctagd_optax.ct_agd(optax.sgd(0.05), steps_per_epoch=5)
    extra = {"epoch_end": closing} if given else {}
    history = run(opt, params, noisy_quadratic(rng, params, 16), 16, **extra)
    compare(history, lambda: reference.sgd(0.05), 5, DEFAULTS, {}, closing)
    epochs = [int(state.epoch) for *_, state in history]
    assert epochs == np.cumsum(closing or [n % 5 == 4 for n in range(16)]).tolist()


def test_non_finite_gradients_are_left_out_of_their_tensor():
    rng = np.random.default_rng(2)
    params = {"bad": jnp.asarray(rng.standard_normal(30)), "good": jnp.ones(4)}
    clean = noisy_quadratic(rng, params, 16)
    poison = {3: jnp.nan, 4: jnp.inf, 8: -jnp.inf, 15: jnp.nan}

    def gradient(params, n):
        grads = clean(params, n)
        if n in poison:
            grads["bad"] = grads["bad"].at[n].set(poison[n])
        return grads

    # The backbone skips the bad steps, as a careful user's would.
    skip = optax.apply_if_finite(optax.sgd(0.05), max_consecutive_errors=10)
    opt = ctagd_optax.ct_agd(skip, steps_per_epoch=8)
    history = run(opt, params, gradient, 16)

    chex.assert_tree_all_finite([step[2] for step in history])
    *_, state = history[-1]
    np.testing.assert_array_equal(state.info.left_out, [2, 0])
    # Neither tensor moves in a bad step, so replay those with a backbone that rests.
    for i, name in enumerate(params):
        steps = iter(range(16))

        def rest(theta, g, steps=steps):
            return np.zeros_like(g) if next(steps) in poison else -0.05 * g

        updates, gammas, _ = reference.ct_agd(
            [step[0][name] for step in history],
            [step[1][name] for step in history],
            rest,
            8,
        )
        for n, step in enumerate(history):
            np.testing.assert_allclose(step[2][name], updates[n], rtol=1e-5, atol=1e-9)
            np.testing.assert_allclose(step[3].gamma[i], gammas[n], rtol=1e-5)


def test_correction_rate_schedule_is_called_with_the_epoch():
    rng = np.random.default_rng(3)
    params = jnp.asarray(rng.standard_normal(12))
    gradient = noisy_quadratic(rng, params, 12)
    opt = ctagd_optax.ct_agd(
        optax.sgd(0.05), 4, correction_rate=lambda k: jnp.asarray([0.5, 0.05, 0.0])[k]
    )
    history = run(opt, params, gradient, 12)
    options = {"correction_rate": lambda k: [0.5, 0.05, 0.0][k]}
    compare(history, lambda: reference.sgd(0.05), 4, DEFAULTS, options)
