"""The search of options."""

import json
import re

import pytest
from rich.console import Console

from benchmarks import specs
from benchmarks.study import tune

pytestmark = pytest.mark.usefixtures("default_jax")


@pytest.mark.parametrize("name", specs.names())
def test_trials_fill_the_search_space(name):
    space = specs.arm(name).search
    names = tune.trials(name, 9)
    assert len(set(names)) == 9
    arms = [specs.arm(trial) for trial in names]
    for key, (low, high) in space.items():
        values = [arm.options[key] for arm in arms]
        assert low <= min(values) < max(values) <= high
        assert max(values) / min(values) > (high / low) ** 0.7


def test_given_options_are_kept():
    [wrapped] = tune.trials("robust(lion):target=3", 1)
    assert wrapped == "robust(lion@0.00032):target=3"
    [trial] = tune.trials("ct_sgd:unobserved=skip", 1)
    assert specs.arm(trial).options["unobserved"] == "skip"
    [averaged] = tune.trials("sgd+average", 1)
    assert specs.arm(averaged).options["average"]


def test_bad_input():
    with pytest.raises(ValueError, match="trials must be at least 1, got 0"):
        tune.trials("sgd", 0)


@pytest.mark.parametrize(
    ("spec", "searched"),
    [
        ("sgd@0.1", "learning_rate"),
        ("sgd@0.1+average", "learning_rate"),
        ("sgd:momentum=0.9, learning_rate = 0.1", "learning_rate"),
        ("ct_sgd@0.1:curvature_min=0.1", "curvature_min, learning_rate"),
    ],
)
def test_what_is_searched_must_not_be_set(spec, searched):
    message = f"optimizer '{re.escape(spec)}' must not set {searched}"
    with pytest.raises(ValueError, match=message):
        tune.trials(spec, 3)


def test_the_best_on_the_validation_part_is_chosen(tmp_path):
    found = tune.tune(
        "digits_mlp", "sgd", 2, tmp_path, epochs=2, console=Console(quiet=True)
    )
    assert list(found["trials"]) == ["sgd@0.0056", "sgd@0.18"]
    assert found["chosen"] == "sgd@0.18"
    assert found["trials"]["sgd@0.18"] > found["trials"]["sgd@0.0056"] > 0
    assert tune.read_tuned(tmp_path, "digits_mlp") == ["sgd@0.18"]
    with pytest.raises(ValueError, match=r"searches on cora, .* is of digits_mlp"):
        tune.read_tuned(tmp_path, "cora")
    [run] = (tmp_path / "tuning/runs/sgd@0.18").iterdir()
    described = json.loads((run / "config.json").read_text())
    assert described["config"]["part"] == "validation"
    assert described["steps_per_epoch"] == -(-(1497 - 300) // 64)


def test_nothing_tuned(tmp_path):
    with pytest.raises(FileNotFoundError, match="python -m benchmarks tune"):
        tune.read_tuned(tmp_path, "digits_mlp")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "is not JSON: "),
        ("{}", "does not describe a search of tune: it must have chosen, workload"),
        ('{"workload": "digits_mlp", "chosen": 1}', ".*chosen must be a text, got 1"),
    ],
)
def test_damaged_searches(text, message, tmp_path):
    path = tmp_path / "tuned" / "sgd.json"
    path.parent.mkdir()
    path.write_text(text)
    with pytest.raises(ValueError, match=rf"^{path} {message}"):
        tune.read_tuned(tmp_path, "digits_mlp")
