"""Runs that are started twice, killed, damaged, or out of room."""

import concurrent.futures
import contextlib
import json
import os
import pathlib
import re
import resource
import shutil
import socket
import subprocess
import sys
import time
import zipfile

import jax
import jax.numpy as jnp
import pytest

from benchmarks import __main__ as command_line
from benchmarks import locks, workloads
from benchmarks.data import load
from benchmarks.data.archives import extract
from benchmarks.data.fetch import fetch
from benchmarks.locks import holding
from benchmarks.train.checkpoints import Checkpoints
from benchmarks.train.logs import Metrics, read_metrics
from tests.benchmarks import small
from tests.benchmarks.data import official
from tests.benchmarks.data.server import Answer, serving

pytestmark = pytest.mark.usefixtures("default_jax", "remember_compiled")

ROOT = pathlib.Path(__file__).parents[2]
STEPS = 8  # in an epoch


@pytest.fixture(autouse=True)
def _small(monkeypatch):
    """The small workload, and no patience."""
    monkeypatch.setitem(workloads.WORKLOADS, small.NAME, small.SMALL)
    monkeypatch.setattr(locks, "_PATIENCE", 0.1)


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
from benchmarks.data import load
from benchmarks.data.archives import extract
from benchmarks.locks import holding
from benchmarks.train.checkpoints import Checkpoints
from benchmarks.train.logs import Metrics, read_metrics

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


def test_a_folder_in_use_is_refused(tmp_path, capsys):
    manifest = tmp_path / "mine.toml"
    manifest.write_text(MANIFEST)
    out = tmp_path / "out"
    with holder(out) as pid:
        for command in (
            "train --workload small --optimizer sgd --devices 1",
            "train --workload small --optimizer sgd --devices 1 --resume",
            "compare --workload small --optimizers sgd --seeds 1",
            "ablate --workload small --seeds 1",
            "tune --workload small --optimizer sgd --trials 1",
            "sweep --workload small --seeds 1 --factors 1",
            f"study {manifest}",
        ):
            assert main(*command.split(), "--out", out) == 2
            said = capsys.readouterr().err
            assert f"error: out: {out} is in use by process {pid} on " in said
            assert re.search(r"started 20\d\d-\d\d-\d\d \d\d:\d\d:\d\d as '.*py", said)
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
        first, second = (run.communicate(timeout=300)[0] for run in runs)
    assert f"in use by process {pid} on" in first
    assert f"the first process cannot use {tmp_path}, and says why" in second


@pytest.fixture(scope="module")
def finished(tmp_path_factory, strict_jax):
    """A run of three epochs with its last two checkpoints, and the rows of four."""
    out = tmp_path_factory.mktemp("finished")
    with (
        pytest.MonkeyPatch.context() as patch,
        jax.enable_x64(False),
        jax.numpy_dtype_promotion("standard"),
        jax.numpy_rank_promotion("allow"),
    ):
        patch.setitem(workloads.WORKLOADS, small.NAME, small.SMALL)
        assert train(out / "three") == 0
        shutil.copytree(out / "three", out / "four")
        assert train(out / "four", "--epochs", 4, "--resume") == 0
    return out / "three", rows(out / "four")


def rows(out):
    """The rows of a run without what depends on time."""
    times = ("seconds", "compile_seconds", "input_wait", "examples_per_second")
    return [
        {name: value for name, value in row.items() if name not in times}
        for row in read_metrics(out / "metrics.jsonl")
    ]


@pytest.fixture
def run(finished, tmp_path):
    """A copy of the run."""
    return shutil.copytree(finished[0], tmp_path / "run")


def largest(folder):
    files = [path for path in folder.rglob("*") if path.is_file()]
    return max(files, key=lambda path: path.stat().st_size)


