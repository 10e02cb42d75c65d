"""Writes the tables of README.md and docs/*.md, and a picture, from benchmarks/results.

A page has blocks ``<!-- begin NAME -->`` to ``<!-- end NAME -->``; what is between is
made anew. :data:`BLOCKS` has the names.
"""

import functools
import json
import math
import pathlib
import re
import statistics
from collections.abc import Callable
from typing import Any

from flax import nnx

from benchmarks.analysis import cost_plots, curves, plots, sweep_cells, tables
from benchmarks.models import parameter_count
from benchmarks.probes import overhead
from benchmarks.probes.estimators import CONTROL, LIMIT
from benchmarks.workloads import WORKLOADS, Workload
from ctagd_optax import testbed
from ctagd_optax.testbed.files import replacing

ROOT = pathlib.Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "results"
IMAGES = ROOT / "docs" / "images"
PICTURE = IMAGES / "any-learning-rate.png"
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]

# The order of a table's rows.
_ROLES = ("backbone", "ours", "paper", "control", "tuned", "peer")


def read(path: str) -> dict[str, Any]:
    """A file of the results."""
    return json.loads((RESULTS / path).read_text())


def compared() -> list[str]:
    """The workloads of which there is a comparison, in the order of ``list``."""
    found = {path.parent.name for path in RESULTS.glob("compare/*/results.json")}
    return [name for name in WORKLOADS if name in found]


def expect() -> str:
    """Epochs to where the bare optimizer ends, for the arms that a user asks for."""
    rows, seeds = [], set()
    for name in compared():
        results = read(f"compare/{name}/results.json")
        arms = results["arms"]
        seeds.add(len(results["seeds"]))
        row = {"workload": f"`{name}`"}
        for title, bare in (("SGD", "sgd"), ("Adam", "adam")):
            targets = {
                run["seed"]: _END * run["accuracy"][-1] for run in arms[bare]["runs"]
            }
            tuned = [
                arm
                for arm, entry in arms.items()
                if (curves.parts(arm), entry["role"]) == ((bare, ""), "tuned")
            ]
            for column, arm in (
                (title, bare),
                (f"{title}, robust", f"robust_{bare}"),
                (f"{title}, paper's", f"ct_{bare}"),
                (f"{title}, tuned", tuned[0] if tuned else ""),
            ):
                row[column] = _epochs(arms.get(arm), targets)
        rows.append(row)
    runs = " or ".join(map(str, sorted(seeds)))
    return (
        f"{tables.markdown(rows)}\n\n"
        "Epochs to 99 % of the test accuracy at which bare SGD, or bare Adam, ends "
        f"with the same seed; mean of {runs} seeds. ∞: a seed never got there. "
        "Learning rates: SGD 0.01, Adam 0.001, as in the paper; tuned: the best "
        "validation accuracy of 3 to 7 learning rates, which can be slower than the "
        "default."
    )


# A run has got to where another ends when it is this close to it.
_END = 0.99


def _epochs(arm: dict[str, Any] | None, targets: dict[int, float]) -> str:
    if arm is None:
        return tables.NOTHING
    epochs = [
        curves.epochs_to(targets[run["seed"]], run["accuracy"]) for run in arm["runs"]
    ]
    mean = statistics.fmean(epochs)
    return "∞" if math.isinf(mean) else f"{mean:.1f}"


def comparison(name: str) -> str:
    """All arms on a workload."""
    results = read(f"compare/{name}/results.json")
    arms = sorted(results["arms"].items(), key=lambda x: _ROLES.index(x[1]["role"]))
    results = {**results, "arms": dict(arms)}
    rows = [
        {**row, "arm": f"`{row['arm']}`"}
        for row in tables.brief(tables.comparison(results))
    ]
    return f"{tables.markdown(rows)}\n\n{tables.caption(results, rows)}"


def sweep() -> str:
    """Epochs to the target by learning rate, a table for each backbone."""
    parts = []
    for found in _sweeps():
        name = _TITLES[found["method"]]
        titles = {
            "bare": name,
            "wrapped": f"{name}, wrapped",
            "control": "sawtooth from 10×",
            "high control": "sawtooth from 20×",
            "bare at the end, %": f"{name} at the end, %",
            "wrapped at the end, %": "wrapped at the end, %",
            "multiplier": "largest multiplier",
        }
        rows = [
            {titles.get(key, key): row[key] for key in ("learning rate", *titles)}
            for row in sweep_cells.rows(found)
        ]
        first = found["cells"][0]
        parts.append(
            f"{tables.markdown(rows)}\n\n{name} on `{found['workload']}`: epochs to "
            f"{100 * first['target']:.1f} % test accuracy, mean of "
            f"{len(found['seeds'])} seeds, {first['epochs']} epochs in all."
        )
    parts.append(
        "∞: not reached. Sawtooth: in every epoch the learning rate falls from 10 or "
        "20 times the given one to the given one. Largest multiplier: what the wrapper "
        "multiplied the learning rate by, at most."
    )
    return "\n\n".join(parts)


