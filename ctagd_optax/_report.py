"""What the method did and why, in sentences and by parameter path."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
import optax
from jax.core import Tracer

from ctagd_optax._robust import RobustInfo
from ctagd_optax._sentences import (
    array,
    column,
    ct_agd_sentences,
    robust_sentences,
)
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
      left_out: samples left out because the gradient was not finite, and corrections
        because they were out of range.
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
      threshold: the step length below which the multiplier grew.
      gradient_square: mean of ‖g‖² of all tensors.
      settled: 1 once an epoch clearly descended or ascended.
      loss: mean loss at the end of the epoch; 0 if no value was given.
      gain: by how much it fell since the epoch before.
      tried: 1 if the open epoch has a larger multiplier than the last.
      wait: ends of epochs until another one may be tried.
      failures: how often that was taken back.
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
    threshold: float
    gradient_square: float
    settled: float
    loss: float
    gain: float
    tried: float
    wait: float
    failures: float
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
      closed: whether an epoch has been closed, so that there are figures.
    """

    def __init__(
        self,
        rows: Sequence[CurvatureRow | RobustRow],
        sentences: list[str],
        closed: bool,
    ):
        super().__init__(rows)
        self.sentences = sentences
        self.closed = closed

    def __str__(self) -> str:
        robust = any(isinstance(row, RobustRow) for row in self)
        hidden = {"gamma"} if robust else set()  # 1/m says nothing more
        shown = [name for row in self[:1] for name in row._fields if name in _COLUMNS]
        shown = [name for name in shown if name not in hidden]

        def written(name: str, value: Any) -> str:
            known = self.closed or name in ("multiplier", "gamma")
            return _COLUMNS[name][1].format(value) if known else "–"

        figures = [
            tuple(written(name, getattr(row, name)) for name in shown) for row in self
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
      robust_ct_agd, epoch 1, step 10 of 20: multiplier 17.1 of 1000 allowed.
      So far, steps at multiplier 1 are at most 0.0... Newton steps long: it may grow.
      tensor  shape     rate ×  q⁺  q⁻  N/SE  P/D  out
      ────────────────────────────────────────────────
      all 2   8 in all    17.1   –   –     –    –    –
    """
    if any(map(_is_ours, jax.tree.leaves(params, is_leaf=_is_ours))):
        raise TypeError(
            "params holds an optimizer's state: call curvature_report(state, params), "
            "of a train state with its .params"
        )
    inner = _find(state)
    if any(isinstance(x, Tracer) for x in jax.tree.leaves(inner)):
        raise TypeError(
            "curvature_report reads numbers, so call it outside of jit; inside, use "
            "learning_rate_multiplier(state)"
        )
    tensors = jax.tree_util.tree_leaves_with_path(params)
    gamma = column(inner.gamma)
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
    columns = column(inner.multiplier), gamma, *map(column, inner.info)
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
    said = robust_sentences if robust else ct_agd_sentences
    return CurvatureReport(rows, said(inner, rows), column(inner.epoch) > 0)


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
      >>> opt = optax.MultiSteps(
      ...     ctagd_optax.robust_ct_agd(optax.adamw(1e-3), steps_per_epoch=20), 4
      ... )
      >>> print(ctagd_optax.learning_rate_multiplier(opt.init(jnp.ones(3))))
      [1.]
    """
    return array(_find(state).multiplier)


def _is_ours(node: Any) -> bool:
    return isinstance(node, CTAGDState)


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
            f"state holds no CTAGDState, got {type(state).__name__}: pass the state of "
            "an optimizer wrapped with robust_ct_agd(optimizer, steps_per_epoch) or "
            "ct_agd"
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
