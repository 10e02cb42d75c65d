"""The sentences of the report: where a run is, what the method did, and why."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ctagd_optax._rule import MotionSums, Rule, step_length
from ctagd_optax._wrapper import CTAGDState


def array(field: Any) -> Any:
    [array] = jax.tree.leaves(field)  # some frameworks wrap arrays into a node
    return array


def column(field: Any) -> Any:
    return np.asarray(array(field)).tolist()


def _opening(name: str, state: CTAGDState) -> tuple[str, bool]:
    """Where the run is, and whether an epoch was closed by the last step."""
    epoch, step, length = (
        column(getattr(state, field))
        for field in ("epoch", "epoch_step", "epoch_length")
    )
    if step:
        return f"{name}, epoch {epoch + 1}, step {step} of {length}:", False
    return f"{name}, {epoch} epoch{'s' if epoch > 1 else ''} done:", True


def _range(values: Sequence[float], form: str = ".3g") -> str:
    low, high = (
        format(x, form if x < 999.5 else ".0f") for x in (min(values), max(values))
    )
    return high if low == high else f"{low} to {high}"


def robust_sentences(state: CTAGDState, rows: Sequence[Any]) -> list[str]:
    if column(state.step_count) == 0 or not rows:
        return ["robust_ct_agd: no step has been taken yet."]
    target, confidence, _, allowed = column(state.evidence.settings)
    where, closed = _opening("robust_ct_agd", state)
    if closed:
        said = [f"{where} the next starts at multiplier "]
        multipliers = [1 / row.gamma for row in rows]
    else:
        said = [f"{where} multiplier "]
        multipliers = column(state.memory.last_multiplier)
    said[0] += f"{_range(multipliers)} of {allowed:g} allowed"
    first = column(state.epoch) == 0
    starts = [1 / row.gamma for row in rows]
    if not (first or closed) and max(starts) > max(1, *multipliers):
        said[0] += f", down from {_range(starts)} at the start of the epoch"
    relative_rate, before, peak = column(state.memory.schedules)
    scheduled = not closed and relative_rate != 1
    said[0] += f", schedule {relative_rate:.3g}." if scheduled else "."
    if 0 < peak < (0.01 if first else 0.1) and relative_rate <= before:  # no warm-up
        said.append(
            f"The schedule was at most {peak:.3g} so far. It is relative to the "
            "backbone's learning rate, so its peak should be 1."
        )
    if not 0 <= relative_rate <= 1.001:
        said.append(
            f"The schedule was {relative_rate:.3g}. It should be at least 0, and 1 at "
            "its peak."
        )
    length = column(state.epoch_length)
    short = length < 4 and column(state.evidence.steps)[0] < 4  # epoch_end may be late
    if short and max(*multipliers, *starts) <= 1:
        said.append(
            f"It takes four steps in an epoch to measure anything, and steps_per_epoch "
            f"is {length}. It counts calls of update, not epochs."
        )
        return said
    if first:  # it follows the evidence step by step
        sums = MotionSums(*(jnp.asarray(array(x)) for x in state.evidence.sums))
        high, low, trend = step_length(sums, jnp.float32(1), confidence)
        judged = high, low, trend, jnp.full_like(high, Rule().early_target)
    else:
        info = state.info
        fields = info.step_high, info.step_low, info.trend, info.threshold
        judged = (array(x) for x in fields)
    heard = rows[0].loss != 0 or any(column(state.evidence.late.mean_loss))
    groups: dict[str, tuple[list[float], list[str]]] = {}
    figures = zip(*(np.asarray(x).tolist() for x in judged), strict=True)
    for row, (high, low, trend, threshold) in zip(rows, figures, strict=False):
        least, told = min(threshold, target), row.loss != 0
        reason, value = _reason(
            high, low, trend, least, first=first, told=told, heard=heard
        )
        values, paths = groups.setdefault(reason, ([], []))
        values.append(value)
        paths.append(row.path)
    for reason, (values, paths) in groups.items():
        text = reason.format(_range(values, ".2g"))
        if len(groups) > 1:
            names = ", ".join(paths[:3]) + (", …" if len(paths) > 3 else "")
            text = f"{len(paths)} of {len(rows)} tensors ({names}): {text}"
        said.append(text)
    if not first and rows[0].loss:
        said.append(_loss_sentence(rows[0]))
    if min(map(max, multipliers, starts)) >= 0.999 * allowed > 1:
        said.append(
            "It is at the largest multiplier allowed: raise the backbone's learning "
            "rate, or multiplier_max."
        )
    return said


_BLIND = " Or pass value=loss to update: it tries a larger one where the loss allows."


def _loss_sentence(row: Any) -> str:
    """What the loss said of the multiplier."""
    text = f"The loss was {row.loss:.3g} at the end of the epoch"
    if row.gain:
        way = "lower" if row.gain > 0 else "higher"
        text += f", {abs(row.gain):.2g} {way} than an epoch before"
    if row.tried:
        return f"{text}: a larger multiplier is tried."
    text += "."
    if row.wait:
        back = ", so it went back" if row.wait == 2 ** (row.failures - 1) else ""
        text += f" A larger multiplier did not help{back}."
        text += f" The next trial comes in {row.wait + 1:g} epochs."
    elif row.gain < 0:
        text += " That takes a multiplier above 1 down to a third."
    if row.gain < 0 and row.gamma >= 1:
        text += " If it keeps rising, lower the backbone's learning rate."
    return text


def _reason(
    high: float,
    low: float,
    trend: float,
    threshold: float,
    *,
    first: bool,
    told: bool,
    heard: bool,
) -> tuple[str, float]:
    """Why the multiplier is what it is, and what to do if it does nothing.

    Where the loss was told in the last epoch, curvature does not decide alone; where
    it is heard now, nobody needs to be told to pass it.
    """
    when = (
        "So far, steps at multiplier 1 are" if first else "In the last epoch steps were"
    )
    stays = "it is 1 for now" if first else "it does not grow"
    blind = "" if heard else _BLIND
    if not np.isfinite(low):
        return (
            "Nothing is measured yet, so it is at most 1. It takes four steps in an "
            "epoch, with parameters that move."
        ), 0.0
    if high < 0:
        return (
            "The steps go uphill by their own gradients, so it is at most 1. Check "
            "the sign of the learning rate."
        ), 0.0
    if trend > 0 and high < threshold:
        return f"{when} at most {{}} Newton steps long: it may grow.", high
    if low > 1:
        shrinks = "it is 1 for now" if first else "too long" if told else "it shrank"
        return f"{when} at least {{}} Newton steps long: {shrinks}.", low
    if trend < 0:
        falls = "It is 1 for now." if first else "Above 1 it falls by a tenth an epoch."
        return (
            "The loss rises along the last step: gradient noise dominates, or the "
            f"learning rate is high.{'' if told else f' {falls}'} If it stays at 1, "
            f"try a larger batch or another learning rate.{blind}"
        ), 0.0
    if trend == 0:
        return (
            f"Gradient noise hides how long steps are{'' if told else f': {stays}'}. "
            f"Larger batches or a longer steps_per_epoch would tell more.{blind}"
        ), 0.0
    why = "" if told else f": not clearly below {threshold:.2g}, so {stays}"
    return f"{when} up to {{}} Newton steps long{why}.", high


def ct_agd_sentences(state: CTAGDState, rows: Sequence[Any]) -> list[str]:
    if column(state.step_count) == 0 or not rows:
        return ["ct_agd: no step has been taken yet."]
    where, closed = _opening("ct_agd", state)
    rates = [1 / row.gamma if closed else row.multiplier for row in rows]
    starts = " the next starts at" if closed else ""
    said = [f"{where}{starts} learning rate × {_range(rates)}."]
    if column(state.epoch) == 0:
        return [*said, "γ is 1 until the first epoch has been closed."]
    sizes = [int(np.prod(row.shape)) for row in rows]

    def share(name: str) -> float:
        shares = (getattr(row, name) for row in rows)
        seen = sum(size * x for size, x in zip(sizes, shares, strict=True))
        return seen / max(sum(sizes), 1)

    said.append(
        f"In the last epoch {share('observed'):.0%} of the coordinates had evidence; "
        f"{share('clamped_low'):.0%} were at curvature_min and "
        f"{share('clamped_high'):.0%} at curvature_max."
    )
    if all(row.observed == 0 for row in rows):
        said.append(
            "Without evidence γ is 1 and nothing is corrected: no step was longer than "
            "eps, or epochs have a single step. Lower eps, or use robust_ct_agd."
        )
    elif share("observed") < 0.1:
        said.append(
            "So little evidence makes γ a guess of the clamp. Lower eps, or use "
            "robust_ct_agd."
        )
    return said
