"""Values of hand-made measurements."""

import json

import pytest

from benchmarks.pages import costs, files

NAMES = "ct_agd(sgd)", "ct_agd(sgd), closing", "robust_ct_agd(sgd)"


def step(parameters, adam, *times, tensors=1):
    milliseconds = {"adam": adam, **dict(zip(NAMES, times, strict=True))}
    return {"tensors": tensors, "parameters": parameters, "milliseconds": milliseconds}


@pytest.fixture(autouse=True)
def measured(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "RESULTS", tmp_path)
    train = [
        {"milliseconds": {"sgd": 10.0, "robust_sgd": time}} for time in (9.9, 10.5)
    ]
    steps = [
        step(10**4, 1.0, 9, 9, 9),  # too small to count
        step(10**7, 1.0, 2, 3, 4),
        step(10**7, 1.0, 9, 9, 9, tensors=150),
        step(25 * 10**6, 2.0, 4, 10, 6),
    ]
    vectors = {"sgd": 6, "ct_agd(sgd)": 25, "robust_ct_agd(sgd)": 18}
    traffic = [
        {"optimizer": name, "vectors, a step": number}
        for name, number in vectors.items()
    ]
    (tmp_path / "overhead.json").write_text(
        json.dumps({"steps": steps, "train": train, "traffic": traffic})
    )


def test_ratios_are_given_as_a_range():
    assert costs.step("robust_ct_agd(sgd)", "adam") == "3.0 to 4.0"
    assert costs.step("ct_agd(sgd)", "adam") == "2.0"
    assert costs.train("robust_sgd") == "0.99 to 1.05"


def test_the_end_of_an_epoch():
    assert costs.closing("parameters") == "25,000,000"
    assert costs.closing("ms") == "6"
    assert costs.closing("steps") == "1.5"


def test_growth_is_that_of_single_tensors():
    assert costs.sizes("steps") == "10,000 to 25,000,000"
    assert float(costs.growth("ct_agd(sgd)")) < 0
    assert float(costs.growth("ct_agd(sgd)")) < float(
        costs.growth("ct_agd(sgd)", "closing")
    )


def test_a_chip_by_the_formulas():
    _, _, ours, paper = costs.chip("1e9", "4", "100", "1e12").splitlines()
    assert ours == "| `robust_ct_agd` | 2000 MB | 12.0 GB | 12.0 ms | 3.2 kB |"
    assert paper == "| `ct_agd` | 5000 MB | 19.0 GB | 19.0 ms | 0.4 kB |"
