"""What the method did and why, in sentences and by parameter path."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.core import Tracer

from ctagd_optax._robust import MotionSums, RobustInfo, Rule, step_length
from ctagd_optax._wrapper import CTAGDState


class CurvatureRow(NamedTuple):
    """Figures of one tensor under :func:`ct_agd`; see :class:`CurvatureInfo`.

    Attributes:
      path: where the tensor is in the tree of parameters.
      shape: its shape.
      multiplier: what the backbone's last update was multiplied by.
      gamma: the divisor γ that the open epoch started with.
      observed: share of coordinates with evidence.
      clamped_low: share of coordinates raised to ``curvature_min``.
      clamped_high: share of coordinates lowered to ``curvature_max``.
      relative_correction: norm of the last correction over the norm of the tensor.
      left_out: samples left out because the gradient was not finite.
    """

    path: str
    shape: tuple[int, ...]
    multiplier: float
    gamma: float
    observed: float
    clamped_low: float
    clamped_high: float
    relative_correction: float
    left_out: int


class RobustRow(NamedTuple):
    """Figures of one tensor under :func:`robust_ct_agd`; see :class:`RobustInfo`.

    Attributes:
      path: where the tensor is in the tree of parameters.
      shape: its shape.
      multiplier: what the backbone's last update was multiplied by.
      gamma: 1/m of the multiplier m that the open epoch started with.
      step_high: q⁺, the step length's upper bound.
      step_low: q⁻, its lower bound.
      signal: N / SE.
      held: P / D.
      trend: 1 where the epoch clearly descended, -1 where it ascended.
      gradient_square: mean of ‖g‖² of all tensors.
      settled: 1 once an epoch clearly descended or ascended.
      left_out: samples left out because the gradient was not finite.
    """

    path: str
    shape: tuple[int, ...]
    multiplier: float
    gamma: float
    step_high: float
    step_low: float
    signal: float
    held: float
    trend: float
    gradient_square: float
    settled: float
    left_out: int


# Of the fields of a row: the title of its column, and how a figure is written.
_COLUMNS = {
    "multiplier": ("rate ×", "{:.3g}"),
    "gamma": ("γ", "{:.3g}"),
    "observed": ("evidence", "{:.0%}"),
    "clamped_low": ("low", "{:.0%}"),
    "clamped_high": ("high", "{:.0%}"),
    "step_high": ("q⁺", "{:.2g}"),
    "step_low": ("q⁻", "{:.2g}"),
    "signal": ("N/SE", "{:.1f}"),
    "held": ("P/D", "{:.2f}"),
    "relative_correction": ("correction", "{:.2g}"),
    "left_out": ("out", "{}"),
}


class CurvatureReport(list[CurvatureRow | RobustRow]):
    """A list of rows that prints as sentences and a table.

    Attributes:
      sentences: what the method did and why.
    """

    def __init__(self, rows: Sequence[CurvatureRow | RobustRow], sentences: list[str]):
        super().__init__(rows)
        self.sentences = sentences

    def __str__(self) -> str:
        shown = [name for row in self[:1] for name in row._fields if name in _COLUMNS]
        figures = [
            tuple(_COLUMNS[name][1].format(getattr(row, name)) for name in shown)
            for row in self
        ]
        names = [(row.path, "×".join(map(str, row.shape)) or "scalar") for row in self]
        if len(self) > 1 and len(set(figures)) == 1:
            size = sum(int(np.prod(row.shape)) for row in self)
            names, figures = [(f"all {len(self)}", f"{size:,} in all")], figures[:1]
        cells = [("tensor", "shape", *(_COLUMNS[name][0] for name in shown))]
        cells += [(*n, *f) for n, f in zip(names, figures, strict=True)]
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        lines = [
            "  ".join(
                cell.ljust(width) if i < 2 else cell.rjust(width)
                for i, (cell, width) in enumerate(zip(row, widths, strict=True))
            ).rstrip()
            for row in cells
        ]
        lines.insert(1, "─" * (sum(widths) + 2 * len(widths) - 2))
        return "\n".join([*self.sentences, *lines])


def curvature_report(state: optax.OptState, params: optax.Params) -> CurvatureReport:
    """Tells what the method did and why, and its figures tensor by tensor.

    Args:
      state: an optimizer state that holds one :class:`CTAGDState`, at any depth.
      params: the parameters that the state was made for; only their paths and shapes
        are read.

    Returns:
      One :class:`RobustRow` or :class:`CurvatureRow` per tensor, of plain Python
      numbers. ``str()`` of the report is sentences and a table.

    Examples:
      >>> import jax.numpy as jnp
      >>> import ctagd_optax, optax
      >>> params = {"w": jnp.ones((3, 2)), "b": jnp.ones(2)}
      >>> opt = ctagd_optax.robust_ct_agd(optax.sgd(1e-3), steps_per_epoch=20)
      >>> state = opt.init(params)
      >>> for _ in range(10):  # the loss is the sum of squares
      ...     updates, state = opt.update(params, state, params)
      ...     params = optax.apply_updates(params, updates)
      >>> print(ctagd_optax.curvature_report(state, params))  # doctest: +ELLIPSIS
      robust_ct_agd, epoch 1, step 10 of 20: learning rate × 17.1 of 20 allowed.
      Steps are at most 0.0... of a Newton step, so the learning rate may grow.
      tensor  shape     rate ×  γ  q⁺  q⁻  N/SE   P/D  out
      ────────────────────────────────────────────────────
      all 2   8 in all    17.1  1   0   0   0.0  0.00    0
    """
    inner = _find(state)
    if any(isinstance(x, Tracer) for x in jax.tree.leaves(inner)):
        raise TypeError(
            "curvature_report reads numbers, so call it outside of jit; inside, use "
            "learning_rate_multiplier(state)"
        )
    tensors = jax.tree_util.tree_leaves_with_path(params)
    gamma = _column(inner.gamma)
    if any(isinstance(each, list) for each in gamma):
        raise ValueError(
            "state must be of one run, got a batch of them; take one with "
            "jax.tree.map(lambda x: x[i], state)"
        )
    if len(gamma) != len(tensors):
        raise ValueError(
            f"params must be those the state was made for: the state has {len(gamma)} "
            f"tensors, params has {len(tensors)}; put None in place of tensors that "
            "optax.masked or optax.partition keeps from it, and of an nnx module pass "
            "nnx.state(module, nnx.Param)"
        )
    robust = isinstance(inner.info, RobustInfo)
    columns = _column(inner.multiplier), gamma, *map(_column, inner.info)
    figures = zip(*columns, strict=True)
    make = RobustRow if robust else CurvatureRow
    rows = [
        make(
            # An nnx variable holds its array as .value.
            jax.tree_util.keystr(path, simple=True, separator="/").removesuffix(
                "/value"
            ),
            tuple(tensor.shape),
            *row,
        )
        for (path, tensor), row in zip(tensors, figures, strict=True)
    ]
    said = _robust_sentences if robust else _literal_sentences
    return CurvatureReport(rows, said(inner, rows))


def learning_rate_multiplier(state: optax.OptState) -> jax.Array:
    """What the last update of the backbone was multiplied by, an entry a tensor.

    A pure function that works under ``jit``: log it beside the loss. The learning rate
    of the last step was the backbone's times this.

    Args:
      state: an optimizer state that holds one :class:`CTAGDState` at any depth, as in
        ``optax.chain``, ``MultiSteps``, ``partition`` or an ``nnx.Optimizer``.

    Returns:
      A vector in the order of ``jax.tree.leaves`` of the parameters; ones before the
      first step.

    Examples:
      >>> import jax.numpy as jnp
      >>> import ctagd_optax, optax
      >>> opt = optax.chain(
      ...     optax.clip_by_global_norm(1.0),
      ...     ctagd_optax.robust_ct_agd(optax.adamw(1e-3), steps_per_epoch=20),
      ... )
      >>> print(ctagd_optax.learning_rate_multiplier(opt.init(jnp.ones(3))))
      [1.]
    """
    return _array(_find(state).multiplier)


def _find(state: Any) -> CTAGDState:
    """The one CTAGDState that a state holds."""
    state = getattr(state, "opt_state", state)  # of an nnx.Optimizer or a TrainState
    found = [
        (path, value)
        for path, value in optax.tree.get_all_with_path(state, CTAGDState.__name__)
        if isinstance(value, CTAGDState)
    ]
    if not found:
        raise ValueError(
            "state holds no CTAGDState: the optimizer is not wrapped; wrap it with "
            "robust_ct_agd(optimizer, steps_per_epoch) or ct_agd"
        )
    if len(found) > 1:
        paths = ", ".join(f"state{_written(path)}" for path, _ in found)
        raise ValueError(
            f"state holds {len(found)} CTAGDStates; pass one of them, with the "
            f"parameters it was made for: {paths}"
        )
    return found[0][1]


def _written(path: Sequence[Any]) -> str:
    """A path as Python would write it, without the names of the nodes' types."""
    return "".join(
        f".{key.name}" if hasattr(key, "tuple_name") else jax.tree_util.keystr((key,))
        for key in path
    ).removesuffix(f".{CTAGDState.__name__}")


