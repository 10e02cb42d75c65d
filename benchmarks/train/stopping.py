"""Ctrl-C and SIGTERM: a run is asked to stop, and does so after a step."""

import contextlib
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any

import jax
from jax.experimental import multihost_utils


class Interrupted(KeyboardInterrupt):
    """The run was asked to stop, and has been saved."""


@contextlib.contextmanager
def stop_requests() -> Iterator[Callable[[int], bool]]:
    """A function that tells after a step whether to stop there.

    The first Ctrl-C or SIGTERM asks for it, a second one ends the program at once. The
    processes of a run agree on a step.
    """
    if threading.current_thread() is not threading.main_thread():
        yield lambda step: False  # signals reach the main thread alone
        return
    requested = threading.Event()
    together = jax.process_count() > 1
    # Of several processes, JAX takes SIGTERM itself and finds a step for all of them.
    signals = (signal.SIGINT,) if together else (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.getsignal(number) for number in signals}
    # A signal that is ignored stays so, as in the processes of a comparison.
    before = {n: handler for n, handler in before.items() if handler != signal.SIG_IGN}

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    def request(number: int, frame: Any) -> None:
        del number, frame
        requested.set()
        # A pool of processes that loses one asks the others again; it kills them in
        # the end.
        if multiprocessing.parent_process() is None:
            restore()
        if together:
            os.kill(os.getpid(), signal.SIGTERM)

    for number in before:
        signal.signal(number, request)
    try:
        yield (
            multihost_utils.reached_preemption_sync_point
            if together
            else lambda step: requested.is_set()
        )
    finally:
        restore()