_TITLES = {"robust_sgd": "SGD", "robust_adam": "Adam"}


def _sweeps() -> list[dict[str, Any]]:
    """The sweeps of the robust method: SGD first."""
    return [
        read(f"sweep/{method}/digits_mlp/sweep.json")
        for method in _TITLES
        if (RESULTS / "sweep" / method / "digits_mlp" / "sweep.json").exists()
    ]


def memory() -> str:
    """Bytes per parameter by option."""
    rows = [
        {**row, "options": f"`{row['options']}`"}
        for row in read("overhead.json")["memory"]
    ]
    return (
        f"{tables.markdown(rows)}\n\nState: what the wrapper adds to the optimizer's. "
        "Temporary: what the compiled step needs at its peak. Parameters are float32 "
        "unless said."
    )


def narrow() -> str:
    """What 16-bit accumulators change in training."""
    suffix = ":accumulator_dtype=bfloat16"
    rows, seeds = [], set()
    for name in compared():
        arms = read(f"compare/{name}/results.json")["arms"]
        for arm in (arm.removesuffix(suffix) for arm in arms if arm.endswith(suffix)):
            ends = {
                label: [100 * run["accuracy"][-1] for run in arms[which]["runs"]]
                for label, which in (("float32", arm), ("bfloat16", arm + suffix))
            }
            seeds.add(len(ends["float32"]))
            cells = {
                label: f"{statistics.mean(x):.1f} ± {statistics.stdev(x):.1f}"
                for label, x in ends.items()
            }
            rows.append({"workload": f"`{name}`", "arm": f"`{arm}`", **cells})
    runs = " or ".join(map(str, sorted(seeds)))
    return (
        f"{tables.markdown(rows, texts=2)}\n\nTest accuracy at the end in %, mean and "
        f"standard deviation of {runs} seeds, by `accumulator_dtype`."
    )


def compiling() -> str:
    """Time to compile a step by the number of tensors."""
    found: dict[str, dict[str, Any]] = {}
    for row in read("overhead.json")["compile"]:
        found.setdefault(row["optimizer"], {})[row["tensors"]] = row["seconds"]
    rows = []
    for name, times in found.items():
        row = {"optimizer": f"`{name}`"}
        for tensors, seconds in times.items():
            ratio = seconds / found["adam"][tensors]
            row[f"{tensors} tensors"] = f"{seconds:.2g} s ({ratio:.1f}×)"
        rows.append(row)
    return (
        f"{tables.markdown(rows)}\n\nTensors of 32 × 32; in brackets, against Adam. "
        "With tracing; medians on a CPU with two cores."
    )


def steps() -> str:
    """Time of a step, relative to Adan."""
    found = read("overhead.json")["steps"]
    rows = []
    for name in (name for name in found[0]["milliseconds"] if "closing" not in name):
        row = {"optimizer": f"`{name}`"}
        for entry in found:
            one = entry["tensors"] == 1
            if one and entry["parameters"] < 10**6:
                continue
            title = f"{entry['parameters']:,}" if one else f"{entry['tensors']} × 32×32"
            times = entry["milliseconds"]
            row[title] = (
                f"{times[name]:.3g} ms ({times[name] / times['adan']:.2f}×)"
                if name in times
                else "–"
            )
        rows.append(row)
    return (
        f"{tables.markdown(rows)}\n\nThe optimizer's part of a step alone, by the "
        "number of parameters, in one tensor or many; in brackets, against Adan. "
        "Medians of interleaved steps on a CPU with two cores."
    )


def boundary() -> str:
    """Time to close an epoch, and how times grow."""
    found = read("overhead.json")["steps"]
    entry = next(row for row in found if row["parameters"] == 25 * 10**6)
    times, name = entry["milliseconds"], "ct_agd(sgd)"
    closing = times[f"{name}, closing"] - times[name]
    grows = [
        f"`{label}` {overhead.exponent(found, label):.2f}"
        for label in (name, f"{name}, closing", "robust_ct_agd(sgd)")
    ]
    return (
        f"The end of an epoch takes `ct_agd` {closing:.0f} ms more than a step with "
        f"25,000,000 parameters, as long as {closing / times[name]:.1f} of its steps; "
        "`robust_ct_agd` nothing of that kind. From 10,000 to 100,000,000 parameters "
        f"times grow with this power of the size: {', '.join(grows)}."
    )


