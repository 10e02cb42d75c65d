"""CT-AGD, the paper's method, on the skeleton of ``_wrapper``."""

import numbers
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.typing import ArrayLike, DTypeLike

from ctagd_optax._annealing import Annealing, get_annealing
from ctagd_optax._checks import check_choice, check_dtype, check_number, concrete
from ctagd_optax._estimators.base import (
    CurvatureEstimate,
    CurvatureEstimator,
    check_estimator,
)
from ctagd_optax._estimators.secant import secant
from ctagd_optax._quantile import clipped_quantiles
from ctagd_optax._sums import accumulate, accumulators, values
from ctagd_optax._trees import (
    choose,
    counters,
    entries,
    largest,
    map_with_index,
    out_of_range,
    stack,
    totals,
    wide,
    widest,
)
from ctagd_optax._wrapper import Method, Step, curvature_tuned


class CurvatureInfo(NamedTuple):
    """How far the curvature of the last closed epoch can be trusted.

    Every field is a vector with one entry per tensor, in the order of
    ``jax.tree.leaves``. All are zero until an epoch has been closed.

    Attributes:
      observed: share of coordinates with any evidence. Where it is low, γ and the
        correction come from the clamp, not from curvature.
      clamped_low: share of coordinates whose estimate was raised to ``curvature_min``;
        with ``unobserved="clamp"`` those without evidence are among them.
      clamped_high: share of coordinates lowered to ``curvature_max``.
      relative_correction: norm of the correction over the norm of the tensor;
        infinite where that is 0 or NaN.
      left_out: samples left out of the epoch because the gradient was not finite, and
        the correction if it would take float16 parameters out of range.
    """

    observed: jax.Array
    clamped_low: jax.Array
    clamped_high: jax.Array
    relative_correction: jax.Array
    left_out: jax.Array


class CTAGDEvidence(NamedTuple):
    """What CT-AGD gathers in an epoch.

    Attributes:
      curvature: evidence of the curvature estimator.
      gradient_sum: Σ t·g; None for ``correction_gradient="last"``.
      gradient_weight: Σ t for each tensor; None where gradient_sum is.
    """

    curvature: Any
    gradient_sum: Any
    gradient_weight: Any


