"""Every test runs with JAX at its strictest, on eight CPU devices."""

import contextlib
import gc
import os
import signal
import subprocess

from tests import xla

os.environ["XLA_FLAGS"] = xla.FLAGS

import hypothesis
import jax
import pytest
from jax.experimental.compilation_cache import compilation_cache

hypothesis.settings.register_profile(
    "repeatable",
    derandomize=True,
    deadline=None,
    print_blob=True,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("repeatable")


# A shell has what it starts in the background ignore Ctrl-C, and so would that what it
# starts, of which some tests interrupt a run.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_finish():
    """Most of what tests make stays, too: the garbage collector may look less often."""
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)


@pytest.fixture(autouse=True, scope="module")
def strict_jax():
    """Float64 on, no implicit promotion of dtypes or ranks."""
    with (
        jax.enable_x64(True),
        jax.numpy_dtype_promotion("strict"),
        jax.numpy_rank_promotion("raise"),
    ):
        yield


@pytest.fixture(scope="session")
def compiled(tmp_path_factory):
    """A folder for compiled programs, of all tests that share theirs."""
    return tmp_path_factory.getbasetemp().parent / "compiled"


@pytest.fixture(autouse=True, scope="session")
def shared_programs(compiled):
    """Programs that tests start as processes compile what they share once."""
    os.environ["JAX_COMPILATION_CACHE_DIR"] = str(compiled)
    os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"


@pytest.fixture(scope="module")
def remember_compiled(compiled):
    """The same within the tests' own process, for a module."""
    options = {
        "jax_compilation_cache_dir": str(compiled),
        "jax_persistent_cache_min_compile_time_secs": 0.0,
    }
    before = {name: getattr(jax.config, name) for name in options}
    for name, value in options.items():
        jax.config.update(name, value)
    compilation_cache.reset_cache()
    yield
    for name, value in before.items():
        jax.config.update(name, value)
    compilation_cache.reset_cache()


@pytest.fixture
def start():
    """Starts a process in a session of its own; all of it ends with the test."""
    with contextlib.ExitStack() as stack:

        def start(command, **options):
            run = subprocess.Popen(command, start_new_session=True, **options)
            stack.enter_context(run)
            stack.callback(_kill_group, run.pid)
            return run

        yield start


def _kill_group(group):
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)


@pytest.fixture
def default_jax(strict_jax):
    """JAX as a user finds it."""
    with (
        jax.enable_x64(False),
        jax.numpy_dtype_promotion("standard"),
        jax.numpy_rank_promotion("allow"),
    ):
        yield


@pytest.fixture
def standard_promotion(strict_jax):
    """For what promotes dtypes implicitly, as much of optax does."""
    with jax.numpy_dtype_promotion("standard"):
        yield
