"""What the evidence along the motion says at several learning rates."""

import json
import sys

import jax
import numpy as np
import pytest

from benchmarks import motion
from benchmarks.trainer import Config, Run

pytestmark = pytest.mark.usefixtures("default_jax")


def test_the_onlooker_is_its_backbone(tmp_path):
    def weights(spec):
        run = Run(Config("digits_mlp", spec, tmp_path, epochs=2, batch_size=128))
        state = run.init()
        for number in range(2 * run.steps_per_epoch):
            state, _ = run.step(state, run.train_batch(number))
        return jax.tree.leaves(state.params)

    def distance(spec):
        pairs = zip(weights(spec), theirs, strict=True)
        return max(np.max(np.abs(ours - other)) for ours, other in pairs)

    theirs = weights("sgd@0.001")
    # Compiled together with other things, the backbone may round differently.
    assert distance(motion.onlooker("robust_sgd", 0.1)) < 1e-5
    assert distance("robust_sgd@0.001") > 1e-3


def test_figures_tell_short_steps_from_long_ones(tmp_path):
    def held(factor):
        spec = motion.onlooker("robust_sgd", factor)
        config = Config("digits_mlp", spec, tmp_path, epochs=3, batch_size=64)
        return [row["held"] for row in motion.figures(config)]

    assert min(held(0.1)) > 0.3
    assert min(held(10)) < 0


def test_only_robust_arms_look_on():
    with pytest.raises(ValueError, match="robust_sgd or robust_adam; got 'sgd'"):
        motion.onlooker("sgd", 1.0)


def test_rows():
    def row(value, loss):
        return {**dict.fromkeys(motion.FIGURES, value), "train_loss": loss}

    good = [row(9.0, 9.0), row(-0.5, 2.0)]
    bad = [row(9.0, 9.0), row(None, None)]
    entries = [
        {"learning_rate": 0.01, "runs": [good, good]},
        {"learning_rate": 0.1, "runs": [good, bad]},
    ]
    first, second = motion.rows({"workloads": {"digits_mlp": entries}})
    # The second half of the epochs, and the last loss.
    assert list(first.values()) == ["`digits_mlp`", "0.01", *["−0.5"] * 4, "2"]
    assert list(second.values())[1:] == ["0.1", *["–"] * 5]


def test_the_command(tmp_path, monkeypatch, capsys):
    values = dict.fromkeys(motion.FIGURES, 0.25)
    monkeypatch.setattr(motion, "figures", lambda config: [values] * config.epochs)
    out = tmp_path / "motion.json"
    arguments = ["--factors", "1", "10", "--seeds", "2", "--epochs", "3"]
    monkeypatch.setattr(sys, "argv", ["motion", *arguments, "--out", str(out)])
    motion.main()
    [entries] = json.loads(out.read_text())["workloads"].values()
    assert [entry["learning_rate"] for entry in entries] == [0.01, 0.1]
    assert [entry["runs"] for entry in entries] == [[[values] * 3] * 2] * 2
    assert "0.25" in capsys.readouterr().out

    for wrong, message in (
        (["--seeds", "0"], "--seeds and --epochs must be at least 1"),
        (["--factors", "0"], "--factors must be finite and above 0"),
        (["--optimizer", "sgd"], "robust_sgd or robust_adam"),
        (["--workloads", "digit_mlp"], "digits_mlp"),
    ):
        monkeypatch.setattr(sys, "argv", ["motion", *wrong])
        with pytest.raises(SystemExit):
            motion.main()
        assert message in capsys.readouterr().err
