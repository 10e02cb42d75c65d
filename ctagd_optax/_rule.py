"""What the evidence of an epoch makes of the multiplier.

Curvature along the motion tells how long steps are. Where it does not see that they may
be longer, the loss does, if it is given.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from ctagd_optax._checks import check_value


class Rule(NamedTuple):
    """The constants of the rule; each was measured, none needs tuning by a user."""

    early_target: float = 0.7  # in the first epoch, of few samples, it aims lower
    early_growth: float = 1.5  # and grows by this a step at most, as samples come in
    first_threshold: float = 2.0  # the first clear epoch grows from steps below this
    threshold: float = 0.25  # later ones only from these, so that noise does not creep
    growth: float = 3.0  # the largest factor by which they grow
    decay: float = 0.9  # of a multiplier above 1, while the loss rises along the step
    guard: float = 4.0  # ‖g‖² over its usual mean that is too large for long steps
    stride: float = 0.1  # of the parameters' norm, which no longer step exceeds
    trial: float = 3.0  # by which a larger multiplier is tried, if the loss is known
    permission: float = 10.0  # and is this many times what the longest step promises;
    share: float = 0.5  # it is kept if the loss falls by this share of its fall before


class MotionSums(NamedTuple):
    """Inner products along the motion, summed over an epoch.

    One entry for all tensors together or one per tensor. Errors are kept as roots, as
    the squares of small gradients' products would underflow.
    """

    curvature: jax.Array  # N, along the motion
    curvature_error: jax.Array  # SE, the standard error of N
    promise: jax.Array  # D, the descent by each step's own gradient
    overlap: jax.Array  # O, the gradient after a step, along it
    fresh: jax.Array  # P, the descent by the gradient of the next batch
    fresh_error: jax.Array  # the standard error of P


class Loss(NamedTuple):
    """Means over an epoch, in which the last fifth weighs most; 0 without a loss."""

    mean_loss: jax.Array
    promised: jax.Array  # the descent that the backbone's own step promises


class Trial(NamedTuple):
    """What is kept from one epoch to the next; a figure a tensor, all the same."""

    loss: jax.Array  # at the end of the epoch; 0 if it is not known
    gain: jax.Array  # by how much it fell in the epoch
    tried: jax.Array  # 1 if the next epoch has a larger multiplier than the last
    wait: jax.Array  # ends of epochs without a trial
    failures: jax.Array  # trials that failed


def step_length(
    sums: MotionSums, multiplier: jax.Array, confidence: ArrayLike = 1.0
) -> tuple[jax.Array, jax.Array, jax.Array]:
    r"""Bounds of the step length in units of a Newton step, and the loss's trend.

    .. math::

        q^+ = m\,\frac{\max(N, 0) + c\,\mathrm{SE}}{P}, \qquad
        q^- = m\,\frac{N - c\,\mathrm{SE}}{D}

    Noise makes :math:`D` too large, so :math:`q^-` sees only steps that are far too
    long. Where steps go back and forth, :math:`N` tells nothing, but the gradient after
    a step does: from :math:`m\,O / D > 1` on, :math:`q^-` is :math:`1 + m\,O / D`.

    Returns:
      :math:`q^+`, infinite where :math:`P \le 0` and negative where :math:`D < 0`;
      :math:`q^-`, :math:`-\infty` without a sample; and 1 where the path clearly
      descends (:math:`P > 0` by :math:`c` errors), -1 where it ascends, else 0.
    """
    slack = jnp.asarray(confidence, jnp.float32)
    error = slack * sums.curvature_error
    known, descends = sums.promise != 0, sums.fresh > 0
    high = multiplier * (jnp.maximum(sums.curvature, 0) + error)
    high = jnp.where(descends, high / jnp.where(descends, sums.fresh, 1), jnp.inf)
    high = jnp.where(sums.promise < 0, -jnp.inf, high)
    scale = multiplier / jnp.where(known, sums.promise, 1)
    low, back = scale * (sums.curvature - error), scale * sums.overlap
    low = jnp.where(back > 1, jnp.maximum(low, 1 + back), low)
    clear = jnp.abs(sums.fresh) > slack * sums.fresh_error
    trend = jnp.where(clear, jnp.sign(sums.fresh), 0)
    return jnp.where(known, high, jnp.inf), jnp.where(known, low, -jnp.inf), trend


def next_multiplier(
    multiplier: jax.Array,
    step_high: jax.Array,
    step_low: jax.Array,
    trend: ArrayLike,
    first: ArrayLike = False,
    target: ArrayLike = 2.0,
    rule: Rule = Rule(),  # noqa: B008
) -> jax.Array:
    """The multiplier of the next epoch: longer, shorter, or held in between.

    ``first`` tells that no epoch before was clear. The result is at most 1 where
    nothing is known, or the motion promised no descent.
    """
    trend = jnp.asarray(trend)
    limit = jnp.where(first, jnp.inf, rule.growth)
    short = step_high < jnp.where(first, rule.first_threshold, rule.threshold)
    grown = jnp.minimum(limit, jnp.asarray(target, jnp.float32) / step_high)
    shorter = jnp.where(step_low > 1, 1 / step_low, 1)
    longer = short & (trend > 0)
    after = multiplier * jnp.where(longer, jnp.maximum(grown, 1), shorter)
    decayed = jnp.maximum(rule.decay * after, 1)
    after = jnp.where((trend < 0) & (after > 1), decayed, after)
    known = (step_high >= 0) & jnp.isfinite(step_low)
    return jnp.where(known, after, jnp.minimum(multiplier, 1))


def follow(loss: Loss, value: Any, promise: jax.Array, step: jax.Array) -> Loss:
    """Adds a step; a value that is not finite, or None, changes nothing."""
    if value is None:
        return loss
    check_value(value)
    now = Loss(jnp.reshape(jnp.asarray(value, jnp.float32), (1,)), promise)
    counted = jnp.isfinite(now.mean_loss) & jnp.isfinite(promise)
    weight = 9 / (step.astype(jnp.float32) + 9)  # of step t among those up to t: ~ t⁸
    weight = jnp.where(counted, weight, 0)

    def mean(before, term):
        before = jnp.where(step == 0, 0, before)
        return before + weight * (jnp.where(counted, term, 0) - before)

    return Loss(*map(mean, loss, now))


def judge(
    past: Trial,
    loss: Loss,
    multiplier: jax.Array,
    after: jax.Array,
    rule: Any,
) -> tuple[jax.Array, Trial]:
    """The multiplier of the next epoch where the loss has a say.

    Where the loss fell by enough, the multiplier does not shrink. If the curvature does
    not see that it may grow, and the loss is far above what even the longest step
    promises, a larger one is tried. If the loss then falls by much less than before, or
    rises, it goes back, and the next trial waits, twice as long after each failure.

    Args:
      past: of the epoch before, an entry a tensor or one for all.
      loss: of this epoch.
      multiplier: what this epoch started with.
      after: what the curvature makes of it.
      rule: has ``trial``, ``permission``, ``share`` and ``decay``.

    Returns:
      The multiplier, and what to keep.
    """
    known = loss.mean_loss != 0
    compared = known & (past.loss != 0)
    gain = jnp.where(compared, past.loss - loss.mean_loss, 0)
    fell = compared & (gain > 0) & (gain >= rule.share * past.gain)
    failed = compared & (past.tried > 0) & ~fell
    back = jnp.maximum(multiplier / rule.trial, jnp.minimum(multiplier, 1))
    back = jnp.minimum(after, back)
    promise = rule.permission * multiplier * loss.promised
    far = (loss.promised > 0) & (loss.mean_loss > promise)
    grew = jnp.any(after > multiplier)
    shrank = jnp.any(after < rule.decay * multiplier * (1 - 1e-6))
    good = fell | (known & ~compared)
    free = far & (past.wait == 0) & ~grew & ~shrank
    longest = jnp.maximum(after, multiplier)
    held = jnp.where(fell, longest, after)
    chosen = jnp.where(good & free, rule.trial * longest, held)
    chosen = jnp.where(failed | (gain < 0), back, chosen)
    waits = jnp.where(failed, 2**past.failures, jnp.maximum(past.wait - 1, 0))
    return chosen, Trial(
        loss=loss.mean_loss,
        gain=gain,
        tried=(good & (free | grew)).astype(jnp.float32),
        wait=waits,
        failures=past.failures + failed.astype(jnp.float32),
    )
