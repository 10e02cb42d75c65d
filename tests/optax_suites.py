"""Runs test suites that the optax wheel ships, unmodified, on our optimizers.

Usage: python -m tests.optax_suites SUITE, with SUITE one of contrib, alias, sharding.

A suite lists the optimizers under test when it is imported. While it is, the decorators
that read those lists get ours instead; the tests themselves are optax's own.
"""

import importlib.util
import os
import pathlib
import sys
from unittest import mock

from tests import xla

os.environ["XLA_FLAGS"] = xla.FLAGS

import jax
import jax.numpy as jnp
import optax
from absl.testing import absltest, parameterized

import ctagd_optax

FILES = {
    "contrib": "contrib/_common_test.py",
    "alias": "_src/alias_test.py",
    "sharding": "_src/sharding_test.py",
}
# The suites ask for convergence on Rosenbrock's valley, where curvature reaches 1,000.
WRAPPER = {
    "steps_per_epoch": 50,
    "curvature_min": 1.0,
    "curvature_max": 1e4,
    "correction_rate": 0.1,
    "unobserved": "skip",
}
SGD = {**WRAPPER, "learning_rate": 1e-3, "momentum": 0.9, "weight_decay": 0.0}
ADAM = {**WRAPPER, "learning_rate": 1e-2, "weight_decay": 0.0}
FACTORIES = (
    {"opt_name": "ct_sgd", "opt_kwargs": SGD},
    {"opt_name": "ct_adam", "opt_kwargs": ADAM},
)
WRAPPED = tuple(
    {
        "opt_name": name,
        "opt_kwargs": {"learning_rate": learning_rate},
        "wrapper_name": wrapper,
        "wrapper_kwargs": options,
    }
    for name, learning_rate, wrapper, options in (
        ("sgd", 1e-3, "ct_agd", {"steps_per_epoch": 50}),
        ("sgd", 1e-3, "robust_ct_agd", {"steps_per_epoch": 50}),
    )
)
OPTIMIZERS = {
    "robust_ct_agd": ctagd_optax.robust_ct_agd(optax.adam(1.0), 3),
    "ct_agd_algorithm": ctagd_optax.ct_agd(
        optax.adam(1.0),
        steps_per_epoch=1,
        correction_gradient="last",
        estimator=ctagd_optax.secant("algorithm"),
    ),
}


def product_of_ours(*kwargs_seqs, **grid):
    """``parameterized.product`` with our optimizers in place of the listed ones."""

    def replace(seq):
        entries = [e for e in seq if isinstance(e, dict)]
        if not entries or "opt_name" not in entries[0]:
            return seq
        if "wrapper_name" not in entries[0]:
            return FACTORIES
        return WRAPPED

    # CT-AGD refuses complex parameters, which have no order.
    grid = {
        name: [v for v in values if not _is_complex(v)] for name, values in grid.items()
    }
    return PRODUCT(*map(replace, kwargs_seqs), **grid)


def named_parameters_of_ours(*cases):
    """``parameterized.named_parameters`` with our optimizers in place of a dict's."""
    if len(cases) == 1 and type(cases[0]) is type({}.items()):
        cases = (OPTIMIZERS.items(),)
    return NAMED_PARAMETERS(*cases)


def _is_complex(value):
    return value in (jnp.complex64, jnp.complex128)


PRODUCT = parameterized.product
NAMED_PARAMETERS = parameterized.named_parameters


def load(suite):
    """Imports a suite of optax's under a name of its own."""
    path = pathlib.Path(optax.__file__).parent / FILES[suite]
    spec = importlib.util.spec_from_file_location(f"optax_{suite}_suite", path)
    module = importlib.util.module_from_spec(spec)
    home = importlib.import_module(
        "optax._src.alias" if suite == "alias" else "optax.contrib"
    )
    for factory in (
        ctagd_optax.ct_sgd,
        ctagd_optax.ct_adam,
        ctagd_optax.ct_agd,
        ctagd_optax.robust_ct_agd,
    ):
        setattr(home, factory.__name__, factory)
    with (
        mock.patch.object(parameterized, "product", product_of_ours),
        mock.patch.object(parameterized, "named_parameters", named_parameters_of_ours),
    ):
        spec.loader.exec_module(module)
    if suite == "alias":
        del module.LBFGSTest  # tests of L-BFGS alone
    return module


if __name__ == "__main__":
    suite = load(sys.argv.pop(1))
    # The suites compare versions as text, by which 0.10 comes before 0.7.
    with mock.patch.object(jax, "__version__", "0.9"):
        absltest.main(module=suite)
