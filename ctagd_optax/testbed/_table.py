"""The testbed's table, with the paper's numbers beside ours."""

import dataclasses
import textwrap
from collections.abc import Callable, Sequence
from typing import Any

import jax
import optax

from ctagd_optax.testbed._internals import CTAGDSettings
from ctagd_optax.testbed._landscape import LandscapeConfig
from ctagd_optax.testbed._optimizers import TABLE_OPTIMIZERS, get_optimizer
from ctagd_optax.testbed._paper import PAPER_CLAIMS, verdict
from ctagd_optax.testbed._result import Result
from ctagd_optax.testbed._rows import SETTINGS, Row, row_json, section
from ctagd_optax.testbed._runner import (
    RunConfig,
    Simulator,
    make_landscapes,
    simulate,
)
from ctagd_optax.testbed._tuning import TuningConfig, tune

# Ours, as "the first takes fewer steps than the second", in both settings.
_CONTROLS = (
    ("Robust (SGD)", "SGD"),
    ("Robust (Adam)", "Adam"),
    ("CT-AGD", "γ = λ_min"),
)


@dataclasses.dataclass(frozen=True)
class Table:
    """The testbed table; ``str()`` of it is text, ``to_json()`` is data.

    Attributes:
      rows: one per optimizer and setting.
      mode: "tuned" or "paper".
      runs: landscapes per row.
      seed: the experiment's seed.
      landscape: constants of the landscape.
      config: when a run is over.
      tuning: the learning-rate search.
      settings: CT-AGD's constants.
      tuning_seconds: time of all searches.
      compile_seconds: time of all compilations.
    """

    rows: tuple[Row, ...]
    mode: str
    runs: int
    seed: int
    landscape: LandscapeConfig
    config: RunConfig
    tuning: TuningConfig
    settings: CTAGDSettings
    tuning_seconds: float
    compile_seconds: float

    @property
    def run_seconds(self) -> float:
        """Time of all runs of the table, without compilation and search."""
        return sum(row.result.seconds for row in self.rows)

    def select(self, setting: str) -> list[Row]:
        """The rows of one setting."""
        return [row for row in self.rows if row.setting == setting]

    def find(self, name: str, setting: str) -> Row | None:
        """The row of one optimizer, or None."""
        return next((row for row in self.select(setting) if row.name == name), None)

    def agreement(self) -> str:
        """A plain line on where ours and the paper's numbers agree and where not."""
        groups: dict[bool | None, list[str]] = {True: [], False: [], None: []}
        counts = dict.fromkeys(groups, 0)
        for row in self.rows:
            for group, items in groups.items():
                keys = [k for k, same in row.agreement().items() if same is group]
                counts[group] += len(keys)
                if keys:
                    items.append(f"{row.name} {', '.join(keys)} ({row.setting})")
        line = (
            f"{counts[True]} of {sum(counts.values())} numbers agree with the paper's "
            f"up to chance, {counts[False]} differ, and for {counts[None]} too many "
            "runs failed to compare."
        )
        words = {True: "Agree", False: "Differ", None: "Too many failures"}
        for group, items in groups.items():
            if items:
                line += f" {words[group]}: {'; '.join(items)}."
        return line

    def claims(self) -> list[str]:
        """What the paper says of steps, tested on the same landscapes in pairs."""
        lines = []
        for first, second, setting in PAPER_CLAIMS:
            a, b = self.find(first, setting), self.find(second, setting)
            if a is None or b is None:
                continue
            paper = a.paper["steps"].mean - b.paper["steps"].mean
            lines.append(
                f"{setting}: {first} takes fewer steps than {second} (paper "
                f"{paper:+.0f}): {verdict(a.result, b.result)}"
            )
        return lines

    def controls(self) -> list[str]:
        """The robust method against its backbones, and CT-AGD against its control."""
        lines = []
        for first, second in _CONTROLS:
            for setting in SETTINGS:
                a, b = self.find(first, setting), self.find(second, setting)
                if a is not None and b is not None:
                    lines.append(
                        f"{setting}: {first} takes fewer steps than {second}: "
                        f"{verdict(a.result, b.result)}"
                    )
        return lines

    def to_json(self) -> dict[str, Any]:
        """Everything as JSON data, run by run; a number that is undefined is null."""
        return {
            "mode": self.mode,
            "runs": self.runs,
            "seed": self.seed,
            "landscape": dataclasses.asdict(self.landscape),
            "run_config": dataclasses.asdict(self.config),
            "ct_agd": dataclasses.asdict(self.settings),
            "tuning": {
                **dataclasses.asdict(self.tuning),
                "budget": self.tuning.budget(),
            },
            "versions": {"jax": jax.__version__, "optax": optax.__version__},
            "seconds": {
                "compile": self.compile_seconds,
                "tuning": self.tuning_seconds,
                "runs": self.run_seconds,
            },
            "rows": [row_json(row) for row in self.rows],
            "agreement": self.agreement(),
            "claims": self.claims(),
            "controls": self.controls(),
        }

    def __str__(self) -> str:
        rates = (
            f"each optimizer's comes from the same search, {self.tuning.budget()} per "
            "setting"
            if self.mode == "tuned"
            else "the paper's, not searched, and for the robust method its backbone's"
        )
        total = self.run_seconds + self.tuning_seconds
        per_run = self.run_seconds / (self.runs * len(self.rows))
        parts = [
            textwrap.fill(
                f"Testbed: {self.runs} landscapes per setting, seed {self.seed}, mode "
                f"{self.mode}. Learning rates: {rates}.",
                96,
            ),
            section(
                "Drifting: test loss, steps and gap at the end",
                self.select("drifting"),
                ("final", "steps", "gap"),
            ),
            section(
                "Stationary: value and steps at the end",
                self.select("stationary"),
                ("final", "steps"),
            ),
            "Means ± 95 % intervals over the runs that converged; every failure is "
            "counted beside them\nand leaves easier runs in the mean. One L-BFGS step "
            "holds a whole line search.\n= agrees with the paper up to chance, ≠ "
            "differs, ? fewer than 12 in 15 of ours converged.",
            textwrap.fill(
                "CT-AGD clamps the curvature to [0.1, 10], the library's default; "
                "'CT-AGD, appendix' to [0.01, 100], as the paper's appendix does. The "
                "paper's numbers are beside the former: its ablation calls the two "
                "equal.",
                96,
            ),
            textwrap.fill("Agreement: " + self.agreement(), 96),
            "\n".join(
                [
                    "The paper's claims, and ours, in pairs on the same landscapes:",
                    *(f"  {line}" for line in self.claims() + self.controls()),
                ]
            ),
            f"Time: {total:.2f} s after compilation (search {self.tuning_seconds:.2f} "
            f"s, table {self.run_seconds:.2f} s, {per_run:.4f} s a run; the paper has "
            f"0.33 to 0.54 s a run).\nCompilation: {self.compile_seconds:.1f} s, once "
            "per optimizer.",
        ]
        return "\n\n".join(parts)


