"""The state's trust figures, by parameter path."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
import optax

from ctagd_optax._robust import RobustInfo
from ctagd_optax._transform import CTAGDState


class CurvatureRow(NamedTuple):
    """Trust figures of one tensor; see :class:`CurvatureInfo` for the shares.

    Attributes:
      path: where the tensor is in the tree of parameters.
      shape: its shape.
      gamma: the divisor γ of the open epoch.
      observed: share of coordinates with evidence.
      clamped_low: share of coordinates raised to ``curvature_min``.
      clamped_high: share of coordinates lowered to ``curvature_max``.
      relative_correction: norm of the last correction over the norm of the tensor.
      left_out: samples left out because the gradient was not finite.
    """

    path: str
    shape: tuple[int, ...]
    gamma: float
    observed: float
    clamped_low: float
    clamped_high: float
    relative_correction: float
    left_out: int


class RobustRow(NamedTuple):
    """Trust figures of one tensor; see :class:`RobustInfo` for what they mean.

    Attributes:
      path: where the tensor is in the tree of parameters.
      shape: its shape.
      gamma: the divisor γ = 1/m of the open epoch.
      step_high: q⁺, the step length's upper bound.
      step_low: q⁻, its lower bound.
      signal: N / SE.
      overlap: O / D.
      held: P / D.
      multiplier: m.
      floor: the share of its rate at which the epoch ends, beyond its annealing.
      gradient_square: mean of ‖g‖² of all tensors.
      relative_correction: norm of the last correction over the norm of the tensor.
      settled: 1 once an epoch surely descended or ascended.
      left_out: samples left out because the gradient was not finite.
    """

    path: str
    shape: tuple[int, ...]
    gamma: float
    step_high: float
    step_low: float
    signal: float
    overlap: float
    held: float
    multiplier: float
    floor: float
    gradient_square: float
    relative_correction: float
    settled: float
    left_out: int


# Of the fields of a row: the title of its column, and how a figure is written.
_COLUMNS = {
    "gamma": ("γ", "{:.3g}"),
    "observed": ("evidence", "{:.0%}"),
    "clamped_low": ("low", "{:.0%}"),
    "clamped_high": ("high", "{:.0%}"),
    "step_high": ("q⁺", "{:.2g}"),
    "step_low": ("q⁻", "{:.2g}"),
    "signal": ("N/SE", "{:.1f}"),
    "overlap": ("O/D", "{:.2f}"),
    "held": ("P/D", "{:.2f}"),
    "floor": ("floor", "{:.2g}"),
    "relative_correction": ("correction", "{:.2g}"),
    "left_out": ("out", "{}"),
}


class CurvatureReport(list[CurvatureRow | RobustRow]):
    """A list of :class:`CurvatureRow` or :class:`RobustRow` that prints as a table."""

    def __init__(self, rows: Sequence[CurvatureRow | RobustRow], epoch: int):
        super().__init__(rows)
        self.epoch = epoch

    def __str__(self) -> str:
        shown = [name for row in self[:1] for name in row._fields if name in _COLUMNS]
        header = ("tensor", "shape", *(_COLUMNS[name][0] for name in shown))
        cells = [header] + [
            (
                row.path,
                "×".join(map(str, row.shape)) or "scalar",
                *(_COLUMNS[name][1].format(getattr(row, name)) for name in shown),
            )
            for row in self
        ]
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        lines = [
            "  ".join(
                cell.ljust(width) if i < 2 else cell.rjust(width)
                for i, (cell, width) in enumerate(zip(row, widths, strict=True))
            ).rstrip()
            for row in cells
        ]
        lines.insert(1, "─" * (sum(widths) + 2 * len(widths) - 2))
        title = (
            f"Curvature after {self.epoch} epoch{'s' if self.epoch != 1 else ''}"
            if self.epoch
            else "Curvature: no epoch has been closed yet"
        )
        return "\n".join([title, *lines])


def curvature_report(state: optax.OptState, params: optax.Params) -> CurvatureReport:
    """Tells, tensor by tensor, how far the curvature can be trusted.

    Args:
      state: an optimizer state that holds one :class:`CTAGDState`, at any depth.
      params: the parameters that the state was made for; only their paths and shapes
        are read.

    Returns:
      One :class:`CurvatureRow` per tensor, of plain Python numbers, or one
      :class:`RobustRow` for :func:`robust_ct_agd`. ``str()`` of the report is a table.

    Examples:
      >>> import jax.numpy as jnp
      >>> import ctagd_optax
      >>> params = {"w": jnp.ones((3, 2)), "b": jnp.zeros(2)}
      >>> opt = ctagd_optax.ct_sgd(steps_per_epoch=1)
      >>> _, state = opt.update(params, opt.init(params), params)
      >>> print(ctagd_optax.curvature_report(state, params))
      Curvature after 1 epoch
      tensor  shape     γ  evidence   low  high  correction  out
      ──────────────────────────────────────────────────────────
      b       2      0.01        0%  100%    0%           0    0
      w       3×2    0.01        0%  100%    0%           0    0
    """
    found = [
        value
        for _, value in optax.tree.get_all_with_path(state, CTAGDState.__name__)
        if isinstance(value, CTAGDState)
    ]
    if len(found) != 1:
        raise ValueError(
            f"state must hold exactly one CTAGDState, found {len(found)}; pass the "
            "part of the state that holds one, with the parameters it was made for"
        )
    [inner] = found
    tensors = jax.tree_util.tree_leaves_with_path(params)

    def column(field: Any) -> Any:
        [array] = jax.tree.leaves(field)  # some frameworks wrap arrays into a node
        return np.asarray(array).tolist()

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
    figures = zip(gamma, *map(column, inner.info), strict=True)
    make = RobustRow if isinstance(inner.info, RobustInfo) else CurvatureRow
    rows = [
        make(
            jax.tree_util.keystr(path, simple=True, separator="/"),
            tuple(tensor.shape),
            *row,
        )
        for (path, tensor), row in zip(tensors, figures, strict=True)
    ]
    return CurvatureReport(rows, epoch=column(inner.epoch))