def close_epoch(
    estimate: CurvatureEstimate,
    gradients: optax.Updates,
    params: optax.Params,
    *,
    correction_rate: ArrayLike = 0.5,
    curvature_min: ArrayLike = 0.1,
    curvature_max: ArrayLike = 10.0,
    quantile: ArrayLike = 0.1,
    unobserved: str = "clamp",
    left_out: jax.Array | None = None,
) -> tuple[jax.Array, optax.Updates, CurvatureInfo]:
    r"""Turns an epoch's curvature estimate into a divisor and a correction step.

    .. math::

        \widehat H = \min(\max(h, \lambda_{\min}), \lambda_{\max}), \qquad
        \gamma = Q_\omega(\widehat H), \qquad
        \Delta\theta = -\eta_2\, \tilde g / \widehat H

    This is the pure function that :func:`ct_agd` runs under ``lax.cond`` at the last
    step of an epoch. It jits on its own.

    Args:
      estimate: the raw curvature :math:`h`, see :class:`CurvatureEstimate`.
      gradients: the gradient :math:`\tilde g` to correct along.
      params: the parameters; the correction's norm is reported relative to theirs.
      correction_rate: :math:`\eta_2`.
      curvature_min: :math:`\lambda_{\min}`.
      curvature_max: :math:`\lambda_{\max}`.
      quantile: :math:`\omega`.
      unobserved: "clamp" treats a coordinate without evidence as having the curvature
        0, as the paper's formula does; "skip" leaves it out of the correction and of
        the quantile. A tensor without any is left alone in both.
      left_out: for each tensor, the number of samples left out, for the info.

    Returns:
      ``(gamma, correction, info)``: :math:`\gamma`, one entry per tensor and 1 where
      there is no evidence; the step :math:`\Delta\theta` to add to the parameters,
      0 for tensors where its square is not finite; and the :class:`CurvatureInfo`.

    Examples:
      >>> import jax, jax.numpy as jnp
      >>> from ctagd_optax import close_epoch, CurvatureEstimate
      >>> estimate = CurvatureEstimate(
      ...     value=jnp.asarray([0.0, 2.0, 4.0, 500.0]),
      ...     observed=jnp.asarray([False, True, True, True]),
      ... )
      >>> gamma, correction, info = jax.jit(close_epoch, static_argnames="unobserved")(
      ...     estimate, gradients=jnp.ones(4), params=jnp.ones(4), unobserved="skip"
      ... )
      >>> print(gamma, correction, info.observed)
      [2.4] [-0.    -0.25  -0.125 -0.05 ] [0.75]
    """
    check_choice("unobserved", unobserved, ("clamp", "skip"))
    _check_boundary(correction_rate, curvature_min, curvature_max, quantile)
    bounds = curvature_min, curvature_max
    # NaN is no evidence, as are sums that overflowed both ways.
    raw = jax.tree.map(
        lambda h, o: choose(o, h.astype(wide(h.dtype)), jnp.nan),
        estimate.value,
        estimate.observed,
    )

    def masks(h):
        low, high = (jnp.asarray(bound, h.dtype) for bound in bounds)
        return h < low, h > high, h == h  # which NaN is not

    counts = totals(
        [[x.astype(jnp.int32) for x in masks(h)] for h in jax.tree.leaves(raw)]
    )
    low, high, observed = (
        stack([each[i] for each in counts], jnp.int32) for i in range(3)
    )
    sizes = np.asarray([h.size for h in jax.tree.leaves(raw)], np.int32)
    skip = unobserved == "skip"
    gamma = _divisors(
        jax.tree.leaves(raw), quantile, bounds, observed, observed if skip else sizes
    )
    # Always so. With it, XLA writes corrections after the search, where ``raw`` was.
    searched = jnp.all(gamma > 0)

    def correct(i, g, h):
        low, high = (jnp.asarray(bound, h.dtype) for bound in bounds)
        # A tensor without any evidence is left alone.
        there = searched & (counts[i][2] > 0)
        if skip:
            there &= h == h
        h = jnp.where(h > low, jnp.minimum(h, high), low)  # low where it is NaN
        product = -jnp.asarray(correction_rate, h.dtype) * g.astype(h.dtype)
        # -0 is no correction: u + 0 would lose the sign of a zero.
        return choose(there, product, -0.0) / h

    correction = map_with_index(correct, gradients, raw)
    squares = _squares(*jax.lax.stop_gradient((correction, params)))
    correction = map_with_index(
        lambda i, c: choose(squares[i][0] < jnp.inf, c, -0.0), correction
    )
    length, scale = (jnp.sqrt(stack([each[i] for each in squares])) for i in range(2))
    unchanged = (length == 0) | ~jnp.isfinite(length)
    relative = jnp.where(unchanged, 0, length / scale)
    there = observed > 0

    def share(counts):
        return counts.astype(jnp.float32) / np.maximum(sizes, 1).astype(np.float32)

    info = CurvatureInfo(
        observed=share(observed),
        clamped_low=jnp.where(there, share(low if skip else low + sizes - observed), 0),
        clamped_high=share(high),
        relative_correction=jnp.where(jnp.isnan(relative), jnp.inf, relative),
        left_out=jnp.zeros(gamma.shape, jnp.int32) if left_out is None else left_out,
    )
    return jnp.where(there, gamma, 1), correction, jax.lax.stop_gradient(info)


