"""Recipes: every row of the paper has one, and it means what it says."""

import json
import math

import pytest
from rich.console import Console

from benchmarks import __main__ as command_line
from benchmarks import paper, specs
from benchmarks.pages import report
from benchmarks.study import recipes
from benchmarks.workloads import WORKLOADS
from ctagd_optax.testbed import __main__ as testbed_line

pytestmark = pytest.mark.usefixtures("default_jax")

DATA = json.loads((report.RESULTS / "recipes.json").read_text())
ROWS = [recipe for rows in recipes.tables().values() for recipe in rows]


def parse(command):
    start, arguments = command.split()[:3], command.split()[3:]
    assert start == ["python", "-m", "benchmarks"]
    return command_line.parser().parse_args(arguments)


def test_every_row_of_the_paper_has_a_recipe():
    found = [(recipe.workload, recipe.optimizer) for recipe in ROWS]
    for workload, numbers in paper.NUMBERS.items():
        for column in vars(numbers).values():
            if isinstance(column, dict):
                assert {(workload, arm) for arm in column} <= set(found)
    clamp, others = (
        [recipe.row for recipe in rows]
        for title, rows in recipes.tables().items()
        if title.startswith("Ablations")
    )
    assert (len(clamp), len(others)) == (7, 8)  # as many as the paper's tables have
    assert {*clamp, *others} == {line.setting for line in paper.ABLATIONS}
    assert set(clamp) & set(others) == {"SGD"}


@pytest.mark.parametrize("recipe", recipes.distinct(), ids=lambda recipe: recipe.key)
def test_commands_are_of_their_row(recipe):
    whole, dry = parse(recipe.command), parse(recipe.dry_run())
    assert whole.workload == dry.workload == recipe.workload
    assert whole.optimizers == [dry.optimizer] == [recipe.optimizer]
    assert specs.arm(recipe.optimizer).name == recipe.optimizer
    assert whole.seeds == recipes.SEEDS == 5
    # Without these options, the workload's own numbers count.
    assert (whole.epochs, whole.batch_size) == (None, None)
    assert (dry.epochs, dry.batch_size, dry.dry_run) == (None, None, True)
    assert parse(recipe.dry_run(8)).batch_size == 8


def test_runs_are_long_enough_to_get_where_the_paper_got():
    for workload, numbers in paper.NUMBERS.items():
        for column in (numbers.epochs_to_cutoff, numbers.epochs_to_final):
            for epochs in column.values():
                assert WORKLOADS[workload].epochs >= epochs.mean + epochs.half


def test_the_testbed_s_command():
    start, command = recipes.TESTBED.rsplit(maxsplit=1)
    assert start == "python -m ctagd_optax.testbed"
    with pytest.raises(SystemExit, match=r"^0$"):
        testbed_line.main([command, "--help"])


def test_the_file_is_of_these_recipes():
    assert list(DATA["workloads"]) == list(paper.NUMBERS)
    for workload, size in DATA["workloads"].items():
        work = WORKLOADS[workload]
        assert (size["batch_size"], size["epochs"]) == (work.batch_size, work.epochs)
    keys = [recipe.key for recipe in recipes.distinct()]
    assert list(DATA["estimates"]) == keys
    for recipe in recipes.distinct():
        guess = recipes.estimate(recipe, DATA["workloads"])
        assert DATA["estimates"][recipe.key] == guess
    assert DATA["flops_per_second"] == recipes.paces(DATA["workloads"])
    # What the paper's runs did is possible on its GPU.
    assert max(DATA["flops_per_second"].values()) < recipes.PEAK
    assert set(DATA["dry_runs"]) <= set(keys)


def test_sizes_are_counted():
    size = recipes.sizes("reddit_graphsage")
    recorded = DATA["workloads"]["reddit_graphsage"]
    assert size == recorded | {"flops_per_step": pytest.approx(3.68e9, rel=0.05)}
    assert size["steps_per_epoch"] == math.ceil(153_431 / 512)


