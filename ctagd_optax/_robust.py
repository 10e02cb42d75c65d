"""Our own method on the skeleton of ``_transform``: curvature along the motion.

The paper asks for the curvature of every coordinate, which mini-batches cannot answer.
This method asks for one number, how long a step is in units of a Newton step, and acts
only where the answer is clear.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax.typing import ArrayLike, DTypeLike

from ctagd_optax._annealing import Annealing, get_annealing
from ctagd_optax._checks import (
    check_backbone,
    check_choice,
    check_dtype,
    check_number,
    check_whole,
    concrete,
)
from ctagd_optax._curvature import accumulate, accumulators
from ctagd_optax._path import Path, no_path, observe_path, path_correction
from ctagd_optax._transform import (
    Method,
    Step,
    curvature_tuned,
    inner,
    map_with_index,
    per_tensor,
    relative_norms,
    wide,
)


class MotionSums(NamedTuple):
    """Inner products along the motion, summed over steps.

    Each is a vector, with one entry for all tensors together or one per tensor. Errors
    are kept as roots, as the squares of small gradients' products would underflow.

    Attributes:
      curvature: N, the sum of n_t, which is u_{t-2}ᵀ H u_{t-1} on average.
      curvature_error: SE, the standard error of N.
      promise: D, the sum of -⟨u_{t-1}, g_{t-1}⟩: the descent of a raw step to first
        order.
      overlap_sum: O, the sum of ⟨u_{t-1}, g_t⟩ / m_{t-1}: the gradient after a step,
        along it.
      overlap_error: the root of the sum of the squares of these terms.
      fresh: P, the sum of -⟨u_{t-2}, g_{t-1}⟩: what is left of the promise by the
        gradient of the next batch, which does not share the noise of u_{t-2}.
      fresh_error: the root of the sum of the squares of these terms.
      error_by_terms: the root of the sum of n_t², if errors are by gradients.
      error_by_gradients: the root of the sum of the squares of what each gradient but
        the last adds to N, likewise.
    """

    curvature: jax.Array
    curvature_error: jax.Array
    promise: jax.Array
    overlap_sum: jax.Array
    overlap_error: jax.Array
    fresh: jax.Array
    fresh_error: jax.Array
    error_by_terms: jax.Array | None = None
    error_by_gradients: jax.Array | None = None


class RobustInfo(NamedTuple):
    """What the last closed epoch knew of its step length.

    Every field is a vector with one entry per tensor, in the order of
    ``jax.tree.leaves``. All are zero until an epoch has been closed. With "mix", the
    figures are those of the tensor, not of all together.

    Attributes:
      step_high: q⁺, an upper bound of the step length, in units of a Newton step.
      step_low: q⁻, a lower bound.
      signal: N / SE, the curvature over its standard error; between -1 and 1 there is
        no telling that there is any. 0 where there was no sample.
      overlap: O / D; below 0 the loss still fell at the end of a step. 0 likewise.
      held: P / D, the descent by gradients of the next batch over that by a step's own;
        about 1 without noise, near 0 where gradients are mostly noise, below 0 where
        steps end uphill. 0 likewise.
      multiplier: m = 1/γ of the next epoch.
      floor: the share of its learning rate at which the next epoch ends, beyond what
        annealing does.
      gradient_square: mean of ‖g‖² over the epoch, of all tensors together.
      relative_correction: norm of the correction over the norm of the tensor.
      settled: 1 once an epoch surely descended or ascended, 0 before.
      left_out: samples left out of the epoch because the gradient was not finite.
    """

    step_high: jax.Array
    step_low: jax.Array
    signal: jax.Array
    overlap: jax.Array
    held: jax.Array
    multiplier: jax.Array
    floor: jax.Array
    gradient_square: jax.Array
    relative_correction: jax.Array
    settled: jax.Array
    left_out: jax.Array


class RobustMemory(NamedTuple):
    """The two steps before.

    Updates stay where they are until overwritten; to move them would copy them.

    Attributes:
      even: u of the last step with an even t.
      odd: u of the last step with an odd t.
      last_promise: for each tensor, -⟨u_{t-1}, g_{t-1}⟩.
      previous_multiplier: for each tensor, m_{t-1}.
      streak: for each tensor, finite gradients in a row.
    """

    even: optax.Updates
    odd: optax.Updates
    last_promise: jax.Array
    previous_multiplier: jax.Array
    streak: jax.Array


class RobustEvidence(NamedTuple):
    """What the method gathers from the steps.

    Attributes:
      pooled: sums over all tensors; None if every tensor is judged alone.
      alone: sums per tensor; None if all are judged together.
      last_overlap: for each tensor, ⟨u_{t-1}, g_t⟩ of the last step.
      last_share: for each tensor, what the last gradient has added to N so far; None
        if errors are by terms.
      judged_gamma: for each tensor, the γ_k of the epoch.
      squared_gradients: Σ ‖g‖² of the tensors with finite gradients; one entry.
      steps: the number of steps that have one; one entry.
      path: evidence for the correction; None without one.
    """

    pooled: MotionSums | None
    alone: MotionSums | None
    last_overlap: jax.Array
    last_share: jax.Array | None
    judged_gamma: jax.Array
    squared_gradients: jax.Array
    steps: jax.Array
    path: Path | None


def step_length(
    sums: MotionSums,
    multiplier: jax.Array,
    confidence: ArrayLike = 1.0,
    promise: str = "fresh",
) -> tuple[jax.Array, jax.Array]:
    r"""Bounds of the step length, in units of a Newton step along the motion.

    .. math::

        q^+ = m\,\frac{\max(N, 0) + c\,\mathrm{SE}}{P}, \qquad
        q^- = m\,\frac{N - c\,\mathrm{SE}}{D}

    A step of length 1 goes to the bottom of the parabola along it, one of 2 as high up
    on the other side. The learning rate and the momentum need not be known. As
    :math:`D` takes the noise of its gradients for descent, it makes steps look short;
    :math:`P` does not, so it is the one to lengthen steps by. :math:`q^-`, by
    :math:`D`, sees only steps that are far too long.

    Where steps go back and forth, :math:`N` tells nothing, but the gradient does: after
    a step of length :math:`q` it is :math:`q - 1` times what it was, against the step.
    So from :math:`m\,O / D > 1` on, :math:`q^-` is at least :math:`1 + m\,O / D`.

    Args:
      sums: the sums at an epoch's end.
      multiplier: the multiplier :math:`m` that scales a raw step.
      confidence: :math:`c`, how many standard errors to allow for.
      promise: "fresh" is the above; "own" has :math:`D` also in :math:`q^+`, which is
        then at least :math:`2\,m\,O / D`.

    Returns:
      :math:`(q^+, q^-)`, with :math:`q^+ = \infty` where :math:`P \le 0`, negative
      where :math:`D < 0`, and :math:`(\infty, -\infty)` where there was no sample.

    Examples:
      >>> import jax.numpy as jnp
      >>> from ctagd_optax._robust import MotionSums, step_length
      >>> sums = MotionSums(*map(jnp.asarray, [0.2, 0.1, 1, -0.4, 0.5, 0.5, 0.5]))
      >>> print(*step_length(sums, jnp.asarray(2.0)))
      1.2 0.2
    """
    error = jnp.asarray(confidence, jnp.float32) * sums.curvature_error
    known = sums.promise != 0
    scale = multiplier / jnp.where(known, sums.promise, 1)
    high = jnp.maximum(sums.curvature, 0) + error
    if promise == "fresh":
        held = sums.fresh > 0
        high = jnp.where(
            held, multiplier * high / jnp.where(held, sums.fresh, 1), jnp.inf
        )
        high = jnp.where(sums.promise < 0, -jnp.inf, high)
    else:
        high = scale * jnp.maximum(high, 2 * sums.overlap_sum)
    low = scale * (sums.curvature - error)
    back = scale * sums.overlap_sum
    low = jnp.where(back > 1, jnp.maximum(low, 1 + back), low)
    return jnp.where(known, high, jnp.inf), jnp.where(known, low, -jnp.inf)


def next_multiplier(
    multiplier: jax.Array,
    step_high: jax.Array,
    step_low: jax.Array,
    descending: ArrayLike,
    ascending: ArrayLike = False,
    first: ArrayLike = False,
    *,
    target: ArrayLike = 2.0,
    first_threshold: ArrayLike = 2.0,
    threshold: ArrayLike = 0.25,
    growth: ArrayLike = 3.0,
    decay: ArrayLike = 0.9,
) -> jax.Array:
    """The multiplier of the next epoch: longer, shorter, or held in between.

    Args:
      multiplier: m.
      step_high: q⁺ of :func:`step_length`.
      step_low: q⁻.
      descending: whether the loss surely still fell at the end of a step.
      ascending: whether it surely rose there.
      first: whether no epoch before told whether it falls or rises.
      target: the step length to grow to.
      first_threshold: steps shorter than this grow at first, without a limit.
      threshold: steps shorter than this grow later.
      growth: the largest factor by which they do.
      decay: the factor by which m falls, down to 1, where the loss rose.

    Returns:
      The next m; at most 1 where nothing is known, or the motion promised no descent.

    Examples:
      >>> import jax.numpy as jnp
      >>> from ctagd_optax._robust import next_multiplier
      >>> bounds = jnp.asarray([[0.1, -0.1], [0.6, 0.2], [3.0, 2.0]])
      >>> print(next_multiplier(jnp.full(3, 2.0), *bounds.T, descending=True))
      [6. 2. 1.]
    """
    first = jnp.asarray(first)
    limit = jnp.where(first, jnp.inf, jnp.asarray(growth, jnp.float32))
    short = jnp.where(
        first,
        jnp.asarray(first_threshold, jnp.float32),
        jnp.asarray(threshold, jnp.float32),
    )
    longer = (step_high < short) & descending
    grown = jnp.minimum(limit, jnp.asarray(target, jnp.float32) / step_high)
    factor = jnp.where(
        longer, jnp.maximum(grown, 1), jnp.where(step_low > 1, 1 / step_low, 1)
    )
    after = multiplier * factor
    lower = jnp.maximum(jnp.asarray(decay, jnp.float32) * after, 1)
    after = jnp.where(jnp.asarray(ascending) & (after > 1), lower, after)
    # A motion that promises no descent, or knows nothing, is no ground for any.
    known = (step_high >= 0) & jnp.isfinite(step_low)
    return jnp.where(known, after, jnp.minimum(multiplier, 1))


def robust_ct_agd(
    backbone: optax.GradientTransformation,
    steps_per_epoch: int | jax.Array,
    *,
    pooling: str = "all",
    errors: str = "terms",
    evidence_steps: ArrayLike = 0.0,
    promise: str = "fresh",
    target: ArrayLike = 2.0,
    early_target: ArrayLike = 0.7,
    early_growth: ArrayLike = 1.5,
    aim: str = "peak",
    confidence: ArrayLike = 1.0,
    require_descent: bool = True,
    first_threshold: ArrayLike = 2.0,
    threshold: ArrayLike = 0.25,
    growth: ArrayLike = 3.0,
    decay: ArrayLike = 0.9,
    floor: ArrayLike = 1.0,
    multiplier_min: ArrayLike = 0.1,
    multiplier_max: ArrayLike = 20.0,
    annealing: str | Annealing = "rate",
    guard: ArrayLike = 4.0,
    correction: str = "mean",
    correction_multiplier_max: ArrayLike = 1.0,
    correction_confidence: ArrayLike = 2.0,
    correction_limit: ArrayLike = 0.5,
    correction_samples: int | jax.Array = 32,
    accumulator_dtype: DTypeLike | None = None,
) -> optax.GradientTransformationExtraArgs:
    r"""Tunes the learning rate of any optimizer by the curvature along its motion.

    The skeleton is that of :func:`ct_agd`: it wraps a backbone, gathers evidence during
    an epoch, and ends it with one correction and one multiplier :math:`m = 1/\gamma`
    for the next. What it asks of the evidence is less: not the curvature of every
    coordinate, but how long a step is in units of a Newton step. With :math:`u_t` the
    backbone's raw update, so that :math:`\theta_{t+1} = \theta_t + m_t u_t`,

    .. math::

        n_t = \langle u_{t-2},\, g_t - g_{t-1} \rangle / m_{t-1}, \qquad
        N = \sum n_t, \qquad
        P = -\sum \langle u_{t-2}, g_{t-1} \rangle, \qquad
        D = -\sum \langle u_{t-1}, g_{t-1} \rangle, \qquad
        O = \sum \langle u_{t-1}, g_t \rangle / m_{t-1} .

    :math:`u_{t-2}` knows the noise of neither gradient, so the mean of :math:`n_t` is
    :math:`u_{t-2}^\top H u_{t-1}`, whatever the noise, and that of :math:`P` is what
    the path descends; :math:`D` has the noise of :math:`g_{t-1}` in both factors and
    takes it for descent. :math:`\mathrm{SE} = \sqrt{\sum n_t^2}` is the standard error
    of :math:`N`, or more than that.

    :func:`step_length` makes two bounds :math:`q^+` and :math:`q^-` of the sums, and
    :func:`next_multiplier` lengthens a step that is surely short, shortens one that is
    surely long, and else changes nothing, but for a slow decay of :math:`m` towards 1
    while steps end uphill. Already within the first epoch :math:`m` follows the
    evidence as it comes in, to a smaller target and within a limit that rises with
    every step, and is not annealed; the state's :math:`\gamma` is 1 until its end.

    Within each later epoch the learning rate falls linearly from :math:`m` to
    :math:`\min(1, m)`; where a gradient is unusually large, the part of :math:`m_t`
    above 1 is cut, and likewise that of the next :math:`m` after an epoch of them.

    Where :math:`m` is at most 1 and steps still end uphill, noise has the better of
    descent. With a ``floor`` below 1 the rate then falls linearly to that share of
    itself within each epoch that follows, until one surely descends: the first steps
    go as far as ever, the last settle. By accuracy that pays in long epochs, where the
    backbone's rate is too high. But steps of a network can end uphill at a rate that is
    far too low, as curvature settles to whatever the rate is, and there it costs: so it
    is an option.

    The correction goes back towards the mean :math:`\bar\theta` of the path through the
    second half of the epoch, as far as the loss seems to fall on the way. What tells is
    that each gradient there is of a batch which the path before has not used. With
    :math:`w_t` the weights 1, 2, … of the samples, :math:`W` their sum,
    :math:`\bar\theta_t` the mean of those before, and :math:`\bar g` that of all
    gradients, :math:`R` is how steeply the loss falls where the way starts, less
    :math:`c` standard errors, and :math:`A` how steeply it rises at the mean, which
    noise makes look steeper:

    .. math::

        R = \frac{\sum w_t s_t - c\sqrt{\sum w_t^2 s_t^2}}{W}, \qquad
        s_t = \langle g_t,\, \theta_t - \bar\theta_t \rangle, \qquad
        A = \langle \bar g,\, \bar\theta - \theta \rangle, \qquad
        d = \frac{R^+}{R^+ + A^+}\,(\bar\theta - \theta) .

    So :math:`d`, which it adds, ends at the mean, or at the bottom of the parabola with
    these slopes. On a straight path down, :math:`s_t` is negative, and there is no
    correction; it acts where steps go back and forth across a valley, or gradients are
    mostly noise. It takes more than :math:`c^2` terms, so by default epochs of over ten
    steps. And it is made only where no tensor's next :math:`m` is above 1. Elsewhere
    the falling rate has mostly quietened the path's end; there were nearly all
    corrections that raised the loss of networks, if seldom and little. Without
    annealing, or where the first epoch ends in noise, it may pay to make it anyway
    (``correction_multiplier_max``). Where batches of an epoch share no examples, those
    to come lean against those that were used, which looks like a fall: on a mere slope
    with noise it may go up to a quarter of the way, and give up some hundredths, seldom
    a tenth, of what the epoch descended.

    Another correction, "line", fits a line to gradients over parameters and goes to its
    root, as far as its slope can be trusted. With :math:`S_x`, :math:`S_y` and
    :math:`S_g` the weighted sums of squares and products of a tensor's parameters and
    gradients about their means, :math:`h = S_y / S_x`, and the squared standard error
    :math:`\mathrm{se}^2 = (S_g - h S_y)^+ / (n S_x)` of :math:`n` samples, it is

    .. math::

        d = r\,(\bar\theta - \bar g / h - \theta), \qquad
        r = \bigl(1 - (c\,\mathrm{se} / h)^2\bigr)^+,

    shortened to the norm :math:`\kappa\sqrt{S_x / W}` if it is longer. Its errors are
    rough. On the one hand they are those of :math:`n` samples, however large the
    tensor, as if its coordinates shared their noise. On the other, a path that is a
    random walk of noise seems to have a slope (Dickey and Fuller): of tensors with a
    single coordinate a third or more are then followed, of those with a hundred none.

    Two options sharpen the evidence. Each gradient is in two terms of :math:`N`, with
    opposite signs. Where updates change little, by momentum, its noise all but cancels,
    and :math:`\sum n_t^2` overrates the variance, with a momentum of 0.85 and epochs of
    20 steps or more by a factor of four to six. By gradients, :math:`N = \sum_t \langle
    c_t, g_t \rangle`, and with ``errors="gradients"``

    .. math::

        c_t = \frac{u_{t-2}}{m_{t-1}} - \frac{u_{t-1}}{m_t}, \qquad
        \mathrm{SE} = \min\Bigl(\sqrt{\textstyle\sum n_t^2},\,
        \sqrt{\textstyle\sum \langle c_t, g_t \rangle^2}\Bigr) ,

    without the first part of :math:`c_t` for :math:`g_1` and without the second for the
    last gradient. The second root is right for noise, but counts descent as well; the
    first is smaller where there is little noise, and too small, by up to a quarter,
    where updates go back and forth. And with ``evidence_steps`` :math:`s`, all sums
    begin with those of the epoch before, times :math:`e^{-n / s}` after its :math:`n`
    steps, unless :math:`m` has changed since: so the evidence of short epochs adds up.
    With a higher ``target`` and ``first_threshold`` to match, both are bolder: sooner
    where epochs are short and gradients noisy, but :math:`q^+` does not allow for the
    error of :math:`P`, for which a large :math:`\mathrm{SE}` stands in, and where
    nothing is left to learn a rare chance lengthens steps that are right.

    ``update`` needs ``params``, and takes ``epoch_end`` and other extra arguments as
    that of :func:`ct_agd` does. The half of an epoch is that of ``steps_per_epoch``,
    also if ``epoch_end`` ends it earlier or later. Under differentiation, multiplier,
    means, fitted line and the correction's share of its way are constants.

    The update is taken for the whole motion. So put it last in a chain, and freeze
    parameters outside, by :func:`optax.partition` with :func:`optax.set_to_zero` for
    them: a tensor that promises descent and never moves looks like a step far too
    short.

    Args:
      backbone: the first-order optimizer, with its learning rate.
      steps_per_epoch: optimizer steps :math:`T` in an epoch, or in a part of one; may
        be traced. To lengthen steps takes at least four of them, or three and
        evidence that lasts.
      pooling: "all" judges all tensors by one step length, "tensor" each by its own,
        "mix" takes the geometric mean of the two decisions.
      errors: what :math:`\mathrm{SE}` is the root of: "terms" takes the squares of the
        terms, "gradients" the smaller of both sums.
      evidence_steps: :math:`s`, in how many steps evidence loses weight by a factor of
        :math:`e`; 0 begins every epoch anew.
      promise: what a step's length is measured by: "fresh" is :math:`P`, "own" is
        :math:`D`, which is bolder the noisier the gradients are, and not safe.
      target: the step length :math:`q^+` to grow to, in units of a Newton step.
      early_target: the same while the first epoch is under way; 0 waits for its end.
      early_growth: in the first epoch :math:`m_t` is at most this to the power of
        :math:`t - 2`, without steps whose gradients are not finite; 1 waits for the
        epoch's end, too.
      aim: what reaches the target when :math:`m` first grows: the first step of the
        next epoch, its "peak", or its "mean" step, so that the first are longer; with
        another annealing than "rate" always the first.
      confidence: standard errors that the bounds, :math:`P` and :math:`O` allow for.
      require_descent: whether :math:`P > 0`, by as many standard errors, is needed to
        lengthen steps; with "own" it is :math:`O < 0`.
      first_threshold: up to the first epoch that surely descends or ascends, steps with
        :math:`q^+` below this grow, without a limit.
      threshold: after that epoch, steps with :math:`q^+` below this grow.
      growth: the largest factor by which they do.
      decay: the factor by which an :math:`m` above 1 falls after an epoch with
        :math:`P < 0`, by as many standard errors; 1 is none.
      floor: the share of its rate to which an epoch falls, whatever the annealing,
        after one with such a :math:`P` and an :math:`m` of at most 1, as which the
        first epoch counts, and from then on until one with :math:`P > 0`, by as many
        standard errors (with "own" :math:`O < 0`), or until :math:`m` is above 1; 1 is
        no fall.
      multiplier_min: the smallest :math:`m`.
      multiplier_max: the largest :math:`m`; it starts at 1 in any case.
      annealing: "rate" (above), or any that :func:`ct_agd` takes.
      guard: ratio of a gradient's square, or of its mean over an epoch, to the last
        epoch's mean from which on it is unusually large, in the first epoch to the mean
        so far; infinity turns the guard off. A step whose gradient is not finite has
        an :math:`m_t` of at most 1 in any case.
      correction: "mean" (above); "line", with one slope for each tensor, or
        "coordinate_line", with one for each coordinate; "none" makes none.
      correction_multiplier_max: the largest next :math:`m`, of any tensor, with which
        the correction is made; infinity makes it with any.
      correction_confidence: :math:`c`, how many standard errors the fall of the loss,
        or the line's slope, must be above 0 for any correction.
      correction_limit: :math:`\kappa`, the largest correction to a line's root, of a
        tensor or of a coordinate, in standard deviations of its path.
      correction_samples: how many steps of the second half, evenly spread, are samples
        at most, unless ``epoch_end`` prolongs it; each of them takes more time than
        another.
      accumulator_dtype: dtype of sums and remembered updates; None is float32 for
        16-bit parameters, else the parameter's, as are always the two means.

    Returns:
      A :class:`optax.GradientTransformationExtraArgs` with the state
      :class:`CTAGDState`, whose info is a :class:`RobustInfo`.

    Examples:
      >>> import jax, jax.numpy as jnp, optax
      >>> import ctagd_optax
      >>> def f(x):
      ...     return jnp.sum(jnp.asarray([1.0, 4.0]) * x**2)
      >>> opt = ctagd_optax.robust_ct_agd(optax.sgd(0.005), steps_per_epoch=10)
      >>> params = jnp.asarray([1.0, -1.0])
      >>> state = opt.init(params)
      >>> for _ in range(20):
      ...     updates, state = opt.update(jax.grad(f)(params), state, params)
      ...     params = optax.apply_updates(params, updates)
      >>> print(f"m = {state.info.multiplier[0]:.0f}, loss {f(params):.0e}")
      m = 20, loss 3e-02
    """
    check_backbone(backbone)
    check_whole("steps_per_epoch", steps_per_epoch)
    check_whole("correction_samples", correction_samples)
    check_choice("pooling", pooling, ("all", "tensor", "mix"))
    check_choice("errors", errors, ("terms", "gradients"))
    check_choice("promise", promise, ("fresh", "own"))
    check_choice("aim", aim, ("mean", "peak"))
    check_choice("correction", correction, ("mean", "line", "coordinate_line", "none"))
    check_dtype("accumulator_dtype", accumulator_dtype)
    check_number("target", target, 0, above=True)
    for name, value in (
        ("early_target", early_target),
        ("confidence", confidence),
        ("first_threshold", first_threshold),
        ("threshold", threshold),
        ("correction_confidence", correction_confidence),
        ("correction_limit", correction_limit),
    ):
        check_number(name, value, 0)
    check_number("growth", growth, 1)
    check_number("early_growth", early_growth, 1)
    check_number("decay", decay, 0, 1, above=True)
    check_number("floor", floor, 0, 1, above=True)
    check_number("evidence_steps", evidence_steps, 0, infinite=True)
    check_number("guard", guard, 0, above=True, infinite=True)
    check_number("multiplier_min", multiplier_min, 0, above=True)
    smallest = concrete("multiplier_min", multiplier_min) or 0
    check_number("multiplier_max", multiplier_max, smallest)
    check_number(
        "correction_multiplier_max", correction_multiplier_max, 0, infinite=True
    )
    anneal = get_annealing(annealing)
    coordinates = correction == "coordinate_line"
    late = steps_per_epoch - steps_per_epoch // 2
    stride = -(-late // correction_samples)

    def init(params):
        tensors = len(jax.tree.leaves(params))

        def zeros(size=tensors, dtype=jnp.float32):
            return jnp.zeros((size,), dtype)  # each its own, so that all can be donated

        unused = MotionSums._field_defaults if errors == "terms" else {}

        def sums(size):
            fields = (x for x in MotionSums._fields if x not in unused)
            return MotionSums(**{name: zeros(size) for name in fields})

        evidence = RobustEvidence(
            pooled=sums(1) if pooling != "tensor" else None,
            alone=sums(tensors) if pooling != "all" else None,
            last_overlap=zeros(),
            last_share=None if errors == "terms" else zeros(),
            judged_gamma=zeros(),
            squared_gradients=zeros(1),
            steps=zeros(1, jnp.int32),
            path=(
                no_path(params, correction, accumulator_dtype)
                if correction != "none"
                else None
            ),
        )
        memory = RobustMemory(
            even=accumulators(params, accumulator_dtype),
            odd=accumulators(params, accumulator_dtype),
            last_promise=zeros(),
            previous_multiplier=zeros(),
            streak=zeros(dtype=jnp.int32),
        )
        info = RobustInfo(
            **{name: zeros() for name in RobustInfo._fields if name != "left_out"},
            left_out=zeros(dtype=jnp.int32),
        )
        return evidence, memory, info

    def mean_square(evidence):
        steps = jnp.maximum(evidence.steps, 1).astype(jnp.float32)
        return evidence.squared_gradients / steps

    def cut(multiplier, square, usual):
        """Shrinks what is above 1 where a gradient is unusually large."""
        usual = jnp.asarray(guard, jnp.float32) * usual
        ratio = _ratio(square, jnp.where(usual > 0, usual, 0))
        ratio = jnp.where(jnp.isfinite(square), ratio, jnp.inf)
        share = jnp.where(ratio < jnp.inf, 1 / jnp.maximum(ratio, 1), 0)
        shorter = multiplier - jnp.maximum(multiplier - 1, 0) * (1 - share)
        return jnp.where(ratio <= 1, multiplier, shorter)

    def bounds(sums, multiplier):
        """q⁺ and q⁻, and whether the path surely descends or ascends."""
        high, low = step_length(sums, multiplier, confidence, promise)
        slack = jnp.asarray(confidence, jnp.float32)
        error = slack * sums.fresh_error
        ascending = sums.fresh + error < 0
        descending = sums.fresh - error > 0
        if promise == "own":
            error = slack * sums.overlap_error
            descending = sums.overlap_sum + error < 0
        return high, low, descending, ascending

    def may_grow(descending):
        return descending | ~jnp.asarray(require_descent, jnp.bool_)

    def judged(evidence, decide):
        """The decision by each tensor's sums, by those of all, or their mean."""
        by = [decide(x) for x in (evidence.alone, evidence.pooled) if x is not None]
        return by[0] if len(by) == 1 else jnp.sqrt(by[0] * by[1])

    def early(evidence):
        """The multiplier of the first epoch so far."""

        def decide(sums):
            high, _, descending, _ = bounds(sums, jnp.ones_like(sums.promise))
            aimed = jnp.asarray(early_target, jnp.float32)
            longer = may_grow(descending) & (high >= 0) & (high < aimed)
            return jnp.where(longer, aimed / high, 1)

        # Two samples of descent are soon sure; more have seen how curvature changes.
        samples = evidence.steps.astype(jnp.float32) - 2
        vouched = jnp.asarray(early_growth, jnp.float32) ** samples
        limit = jnp.minimum(jnp.asarray(multiplier_max, jnp.float32), vouched)
        return jnp.minimum(judged(evidence, decide), jnp.maximum(limit, 1))

    def divisor(state, fraction, gradients):
        evidence, info, gradients = jax.lax.stop_gradient(
            (state.evidence, state.info, gradients)
        )
        first = state.epoch == 0
        annealed = anneal(state.gamma, fraction, state.epoch_step)
        left = 1 - (1 - info.floor) * fraction
        multiplier = jnp.where(first, early(evidence), left / annealed)
        usual = jnp.where(first, mean_square(evidence), info.gradient_square)
        return 1 / cut(multiplier, _square(gradients), usual)

    def sample_weight(step):
        """1, 2, … at every stride of the second half, its last step among them."""
        to_go = steps_per_epoch - 1 - step.epoch_step
        rank = (late + stride - 1 - to_go) // stride
        return jnp.where((to_go % stride == 0) & (to_go < late), rank, 0)

    def observe(evidence, memory, step, **extra_args):
        del extra_args
        step = jax.lax.stop_gradient(step)
        start = step.epoch_step == 0
        ready = (memory.streak >= 2) & step.finite
        even, odd = (
            per_tensor(inner, updates, step.gradients)
            for updates in (memory.even, memory.odd)
        )
        is_even = step.epoch_step % 2 == 0
        older, overlap = jnp.where(is_even, even, odd), jnp.where(is_even, odd, even)
        scale = jnp.where(ready, memory.previous_multiplier, 1)
        change = older - evidence.last_overlap
        terms = [
            jnp.where(ready, change / scale, 0),
            jnp.where(ready, memory.last_promise, 0),
            jnp.where(ready, overlap / scale, 0),
            jnp.where(ready, -evidence.last_overlap, 0),
        ]
        share = None
        if evidence.last_share is not None:
            # Of N, what this gradient adds, and all that the one before has added.
            share = jnp.where(ready, older / scale, 0)
            lost = jnp.where(ready, evidence.last_overlap / scale, 0)
            terms += [evidence.last_share - lost, share]
        together = [jnp.sum(x, keepdims=True) for x in terms]
        # What was seen with the same multiplier tells of this epoch, too.
        drift = jnp.abs(step.epoch_gamma - evidence.judged_gamma)
        unchanged = drift <= 1e-6 * step.epoch_gamma  # rounding is no change
        lifetime = jnp.asarray(evidence_steps, jnp.float32)
        lasts = lifetime > 0
        age = evidence.steps.astype(jnp.float32) / jnp.where(lasts, lifetime, 1)

        def add(sums, new, unchanged):
            if sums is None:
                return None
            curvature, promise, overlap, fresh, *shares = new
            sound = jnp.all(jnp.isfinite(jnp.stack(jax.tree.leaves(sums))), axis=0)
            lasting = jnp.where(unchanged & sound & lasts, jnp.exp(-age), 0)
            weight = jnp.where(start, lasting, 1)

            def kept(x):
                return jnp.where(weight > 0, weight * x, 0)

            def total(x, new):
                return kept(x) + new

            def root(error, new):
                return jnp.hypot(kept(error), new)

            by_gradients = None
            if sums.error_by_gradients is None:
                error, by_terms = root(sums.curvature_error, curvature), None
            else:
                whole, share = shares
                by_terms = root(sums.error_by_terms, curvature)
                by_gradients = kept(jnp.hypot(sums.error_by_gradients, whole))
                error = jnp.minimum(by_terms, jnp.hypot(by_gradients, share))
            return MotionSums(
                curvature=total(sums.curvature, curvature),
                curvature_error=error,
                promise=total(sums.promise, promise),
                overlap_sum=total(sums.overlap_sum, overlap),
                overlap_error=root(sums.overlap_error, overlap),
                fresh=total(sums.fresh, fresh),
                fresh_error=root(sums.fresh_error, fresh),
                error_by_terms=by_terms,
                error_by_gradients=by_gradients,
            )

        squares = per_tensor(lambda x: inner(x, x), step.gradients)
        square = jnp.sum(jnp.where(step.finite, squares, 0), keepdims=True)
        counted = jnp.any(step.finite) & jnp.isfinite(square)
        return RobustEvidence(
            pooled=add(evidence.pooled, together, jnp.all(unchanged)),
            alone=add(evidence.alone, terms, unchanged),
            last_overlap=jnp.where(step.finite, overlap, 0),
            last_share=share,
            judged_gamma=step.epoch_gamma,
            squared_gradients=accumulate(
                evidence.squared_gradients, jnp.where(counted, square, 0), start
            ),
            steps=accumulate(evidence.steps, counted.astype(jnp.int32), start),
            path=(
                None
                if evidence.path is None
                else observe_path(evidence.path, step, sample_weight(step), coordinates)
            ),
        )

    def remember(memory, step):
        step = jax.lax.stop_gradient(step)
        raw, is_even = _raw(step), step.epoch_step % 2 == 0
        # Here and not in observe, as what reads the updates beside the cond that may
        # change them makes it copy them.
        promise = -step.gamma * per_tensor(inner, step.updates, step.gradients)

        def replace(here):
            def choose(i, old, u):
                new = jnp.where(step.finite[i], u.astype(old.dtype), 0)
                return jnp.where(here, new, old)

            return choose

        return RobustMemory(
            even=map_with_index(replace(is_even), memory.even, raw),
            odd=map_with_index(replace(~is_even), memory.odd, raw),
            last_promise=jnp.where(step.finite, promise, 0),
            previous_multiplier=1 / step.gamma,
            streak=jnp.where(step.finite, memory.streak + 1, 0),
        )

    def close(evidence, step, gamma, info):
        # Under differentiation, what was decided is a constant.
        evidence, gamma, info = jax.lax.stop_gradient((evidence, gamma, info))
        multiplier = 1 / gamma
        # An m that was cut, for too long a step or none, is no start.
        first = (info.settled == 0) & (multiplier == 1)

        def decide(sums):
            high, low, descending, ascending = bounds(sums, multiplier)
            return next_multiplier(
                multiplier,
                high,
                low,
                may_grow(descending),
                ascending,
                first,
                target=target,
                first_threshold=first_threshold,
                threshold=threshold,
                growth=growth,
                decay=decay,
            )

        after = judged(evidence, decide)
        if aim == "mean" and annealing == "rate":
            longest = jnp.where(after > 1, 2 * after - 1, after)
            after = jnp.where(first, longest, after)
        after = jnp.clip(
            after,
            jnp.asarray(multiplier_min, jnp.float32),
            jnp.asarray(multiplier_max, jnp.float32),
        )
        square = mean_square(evidence)
        after = cut(after, square, info.gradient_square)
        moved = jax.tree.map(jnp.zeros_like, step.params)
        if evidence.path is not None:
            moved = path_correction(
                evidence.path,
                step,
                correction_confidence,
                correction_limit,
                coordinates,
            )
            most = jnp.asarray(correction_multiplier_max, jnp.float32)
            wanted = jnp.all(after <= most)
            moved = jax.tree.map(lambda d: jnp.where(wanted, d, 0), moved)
        sums = evidence.pooled if evidence.alone is None else evidence.alone
        high, low, descending, ascending = bounds(sums, multiplier)
        settled = (descending | ascending).astype(jnp.float32)
        noisy = ascending & (multiplier <= 1)
        lowest = jnp.where(noisy, jnp.asarray(floor, jnp.float32), info.floor)
        # In the first epoch there is no figure yet.
        lowest = jnp.where(descending | (after > 1) | (lowest == 0), 1, lowest)
        figures = (
            high,
            low,
            _ratio(sums.curvature, sums.curvature_error),
            _ratio(sums.overlap_sum, sums.promise),
            _ratio(sums.fresh, sums.promise),
        )
        found = RobustInfo(
            *(jnp.broadcast_to(x, gamma.shape) for x in figures),
            multiplier=after,
            floor=jnp.broadcast_to(lowest, gamma.shape),
            gradient_square=jnp.broadcast_to(square, gamma.shape),
            relative_correction=relative_norms(moved, step.params),
            settled=jnp.maximum(info.settled, settled),
            left_out=step.left_out,
        )
        return 1 / after, moved, found

    return curvature_tuned(
        backbone, steps_per_epoch, Method(init, divisor, observe, remember, close)
    )


def _ratio(x: jax.Array, y: jax.Array) -> jax.Array:
    """The quotient, 0 where y is 0."""
    return jnp.where(y != 0, x / jnp.where(y != 0, y, 1), 0)


def _raw(step: Step) -> optax.Updates:
    """The backbone's updates before they were divided."""

    def multiply(i, u):
        dtype = wide(u.dtype)
        return u.astype(dtype) * step.gamma[i].astype(dtype)

    return map_with_index(multiply, step.updates)


def _square(tree: Any) -> jax.Array:
    """‖x‖² over all tensors, a vector of one entry."""
    return jnp.sum(per_tensor(lambda x: inner(x, x), tree), keepdims=True)
