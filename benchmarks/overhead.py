"""Measures what CT-AGD costs: time per step, time at the boundary, and memory.

Usage: python -m benchmarks.overhead [--sizes 1000000 25000000] [--repeats 21]
           [--out benchmarks/results/overhead.json]

All arms take turns within one process, and medians are reported, so that a busy machine
slows every arm alike. What counts is the ratios.
"""

import argparse
import pathlib
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax
from rich.console import Console
from rich.table import Table

import ctagd_optax
from benchmarks.files import write_json

STEPS_PER_EPOCH = 10**6  # no boundary among the timed steps

OPTIMIZERS: dict[str, Callable[[], optax.GradientTransformation]] = {
    "sgd, momentum": lambda: optax.sgd(1e-2, momentum=0.85),
    "adam": lambda: optax.adam(1e-3),
    "adan": lambda: optax.adan(1e-3),
    "prodigy": lambda: optax.contrib.prodigy(),
    "schedule_free_adamw": lambda: optax.contrib.schedule_free_adamw(),
    "sophia": lambda: optax.contrib.sophia(1e-3),
    "ct_agd(sgd)": lambda: ctagd_optax.ct_agd(
        optax.sgd(1e-2, momentum=0.85), STEPS_PER_EPOCH
    ),
    "ct_agd(sgd), algorithm, last": lambda: ctagd_optax.ct_agd(
        optax.sgd(1e-2, momentum=0.85),
        STEPS_PER_EPOCH,
        estimator=ctagd_optax.secant("algorithm"),
        correction_gradient="last",
    ),
    "robust_ct_agd(sgd)": lambda: ctagd_optax.robust_ct_agd(
        optax.sgd(1e-2, momentum=0.85), STEPS_PER_EPOCH
    ),
}
# Vectors that ct_agd(sgd) cannot but move in a step: it reads the gradient, and reads
# and writes the parameters, the momentum and its five vectors.
MUST_MOVE = 1 + 2 * (1 + 1 + 5)


def make_step(opt: optax.GradientTransformation) -> Callable:
    """A jitted step that updates parameters and state in place."""
    opt = optax.with_extra_args_support(opt)

    def objective(params):  # for sophia, which takes Hessian-vector products of it
        return jnp.sum(params**2)

    def step(params, state, grads):
        updates, state = opt.update(grads, state, params, obj_fn=objective)
        return optax.apply_updates(params, updates), state

    return jax.jit(step, donate_argnums=(0, 1))


def timed(function: Callable, *args: Any) -> tuple[float, Any]:
    """Seconds until the result is ready, and the result."""
    start = time.perf_counter()
    result = jax.block_until_ready(function(*args))
    return time.perf_counter() - start, result


def time_steps(size: int, repeats: int) -> dict[str, float]:
    """Median seconds of a step of each optimizer, and of a copy, taking turns."""
    grads = jnp.full(size, 1e-3, jnp.float32)
    arms = {}
    for name, make in OPTIMIZERS.items():
        opt, params = make(), jnp.ones(size, jnp.float32)
        # A copy: some optimizers keep the parameters themselves, which a donated
        # buffer must not be.
        state = jax.tree.map(jnp.copy, opt.init(params))
        arms[name] = [make_step(opt), params, state]
    in_place = jax.jit(lambda x: x + 1.0, donate_argnums=0)
    buffer = jnp.ones(size, jnp.float32)

    seconds: dict[str, list[float]] = {name: [] for name in (*arms, "copy")}
    for n in range(repeats + 2):
        for name, arm in arms.items():
            elapsed, (arm[1], arm[2]) = timed(*arm, grads)
            seconds[name].append(elapsed)
        elapsed, buffer = timed(in_place, buffer)
        seconds["copy"].append(elapsed)
        if n == 1:  # the first two compile and touch the memory
            seconds = {name: [] for name in seconds}
    return {name: statistics.median(values) for name, values in seconds.items()}


def time_boundary(size: int, repeats: int) -> dict[str, float]:
    """Median seconds of closing an epoch, with our quantile and with jnp's."""
    key = jax.random.key(0)
    estimate = ctagd_optax.CurvatureEstimate(
        value=jnp.exp(jax.random.normal(key, (size,))), observed=jnp.ones(size, bool)
    )
    vector = jnp.ones(size, jnp.float32)

    def sorting(estimate, gradients, params):
        curvature = jnp.clip(estimate.value, 1e-2, 1e2)
        gamma = jnp.quantile(curvature, 0.1)
        correction = -0.5 * gradients / curvature
        norms = jnp.linalg.norm(correction), jnp.linalg.norm(params)
        shares = jnp.mean(curvature > estimate.value), jnp.mean(estimate.observed)
        return gamma, correction, norms, shares

    arms = {
        "close_epoch": jax.jit(ctagd_optax.close_epoch),
        "with jnp.quantile": jax.jit(sorting),
    }
    seconds: dict[str, list[float]] = {name: [] for name in arms}
    for n in range(repeats + 1):
        for name, arm in arms.items():
            elapsed, _ = timed(arm, estimate, vector, vector)
            if n:
                seconds[name].append(elapsed)
    return {name: statistics.median(values) for name, values in seconds.items()}


