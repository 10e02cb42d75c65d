"""The same small learning-rate search for every optimizer."""

import dataclasses

import jax
import numpy as np

from ctagd_optax.testbed._landscape import LandscapeConfig
from ctagd_optax.testbed._runner import STATUS, Simulator, make_landscapes


@dataclasses.dataclass(frozen=True)
class TuningConfig:
    """The search, which is the same for every optimizer.

    Attributes:
      rates: the learning rates that are tried: three decades in half-decade steps, with
        the paper's rates for SGD (0.01), Adam (0.001) and L-BFGS (1) among them.
      landscapes: number of tuning landscapes; none of them is in the table.
      slack: a mean train loss within this of the best counts as equally good, and the
        rate with fewer steps is taken. Small beside the differences between valleys.

    Examples:
      >>> from ctagd_optax import testbed
      >>> print(testbed.TuningConfig().budget())
      7 learning rates from 0.001 to 1, each on 6 tuning landscapes: 42 runs
    """

    rates: tuple[float, ...] = (1e-3, 3e-3, 1e-2, 3e-2, 1e-1, 3e-1, 1.0)
    landscapes: int = 6
    slack: float = 0.25

    def __post_init__(self):
        if not self.rates or min(self.rates) <= 0:
            raise ValueError("rates must be learning rates above 0")
        if self.landscapes < 1:
            raise ValueError(f"landscapes must be at least 1, got {self.landscapes}")

    def budget(self) -> str:
        """The search in words."""
        return (
            f"{len(self.rates)} learning rates from {min(self.rates):g} to "
            f"{max(self.rates):g}, each on {self.landscapes} tuning landscapes: "
            f"{len(self.rates) * self.landscapes} runs"
        )


@dataclasses.dataclass(frozen=True)
class Trial:
    """One learning rate of a search.

    Attributes:
      rate: the learning rate.
      failures: runs that did not converge.
      train_average: mean final train loss of those that did; of all if none did.
      steps: mean steps of the same runs.
    """

    rate: float
    failures: int
    train_average: float
    steps: float


def tune(
    simulator: Simulator,
    landscape: LandscapeConfig,
    seed: int,
    config: TuningConfig,
) -> tuple[float, list[Trial], float]:
    """Searches an optimizer's learning rate on landscapes that no table uses.

    The fewest failures win; then the lowest mean train loss, up to the slack; then the
    fewest steps. The test loss is not looked at.

    Args:
      simulator: the compiled optimizer.
      landscape: constants of the landscape.
      seed: the experiment's seed; tuning landscapes have keys of their own.
      config: the search.

    Returns:
      The learning rate, all trials, and the seconds the search took.
    """
    landscapes = make_landscapes(config.landscapes, seed, landscape, purpose="tuning")
    rates = np.repeat(config.rates, config.landscapes)
    index = np.tile(np.arange(config.landscapes), len(config.rates))
    record, steps, status, seconds = simulator(
        jax.tree.map(lambda x: np.asarray(x)[index], landscapes), rates
    )
    trials = []
    for rate in config.rates:
        mine = rates == rate
        converged = mine & (np.asarray(STATUS)[status] == "converged")
        counted = converged if converged.any() else mine
        trials.append(
            Trial(
                rate=rate,
                failures=int(mine.sum() - converged.sum()),
                train_average=float(record.train_average[counted, -1].mean()),
                steps=float(steps[counted].mean()),
            )
        )
    return choose(trials, config.slack).rate, trials, seconds


def choose(trials: list[Trial], slack: float) -> Trial:
    """The best trial: failures first, then train loss up to the slack, then steps.

    Examples:
      >>> from ctagd_optax.testbed._tuning import Trial, choose
      >>> slow, fast = Trial(0.01, 0, -6.1, 200.0), Trial(0.1, 0, -6.0, 100.0)
      >>> choose([slow, fast, Trial(1.0, 1, -9.0, 60.0)], slack=0.25).rate
      0.1
    """
    fewest = min(trial.failures for trial in trials)
    safe = [trial for trial in trials if trial.failures == fewest]
    best = min(trial.train_average for trial in safe)
    good = [trial for trial in safe if trial.train_average <= best + slack]
    return min(good, key=lambda trial: trial.steps)
