"""Metrics in files."""

import json
import os
import pathlib
import re
import struct
import subprocess
import sys
import time

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


def test_a_row_is_on_the_disk_when_it_is_written(tmp_path, monkeypatch):
    path, seen = tmp_path / "m.jsonl", []
    metrics = logs.Metrics(path)
    monkeypatch.setattr(os, "fsync", lambda _: seen.append(path.read_text()))
    metrics.write({"step": 1})
    assert seen == [path.read_text()]
    assert seen[0].startswith('{"step": 1, "crc32": ')


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
    with pytest.raises(ValueError, match=r"m.jsonl, line 2 is not a row of metrics"):
        logs.read_metrics(path)


@pytest.mark.parametrize("name", ["tensorboard", "wandb"])
def test_a_log_says_what_is_missing(name, monkeypatch):
    logs.check_logs(["jsonl", "tensorboard"])
    monkeypatch.setattr("importlib.util.find_spec", lambda module: None)
    message = rf"log {name} needs .*: pip install 'ctagd-optax\[{name}\]'"
    with pytest.raises(ImportError, match=message):
        logs.check_logs([name])


def wandb_records(path):
    """The records in a file of wandb."""
    kinds = pytest.importorskip("wandb.proto.wandb_internal_pb2")
    rest, parts = path.read_bytes()[7:], b""
    while len(rest) > 7:  # a checksum, a length and a kind; cut where a block ends
        length, kind = struct.unpack("<HB", rest[4:7])
        parts += rest[7 : 7 + length]
        rest = rest[7 + length :]
        if kind in (1, 4):
            yield kinds.Record.FromString(parts)
            parts = b""


def wandb_steps(out):
    """The steps that each start of a run has written to wandb."""
    starts = []
    for path in sorted(out.glob("wandb/offline-run-*/run-*.wandb")):
        # Another process writes it, and may be at it after wandb has returned.
        found = []
        while not any(record.HasField("exit") for record in found):
            time.sleep(0.05)
            found = list(wandb_records(path))
        starts.append([r.history.step.num for r in found if r.HasField("history")])
    return starts


def test_wandb_offline_has_every_step_once(tmp_path, monkeypatch):
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_CACHE_DIR", str(tmp_path / "cache"))
    description = {"config": {"workload": "small", "optimizer": "sgd", "seed": 0}}
    rows = [{"step": step, "test_accuracy": step / 100} for step in (8, 16, 24, 32)]

    def write(known, new):
        log = logs.WandB(tmp_path, known, description)
        for row in new:
            log.write(row)
        log.close()

    write([], rows[:3])
    # It was killed before the checkpoint of step 24.
    time.sleep(1.1)  # wandb names folders by the second
    write(rows[:2], rows[2:])
    assert wandb_steps(tmp_path) == [[8, 16, 24], [32]]
    # Another run in the same folder is another run of wandb.
    ids = [json.loads((tmp_path / "wandb.json").read_text())["id"]]
    time.sleep(1.1)
    write([], rows[:1])
    ids.append(json.loads((tmp_path / "wandb.json").read_text())["id"])
    assert ids[0] != ids[1]
    assert wandb_steps(tmp_path)[2] == [8]


def test_wandb_needs_an_account_or_to_be_offline(tmp_path):
    pytest.importorskip("wandb")
    program = """
import pathlib, sys
from benchmarks.train import logs
config = {"workload": "small", "optimizer": "sgd", "seed": 0}
logs.WandB(pathlib.Path(sys.argv[1]), [], {"config": config})
"""
    # In a process of its own, as wandb reads the environment once.
    ours = {k: v for k, v in os.environ.items() if not k.startswith("WANDB_")}
    nobody = {"HOME": str(tmp_path), "WANDB_BASE_URL": "http://localhost:9"}
    run = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)],
        cwd=pathlib.Path(__file__).parents[3],
        env={**ours, **nobody, "NETRC": str(tmp_path / "netrc")},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert re.search(r"ValueError: log wandb: .*WANDB_MODE=offline", run.stderr)
