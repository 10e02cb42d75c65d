"""Where results and pages are."""

import json
import pathlib
from typing import Any

from benchmarks.workloads import WORKLOADS

ROOT = pathlib.Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "results"


def read(path: str) -> dict[str, Any]:
    """A file of the results."""
    return json.loads((RESULTS / path).read_text())


def comparison(workload: str) -> dict[str, Any]:
    """The comparison on a workload."""
    return read(f"compare/{workload}/results.json")


def compared() -> list[str]:
    """The workloads of which there is a comparison, in the order of ``list``."""
    found = {path.parent.name for path in RESULTS.glob("compare/*/results.json")}
    return [name for name in WORKLOADS if name in found]


def sweep(method: str) -> dict[str, Any]:
    """The sweep of a method over learning rates."""
    return read(f"sweep/{method}/digits_mlp/sweep.json")
