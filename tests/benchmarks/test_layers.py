"""Layers know only those above them."""

import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    "module",
    [
        "sweep_cells",
        "curves",
        "profiles",
        "tables",
        "plots",
        "cost_plots",
        "sweep_plots",
    ],
)
def test_analysis_reads_files_only(module):
    code = (
        f"import sys, benchmarks.analysis.{module}; "
        "print([m for m in sys.modules if m.split('.')[0] in ('flax', 'orbax') "
        "or m.startswith(('benchmarks.train', 'benchmarks.study'))])"
    )
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert run.stdout.strip() == "[]"
