"""The paper's testbed table, ours and theirs side by side."""

import dataclasses
import math
import textwrap
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
import optax

from ctagd_optax.testbed._internals import CTAGDSettings
from ctagd_optax.testbed._landscape import LandscapeConfig
from ctagd_optax.testbed._optimizers import TABLE_OPTIMIZERS, get_optimizer
from ctagd_optax.testbed._runner import (
    Interval,
    Result,
    RunConfig,
    Simulator,
    make_landscapes,
    simulate,
)
from ctagd_optax.testbed._tuning import Trial, TuningConfig, tune

SETTINGS = ("drifting", "stationary")

_PAPER: dict[str, dict[str, dict[str, Interval]]] = {
    name: {
        "drifting": {
            "final": Interval(*final),
            "steps": Interval(*steps),
            "gap": Interval(*gap),
        },
        "stationary": {
            "final": Interval(*final_stationary),
            "steps": Interval(*steps_stationary),
            "seconds": Interval(*seconds),
        },
    }
    for name, final, steps, gap, final_stationary, steps_stationary, seconds in (
        (
            "CT-AGD",
            (-4.10, 1.29),
            (117.47, 19.70),
            (2.31, 0.91),
            (-6.33, 1.61),
            (144.93, 25.16),
            (0.49, 0.08),
        ),
        (
            "CT-AGD (Adam)",
            (-4.61, 1.13),
            (137.47, 27.96),
            (1.66, 0.90),
            (-5.75, 2.15),
            (128.07, 49.40),
            (0.43, 0.16),
        ),
        (
            "SGD",
            (-3.93, 1.10),
            (138.73, 24.54),
            (2.81, 0.55),
            (-6.52, 1.56),
            (150.73, 15.43),
            (0.52, 0.06),
        ),
        (
            "Adam",
            (-4.31, 1.30),
            (156.53, 24.35),
            (2.08, 0.76),
            (-5.49, 2.33),
            (152.07, 33.91),
            (0.54, 0.12),
        ),
        (
            "L-BFGS",
            (-3.87, 1.41),
            (278.93, 189.92),
            (2.15, 0.97),
            (-5.19, 2.48),
            (51.07, 0.13),
            (0.33, 0.14),
        ),
    )
}
_PAPER_FAILURES = {("L-BFGS", "drifting"): 3}
_PAPER_RUNS = 15
# Least share of converged runs for which a mean is compared: the paper's own least.
_COMPARABLE = 12 / 15
_SIGNS = {True: "=", False: "≠", None: "?"}

# What the paper says of its table, as "the first takes fewer steps than the second".
_CLAIMS = (
    ("CT-AGD", "SGD", "drifting"),
    ("CT-AGD", "SGD", "stationary"),
    ("CT-AGD (Adam)", "Adam", "drifting"),
    ("CT-AGD (Adam)", "Adam", "stationary"),
    ("SGD", "L-BFGS", "drifting"),
    ("L-BFGS", "SGD", "stationary"),
)


@dataclasses.dataclass(frozen=True)
class Row:
    """One optimizer in one setting.

    Attributes:
      result: all its runs.
      setting: "drifting" or "stationary".
      trials: the learning-rate search; empty for the paper's rate.
    """

    result: Result
    setting: str
    trials: tuple[Trial, ...]

    @property
    def name(self) -> str:
        """The optimizer."""
        return self.result.name

    @property
    def paper(self) -> dict[str, Interval]:
        """The paper's numbers; empty where it has none."""
        return _PAPER.get(self.name, {}).get(self.setting, {})

    @property
    def ours(self) -> dict[str, Interval]:
        """Our numbers over the runs that converged."""
        result = self.result
        ours = {
            "final": result.interval(result.final),
            "steps": result.interval(result.steps),
        }
        if self.setting == "drifting":
            ours["gap"] = result.interval(result.gap)
        return ours

    def count(self, status: str) -> int:
        """Runs that ended this way."""
        return int(np.sum(self.result.status == status))

    @property
    def failures(self) -> int:
        """Runs that did not converge."""
        return self.result.runs - self.count("converged")

    @property
    def seconds_per_run(self) -> float:
        """Wall time of a run within its batch, without compilation."""
        return self.result.seconds / self.result.runs

    def agreement(self) -> dict[str, bool | None]:
        """For each number the paper has: whether ours is the same up to chance.

        None where too many runs failed: what is left is not a mean over landscapes.
        """
        enough = self.count("converged") >= _COMPARABLE * self.result.runs
        return {
            key: agree(value, self.paper[key]) if enough else None
            for key, value in self.ours.items()
            if key in self.paper
        }


