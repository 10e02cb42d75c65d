"""Tables and values of what the methods cost."""

from collections.abc import Iterable
from typing import Any

from benchmarks.analysis import tables
from benchmarks.pages import files
from benchmarks.probes import overhead

_PAPER, _OURS = "ct_agd(sgd)", "robust_ct_agd(sgd)"


def _measured(part: str) -> list[dict[str, Any]]:
    return files.read("overhead.json")[part]


def summary() -> str:
    """The main figures of both methods."""
    state = {row["options"]: row for row in _measured("memory")}
    compiled = {
        row["optimizer"]: row["seconds"]
        for row in _measured("compile")
        if row["tensors"] == overhead.MANY
    }
    rows = [
        {
            "method": f"`{method}`",
            "state, bytes a parameter": state[method]["state bytes per parameter"],
            "optimizer's part of a step, × Adam's": step(name, "adam"),
            "whole step of training, × SGD's": train(arm),
            f"compiling {overhead.MANY} tensors, × Adam's": (
                f"{compiled[name] / compiled['adam']:.1f}"
            ),
        }
        for method, name, arm in (
            ("robust_ct_agd", _OURS, "robust_sgd"),
            ("ct_agd", _PAPER, "ct_sgd"),
        )
    ]
    return tables.markdown(rows)


def memory() -> str:
    """Bytes per parameter by option."""
    return tables.markdown(
        {**row, "options": f"`{row['options']}`"} for row in _measured("memory")
    )


def compiling() -> str:
    """Time to compile a step by the number of tensors."""
    found: dict[str, dict[int, float]] = {}
    for row in _measured("compile"):
        found.setdefault(row["optimizer"], {})[row["tensors"]] = row["seconds"]
    rows = []
    for name, times in found.items():
        row = {"optimizer": f"`{name}`"}
        for tensors, seconds in times.items():
            ratio = seconds / found["adam"][tensors]
            row[f"{tensors} tensors"] = f"{seconds:.2g} s ({ratio:.1f}×)"
        rows.append(row)
    return tables.markdown(rows)


def steps() -> str:
    """Time of a step, and relative to Adam."""
    found = _measured("steps")
    rows = []
    for name in (name for name in found[0]["milliseconds"] if "closing" not in name):
        row = {"optimizer": f"`{name}`"}
        for entry in found:
            one = entry["tensors"] == 1
            if one and entry["parameters"] < _LARGE:
                continue
            title = f"{entry['parameters']:,}" if one else f"{entry['tensors']} × 32×32"
            times = entry["milliseconds"]
            row[title] = (
                f"{times[name]:.3g} ms ({times[name] / times['adam']:.2f}×)"
                if name in times
                else tables.NOTHING
            )
        rows.append(row)
    return tables.markdown(rows)


# From so many parameters on, the time of a step is not that of starting it.
_LARGE = 10**6


def step(name: str, other: str) -> str:
    """Times of a step in those of another optimizer, over large single tensors."""
    return _span(
        row["milliseconds"][name] / row["milliseconds"][other]
        for row in _measured("steps")
        if row["tensors"] == 1 and row["parameters"] >= _LARGE
    )


def train(arm: str) -> str:
    """Times of a whole step of training in those of bare SGD, over the networks."""
    rows = _measured("train")
    return _span((r["milliseconds"][arm] / r["milliseconds"]["sgd"] for r in rows), 2)


def _span(ratios: Iterable[float], digits: int = 1) -> str:
    ratios = list(ratios)
    low, high = (f"{x:.{digits}f}" for x in (min(ratios), max(ratios)))
    return low if low == high else f"{low} to {high}"


def closing(unit: str) -> str:
    """How much longer a step of ct_agd is that closes an epoch, for a large tensor.

    Args:
      unit: "parameters" of the tensor, the extra "ms", or those in "steps".
    """
    entry = next(r for r in _measured("steps") if r["parameters"] == 25 * 10**6)
    times = entry["milliseconds"]
    extra = times[f"{_PAPER}, closing"] - times[_PAPER]
    return {
        "parameters": f"{entry['parameters']:,}",
        "ms": f"{extra:.0f}",
        "steps": f"{extra / times[_PAPER]:.1f}",
    }[unit]


def growth(name: str, closing: str = "") -> str:
    """The power of the size that the time of a step, or a closing one, grows with."""
    label = f"{name}, {closing}" if closing else name
    return f"{overhead.exponent(_measured('steps'), label):.2f}"


def sizes(part: str) -> str:
    """The smallest and largest single tensor of a part of the measurements."""
    found = [row["parameters"] for row in _measured(part) if row.get("tensors", 1) == 1]
    return f"{min(found):,} to {max(found):,}"


def training() -> str:
    """Whole steps of training against bare SGD."""
    rows = []
    for entry in _measured("train"):
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
    return tables.markdown(rows)


def epoch_steps() -> str:
    """The steps of the epoch in the table of training."""
    return str(overhead.EPOCH)


def traffic() -> str:
    """What XLA reads and writes for the largest tensor."""
    found = _measured("traffic")
    largest = max(row["parameters"] for row in found)
    return tables.markdown(
        {
            "optimizer": f"`{row['optimizer']}`",
            "vectors, a step": row["vectors, a step"],
            "with the epoch's end": row["vectors by XLA, closing"],
            "operations per parameter, with the epoch's end": row[
                "operations by XLA, closing"
            ],
        }
        for row in found
        if row["parameters"] == largest
    )


def _vectors(name: str) -> int:
    """What a step of an optimizer reads and writes."""
    rows = _measured("traffic")
    return next(r["vectors, a step"] for r in rows if r["optimizer"] == name)


def chip(parameters: str, chips: str, tensors: str, bandwidth: str) -> str:
    """The formulas worked out for one of several chips, bandwidth in bytes a second."""
    vector = 4 * float(parameters) / int(chips)
    return tables.markdown(
        {
            "a chip": f"`{name}`",
            "state": f"{state * vector / 1e6:.0f} MB",
            "traffic of a step": f"{moved * vector / 1e9:.1f} GB",
            "time of it": f"{1e3 * moved * vector / float(bandwidth):.1f} ms",
            "collectives of a step": f"{4 * scalars * int(tensors) / 1e3:.1f} kB",
        }
        for name, state, scalars in (("robust_ct_agd", 2, 8), ("ct_agd", 5, 1))
        for moved in [_vectors(f"{name}(sgd)") - _vectors("sgd")]
    )
