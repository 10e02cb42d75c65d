"""Tables and values of comparisons and sweeps: what is saved, against what."""

import collections
import math
import statistics
from collections.abc import Iterable
from typing import Any

from benchmarks import specs
from benchmarks.analysis import curves, sweep_cells, tables
from benchmarks.pages import files

# A run has got to where another ends when it is this close to it.
_END = 0.99

# Bare optimizers, by how a page calls them.
_BACKBONES = {"SGD": "sgd", "Adam": "adam"}

# The order of a table's rows.
_ROLES = ("backbone", "ours", "paper", "control", "tuned", "peer")


def expect() -> str:
    """Epochs to where the bare optimizer ends, for what a user asks for."""
    rows = []
    for name in files.compared():
        results = files.comparison(name)
        row = {"workload": f"`{name}`"}
        for title, bare in _BACKBONES.items():
            for column, arm in (
                (title, bare),
                (f"{title}, robust", f"robust_no_loss({bare})"),
                (f"{title}, robust + loss", f"robust_{bare}"),
                (f"{title}, paper's", f"ct_{bare}"),
                (f"{title}, tuned", _tuned(results, bare)),
            ):
                row[column] = _cell(results, arm, bare)
        rows.append(row)
    return tables.markdown(rows)


def controls() -> str:
    """Epochs to where the bare optimizer ends, against what needs no curvature."""
    rows = []
    for name in files.compared():
        results = files.comparison(name)
        row = {"workload": f"`{name}`"}
        for title, bare in _BACKBONES.items():
            sawtooth = "sawtooth_control" if bare == "sgd" else "sawtooth_adam_control"
            for column, arm in (
                (f"{title}, robust + loss", f"robust_{bare}"),
                (f"{title}, sawtooth 10×", sawtooth),
                (f"{title}, sawtooth 20×", f"{sawtooth}:peak=20"),
                (f"{title}, averaged", _tuned(results, f"{bare}+average")),
            ):
                row[column] = _cell(results, arm, bare)
        rows.append(row)
    return tables.markdown(rows)


def peers() -> str:
    """The best accuracy of others beside ours, in %; of those on several workloads."""
    found = {name: files.comparison(name) for name in files.compared()}
    counts = collections.Counter(
        arm
        for results in found.values()
        for arm, entry in results["arms"].items()
        if entry["role"] == "peer"
    )
    others = [arm for arm, count in counts.items() if count > 1]
    rows = []
    for name, results in found.items():
        row = {"workload": f"`{name}`"}
        for title, bare in _BACKBONES.items():
            row[f"{title}, robust + loss"] = _best(results, f"robust_{bare}")
            row[f"{title}, tuned"] = _best(results, _tuned(results, bare))
        rows.append(row | {f"`{arm}`": _best(results, arm) for arm in others})
    return tables.markdown(rows)


def _tuned(results: dict[str, Any], bare: str) -> str:
    """The arm that is a bare optimizer with a tuned learning rate, if there is one."""
    for arm, entry in results["arms"].items():
        if (specs.parts(arm), entry["role"]) == ((bare, ""), "tuned"):
            return arm
    return ""


def _cell(results: dict[str, Any], arm: str, bare: str) -> str:
    """Mean epochs of an arm to where its bare optimizer ends with the same seed."""
    if arm not in results["arms"]:
        return tables.NOTHING
    targets = {
        run["seed"]: _END * run["accuracy"][-1] for run in results["arms"][bare]["runs"]
    }
    mean = statistics.fmean(
        curves.epochs_to(targets[run["seed"]], run["accuracy"])
        for run in results["arms"][arm]["runs"]
    )
    return "∞" if math.isinf(mean) else f"{mean:.1f}"


def _best(results: dict[str, Any], arm: str) -> str:
    """The mean over seeds of an arm's best accuracy, in %."""
    if arm not in results["arms"]:
        return tables.NOTHING
    runs = results["arms"][arm]["runs"]
    mean = curves.interval([curves.best(run["accuracy"]) for run in runs]).mean
    return f"{100 * mean:.1f}"


