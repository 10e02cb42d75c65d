"""Metrics in files."""

import pytest

from benchmarks.train import logs


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


def test_tensorboard_says_what_is_missing(monkeypatch):
    logs.check_tensorboard()
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ImportError, match=r"pip install 'ctagd-optax\[tensorboard\]'"):
        logs.check_tensorboard()
