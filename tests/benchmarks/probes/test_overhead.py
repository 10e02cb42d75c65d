"""The overhead benchmark runs, and its figures are those of the programs."""

import json

import pytest

from benchmarks.__main__ import main
from benchmarks.probes import overhead
from ctagd_optax import _trees

pytestmark = pytest.mark.usefixtures("default_jax")


def test_memory_is_counted_in_bytes_per_parameter(monkeypatch):
    monkeypatch.setattr(_trees, "_one_device", lambda x: True)
    rows = {row.pop("options"): row for row in overhead.memory(120_000, 3)}
    for options, expected in (
        ("robust_ct_agd", 8),
        ("robust_ct_agd, accumulator_dtype=bfloat16", 6),
        ("ct_agd", 20),
        ('ct_agd, secant("algorithm"), correction_gradient="last"', 12),
        ("ct_agd, accumulator_dtype=bfloat16", 17),
        ("ct_agd, accumulator_dtype=bfloat16, bfloat16 parameters", 13),
    ):
        found = rows[options]["state bytes per parameter"]
        assert found == pytest.approx(expected, abs=0.2)
    for row in rows.values():
        assert row["temporary, 3 tensors"] <= 8


def test_traffic_is_what_xla_counts(monkeypatch):
    monkeypatch.setattr(_trees, "_one_device", lambda x: True)
    rows = overhead.traffic((10**4, 10**5, 10**6))
    for name, step in (
        ("sgd", 6),
        ("adam", 10),
        ("ct_agd(sgd)", 6 + 19),
        ("robust_ct_agd(sgd)", 6 + 12),
    ):
        found = [row for row in rows if row["optimizer"] == name]
        assert [row["vectors, a step"] for row in found] == [step] * 3
        closing = [row["vectors by XLA, closing"] for row in found[1:]]
        # The loop's body counts, too: one pass, and what it carries.
        extra = 12 if name == "ct_agd(sgd)" else 0
        assert closing == pytest.approx([step + extra] * 2, abs=0.3)


def test_exponent():
    rows = [
        {"tensors": 1, "parameters": n, "milliseconds": {"x": 3 * n**1.5}}
        for n in (10, 100, 1000)
    ]
    assert overhead.exponent(rows, "x") == pytest.approx(1.5)


def test_short_run(tmp_path, monkeypatch):
    out = tmp_path / "overhead.json"
    out.write_text(json.dumps({"memory": ["kept"]}))
    monkeypatch.setattr(overhead, "MANY", 2)
    few = ("adam", "muon", "ct_agd(sgd)", "robust_ct_agd(sgd)")
    made = {name: overhead.OPTIMIZERS[name] for name in few}
    made["muon"] = made["adam"]  # it compiles faster
    monkeypatch.setattr(overhead, "OPTIMIZERS", made)
    arguments = ["--parts", "compile", "steps", "train", "--sizes", "1000"]
    arguments += ["--tensors", "2", "--repeats", "1", "--workloads", "digits_mlp"]
    main(["overhead", *arguments, "--out", str(out)])
    results = json.loads(out.read_text())
    assert results["memory"] == ["kept"]
    assert [row["optimizer"] for row in results["compile"]] == [*overhead.OPTIMIZERS]
    many, one = (row["milliseconds"] for row in results["steps"])
    assert {*overhead.OPTIMIZERS, "ct_agd(sgd), closing"} < set(many)
    assert "muon" not in one
    assert set(results["train"][0]["milliseconds"]) > {"sgd", "ct_sgd", "robust_sgd"}
