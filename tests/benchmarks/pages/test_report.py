"""The blocks of pages, and that what is committed can be rendered."""

import json

import pytest

from benchmarks import specs
from benchmarks.analysis import cost_plots, plots
from benchmarks.pages import report
from tests.benchmarks.handmade import comparison, run, write


@pytest.fixture
def results(tmp_path, monkeypatch):
    monkeypatch.setattr(report, "RESULTS", tmp_path)
    return tmp_path


def test_only_the_blocks_of_a_page_are_made_anew(monkeypatch):
    made = []
    monkeypatch.setattr(
        report, "BLOCKS", {x: lambda x=x: made.append(x) or f"new {x}" for x in "abc"}
    )
    page = (
        "# Title\n<!-- begin b -->\nold\n\nlines\n<!-- end b -->\ntext\n"
        "<!-- begin a -->\n<!-- end a -->\n"
    )
    assert report.render(page) == (
        "# Title\n<!-- begin b -->\nnew b\n<!-- end b -->\ntext\n"
        "<!-- begin a -->\nnew a\n<!-- end a -->\n"
    )
    assert made == ["b", "a"]
    assert report.render("# No block\n") == "# No block\n"


@pytest.mark.parametrize(
    ("page", "message"),
    [
        ("<!-- begin x -->\n<!-- end x -->\n", "unknown block 'x'; there are boundary"),
        ("<!-- begin sweep -->\ntext\n", "block 'sweep' must end with <!-- end sweep"),
    ],
)
def test_bad_blocks(page, message):
    with pytest.raises(ValueError, match=message):
        report.render(page)


def test_every_page_can_be_read():
    assert report.PAGES[0].name == "README.md"
    assert all(page.is_file() for page in report.PAGES)


@pytest.mark.parametrize("name", report.BLOCKS)
def test_every_block_is_made_of_what_is_committed(name, default_jax):
    text = report.BLOCKS[name]()
    assert text.strip() == text
    assert "nan" not in text
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert len(rows) > 3 or name == "boundary"


def test_committed_arms_are_named_by_what_they_are():
    for path in sorted(report.RESULTS.glob("*/**/results.json")):
        for name, arm in json.loads(path.read_text())["arms"].items():
            made = specs.arm(name)
            assert made.name == name
            assert arm["options"] == {"name": name, **made.options}


def test_expect(results):
    for name, best in (("digits_mlp", 1.0), ("cora_graphsage", 0.8)):
        found = comparison(
            name,
            sgd=("backbone", run(0.5, 0.96, 1.0), run(0.5, 0.6, 0.96, seed=1)),
            adam=("backbone", run(0.5, 0.5), run(0.5, 0.5, seed=1)),
            robust_sgd=("ours", run(best), run(best, seed=1)),
            ct_sgd=("paper", run(0.1), run(0.1, seed=1)),
            **{"sgd@1+average": ("tuned", run(0.1), run(0.1, seed=1))},
            sgd__2=("tuned", run(0.1, 1.0), run(0.1, 0.96, seed=1)),
        )
        write(results / "compare" / name, found, dict.fromkeys(found["arms"], 1.0))
    assert report.compared() == ["digits_mlp", "cora_graphsage"]
    title, _, digits, cora, _, caption = report.expect().splitlines()
    cells = [cell.strip() for cell in title.split("|")[1:-1]]
    assert cells[:3] == ["workload", "SGD", "SGD, robust"]
    assert cells[4:6] == ["SGD, tuned", "Adam"]
    # Each seed has its own target: 99 % of where bare SGD ends with it.
    assert digits == "| `digits_mlp` | 3.0 | 1.0 | ∞ | 2.0 | 1.0 | – | – | – |"
    assert cora.startswith("| `cora_graphsage` | 3.0 | ∞ |")
    assert "mean of 2 seeds" in caption


def test_a_comparison_has_all_arms_in_the_order_of_roles(results):
    found = comparison(
        muon=("peer", run(1.0)),
        sgd=("backbone", run(0.5, 1.0)),
        robust_sgd=("ours", run(1.0)),
    )
    write(results / "compare" / "digits_mlp", found, dict.fromkeys(found["arms"], 1.0))
    _, _, *rows, _, caption = report.comparison("digits_mlp").splitlines()
    arms = [row.split("|")[1].strip() for row in rows]
    assert arms == ["`sgd`", "`robust_sgd`", "`muon`"]
    assert rows[1].split("|")[2:5] == [" 100.0 ", " 1.0 ", " 50.0 % "]
    assert "The target 95.0 % is 5 % below the best" in caption


def test_nothing_is_written_if_a_page_is_wrong(tmp_path, monkeypatch, capsys):
    good, bad, plain = (tmp_path / f"{name}.md" for name in ("good", "bad", "plain"))
    good.write_text("<!-- begin a -->\n<!-- end a -->\n")
    bad.write_text("<!-- begin b -->\n<!-- end b -->\n")
    plain.write_text("plain\n")
    drawn = []
    monkeypatch.setattr(report, "ROOT", tmp_path)
    monkeypatch.setattr(report, "BLOCKS", {"a": lambda: "new"})
    for module, name in (
        (plots, "plot_sweeps"),
        (cost_plots, "plot_compile"),
        (cost_plots, "plot_steps"),
        (cost_plots, "plot_train"),
    ):
        monkeypatch.setattr(
            module, name, lambda found, path: drawn.append(path) or tmp_path / "x"
        )
    monkeypatch.setattr(report, "PAGES", [good, bad])
    with pytest.raises(ValueError, match="unknown block 'b'"):
        report.write()
    assert "new" not in good.read_text()
    monkeypatch.setattr(report, "PAGES", [good, plain])
    before = plain.stat().st_mtime_ns
    report.write()
    assert "new" in good.read_text()
    assert plain.stat().st_mtime_ns == before
    pictures = {path.name for path in report.IMAGES.glob("*.png")}
    assert {path.name for path in drawn} <= pictures
    assert len(drawn) == 4
    assert "Wrote good.md" in capsys.readouterr().out