def flip(path):
    raw = bytearray(path.read_bytes())
    raw[len(raw) // 2] ^= 1
    path.write_bytes(raw)


def test_a_flipped_byte_costs_an_epoch_and_nothing_else(run, finished, capfd):
    broken = largest(run / "checkpoints" / "24")
    flip(broken)
    assert train(run, "--epochs", 4, "--resume") == 0
    said = capfd.readouterr()
    name = broken.relative_to(run / "checkpoints" / "24")
    assert f"checkpoint 24 is damaged: {name} has another checksum; it is now" in (
        said.out
    )
    assert "going on from step 16, 8 steps are done again" in said.out
    assert said.err == ""
    assert rows(run) == finished[1]
    kept = sorted(path.name for path in (run / "checkpoints").iterdir())
    assert kept == ["24", "24.damaged", "32"]


def every_kind_of_damage():
    return {
        "byte": (lambda p: flip(largest(p)), "has another checksum"),
        "notes": (lambda p: flip(p / "notes" / "metadata"), "has another checksum"),
        "cut": (lambda p: os.truncate(largest(p), 10), "has another checksum"),
        "empty": (lambda p: os.truncate(largest(p), 0), "has another checksum"),
        "file": (lambda p: largest(p).unlink(), "is missing"),
        "state": (lambda p: shutil.rmtree(p / "state"), "is missing"),
        "more": (lambda p: (p / "state" / "more").write_text(""), "does not belong"),
        "sums": (lambda p: (p / "checksums.json").unlink(), "has no checksums"),
        "sum": (lambda p: (p / "checksums.json").write_text("{"), "is not JSON"),
        "list": (lambda p: (p / "checksums.json").write_text("[]"), "not describe"),
        "all": (lambda p: [shutil.rmtree(p), p.mkdir()], "has no checksums"),
        "stray": (lambda p: [shutil.rmtree(p), p.write_text("x")], "is no folder"),
        "other": (
            lambda p: [shutil.rmtree(p), shutil.copytree(p.with_name("16"), p)],
            "is that of step 16",
        ),
    }


@pytest.mark.parametrize("kind", every_kind_of_damage())
def test_every_damage_is_noticed(run, kind, capfd):
    damage, message = every_kind_of_damage()[kind]
    damage(run / "checkpoints" / "24")
    checkpoints = Checkpoints(run / "checkpoints")
    said = []
    assert checkpoints.newest(said.append) == 16
    assert len(said) == 2
    assert message in said[0]
    assert checkpoints.last() == 16
    checkpoints.close()
    assert (run / "checkpoints" / "24.damaged").exists()
    again = Checkpoints(run / "checkpoints")
    assert again.newest(said.append) == 16
    again.close()
    assert len(said) == 2
    assert capfd.readouterr() == ("", "")


def test_what_orbax_does_not_read_may_be_damaged(run):
    for name in ("_CHECKPOINT_METADATA", "commit_success.txt"):
        (run / "checkpoints" / "24" / name).write_text("garbage")
    for name in ("stray.txt", "7x"):
        (run / "checkpoints" / name).write_text("garbage")
    assert train(run, "--epochs", 4, "--resume") == 0


def test_a_stray_folder_ends_no_run(run, finished, capfd):
    (run / "checkpoints" / "99999").mkdir()
    (run / "checkpoints" / "32.orbax-checkpoint-tmp-0").write_text("x")
    assert train(run, "--epochs", 4, "--resume") == 0
    assert "checkpoint 99999 is damaged: it has no ch" in capfd.readouterr().out
    assert rows(run) == finished[1]


def test_no_good_checkpoint_is_left(run, capfd):
    for step in (16, 24):
        flip(largest(run / "checkpoints" / str(step)))
    before = sorted(run.rglob("*"))
    assert train(run, "--epochs", 4, "--resume") == 2
    said = capfd.readouterr().err
    folder = run / "checkpoints"
    assert said.startswith(f"error: {folder} has no whole checkpoint: 24: state/")
    assert "; 16: state/" in said
    assert said.endswith(f"to start at step 0 again, remove {folder}\n")
    assert len(said.splitlines()) == 1
    assert sorted(run.rglob("*")) == before
    shutil.rmtree(folder)
    assert train(run, "--epochs", 1, "--resume") == 0
    assert "has no checkpoint: starting at step 0" in capfd.readouterr().out


def test_checkpoints_of_an_earlier_version(run, finished, capfd):
    for step in ("16", "24"):
        (run / "checkpoints" / step / "checksums.json").unlink()
    assert train(run, "--epochs", 4, "--resume") == 0
    said = capfd.readouterr().out
    assert "checkpoint 24 is not verified: it has no checksums" in said
    assert rows(run) == finished[1]


def test_damage_that_only_orbax_notices(run, capfd):
    for step in ("16", "24"):
        (run / "checkpoints" / step / "checksums.json").unlink()
    for path in (run / "checkpoints" / "24").rglob("manifest.ocdbt"):
        path.write_bytes(b"garbage")
    assert train(run, "--epochs", 4, "--resume") == 2
    said = capfd.readouterr().err
    where = run / "checkpoints" / "24"
    assert said.startswith(f"error: {where} cannot be restored")
    assert len(said.splitlines()) == 1


@pytest.mark.parametrize("number", [1, 2, 3])
def test_a_damaged_row_of_metrics(run, number, capfd):
    path = run / "metrics.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    lines[number - 1] = lines[number - 1][:40] + "\n"
    path.write_text("".join(lines))
    assert train(run, "--epochs", 4, "--resume") == 2
    said = capfd.readouterr().err
    assert said.startswith(f"error: {path}, line {number} is not a row of metrics: ")
    assert len(said.splitlines()) == 1


def test_another_digit_in_a_row_of_metrics(run, capfd):
    path = run / "metrics.jsonl"
    text = path.read_text()
    path.write_text(text.replace('"test_accuracy": 0', '"test_accuracy": 9', 1))
    assert path.read_text() != text
    assert train(run, "--epochs", 4, "--resume") == 2
    said = capfd.readouterr().err
    assert said == (
        f"error: {path}, line 1 is not a row of metrics: it does not have its "
        "checksum\n"
    )


@pytest.mark.parametrize("line", ["{}", "[]", '{"step": "8"}', "\udcff", "null"])
def test_a_row_that_is_none(tmp_path, line):
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(b'{"step": 8}\n' + line.encode("utf-8", "surrogateescape") + b"\n")
    with pytest.raises(ValueError, match=r"metrics\.jsonl, line 2 is not a row of"):
        read_metrics(path)
    assert read_metrics(path, end=8) == [{"step": 8}]


def test_a_row_without_its_figures(run, capfd):
    path = run / "metrics.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(['{"step": 8}\n', *lines[1:]]))
    assert train(run, "--epochs", 4, "--resume") == 2
    said = capfd.readouterr().err
    assert said.startswith(f"error: {path}, row of step 8: it must have compile_")
    assert len(said.splitlines()) == 1
    assert path.read_text().startswith('{"step": 8}\n{')


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "is not JSON: "),
        ("{}", "does not describe a run: it must have batch_size, config, epochs, opt"),
        (
            '{"config": {}, "versions": {}}',
            "does not describe a run: it must have batch_size, epochs, optimizer, par",
        ),
    ],
)
def test_a_damaged_description(run, text, message, capfd):
    path = run / "config.json"
    path.write_text(text)
    assert train(run, "--epochs", 4, "--resume") == 2
    said = capfd.readouterr().err
    assert said.startswith(f"error: {path} {message}")
    assert len(said.splitlines()) == 1


