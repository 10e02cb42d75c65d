"""Measures what the methods cost: compiling, steps, the epoch's end, memory.

Usage: python -m benchmarks overhead [--parts memory traffic compile steps train]
           [--repeats 15] [--out runs/overhead.json]

All arms take turns within one process, and medians are reported, so that a busy machine
slows every arm alike. What counts is the ratios. Parts that are not measured keep what
the file has.
"""

import argparse
import json
import math
import pathlib
import platform
import re
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from rich.console import Console

import ctagd_optax
from benchmarks.files import write_json
from benchmarks.specs import arm
from benchmarks.train.config import Config
from benchmarks.train.run import Run
from benchmarks.train.step import make_functions
from benchmarks.workloads import workload

LONG = 10**6  # steps in an epoch that does not end
TENSORS = (10, 50, 150, 500)
MANY = 150  # small tensors in a network
SIZES = (10**4, 10**5, 10**6, 10**7, 25 * 10**6, 10**8)
WORKLOADS = ("cifar10_resnet20", "shakespeare_transformer", "tiny_imagenet_deit_small")
PARTS = ("memory", "traffic", "compile", "steps", "train")
EPOCH = 391  # steps of CIFAR's epoch at batch 128

OPTIMIZERS: dict[str, Callable[[], optax.GradientTransformation]] = {
    "sgd": lambda: optax.sgd(1e-2, momentum=0.85),
    "adam": lambda: optax.adam(1e-3),
    "adan": lambda: optax.adan(1e-3),
    "muon": lambda: optax.contrib.muon(1e-3),
    "ct_agd(sgd)": lambda: ctagd_optax.ct_agd(optax.sgd(1e-2, momentum=0.85), LONG),
    "robust_ct_agd(sgd)": lambda: ctagd_optax.robust_ct_agd(
        optax.sgd(1e-2, momentum=0.85), LONG
    ),
}
OURS = ("ct_agd(sgd)", "robust_ct_agd(sgd)")


def make_step(opt: optax.GradientTransformation) -> Callable:
    """A jitted step in place; its last argument closes the epoch."""
    opt = optax.with_extra_args_support(opt)

    def step(params, state, grads, closing):
        updates, state = opt.update(grads, state, params, epoch_end=closing)
        return optax.apply_updates(params, updates), state

    return jax.jit(step, donate_argnums=(0, 1))


def network(tensors: int, shape: tuple[int, ...] = (32, 32)) -> dict[str, Any]:
    """Shapes of a network."""
    return {
        f"w{n:03d}": jax.ShapeDtypeStruct(shape, jnp.float32) for n in range(tensors)
    }


def lowered(make: Callable, params: Any) -> jax.stages.Lowered:
    """The step for parameters of these shapes."""
    opt = make()
    state = jax.eval_shape(opt.init, params)
    return make_step(opt).lower(params, state, params, jax.ShapeDtypeStruct((), bool))


def compile_times(tensors: Sequence[int], repeats: int) -> list[dict[str, Any]]:
    """Median seconds from calling the step to its program, and the program's size."""
    rows = []
    for number in tensors:
        params = network(number)
        seconds: dict[str, list[float]] = {name: [] for name in OPTIMIZERS}
        kernels = {}
        for _ in range(repeats if number < 200 else 1):
            for name, make in OPTIMIZERS.items():
                jax.clear_caches()
                start = time.perf_counter()
                program = lowered(make, params).compile()
                seconds[name].append(time.perf_counter() - start)
                kernels[name] = program.as_text().count(" fusion(")
        rows += [
            {
                "tensors": number,
                "optimizer": name,
                "seconds": round(statistics.median(values), 3),
                "kernels": kernels[name],
            }
            for name, values in seconds.items()
        ]
    return rows


def _square(size: int) -> tuple[int, int]:
    rows = next(n for n in range(int(size**0.5), 0, -1) if size % n == 0)
    return rows, size // rows


def step_times(shapes: Any, repeats: int, skip: Sequence[str] = ()) -> dict[str, float]:
    """Median seconds of a step of each optimizer, and of one that closes an epoch."""
    # Gradients that change, so that there is curvature to search in.
    turns = [
        jax.tree.map(lambda x, key=key: jax.random.normal(key, x.shape), shapes)
        for key in jax.random.split(jax.random.key(0))
    ]
    arms = {}
    for name, make in OPTIMIZERS.items():
        if name in skip:
            continue
        opt, params = make(), jax.tree.map(jnp.ones_like, turns[0])
        # A copy: some optimizers keep the parameters themselves, which a donated
        # buffer must not be.
        state = jax.tree.map(jnp.copy, opt.init(params))
        arms[name] = [make_step(opt), params, state]
    seconds: dict[str, list[float]] = {}
    for turn in range(repeats + 2):
        for name, place in arms.items():
            for closing in (False, True) if name in OURS else (False,):
                start = time.perf_counter()
                place[1], place[2] = jax.block_until_ready(
                    place[0](place[1], place[2], turns[closing], closing)
                )
                elapsed = time.perf_counter() - start
                if turn > 1:  # the first two compile and touch the memory
                    label = f"{name}, closing" if closing else name
                    seconds.setdefault(label, []).append(elapsed)
    return {name: statistics.median(values) for name, values in seconds.items()}