def markdown(data: dict[str, Any]) -> str:
    """The rows of :meth:`Table.to_json` as a Markdown table, for a README.

    Args:
      data: what ``table --json`` wrote.

    Returns:
      The table; the paper's numbers are in brackets.

    Examples:
      >>> from ctagd_optax import testbed
      >>> table = testbed.make_table(runs=2, mode="paper", optimizers=["newton"])
      >>> len(testbed.markdown(table.to_json()).splitlines())
      4
    """

    def cell(row: dict[str, Any], key: str) -> str:
        texts = []
        for source in ("ours", "paper"):
            value = row[source].get(key)
            if value is not None:
                mean, half = (
                    math.nan if x is None else x for x in (value["mean"], value["half"])
                )
                texts.append(str(Interval(mean, half)))
        return texts[0] + (f" ({texts[1]})" if len(texts) > 1 else "")

    keys = ("final", "steps", "gap")
    lines = [
        "| setting | optimizer | rate | final value | steps | gap | failed |",
        "|---|---|---|---|---|---|---|",
    ]
    for setting in SETTINGS:
        for row in data["rows"]:
            if row["setting"] != setting:
                continue
            cells = [cell(row, key) if key in row["ours"] else "" for key in keys]
            failed = row["diverged"] + row["unsettled"]
            lines.append(
                f"| {setting} | {row['optimizer']} | {row['learning_rate']:g} | "
                f"{' | '.join(cells)} | {failed} of {data['runs']} |"
            )
    return "\n".join(lines)


