"""Training: on one device and several, stopped and continued."""

import dataclasses
import json
import math
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from benchmarks import specs, workloads
from benchmarks.train import devices, loop
from benchmarks.train.checkpoints import Checkpoints
from benchmarks.train.config import Config
from benchmarks.train.logs import read_metrics
from benchmarks.train.loop import train
from benchmarks.train.progress import Reporter
from benchmarks.train.run import Run, curvature_figures
from tests.benchmarks import small
from tests.benchmarks.processes import wait_for
from tests.benchmarks.train.test_logs import wandb_steps

pytestmark = pytest.mark.usefixtures("default_jax", "remember_compiled")

ROOT = pathlib.Path(__file__).parents[3]
STEPS = 8  # in an epoch
# Curvature that sets a step, where the paper's defaults would blow the network up.
CT_SGD = "ct_sgd:correction_rate=0.01,curvature_min=0.5,unobserved=skip"


@pytest.fixture(autouse=True)
def _small(monkeypatch):
    _small_in(monkeypatch)


def _small_in(monkeypatch):
    monkeypatch.setitem(workloads.WORKLOADS, small.NAME, small.SMALL)


def environment(compiled, devices):
    """For a process of its own."""
    return {
        **os.environ,
        "XLA_FLAGS": os.environ["XLA_FLAGS"].replace("count=8", f"count={devices}"),
        "JAX_COMPILATION_CACHE_DIR": str(compiled),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    }


def config(out, **options):
    return Config(**{"workload": "small", "optimizer": CT_SGD, "out": out, **options})


def final_state(out, **options):
    """The state in the last checkpoint of a finished run."""
    run = Run(config(out, **options))
    checkpoints = Checkpoints(out / "checkpoints")
    state, _ = checkpoints.restore(checkpoints.last(), run.init())
    checkpoints.close()
    return jax.tree.map(
        lambda x: np.asarray(
            jax.random.key_data(x)
            if jax.dtypes.issubdtype(x.dtype, jax.dtypes.prng_key)
            else x
        ),
        state,
    )


def rows_without_times(out):
    times = ("seconds", "compile_seconds", "input_wait", "examples_per_second")
    return [
        {name: value for name, value in row.items() if name not in times}
        for row in read_metrics(out / "metrics.jsonl")
    ]


def undisturbed(out, **options):
    """A run of three epochs on one device that nothing disturbed, and its end."""
    with (
        pytest.MonkeyPatch.context() as patch,
        jax.enable_x64(False),
        jax.numpy_dtype_promotion("standard"),
        jax.numpy_rank_promotion("allow"),
    ):
        _small_in(patch)
        train(config(out, devices=1, **options))
        return out, final_state(out, devices=1, **options)


@pytest.fixture(scope="module")
def whole_run(tmp_path_factory, strict_jax):
    return undisturbed(tmp_path_factory.mktemp("whole"))


@pytest.fixture(scope="module")
def sharded_run(tmp_path_factory, strict_jax):
    return undisturbed(tmp_path_factory.mktemp("sharded"), shard=True)


def test_files_of_a_run(whole_run):
    out, _ = whole_run
    summary = json.loads((out / "summary.json").read_text())
    rows = read_metrics(out / "metrics.jsonl")
    assert [row["epoch"] for row in rows] == [1, 2, 3]
    assert [row["step"] for row in rows] == [8, 16, 24]
    assert summary["best_test_accuracy"] == max(r["test_accuracy"] for r in rows)
    assert summary["steps"] == 24
    assert summary["parameters"] == 64 * 32 + 3 * 32 + 32 * 4 + 4
    assert 0 < rows[0]["observed"] <= 1
    assert rows[0]["gamma_min"] >= 0.5
    described = json.loads((out / "config.json").read_text())
    assert described["optimizer"]["unobserved"] == "skip"
    assert described["steps_per_epoch"] == STEPS
    assert described["versions"]["jax"] == jax.__version__
    kept = sorted(int(path.name) for path in (out / "checkpoints").iterdir())
    assert kept == [16, 24]