def steps(sizes: Sequence[int], repeats: int) -> list[dict[str, Any]]:
    """Steps of networks of small tensors, and of one tensor of growing size."""
    networks = [(MANY, (32, 32)), *((1, _square(size)) for size in sizes)]
    rows = []
    for tensors, shape in networks:
        size = tensors * int(np.prod(shape))
        turns = repeats if size < 5 * 10**7 else max(repeats // 3, 1)
        skip = ("muon",) if tensors == 1 else ()
        found = step_times(network(tensors, shape), turns, skip)
        rows.append(
            {
                "tensors": tensors,
                "parameters": size,
                "milliseconds": {k: round(1e3 * v, 4) for k, v in found.items()},
            }
        )
    return rows


def exponent(rows: Sequence[dict[str, Any]], label: str) -> float:
    """Of the power of the size that the time of a single tensor grows with."""
    points = [
        (row["parameters"], row["milliseconds"][label])
        for row in rows
        if row["tensors"] == 1
    ]
    return float(np.polyfit(*np.log(np.asarray(points).T), 1)[0])


def train_times(names: Sequence[str], repeats: int) -> list[dict[str, Any]]:
    """Median seconds of whole steps of training, and of those that close an epoch."""
    rows = []
    for name in names:
        work = workload(name)
        run = Run(Config(name, "sgd", out=pathlib.Path("unused"), synthetic=True))
        data, batch = work.stand_in(), run.train_batch(0)
        places = {}
        for label, spec, length in (
            ("sgd", "sgd", LONG),
            ("ct_sgd", "ct_sgd", LONG),
            ("ct_sgd, closing", "ct_sgd", 1),
            ("robust_sgd", "robust_sgd", LONG),
            ("robust_sgd, closing", "robust_sgd", 1),
        ):
            functions = make_functions(
                work,
                arm(spec),
                lambda rngs, work=work, data=data: work.model(
                    data, dtype=jnp.float32, rngs=rngs
                ),
                length,
                1,
                unroll=True,
            )
            places[label] = [
                jax.jit(functions.step, donate_argnums=0),
                jax.jit(functions.init)(0),
            ]
        seconds: dict[str, list[float]] = {label: [] for label in places}
        for turn in range(repeats + 1):
            for label, place in places.items():
                start = time.perf_counter()
                place[1], _ = jax.block_until_ready(
                    place[0](place[1], batch, run.constants)
                )
                if turn:
                    seconds[label].append(time.perf_counter() - start)
        rows.append(
            {
                "workload": name,
                "batch": run.batch_size,
                "milliseconds": {
                    label: round(1e3 * statistics.median(values), 3)
                    for label, values in seconds.items()
                },
            }
        )
    return rows


def memory(size: int = 10**6, many: int = 20) -> list[dict[str, Any]]:
    """Bytes per parameter of the state, and of a step's temporary buffers."""
    algorithm = ctagd_optax.secant("algorithm")
    literal, robust = ctagd_optax.ct_agd, ctagd_optax.robust_ct_agd
    last = {"correction_gradient": "last"}
    narrow = {"accumulator_dtype": jnp.bfloat16}
    both = {"estimator": algorithm, **last}
    rows = []
    for label, wrapper, dtype, options in (
        ("", robust, jnp.float32, {}),
        ("accumulator_dtype=bfloat16", robust, jnp.float32, narrow),
        ("", literal, jnp.float32, {}),
        ('correction_gradient="last"', literal, jnp.float32, last),
        ('secant("algorithm")', literal, jnp.float32, {"estimator": algorithm}),
        ('secant("algorithm"), correction_gradient="last"', literal, jnp.float32, both),
        ("accumulator_dtype=bfloat16", literal, jnp.float32, narrow),
        (
            'accumulator_dtype=bfloat16, secant("algorithm")',
            literal,
            jnp.float32,
            {"estimator": algorithm, **narrow},
        ),
        ("bfloat16 parameters", literal, jnp.bfloat16, {}),
        (
            "accumulator_dtype=bfloat16, bfloat16 parameters",
            literal,
            jnp.bfloat16,
            narrow,
        ),
    ):
        row = {"options": ", ".join(filter(None, (wrapper.__name__, label)))}
        for tensors, shape in ((1, _square(size)), (many, _square(size // many))):
            params = {
                name: jax.ShapeDtypeStruct(x.shape, dtype)
                for name, x in network(tensors, shape).items()
            }

            def make(wrapper=wrapper, options=options):
                return wrapper(optax.sgd(1e-2), LONG, **options)

            state = jax.eval_shape(make().init, params)
            kept = sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(state))
            analysis = lowered(make, params).compile().memory_analysis()
            temporary = analysis.temp_size_in_bytes / size
            row["state bytes per parameter"] = round(kept / size, 1)
            name = "tensor" if tensors == 1 else "tensors"
            row[f"temporary, {tensors} {name}"] = round(temporary, 1)
        rows.append(row)
    return rows


def accesses(hlo: str, size: int) -> list[int]:
    """How many vectors of this size are read and written.

    In the program itself, and in each branch of its conditional, where it has one.
    """
    found: dict[str, int] = {}
    branches: list[str] = []
    name, large = "", {}
    for line in hlo.splitlines():
        if start := re.match(r"(ENTRY )?%([\w.\-]+) \(.*\{$", line):
            name, large = "entry" if start[1] else start[2], {}
            found[name] = 0
        elif made := re.match(
            r"\s+(?:ROOT )?%([\w.\-]+) = (.*?) ([\w\-]+)\((.*?)\)(.*)", line
        ):
            result, shape, operation, operands, rest = made.groups()
            dimensions = re.match(r"\w+\[([\d,]+)\]", shape)
            large[result] = dimensions is not None and size == math.prod(
                map(int, dimensions[1].split(","))
            )
            if operation in ("fusion", "copy", "reduce"):
                read = set(re.findall(r"%([\w.\-]+)", operands))
                found[name] += large[result] + sum(large.get(x, False) for x in read)
            elif operation == "conditional":
                branches = re.findall(r"branch_computations=\{(.*?)\}", rest)
    return [
        found["entry"],
        *(found[x.strip(" %")] for text in branches for x in text.split(",")),
    ]


def traffic(sizes: Sequence[int] = (10**5, 10**6, 10**7)) -> list[dict[str, Any]]:
    """Vectors that a step moves, and operations, as XLA counts them in its program."""
    rows = []
    for size in sizes:
        for name, make in OPTIMIZERS.items():
            if name == "muon":
                continue
            program = lowered(make, network(1, _square(size))).compile()
            cost = program.cost_analysis()
            entry, *branches = accesses(program.as_text(), size)
            rows.append(
                {
                    "parameters": size,
                    "optimizer": name,
                    "vectors, a step": entry + (branches[0] if branches else 0),
                    "vectors, closing": entry + (branches[1] if branches else 0),
                    "vectors by XLA, closing": round(
                        cost["bytes accessed"] / (4 * size), 1
                    ),
                    "operations by XLA, closing": round(cost["flops"] / size, 1),
                }
            )
    return rows


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    add = parser.add_argument
    add("--parts", nargs="+", choices=PARTS, default=PARTS, help="what to measure")
    add(
        "--tensors",
        type=int,
        nargs="+",
        default=TENSORS,
        help="numbers of tensors whose compile time and kernels are measured",
    )
    add(
        "--sizes",
        type=int,
        nargs="+",
        default=SIZES,
        help="numbers of parameters whose step is timed",
    )
    add(
        "--workloads",
        nargs="+",
        default=WORKLOADS,
        help="workloads whose whole training step is timed",
    )
    add("--repeats", type=int, default=15, help="times of which the median is taken")
    add(
        "--out",
        type=pathlib.Path,
        default=pathlib.Path("runs/overhead.json"),
        help="file to write (%(default)s)",
    )


def run(args: argparse.Namespace, console: Console) -> int:
    """Measures and writes the parts that were asked for."""
    if min(*args.sizes, *args.tensors, args.repeats) < 1:
        raise ValueError("--sizes, --tensors and --repeats must be at least 1")
    results = json.loads(args.out.read_text()) if args.out.exists() else {}
    results["machine"] = {
        "device": jax.devices()[0].platform,
        "system": platform.machine(),
        "jax": jax.__version__,
        "optax": optax.__version__,
    }
    measure = {
        "memory": memory,
        "traffic": traffic,
        "compile": lambda: compile_times(args.tensors, max(args.repeats // 5, 1)),
        "steps": lambda: steps(args.sizes, args.repeats),
        "train": lambda: train_times(args.workloads, args.repeats),
    }
    for part in args.parts:
        results[part] = measure[part]()
        for row in results[part]:
            console.print(row)
        write_json(args.out, results)
    console.print(f"Wrote {args.out}")
    return 0
