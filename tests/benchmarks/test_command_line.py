"""``python -m benchmarks``."""

import json
import pathlib
import re

import pytest

from benchmarks import __main__ as command_line
from benchmarks import specs, workloads
from benchmarks.analysis import plots
from tests.benchmarks.handmade import comparison, run

pytestmark = pytest.mark.usefixtures("default_jax")


def train(*arguments):
    return command_line.main(
        ["train", "--workload", "digits_mlp", "--devices", "1", *map(str, arguments)]
    )


def test_digits_with_sgd_reach_96_percent(tmp_path, capsys):
    assert train("--optimizer", "sgd", "--out", tmp_path) == 0
    printed = capsys.readouterr().out
    assert "epoch 40/40: loss" in printed
    assert "best test accuracy" in printed
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert summary["best_test_accuracy"] >= 0.96


def test_the_folder_of_a_run_has_the_canonical_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    spec = "sgd:momentum=0.850,learning_rate=1e-1"
    assert train("--optimizer", spec, "--epochs", 1, "--seed", 2) == 0
    assert (tmp_path / "runs/digits_mlp/sgd@0.1/2/summary.json").is_file()


def test_a_loss_that_is_not_finite_ends_with_an_error(tmp_path, capsys):
    with pytest.raises(SystemExit) as end:
        train("--optimizer", "sgd@1e38", "--out", tmp_path, "--epochs", 1)
    assert end.value.code == 1
    assert "are not finite; weights that are not: hidden." in capsys.readouterr().err


def test_list_names_everything(capsys):
    assert command_line.main(["list"]) == 0
    printed = capsys.readouterr().out
    for name in (*workloads.WORKLOADS, *specs.names()):
        assert name in printed


def test_a_dry_run_takes_two_steps_and_leaves_nothing(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert train("--optimizer", "ct_sgd", "--dry-run") == 0
    assert re.search(r"steps\s+│ 2 ", capsys.readouterr().out)
    assert not list(tmp_path.iterdir())


def test_profiles_are_drawn_of_the_arms_that_all_have(tmp_path, monkeypatch, capsys):
    paths = []
    for name in ("digits_mlp", "cora_graphsage"):
        results = comparison(
            workload=name,
            sgd=("backbone", run(0.5, 0.9)),
            ct_sgd=("paper", run(0.9, 0.9)),
            **{f"sgd@0.{len(name)}": ("tuned", run(0.9, 0.9))},
            **({"adam": ("backbone", run(0.9))} if name == "digits_mlp" else {}),
        )
        paths.append(tmp_path / f"{name}.json")
        paths[-1].write_text(json.dumps(results))
    out = tmp_path / "new" / "profile.png"
    drawn = []
    kept = plots.plot_profile
    monkeypatch.setattr(
        plots,
        "plot_profile",
        lambda found, arms, path: drawn.extend(arms) or kept(found, arms, path),
    )
    assert command_line.main(["profile", *map(str, paths), "--out", str(out)]) == 0
    assert out.read_bytes().startswith(b"\x89PNG")
    assert drawn == ["sgd", "ct_sgd", "sgd, tuned"]
    assert f"Wrote {out}" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--workload digit_mlp --optimizer sgd", "did you mean digits_mlp"),
        ("--workload digits_mlp --optimizer ct_sdg", "did you mean ct_sgd"),
        ("--workload digits_mlp --optimizer sgd --epochs 0", "epochs must be at least"),
        (
            "--workload cifar10_small --optimizer sgd --no-download --data-dir missing",
            "cifar-10-python.tar.gz",
        ),
        ("--workload digits_mlp --optimizer sgd --out file", "file"),
        ("--workload digits_mlp --optimizer sgd --out file/run", "Not a directory"),
        ("--workload digits_mlp --optimizer sgd --processes 2", "given together"),
        ("--workload digits_mlp --optimizer sgd --seed 9999999999", "seed must be"),
        (
            "--workload digits_mlp --optimizer sgd --synthetic --part validation",
            "part must be test where the set is synthetic",
        ),
    ],
)
def test_bad_arguments(arguments, message, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pathlib.Path("file").touch()
    with pytest.raises(SystemExit) as end:
        command_line.main(["train", *arguments.split()])
    assert end.value.code == 2
    assert message in capsys.readouterr().err


def test_recipes_of_one_workload(capsys):
    assert command_line.main(["recipes", "--workload", "reddit_graphsage"]) == 0
    printed = capsys.readouterr().out
    commands = [line for line in printed.splitlines() if line.startswith("python")]
    assert len(commands) == 5  # the testbed's, too
    assert "# Ablations" not in printed
    assert all("--workload reddit_graphsage" in line for line in commands[:-1])


def test_one_way_to_say_the_batch_size(capsys):
    sizes = "--batch-size", "8", "--batch-sizes", "8", "16"
    with pytest.raises(SystemExit):
        command_line.main(["sweep", "--workload", "digits_mlp", *sizes])
    assert "give --batch-size or --batch-sizes, not both" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"{}", "does not describe a comparison, as the results.json of compare does"),
        (b"3", "does not describe a comparison, as the results.json of compare does"),
        (
            b'{"workload": "a", "epochs": 1, "seeds": [], "arms": []}',
            "does not describe",
        ),
        (
            b'{"workload": "a", "epochs": 1, "seeds": [], "arms": {"b": {"role": ""}}}',
            "does not describe a comparison, as the results.json of compare does: "
            "arms.b must have runs",
        ),
        (b"arms", "is not JSON: Expecting value: line 1 column 1 (char 0)"),
        (b"\xff", "is not JSON: 'utf-8' codec can't decode byte 0xff"),
    ],
)
def test_a_profile_of_something_else(content, message, tmp_path, capsys):
    path = tmp_path / "bad.json"
    path.write_bytes(content)
    with pytest.raises(SystemExit) as end:
        command_line.main(["profile", str(path)])
    assert end.value.code == 2
    error = capsys.readouterr().err
    assert error.startswith(f"error: {path} {message}")
    assert error.count("\n") == 1


def test_comparisons_without_a_common_arm(tmp_path, capsys):
    paths = []
    for name, arm in (("digits_mlp", "sgd"), ("cora_graphsage", "adam")):
        results = comparison(name, **{arm: ("backbone", run(0.5, 0.9))})
        paths.append(tmp_path / f"{name}.json")
        paths[-1].write_text(json.dumps(results))
    with pytest.raises(SystemExit):
        command_line.main(["profile", *map(str, paths)])
    assert "comparisons must have an arm in common" in capsys.readouterr().err