def comparison(workload: str) -> str:
    """All optimizers on a workload."""
    results = files.comparison(workload)
    arms = sorted(results["arms"].items(), key=lambda x: _ROLES.index(x[1]["role"]))
    results = {**results, "arms": dict(arms)}
    rows = []
    for row in tables.comparison(results):
        name = row["arm"]
        bare = specs.backbone(name) or ""
        [target] = [key for key in row if key.startswith("epochs to ") and "%" in key]
        rows.append(
            {
                "optimizer": f"`{name}`",
                "best, %": row["best, %"],
                target: row[target],
                "epochs to the bare one's end": _cell(results, name, bare)
                if bare in results["arms"]
                else tables.NOTHING,
                "evidence": row.get("evidence", tables.NOTHING),
                "γ at λ_min": row.get("γ at λ_min", tables.NOTHING),
            }
        )
    return tables.markdown(rows)


def sweep(method: str) -> str:
    """Epochs to the target by learning rate."""
    name = {"robust_sgd": "SGD", "robust_adam": "Adam"}[method]
    titles = {
        "learning rate": "learning rate",
        "bare": name,
        "wrapped": f"{name}, wrapped",
        "control": "sawtooth from 10×",
        "high control": "sawtooth from 20×",
        "bare at the end, %": f"{name} at the end, %",
        "wrapped at the end, %": "wrapped at the end, %",
        "multiplier": "largest multiplier",
    }
    return tables.markdown(
        {title: row[key] for key, title in titles.items()}
        for row in sweep_cells.rows(files.sweep(method))
    )


def narrow() -> str:
    """What 16-bit accumulators change in training."""
    suffix = ":accumulator_dtype=bfloat16"
    rows = []
    for name in files.compared():
        arms = files.comparison(name)["arms"]
        for arm in (arm.removesuffix(suffix) for arm in arms if arm.endswith(suffix)):
            row = {"workload": f"`{name}`", "optimizer": f"`{arm}`"}
            for label, which in (("float32", arm), ("bfloat16", arm + suffix)):
                ends = [100 * run["accuracy"][-1] for run in arms[which]["runs"]]
                spread = statistics.stdev(ends)
                row[label] = f"{statistics.mean(ends):.1f} ± {spread:.1f}"
            rows.append(row)
    return tables.markdown(rows, texts=2)


def seeds(*workloads: str) -> str:
    """The number of seeds of the comparisons, and which have another."""
    names = workloads or files.compared()
    counts = {name: len(files.comparison(name)["seeds"]) for name in names}
    usual = statistics.mode(counts.values())
    others = [f"`{name}`: {n}" for name, n in counts.items() if n != usual]
    return f"{usual} seeds" + (f" ({', '.join(others)})" if others else "")


def trials() -> str:
    """The number of learning rates that were tried to tune one."""
    return _span(
        len(files.read(str(path.relative_to(files.RESULTS)))["trials"])
        for path in files.RESULTS.glob("compare/*/tuned/*.json")
    )


def _span(counts: Iterable[int]) -> str:
    counts = list(counts)
    low, high = min(counts), max(counts)
    return f"{low}" if low == high else f"{low} to {high}"


def rate(arm: str) -> str:
    """The learning rate of an arm, the same on all workloads that have it.

    Raises:
      ValueError: it is not the same.
    """
    compared = [files.comparison(name)["arms"] for name in files.compared()]
    found = {x[arm]["options"]["learning_rate"] for x in compared if arm in x}
    if not found:
        raise KeyError(arm)
    if len(found) > 1:
        raise ValueError(f"the learning rate of {arm} must be one, it is {found}")
    return f"{found.pop():g}"


def setting(workload: str, key: str) -> str:
    """What the comparison on a workload says of itself; of lists, how many."""
    value = files.comparison(workload)[key]
    return str(len(value) if isinstance(value, list) else value)


def target(workload: str) -> str:
    """The target of the comparison on a workload, in %."""
    return f"{100 * curves.cutoff(files.comparison(workload)):.1f}"


def best(workload: str, arm: str) -> str:
    """The mean over seeds of the best accuracy, in %."""
    results = files.comparison(workload)
    if arm not in results["arms"]:  # in a table there may be none
        raise KeyError(arm)
    return _best(results, arm)


def sweep_setting(method: str, key: str) -> str:
    """The number of seeds or epochs of a sweep, or its target in %."""
    found = files.sweep(method)
    first = found["cells"][0]
    return {
        "seeds": str(len(found["seeds"])),
        "epochs": str(first["epochs"]),
        "target": f"{100 * first['target']:.1f}",
    }[key]