def make_table(
    *,
    runs: int = 15,
    seed: int = 0,
    mode: str = "tuned",
    optimizers: Sequence[str] = TABLE_OPTIMIZERS,
    landscape: LandscapeConfig | None = None,
    config: RunConfig | None = None,
    tuning: TuningConfig | None = None,
    progress: Callable[[str], None] | None = None,
) -> Table:
    """Runs the testbed's table.

    Args:
      runs: landscapes per setting.
      seed: which landscapes.
      mode: "tuned" searches every learning rate in the same way; "paper" takes the
        paper's, and searches only where the paper has none.
      optimizers: their names, see :func:`get_optimizer`.
      landscape: constants of the landscape.
      config: when a run is over.
      tuning: the search.
      progress: called with the name of each optimizer before it runs.

    Returns:
      The :class:`Table`.

    Examples:
      >>> from ctagd_optax import testbed
      >>> table = testbed.make_table(runs=2, mode="paper", optimizers=["sgd"])
      >>> [(row.name, row.setting, row.result.learning_rate) for row in table.rows]
      [('SGD', 'drifting', 0.01), ('SGD', 'stationary', 0.01)]
    """
    if mode not in ("tuned", "paper"):
        raise ValueError(f"mode must be 'tuned' or 'paper', got {mode!r}")
    landscape = landscape or LandscapeConfig()
    config = config or RunConfig()
    tuning = tuning or TuningConfig()
    settings = CTAGDSettings(steps_per_epoch=landscape.train_snapshots)
    chosen = [get_optimizer(name, settings).for_mode(mode) for name in optimizers]
    landscapes = {
        "drifting": (landscape, make_landscapes(runs, seed, landscape)),
        "stationary": (
            landscape.stationary(),
            make_landscapes(runs, seed, landscape.stationary()),
        ),
    }
    rows, tuning_seconds, compile_seconds = [], 0.0, 0.0
    for optimizer in chosen:
        if progress is not None:
            progress(optimizer.name)
        simulator = Simulator(optimizer, config, batch=runs)
        for setting, (constants, batch) in landscapes.items():
            rate, trials = optimizer.paper_rate, []
            if mode == "tuned" or rate is None:
                rate, trials, seconds = tune(simulator, constants, seed, tuning)
                tuning_seconds += seconds
            result = simulate(simulator, batch, rate)
            rows.append(Row(result, setting, tuple(trials)))
        compile_seconds += simulator.compile_seconds
    return Table(
        rows=tuple(rows),
        mode=mode,
        runs=runs,
        seed=seed,
        landscape=landscape,
        config=config,
        tuning=tuning,
        settings=settings,
        tuning_seconds=tuning_seconds,
        compile_seconds=compile_seconds,
    )