def test_a_killed_run_goes_on_bitwise(whole_run, tmp_path, compiled):
    whole, expected = whole_run
    arguments = ["--optimizer", CT_SGD, "--out", str(tmp_path), "--resume"]
    arguments += ["--checkpoint-every", "3", "--devices", "1"]
    # At the step that closes an epoch, at one that has just been saved.
    for die_at in (STEPS - 1, 2 * STEPS, 100):
        run = subprocess.run(
            [sys.executable, "-m", "tests.benchmarks.small", str(die_at), *arguments],
            cwd=ROOT,
            env=environment(compiled, devices=8),
            capture_output=True,
            text=True,
            check=False,
        )
        assert run.returncode == (0 if die_at == 100 else -signal.SIGKILL), run.stderr
    chex.assert_trees_all_equal(final_state(tmp_path, devices=1), expected)
    assert rows_without_times(tmp_path) == rows_without_times(whole)


class StopAt(Reporter):
    """Sends a signal when an epoch ends."""

    def __init__(self, number, epoch):
        self.number = number
        self.at = epoch

    def epoch(self, row):
        """Sends it."""
        if row["epoch"] == self.at:
            os.kill(os.getpid(), self.number)


def test_a_run_that_is_asked_to_stop_saves_and_goes_on_bitwise(whole_run, tmp_path):
    whole, expected = whole_run
    for epoch, number in enumerate((signal.SIGINT, signal.SIGTERM), 1):
        before = signal.getsignal(number)
        where = f"stopped at step {epoch * STEPS + 1} and saved in"
        with pytest.raises(loop.Interrupted, match=where):
            train(
                config(tmp_path, devices=1),
                resume=epoch > 1,
                make_reporter=lambda *_, n=number, k=epoch: StopAt(n, k),
            )
        assert signal.getsignal(number) is before
    summary = train(config(tmp_path, devices=1), resume=True)
    assert summary["steps"] == 3 * STEPS
    chex.assert_trees_all_equal(final_state(tmp_path, devices=1), expected)
    assert rows_without_times(tmp_path) == rows_without_times(whole)


def test_more_epochs_continue_a_finished_run(whole_run, tmp_path):
    _, expected = whole_run
    short = config(tmp_path, devices=1, epochs=2)
    train(short)
    again = train(short, resume=True)  # nothing left to do
    assert again["epochs"] == 2
    train(config(tmp_path, devices=1), resume=True)
    chex.assert_trees_all_equal(final_state(tmp_path, devices=1), expected)


def test_a_run_of_some_steps_is_measured_and_goes_on_bitwise(whole_run, tmp_path):
    whole, expected = whole_run
    summary = train(config(tmp_path, devices=1, steps=STEPS + 3))
    assert summary["steps"] == STEPS + 3
    assert summary["epochs"] == 2
    again = train(config(tmp_path, devices=1, steps=STEPS + 3), resume=True)
    assert again["last_test_accuracy"] == summary["last_test_accuracy"]
    with pytest.raises(ValueError, match="must not end before step 11, which the run"):
        train(config(tmp_path, devices=1, steps=3), resume=True)
    described = json.loads((tmp_path / "config.json").read_text())
    assert described["config"]["steps"] == STEPS + 3  # refused before it is written
    train(config(tmp_path, devices=1), resume=True)
    chex.assert_trees_all_equal(final_state(tmp_path, devices=1), expected)
    assert rows_without_times(tmp_path) == rows_without_times(whole)


def assert_same_end(actual, expected):
    chex.assert_trees_all_close(
        (actual.params, actual.batch_stats),
        (expected.params, expected.batch_stats),
        rtol=1e-3,
        atol=1e-4,
    )


