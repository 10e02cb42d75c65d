"""Progress for people."""

import io
import re

import pytest
from rich.console import Console

from benchmarks import workloads
from benchmarks.train import progress
from benchmarks.train.config import Config
from benchmarks.train.logs import read_metrics
from benchmarks.train.loop import train
from tests.benchmarks import small

pytestmark = pytest.mark.usefixtures("default_jax")

ROW = {
    "epoch": 2,
    "step": 20,
    "train_loss": 0.51234,
    "train_accuracy": 0.9,
    "test_accuracy": 0.8771,
    "multiplier_min": 9.6,
    "multiplier_max": 9.6,
    "examples_per_second": 12345.6,
}


def console(terminal=False, width=80):
    return Console(
        file=io.StringIO(), force_terminal=terminal, width=width, color_system=None
    )


class Pace:
    """A clock that a test sets."""

    def __init__(self, monkeypatch):
        self.now = 0.0
        monkeypatch.setattr("time.perf_counter", lambda: self.now)


def test_plain_lines_without_a_terminal(monkeypatch):
    pace = Pace(monkeypatch)
    to = console()
    report = progress.reporter(to, steps_per_epoch=10, steps=30)
    report.start(0)
    pace.now = 100.0  # compiling, which is no training
    report.step(15, ROW)
    pace.now = 105.0
    report.epoch(ROW)
    report.say("in [bold]folder[/x]")
    report.epoch({**ROW, "epoch": 3, "step": 30})
    report.close()
    figures = "loss 0.5123, train 90.0%, test 87.7%, 12,346 examples/s, lr × 9.6"
    assert to.file.getvalue().splitlines() == [
        f"epoch 2/3, step 5/10: {figures}",
        f"epoch 2/3: {figures}, 0:00:10 left",
        "in [bold]folder[/x]",
        f"epoch 3/3: {figures}",
    ]


@pytest.mark.parametrize(
    ("lowest", "highest", "text"),
    [
        (9.6, 9.6, "lr × 9.6"),
        (0.8, 3.1, "lr × 0.8 to 3.1"),
        (1.0, 1.0001, "lr × 1"),
        (0.01, 100.0, "lr × 0.01 to 100"),
    ],
)
def test_the_multiplier_of_the_learning_rate(lowest, highest, text):
    to = console()
    row = {"epoch": 1, "step": 1, "multiplier_min": lowest, "multiplier_max": highest}
    progress.reporter(to, 1, 1).epoch(row)
    assert to.file.getvalue() == f"epoch 1/1: {text}\n"


def test_the_bar_fits_80_columns_and_shows_the_last_test_accuracy(monkeypatch):
    pace = Pace(monkeypatch)
    to = console(terminal=True)
    report = progress.reporter(to, steps_per_epoch=10, steps=4000)
    report.start(0)
    report.epoch(ROW)
    pace.now = 60.0
    running = {k: v for k, v in ROW.items() if k != "test_accuracy"}
    report.step(25, running)
    report.close()
    rows = to.file.getvalue().splitlines()
    assert any(re.search(r"epoch 3/400 .* 1% 13:15:00 left", row) for row in rows)
    figures = "loss 0.5123, train 90.0%, test 87.7%, 12,346 examples/s, lr × 9.6"
    assert any(figures in row for row in rows)


def test_at_most_twenty_epochs_leave_a_line():
    to = console(terminal=True)
    report = progress.reporter(to, steps_per_epoch=1, steps=50)
    for epoch in range(1, 51):
        report.epoch({"epoch": epoch, "step": epoch, "train_loss": 1.0})
    report.close()
    lines = re.findall(r"epoch (\d+)/50: loss 1", to.file.getvalue())
    assert [*map(int, lines)] == [*range(3, 50, 3), 50]


def test_the_bar_moves_with_the_epochs_of_a_run(tmp_path, monkeypatch):
    monkeypatch.setitem(workloads.WORKLOADS, small.NAME, small.SMALL)
    to = console(terminal=True)
    train(
        Config("small", "robust_sgd", tmp_path, epochs=4, devices=1),
        make_reporter=lambda *sizes: progress.reporter(to, *sizes),
    )
    shown = to.file.getvalue()
    assert "compiling" in shown
    bars = re.findall(r"epoch (\d)/4 [━╸╺ ]+ (\d+)%", shown)
    assert set(bars) >= {("1", "25"), ("2", "50"), ("3", "75"), ("4", "100")}
    assert "lr × " in shown
    row = read_metrics(tmp_path / "metrics.jsonl")[-1]
    assert 0.1 <= row["multiplier_min"] <= row["multiplier_max"] <= 20


def test_the_bar_goes_on_where_a_run_was_stopped(tmp_path, monkeypatch):
    monkeypatch.setitem(workloads.WORKLOADS, small.NAME, small.SMALL)
    train(Config("small", "sgd", tmp_path, epochs=2, devices=1))
    to = console(terminal=True)
    train(
        Config("small", "sgd", tmp_path, epochs=4, devices=1),
        resume=True,
        make_reporter=lambda *sizes: progress.reporter(to, *sizes),
    )
    shown = to.file.getvalue()
    assert "epoch 3/4" in shown
    assert "epoch 1/4" not in shown
    assert "lr ×" not in shown  # SGD has no multiplier
