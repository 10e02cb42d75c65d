"""Writes README.md's tables and RESULTS.md from benchmarks/results."""

import json
import pathlib
import re
import statistics
from typing import Any

from flax import nnx

from benchmarks import contests, findings, plots, tables
from benchmarks.estimators import CONTROL, LIMIT
from benchmarks.models import parameter_count
from benchmarks.workloads import WORKLOADS, Workload
from ctagd_optax import testbed
from ctagd_optax.testbed.files import replacing

ROOT = pathlib.Path(__file__).parent.parent
README = ROOT / "README.md"
RESULTS = ROOT / "benchmarks" / "results"
FINDINGS = ROOT / "benchmarks" / "RESULTS.md"


# Arms on digits that tell of the robust method's making, not of CT-AGD.
_VARIANTS = re.compile(r"robust_\w+:|.*:peak=")


# Arms on digits that README's picture shows: those of make demo, and the robust method.
_SHOWN = re.compile(
    r"(sgd|ct_sgd|ct_sgd_no_correction|(schedule|sawtooth)_control|robust_sgd)$"
    r"|sgd@[^+]*$|ct_sgd:"
)


def _digits() -> dict[str, Any]:
    [found] = [
        comparison.results
        for comparison in contests.read(RESULTS / "compare")
        if comparison.results["workload"] == "digits_mlp"
    ]
    return found


def digits() -> str:
    """The comparison on digits, in short."""
    found = _digits()
    rows = [
        {**row, "arm": f"`{row['arm']}`"}
        for row in tables.brief(tables.comparison(found))
        if not _VARIANTS.match(row["arm"])
    ]
    return f"{tables.markdown(rows)}\n\n{tables.caption(found, rows)}"


def draw_digits() -> list[pathlib.Path]:
    """Draws the arms on digits that README speaks of; returns the files."""
    found = _digits()
    path = RESULTS / "compare" / found["workload"] / "readme"
    return plots.plot(found, path, list(filter(_SHOWN.match, found["arms"])))


def memory() -> str:
    """Bytes per parameter by option."""
    rows = [{**row, "options": f"`{row['options']}`"} for row in _overhead()["memory"]]
    return tables.markdown(rows)


def steps() -> str:
    """Time of a step, relative to SGD."""
    sizes = _overhead()["steps"]
    names = next(iter(sizes.values()))["milliseconds"]
    rows = [
        {
            "optimizer": f"`{name}`" if name != "copy" else "a copy of one vector",
            **{
                f"{int(size):,} parameters": f"{entry['milliseconds'][name]:.2f} ms "
                f"({entry['against sgd'][name]:.1f}× sgd)"
                for size, entry in sizes.items()
            },
        }
        for name in names
    ]
    ratios = "; ".join(
        f"at {int(size):,} parameters "
        f"{entry['against the slowest of adan and prodigy']:.2f}× the slower of adan "
        f"and prodigy, and {entry['against the bytes it must move']:.2f}× the time to "
        "move its bytes once"
        for size, entry in sizes.items()
    )
    return f"{tables.markdown(rows)}\n\n`ct_agd(sgd)` takes {ratios}."


def boundary() -> str:
    """Time to close an epoch."""
    parts = [
        f"{entry['milliseconds']['close_epoch']:.0f} ms for {int(size):,} parameters, "
        f"{entry['times faster']:.0f} times faster than with `jnp.quantile`"
        for size, entry in _overhead()["boundary"].items()
    ]
    imports = _overhead()["import_milliseconds"]
    return (
        f"Closing an epoch takes {'; '.join(parts)}. `import ctagd_optax` takes "
        f"{imports['ctagd_optax']:.0f} ms, `import optax` {imports['optax']:.0f} ms."
    )