def memory(size: int = 10**6) -> list[dict]:
    """Bytes per parameter of the state, and of a step's temporary buffers."""
    algorithm = ctagd_optax.secant("algorithm")
    literal, robust = ctagd_optax.ct_agd, ctagd_optax.robust_ct_agd
    last = {"correction_gradient": "last"}
    narrow = {"accumulator_dtype": jnp.bfloat16}
    rows = []
    for label, wrapper, dtype, options in (
        ("", robust, jnp.float32, {}),
        ("accumulator_dtype=bfloat16", robust, jnp.float32, narrow),
        ("", literal, jnp.float32, {}),
        ('correction_gradient="last"', literal, jnp.float32, last),
        ('secant("algorithm")', literal, jnp.float32, {"estimator": algorithm}),
        (
            'secant("algorithm"), correction_gradient="last"',
            literal,
            jnp.float32,
            {"estimator": algorithm, **last},
        ),
        ("accumulator_dtype=bfloat16", literal, jnp.float32, narrow),
        ("bfloat16 parameters", literal, jnp.bfloat16, {}),
        (
            "accumulator_dtype=bfloat16, bfloat16 parameters",
            literal,
            jnp.bfloat16,
            narrow,
        ),
    ):
        opt = wrapper(optax.sgd(1e-2), STEPS_PER_EPOCH, **options)
        params = jax.ShapeDtypeStruct((size,), dtype)
        state = jax.eval_shape(opt.init, params)
        compiled = make_step(opt).lower(params, state, params).compile()
        analysis = compiled.memory_analysis()
        kept = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(state))
        rows.append(
            {
                "options": ", ".join(filter(None, (wrapper.__name__, label))),
                "state bytes per parameter": round(kept / size, 2),
                "temporary bytes per parameter": round(
                    analysis.temp_size_in_bytes / size, 2
                ),
            }
        )
    return rows


def import_milliseconds(repeats: int = 9) -> dict[str, float]:
    """Median time to import optax, and ctagd_optax, in a fresh interpreter."""
    seconds: dict[str, list[float]] = {"optax": [], "ctagd_optax": []}
    for _ in range(repeats):
        for name, values in seconds.items():
            code = (
                "import time; start = time.perf_counter(); "
                f"import {name}; print(time.perf_counter() - start)"
            )
            run = subprocess.run(
                [sys.executable, "-c", code], capture_output=True, text=True, check=True
            )
            values.append(float(run.stdout))
    return {
        name: round(1e3 * statistics.median(values)) for name, values in seconds.items()
    }


def main() -> None:
    """Measures and writes everything."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.overhead",
        description="Measure CT-AGD's time per step, at the boundary, and its memory.",
    )
    parser.add_argument("--sizes", type=int, nargs="+", default=[10**6, 25 * 10**6])
    parser.add_argument("--repeats", type=int, default=21)
    parser.add_argument(
        "--out",
        type=pathlib.Path,
        default=pathlib.Path("benchmarks/results/overhead.json"),
    )
    args = parser.parse_args()
    if min(*args.sizes, args.repeats) < 1:
        parser.error("--sizes and --repeats must be at least 1")
    console = Console()
    results: dict[str, Any] = {
        "machine": {"device": jax.devices()[0].platform, "system": platform.machine()},
        "versions": {"jax": jax.__version__, "optax": optax.__version__},
        "import_milliseconds": import_milliseconds(),
        "memory": memory(),
        "steps": {},
        "boundary": {},
    }
    for size in args.sizes:
        seconds = time_steps(size, args.repeats)
        bandwidth = 2 * 4 * size / seconds["copy"]
        floor = MUST_MOVE * 4 * size / bandwidth
        results["steps"][str(size)] = {
            "milliseconds": {k: round(1e3 * v, 3) for k, v in seconds.items()},
            "against sgd": {
                k: round(v / seconds["sgd, momentum"], 2) for k, v in seconds.items()
            },
            "gigabytes per second": round(bandwidth / 1e9, 1),
            "against the slowest of adan and prodigy": round(
                seconds["ct_agd(sgd)"] / max(seconds["adan"], seconds["prodigy"]), 2
            ),
            "against the bytes it must move": round(seconds["ct_agd(sgd)"] / floor, 2),
        }
        boundary = time_boundary(size, max(args.repeats // 5, 1))
        results["boundary"][str(size)] = {
            "milliseconds": {k: round(1e3 * v, 1) for k, v in boundary.items()},
            "times faster": round(
                boundary["with jnp.quantile"] / boundary["close_epoch"], 1
            ),
        }
        table = Table(title=f"{size:,} parameters")
        table.add_column("optimizer")
        table.add_column("ms per step", justify="right")
        table.add_column("against sgd", justify="right")
        for name, value in seconds.items():
            ratio = f"{value / seconds['sgd, momentum']:.2f}"
            table.add_row(name, f"{1e3 * value:.2f}", ratio)
        console.print(table)
        console.print(results["boundary"][str(size)])
        write_json(args.out, results)
    console.print(f"Wrote {args.out}")


if __name__ == "__main__":
    main()
