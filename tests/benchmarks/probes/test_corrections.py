"""What the step at an epoch's end does to the training loss."""

import json

import pytest

from benchmarks.__main__ import main
from benchmarks.probes import corrections
from benchmarks.train.config import Config

pytestmark = pytest.mark.usefixtures("default_jax")


def changes(spec, tmp_path, batch_size=512):
    return corrections.changes(
        Config("digits_mlp", spec, tmp_path, epochs=2, batch_size=batch_size)
    )


def test_no_correction_changes_nothing(tmp_path):
    assert changes("ct_sgd:correction_rate=0", tmp_path) == [0.0, 0.0]


def test_the_literal_correction_raises_the_loss(tmp_path):
    first, *_ = changes("ct_sgd_appendix", tmp_path)
    assert first > 0.05


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ("ct_adam_appendix", "ct_adam_appendix:correction_rate=0"),
        ("ct_sgd@0.1:correction_rate=0.5,eps=0.01", "ct_sgd@0.1:correction_rate=0,"),
    ],
)
def test_without(spec, expected):
    assert corrections.without(spec).startswith(expected)


def test_an_arm_without_a_correction():
    message = r"optimizers must be of ct_sgd, .*ct_adam_appendix; got 'robust_sgd'"
    with pytest.raises(ValueError, match=message):
        corrections.without("robust_sgd")


def test_rows():
    arms = {"ct_sgd": [[3.0, 0.0]], "ct_adam": [[-0.5, 0.001], [None]]}
    first, second, third = corrections.rows(
        {"changes": {"8": arms, "4": {"ct_sgd": [[-0.5]]}}}
    )
    assert list(first.values()) == ["ct_sgd", "8", "2", *["50 %"] * 3, "4×", "4×"]
    # What broke a run counts as a rise.
    assert list(second.values())[2:] == ["3", "100 %", "67 %", "33 %", "∞", "+0.1 %"]
    assert (third["arm"], third["batch"], third["epochs"]) == ("ct_sgd", "4", "1")


def test_the_command(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(corrections, "changes", lambda config: [0.1] * config.epochs)
    monkeypatch.chdir(tmp_path)
    arguments = ["--optimizers", "ct_sgd", "--seeds", "2", "--epochs", "3"]
    arguments += ["--batch-sizes", "64", "16"]
    main(["corrections", *arguments])
    written = tmp_path / "runs" / "corrections" / "digits_mlp.json"
    found = json.loads(written.read_text())
    main(["corrections", *arguments, "--out", "a.json"])
    assert json.loads((tmp_path / "a.json").read_text()) == found
    each = {"ct_sgd": [[0.1] * 3] * 2}
    assert found["changes"] == {"64": each, "16": each}
    assert "100 %" in capsys.readouterr().out

    for wrong, message in (
        (["--seeds", "0"], "--batch-sizes must be at least 1"),
        (["--optimizers", "adam"], "optimizers must be of ct_sgd"),
        (["--workload", "digit_mlp"], "digits_mlp"),
    ):
        with pytest.raises(SystemExit):
            main(["corrections", *wrong])
        assert message in capsys.readouterr().err