def test_estimates_by_hand():
    size = {"flops_per_step": 2e9, "steps_per_epoch": 100, "epochs": 9}
    found = {
        "cifar10_resnet20": size,
        "tiny_imagenet_resnet20": size,
        "reddit_graphsage": {**size, "flops_per_step": 1e9},
    }

    def guess(workload, optimizer):
        return recipes.estimate(recipes.Recipe("", workload, optimizer), found)

    # The paper's seconds and epochs to the cutoff.
    assert guess("cifar10_resnet20", "ct_sgd:quantile=0.5") == {
        "seconds_per_epoch": 10.63,
        "basis": "paper",
        "hours": round(255.13 / 24.0 * 9 * 5 / 3600, 2),
    }
    seconds = 316.81 / 32.4
    assert recipes.paces(found)["cifar10_resnet20"] == pytest.approx(2e11 / seconds)
    assert guess("cifar10_resnet20", "lbfgs") == {
        "seconds_per_epoch": round(21 * seconds, 2),
        "basis": "operations",
        "hours": round(21 * seconds * 9 * 5 / 3600, 2),
    }
    # Half the operations at the slower of two paces.
    assert guess("reddit_graphsage", "sgd") == {
        "seconds_per_epoch": round(3660.27 / 113.0 / 2, 2),
        "basis": "operations",
        "hours": round(3660.27 / 113.0 / 2 * 9 * 5 / 3600, 2),
    }


@pytest.fixture
def commands(monkeypatch):
    """The dry runs of a check, which are not run."""
    made = []
    monkeypatch.setattr(recipes, "_run", lambda command: made.append(command) or 1.26)
    monkeypatch.setattr(recipes, "sizes", lambda name: DATA["workloads"][name])
    return made


def test_a_check_is_written_as_it_goes_and_continued(tmp_path, monkeypatch, commands):
    path, counted = tmp_path / "recipes.json", recipes._run

    def fail_third(command):
        if len(commands) == 2:
            raise ChildProcessError("out of memory")
        return counted(command)

    with monkeypatch.context() as patch:
        patch.setattr(recipes, "_run", fail_third)
        with pytest.raises(ChildProcessError, match="out of memory"):
            recipes.check(path, Console(quiet=True))
    first, second, *rest = recipes.distinct()
    assert commands == [first.dry_run(), second.dry_run()]
    expected = {"batch_size": 128, "seconds": 1.3}
    written = json.loads(path.read_text())
    assert written["dry_runs"] == {first.key: expected, second.key: expected}
    data = recipes.check(path, Console(quiet=True))
    assert data == json.loads(path.read_text())
    lbfgs = "cifar10_resnet20 lbfgs"
    assert commands[2:] == [r.dry_run(2 if r.key == lbfgs else None) for r in rest]
    assert data["dry_runs"][lbfgs]["batch_size"] == 2
    assert list(data["dry_runs"]) == [recipe.key for recipe in recipes.distinct()]


def test_a_check_of_one_workload_with_small_batches(tmp_path, commands):
    path = tmp_path / "recipes.json"
    workload = "tiny_imagenet_wrn28_4"
    data = recipes.check(path, Console(quiet=True), only=workload, batch_size=4)
    assert len(commands) == len(data["dry_runs"]) == 3
    assert all(f"{workload} --optimizer" in command for command in commands)
    assert all(command.endswith("--dry-run --batch-size 4") for command in commands)
    assert {dry["batch_size"] for dry in data["dry_runs"].values()} == {4}


def test_a_dry_run_that_fails_says_why():
    with pytest.raises(ChildProcessError, match=r"nothing_here failed:\n.*No module"):
        recipes._run("python -m nothing_here")


@pytest.mark.parametrize("text", ["{}", "[]", '{"estimates": {}, "dry_runs": []}'])
def test_files_of_something_else_are_neither_read_nor_replaced(text, tmp_path, capsys):
    path = tmp_path / "r.json"
    path.write_text(text)
    for options in ([], ["--check"]):
        with pytest.raises(SystemExit, match="2"):
            command_line.main(["recipes", "--out", str(path), *options])
        said = capsys.readouterr().err
        assert said.startswith(f"error: {path} does not describe recipes: ")
        assert said.count("\n") == 1
    assert path.read_text() == text


def test_the_list_has_every_command(capsys):
    assert command_line.main(["recipes"]) == 0
    lines = capsys.readouterr().out.splitlines()
    commands = [line for line in lines if not line.startswith("#")]
    assert commands == [recipe.command for recipe in ROWS] + [recipes.TESTBED]
    assert "# ResNet-20 on CIFAR-10: CT-AGD: about 3.0 hours" in lines