@pytest.mark.parametrize("run", ["whole_run", "sharded_run"], ids=["data", "fsdp"])
def test_eight_devices_train_as_one_does(run, tmp_path, request):
    _, expected = request.getfixturevalue(run)
    options = {"devices": 8, "shard": run == "sharded_run"}
    train(config(tmp_path, **options))
    assert_same_end(final_state(tmp_path, **options), expected)
    spread = Run(config(tmp_path, **options)).init().params
    kernel = spread["hidden"]["kernel"].get_value()
    assert kernel.sharding.is_fully_replicated is not options["shard"]
    assert len(kernel.sharding.device_set) == 8


def test_no_device_ever_holds_a_whole_tensor():
    run = Run(config(pathlib.Path("unused"), devices=8, shard=True))
    make = jax.jit(run.functions.init, out_shardings=run.placement)
    program = make.lower(0).compile()
    kernel = 64 * 32
    shapes = re.findall(r"\[([\d,]+)\]", program.as_text())
    largest = max(math.prod(map(int, shape.split(","))) for shape in shapes)
    assert largest <= max(kernel // 8, 2**10)  # smaller tensors are not cut
    state = run.init()
    for x in jax.tree.leaves((state.params, state.opt_state)):
        assert all(shard.data.size < 2**10 for shard in x.addressable_shards)


def test_checkpoints_go_from_eight_devices_to_four_to_one_and_back(
    sharded_run, tmp_path
):
    whole, expected = sharded_run
    for steps, number in ((6, 8), (12, 4), (18, 1), (None, 8)):
        options = {"devices": number, "steps": steps, "shard": True}
        train(config(tmp_path, **options), resume=True)
    assert_same_end(final_state(tmp_path, devices=8, shard=True), expected)
    losses, wanted = (
        [row["train_loss"] for row in read_metrics(out / "metrics.jsonl")]
        for out in (tmp_path, whole)
    )
    np.testing.assert_allclose(losses, wanted, rtol=1e-3)


def two_processes(start, out, compiled, *arguments, die_at=-1):
    """Starts a run of two processes with two devices each."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "tests.benchmarks.small", str(die_at)]
    command += ["--optimizer", CT_SGD, "--out", str(out), "--processes", "2"]
    command += ["--coordinator", f"localhost:{port}", "--shard", *arguments]
    return [
        start(
            [*command, "--process", str(n)],
            cwd=ROOT,
            env=environment(compiled, devices=2),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for n in range(2)
    ]


def test_two_killed_processes_train_as_one_does(sharded_run, tmp_path, compiled, start):
    _, expected = sharded_run
    often = "--checkpoint-every", "2"
    for run in two_processes(start, tmp_path, compiled, *often, die_at=11):
        run.communicate(timeout=300)
        assert run.returncode != 0
    runs = two_processes(start, tmp_path, compiled, *often, "--resume")
    outputs = [run.communicate(timeout=300) for run in runs]
    assert [run.returncode for run in runs] == [0, 0], outputs
    assert "epoch 3/3" in outputs[0][0]
    assert "epoch" not in outputs[1][0]  # one of them speaks
    described = json.loads((tmp_path / "config.json").read_text())
    assert described["devices"]["processes"] == 2
    assert described["devices"]["count"] == 4
    assert_same_end(final_state(tmp_path, devices=1, shard=True), expected)
    rows = read_metrics(tmp_path / "metrics.jsonl")
    assert [row["epoch"] for row in rows] == [1, 2, 3]


def test_two_processes_stop_at_the_same_step(tmp_path, compiled, start):
    runs = two_processes(start, tmp_path, compiled, "--epochs", "100000", "--keep", "1")
    wait_for(lambda: len(read_metrics(tmp_path / "metrics.jsonl")) >= 2, *runs)
    runs[0].send_signal(signal.SIGINT)
    outputs = [run.communicate(timeout=300) for run in runs]
    assert [run.returncode for run in runs] == [130, 130], outputs
    told = [re.search(r"stopped at step (\d+) and saved", e)[1] for _, e in outputs]
    assert told[0] == told[1]
    assert (tmp_path / "checkpoints" / told[0]).is_dir()


def one_step(**options):
    run = Run(config(pathlib.Path("unused"), devices=1, **options))
    state, loss = run.step(run.init(), run.train_batch(0))
    return run, state, loss


def test_accumulated_gradients_are_those_of_the_batch(monkeypatch):
    plain = small.SMALL._replace(
        model=workloads.WORKLOADS["digits_mlp"].model  # no BatchNorm, no dropout
    )
    monkeypatch.setitem(workloads.WORKLOADS, "small", plain)
    _, whole, loss = one_step(optimizer="sgd")
    _, parts, mean_loss = one_step(optimizer="sgd", accumulate=4)
    np.testing.assert_allclose(mean_loss, loss, rtol=1e-6)
    chex.assert_trees_all_close(parts.params, whole.params, rtol=1e-5, atol=1e-7)


def test_bfloat16_computes_and_float32_keeps():
    _, state, loss = one_step(optimizer="sgd", dtype="bfloat16")
    _, _, exact = one_step(optimizer="sgd")
    assert {p.dtype.name for p in jax.tree.leaves(state.params)} == {"float32"}
    assert 0 < abs(float(loss) - float(exact)) < 0.05


def batch_norm_inputs(run, state, step):
    """What the BatchNorm of the small network gets for a training batch."""
    kernel, bias = (
        np.asarray(state.params["hidden"][name].get_value())
        for name in ("kernel", "bias")
    )
    images = np.asarray(run.train_batch(step)["image"], np.float32) / 255
    constants = run.pipeline.constants
    images = (images - constants["mean"]) / constants["std"]
    return images.reshape(len(images), -1) @ kernel + bias


def test_after_a_correction_statistics_are_those_of_training_batches(tmp_path):
    train(config(tmp_path, devices=1, epochs=2, refresh_batch_stats=3))
    run = Run(config(tmp_path, devices=1))
    checkpoints = Checkpoints(tmp_path / "checkpoints")
    state, _ = checkpoints.restore(2 * STEPS, run.like())
    checkpoints.close()
    inputs = [batch_norm_inputs(run, state, STEPS + n) for n in range(3)]
    for name, of in (("mean", np.mean), ("var", np.var)):
        np.testing.assert_allclose(
            state.batch_stats["norm"][name].get_value(),
            np.mean([of(x, 0) for x in inputs], 0),
            rtol=1e-3,
            atol=1e-5,
        )
    # They are what is evaluated.
    loss, _ = run.evaluate(state, state.batch_stats)
    assert read_metrics(tmp_path / "metrics.jsonl")[-1]["test_loss"] == loss


def test_only_evaluation_sees_the_statistics(whole_run, tmp_path):
    out, expected = whole_run
    train(config(tmp_path, devices=1, refresh_batch_stats=0))
    plain = final_state(tmp_path, devices=1)
    chex.assert_trees_all_equal(
        (plain.params, plain.opt_state), (expected.params, expected.opt_state)
    )
    for ours, others in zip(
        rows_without_times(tmp_path), rows_without_times(out), strict=True
    ):
        differ = {name for name in ours if ours[name] != others[name]}
        assert "test_loss" in differ <= {"test_loss", "test_accuracy"}


@pytest.mark.parametrize(
    ("options", "batches"),
    [
        ({"optimizer": CT_SGD}, STEPS),  # an epoch is shorter than the default
        ({"optimizer": CT_SGD, "refresh_batch_stats": 5}, 5),
        ({"optimizer": CT_SGD, "refresh_batch_stats": 0}, 0),
        ({"optimizer": "ct_adam+average", "refresh_batch_stats": 5}, 5),
        ({"optimizer": "ct_sgd:correction_rate=0"}, 0),
        ({"optimizer": "ct_sgd_no_correction"}, 0),
        ({"optimizer": "robust_sgd"}, 0),
        ({"optimizer": "sgd"}, 0),
        ({"optimizer": "ct_sgd", "workload": "digits_mlp"}, 0),  # has no BatchNorm
    ],
)
def test_statistics_are_refreshed_where_there_is_a_correction(options, batches):
    run = Run(config(pathlib.Path("unused"), devices=1, **options))
    assert run.refresh_batches == batches
    if not batches:
        state = run.init()
        assert run.refreshed(state) is state


@pytest.mark.parametrize("name", ["_statistics", "_evaluate"])
def test_programs_over_devices_wait_for_each_other(name, monkeypatch):
    # JAX runs 32 at a time, of one process maybe other ones than of the next.
    run = Run(config(pathlib.Path("unused"), devices=8, optimizer=CT_SGD))
    state, made = run.init(), []
    program = getattr(run, name)

    def watched(*arguments):
        assert all(x.is_ready() for x in jax.tree.leaves(made))
        made.append(program(*arguments))
        return made[-1]

    monkeypatch.setattr(run, name, watched)
    state = run.refreshed(state._replace(step=state.step + run.steps_per_epoch))
    run.evaluate(state, state.batch_stats)
    assert len(made) >= 3


def test_a_run_keeps_how_its_statistics_are_refreshed(whole_run, tmp_path):
    shutil.copytree(whole_run[0], tmp_path, dirs_exist_ok=True)
    with pytest.raises(ValueError, match="refresh_batch_stats must stay 20 to go on"):
        train(config(tmp_path, devices=1, refresh_batch_stats=0), resume=True)
    # Runs of earlier versions, in which nothing was refreshed.
    path = tmp_path / "config.json"
    described = json.loads(path.read_text())
    del described["refresh_batch_stats"]
    described["config"]["refresh_batch_stats"] = 0
    path.write_text(json.dumps(described))
    with pytest.raises(ValueError, match="refresh_batch_stats was 0 when the run in"):
        train(config(tmp_path, devices=1), resume=True)
    train(config(tmp_path, devices=1, refresh_batch_stats=0), resume=True)


def test_averaged_weights_are_what_is_evaluated():
    run, state, _ = one_step(optimizer="sgd@0.5+average")
    state, _ = run.step(state, run.train_batch(1))
    at_average = run.measure(state)["test_loss"]
    moved = state._replace(params=state.opt_state.average)
    plain = Run(config(pathlib.Path("unused"), optimizer="sgd", devices=1))
    moved = plain.init()._replace(
        params=moved.params, batch_stats=moved.batch_stats, step=moved.step
    )
    np.testing.assert_allclose(plain.measure(moved)["test_loss"], at_average, rtol=1e-6)


def test_validation_is_set_aside():
    run = Run(config(pathlib.Path("unused"), part="validation", devices=1))
    assert run.steps_per_epoch == (128 - 32) // 16
    assert "validation_accuracy" in run.measure(run.init()._replace(step=jnp.int32(6)))
    run.measure(run.init()._replace(step=jnp.int32(12)))
    assert run._evaluate._cache_size() == 1  # one program for all batches


def test_a_loss_that_is_not_finite_stops_the_run(tmp_path):
    # Weights that grow until they overflow, some steps after the first.
    bad = config(
        tmp_path, optimizer="sgd@1e6:momentum=0", devices=1, checkpoint_every=1, keep=3
    )
    with pytest.raises(loop.NonFiniteLossError) as failure:
        train(bad)
    error = failure.value
    assert error.step > 1
    assert "hidden.kernel" in error.tensors
    assert set(error.tensors) < set(Run(bad).tensors())
    assert str(error).startswith(f"the loss or the weights of step {error.step} are")
    run = Run(bad)
    checkpoints = Checkpoints(tmp_path / "checkpoints")
    assert error.checkpoint == checkpoints.path(error.step - 1)
    state, _ = checkpoints.restore(error.step - 1, run.like())
    checkpoints.close()
    assert int(state.failed_step) == -1
    state, loss = run.step(state, run.train_batch(error.step - 1))
    assert np.isfinite(loss)


def test_an_earlier_run_is_not_overwritten(whole_run):
    out, _ = whole_run
    with pytest.raises(FileExistsError, match="holds a run already; --resume goes on"):
        train(config(out, devices=1))
    with pytest.raises(ValueError, match="seed must stay 0 to go on with the run in"):
        train(config(out, devices=1, seed=1), resume=True)


def test_a_run_keeps_its_batch_size(tmp_path):
    options = {"optimizer": "sgd", "devices": 1, "epochs": 1}
    train(config(tmp_path / "own", batch_size=32, **options))
    message = r"batch_size must stay 32 to .*, got 16, the workload's$"
    with pytest.raises(ValueError, match=message):
        train(config(tmp_path / "own", **options), resume=True)
    train(config(tmp_path / "default", **options))
    train(config(tmp_path / "default", batch_size=16, **options), resume=True)
    with pytest.raises(ValueError, match=r"batch_size must stay 16 to .*, got 8$"):
        train(config(tmp_path / "default", batch_size=8, **options), resume=True)


def test_a_start_that_failed_is_no_run(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    summary = train(config(tmp_path, optimizer="sgd", devices=1, epochs=1))
    assert summary["epochs"] == 1
    (tmp_path / "config.json").write_text('{"other": 1}')
    with pytest.raises(ValueError, match=r"config\.json does not describe a run"):
        train(config(tmp_path, optimizer="sgd", devices=1), resume=True)


def test_the_first_versions_are_remembered(tmp_path):
    options = {"optimizer": "sgd", "devices": 1}
    train(config(tmp_path, epochs=1, **options))
    path = tmp_path / "config.json"
    described = json.loads(path.read_text())
    older = {**described["versions"], "jax": "0.9.0"}
    path.write_text(json.dumps({**described, "versions": older}))
    for epochs in (2, 3):
        train(config(tmp_path, epochs=epochs, **options), resume=True)
        described = json.loads(path.read_text())
        assert described["versions"]["jax"] == jax.__version__
        assert described["started_with"] == older


@pytest.mark.parametrize("spec", specs.names())
def test_every_arm_can_be_measured(spec):
    run = Run(config(pathlib.Path("unused"), optimizer=spec, devices=1))
    # Abstract, as compiling all of them would take minutes.
    state = jax.eval_shape(run.functions.step, run.abstract, *batch_of(run))[0]
    assert jax.tree.structure(state) == jax.tree.structure(run.abstract)
    before = jax.tree.map(lambda x: np.zeros(x.shape, x.dtype), state.opt_state)
    before = state._replace(opt_state=before)  # nothing is compiled for it, either
    assert (curvature_figures(before) != {}) == (
        "ct_" in spec or "robust_" in spec or spec == "schedule_control"
    )


def batch_of(run):
    return run.pipeline.train_batch(0, 0), run.pipeline.constants


def test_checkpoints_without_a_description_are_left_alone(whole_run, tmp_path):
    out, _ = whole_run
    shutil.copytree(out / "checkpoints", tmp_path / "checkpoints")
    for resume, error in ((False, FileExistsError), (True, FileNotFoundError)):
        with pytest.raises(error, match=r"config\.json|holds a run already"):
            train(config(tmp_path, devices=1), resume=resume)


def test_a_workload_that_has_changed_is_not_continued(whole_run, monkeypatch):
    out, _ = whole_run
    changed = small.SMALL._replace(description="Another network for tests")
    monkeypatch.setitem(workloads.WORKLOADS, "small", changed)
    with pytest.raises(ValueError, match="workload was 'A network for tests' when"):
        train(config(out, devices=1), resume=True)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"epochs": 0}, "epochs must be at least 1, got 0"),
        ({"seed": -1}, "seed must be at least 0, got -1"),
        ({"dtype": "float16"}, "dtype must be one of float32, bfloat16; got 'float16'"),
        ({"log": ("csv",)}, "log must be of jsonl, tensorboard, wandb; got 'csv'"),
        ({"part": "train"}, "part must be one of test, validation; got 'train'"),
        (
            {"optimizer": "sophia", "accumulate": 2},
            "accumulate must be 1 with sophia, which itself calls the loss of the",
        ),
        ({"devices": 9}, "devices must be from 1 to the 8 there are, got 9; on a CPU"),
        (
            {"batch_size": 12, "devices": 8},
            "batch_size must be a multiple of accumulate times devices, 1 × 8 = 8; got",
        ),
        (
            {"batch_size": 129, "devices": 1},
            "batch_size must be at most 128, the number of training examples, got 129",
        ),
        (
            {"batch_size": 97, "devices": 1, "part": "validation"},
            "batch_size must be at most 96, the number of training examples, got 97",
        ),
        ({"workload": "smal"}, "unknown workload 'smal'; did you mean small"),
        ({"optimizer": "sdg"}, "unknown optimizer 'sdg'; did you mean sgd"),
    ],
)
def test_bad_input(tmp_path, options, message):
    with pytest.raises(ValueError, match=message):
        Run(config(tmp_path, **options))


@pytest.mark.parametrize(
    "options",
    [{"batch_size": 128}, {"batch_size": 256, "synthetic": True}],
    ids=["the whole set", "a generated set"],
)
def test_one_batch_an_epoch(tmp_path, options):
    assert Run(config(tmp_path, devices=1, **options)).steps_per_epoch == 1


def test_tensorboard_files(tmp_path):
    options = {"optimizer": "sgd", "devices": 1}
    train(config(tmp_path, epochs=1, log=("tensorboard",), **options))
    [events] = (tmp_path / "tensorboard").iterdir()
    assert b"test_accuracy" in events.read_bytes()
    # Runs of earlier versions have an option for it, and go on as others do.
    path = tmp_path / "config.json"
    described = json.loads(path.read_text())
    del described["config"]["log"]
    described["config"]["tensorboard"] = True
    path.write_text(json.dumps(described))
    train(config(tmp_path, epochs=2, **options), resume=True)
    assert json.loads(path.read_text())["config"]["log"] == ["jsonl"]


def test_a_run_with_wandb_offline(tmp_path, monkeypatch):
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_CACHE_DIR", str(tmp_path / "cache"))
    options = {"optimizer": "sgd", "devices": 1}
    train(config(tmp_path, epochs=1, **options))
    train(config(tmp_path, epochs=2, log=("wandb",), **options), resume=True)
    # The epoch before it was asked for is there, too.
    assert wandb_steps(tmp_path) == [[STEPS, 2 * STEPS]]


def test_every_option_is_saved(whole_run):
    out, _ = whole_run
    saved = json.loads((out / "config.json").read_text())["config"]
    assert set(saved) == {field.name for field in dataclasses.fields(Config)}


def test_dropout_does_not_depend_on_the_devices():
    graph, state = nnx.split(nnx.Dropout(0.5, rngs=nnx.Rngs(dropout=jax.random.key(0))))

    def drop(x, state):
        return nnx.merge(graph, state, copy=True)(x)

    x = jnp.ones((16, 8))
    spread = jax.sharding.NamedSharding(
        devices.make_mesh(8), jax.sharding.PartitionSpec("data")
    )
    alone = jax.jit(drop)(x, state)
    together = jax.jit(drop)(jax.device_put(x, spread), state)
    np.testing.assert_array_equal(alone, together)
