"""Metrics in files, and progress for people."""

import io

import pytest
from rich.console import Console

from benchmarks.train import logs

ROW = {
    "epoch": 2,
    "step": 20,
    "train_loss": 0.51234,
    "test_accuracy": 0.8771,
    "gamma_min": 0.01,
    "gamma_max": 1.0,
    "observed": 0.4,
    "examples_per_second": 12345.6,
}


def console(terminal=False):
    return Console(file=io.StringIO(), force_terminal=terminal, width=200)


def test_rows_are_lines(tmp_path):
    metrics = logs.Metrics(tmp_path / "m.jsonl")
    metrics.write({"step": 1, "loss": 0.5})
    metrics.write({"step": 2, "loss": float("nan")})
    assert logs.read_metrics(tmp_path / "m.jsonl") == [
        {"step": 1, "loss": 0.5},
        {"step": 2, "loss": None},
    ]
    assert len(metrics.rows) == 2
    metrics.close()


def test_rows_after_the_checkpoint_are_dropped(tmp_path):
    path = tmp_path / "m.jsonl"
    path.write_text('{"step": 1}\n{"step": 2}\n{"step": 3}\n{"st')
    kept = logs.read_metrics(path)[:2]
    assert kept == [{"step": 1}, {"step": 2}]
    metrics = logs.Metrics(path, kept)
    metrics.write({"step": 3, "again": True})
    assert logs.read_metrics(path) == [*kept, {"step": 3, "again": True}]


def test_only_one_process_writes(tmp_path):
    metrics = logs.Metrics(tmp_path / "m.jsonl", writes=False)
    metrics.write({"step": 1})
    assert metrics.rows == [{"step": 1}]
    assert not (tmp_path / "m.jsonl").exists()


def test_a_file_that_is_not_metrics_is_refused(tmp_path):
    path = tmp_path / "m.jsonl"
    path.write_text('{"step": 1}\nhello\n')
    with pytest.raises(ValueError, match=r"m.jsonl, line 2 is not JSON"):
        logs.read_metrics(path)


def test_plain_lines_without_a_terminal():
    to = console()
    report = logs.reporter(to, steps_per_epoch=10, epochs=3)
    report.epoch(ROW)
    report.step(15, ROW)
    report.say("in [bold]folder[/x]")
    report.close()
    figures = "12,346 examples/s, γ 0.01 to 1, evidence 40%"
    assert to.file.getvalue().splitlines() == [
        f"epoch 2/3: loss 0.5123, test 87.7%, {figures}",
        f"epoch 2/3, step 5/10: loss 0.5123, test 87.7%, {figures}",
        "in [bold]folder[/x]",
    ]


def test_a_bar_on_a_terminal():
    to = console(terminal=True)
    report = logs.reporter(to, steps_per_epoch=10, epochs=3)
    report.step(15, ROW)
    report.epoch(ROW)
    report.close()
    shown = to.file.getvalue()
    assert "5/10" in shown
    assert "epoch 2/3" in shown
    assert "evidence 40%" in shown


def test_tensorboard_says_what_is_missing(monkeypatch):
    logs.check_tensorboard()
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ImportError, match=r"pip install 'ctagd-optax\[tensorboard\]'"):
        logs.check_tensorboard()
