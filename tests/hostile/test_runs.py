"""Runs that are started twice, killed, damaged, or out of room."""

import concurrent.futures
import contextlib
import json
import os
import pathlib
import re
import socket
import subprocess
import sys
import time

import jax
import pytest
from jax.experimental.compilation_cache import compilation_cache

from benchmarks import __main__ as command_line
from benchmarks import locks, workloads
from benchmarks.locks import holding
from tests.benchmarks import small

pytestmark = pytest.mark.usefixtures("default_jax")

ROOT = pathlib.Path(__file__).parents[2]
STEPS = 8  # in an epoch


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    return tmp_path_factory.mktemp("compiled")


@pytest.fixture(autouse=True)
def _small(monkeypatch, compiled):
    """The small workload, which compiles once; and no patience."""
    monkeypatch.setitem(workloads.WORKLOADS, small.NAME, small.SMALL)
    monkeypatch.setattr(locks, "_PATIENCE", 0.1)
    before = jax.config.jax_compilation_cache_dir
    jax.config.update("jax_compilation_cache_dir", str(compiled))
    compilation_cache.reset_cache()
    yield
    jax.config.update("jax_compilation_cache_dir", before)
    compilation_cache.reset_cache()


def environment(compiled, devices=1):
    """For a process of its own."""
    return {
        **os.environ,
        "XLA_FLAGS": os.environ["XLA_FLAGS"].replace("count=8", f"count={devices}"),
        "JAX_COMPILATION_CACHE_DIR": str(compiled),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    }


def main(*arguments):
    """The exit code of a command."""
    try:
        return command_line.main(list(map(str, arguments)))
    except SystemExit as end:
        return end.code


def train(out, *arguments):
    options = ["--optimizer", "sgd", "--devices", 1, "--out", out]
    return main("train", "--workload", "small", *options, *arguments)


HOLDER = """
import pathlib, sys
from benchmarks.locks import holding

with holding(pathlib.Path(sys.argv[1])):
    print("mine", flush=True)
    sys.stdin.read()
"""


@contextlib.contextmanager
def holder(folder):
    """A process that has a folder, and is killed at the end."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(folder)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        try:
            assert process.stdout.readline() == "mine\n"
            yield process.pid
        finally:
            process.kill()


MANIFEST = """
kind = "compare"
workload = "small"
seeds = 1
arms = ["sgd"]
"""


@pytest.mark.parametrize(
    "command",
    [
        "train --workload small --optimizer sgd --devices 1",
        "train --workload small --optimizer sgd --devices 1 --resume",
        "compare --workload small --optimizers sgd --seeds 1",
        "ablate --workload small --seeds 1",
        "tune --workload small --optimizer sgd --trials 1",
        "sweep --workload small --seeds 1 --factors 1",
        "study {manifest}",
    ],
    ids=lambda command: command.split()[0],
)
def test_a_folder_in_use_is_refused(tmp_path, capsys, command):
    manifest = tmp_path / "mine.toml"
    manifest.write_text(MANIFEST)
    out = tmp_path / "out"
    with holder(out) as pid:
        words = command.format(manifest=manifest).split()
        assert main(*words, "--out", out) == 2
        said = capsys.readouterr().err
        assert f"error: out: {out} is in use by process {pid} on " in said
        assert re.search(r"started 20\d\d-\d\d-\d\d \d\d:\d\d:\d\d as '.*python", said)
        assert said.endswith("stop it, or give another --out\n")
        assert [path.name for path in out.iterdir()] == [locks.NAME]


def test_a_killed_process_blocks_nobody(tmp_path):
    with holder(tmp_path):
        pass
    assert (tmp_path / locks.NAME).exists()
    with holding(tmp_path):
        pass
    assert list(tmp_path.iterdir()) == []


def test_two_real_runs_do_not_mix(tmp_path, capsys, compiled):
    out = tmp_path / "out"
    command = [sys.executable, "-m", "tests.benchmarks.small", "-1", "--out", str(out)]
    command += ["--optimizer", "sgd", "--devices", "1", "--epochs", "100000"]
    first = subprocess.Popen(
        command,
        cwd=ROOT,
        env=environment(compiled),
        stdout=subprocess.PIPE,
        text=True,
    )
    with first:
        try:
            while "epoch 2/" not in first.stdout.readline():
                assert first.poll() is None
            described = (out / "config.json").read_text()
            assert train(out, "--epochs", 1, "--resume") == 2
            assert f"in use by process {first.pid}" in capsys.readouterr().err
            assert (out / "config.json").read_text() == described
            assert not (out / "summary.json").exists()
        finally:
            first.kill()
    done = len((out / "metrics.jsonl").read_text().splitlines())
    assert train(out, "--epochs", done + 1, "--resume") == 0
    assert json.loads((out / "summary.json").read_text())["epochs"] == done + 1


def test_of_many_that_want_a_folder_one_has_it(tmp_path):
    folder, mark = tmp_path / "folder", tmp_path / "mark"

    def take(_):
        try:
            with holding(folder):
                mark.touch(exist_ok=False)
                time.sleep(0.001)
                mark.unlink()
        except BlockingIOError:
            return 0
        return 1

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        taken = sum(pool.map(take, range(200)))
    assert taken > 8
    assert list(tmp_path.iterdir()) == [folder]


def test_a_folder_may_be_taken_again_within(tmp_path):
    with (
        holding(tmp_path),
        holding(tmp_path),
        concurrent.futures.ThreadPoolExecutor(1) as pool,
    ):
        other = pool.submit(holding(tmp_path).__enter__)
        with pytest.raises(BlockingIOError, match=f"process {os.getpid()} on"):
            other.result()
    assert not (tmp_path / locks.NAME).exists()


PROCESS = """
import pathlib, sys
from benchmarks.train import devices, folder

out, address, number = sys.argv[1:]
devices.connect(address, 2, int(number))
try:
    with folder.owning(pathlib.Path(out)):
        print("ours")
except BlockingIOError as error:
    print(error)
"""


def test_processes_of_one_run_are_refused_together(tmp_path, compiled):
    with socket.socket() as free:
        free.bind(("localhost", 0))
        address = f"localhost:{free.getsockname()[1]}"
    with holder(tmp_path) as pid:
        runs = [
            subprocess.Popen(
                [sys.executable, "-c", PROCESS, str(tmp_path), address, str(n)],
                cwd=ROOT,
                env=environment(compiled),
                stdout=subprocess.PIPE,
                text=True,
            )
            for n in range(2)
        ]
        first, second = (run.communicate(timeout=100)[0] for run in runs)
    assert f"in use by process {pid} on" in first
    assert f"the first process cannot use {tmp_path}, and says why" in second
