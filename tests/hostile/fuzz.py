"""Random trees, options and gradients, some of them wild; what must always hold.

``python -m tests.hostile.fuzz --cases 10000`` runs many, and prints the seed of each
case that fails; ``--first SEED --cases 1`` runs one again.
"""

import argparse
import os
import sys
import time
from collections.abc import Iterable
from typing import Any, NamedTuple

if __name__ == "__main__":  # most of the time goes into compiling
    os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0")

import jax
import jax.numpy as jnp
import numpy as np
import optax

import ctagd_optax

STEPS = 13
SHARED = 40  # cases in a row that share what XLA compiles
SHAPES = (), (0,), (1,), (5,), (3, 4), (2, 0, 3), (2, 3, 4)
DTYPES = "float32", "bfloat16", "float16"
ESTIMATORS = {
    "secant": ctagd_optax.secant,
    "algorithm": lambda: ctagd_optax.secant("algorithm"),
    "uniform": lambda: ctagd_optax.secant(weighting="uniform"),
    "noise": lambda: ctagd_optax.secant(noise_std=0.1),
    "same_batch": lambda: ctagd_optax.same_batch(every=2),
    "hutchinson": lambda: ctagd_optax.hutchinson(every=2),
}
BACKBONES = {
    "sgd": lambda: optax.sgd(0.1),
    "momentum": lambda: optax.sgd(0.01, momentum=0.9),
    "guarded": lambda: optax.apply_if_finite(optax.sgd(0.1), 100),
    "adam": lambda: optax.adam(0.01),
}


class Setting(NamedTuple):
    """What a program is compiled for."""

    tree: tuple[tuple[tuple[int, ...], str], ...]
    backbone: str
    estimator: str | None  # None is the robust method
    options: tuple[tuple[str, Any], ...]


class Case(NamedTuple):
    """The numbers of a run."""

    params: list[np.ndarray]
    curvatures: list[np.ndarray]
    gradients: list[np.ndarray]  # at each step; those of the loss are added
    steps_per_epoch: int
    closing: np.ndarray  # at each step, whether an epoch ends early


def make_setting(seed: int) -> Setting:
    """A random tree and random options."""
    rng = np.random.default_rng([seed, 1])

    def pick(choices):
        return choices[rng.integers(len(choices))]

    tree = tuple((pick(SHAPES), pick(DTYPES)) for _ in range(rng.integers(1, 5)))
    robust = rng.random() < 0.4
    options = {"accumulator_dtype": pick([None, None, "bfloat16", "float32"])}
    if robust:
        options["pooling"] = pick(["all", "tensor"])
    else:
        options["unobserved"] = pick(["clamp", "skip"])
        options["correction_gradient"] = pick(["average", "last"])
        options["annealing"] = pick(["linear", "exponential", "none"])
        options["curvature_min"] = pick([0.1, 1e-2, 1e-30])
        options["eps"] = pick([1e-3, 0.0])
    estimator = None if robust else pick(list(ESTIMATORS))
    return Setting(tree, pick(list(BACKBONES)), estimator, tuple(options.items()))


def make_case(setting: Setting, seed: int) -> Case:
    """Random numbers, of which some are zero, tiny, huge, or not finite."""
    rng = np.random.default_rng([seed, 2])
    wild = rng.choice([0.0, 0.0, 0.1, 0.5])

    def gradient(shape, dtype):
        scale = 10.0 ** rng.uniform(-4, 2)
        g = scale * rng.standard_normal((STEPS, *shape))
        largest = 6e4 if dtype == "float16" else 1e30
        odd = [0.0, -0.0, 1e-7, 1e-38, 1e-42, largest, -largest, np.nan, np.inf]
        g[rng.random(STEPS) < wild] *= rng.choice(odd)
        here = rng.random(g.shape) < 0.1 * wild
        g[here] = rng.choice(odd, g.shape)[here]
        with np.errstate(over="ignore"):  # float16 makes some of them infinite
            return np.asarray(jnp.asarray(g, dtype))

    def numbers(shape, dtype):
        return np.asarray(jnp.asarray(rng.standard_normal(shape), dtype))

    return Case(
        params=[numbers(*leaf) for leaf in setting.tree],
        curvatures=[numbers(*leaf) for leaf in setting.tree],
        gradients=[gradient(*leaf) for leaf in setting.tree],
        steps_per_epoch=int(rng.integers(1, 7)),
        closing=rng.random(STEPS) < rng.choice([0.0, 0.3]),
    )


