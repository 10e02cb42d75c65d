"""Tables and values of hand-made comparisons."""

import pytest

from benchmarks.pages import files, savings
from tests.benchmarks.handmade import comparison, run, write


@pytest.fixture
def results(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "RESULTS", tmp_path)

    def add(name="digits_mlp", **arms):
        found = comparison(name, **arms)
        for arm in found["arms"].values():
            arm["options"]["learning_rate"] = 0.5
        write(tmp_path / "compare" / name, found, dict.fromkeys(found["arms"], 1.0))

    return add


def pair(*curve):
    """A run with each of two seeds."""
    return run(*curve), run(*curve, seed=1)


def cells(line):
    return [cell.strip() for cell in line.split("|")[1:-1]]


def test_expect(results):
    for name, best in (("digits_mlp", 1.0), ("cora_graphsage", 0.8)):
        results(
            name,
            sgd=("backbone", run(0.5, 0.96, 1.0), run(0.5, 0.6, 0.96, seed=1)),
            adam=("backbone", *pair(0.5, 0.5)),
            robust_sgd=("ours", *pair(best)),
            **{"robust_no_loss(sgd)": ("control", *pair(0.5, 0.5, 1.0))},
            ct_sgd=("paper", *pair(0.1)),
            **{"sgd@1+average": ("tuned", *pair(0.1))},
            sgd__2=("tuned", run(0.1, 1.0), run(0.1, 0.96, seed=1)),
        )
    assert files.compared() == ["digits_mlp", "cora_graphsage"]
    title, _, digits, cora = savings.expect().splitlines()
    assert cells(title)[:4] == ["workload", "SGD", "SGD, robust", "SGD, robust + loss"]
    assert cells(title)[5:7] == ["SGD, tuned", "Adam"]
    # Each seed has its own target: 99 % of where bare SGD ends with it.
    assert (
        digits == "| `digits_mlp` | 3.0 | 3.0 | 1.0 | ∞ | 2.0 | 1.0 | – | – | – | – |"
    )
    assert cora.startswith("| `cora_graphsage` | 3.0 | 3.0 | ∞ |")
    assert savings.seeds() == "2 seeds"
    assert savings.rate("sgd") == "0.5"


def test_seeds_that_differ(results):
    for name in ("digits_mlp", "cora_graphsage"):
        results(name, sgd=("backbone", *pair(0.5)))
    results("cifar10_small", sgd=("backbone", run(0.5)))
    assert savings.seeds() == "2 seeds (`cifar10_small`: 1)"


def test_controls_and_peers(results):
    arms = {
        "sgd": ("backbone", run(0.5, 1.0)),
        "adam": ("backbone", run(0.5, 0.5)),
        "robust_sgd": ("ours", run(0.5, 0.5, 1.0)),
        "sawtooth_control": ("control", run(0.99)),
        "sawtooth_control:peak=20": ("control", run(0.9)),
        "adam@1+average": ("tuned", run(0.5)),
        "muon": ("peer", run(0.75, 0.25)),
    }
    results(**arms, lion=("peer", run(0.5)))  # of one workload only
    results("cora_graphsage", **arms)
    _, _, row, _ = savings.controls().splitlines()
    assert cells(row)[1:] == ["3.0", "1.0", "∞", "–", "–", "–", "–", "1.0"]
    title, _, row, _ = savings.peers().splitlines()
    assert dict(zip(cells(title), cells(row), strict=True)) == {
        "workload": "`digits_mlp`",
        "SGD, robust + loss": "100.0",
        "SGD, tuned": "–",
        "Adam, robust + loss": "–",
        "Adam, tuned": "–",
        "`muon`": "75.0",
    }
    assert savings.best("digits_mlp", "muon") == "75.0"
    with pytest.raises(KeyError, match="adamw"):
        savings.best("digits_mlp", "adamw")


def test_a_comparison_has_all_optimizers_in_the_order_of_roles(results):
    results(
        muon=("peer", run(0.5, 1.0)),
        sgd=("backbone", run(0.5, 0.9)),
        robust_sgd=("ours", run(1.0)),
    )
    title, _, *rows = savings.comparison("digits_mlp").splitlines()
    assert cells(title)[:3] == ["optimizer", "best, %", "epochs to 95.0 %"]
    assert [cells(row)[:4] for row in rows] == [
        ["`sgd`", "90.0", "∞ (1 of 1 missed)", "2.0"],
        ["`robust_sgd`", "100.0", "1.0", "1.0"],
        ["`muon`", "100.0", "2.0", "–"],
    ]
    assert savings.target("digits_mlp") == "95.0"
    assert savings.setting("digits_mlp", "batch_size") == "64"
    assert savings.setting("digits_mlp", "seeds") == "1"


def test_a_learning_rate_that_differs_is_an_error(results, monkeypatch):
    results(sgd=("backbone", run(0.5)))
    other = comparison("cora_graphsage", sgd=("backbone", run(0.5)))
    other["arms"]["sgd"]["options"]["learning_rate"] = 0.25
    write(files.RESULTS / "compare" / "cora_graphsage", other, {"sgd": 1.0})
    with pytest.raises(ValueError, match="the learning rate of sgd must be one"):
        savings.rate("sgd")
