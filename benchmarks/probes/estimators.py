"""Measures how far each curvature estimator is from the true diagonal.

Usage: python -m benchmarks estimators [--draws 20] [--lengths 10 100 400]
           [--out benchmarks/results/estimators.json]

Every estimator sees the same path: one epoch of T steps of SGD, bare, so that no
estimate changes where the path goes. The measure is the median over coordinates and
draws of |log10(ĥ / h)|. An estimate is first clamped to [0.01, 100], as CT-AGD does,
and one without evidence counts as 0, so as the lower bound. The true h is the diagonal
of the noise-free Hessian at the epoch's last point, where CT-AGD uses it; only
coordinates whose h lies within the clamp are measured.

One control knows nothing of any coordinate, but the median of the true h over all of
them. The other, where gradients have noise, has everything but chance: the path itself
follows that noise, so what gradients change by along it, over steps, tends to
(HC)_ii / C_ii with C the covariance of the noise, however many samples there are. That
is H_ii only if C is diagonal; of a network, it is not.

There are three problems:

- quadratic: a full Hessian, randomly rotated, with eigenvalues from 0.1 to 10 evenly
  on a log scale; standard normal noise times the level in every gradient. The epoch
  starts far from the minimum, at rest.
- settled: the same after as many steps as the longest epoch, near the minimum.
- network: a small network on scikit-learn's digits, also after that many steps; the
  level of noise is the size of the batch.
"""

import argparse
import functools
import math
import pathlib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.flatten_util import ravel_pytree
from rich.console import Console

import ctagd_optax
from benchmarks.analysis import tables
from benchmarks.files import write_json

ESTIMATORS: dict[str, ctagd_optax.CurvatureEstimator] = {
    "secant()": ctagd_optax.secant(),
    'secant("algorithm")': ctagd_optax.secant("algorithm"),
    "same_batch()": ctagd_optax.same_batch(),
    "hutchinson()": ctagd_optax.hutchinson(),
}
CONTROL = "the true median"
LIMIT = "along the noise"
CLAMP = 1e-2, 1e2
EPS = 1e-3
LEARNING_RATE = 1e-2
MOMENTA = 0.0, 0.85, 0.95
NOISES = 0.0, 0.1, 1.0, 10.0
EIGENVALUES = np.logspace(-1, 1, 20)
BATCHES = 1797, 64, 8
HIDDEN = 8


class Run(NamedTuple):
    """Where SGD is."""

    params: jax.Array
    velocity: jax.Array


class Errors(NamedTuple):
    """An estimator's errors after an epoch, one a coordinate; NaN where h is clamped.

    Attributes:
      log10: |log10(ĥ / h)|.
      covered: 1 where the estimate is within two standard errors of h, else 0; None of
        an estimator that has none.
    """

    log10: jax.Array
    covered: jax.Array | None


def sgd(loss: Callable, run: Run, momentum: Any, sample: Any) -> tuple[Run, Any, Any]:
    """One step on one sample; also returns the gradient and the update."""
    gradient = jax.grad(loss)(run.params, sample)
    velocity = momentum * run.velocity + gradient
    update = -LEARNING_RATE * velocity
    return Run(run.params + update, velocity), gradient, update


def settle(loss: Callable, run: Run, momentum: Any, samples: Any) -> Run:
    """Many steps, which nobody observes."""
    return jax.lax.scan(
        lambda run, sample: (sgd(loss, run, momentum, sample)[0], None), run, samples
    )[0]


