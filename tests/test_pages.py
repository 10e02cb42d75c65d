"""README and docs do what they say."""

import contextlib
import io
import json
import pathlib
import re
import tomllib

import numpy as np
import pytest
from matplotlib import image

from benchmarks import __main__ as benchmarks_line
from benchmarks import specs, workloads
from benchmarks.pages import report
from ctagd_optax.testbed import __main__ as command_line

ROOT = pathlib.Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
pages = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
MADE = report.sources()
LINKING = [
    *PAGES,
    *sorted(ROOT.glob("[!R]*.md")),
    *sorted((ROOT / "benchmarks" / "results").rglob("*.md")),
    *sorted((ROOT / "notebooks").glob("*.ipynb")),
]


def without_code(text):
    return re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)


@pages
def test_python_blocks_run_and_print_what_is_shown(
    page, default_jax, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    names, printed = {}, ""
    blocks = re.findall(r"```(python|text)\n(.*?)```", page.read_text(), re.DOTALL)
    for language, block in blocks:
        if language == "python":
            output = io.StringIO()
            with contextlib.redirect_stdout(output):
                exec(compile(block, page.name, "exec"), names)
            printed = output.getvalue()
            continue
        # Another machine rounds otherwise, and a run may end a step sooner or later.
        number = re.compile(r"-?\d+\.\d+")
        assert number.sub("#", printed) == number.sub("#", block)
        ours, theirs = (list(map(float, number.findall(t))) for t in (printed, block))
        assert ours == pytest.approx(theirs, rel=0.05, abs=0.05)
    for shown in re.findall(r"!\[.+\]\((images/.+\.png)\)", page.read_text()):
        ours, theirs = map(
            image.imread, (pathlib.Path(shown).name, page.parent / shown)
        )
        # A line may be drawn a pixel higher; another run differs by 0.025.
        assert np.abs(ours - theirs).mean() < 0.01


@pages
def test_shell_blocks_name_what_exists(page):
    makefile = (ROOT / "Makefile").read_text()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for block in re.findall(r"```bash\n(.*?)```", page.read_text(), re.DOTALL):
        for line in block.splitlines():
            if line.startswith("make "):
                assert re.search(rf"^{line[5:]}:", makefile, flags=re.MULTILINE), line
            for extra in re.findall(r"\[(\w+)\]", line):
                assert extra in project["optional-dependencies"]
            if line.startswith("python -m ctagd_optax.testbed"):
                with pytest.raises(SystemExit, match=r"^0$"):
                    command_line.main([line.split()[3], "--help"])
            if line.startswith("python -m benchmarks "):
                options = benchmarks_line.parser().parse_args(line.split()[3:])
                if line.split()[3] == "train":
                    assert specs.arm(options.optimizer)
                    assert workloads.workload(options.workload)


@pytest.mark.parametrize("page", MADE, ids=lambda page: page.stem)
def test_pages_are_those_of_the_templates_and_results(page):
    made = report.page(*MADE[page])
    assert page.read_text() == made, "run python -m benchmarks report"


def test_no_page_of_results_is_left_over():
    assert {page for page in PAGES if page.parent.name == "results"} <= set(MADE)
    for page in set(PAGES) - set(MADE):
        assert "python -m benchmarks report`. Edit" not in page.read_text()


@pytest.mark.parametrize("page", LINKING, ids=lambda page: page.stem)
def test_links_lead_somewhere(page):
    text = page.read_text()
    if page.suffix == ".ipynb":
        cells = json.loads(text)["cells"]
        cells = ["".join(c["source"]) for c in cells if c["cell_type"] == "markdown"]
        text = "\n\n".join(cells)
    pictures = re.findall(r'(?:src|srcset)="(?!https?:)([^"]+)"', text)
    for target in re.findall(r"\]\((?!https?:)([^)]+)\)", text) + pictures:
        name, _, anchor = target.partition("#")
        path = page.parent / name if name else page
        assert path.exists(), target
        if anchor:
            titles = re.findall(
                r"^#+ (.+)", without_code(path.read_text()), flags=re.MULTILINE
            )
            slugs = [
                re.sub(r"[^\w\- ]", "", t.lower()).replace(" ", "-") for t in titles
            ]
            assert anchor in slugs, target


def test_the_readme_shows_the_two_commands_and_the_robust_method_first():
    text = (ROOT / "README.md").read_text()
    assert {
        "make demo",
        "make test",
        "pip install .  # in a checkout of this repository",
    } <= set(text.splitlines())
    assert len(text.splitlines()) <= 150
    assert text.index("robust_ct_agd") < text.index("ct_sgd")


def test_the_results_fit_one_page():
    assert len((ROOT / "docs" / "results.md").read_text().splitlines()) <= 300


def test_every_composition_row_is_a_test():
    text = (ROOT / "docs" / "composition.md").read_text()
    rows = re.findall(r"\| `(test_\w+)` \|", text)
    tests = (ROOT / "tests" / "test_composition.py").read_text()
    defined = re.findall(r"^def (test_\w+)", tests, flags=re.MULTILINE)
    assert sorted(rows) == sorted(defined)