def ct_agd(
    backbone: optax.GradientTransformation,
    steps_per_epoch: int | jax.Array,
    *,
    correction_rate: optax.ScalarOrSchedule = 0.5,
    curvature_min: ArrayLike = 0.1,
    curvature_max: ArrayLike = 10.0,
    quantile: ArrayLike = 0.1,
    eps: ArrayLike = 1e-3,
    correction_gradient: str = "average",
    annealing: str | Annealing = "linear",
    estimator: CurvatureEstimator | None = None,
    unobserved: str = "clamp",
    accumulator_dtype: DTypeLike | None = None,
) -> optax.GradientTransformationExtraArgs:
    r"""Curvature-Tuned Accelerated Gradient Descent around any optimizer.

    Within epoch :math:`k` the backbone's update is divided by one number per tensor,

    .. math::

        \theta_{t+1} = \theta_t + u_t / \gamma_{k,t}, \qquad
        \gamma_{k,t} = \gamma_k - (\gamma_k - 1)\, t / T,

    while an estimator gathers the diagonal of the Hessian from how gradients change
    with parameters (see :func:`secant`). At the last step of the epoch,
    :func:`close_epoch` clamps the estimate, adds one correction, and sets the next
    divisor to a low quantile of the tensor's curvature:

    .. math::

        \theta \leftarrow \theta - \eta_2\, \tilde g / \widehat H_k, \qquad
        \gamma_{k+1} = Q_\omega(\widehat H_k).

    For example, change this::

        optimizer = optax.sgd(1e-2, momentum=0.85)

    To::

        backbone = optax.sgd(1e-2, momentum=0.85)
        optimizer = ctagd_optax.ct_agd(backbone, steps_per_epoch=len(train_set) // 128)

    ``update(gradients, state, params)`` needs ``params``. It also takes ``epoch_end``,
    a boolean that may be traced: True closes the epoch at this step and False keeps it
    open, whatever the counter says; :class:`optax.MultiSteps` between its updates and
    :func:`optax.apply_if_finite` at a NaN lose it, as they do not call ``update``. All
    other extra arguments go to the backbone and to the estimator.

    All defaults but the clamp are the paper's. Its appendix has ``curvature_min=1e-2,
    curvature_max=1e2`` and its ablation calls the intervals equal. In our runs they are
    not: with the appendix's, networks end below their backbone, or do not learn.
    A tensor without any evidence in an epoch has :math:`\gamma = 1` and no correction.

    Args:
      backbone: the first-order optimizer, with its learning rate :math:`\eta_1`.
      steps_per_epoch: optimizer steps :math:`T` in an epoch; may be traced.
      correction_rate: :math:`\eta_2`; a schedule is called with the epoch :math:`k`.
      curvature_min: :math:`\lambda_{\min}`, lower clamp of the curvature.
      curvature_max: :math:`\lambda_{\max}`, upper clamp of the curvature.
      quantile: :math:`\omega`, the quantile that becomes :math:`\gamma`.
      eps: :math:`\varepsilon`, the smallest step of a coordinate that counts as
        evidence; also added to the denominators of the averages.
      correction_gradient: :math:`\tilde g`: "average" is the epoch's gradients weighted
        by t; "last" the last one, which needs no memory.
      annealing: "linear" (above), "exponential" (:math:`1 + (\gamma_k - 1)\, 2^{-t}`),
        "none" (:math:`\gamma_k`), or a function of the vector :math:`\gamma_k`, the
        fraction :math:`t/T` (at most 1) and :math:`t` that returns
        :math:`\gamma_{k,t}`.
      estimator: estimator of the Hessian's diagonal: :func:`secant` (None),
        :func:`same_batch` or :func:`hutchinson`; the last two take extra arguments of
        ``update``.
      unobserved: what a coordinate without evidence gets: "clamp" is the paper's
        formula, by which it has the curvature :math:`\lambda_{\min}`; "skip" leaves it
        out of the correction and of the quantile.
      accumulator_dtype: dtype of the running sums; None is float32 for 16-bit
        parameters, else the parameter's. Previous parameters and gradients keep the
        parameter's dtype, as their differences need every bit; gradients of 16-bit
        parameters are kept in float32, unless both dtypes are the same. A sum in
        bfloat16 has one more byte, so it stays right in epochs of any length.

    Returns:
      A :class:`optax.GradientTransformationExtraArgs` with the state
      :class:`CTAGDState`.

    Examples:
      >>> import jax, jax.numpy as jnp, optax
      >>> import ctagd_optax
      >>> def f(x):
      ...     return jnp.sum(jnp.asarray([1.0, 4.0]) * x**2)
      >>> opt = ctagd_optax.ct_agd(optax.sgd(0.05), steps_per_epoch=10)
      >>> params = jnp.asarray([1.0, -1.0])
      >>> state = opt.init(params)
      >>> for _ in range(20):
      ...     updates, state = opt.update(jax.grad(f)(params), state, params)
      ...     params = optax.apply_updates(params, updates)
      >>> print(f"{f(params):.0e}, {state.epoch} epochs, gamma {state.gamma[0]:.2f}")
      3e-04, 2 epochs, gamma 2.60

    References:
      Graca et al, `Accelerated Gradient Descent for Faster Convergence with Minimal
      Overhead <https://arxiv.org/abs/2605.16017>`_, 2026

    .. note::
      Under ``jax.vmap`` a ``lax.cond`` whose predicate is batched runs both branches at
      every step. Keep ``epoch`` and ``epoch_step`` unbatched.
    """
    if estimator is None:
        estimator = secant()
    check_estimator(estimator)
    check_choice("correction_gradient", correction_gradient, ("average", "last"))
    check_choice("unobserved", unobserved, ("clamp", "skip"))
    check_number("eps", eps, 0)
    _check_boundary(
        0 if callable(correction_rate) else correction_rate,
        curvature_min,
        curvature_max,
        quantile,
    )
    check_dtype("accumulator_dtype", accumulator_dtype)

    summing = correction_gradient == "average"

    def init(params: optax.Params) -> tuple[CTAGDEvidence, Any, CurvatureInfo]:
        tensors = len(jax.tree.leaves(params))
        curvature, memory = estimator.init(params, accumulator_dtype)
        evidence = CTAGDEvidence(
            curvature=curvature,
            gradient_sum=accumulators(params, accumulator_dtype) if summing else None,
            gradient_weight=counters(params, jnp.float32) if summing else None,
        )
        return (
            evidence,
            memory,
            CurvatureInfo(
                observed=jnp.zeros((tensors,), jnp.float32),
                clamped_low=jnp.zeros((tensors,), jnp.float32),
                clamped_high=jnp.zeros((tensors,), jnp.float32),
                relative_correction=jnp.zeros((tensors,), jnp.float32),
                left_out=jnp.zeros((tensors,), jnp.int32),
            ),
        )

    anneal = get_annealing(annealing)

    def look(memory, gradients, params, updates):
        del memory, params, updates
        return largest(jax.tree.leaves(gradients)), None

    def divisor(state, fraction, sizes, figures):
        del sizes, figures
        return anneal(state.gamma, fraction, state.epoch_step)

    def observe(evidence: CTAGDEvidence, memory: Any, step: Step, **extra_args: Any):
        curvature = estimator.observe(
            evidence.curvature, memory, step, eps, **extra_args
        )
        if not summing:
            return CTAGDEvidence(curvature, None, None)
        finite, t = step.finite(), step.epoch_step

        def term(i, total, g):
            return choose(finite[i], t.astype(total.dtype) * g.astype(total.dtype), 0)

        terms = map_with_index(term, values(evidence.gradient_sum), step.gradients)
        weight = jnp.where(step.finite_vector(), t, 0)
        return CTAGDEvidence(
            curvature=curvature,
            gradient_sum=accumulate(evidence.gradient_sum, terms, t),
            gradient_weight=accumulate(
                evidence.gradient_weight, weight.astype(jnp.float32), t
            ),
        )

    def corrected_gradient(evidence: CTAGDEvidence, step: Step) -> optax.Updates:
        if correction_gradient == "last":
            finite = step.finite()
            return map_with_index(lambda i, g: choose(finite[i], g, 0), step.gradients)
        sums = values(evidence.gradient_sum)
        dtype = widest(sums)
        weights = evidence.gradient_weight.astype(dtype) + jnp.asarray(eps, dtype)
        factors = entries(1 / jnp.where(weights > 0, weights, 1), len(step.sizes))

        return map_with_index(lambda i, s: s * factors[i].astype(s.dtype), sums)

    def close(
        evidence: CTAGDEvidence, step: Step, gamma: jax.Array, info: CurvatureInfo
    ):
        del gamma, info  # the paper's divisor is taken afresh from each epoch
        gamma, correction, info = close_epoch(
            estimator.estimate(evidence.curvature, eps),
            corrected_gradient(evidence, step),
            step.params,
            correction_rate=(
                correction_rate(step.epoch)
                if callable(correction_rate)
                else correction_rate
            ),
            curvature_min=curvature_min,
            curvature_max=curvature_max,
            quantile=quantile,
            unobserved=unobserved,
            left_out=step.left_out,
        )
        beyond = out_of_range(step.params, step.updates, correction)
        if beyond is None:
            return gamma, correction, info
        beyond &= info.relative_correction > 0
        left_out = entries(beyond.astype(jnp.float32), len(step.sizes))
        correction = map_with_index(
            lambda i, c: choose(left_out[i] > 0, -0.0, c), correction
        )
        return (
            gamma,
            correction,
            info._replace(
                relative_correction=jnp.where(beyond, 0, info.relative_correction),
                left_out=info.left_out + beyond.astype(jnp.int32),
            ),
        )

    return curvature_tuned(
        backbone,
        steps_per_epoch,
        Method(
            "ct_agd",
            True,
            estimator.spare,
            init,
            look,
            divisor,
            observe,
            estimator.remember,
            close,
        ),
    )


