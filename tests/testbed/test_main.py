"""The command line, as a person meets it."""

import json
import os
import subprocess
import sys

import pytest
from PIL import Image

from ctagd_optax.testbed.__main__ import main


@pytest.mark.parametrize(
    "command", [[], ["table"], ["figure"], ["animate"], ["explore"]]
)
def test_help_explains(command, capsys):
    with pytest.raises(SystemExit) as end:
        main([*command, "--help"])
    assert end.value.code == 0
    text = capsys.readouterr().out
    assert "ct-agd" in text
    assert "robust-adam" in text
    assert "optax.contrib" in text
    assert len(text) > 600


def test_the_module_runs_as_a_command():
    done = subprocess.run(
        [sys.executable, "-m", "ctagd_optax.testbed", "table", "--runs", "0"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr == "testbed table: error: runs must be at least 1, got 0\n"


def test_the_library_imports_neither_testbed_nor_plots():
    code = (
        "import sys, ctagd_optax;"
        "bad = {'matplotlib', 'plotly', 'ctagd_optax.testbed'} & set(sys.modules);"
        "import ctagd_optax.testbed;"
        "bad |= {'matplotlib', 'plotly'} & set(sys.modules);"
        "sys.exit(str(bad) if bad else 0)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["table", "--optimizers", "adamm"], "did you mean adam"),
        (["table", "--runs", "-3"], "runs must be at least 1"),
        (
            ["table", "--json", "no/such/folder/a.json"],
            "cannot write no/such/folder/a.json",
        ),
        (
            ["figure", "--out", "no/such/folder/a.png"],
            "cannot write no/such/folder/a.png",
        ),
        (["figure", "--out", "a.docx"], "must be a .png, .svg or .pdf"),
        (["figure", "--out", "a.png", "--run", "-1"], "--run must be at least 0"),
        (["figure", "--out", "a.png", "--optimizers", "sdg"], "did you mean sgd"),
        (["animate", "--out", "a.avi"], ".gif or .mp4"),
        (["animate", "--out", "a.gif", "--steps", "0"], "--steps"),
        (["explore", "--out", "a.png"], "must be an .html"),
        (["explore", "--out", "folder.html"], "is a directory"),
    ],
)
def test_bad_input_gets_one_line_and_no_file(
    arguments, message, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder.html").mkdir()
    assert main(arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert message in err
    assert os.listdir(tmp_path) == ["folder.html"]


@pytest.mark.parametrize(
    ("command", "out", "missing"),
    [
        ("figure", "a.png", "matplotlib"),
        ("animate", "a.gif", "matplotlib"),
        ("explore", "a.html", "plotly"),
    ],
)
def test_what_is_missing_is_named_before_the_work(
    command, out, missing, tmp_path, monkeypatch, capsys
):
    monkeypatch.setitem(sys.modules, missing, None)
    monkeypatch.setattr("ctagd_optax.testbed.__main__._results", pytest.fail)
    assert main([command, "--out", str(tmp_path / out)]) == 2
    hint = f"needs {missing}: pip install 'ctagd-optax[testbed]'\n"
    assert capsys.readouterr().err.endswith(hint)


def test_unknown_arguments_exit_with_2(capsys):
    with pytest.raises(SystemExit) as end:
        main(["table", "--mode", "best"])
    assert end.value.code == 2
    assert "invalid choice" in capsys.readouterr().err


def test_pictures_and_page_are_written(tmp_path, capsys):
    choice = ["--mode", "paper", "--optimizers", "sgd,", "--run", "1"]
    figure, film, page = (tmp_path / f"a.{end}" for end in ("png", "gif", "html"))
    assert main(["figure", "--out", str(figure), *choice]) == 0
    assert main(["animate", "--out", str(film), "--steps", "2", *choice]) == 0
    assert main(["explore", "--out", str(page), "--stationary", *choice]) == 0
    out = capsys.readouterr().out
    assert out.count("SGD: learning rate 0.01") == 3
    with Image.open(figure) as image:
        assert image.width > 1000
    with Image.open(film) as image:
        assert image.n_frames == 3
    assert page.read_text().startswith("<!doctype html>")
    assert sorted(os.listdir(tmp_path)) == ["a.gif", "a.html", "a.png"]


@pytest.mark.parametrize(
    ("command", "out"),
    [("figure", "a.png"), ("animate", "a.gif"), ("explore", "a.html")],
)
def test_the_robust_method_is_shown_unasked(command, out, tmp_path, monkeypatch):
    shown = []

    def compare(names, **options):
        shown.extend(names)
        raise ValueError("enough")

    monkeypatch.setattr("ctagd_optax.testbed._table.compare", compare)
    assert main([command, "--out", str(tmp_path / out)]) == 2
    assert {"robust", "robust-adam", "sgd", "adam", "ct-agd"} <= set(shown)


def test_a_failed_write_leaves_the_old_file(tmp_path, monkeypatch):
    target = tmp_path / "a.html"
    target.write_text("old")

    def full(results, run):
        raise OSError("no space left")

    monkeypatch.setattr("ctagd_optax.testbed._explore.explore_page", full)
    arguments = ["--mode", "paper", "--optimizers", "sgd", "--out", str(target)]
    assert main(["explore", *arguments]) == 2
    assert target.read_text() == "old"
    assert os.listdir(tmp_path) == ["a.html"]


def test_table_prints_and_writes_json(tmp_path, capsys):
    path = tmp_path / "table.json"
    assert main(["table", "--runs", "2", "--mode", "paper", "--json", str(path)]) == 0
    out = capsys.readouterr().out
    data = json.loads(path.read_text())
    assert data["runs"] == 2
    assert data["agreement"] in " ".join(out.split())
    assert len(data["claims"]) == 6
    assert len(data["controls"]) == 6
    assert out.count("Robust (SGD) takes fewer steps than SGD") == 2
    for claim in data["claims"] + data["controls"]:
        assert claim in out
