"""The overhead benchmark runs, and its memory figures are the state's."""

import json
import sys

import pytest

from benchmarks import overhead

pytestmark = pytest.mark.usefixtures("default_jax")


def test_memory_is_counted_in_bytes_per_parameter():
    rows = {
        row["options"]: row["state bytes per parameter"]
        for row in overhead.memory(5000)
    }
    for options, expected in (
        ("robust_ct_agd", 8),
        ("ct_agd", 20),
        ('ct_agd, secant("algorithm"), correction_gradient="last"', 12),
        ("ct_agd, accumulator_dtype=bfloat16, bfloat16 parameters", 10),
    ):
        assert rows[options] == pytest.approx(expected, abs=0.1)


def test_short_run(tmp_path, monkeypatch):
    out = tmp_path / "overhead.json"
    monkeypatch.setattr(
        sys,
        "argv",
        ["overhead", "--sizes", "1000", "--repeats", "2", "--out", str(out)],
    )
    monkeypatch.setattr(overhead, "memory", lambda: [])
    monkeypatch.setattr(overhead, "import_milliseconds", dict)
    overhead.main()
    results = json.loads(out.read_text())
    assert set(overhead.OPTIMIZERS) < set(results["steps"]["1000"]["milliseconds"])
    boundary = results["boundary"]["1000"]
    assert set(boundary["milliseconds"]) == {"close_epoch", "with jnp.quantile"}
    assert "times faster" in boundary