def compare(
    names: Sequence[str] = TABLE_OPTIMIZERS,
    *,
    runs: int = 1,
    seed: int = 0,
    mode: str = "tuned",
    stationary: bool = False,
    landscape: LandscapeConfig | None = None,
    config: RunConfig | None = None,
    tuning: TuningConfig | None = None,
) -> list[Result]:
    """Runs several optimizers on the same landscapes, with rates as in the table.

    Args:
      names: the optimizers, see :func:`get_optimizer`.
      runs: number of landscapes.
      seed: which landscapes.
      mode: "tuned" or "paper", see :func:`make_table`.
      stationary: whether to hold the landscapes at their first snapshot.
      landscape: constants of the landscape.
      config: when a run is over.
      tuning: the search.

    Returns:
      One :class:`Result` per optimizer.

    Examples:
      >>> from ctagd_optax import testbed
      >>> results = testbed.compare(["sgd", "adam"], mode="paper")
      >>> [result.name for result in results]
      ['SGD', 'Adam']
    """
    if mode not in ("tuned", "paper"):
        raise ValueError(f"mode must be 'tuned' or 'paper', got {mode!r}")
    landscape = landscape or LandscapeConfig()
    if stationary:
        landscape = landscape.stationary()
    settings = CTAGDSettings(steps_per_epoch=landscape.train_snapshots)
    optimizers = [get_optimizer(name, settings).for_mode(mode) for name in names]
    landscapes = make_landscapes(runs, seed, landscape)
    results = []
    for optimizer in optimizers:
        # As wide a batch as the table's, for as short a search.
        simulator = Simulator(optimizer, config or RunConfig(), batch=max(runs, 15))
        rate = optimizer.paper_rate
        if mode == "tuned" or rate is None:
            rate, _, _ = tune(simulator, landscape, seed, tuning or TuningConfig())
        results.append(simulate(simulator, landscapes, rate))
    return results