def _array(field: Any) -> Any:
    [array] = jax.tree.leaves(field)  # some frameworks wrap arrays into a node
    return array


def _column(field: Any) -> Any:
    return np.asarray(_array(field)).tolist()


def _opening(name: str, state: CTAGDState, rows: Sequence[Any], most: str) -> str:
    """Where the run is, and what the learning rate is multiplied by."""
    epoch, step, length, count = (
        _column(getattr(state, field))
        for field in ("epoch", "epoch_step", "epoch_length", "step_count")
    )
    if count == 0:
        return f"{name}: no step has been taken yet."
    if step == 0:  # the epoch was closed by the last step
        where = f"{epoch} epoch{'s' if epoch > 1 else ''} done: the next starts at"
        rates = [1 / row.gamma for row in rows] or [1.0]
    else:
        where = f"epoch {epoch + 1}, step {step} of {length}:"
        rates = [row.multiplier for row in rows] or [1.0]
    low, high = f"{min(rates):.3g}", f"{max(rates):.3g}"
    rate = high if low == high else f"{low} to {high}"
    return f"{name}, {where} learning rate × {rate}{most}."


def _robust_sentences(state: CTAGDState, rows: Sequence[Any]) -> list[str]:
    *_, confidence, _, allowed = _column(state.evidence.settings)
    most = f" of {allowed:g} allowed"
    said = [_opening("robust_ct_agd", state, rows, most)]
    if _column(state.step_count) == 0:
        return said
    if _column(state.epoch) == 0:  # it follows the evidence step by step
        sums = MotionSums(*(jnp.asarray(_array(x)) for x in state.evidence.sums))
        judged = step_length(sums, jnp.float32(1), confidence)
        threshold = Rule().early_target
    else:
        info = state.info
        judged = (_array(x) for x in (info.step_high, info.step_low, info.trend))
        first = _column(state.epoch) == 1
        threshold = Rule().first_threshold if first else Rule().threshold
    reasons: dict[str, int] = {}
    for high, low, trend in zip(*(np.asarray(x).tolist() for x in judged), strict=True):
        reason = _reason(high, low, trend, threshold)
        reasons[reason] = reasons.get(reason, 0) + 1
    if len(reasons) == 1:
        said += reasons
    else:
        said += [f"{count} tensors: {reason}" for reason, count in reasons.items()]
    largest = max((max(row.multiplier, 1 / row.gamma) for row in rows), default=0)
    if largest >= 0.999 * allowed > 1:
        said.append(
            "It is at the largest multiplier allowed: raise the backbone's learning "
            "rate, or multiplier_max."
        )
    return said