def agree(ours: Interval, paper: Interval) -> bool:
    """Whether two means differ by no more than the 95 % interval of a difference.

    That interval has the half-width √(a² + b²) for half-widths a and b. The paper does
    not say what its ± is; it is taken for a 95 % interval.

    Examples:
      >>> from ctagd_optax.testbed import Interval
      >>> from ctagd_optax.testbed._table import agree
      >>> agree(Interval(1.0, 3.0), Interval(5.0, 4.0))
      True
      >>> agree(Interval(1.0, 3.0), Interval(6.1, 4.0))
      False
    """
    half = math.hypot(ours.half, paper.half)
    return bool(abs(ours.mean - paper.mean) <= half)  # False where ours is undefined


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
            for verdict in groups:
                keys = [k for k, same in row.agreement().items() if same is verdict]
                counts[verdict] += len(keys)
                if keys:
                    groups[verdict].append(
                        f"{row.name} {', '.join(keys)} ({row.setting})"
                    )
        line = (
            f"{counts[True]} of {sum(counts.values())} numbers agree with the paper's "
            f"up to chance, {counts[False]} differ, and for {counts[None]} too many "
            "runs failed to compare."
        )
        words = {True: "Agree", False: "Differ", None: "Too many failures"}
        for verdict, items in groups.items():
            if items:
                line += f" {words[verdict]}: {'; '.join(items)}."
        return line

    def claims(self) -> list[str]:
        """What the paper says of steps, tested on the same landscapes in pairs."""
        lines = []
        for first, second, setting in _CLAIMS:
            a, b = self.find(first, setting), self.find(second, setting)
            if a is None or b is None:
                continue
            paper = a.paper["steps"].mean - b.paper["steps"].mean
            lines.append(
                f"{setting}: {first} takes fewer steps than {second} (paper "
                f"{paper:+.0f}): {_verdict(a.result, b.result)}"
            )
        return lines

    def controls(self) -> list[str]:
        """What curvature adds: CT-AGD against the bare schedule γ = λ_min."""
        lines = []
        for setting in SETTINGS:
            a, b = self.find("CT-AGD", setting), self.find("γ = λ_min", setting)
            if a is not None and b is not None:
                lines.append(
                    f"{setting}: CT-AGD takes fewer steps than the γ = λ_min control, "
                    f"which has no curvature: {_verdict(a.result, b.result)}"
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
            "rows": [_row_json(row) for row in self.rows],
            "agreement": self.agreement(),
            "claims": self.claims(),
            "controls": self.controls(),
        }

    def __str__(self) -> str:
        rates = (
            f"each optimizer's comes from the same search, {self.tuning.budget()} per "
            "setting"
            if self.mode == "tuned"
            else "the paper's, not searched"
        )
        total = self.run_seconds + self.tuning_seconds
        per_run = self.run_seconds / (self.runs * len(self.rows))
        parts = [
            textwrap.fill(
                f"Testbed: {self.runs} landscapes per setting, seed {self.seed}, mode "
                f"{self.mode}. Learning rates: {rates}.",
                96,
            ),
            _section(
                "Drifting: test loss, steps and gap at the end",
                self.select("drifting"),
                ("final", "steps", "gap"),
            ),
            _section(
                "Stationary: value and steps at the end",
                self.select("stationary"),
                ("final", "steps"),
            ),
            "Means ± 95 % intervals over the runs that converged; every failure is "
            "counted beside them\nand leaves easier runs in the mean. One L-BFGS step "
            "holds a whole line search.\n= agrees with the paper up to chance, ≠ "
            "differs, ? fewer than 12 in 15 of ours converged.",
            textwrap.fill("Agreement: " + self.agreement(), 96),
            "\n".join(
                [
                    "The paper's claims, in pairs on the same landscapes:",
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
    """Runs the paper's testbed table.

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


def _verdict(first: Result, second: Result) -> str:
    """Tests "first takes fewer steps" on the landscapes where both converged."""
    both = first.converged & second.converged
    failed = (
        f"{int((~first.converged).sum())} and {int((~second.converged).sum())} failed"
    )
    n = int(both.sum())
    if n < 2:
        return f"cannot be tested, both converged on {n} landscapes ({failed})"
    difference = Interval.of(first.steps[both] - second.steps[both])
    if difference.mean + difference.half < 0:
        word = "holds"
    elif difference.mean - difference.half > 0:
        word = "the opposite holds"
    else:
        word = "not shown"
    return (
        f"{word}, ours {difference.mean:+.0f} ± {difference.half:.0f} on {n} "
        f"landscapes ({failed})"
    )


def _section(title: str, rows: list[Row], keys: tuple[str, ...]) -> str:
    cells: list[tuple[str, ...]] = [("optimizer", "rate", *keys, "failed", "s/run")]
    for row in rows:
        ours = row.ours
        cells.append(
            (
                row.name,
                f"{row.result.learning_rate:g}",
                *(str(ours[key]) for key in keys),
                _failures(row),
                f"{row.seconds_per_run:.4f}",
            )
        )
        if row.paper:
            paper, same = row.paper, row.agreement()
            failed = _PAPER_FAILURES.get((row.name, row.setting), 0)
            cells.append(
                (
                    "  paper",
                    "",
                    *(f"{paper[k]} {_SIGNS[same[k]]}" for k in keys),
                    f"{failed} of {_PAPER_RUNS}",
                    f"{paper['seconds'].mean:.2f}" if "seconds" in paper else "",
                )
            )
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = []
    for cell in cells:
        texts = []
        for i, (text, width) in enumerate(zip(cell, widths, strict=True)):
            if 2 <= i < 2 + len(keys):
                # Signs hang in the margin, so that numbers line up.
                hang = text if text.endswith((" =", " ≠", " ?")) else text + "  "
                texts.append(hang.rjust(width + 2))
            else:
                texts.append(text.ljust(width) if i == 0 else text.rjust(width))
        lines.append("  ".join(texts).rstrip())
    lines.insert(1, "─" * max(map(len, lines)))
    return "\n".join([title, *lines])


def _failures(row: Row) -> str:
    text = f"{row.failures} of {row.result.runs}"
    if diverged := row.count("diverged"):
        text += f" ({diverged} diverged)"
    return text


def _row_json(row: Row) -> dict[str, Any]:
    result = row.result
    return {
        "optimizer": row.name,
        "setting": row.setting,
        "learning_rate": result.learning_rate,
        "ours": _intervals_json(row.ours),
        "paper": _intervals_json(row.paper),
        "agrees": row.agreement(),
        "converged": row.count("converged"),
        "diverged": row.count("diverged"),
        "unsettled": row.count("unsettled"),
        "seconds_per_run": row.seconds_per_run,
        "trials": [dataclasses.asdict(trial) for trial in row.trials],
        "per_run": {
            "final": [_number(x) for x in result.final],
            "gap": [_number(x) for x in result.gap],
            "steps": result.steps.tolist(),
            "status": result.status.tolist(),
        },
    }


def _intervals_json(intervals: dict[str, Interval]) -> dict[str, Any]:
    return {
        key: {"mean": _number(value.mean), "half": _number(value.half)}
        for key, value in intervals.items()
    }


def _number(x: float) -> float | None:
    return round(float(x), 6) if math.isfinite(x) else None
