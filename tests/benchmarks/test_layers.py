"""Layers know only those above them."""

import subprocess
import sys

MODULES = [
    "sweep_cells",
    "curves",
    "profiles",
    "tables",
    "plots",
    "cost_plots",
    "sweep_plots",
]


def test_analysis_reads_files_only():
    code = (
        "import importlib, sys\n"
        f"for name in {MODULES}:\n"
        "    importlib.import_module('benchmarks.analysis.' + name)\n"
        "    print(name, [m for m in sys.modules if m.split('.')[0] in "
        "('flax', 'orbax') or m.startswith(('benchmarks.train', 'benchmarks.study'))])"
    )
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert run.stdout.splitlines() == [f"{name} []" for name in MODULES]
