"""Folders of runs that have ended, whole and damaged."""

import json
import shutil

import jax
import pytest
from rich.console import Console

from benchmarks import __main__ as command_line
from benchmarks.study import compare
from benchmarks.study.outcome import read_rows
from benchmarks.study.runs import execute, is_finished, run_folder
from benchmarks.train.config import Config
from benchmarks.train.logs import read_metrics
from benchmarks.train.loop import train
from benchmarks.train.run import Run

pytestmark = pytest.mark.usefixtures("default_jax", "remember_compiled")

STEPS = 24  # in an epoch


def config(out, epochs=2):
    folder = run_folder(out, "sgd", 0)
    return Config("digits_mlp", "sgd", folder, epochs=epochs, keep=1, devices=1)


@pytest.fixture(scope="module")
def ended(tmp_path_factory, strict_jax):
    """The folder of a comparison with one run of two epochs."""
    out = tmp_path_factory.mktemp("ended")
    with (
        jax.enable_x64(False),
        jax.numpy_dtype_promotion("standard"),
        jax.numpy_rank_promotion("allow"),
    ):
        execute(config(out))
    return out


@pytest.fixture
def out(ended, tmp_path):
    """A copy of it."""
    return shutil.copytree(ended, tmp_path / "out")


def compared(out, epochs=2):
    """The comparison of the run, which must be there: nothing is trained."""
    entries = [compare.Entry("sgd", "backbone")]
    options = {"epochs": epochs, "devices": 1, "console": Console(quiet=True)}
    return compare.compare("digits_mlp", entries, [0], out, **options)[0]


def edit(path, **changes):
    """Changes some keys of a JSON file."""
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def fail(out, step):
    """Makes the run one that failed, whose metrics end before that step."""
    folder = config(out).out
    (folder / "summary.json").unlink()
    (folder / "failure.json").write_text(json.dumps({"step": step, "tensors": []}))
    path = folder / "metrics.jsonl"
    lines = path.read_text().splitlines(keepends=True)[: step // STEPS]
    path.write_text("".join(lines))


class KilledError(BaseException):
    """Instead of SIGKILL."""


def killed(out, epochs, monkeypatch):
    """Goes on with the run for more epochs, and is killed in the fourth."""
    taken = Run.step

    def step(self, state, batch):
        if int(state.step) == 3 * STEPS + 5:
            raise KilledError
        return taken(self, state, batch)

    with monkeypatch.context() as patch:
        patch.setattr(Run, "step", step)
        with pytest.raises(KilledError):
            train(config(out, epochs), resume=True)


def test_a_longer_run_that_was_killed_is_not_taken_for_a_finished_one(out, monkeypatch):
    summary = config(out).out / "summary.json"
    kept = summary.read_text()
    killed(out, 5, monkeypatch)
    assert not summary.exists()
    for text in (kept, None):  # an earlier version left it there
        if text is not None:
            summary.write_text(text)
        assert not is_finished(config(out))
        with pytest.raises(ValueError, match="must not end before step 72, which the"):
            execute(config(out))
        summary.unlink(missing_ok=True)
    execute(config(out, 5))
    assert is_finished(config(out, 5))
    assert len(compared(out, 5)["arms"]["sgd"]["runs"][0]["accuracy"]) == 5


def test_a_run_that_is_refused_keeps_its_summary(out):
    folder = config(out).out
    edit(folder / "config.json", parameters=1)
    with pytest.raises(ValueError, match="parameters was 1 when"):
        train(config(out, 3), resume=True)
    assert (folder / "summary.json").exists()


def test_rows_that_are_lost_are_missed(out):
    assert len(compared(out)["arms"]["sgd"]["runs"][0]["accuracy"]) == 2
    path = config(out).out / "metrics.jsonl"
    first, second = path.read_text().splitlines(keepends=True)
    message = rf"{path} must have a row of each of 2 epochs.*; remove {path.parent} to"
    for lines in ([first], [second], [second, first], [first, second[:-9]], []):
        path.write_text("".join(lines))
        with pytest.raises(ValueError, match=message):
            compared(out)
    path.write_text(first + second + first)
    with pytest.raises(ValueError, match=message):
        compared(out)
    path.unlink()
    with pytest.raises(ValueError, match=message):
        compared(out)


def test_a_run_that_failed_has_the_rows_until_then(out):
    fail(out, STEPS + 3)
    found = compared(out)["arms"]["sgd"]["runs"][0]
    assert (len(found["accuracy"]), found["failed_step"]) == (1, STEPS + 3)
    more = compared(out, 9)  # it fails there, too
    assert more["epochs"] == 9
    assert more["arms"]["sgd"]["runs"] == [found]
    with pytest.raises(ValueError, match="epochs must be at least 2, which the run"):
        compared(out, 1)
    (config(out).out / "metrics.jsonl").write_text("")
    with pytest.raises(ValueError, match="must have a row of each of 1 epochs, it has"):
        compared(out)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("summary.json", "{", "is not JSON: "),
        ("summary.json", "{}", "the end of a run: it must have epochs"),
        ("summary.json", "[]", "the end of a run: it must be an object"),
        ("summary.json", '{"epochs": "x"}', "epochs must be a whole number, got 'x'"),
        ("config.json", '{"config": {}, "versions": {}}', "a run: it must have batch_"),
        ("failure.json", "[]", "how a run failed: it must be an object"),
        ("failure.json", "{}", "how a run failed: it must have step"),
    ],
)
def test_damaged_files_are_named(out, name, text, message):
    path = config(out).out / name
    path.write_text(text)
    with pytest.raises(ValueError, match=rf"^{path} .*{message}.*$"):
        compared(out)


def test_a_description_without_its_makers(out):
    path = config(out).out / "config.json"
    edit(path, made_by={"version": 1})
    with pytest.raises(ValueError, match=rf"{path} .*version must be a text or null"):
        compared(out)


@pytest.mark.parametrize("text", ["{", "{}", '{"arms": {"adam": 1}}'])
def test_results_of_something_else_are_not_replaced(out, text, capsys):
    path = out / "results.json"
    path.write_text(text)
    options = ["--workload", "digits_mlp", "--optimizers", "sgd", "--seeds", "1"]
    with pytest.raises(SystemExit, match="2"):
        command_line.main(["compare", *options, "--epochs", "2", "--out", str(out)])
    said = capsys.readouterr().err
    assert said.startswith(f"error: {path} ")
    assert said.count("\n") == 1
    assert path.read_text() == text


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"seconds": None}, "seconds must be a number, got None"),
        ({"test_accuracy": "x"}, "test_accuracy must be a number, got 'x'"),
        ({"train_loss": "x"}, "train_loss must be a number or null, got 'x'"),
        ({"epoch": None}, "epoch must be a whole number"),
    ],
)
def test_a_row_without_a_figure(out, change, message):
    path = config(out).out / "metrics.jsonl"
    first, second = read_metrics(path)
    path.write_text(f"{json.dumps(first)}\n{json.dumps({**second, **change})}\n")
    with pytest.raises(ValueError, match=rf"{path}, row of step 48: {message}"):
        read_rows(config(out))
    path.write_text('{"step": 9}\n')
    with pytest.raises(ValueError, match=r"row of step 9: it must have compile_sec"):
        compared(out)


def test_a_loss_that_is_not_finite_is_no_damage(out):
    path = config(out).out / "metrics.jsonl"
    rows = [{**row, "train_loss": None} for row in read_metrics(path)]
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    assert compared(out)["arms"]["sgd"]["runs"][0]["train_loss"] is None
