"""Pages are written from their templates, all or none."""

import json
import re

import pytest

from benchmarks import specs
from benchmarks.pages import report


def test_every_function_is_used_by_a_template():
    text = "".join(path.read_text() for path in report.TEMPLATES.rglob("*.md"))
    used = {"table": set(), "value": set()}
    for kind, name in re.findall(r"\{\{(table|value):(\w+)", text):
        used[kind].add(name)
    assert used == {kind: set(known) for kind, known in report.FUNCTIONS.items()}


def test_no_value_of_a_page_is_undefined():
    for path in report.sources():
        assert not re.search(r"\bnan\b", path.read_text()), path


def test_committed_arms_are_named_by_what_they_are():
    for path in sorted(report.RESULTS.glob("*/**/results.json")):
        for name, arm in json.loads(path.read_text())["arms"].items():
            made = specs.arm(name)
            assert made.name == name
            # Options that came later are not in older files.
            assert arm["options"].items() <= {"name": name, **made.options}.items()


@pytest.fixture
def templates(tmp_path, monkeypatch):
    folder = tmp_path / "templates"
    (folder / "docs" / "results").mkdir(parents=True)
    monkeypatch.setattr(report, "ROOT", tmp_path)
    monkeypatch.setattr(report, "TEMPLATES", folder)
    monkeypatch.setattr(report, "pictures", list)
    monkeypatch.setattr(
        report,
        "FUNCTIONS",
        {"table": {}, "value": {"twice": lambda x: 2 * x}},
    )
    return folder


def test_pages_say_where_they_come_from(templates, tmp_path, capsys):
    (templates / "README.md").write_text("# {{value:twice ab}}\n")
    (templates / "docs" / "x.md").write_text("# X\n")
    (templates / "docs" / "results" / "WORKLOAD.md").write_text(
        "# WORKLOAD: {{value:twice WORKLOAD}}\n"
    )
    report.write()
    first, _, note = (tmp_path / "README.md").read_text().splitlines()
    assert first == "# abab"
    assert note.startswith("<!-- Made from benchmarks/pages/templates/README.md by ")
    note, _, last = (tmp_path / "docs" / "x.md").read_text().splitlines()
    assert note.startswith("<!-- Made from benchmarks/pages/templates/docs/x.md by ")
    assert last == "# X"
    text = (tmp_path / "docs" / "results" / "digits_mlp.md").read_text()
    assert text.endswith("\n\n# digits_mlp: digits_mlpdigits_mlp\n")
    assert "Wrote docs/results/digits_mlp.md" in capsys.readouterr().out


def test_nothing_is_written_if_a_template_is_wrong(templates, tmp_path):
    (templates / "README.md").write_text("# {{value:twice ab}}\n")
    (templates / "docs" / "x.md").write_text("# X\n\n{{value:thrice ab}}\n")
    with pytest.raises(
        ValueError, match=r"^docs/x\.md, line 3: unknown value 'thrice'"
    ):
        report.write()
    assert not (tmp_path / "README.md").exists()
