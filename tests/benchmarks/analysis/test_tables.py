"""Tables of hand-made comparisons."""

import io

import pytest
from rich.console import Console

from benchmarks.analysis import tables
from tests.benchmarks.handmade import comparison, run


@pytest.fixture
def results():
    trust = {"observed": [0.5, 0.5], "gamma_at_min": [1.0, 0.5]}
    return comparison(
        workload="cifar10_resnet20",
        sgd=("backbone", run(0.5, 0.6, 0.78), run(0.5, 0.8, 0.7, seed=1)),
        sgd__1=("tuned", run(0.8, 0.8), run(0.8, 0.8, seed=1)),
        adam=("backbone", run(0.5, 0.78), run(0.5, 0.6, seed=1, failed_step=70)),
        ct_sgd=("paper", run(0.5, 0.8, **trust), run(0.7, 0.8, seed=1, **trust)),
        ct_adam=("paper", run(0.5, 0.8), run(0.6, 0.8, seed=1)),
    )


def test_cells(results):
    sgd, tuned, adam, ct_sgd, ct_adam = tables.comparison(results)
    assert sgd["arm"] == "sgd"
    assert sgd["best, %"] == "79.0 ± 12.7"
    assert sgd["epochs to 76.0 %"] == "2.5 ± 6.4"
    assert sgd["fell back"] == "1 of 2"
    assert sgd["saved on backbone"] == "–"
    assert tuned["saved on backbone"] == "60.0 %"
    assert adam["epochs to 76.0 %"] == "∞ (1 of 2 missed)"
    assert adam["diverged"] == "1 of 2"
    assert ct_sgd["saved on backbone"] == "20.0 %"
    assert ct_sgd["saved on tuned"] == "−100.0 %"
    assert (ct_sgd["evidence"], ct_sgd["γ at λ_min"]) == ("50 %", "75 %")
    assert ct_adam["saved on backbone"] == "other never"


def test_the_paper_s_numbers_stand_beside_ours(results):
    sgd, tuned, *_ = tables.comparison(results)
    assert sgd["paper: best, %"] == "90.35 ± 0.14"
    assert sgd["paper: epochs to 85.7 %"] == "32.4 ± 3.4"
    assert tuned["paper: best, %"] == "–"
    results["workload"] = "digits_mlp"
    assert not any("paper" in title for title in tables.comparison(results)[0])


def test_columns_with_nothing_in_them_are_left_out(results):
    [row, *_] = tables.comparison(results)
    assert "saved on control" not in row
    assert "seconds to cutoff" not in row


def test_times():
    results = comparison(sgd=("backbone", run(0.5, 0.9)))
    times = [{"seed": 0, "seconds": [1.0, 3.0], "compile_seconds": 4.0}]
    [row] = tables.comparison(results, {"arms": {"sgd": times}})
    assert row["seconds to cutoff"] == "3.0"
    assert row["seconds an epoch"] == "1.50"
    assert row["compilation, s"] == "4.0"


def test_progress_in_words():
    results = comparison(
        sgd__1=("tuned", run(0.2, 0.3, 0.4, 0.98), run(0.4, 0.5, 0.6, 1.0, seed=1)),
        robust_sgd__1=("ours", run(0.97, 0.9, 0.8, 0.98), run(0.5, 0.6, 0.7, seed=1)),
        lion=("peer", run(failed_step=1)),
    )
    for name, arm in results["arms"].items():
        arm["options"] = {"learning_rate": 1.0 if "@" in name else 3e-4}
    bare, wrapped, lion = tables.progress(results)
    assert bare == {
        "optimizer": "sgd",
        "learning rate": "1",
        "wrapped by": "–",
        "1 epoch": "30.0",
        "3 epochs": "50.0",
        "4 epochs": "99.0",
        "epochs to 94.0 %": "4.0",
    }
    assert list(wrapped.values())[2:5] == ["robust_ct_agd", "73.5", "75.0"]
    # A seed ends early, and never arrives.
    assert list(wrapped.values())[5:] == ["diverged", "∞"]
    assert list(lion.values())[:4] == ["lion", "0.0003", "–", "diverged"]


def test_an_arm_that_alone_never_arrives():
    results = comparison(sgd=("backbone", run(0.9)), ct_sgd=("paper", run(0.1)))
    assert tables.comparison(results)[1]["saved on backbone"] == "never"


def test_caption(results):
    text = tables.caption(results, [])
    assert text.startswith(
        "Digits. Test accuracy of 2 seeds; 3 epochs of 24 steps with batches of 64. "
        "Means ± 95 % intervals. The target 76.0 % is 5 % below"
    )
    alone = tables.caption(comparison(sgd=("backbone", run(0.5))), [])
    assert "of 1 seed; " in alone
    assert "Means. The" in alone


def test_the_caption_explains_what_the_rows_show(results):
    rows = tables.comparison(results)
    whole = tables.caption(results, rows).removeprefix(tables.setting(results))
    assert whole == (
        " ∞: a seed never reached the target. Fell back: seeds that were below it "
        "again later. Saved: epochs to the target, in % of the baseline's. Backbone: "
        "the bare optimizer at the same learning rate. Tuned: the bare optimizer at a "
        "tuned learning rate. Other never: the baseline does not get there. Own end: "
        "within 5 % of a run's own last accuracy. Evidence: share of coordinates whose "
        "curvature was seen. γ at λ_min: how often the clamp, not curvature, set the "
        "rate."
    )
    few = [{"evidence": "50 %"}]
    assert tables.caption(results, few).endswith(
        "accuracy. Evidence: share of coordinates whose curvature was seen."
    )


def test_markdown():
    rows = [{"a": "x", "b": 1, "c": 2.5}, {"a": "y", "b": 3, "c": 4}]
    assert tables.markdown(rows).splitlines() == [
        "| a | b | c |",
        "|---|---:|---:|",
        "| x | 1 | 2.5 |",
        "| y | 3 | 4 |",
    ]
    assert "|---|---|---:|" in tables.markdown(rows, texts=2)


def test_terminal():
    table = tables.terminal([{"arm": "sgd", "epochs": 2}], "Digits")
    assert [column.justify for column in table.columns] == ["left", "right"]
    text = io.StringIO()
    Console(file=text, width=60).print(table)
    assert all(word in text.getvalue() for word in ("Digits", "epochs", "sgd", "2"))