def test_a_run_that_goes_on_has_no_summary_until_its_end(run, capfd):
    assert train(run, "--epochs", 2, "--resume") == 2
    assert train(run, "--resume", "--batch-size", 8) == 2
    assert (run / "summary.json").exists()
    with room(5000):
        assert train(run, "--epochs", 4, "--resume") == 2
    assert not (run / "summary.json").exists()
    assert train(run, "--epochs", 4, "--resume") == 0
    assert json.loads((run / "summary.json").read_text())["epochs"] == 4


def test_the_last_row_cut_off_is_measured_again(run, finished):
    path = run / "metrics.jsonl"
    path.write_text(path.read_text()[:-20])
    assert train(run, "--epochs", 4, "--resume") == 0
    assert rows(run) == finished[1]


def test_a_row_that_is_missing(run, capfd):
    path = run / "metrics.jsonl"
    path.write_text("".join(path.read_text().splitlines(keepends=True)[1:]))
    assert train(run, "--epochs", 4, "--resume") == 2
    assert f"{path} lacks the row of step 8" in capfd.readouterr().err


def test_garbage_after_the_checkpoint_is_dropped(run, finished):
    with (run / "metrics.jsonl").open("a") as file:
        file.write("garbage\n\0\0\0\n")
    assert train(run, "--epochs", 4, "--resume") == 0
    assert rows(run) == finished[1]


def test_a_checkpoint_has_its_checksums_when_it_appears(tmp_path):
    checkpoints = Checkpoints(tmp_path, keep=1)
    for step in range(1, 30):
        checkpoints.save(step, {"x": jnp.full(1000, step)}, {})
        while not (path := checkpoints.path(step)).exists():
            time.sleep(0.0001)
        assert (path / "checksums.json").exists()
    checkpoints.close()


@contextlib.contextmanager
def room(size):
    """No file may have more bytes: what is written beyond fails, as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize(
    ("size", "name"), [(700, "config.json"), (5000, "checkpoints/8")]
)
def test_a_full_disk_is_told_in_a_line(tmp_path, finished, capfd, size, name):
    with room(size):
        assert train(tmp_path) == 2
    wanted = f"error: cannot write {tmp_path / name}: File too large\n"
    assert capfd.readouterr().err == wanted
    assert train(tmp_path, "--resume") == 0
    assert rows(tmp_path) == finished[1][:3]


def test_a_full_disk_cuts_a_row_of_metrics(tmp_path):
    path = tmp_path / "metrics.jsonl"
    metrics = Metrics(path)
    metrics.write({"step": 8})
    with (
        room(path.stat().st_size + 5),
        pytest.raises(OSError, match=rf"^cannot write {path}: File too large$"),
    ):
        metrics.write({"step": 16})
    assert read_metrics(path) == [{"step": 8}]


def test_a_full_disk_is_told_of_data(tmp_path):
    official.mnist(tmp_path / "mnist")
    kept = tmp_path / "cache" / "mnist-1"
    with room(5000), pytest.raises(OSError, match=rf"^cannot write {kept}: "):
        load("mnist", tmp_path, download=False)
    with zipfile.ZipFile(tmp_path / "a.zip", "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("zeros", bytes(10_000))
    target = tmp_path / "target"
    with (
        room(5000),
        pytest.raises(OSError, match=rf"^cannot write {target}: File too large$"),
    ):
        extract(tmp_path / "a.zip", target, limit=10_000)
    assert not kept.exists()
    assert not target.exists()


def test_a_full_disk_is_told_of_a_download(tmp_path):
    target = tmp_path / "file"
    with (
        serving(lambda n, request: Answer(bytes(10_000))) as server,
        room(5000),
        pytest.raises(OSError, match=rf"^cannot write {tmp_path}/.*: File too large$"),
    ):
        fetch(server.address, target, checksum=None)
    assert len(server.requests) == 1
    assert not target.exists()
