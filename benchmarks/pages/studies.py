"""Tables and values of the workloads, the estimators and the testbed."""

import statistics
from typing import Any

from flax import nnx

from benchmarks.analysis import tables
from benchmarks.models import parameter_count
from benchmarks.pages import files
from benchmarks.probes.estimators import CONTROL, LIMIT
from benchmarks.workloads import WORKLOADS, Workload
from ctagd_optax import testbed


def workloads() -> str:
    """The workloads, with the sizes of their networks."""

    def parameters(work: Workload) -> int:
        stand_in = work.stand_in()
        return parameter_count(
            nnx.eval_shape(lambda: work.model(stand_in, rngs=nnx.Rngs(0)))
        )

    return tables.markdown(
        (
            {
                "workload": f"`{work.name}`",
                "what": work.description,
                "parameters": f"{parameters(work):,}",
                "batch": work.batch_size,
                "epochs": work.epochs,
                "target": f"{work.target:.1%}",
            }
            for work in WORKLOADS.values()
        ),
        texts=2,
    )


def _estimated() -> list[dict[str, Any]]:
    """The long runs with the paper's momentum."""
    return [
        row
        for row in files.read("estimators.json")["rows"]
        if row["momentum"] == 0.85 and row["steps"] >= 100
    ]


def estimators() -> str:
    """Errors of the estimators by noise, after each number of steps."""
    rows = _estimated()

    def cell(name: str, problem: str, noise: float) -> str:
        return " / ".join(
            f"{row['error'][name]:.2f}" if name in row["error"] else tables.NOTHING
            for row in rows
            if (row["problem"], row["noise"]) == (problem, noise)
        )

    columns = {
        **{
            f"quadratic, noise {noise:g}": ("quadratic", noise)
            for noise in (0, 0.1, 1, 10)
        },
        **{f"network, batch {batch}": ("network", batch) for batch in (1797, 64, 8)},
    }
    names = dict.fromkeys(name for row in rows for name in row["error"])
    return tables.markdown(
        {
            "estimator": name if name in (CONTROL, LIMIT) else f"`{name}`",
            **{title: cell(name, *where) for title, where in columns.items()},
        }
        for name in names
    )


def against_secant() -> str:
    """How many times smaller errors are than the secant's where there is noise."""
    noisy = [row for row in _estimated() if row["noise"] not in (0, 1797)]

    def times(name: str, problems: tuple[str, ...]) -> str:
        ratios = [
            row["error"]["secant()"] / row["error"][name]
            for row in noisy
            if row["problem"] in problems
        ]
        low, high = min(ratios), max(ratios)
        return f"{statistics.median(ratios):.1f} ({low:.1f} to {high:.1f})"

    return tables.markdown(
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


def estimator_steps() -> str:
    """The numbers of steps in the table of estimators."""
    return " / ".join(map(str, sorted({row["steps"] for row in _estimated()})))


def landscapes() -> str:
    """The testbed's table."""
    return testbed.markdown(files.read("testbed/table.json"))


def claims() -> str:
    """What the testbed says of the paper's claims and ours, as a list."""
    data = files.read("testbed/table.json")
    return "\n".join(f"- {claim}" for claim in data["claims"] + data["controls"])


def tuning_budget() -> str:
    """What every method of the testbed's table had to find its learning rate."""
    return files.read("testbed/table.json")["tuning"]["budget"]


def agreement() -> str:
    """How many numbers agree with the paper's, for each seed of landscapes."""
    *first, last = (
        files.read(f"testbed/{name}.json")["agreement"].split(" numbers")[0]
        for name in ("table", "table-seed1", "table-seed2")
    )
    return f"{', '.join(first)} and {last}"