def make_optimizer(setting: Setting, steps_per_epoch: Any):
    """The optimizer of a setting."""
    backbone, options = BACKBONES[setting.backbone](), dict(setting.options)
    if setting.estimator is None:
        return ctagd_optax.robust_ct_agd(backbone, steps_per_epoch, **options)
    estimator = ESTIMATORS[setting.estimator]()
    return ctagd_optax.ct_agd(backbone, steps_per_epoch, estimator=estimator, **options)


def make_program(setting: Setting):
    """A jitted run of a case, which returns all steps."""

    @jax.jit
    def program(case: Case):
        opt = make_optimizer(setting, case.steps_per_epoch)

        def step(carry, now):
            params, state = carry
            given, closing = now

            def loss(x):  # bounded, as many a setting makes a run diverge
                tensors = zip(x, case.curvatures, given, strict=True)
                return sum(
                    jnp.sum(jnp.sin(p * a) + p * g) for p, a, g in tensors
                ).astype(jnp.float32)

            value, grads = jax.value_and_grad(loss)(params)
            end = closing | (state.epoch_step >= case.steps_per_epoch - 1)
            updates, state = opt.update(
                grads,
                state,
                params,
                epoch_end=end,
                value=value,
                grad_fn=jax.grad(loss),
                obj_fn=loss,
            )
            return (optax.apply_updates(params, updates), state), (
                grads,
                updates,
                state,
            )

        carry = case.params, opt.init(case.params)
        return jax.lax.scan(step, carry, (case.gradients, case.closing))[1]

    return program


def failures(setting: Setting, case: Case, program) -> list[str]:
    """What does not hold of a run."""
    grads, updates, state = jax.tree.map(np.asarray, program(case))
    found = []

    def check(name, holds):
        if not holds:
            found.append(name)

    def nan(tree):
        return any(np.isnan(np.asarray(x, np.float64)).any() for x in leaves(tree))

    leaves = jax.tree.leaves
    finite = all(np.isfinite(np.asarray(g, np.float32)).all() for g in grads)
    calm = finite and all(
        (np.abs(np.asarray(g, np.float64)) < 1e10).all() for g in grads
    )
    for name, value in state.info._asdict().items():
        check(f"NaN in info.{name}", not nan(value))
    for name in ("gamma", "multiplier"):
        value = getattr(state, name)
        check(f"{name} is not a positive number", (value > 0).all())
        check(f"{name} is not finite", np.isfinite(value).all())
    if calm:
        check("NaN in evidence", not nan(state.evidence))
        check("NaN in memory", not nan(state.memory))
    if calm or (finite and dict(setting.options).get("curvature_min", 1) > 1e-3):
        for u in leaves(updates):
            check("updates not finite", np.isfinite(np.asarray(u, np.float32)).all())
    if finite and setting.estimator is not None:
        counted = state.info.left_out.sum()
        narrow = any(dtype == "float16" for _, dtype in setting.tree)
        check("finite samples are left out", narrow or counted == 0)
    return found


def run(seeds: Iterable[int]) -> Iterable[list[str]]:
    """Runs cases by their seeds; what does not hold of each, with the seed."""
    program = group = None
    for seed in seeds:
        if program is None or seed // SHARED != group:
            group = seed // SHARED
            setting = make_setting(group)
            program = make_program(setting)
        found = failures(setting, make_case(setting, seed), program)
        yield [f"seed {seed}: {failure}; {setting}" for failure in found]


def main() -> int:
    """Runs the command line; returns the exit code."""
    parser = argparse.ArgumentParser(description="Random trees and wild gradients.")
    parser.add_argument("--cases", type=int, default=1000, help="how many cases")
    parser.add_argument("--first", type=int, default=0, help="the seed of the first")
    parser.add_argument("--seconds", type=float, default=np.inf, help="stop after this")
    options = parser.parse_args()
    begin, cases, failed = time.perf_counter(), 0, 0
    for found in run(range(options.first, options.first + options.cases)):
        cases, failed = cases + 1, failed + bool(found)
        print(*found, sep="\n", end="\n" if found else "")
        if time.perf_counter() - begin > options.seconds:
            break
    print(
        f"seeds {options.first} to {options.first + cases - 1}: {failed} of {cases} "
        f"cases failed, in {time.perf_counter() - begin:.0f} s"
    )
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