def training() -> str:
    """Whole steps of training against bare SGD."""
    rows = []
    for entry in read("overhead.json")["train"]:
        times = entry["milliseconds"]
        row = {
            "workload": f"`{entry['workload']}`",
            "batch": entry["batch"],
            "SGD": f"{times['sgd']:.0f} ms",
        }
        for arm in ("ct_sgd", "robust_sgd"):
            extra = times[f"{arm}, closing"] - times[arm]
            epoch = overhead.EPOCH * times[arm] + max(extra, 0)
            row[f"`{arm}`"] = f"{times[arm] / times['sgd']:.3f}×"
            row[f"`{arm}`, epoch"] = f"{epoch / (overhead.EPOCH * times['sgd']):.3f}×"
        rows.append(row)
    return (
        f"{tables.markdown(rows)}\n\nA whole step of training, with the network, "
        f"against bare SGD; epoch: {overhead.EPOCH} steps and the end of the epoch. "
        "The paper reports 1.09×. Medians of interleaved steps on a CPU with two cores."
    )


def traffic() -> str:
    """What XLA reads and writes."""
    found = read("overhead.json")["traffic"]
    sizes = sorted({row["parameters"] for row in found})
    rows = [
        {
            "optimizer": f"`{row['optimizer']}`",
            "vectors, a step": row["vectors, a step"],
            "with the epoch's end": row["vectors by XLA, closing"],
            "operations per parameter, with the epoch's end": row[
                "operations by XLA, closing"
            ],
        }
        for row in found
        if row["parameters"] == sizes[-1]
    ]
    listed = ", ".join(f"{size:,}" for size in sizes)
    return (
        f"{tables.markdown(rows)}\n\nOne tensor of {sizes[-1]:,} parameters; the same "
        f"per parameter with {listed}. The search is counted as one pass."
    )


def seven_billion() -> str:
    """The formulas, worked out."""
    parameters, chips, tensors, bandwidth = 7 * 10**9, 256, 291, 800e9
    rows = []
    for name, state, step, scalars in (
        ("robust_ct_agd", 2, 11, 8),
        ("ct_agd", 5, 19, 1),
    ):
        vector = 4 * parameters / chips
        rows.append(
            {
                "a chip": f"`{name}`",
                "state": f"{state * vector / 1e6:.0f} MB",
                "traffic of a step": f"{step * vector / 1e9:.1f} GB",
                "time of it": f"{1e3 * step * vector / bandwidth:.1f} ms",
                "collectives of a step": f"{4 * scalars * tensors / 1e3:.1f} kB",
            }
        )
    return (
        f"{tables.markdown(rows)}\n\nFloat32 state, fully sharded; {tensors} tensors; "
        f"memory of {bandwidth / 1e9:.0f} GB/s. Calculated, not measured: nothing here "
        "ran on a GPU or TPU."
    )


def estimators() -> str:
    """Accuracy of the estimators at the paper's momentum, and against the secant."""
    rows = [row for row in read("estimators.json")["rows"] if row["momentum"] == 0.85]
    long = [row for row in rows if row["steps"] >= 100]
    noisy = [row for row in long if row["noise"] not in (0, 1797)]

    def cell(name: str, problem: str, noise: float) -> str:
        return " / ".join(
            f"{row['error'][name]:.2f}" if name in row["error"] else tables.NOTHING
            for row in long
            if (row["problem"], row["noise"]) == (problem, noise)
        )

    def times(name: str, problems: tuple[str, ...]) -> str:
        ratios = [
            row["error"]["secant()"] / row["error"][name]
            for row in noisy
            if row["problem"] in problems
        ]
        low, high = min(ratios), max(ratios)
        return f"{statistics.median(ratios):.1f} ({low:.1f} to {high:.1f})"

    columns = {
        **{
            f"quadratic, noise {noise:g}": ("quadratic", noise)
            for noise in (0, 0.1, 1, 10)
        },
        **{f"network, batch {batch}": ("network", batch) for batch in (1797, 64, 8)},
    }
    names = dict.fromkeys(name for row in long for name in row["error"])
    table = tables.markdown(
        {
            "estimator": name if name in (CONTROL, LIMIT) else f"`{name}`",
            **{title: cell(name, *where) for title, where in columns.items()},
        }
        for name in names
    )
    against = tables.markdown(
        {
            "estimator": f"`{name}`",
            "quadratics": times(name, ("quadratic", "settled")),
            "network": times(name, ("network",)),
            "within 2 errors": tables.share(
                statistics.fmean(row["covered"][name] for row in noisy)
            ),
        }
        for name in ("same_batch()", "hutchinson()")
    )
    return (
        f"{table}\n\nMedian |log10(ĥ / h)| of the clamped diagonal after 100 / 400 "
        "steps of SGD with momentum 0.85; 0 is exact, 1 is off tenfold. No evidence "
        f"counts as λ_min = 0.01. *{CONTROL.capitalize()}* gives every coordinate the "
        f"median of all. *{LIMIT.capitalize()}* is the limit of endless steps that "
        f"follow the noise.\n\n{against}\n\nHow many times smaller the error is than "
        "that of `secant()` where there is noise: median and range over noise levels "
        "and lengths. Within 2 errors: how often the truth is within two standard "
        "errors."
    )