def epoch(
    loss: Callable,
    curvature: Callable,
    run: Run,
    momentum: Any,
    samples: Any,
    lengths: Sequence[int],
) -> list[dict[str, Errors]]:
    """Errors of every estimator after an epoch of each length.

    Args:
      loss: of parameters and a sample.
      curvature: of parameters: the Hessian, and the covariance of gradients' noise.
      run: where the epoch starts.
      momentum: SGD's.
      samples: one a step.
      lengths: of epochs, from short to long.

    Returns:
      For each length, the errors by estimator and control.
    """

    def step(carry, sample):
        t, run, states = carry
        after, gradient, update = sgd(loss, run, momentum, sample)
        seen = ctagd_optax.Step(
            epoch=jnp.zeros((), jnp.int32),
            epoch_step=t,
            sizes=(jnp.ones(()),),
            figures=None,
            left_out=jnp.zeros((1,), jnp.int32),
            gradients=gradient,
            params=run.params,
            updates=update,
            gamma=jnp.ones((1,)),
            schedule=jnp.ones(()),
        )
        extra = {
            "grad_fn": lambda x: jax.grad(loss)(x, sample),
            "obj_fn": lambda x: loss(x, sample),
        }
        states = {
            name: (
                estimator.observe(*states[name], seen, EPS, **extra),
                estimator.remember(states[name][1], seen),
            )
            for name, estimator in ESTIMATORS.items()
        }
        return (t + 1, after, states), None

    states = {name: e.init(run.params, None) for name, e in ESTIMATORS.items()}
    carry = jnp.zeros((), jnp.int32), run, states
    found = []
    for begin, end in zip((0, *lengths[:-1]), lengths, strict=True):
        part = jax.tree.map(lambda x, b=begin, e=end: x[b:e], samples)
        carry, _ = jax.lax.scan(step, carry, part)
        hessian, covariance = curvature(carry[1].params)
        truth = jnp.diag(hessian)
        estimates = {
            name: e.estimate(carry[2][name][0], EPS) for name, e in ESTIMATORS.items()
        }
        estimates[CONTROL] = control(truth)
        estimates[LIMIT] = limit(hessian, covariance)
        found.append({name: measure(e, truth) for name, e in estimates.items()})
    return found


def control(truth: jax.Array) -> ctagd_optax.CurvatureEstimate:
    """The median of the coordinates that are measured, for each of them."""
    median = jnp.nanmedian(jnp.where(_measured(truth), truth, jnp.nan))
    value = jnp.full_like(truth, median)
    return ctagd_optax.CurvatureEstimate(value, jnp.ones_like(value, bool))


def limit(hessian: jax.Array, covariance: jax.Array) -> ctagd_optax.CurvatureEstimate:
    """What an endless path along the noise would show; NaN where there is no noise."""
    own = jnp.diag(covariance)
    along = jnp.sum(hessian * covariance, axis=1)
    value = jnp.where(own > 0, along / jnp.where(own > 0, own, 1), jnp.nan)
    return ctagd_optax.CurvatureEstimate(value, jnp.ones_like(value, bool))


def measure(estimate: ctagd_optax.CurvatureEstimate, truth: jax.Array) -> Errors:
    """The errors of an estimate, by the rules above."""
    within = _measured(truth)
    clamped = jnp.clip(jnp.where(estimate.observed, estimate.value, 0), *CLAMP)
    ratio = clamped / jnp.where(within, truth, 1)
    log10 = jnp.where(within, jnp.abs(jnp.log10(ratio)), jnp.nan)
    if estimate.standard_error is None:
        return Errors(log10, None)
    covered = jnp.abs(estimate.value - truth) <= 2 * estimate.standard_error
    return Errors(log10, jnp.where(within, covered, jnp.nan))


def _measured(truth: jax.Array) -> jax.Array:
    low, high = CLAMP
    return (truth >= low) & (truth <= high)


def quadratic(settled: bool, draws: int, lengths: Sequence[int]) -> list[dict]:
    """Rows of the rotated noisy quadratic."""
    size, longest = len(EIGENVALUES), lengths[-1]

    def draw(key, noise, momentum):
        keys = jax.random.split(key, 4)
        rotation = jax.random.orthogonal(keys[0], size)
        hessian = (rotation * EIGENVALUES) @ rotation.T

        def loss(x, sample):
            return x @ hessian @ x / 2 + noise * sample @ x

        run = Run(jax.random.normal(keys[1], (size,)), jnp.zeros(size))
        if settled:
            run = settle(
                loss, run, momentum, jax.random.normal(keys[2], (longest, size))
            )
        samples = jax.random.normal(keys[3], (longest, size))
        curvature = hessian, noise**2 * jnp.eye(size)
        return epoch(loss, lambda _: curvature, run, momentum, samples, lengths)

    over_draws = jax.vmap(draw, in_axes=(0, None, None))
    over_noises = jax.vmap(over_draws, in_axes=(None, 0, None))
    found = jax.jit(jax.vmap(over_noises, in_axes=(None, None, 0)))(
        jax.random.split(jax.random.key(0), draws),
        jnp.asarray(NOISES),
        jnp.asarray(MOMENTA),
    )
    return [
        row(
            "settled" if settled else "quadratic",
            noise,
            momentum,
            length,
            jax.tree.map(lambda x, m=m, n=n: x[m, n], found[i]),
        )
        for n, noise in enumerate(NOISES)
        for m, momentum in enumerate(MOMENTA)
        for i, length in enumerate(lengths)
    ]