def _reason(high: float, low: float, trend: float, threshold: float) -> str:
    """Why the multiplier goes where it goes, and what to do if it goes nowhere."""
    if not np.isfinite(low):
        return (
            "Nothing is measured yet, so it is at most 1. It takes four steps in an "
            "epoch, with parameters that move."
        )
    if high < 0:
        return (
            "The steps go uphill by their own gradients, so it is at most 1. Check "
            "the sign of the learning rate."
        )
    if trend > 0 and high < threshold:
        return (
            f"Steps are at most {high:.2g} of a Newton step, so the learning rate may "
            "grow."
        )
    if low > 1:
        return (
            f"Steps are at least {low:.2g} times as long as a Newton step, so the "
            "learning rate shrinks."
        )
    if trend < 0:
        return (
            "The loss rises along the last step: gradient noise dominates, or the "
            "learning rate is high. The multiplier falls slowly to 1; if it is 1, try "
            "a larger batch or your own schedule."
        )
    if trend == 0:
        return (
            "Gradient noise hides how long steps are, so the multiplier stays. Larger "
            "batches or a longer steps_per_epoch would tell more."
        )
    return (
        f"Steps are up to {high:.2g} times as long as a Newton step, so the learning "
        "rate is about right and stays."
    )


def _literal_sentences(state: CTAGDState, rows: Sequence[Any]) -> list[str]:
    said = [_opening("ct_agd", state, rows, "")]
    if _column(state.epoch) == 0:
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
