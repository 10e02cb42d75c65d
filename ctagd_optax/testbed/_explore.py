"""One self-contained page to walk through a run, step by step."""

import dataclasses
import json
from collections.abc import Sequence
from importlib import resources
from typing import Any

import numpy as np

from ctagd_optax.testbed import style
from ctagd_optax.testbed._landscape import Landscape
from ctagd_optax.testbed._plots import check_installed, check_run, frame
from ctagd_optax.testbed._result import Result


def explore_page(results: Sequence[Result], *, run: int = 0) -> str:
    """Makes a page with everything in it, plotly.js too: it works without a network.

    It is light or dark as the browser's reader likes it.

    Args:
      results: the optimizers to show, on the same landscapes.
      run: which run.

    Returns:
      The HTML text.

    Examples:
      >>> from ctagd_optax import testbed
      >>> page = testbed.explore_page([testbed.run("ct-agd", runs=1)])
      >>> page.startswith("<!doctype html>")
      True
    """
    check_installed("plotly", "the page")
    from plotly.offline import get_plotlyjs

    check_run(results, run)
    template = (
        resources.files("ctagd_optax.testbed")
        .joinpath("explore.html")
        .read_text("utf-8")
    )
    data = json.dumps(page_data(results, run), separators=(",", ":"), allow_nan=False)
    # A "</script>" inside a name would end the script.
    data = data.replace("</", "<\\/")
    return template.replace("/*DATA*/null", data).replace("/*PLOTLY*/", get_plotlyjs())


def page_data(results: Sequence[Result], run: int) -> dict[str, Any]:
    """What the page knows: the landscape's lumps, and each run up to its end.

    The page draws surfaces from the lumps itself, so any snapshot is at hand.
    """
    landscape = results[0].landscape(run)
    cx, cy, half = frame(landscape)
    palette = style.colours([result.name for result in results])
    sizes = style.dot_sizes(len(results), smallest=11.0)
    return {
        "look": {"ink": style.INK, "page": style.PAGE, "low": style.LOW},
        "frame": {"x": cx, "y": cy, "half": half},
        "landscape": _landscape(landscape),
        "start": _rounded(landscape.start),
        "steps": max(int(result.steps[run]) for result in results),
        "optimizers": [
            _optimizer(result, run) | {"colors": colour, "size": size}
            for result, colour, size in zip(results, palette, sizes, strict=True)
        ],
    }


def _landscape(landscape: Landscape) -> dict[str, Any]:
    def sequence(snapshots):
        return {
            field.name: _rounded(getattr(snapshots, field.name), 6)
            for field in dataclasses.fields(snapshots)
        }

    return {
        "quadratic": float(landscape.quadratic),
        "sign": _rounded(landscape.sign),
        "train": sequence(landscape.train),
        "test": sequence(landscape.test),
    }


def _optimizer(result: Result, run: int) -> dict[str, Any]:
    steps = int(result.steps[run])
    data = {
        "name": result.name,
        "rate": None if np.isnan(result.learning_rate) else float(result.learning_rate),
        "status": str(result.status[run]),
        "steps": steps,
        "path": _rounded(result.paths[run, : steps + 1]),
        "loss": _rounded(result.test_loss[run, : steps + 1]),
    }
    if result.internals is not None:
        part = {
            name: values[run, : steps + 1]
            for name, values in result.internals._asdict().items()
        }
        closed = np.flatnonzero(part.pop("closed")).tolist()
        data["internals"] = {name: _rounded(values) for name, values in part.items()}
        data["internals"]["closed"] = closed
    return data


def _rounded(values: Any, digits: int = 4) -> Any:
    """Nested lists, short enough for a page; NaN is null."""
    array = np.round(np.asarray(values, np.float64), digits)
    return _no_nan(array.tolist())


def _no_nan(value: Any) -> Any:
    if isinstance(value, list):
        return [_no_nan(item) for item in value]
    return value if np.isfinite(value) else None
