"""What an installation brings, and what an import loads."""

import importlib.metadata
import inspect
import pathlib
import subprocess
import sys

import optax

import ctagd_optax

ROOT = pathlib.Path(__file__).parent.parent


def test_the_library_needs_jax_and_optax_alone():
    required = importlib.metadata.requires("ctagd-optax") or []
    core = [r for r in required if "extra ==" not in r]
    assert sorted(r.split(">")[0] for r in core) == ["jax", "optax"]


def test_import_loads_nothing_heavy():
    code = (
        "import sys, optax; before = set(sys.modules); import ctagd_optax; "
        "print(*sorted({m.split('.')[0] for m in set(sys.modules) - before}))"
    )
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert run.stdout.split() == ["ctagd_optax"]


def test_typed():
    assert (pathlib.Path(ctagd_optax.__file__).parent / "py.typed").exists()


def test_public_names_have_docstrings():
    for name in ctagd_optax.__all__:
        assert inspect.getdoc(getattr(ctagd_optax, name)), name


def test_presets_show_every_option():
    options = [
        p.name
        for p in inspect.signature(ctagd_optax.ct_agd).parameters.values()
        if p.kind is p.KEYWORD_ONLY
    ]
    for preset in (ctagd_optax.ct_sgd, ctagd_optax.ct_adam):
        parameters = inspect.signature(preset).parameters
        assert set(options) < set(parameters)
        assert parameters["learning_rate"].annotation == optax.ScalarOrSchedule


def test_no_private_imports():
    for path in (ROOT / "ctagd_optax").rglob("*.py"):
        source = path.read_text()
        assert "optax._src" not in source, path
        assert "jax._src" not in source, path
