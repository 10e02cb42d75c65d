"""Writes README.md and pages of docs, with their pictures, from benchmarks/results.

Templates are in ``benchmarks/pages/templates``, under the names of the pages. One
whose name has ``WORKLOAD`` in it makes a page for each workload that was compared.
"""

import functools
import pathlib

from benchmarks.analysis import cost_plots, plots, sweep_plots
from benchmarks.pages import costs, files, render, savings, studies
from benchmarks.pages.files import RESULTS, ROOT, read
from ctagd_optax.testbed.files import replacing

__all__ = ["FUNCTIONS", "RESULTS", "ROOT", "TEMPLATES", "read", "sources", "write"]

TEMPLATES = pathlib.Path(__file__).parent / "templates"

FUNCTIONS: render.Functions = {
    "table": {
        "expect": savings.expect,
        "controls": savings.controls,
        "peers": savings.peers,
        "comparison": savings.comparison,
        "sweep": savings.sweep,
        "narrow": savings.narrow,
        "costs": costs.summary,
        "memory": costs.memory,
        "compile": costs.compiling,
        "steps": costs.steps,
        "train": costs.training,
        "traffic": costs.traffic,
        "chip": costs.chip,
        "workloads": studies.workloads,
        "estimators": studies.estimators,
        "against_secant": studies.against_secant,
        "testbed": studies.landscapes,
        "claims": studies.claims,
    },
    "value": {
        "seeds": savings.seeds,
        "trials": savings.trials,
        "rate": savings.rate,
        "setting": savings.setting,
        "target": savings.target,
        "best": savings.best,
        "sweep": savings.sweep_setting,
        "step": costs.step,
        "train": costs.train,
        "closing": costs.closing,
        "growth": costs.growth,
        "sizes": costs.sizes,
        "epoch_steps": costs.epoch_steps,
        "estimator_steps": studies.estimator_steps,
        "tuning_budget": studies.tuning_budget,
        "agreement": studies.agreement,
    },
}


def sources() -> dict[pathlib.Path, tuple[pathlib.Path, str]]:
    """For each page, by its path, its template and the workload that it is of."""
    found = {}
    for template in sorted(TEMPLATES.rglob("*.md")):
        name = str(template.relative_to(TEMPLATES))
        for workload in files.compared() if "WORKLOAD" in name else [""]:
            found[ROOT / name.replace("WORKLOAD", workload)] = template, workload
    return found


def page(template: pathlib.Path, workload: str = "") -> str:
    """The page that a template makes.

    Args:
      template: the file.
      workload: stands for ``WORKLOAD`` in it.

    Returns:
      The page, with a comment that says where it comes from.

    Raises:
      ValueError: see :func:`benchmarks.pages.render.render`.
    """
    name = template.relative_to(TEMPLATES)
    text = template.read_text()
    if workload:
        text = text.replace("WORKLOAD", workload)
    text = render.render(text, FUNCTIONS, str(name))
    note = (
        f"<!-- Made from benchmarks/pages/templates/{name} by "
        "`python -m benchmarks report`. Edit that. -->\n"
    )
    # What shows a README elsewhere may not know comments: there it comes last.
    return f"{text}\n{note}" if name.name == "README.md" else f"{note}\n{text}"


def write() -> None:
    """Writes all pages and their pictures, or none if a template is wrong."""
    made = {path: page(*source) for path, source in sources().items()}
    for path, text in made.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as temporary:
            temporary.write_text(text)
        print(f"Wrote {path.relative_to(ROOT)}")
    for picture in pictures():
        print(f"Wrote {picture.relative_to(ROOT)}")


def pictures() -> list[pathlib.Path]:
    """Draws the pictures of the pages, for light and for dark ones."""
    measured = read("overhead.json")
    sweeps = [files.sweep(method) for method in ("robust_sgd", "robust_adam")]
    draw = {
        "any-learning-rate": functools.partial(sweep_plots.plot_sweeps, sweeps),
        "compile-time": functools.partial(cost_plots.plot_compile, measured["compile"]),
        "step-time": functools.partial(cost_plots.plot_steps, measured["steps"]),
        "train-step": functools.partial(cost_plots.plot_train, measured["train"]),
    }
    for name in files.compared():
        draw[f"curves/{name}"] = functools.partial(plots.plot, files.comparison(name))
    images = ROOT / "docs" / "images"
    return [
        one(images / f"{name}{'-dark' * dark}.png", dark=dark)
        for name, one in draw.items()
        for dark in (False, True)
    ]
