"""Notebooks are kept without outputs; running them is a job of its own."""

import json
import pathlib

import pytest

NOTEBOOKS = sorted((pathlib.Path(__file__).parent.parent / "notebooks").glob("*.ipynb"))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_stripped_and_closing_with_assertions(path):
    code = [
        c for c in json.loads(path.read_text())["cells"] if c["cell_type"] == "code"
    ]
    assert all(c["outputs"] == [] and c["execution_count"] is None for c in code)
    assert "assert " in "".join(code[-1]["source"])
