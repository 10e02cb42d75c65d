"""The result of an optimizer's runs, and means with their intervals."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ctagd_optax.testbed._internals import Internals, RobustInternals
from ctagd_optax.testbed._landscape import Landscape


@dataclasses.dataclass(frozen=True)
class Interval:
    """A mean with the half-width of its 95 % interval (Student's t).

    Attributes:
      mean: the mean; NaN of no values.
      half: the half-width; NaN of fewer than two values.
    """

    mean: float
    half: float

    @staticmethod
    def of(values: Sequence[float] | np.ndarray) -> "Interval":
        """The interval of some values.

        Examples:
          >>> from ctagd_optax import testbed
          >>> print(testbed.Interval.of([1.0, 2.0, 3.0]))
          2.00 ± 2.48
        """
        values = np.asarray(values, np.float64)
        n = len(values)
        mean = float(values.mean()) if n else float("nan")
        if n < 2:
            return Interval(mean, float("nan"))
        import scipy.special  # here, as it takes longer than all of the testbed

        quantile = float(scipy.special.stdtrit(n - 1, 0.975))
        return Interval(mean, quantile * float(values.std(ddof=1)) / n**0.5)

    def __str__(self) -> str:
        if np.isnan(self.mean):
            return "–"
        if np.isnan(self.half):
            return f"{self.mean:z.2f}"
        return f"{self.mean:z.2f} ± {self.half:.2f}"


@dataclasses.dataclass(frozen=True)
class Result:
    """All runs of one optimizer.

    Arrays have the run as their first axis; along a path, index 0 is the start and a
    run that is over repeats its last entry.

    Attributes:
      name: the optimizer.
      landscapes: the landscapes, with a leading axis.
      learning_rate: the learning rate; NaN where the optimizer brought its own.
      paths: parameters θ, ``(runs, max_steps + 1, 2)``.
      train_loss: value of the train snapshot that each step was made on.
      train_average: train loss along the paths.
      test_loss: test loss along the paths.
      steps: steps taken, those of the patience among them.
      status: "converged", "diverged" or "unsettled", one per run.
      internals: what CT-AGD or the robust method did along the paths, or None.
      seconds: wall time of all runs, without compilation.
      compile_seconds: time of the one compilation.

    Examples:
      >>> import optax
      >>> from ctagd_optax import testbed
      >>> result = testbed.run(optax.adam(0.1), runs=4, seed=0)
      >>> result.paths.shape, result.steps.shape
      ((4, 501, 2), (4,))
    """

    name: str
    landscapes: Landscape
    learning_rate: float
    paths: np.ndarray
    train_loss: np.ndarray
    train_average: np.ndarray
    test_loss: np.ndarray
    steps: np.ndarray
    status: np.ndarray
    internals: Internals | RobustInternals | None
    seconds: float
    compile_seconds: float

    @property
    def runs(self) -> int:
        """Number of runs."""
        return len(self.steps)

    @property
    def converged(self) -> np.ndarray:
        """Which runs converged."""
        return self.status == "converged"

    @property
    def final(self) -> np.ndarray:
        """Test loss at the end of each run."""
        return self.test_loss[:, -1]

    @property
    def gap(self) -> np.ndarray:
        """Generalisation gap at the end of each run."""
        return self.test_loss[:, -1] - self.train_average[:, -1]

    def interval(self, values: np.ndarray) -> Interval:
        """Mean ± 95 % interval of some values of the runs that converged."""
        return Interval.of(values[self.converged])

    def landscape(self, run: int = 0) -> Landscape:
        """The landscape of one run."""
        return jax.tree.map(lambda x: jnp.asarray(np.asarray(x)[run]), self.landscapes)

    def __str__(self) -> str:
        failed = {
            status: int(np.sum(self.status == status))
            for status in ("diverged", "unsettled")
        }
        failures = ", ".join(f"{n} {status}" for status, n in failed.items() if n)
        return (
            f"{self.name}: final {self.interval(self.final)}, "
            f"steps {self.interval(self.steps)}, gap {self.interval(self.gap)} "
            f"({int(self.converged.sum())} of {self.runs} converged"
            f"{'; ' + failures if failures else ''})"
        )

    def plot(self, run: int = 0, *, dark: bool = False) -> Any:
        """Draws the path of one run over the test surface, and its test loss.

        Args:
          run: which run.
          dark: for a dark page.

        Returns:
          A Matplotlib figure.
        """
        from ctagd_optax.testbed._plots import plot

        return plot([self], run=run, dark=dark)
