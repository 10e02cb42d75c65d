"""Templates: what is replaced, what is left, what is an error."""

import pathlib

import pytest

from benchmarks.pages import render

FUNCTIONS = {
    "table": {"rows": lambda: "| a |\n|---|\n| 1 |"},
    "value": {
        "sum": lambda a, b="0": str(int(a) + int(b)),
        "missing": lambda: pathlib.Path("no/such/file").read_text(),
        "key": lambda: {}["sgd"],
    },
}


def test_tables_and_values_are_replaced_and_nothing_else():
    text = (
        "# Title\n\n{{table:rows}}\n\n3 is {{value:sum 1 2}}, 4 {{value:sum 4}}.\n"
        "`{{x}}` and {this} stay.\n"
        "```python\nprint(f'{{{x}}}', {1: {2: {}}})\n```\nEnd }}\n"
    )
    assert render.render(text, FUNCTIONS, "page.md") == (
        "# Title\n\n| a |\n|---|\n| 1 |\n\n3 is 3, 4 4.\n"
        "`{{x}}` and {this} stay.\n"
        "```python\nprint(f'{{{x}}}', {1: {2: {}}})\n```\nEnd }}\n"
    )


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{{value:mean 1}}", "unknown value 'mean'; there are key, missing, sum"),
        ("{{table:sum 1}}", "unknown table 'sum'; there are rows"),
        ("{{value:}}", "unknown value ''"),
        ("{{value:sum}}", r"\{\{value:sum\}\}: missing a required argument: 'a'"),
        ("{{value:sum 1 2 3}}", "too many positional arguments"),
        ("{{value:sum one}}", "invalid literal"),
        ("{{value:missing}}", r"\{\{value:missing\}\}: .*no/such/file"),
        ("{{value:key}}", "the results have no 'sgd'"),
        ("{{values:sum 1}}", r"\{\{ must be \{\{table:NAME"),
        ("{{ value:sum 1 }}", r"\{\{ must be"),
        ("{{value:sum 1", r"\{\{ must be"),
        ("```\n{{value:sum 1", r"\{\{ must be"),
    ],
)
def test_errors_name_the_template_and_the_line(line, message):
    number = 2 + line.count("\n")
    with pytest.raises(ValueError, match=rf"^docs/x\.md, line {number}: .*{message}"):
        render.render(f"# Title\n{line}\nmore\n", FUNCTIONS, "docs/x.md")