def _divisors(
    curvature: list[jax.Array],
    quantile: ArrayLike,
    bounds: tuple[ArrayLike, ArrayLike],
    observed: jax.Array,
    entries: np.ndarray | jax.Array,
) -> jax.Array:
    """γ of each tensor: the quantile of its clamped curvature."""
    gamma = jnp.ones((len(curvature),), jnp.float32)
    omega = float(quantile) if isinstance(quantile, numbers.Real) else quantile
    by_dtype: dict[Any, list[int]] = {}
    for i, h in enumerate(curvature):
        by_dtype.setdefault(h.dtype, []).append(i)
    for positions in by_dtype.values():
        at = np.asarray(positions)
        found = clipped_quantiles(
            [curvature[i] for i in positions], omega, bounds, observed[at], entries[at]
        )
        gamma = gamma.at[at].set(found.astype(jnp.float32))
    return gamma


def _squares(*trees: Any) -> list[tuple[jax.Array, ...]]:
    """For each tensor, its sum of squares in each tree."""
    leaves = zip(*map(jax.tree.leaves, trees), strict=True)
    return totals([[x.astype(widest(each)) ** 2 for x in each] for each in leaves])


def _check_boundary(
    correction_rate: Any, curvature_min: Any, curvature_max: Any, quantile: Any
) -> None:
    """Checks the numbers that close an epoch; traced ones are taken as they come."""
    check_number("correction_rate", correction_rate, 0)
    for name, bound in (
        ("curvature_min", curvature_min),
        ("curvature_max", curvature_max),
    ):
        check_number(name, bound, 0, above=True)
        number, finfo = concrete(name, bound), jnp.finfo(jnp.float32)
        least, most = float(finfo.tiny), float(finfo.max)
        if number is not None and not least <= number <= most:
            raise ValueError(
                f"{name} must be from {least:.2g} to {most:.2g}, the range of float32; "
                f"got {bound}"
            )
    low = concrete("curvature_min", curvature_min)
    high = concrete("curvature_max", curvature_max)
    if low is not None and high is not None and low > high:
        raise ValueError(
            "curvature_min must be at most curvature_max, got "
            f"{curvature_min} and {curvature_max}"
        )
    omega = concrete("quantile", quantile)
    if omega is not None and not 0 <= omega <= 1:
        raise ValueError(f"quantile must be in [0, 1], got {quantile}")
