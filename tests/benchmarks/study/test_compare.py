"""Comparisons: every arm on every seed, stopped and continued."""

import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys

import pytest
from rich.console import Console

from benchmarks import paper, specs
from benchmarks.__main__ import main
from benchmarks.study import ablate, compare, runs
from benchmarks.study.compare import Entry
from benchmarks.workloads import WORKLOADS
from tests.benchmarks.processes import wait_for

pytestmark = pytest.mark.usefixtures("default_jax")

ROOT = pathlib.Path(__file__).parents[3]
ARGUMENTS = "compare --workload digits_mlp --optimizers sgd sgd@1e30 ct_sgd --seeds 2"


def command(out, jobs=2):
    return [
        sys.executable,
        *("-m", "benchmarks"),
        *ARGUMENTS.split(),
        *("--epochs", "2", "--jobs", str(jobs), "--out", str(out)),
    ]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    out = tmp_path_factory.mktemp("whole")
    run = subprocess.run(
        command(out), cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    return out, run.stdout


def test_results_hold_every_run(whole):
    out, _ = whole
    results = json.loads((out / "results.json").read_text())
    assert results["seeds"] == [0, 1]
    assert list(results["arms"]) == ["sgd", "sgd@1e+30", "ct_sgd"]
    sgd, bad, ct_sgd = results["arms"].values()
    assert [len(run["accuracy"]) for run in sgd["runs"]] == [2, 2]
    assert sgd["runs"][0]["accuracy"] != sgd["runs"][1]["accuracy"]
    assert sgd["runs"][0]["observed"] is None
    assert sgd["runs"][0]["failed_step"] is None
    assert all(run["failed_step"] > 0 for run in bad["runs"])
    assert len(ct_sgd["runs"][0]["gamma_at_min"]) == 2
    timings = json.loads((out / "timings.json").read_text())
    assert len(timings["arms"]["sgd"][0]["seconds"]) == 2
    assert "seconds" not in (out / "results.json").read_text()


def test_the_table_fits_a_terminal_and_the_files_are_named(whole):
    out, printed = whole
    rows = [line for line in printed.splitlines() if line.startswith(" sgd ")]
    bare, broken, wrapped = rows
    assert re.fullmatch(r" sgd +0\.01 +–( +\d+\.\d){2} +∞ *", bare)
    assert re.fullmatch(r" sgd +1e\+30 +– +diverged +diverged +∞ *", broken)
    assert re.fullmatch(r" sgd +0\.01 +ct_agd( +\d+\.\d){2} +\d\.\d *", wrapped)
    assert max(map(len, rows)) <= 80
    for name in ("results.json", "results.md", "curves.png"):
        assert f"Wrote {out / name}" in printed
        assert (out / name).is_file()


def is_there(group):
    """Whether a process of the group is left."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def test_a_killed_comparison_gives_the_same_results(whole, tmp_path, start):
    expected, _ = whole
    silence = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    run = start(command(tmp_path, jobs=1), cwd=ROOT, **silence)
    wait_for(lambda: list(tmp_path.glob("runs/*/*/summary.json")), run)
    run.kill()
    run.wait()
    wait_for(lambda: not is_there(run.pid))  # what it has started ends with it
    assert not (tmp_path / "results.json").exists()
    again = subprocess.run(
        command(tmp_path, jobs=1), cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert again.returncode == 0, again.stderr
    assert (tmp_path / "results.json").read_text() == (
        expected / "results.json"
    ).read_text()


def test_ctrl_c_stops_all_runs_and_the_same_command_goes_on(tmp_path, start):
    arguments = command(tmp_path)
    arguments[arguments.index("--epochs") + 1] = "4000"
    run = start(arguments, cwd=ROOT, stderr=subprocess.PIPE, text=True)
    # The other one at work may have diverged, and another one started.
    wait_for(lambda: (tmp_path / "runs/sgd/0/metrics.jsonl").exists(), run)
    os.killpg(run.pid, signal.SIGINT)  # as a terminal does
    _, errors = run.communicate(timeout=60)
    assert run.returncode == 130
    # A test that was killed may have left half a program in the cache, with a warning.
    said = errors.splitlines()
    assert said[-1] == "interrupted: the same command goes on with what is left"
    assert "Traceback" not in errors
    wait_for(lambda: not is_there(run.pid))
    assert list(tmp_path.glob("runs/sgd/0/checkpoints/*"))


def test_finished_runs_are_not_repeated(whole):
    out, _ = whole
    [summary] = out.glob("runs/sgd/0/summary.json")
    before = summary.stat().st_mtime_ns
    compare.compare(
        "digits_mlp",
        [Entry("sgd", "backbone")],
        [0],
        out,
        epochs=2,
        console=Console(quiet=True),
    )
    assert summary.stat().st_mtime_ns == before


def test_other_arms_of_the_folder_are_kept(whole, tmp_path, capsys):
    shutil.copytree(whole[0], tmp_path, dirs_exist_ok=True)
    arguments = ["compare", "--workload", "digits_mlp", "--epochs", "2"]
    arguments += ["--out", str(tmp_path), "--optimizers", "ct_sgd", "--seeds"]
    assert main([*arguments[:-1], "sgd", "sgd@1e30", "--seeds", "2"]) == 0
    assert main([*arguments, "2"]) == 0
    arms = json.loads((tmp_path / "results.json").read_text())["arms"]
    assert list(arms) == ["ct_sgd", "sgd", "sgd@1e+30"]
    with pytest.raises(SystemExit, match="2"):
        main([*arguments, "1"])
    assert (
        f"out: {tmp_path} compares sgd, sgd@1e+30, too, with other seeds; name them"
        in capsys.readouterr().err
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch_size": 32}, "batch_size must stay 64 to go on with the run in"),
        ({"epochs": 1}, "epochs must be at least 2, which the run in"),
    ],
)
def test_a_finished_run_is_not_taken_for_another(whole, options, message):
    out, _ = whole
    with pytest.raises(ValueError, match=message):
        compare.compare(
            "digits_mlp",
            [Entry("sgd", "backbone")],
            [0],
            out,
            console=Console(quiet=True),
            **{"epochs": 2, **options},
        )


def test_a_run_of_an_earlier_default_is_not_taken_for_today_s(whole):
    out, _ = whole
    path = out / "runs" / "sgd" / "1" / "config.json"
    described = path.read_text()
    path.write_text(described.replace('"momentum": 0.85', '"momentum": 0.9'))
    try:
        with pytest.raises(ValueError, match=r"optimizer must stay .*'momentum': 0.9"):
            compare.compare(
                "digits_mlp",
                [Entry("sgd", "backbone")],
                [1],
                out,
                epochs=2,
                console=Console(quiet=True),
            )
    finally:
        path.write_text(described)


def test_an_arm_keeps_its_first_role(whole):
    out, _ = whole
    results, _ = compare.compare(
        "digits_mlp",
        [Entry("sgd", "backbone"), Entry("sgd@0.01", "tuned")],
        [0],
        out,
        epochs=2,
        console=Console(quiet=True),
    )
    assert [arm["role"] for arm in results["arms"].values()] == ["backbone"]
    assert compare.entry("sgd@0.01") == Entry("sgd", "backbone")


def test_arms_of_a_comparison():
    dense = [e.spec for e in compare.standard_arms(WORKLOADS["digits_mlp"])]
    convolving = compare.standard_arms(WORKLOADS["cifar10_small"])
    assert "lbfgs" in dense
    assert [e.spec for e in convolving] == [s for s in dense if s != "lbfgs"]
    appendix = ablate.ablation_arms("ct_sgd_appendix")
    ablations = {specs.arm(entry.spec).name for entry in appendix}
    assert {row.optimizer for row in paper.ABLATIONS} <= ablations
    for method in ablate.ABLATIONS:
        arms = ablate.ablation_arms(method)
        assert len({specs.arm(entry.spec).name for entry in arms}) == len(arms)
    first, method, *_ = ablate.ablation_arms()
    assert (first, method) == (Entry("sgd", "backbone"), Entry("ct_sgd", "paper"))
    with pytest.raises(ValueError, match=r"one of ct_sgd, .*robust_sgd; got 'sgd'"):
        ablate.ablation_arms("sgd")
    bare, control, ours, *changed = ablate.ablation_arms("robust_sgd", 0.1)
    assert bare == Entry("sgd@0.1", "backbone")
    assert control == Entry("sawtooth_control@0.1", "control")
    assert ours == Entry("robust_sgd@0.1", "ours")
    assert all(entry.spec.startswith("robust_sgd@0.1:") for entry in changed)


def test_roles_by_name():
    roles = {
        spec: compare.entry(spec).role
        for spec in (
            *("sgd", "robust_sgd@0.1", "ct_sgd", "ct_adam_appendix", "sgd@0.3"),
            *("ct_sgd:eps=0.1", "lion", "muon@1"),
        )
    }
    assert list(roles.values()) == [
        *("backbone", "ours", "paper", "paper", "backbone"),
        *("control", "peer", "peer"),
    ]


def test_bad_input(tmp_path):
    with pytest.raises(ValueError, match="at least one each"):
        compare.compare("digits_mlp", [], [0], tmp_path, console=Console())
    with pytest.raises(ValueError, match="jobs must be at least 1, got 0"):
        runs.run_all([], 0, tmp_path, Console())