def estimators() -> str:
    """Accuracy of the estimators at the paper's momentum, and against the secant."""
    conditions = json.loads((RESULTS / "estimators.json").read_text())["rows"]
    rows = [row for row in conditions if row["momentum"] == 0.85]
    long = [row for row in rows if row["steps"] >= 100]
    noisy = [row for row in rows if row["noise"] not in (0, 1797)]

    def cell(name: str, problem: str, noise: float) -> str:
        return " / ".join(
            f"{row['error'][name]:.2f}" if name in row["error"] else tables.NOTHING
            for row in long
            if (row["problem"], row["noise"]) == (problem, noise)
        )

    def times(name: str, rows: list[dict]) -> str:
        ratios = [row["error"]["secant()"] / row["error"][name] for row in rows]
        enough = sum(ratio >= 3 for ratio in ratios)
        return (
            f"{statistics.median(ratios):.1f} ({min(ratios):.1f} to "
            f"{max(ratios):.1f}), {enough} of {len(ratios)}"
        )

    def covered(name: str) -> float:
        return statistics.fmean(
            row["covered"][name] for row in noisy if row["steps"] >= 100
        )

    def shrinking(name: str) -> str:
        changes = [
            row["error"][f"{name}()"] - row["error"][f"{name}(shrink=False)"]
            for row in conditions
        ]
        smaller, larger = (sum(sign * x > 0.005 for x in changes) for sign in (-1, 1))
        return f"{smaller} and {larger} (`{name}()`)"

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
    groups = {
        f"{title}, {length}": [
            row
            for row in noisy
            if (row["problem"] == "network") == (title == "network")
            and (row["steps"] >= 100) == (length == "100 or 400 steps")
        ]
        for title in ("quadratics", "network")
        for length in ("100 or 400 steps", "10 steps")
    }
    against = tables.markdown(
        {
            "estimator": f"`{name}`",
            **{title: times(name, group) for title, group in groups.items()},
            "all": times(name, noisy),
            "within 2 errors": f"{100 * covered(name):.0f} %",
        }
        for name in ("instrumental()", "regression()", "same_batch()", "hutchinson()")
    )
    return (
        f"{table}\n\nMedian |log10(ĥ / h)| of the clamped diagonal after 100 / 400 "
        "steps of SGD with momentum 0.85: on rotated quadratics, far from the minimum, "
        "and on a small network's true Hessian. An estimate without evidence counts as "
        "λ_min = 0.01. How many times smaller the error is than that of `secant()` "
        "where there is noise, on quadratics far from the minimum and near it: the "
        "median over the conditions, the range, and in how many of them it is at least "
        "3. Near the minimum the levels of noise are one experiment in other units, "
        "but for the secant's ε. *Within 2 errors*: how often the truth is within two "
        f"standard errors after 100 or 400 steps.\n\n{against}\n\nOf "
        f"{len(conditions)} conditions of all momenta, to lean on the tensor makes the "
        f"error smaller and larger, by over 0.005, in {shrinking('instrumental')} and "
        f"{shrinking('regression')}."
    )


def robust() -> str:
    """Epochs of the robust method, its backbones and controls."""
    return findings.robust_table(contests.read(RESULTS / "compare"))


def testbed_table() -> str:
    """The testbed's table, and what it says of the paper's."""
    data, *others = (
        json.loads((RESULTS / "testbed" / f"{name}.json").read_text())
        for name in ("table", "table-seed1", "table-seed2")
    )
    paper_mode = json.loads((RESULTS / "testbed" / "table-paper.json").read_text())
    [inner] = [
        row["ours"]["steps"]
        for row in paper_mode["rows"]
        if (row["optimizer"], row["setting"]) == ("L-BFGS", "stationary")
    ]
    seconds, runs = data["seconds"], len(data["rows"]) * data["runs"]
    seeds = " and ".join(other["agreement"].split(" numbers")[0] for other in others)
    parts = [
        "Ours, with the paper's numbers in brackets: means ± 95 % intervals over the "
        "runs that converged. Every learning rate comes from the same search "
        f"({data['tuning']['budget']} per setting). After {seconds['compile']:.0f} s "
        f"of compilation the search takes {seconds['tuning']:.1f} s and all {runs} "
        f"runs {seconds['runs']:.1f} s, {seconds['runs'] / runs:.4f} s a run; the "
        "paper has 0.33 to 0.54 s a run.",
        testbed.markdown(data),
        data["agreement"],
        "Take these counts lightly: the intervals are wide, so to agree is easy, and "
        f"other landscapes change them: with `--seed 1` and `--seed 2`, {seeds} agree.",
        "The paper's claims on the number of steps, and ours against the control, "
        "tested in pairs on the same landscapes:",
        "\n".join(f"- {claim}" for claim in data["claims"] + data["controls"]),
        "One constant can be read off the paper: with its own L-BFGS, 20 inner "
        f"iterations a step, we need {inner['mean']:.2f} ± {inner['half']:.2f} steps "
        "on stationary landscapes, and the paper 51.07 ± 0.13: one step, and a "
        "patience of fifty.",
    ]
    return "\n\n".join(parts)


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
    return tables.markdown(rows, texts=2)


def _overhead() -> dict:
    return json.loads((RESULTS / "overhead.json").read_text())


BLOCKS = {
    "digits": digits,
    "estimators": estimators,
    "robust": robust,
    "memory": memory,
    "steps": steps,
    "boundary": boundary,
    "testbed": testbed_table,
    "workloads": workload_table,
}


def render(text: str) -> str:
    """The README's text with every generated block made anew."""
    for name, make in BLOCKS.items():
        pattern = rf"(<!-- begin {name} -->\n).*?(<!-- end {name} -->)"
        if not re.search(pattern, text, flags=re.DOTALL):
            raise ValueError(f"README.md has no block {name!r}")
        body = make()
        text = re.sub(
            pattern, lambda m, b=body: f"{m[1]}{b}\n{m[2]}", text, flags=re.DOTALL
        )
    return text


def write() -> None:
    """Rewrites README.md and RESULTS.md, with their pictures."""
    for path, text in (
        (README, render(README.read_text())),
        (FINDINGS, findings.page(RESULTS)),
    ):
        with replacing(path) as temporary:
            temporary.write_text(text)
        print(f"Wrote {path.relative_to(ROOT)}")
    for path in (*draw_digits(), *findings.draw_profile(RESULTS)):
        print(f"Wrote {path.relative_to(ROOT)}")
