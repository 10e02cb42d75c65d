"""What can be told of the notebooks without running them.

The site's build runs them, and then what ``notebook_checks`` has for each.
"""

import ast
import json
import pathlib
import re

import pytest

from tests import notebook_checks

ROOT = pathlib.Path(__file__).parent.parent
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
notebooks = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


def cells(path, kind):
    found = json.loads(path.read_text())["cells"]
    return [cell for cell in found if cell["cell_type"] == kind]


def source(path, kind="code"):
    lines = "\n".join("".join(cell["source"]) for cell in cells(path, kind))
    return re.sub(r"^%.*$", "", lines, flags=re.MULTILINE)


@notebooks
def test_stripped_of_outputs(path):
    for cell in cells(path, "code"):
        assert cell["outputs"] == []
        assert cell["execution_count"] is None


@notebooks
def test_cells_are_short_and_assert_nothing(path):
    nodes = list(ast.walk(ast.parse(source(path))))
    assert not any(isinstance(node, ast.Assert) for node in nodes)
    for cell in cells(path, "code"):
        assert len(cell["source"]) <= 42


@notebooks
def test_uses_the_public_api(path):
    text = source(path)
    imported = re.findall(r"^(?:import|from) (\w+)", text, flags=re.MULTILINE)
    assert not {"benchmarks", "tests"} & set(imported)
    assert not re.search(r"(ctagd_optax|testbed|optax)\._", text)


def test_one_look():
    looks = {
        look
        for path in NOTEBOOKS
        for look in re.findall(r"plt\.rcParams\.update\(.*?\n\)", source(path), re.S)
    }
    assert len(looks) == 1


@notebooks
def test_links_lead_somewhere(path):
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", source(path, "markdown")):
        assert (path.parent / target).exists(), target


def test_all_are_checked_and_in_the_gallery():
    names = [path.stem for path in NOTEBOOKS]
    assert names == list(notebook_checks.CHECKS)
    gallery = (ROOT / "docs" / "gallery.md").read_text()
    assert names == re.findall(r"^## .*notebooks/(\w+)\.ipynb\)$", gallery, re.M)
    assert names == re.findall(r"^gallery/(\w+)$", gallery, re.M)
