"""Our own method on the skeleton of ``_wrapper``: curvature along the motion.

It asks for one number, how long a step is in units of a Newton step, and acts only
where the answer is clear.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax.typing import ArrayLike, DTypeLike

from ctagd_optax import _checks as checks
from ctagd_optax._motion import see
from ctagd_optax._rule import (
    Loss,
    MotionSums,
    Rule,
    Trial,
    follow,
    judge,
    next_multiplier,
    step_length,
)
from ctagd_optax._sums import accumulate
from ctagd_optax._trees import ratio, stack
from ctagd_optax._trees import zeros as zeros_like
from ctagd_optax._wrapper import Method, curvature_tuned


class Settings(NamedTuple):
    """Options in effect, kept in the state for the report."""

    target: ArrayLike
    confidence: ArrayLike
    multiplier_min: ArrayLike
    multiplier_max: ArrayLike


class RobustInfo(NamedTuple):
    """What the last closed epoch knew of its step length.

    Vectors with one entry per tensor, zero until an epoch has been closed.

    Attributes:
      step_high: q⁺, an upper bound of the step length, in units of a Newton step.
      step_low: q⁻, a lower bound.
      signal: N / SE, the curvature over its standard error; 0 without a sample.
      held: P / D, the descent by the next batch's gradient over that by a step's own:
        about 1 without noise, 0 in mere noise, below 0 where the loss rises.
      trend: 1 where the epoch clearly descended, -1 where it ascended, else 0.
      threshold: the step length below which the multiplier grew.
      gradient_square: mean of ‖g‖² over the epoch, of all tensors together.
      settled: 1 once an epoch clearly descended or ascended, 0 before.
      loss: mean of the values given, the last fifth of the epoch above all; 0 without.
      gain: by how much it fell since the epoch before.
      tried: 1 if the open epoch has a larger multiplier than the last.
      wait: ends of epochs until another one may be tried.
      failures: how often that was taken back.
      left_out: samples left out of the epoch because the gradient's square was not
        finite.
    """

    step_high: jax.Array
    step_low: jax.Array
    signal: jax.Array
    held: jax.Array
    trend: jax.Array
    threshold: jax.Array
    gradient_square: jax.Array
    settled: jax.Array
    loss: jax.Array
    gain: jax.Array
    tried: jax.Array
    wait: jax.Array
    failures: jax.Array
    left_out: jax.Array


class RobustMemory(NamedTuple):
    """What is kept of the two steps before; vectors have an entry per tensor."""

    previous_params: optax.Params  # θ_{t-1}
    previous_motion: Any  # v_{t-2} = (θ_{t-1} - θ_{t-2}) / m_{t-2}
    own_promise: jax.Array  # -⟨u, g⟩ / m of our own last update u
    own_square: jax.Array  # ‖u‖²
    own_sum: jax.Array  # a weighted sum of its entries
    last_multiplier: jax.Array  # m_{t-1}, without the schedule
    schedules: jax.Array  # s_{t-1}, s_{t-2}, and the largest so far
    streak: jax.Array  # finite gradients in a row


class RobustEvidence(NamedTuple):
    """What the method gathers from the steps of an epoch."""

    sums: MotionSums
    last_overlap: jax.Array  # ⟨v_{t-1}, g_t⟩ of the last step, an entry per tensor
    squared_gradients: jax.Array  # Σ ‖g‖² of the tensors with finite gradients
    steps: jax.Array  # the steps that have one
    agreement: jax.Array  # of updates with motion in all epochs; below 0 if turned
    settings: jax.Array  # the Settings in effect, an entry each
    late: Loss  # an entry each


def robust_ct_agd(
    backbone: optax.GradientTransformation,
    steps_per_epoch: int | jax.Array,
    *,
    schedule: optax.ScalarOrSchedule | None = None,
    target: ArrayLike = 2.0,
    confidence: ArrayLike = 1.0,
    multiplier_min: ArrayLike = 0.1,
    multiplier_max: ArrayLike = 1000.0,
    pooling: str = "all",
    accumulator_dtype: DTypeLike | None = None,
) -> optax.GradientTransformationExtraArgs:
    r"""Tunes the learning rate of any optimizer by the curvature along its motion.

    It multiplies the backbone's updates by :math:`m_t s_t`: a multiplier that it finds,
    times your schedule. Products of gradients with the last two moves tell how long a
    step is in units of a Newton step. With :math:`v_t = (\theta_{t+1} - \theta_t)/m_t`,

    .. math::

        N = \sum \frac{\langle v_{t-2},\, g_t - g_{t-1} \rangle}{m_{t-1}}, \qquad
        P = -\sum s_{t-1} \langle v_{t-2}, g_{t-1} \rangle, \qquad
        q = m N / P .

    :math:`v_{t-2}` shares the noise of neither gradient, so noise biases neither sum.
    If steps are clearly short, :math:`m` grows; if they overshoot, it shrinks; else it
    stays, and decays slowly to 1 while the loss rises along the last step. In the first
    epoch :math:`m` follows the evidence step by step. Later it falls linearly in each
    epoch, from :math:`m` to :math:`\min(1, m)`. Unusually large gradients cut it, and
    it makes no step longer than a tenth of the parameters' norm.

    ``update(gradients, state, params)`` needs ``params``; ``epoch_end`` is that of
    :func:`ct_agd`. The motion is read from ``params``, so what follows in a chain may
    change the updates. If you also pass ``value=loss``, a larger :math:`m` is tried
    where curvature is blind and even the longest step promises less than a tenth of the
    loss; it is taken back if the loss then falls by less than half as much as before.
    State: two vectors, as Adam's.

    Args:
      backbone: the optimizer, with its learning rate.
      steps_per_epoch: optimizer steps in an epoch; may be traced. Growth takes at least
        four. If your data has no epochs, choose a period of some hundred steps.
      schedule: relative learning rate by step, 1 at its peak, such as
        ``optax.warmup_cosine_decay_schedule(0.0, 1.0, 100, 10_000)``. Steps are judged
        as if it were 1. A schedule inside the backbone is safe, too, but there the
        multiplier works against its decay.
      target: the step length to grow to, in units of a Newton step.
      confidence: how many standard errors the evidence must be clear by.
      multiplier_min: the smallest multiplier, at most 1.
      multiplier_max: the largest one, at least 1, where it starts.
      pooling: "all" tunes all tensors by one multiplier, "tensor" each by its own.
      accumulator_dtype: dtype of the remembered motion; None is float32 for 16-bit
        parameters, else the parameter's. Previous parameters keep theirs.

    Returns:
      A :class:`optax.GradientTransformationExtraArgs` with the state
      :class:`CTAGDState`, whose info is a :class:`RobustInfo`.

    Examples:
      >>> import jax, jax.numpy as jnp, optax
      >>> import ctagd_optax
      >>> f = lambda x: jnp.sum(jnp.asarray([1.0, 4.0]) * x**2)
      >>> opt = ctagd_optax.robust_ct_agd(optax.sgd(1e-3), steps_per_epoch=10)
      >>> params = jnp.asarray([1.0, -1.0])
      >>> state = opt.init(params)
      >>> for _ in range(60):  # bare SGD ends at 2.31
      ...     loss, grads = jax.value_and_grad(f)(params)
      ...     updates, state = opt.update(grads, state, params, value=loss)
      ...     params = optax.apply_updates(params, updates)
      >>> print(f"loss {f(params):.3f}")
      loss 0.000
    """
    checks.check_choice("pooling", pooling, ("all", "tensor"))
    checks.check_dtype("accumulator_dtype", accumulator_dtype)
    checks.check_schedule("schedule", schedule)
    checks.check_number("target", target, 0, above=True)
    checks.check_number("confidence", confidence, 0)
    checks.check_number("multiplier_min", multiplier_min, 0, 1, above=True)
    checks.check_number("multiplier_max", multiplier_max, 1)
    settings = Settings(target, confidence, multiplier_min, multiplier_max)
    method = robust_method(settings, pooling, accumulator_dtype)
    return curvature_tuned(backbone, steps_per_epoch, method, schedule)


def robust_method(
    options: Settings,
    pooling: str = "all",
    accumulator_dtype: DTypeLike | None = None,
    rule: Rule = Rule(),  # noqa: B008
) -> Method:
    """The method of :func:`robust_ct_agd`; ``rule`` is for tests and ablations."""

    def settings():  # not earlier, as a first array would start the backend
        return jnp.stack([jnp.asarray(x, jnp.float32) for x in options])

    def init(params):
        tensors = len(jax.tree.leaves(params))

        def zeros(size=tensors, dtype=jnp.float32):
            return jnp.zeros((size,), dtype)  # each its own, so that all can be donated

        size = 1 if pooling == "all" else tensors
        sums = MotionSums(*(zeros(size) for _ in MotionSums._fields))
        memory = RobustMemory(
            jax.tree.map(jnp.zeros_like, params),
            zeros_like(params, accumulator_dtype),
            *(zeros() for _ in range(4)),
            schedules=zeros(3),
            streak=zeros(dtype=jnp.int32),
        )
        info = (zeros() for _ in RobustInfo._fields[1:])
        rest = zeros(), zeros(1), zeros(1, jnp.int32), zeros(1), settings()
        late = Loss(zeros(1), zeros(1))
        info = RobustInfo(*info, left_out=zeros(dtype=jnp.int32))
        return RobustEvidence(sums, *rest, late), memory, info

    def look(memory, gradients, params, updates):
        scale = jnp.where(memory.last_multiplier > 0, memory.last_multiplier, 1)
        scale = scale[:1] if pooling == "all" else scale
        trees = jax.lax.stop_gradient((params, gradients, updates))
        return see(memory.previous_params, memory.previous_motion, scale, *trees)

    def divisor(state, fraction, sizes, seen):
        evidence, info, gamma = jax.lax.stop_gradient(
            (state.evidence, state.info, state.gamma)
        )
        # The first epoch: as far as the evidence so far vouches for.
        first, (target, _, _, most) = state.epoch == 0, settings()
        aim = jnp.minimum(rule.early_target, target)
        high, _, trend = step_length(evidence.sums, jnp.float32(1), options.confidence)
        longer = (trend > 0) & (high >= 0) & (high < aim)
        early = jnp.where(longer, aim / high, 1)
        vouched = rule.early_growth ** (evidence.steps.astype(jnp.float32) - 2)
        early = jnp.minimum(early, jnp.maximum(jnp.minimum(most, vouched), 1))
        # Later ones: linearly from m to min(1, m). All tensors have one m, or each.
        gamma = gamma[:1] if pooling == "all" else gamma
        later = 1 / gamma - jnp.maximum(1 / gamma - 1, 0) * fraction
        usual = info.gradient_square[: len(gamma)]
        usual = jnp.where(first, _mean_square(evidence), usual)
        size = jnp.sum(stack(sizes), keepdims=True)
        m = _cut(jnp.where(first, early, later), size, rule.guard * usual)
        # A step like the last, with this m, is no longer than allowed.
        moved = (seen.square != 0) & (state.memory.streak >= 1)
        squares = seen.params_square, seen.square
        norms = (jnp.sum(jnp.where(moved, x, 0), keepdims=True) for x in squares)
        longest = rule.stride * jnp.sqrt(ratio(*norms))
        longest = jnp.where(longest >= 1, longest, 1)  # also if it is not a number
        return 1 / jnp.where(jnp.any(moved), jnp.minimum(m, longest), m)

    def observe(evidence, memory, step, *, value=None, **extra_args):
        del extra_args
        seen, t = step.figures, step.epoch_step
        start = t == 0
        streak = jnp.where(start, 0, memory.streak)
        sizes, finite = stack(step.sizes), step.finite_vector()
        scale = jnp.where(streak >= 1, memory.last_multiplier, 1)
        # θ_t comes after g_{t-1} is gone, so D is by our own update, in proportion to
        # how far, and which way, the parameters then moved.
        length, own_length = jnp.sqrt(seen.square), jnp.sqrt(memory.own_square)
        share = scale * ratio(length, own_length)
        sample = ratio(seen.sum, length) * ratio(memory.own_sum, own_length)
        known = finite & (streak >= 1) & jnp.isfinite(sample)
        sample = jnp.sum(jnp.where(known, sample, 0), keepdims=True)
        agreement = evidence.agreement + sample
        share = jnp.where(agreement < 0, -share, share)
        before, earlier, _ = memory.schedules
        curvature = (seen.older - evidence.last_overlap) / scale
        fresh = -before * evidence.last_overlap
        promise = earlier * share * memory.own_promise
        overlap = earlier * seen.overlap / scale
        terms = curvature, curvature, promise, overlap, fresh, fresh
        ready = (streak >= 2) & finite & jnp.isfinite(sum(terms))

        def add(name, total, term):
            term = jnp.where(ready, term, 0)
            term = jnp.sum(term, keepdims=True) if pooling == "all" else term
            total = jnp.where(start, 0, total)
            return jnp.hypot(total, term) if "error" in name else total + term

        own = share * memory.own_promise
        own = jnp.sum(jnp.where(known, own, 0), keepdims=True)
        size = jnp.sum(jnp.where(finite, sizes, 0), keepdims=True)
        counted = jnp.any(finite) & jnp.isfinite(size)
        size = jnp.where(counted, size, 0)
        return RobustEvidence(
            sums=MotionSums(*map(add, MotionSums._fields, evidence.sums, terms)),
            last_overlap=jnp.where(finite & (streak >= 1), seen.overlap, 0),
            squared_gradients=accumulate(evidence.squared_gradients, size, t),
            steps=accumulate(evidence.steps, counted.astype(jnp.int32), t),
            agreement=agreement,
            settings=settings(),
            late=follow(evidence.late, value, own, t),
        )

    def remember(memory, step):
        seen = step.figures
        multiplier = 1 / jax.lax.stop_gradient(step.gamma)
        schedule = jax.lax.stop_gradient(step.schedule)
        streak = jnp.where(step.epoch_step == 0, 0, memory.streak)
        applied = schedule * multiplier
        last, _, largest = memory.schedules
        return RobustMemory(
            previous_params=seen.params,
            previous_motion=seen.motion,
            own_promise=-schedule * seen.promise,
            own_square=applied**2 * seen.own_square,
            own_sum=applied * seen.own_sum,
            last_multiplier=multiplier,
            schedules=jnp.stack([schedule, last, jnp.maximum(schedule, largest)]),
            streak=jnp.where(step.finite_vector(), streak + 1, 0),
        )

    def close(evidence, step, gamma, info):
        # Under differentiation, what was decided is a constant.
        evidence, gamma, info = jax.lax.stop_gradient((evidence, gamma, info))
        sums, multiplier = evidence.sums, 1 / gamma
        high, low, trend = step_length(sums, multiplier, options.confidence)
        # An m that has shrunk is no start.
        first = (info.settled == 0) & (multiplier == 1)
        target, _, smallest, largest = settings()
        after = next_multiplier(multiplier, high, low, trend, first, target, rule)
        past = Trial(*(getattr(info, name) for name in Trial._fields))
        after, trial = judge(past, evidence.late, multiplier, after, rule)
        usual = _mean_square(evidence)
        after = jnp.clip(after, smallest, largest)
        after = _cut(after, usual, rule.guard * info.gradient_square)
        longer = jnp.any(1 / after < gamma)  # by what is kept: 1 / (1 / 1000) is less
        trial = trial._replace(tried=jnp.where(longer, trial.tried, 0))
        # Parameters that stood still are known but for rounding; that is no motion.
        signal = ratio(sums.curvature, sums.curvature_error)
        signal = jnp.where(sums.promise != 0, signal, 0)
        held = ratio(sums.fresh, sums.promise)
        settled = jnp.maximum(info.settled, jnp.abs(trend))
        threshold = jnp.where(first, jnp.float32(rule.first_threshold), rule.threshold)
        figures = high, low, signal, held, trend, threshold, usual, settled, *trial
        figures = (jnp.broadcast_to(x, gamma.shape) for x in figures)
        return 1 / after, None, RobustInfo(*figures, left_out=step.left_out)

    return Method(
        "robust_ct_agd", False, None, init, look, divisor, observe, remember, close
    )


def _mean_square(evidence: RobustEvidence) -> jax.Array:
    return ratio(evidence.squared_gradients, evidence.steps.astype(jnp.float32))


def _cut(multiplier: jax.Array, size: jax.Array, limit: jax.Array) -> jax.Array:
    """Shrinks what is above 1 where a gradient is larger than the limit."""
    excess = size / jnp.where(limit > 0, limit, jnp.inf)  # NaN if size is not finite
    share = jnp.where(excess < jnp.inf, 1 / jnp.maximum(excess, 1), 0)
    shorter = multiplier - jnp.maximum(multiplier - 1, 0) * (1 - share)
    return jnp.where(excess <= 1, multiplier, shorter)