def network(batch: int, draws: int, lengths: Sequence[int]) -> list[dict]:
    """Rows of the network for one size of the batch."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    images = jnp.asarray(digits.data / 16, jnp.float32)
    labels = jnp.asarray(digits.target)
    everything = jnp.arange(len(labels))
    sizes = images.shape[1], HIDDEN, 10

    def start(key):
        return [
            {"w": jax.random.normal(k, shape) / math.sqrt(shape[0]), "b": jnp.zeros(n)}
            for k, shape, n in zip(
                jax.random.split(key), (sizes[:2], sizes[1:]), sizes[1:], strict=True
            )
        ]

    _, unravel = ravel_pytree(start(jax.random.key(0)))

    def loss(vector, sample):
        first, second = unravel(vector)
        hidden = jnp.tanh(images[sample] @ first["w"] + first["b"])
        logits = hidden @ second["w"] + second["b"]
        return jnp.mean(
            optax.softmax_cross_entropy_with_integer_labels(logits, labels[sample])
        )

    def curvature(vector):
        gradient = functools.partial(jax.grad(loss), sample=everything)

        def row_of(direction):
            return jax.jvp(gradient, (vector,), (direction,))[1]

        hessian = jax.lax.map(row_of, jnp.eye(vector.size), batch_size=32)
        if batch == len(everything):
            return hessian, jnp.zeros_like(hessian)
        each = jax.vmap(jax.grad(loss), in_axes=(None, 0))(vector, everything[:, None])
        return hessian, jnp.cov(each, rowvar=False) / batch

    def samples(key):
        if batch == len(everything):
            return jnp.tile(everything, (lengths[-1], 1))
        return jax.random.randint(key, (lengths[-1], batch), 0, len(everything))

    @jax.jit
    def draw(key, momentum):
        keys = jax.random.split(key, 3)
        params, _ = ravel_pytree(start(keys[0]))
        run = Run(params, jnp.zeros_like(params))
        run = settle(loss, run, momentum, samples(keys[1]))
        return epoch(loss, curvature, run, momentum, samples(keys[2]), lengths)

    rows = []
    for momentum in MOMENTA:
        found = jax.tree.map(
            lambda *x: jnp.stack(x),
            *(draw(k, momentum) for k in jax.random.split(jax.random.key(1), draws)),
        )
        rows += [
            row("network", batch, momentum, length, errors)
            for length, errors in zip(lengths, found, strict=True)
        ]
    return rows


def row(
    problem: str, noise: float, momentum: float, length: int, errors: dict[str, Errors]
) -> dict:
    """One row of the results: a condition, and the figures of every estimator."""
    some = np.asarray(errors[CONTROL].log10)
    controls = [CONTROL] + [LIMIT] * bool(np.isfinite(errors[LIMIT].log10).any())
    return {
        "problem": problem,
        "noise": noise,
        "momentum": momentum,
        "steps": length,
        "coordinates": int(np.isfinite(some).sum()),
        "error": {
            name: round(float(np.nanmedian(errors[name].log10)), 3)
            for name in (*ESTIMATORS, *controls)
        },
        "covered": {
            name: round(float(np.nanmean(errors[name].covered)), 3)
            for name in ESTIMATORS
            if errors[name].covered is not None
        },
    }


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    add = parser.add_argument
    add(
        "--draws", type=int, default=20, help="quadratics, and a fifth as many networks"
    )
    add("--lengths", type=int, nargs="+", default=[10, 100, 400], help="steps T")
    add(
        "--out",
        type=pathlib.Path,
        default=pathlib.Path("runs/estimators.json"),
        help="file to write (%(default)s)",
    )


def run(args: argparse.Namespace, console: Console) -> int:
    """Measures and writes everything."""
    lengths = sorted(set(args.lengths))
    if min(args.draws, *lengths) < 1:
        raise ValueError("--draws and --lengths must be at least 1")
    rows = []
    for settled in (False, True):
        rows += quadratic(settled, args.draws, lengths)
    for batch in BATCHES:
        rows += network(batch, math.ceil(args.draws / 5), lengths)
    write_json(
        args.out,
        {
            "versions": {"jax": jax.__version__, "optax": optax.__version__},
            "measure": "median |log10(clamp(estimate) / true diagonal)|",
            "clamp": CLAMP,
            "eps": EPS,
            "learning rate": LEARNING_RATE,
            "rows": rows,
        },
    )
    shown = [
        {
            **{k: str(r[k]) for k in ("problem", "noise", "momentum", "steps")},
            **{name: f"{value:.2f}" for name, value in r["error"].items()},
        }
        for r in rows
    ]
    console.print(tables.terminal(shown, "median |log10 error|"))
    console.print(f"Wrote {args.out}")
    return 0