def testbed_table() -> str:
    """The testbed's table, and what it says of the paper's claims."""
    data = read("testbed/table.json")
    counts = [
        read(f"testbed/{name}.json")["agreement"].split(" numbers")[0]
        for name in ("table", "table-seed1", "table-seed2")
    ]
    return "\n\n".join(
        [
            testbed.markdown(data),
            "Ours, with the paper's numbers in brackets: means ± 95 % intervals over "
            "the runs that converged. Rate: the best of "
            f"{data['tuning']['budget']} per setting. With three seeds of landscapes, "
            f"{', '.join(counts[:-1])} and {counts[-1]} numbers agree with the paper's "
            "up to chance.",
            "The paper's claims on the number of steps, and ours against a control "
            "without curvature, in pairs on the same landscapes:",
            "\n".join(f"- {claim}" for claim in data["claims"] + data["controls"]),
        ]
    )


def workload_table() -> str:
    """The workloads, with the sizes of their networks."""

    def parameters(work: Workload) -> int:
        stand_in = work.stand_in()
        return parameter_count(
            nnx.eval_shape(lambda: work.model(stand_in, rngs=nnx.Rngs(0)))
        )

    rows = (
        {
            "workload": f"`{work.name}`",
            "what": work.description,
            "parameters": f"{parameters(work):,}",
            "batch": work.batch_size,
            "epochs": work.epochs,
            "target": f"{work.target:.1%}",
        }
        for work in WORKLOADS.values()
    )
    return (
        f"{tables.markdown(rows, texts=2)}\n\n"
        "Target: the test accuracy to which `train` counts epochs."
    )


BLOCKS: dict[str, Callable[[], str]] = {
    "expect": expect,
    **{f"results-{name}": functools.partial(comparison, name) for name in compared()},
    "sweep": sweep,
    "workloads": workload_table,
    "memory": memory,
    "narrow": narrow,
    "compile": compiling,
    "steps": steps,
    "boundary": boundary,
    "train": training,
    "traffic": traffic,
    "seven-billion": seven_billion,
    "estimators": estimators,
    "testbed": testbed_table,
}

_BLOCK = re.compile(r"(<!-- begin (\S+) -->\n)(.*?)(<!-- end \2 -->)", flags=re.DOTALL)


def render(text: str) -> str:
    """A page with every block that it has made anew.

    Args:
      text: the page.

    Returns:
      The page.

    Raises:
      ValueError: a block has a name that is not in :data:`BLOCKS`, or no end.
    """

    def made(found: re.Match) -> str:
        name = found[2]
        if name not in BLOCKS:
            raise ValueError(
                f"unknown block {name!r}; there are {', '.join(sorted(BLOCKS))}"
            )
        return f"{found[1]}{BLOCKS[name]()}\n{found[4]}"

    begun = re.findall(r"<!-- begin (\S+) -->", text)
    closed = [name for _, name, *_ in _BLOCK.findall(text)]
    for name in begun:
        if name not in closed:
            raise ValueError(f"block {name!r} must end with <!-- end {name} -->")
    return _BLOCK.sub(made, text)


def write() -> None:
    """Rewrites the pages that have blocks, and draws the picture."""
    texts = {page: page.read_text() for page in PAGES}
    made = {page: render(text) for page, text in texts.items() if "<!-- begin" in text}
    for page, text in made.items():
        with replacing(page) as temporary:
            temporary.write_text(text)
        print(f"Wrote {page.relative_to(ROOT)}")
    costs = read("overhead.json")
    for picture in (
        plots.plot_sweeps(_sweeps(), PICTURE),
        cost_plots.plot_compile(costs["compile"], IMAGES / "compile-time.png"),
        cost_plots.plot_steps(costs["steps"], IMAGES / "step-time.png"),
        cost_plots.plot_train(costs["train"], IMAGES / "train-step.png"),
    ):
        print(f"Wrote {picture.relative_to(ROOT)}")
