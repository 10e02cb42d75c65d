"""The site shows every public name, and its links and pictures lead somewhere."""

import importlib.util
import json
import pathlib
import re

import pytest

import ctagd_optax

DOCS = pathlib.Path(__file__).parent.parent / "docs"
PAGES = sorted(DOCS.rglob("*.md"))


@pytest.fixture(scope="module")
def conf():
    spec = importlib.util.spec_from_file_location("docs_conf", DOCS / "conf.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_api_has_every_public_name_once():
    blocks = re.findall(
        r"^\.\. autosummary::\n(?:   :.*\n)+\n((?:   \w+\n)+)",
        (DOCS / "api.md").read_text(),
        flags=re.MULTILINE,
    )
    names = "".join(blocks).split()
    assert sorted(names) == sorted(ctagd_optax.__all__)


def test_links_out_of_docs_lead_to_the_repository(conf):
    text = (
        "[a](../benchmarks/arms.py#L1) [`b`](../tests) [c](faq.md) [d](#here) "
        "[e](https://optax.dev) [f](../missing.md) ![g](../tests)"
    )
    assert conf.out_of_docs(text, DOCS / "page.md") == (
        f"[a]({conf.REPOSITORY}/blob/main/benchmarks/arms.py#L1) "
        f"[`b`]({conf.REPOSITORY}/tree/main/tests) [c](faq.md) [d](#here) "
        "[e](https://optax.dev) [f](../missing.md) ![g](../tests)"
    )
    inside = conf.out_of_docs("[n](../notebooks/05_testbed.ipynb)", DOCS / "page.md")
    assert inside == "[n](gallery/05_testbed.ipynb)"
    deeper = conf.out_of_docs("[a](../../LICENSE) [b](../faq.md)", DOCS / "r" / "p.md")
    assert deeper == f"[a]({conf.REPOSITORY}/blob/main/LICENSE) [b](../faq.md)"


def test_notebooks_are_checked_where_the_site_runs_them(conf):
    path = conf.NOTEBOOKS / "03_inside_ct_agd.ipynb"
    *cells, last = json.loads(conf.for_the_gallery(path))["cells"]
    assert "notebook_checks.check('03_inside_ct_agd'" in last["source"]
    assert last["metadata"]["tags"] == ["remove-cell"]
    text = "".join("".join(cell["source"]) for cell in cells)
    assert "](../paper.md)" in text
    assert "](04_is_it_the_curvature.ipynb)" in text
    assert "../docs/" not in text


def test_the_gallery_has_a_picture_of_each_notebook(conf):
    text = conf.with_pictures((DOCS / "gallery.md").read_text())
    assert text.count("<img ") == len(list(conf.NOTEBOOKS.glob("*.ipynb")))
    made = conf.with_pictures(
        "## [A](gallery/01_a.ipynb)\n\ntext [b](gallery/01_a.ipynb)"
    )
    assert made == (
        "## [A](gallery/01_a.ipynb)\n\n"
        '<a href="gallery/01_a.html"><img alt="" src="images/gallery/01_a.png"></a>'
        "\n\ntext [b](gallery/01_a.ipynb)"
    )


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_picture_has_a_light_and_a_dark_form(conf, page):
    text = page.read_text()
    made = conf.two_pictures(text)
    assert "<picture>" not in made
    for form in ("light", "dark"):
        found = re.findall(rf"!\[[^\]]+\]\(([^)]+)\){{.only-{form}}}", made)
        assert len(found) == text.count("<picture>")
        assert all(("-dark" in path) == (form == "dark") for path in found)
