"""Both methods from their equations: NumPy, float64, one loop each."""

import itertools

import numpy as np


def sgd(learning_rate, momentum=0.0, weight_decay=0.0):
    """The raw update of SGD with momentum and coupled weight decay."""
    velocity = 0.0

    def update(theta, g):
        nonlocal velocity
        velocity = momentum * velocity + (g + weight_decay * theta)
        return -learning_rate * velocity

    return update


def adam(learning_rate, b1=0.9, b2=0.999, eps=1e-8, weight_decay=0.0):
    """The raw update of Adam with coupled weight decay."""
    m = v = 0.0
    n = 0

    def update(theta, g):
        nonlocal m, v, n
        g = g + weight_decay * theta
        n += 1
        m = b1 * m + (1 - b1) * g
        v = b2 * v + (1 - b2) * g**2
        return -learning_rate * (m / (1 - b1**n)) / (np.sqrt(v / (1 - b2**n)) + eps)

    return update


def ct_agd(
    thetas,
    gradients,
    backbone,
    steps_per_epoch,
    *,
    closing=None,
    correction_rate=0.5,
    curvature_min=0.1,
    curvature_max=10.0,
    quantile=0.1,
    eps=1e-3,
    correction_gradient="average",
    annealing="linear",
    pairing="equation",
    weighting="linear",
    unobserved="clamp",
    noise=None,
):
    """Replays a run on one tensor: what CT-AGD does at each point it was given.

    Args:
      thetas: the parameters at every step, all epochs in a row.
      gradients: the gradients at those points.
      backbone: ``backbone(theta, g)`` returns the raw first-order update.
      steps_per_epoch: T.
      closing: for every step, whether it closes an epoch; None is every T-th.
      correction_rate: η₂, a number or a function of the epoch.
      curvature_min: λ_min.
      curvature_max: λ_max.
      quantile: ω.
      eps: ε.
      correction_gradient: "average" or "last".
      annealing: "linear", "exponential" or "none".
      pairing: "equation" or "algorithm".
      weighting: "linear" or "uniform".
      unobserved: "clamp" or "skip".
      noise: ``noise(k, t)`` is added to the quotient of step t in epoch k.

    Returns:
      The updates at every step; γ after every step; and, for every closed epoch, a dict
      of what was computed.
    """
    updates, gammas, epochs = [], [], []
    gamma, k, t = 1.0, 0, 0
    theta_before = g_before = finite_before = None
    for n, (theta, g) in enumerate(zip(thetas, gradients, strict=True)):
        stored = np.asarray(theta).dtype
        theta, g = np.asarray(theta, np.float64), np.asarray(g, np.float64)
        if t == 0:
            s_num = s_den = s_g = np.zeros_like(theta)
            s_t, left_out = 0.0, 0

        fraction = min(t / steps_per_epoch, 1.0)
        gamma_t = {
            "linear": gamma - (gamma - 1) * fraction,
            "exponential": 1 + (gamma - 1) * 0.5**t,
            "none": gamma,
        }[annealing]
        update = backbone(theta, g) / gamma_t

        finite = np.isfinite(g).all()
        left_out += not finite
        if t >= 1 and finite and finite_before:
            if pairing == "equation":
                step = theta - theta_before
            else:
                step = np.asarray(update).astype(stored).astype(np.float64)
            m = np.abs(step) > eps
            h = np.where(m, (g - g_before) / np.where(m, step, 1), 0)
            if noise is not None:
                h = np.where(m, h + noise(k, t), 0)
            weight = t if weighting == "linear" else 1
            s_num = s_num + weight * h
            s_den = s_den + weight * m
        if finite:
            s_g = s_g + t * g
            s_t += t
        theta_before, g_before, finite_before = theta, g, finite

        t += 1
        if closing[n] if closing is not None else t == steps_per_epoch:
            observed = s_den > 0
            raw = np.where(observed, s_num / np.where(observed, s_den + eps, 1), 0)
            curvature = np.clip(raw, curvature_min, curvature_max)
            # A tensor without any evidence is left alone.
            used = observed
            if unobserved == "clamp" and observed.any():
                used = np.ones_like(observed)
            gamma = np.quantile(curvature[used], quantile) if used.any() else 1.0
            if correction_gradient == "average":
                mean_g = s_g / (s_t + eps) if s_t else np.zeros_like(s_g)
            else:
                mean_g = g if finite else np.zeros_like(g)
            rate = correction_rate(k) if callable(correction_rate) else correction_rate
            correction = np.where(used, -rate * mean_g / curvature, 0)
            update = update + correction
            size = max(theta.size, 1)
            norm = np.linalg.norm(theta)
            epochs.append(
                {
                    "raw": raw,
                    "curvature": curvature,
                    "gamma": gamma,
                    "observed": observed.sum() / size,
                    "clamped_low": (used & (raw < curvature_min)).sum() / size,
                    "clamped_high": (used & (raw > curvature_max)).sum() / size,
                    "relative_correction": (
                        np.linalg.norm(correction) / norm
                        if norm
                        else np.where(correction.any(), np.inf, 0.0)
                    ),
                    "left_out": left_out,
                }
            )
            k, t = k + 1, 0
        updates.append(update)
        gammas.append(gamma)
    return updates, gammas, epochs


def robust_ct_agd(
    thetas,
    gradients,
    backbones,
    steps_per_epoch,
    *,
    schedule=None,
    target=2.0,
    confidence=1.0,
    multiplier_min=0.1,
    multiplier_max=1000.0,
    pooling="all",
    early_target=0.7,
    early_growth=1.5,
    first_threshold=2.0,
    threshold=0.25,
    growth=3.0,
    decay=0.9,
    guard=4.0,
    stride=0.1,
    trial=3.0,
    permission=10.0,
    share=0.5,
    closing=None,
    values=None,
):
    """Replays a run of the robust method on several tensors.

    Args:
      thetas: for every step, the list of tensors.
      gradients: for every step, the list of gradients.
      backbones: for every tensor, ``backbone(theta, g)`` returns the raw update.
      steps_per_epoch: T.
      schedule: relative learning rate by step; None is 1.
      target: the step length to grow to.
      confidence: standard errors.
      multiplier_min: the smallest m.
      multiplier_max: the largest m.
      pooling: "all" or "tensor".
      early_target: the step length to grow to within the first epoch.
      early_growth: in that epoch m is at most this to the power of t - 2.
      first_threshold: steps below this grow at the first epoch that is clear.
      threshold: steps below this grow after it.
      growth: the largest factor by which they do.
      decay: of m after an epoch with P < 0.
      guard: ratio of ‖g‖² to the mean of the last epoch.
      stride: of the norm of the parameters, which no longer step exceeds.
      trial: factor by which a larger m is tried.
      permission: how many times what a step of m promises the loss must be for that.
      share: of the fall of the loss before, which a trial must keep.
      closing: for every step, whether it closes an epoch; None is every T-th.
      values: for every step, the loss; None is no trials.

    Returns:
      The updates at every step, a list of tensors; what the raw update was multiplied
      by at every step; m after every step; and, for every epoch, a dict of what was
      computed.
    """

    def judge(terms, m):
        """q⁺, q⁻ and the trend, from the terms of N, D, O and P."""
        curvature, own, overlap, fresh = terms.sum(0).T
        errors = confidence * np.sqrt((terms**2).sum(0).T)
        with np.errstate(invalid="ignore", divide="ignore"):
            high = m * (np.maximum(curvature, 0) + errors[0]) / fresh
            high = np.where(fresh > 0, high, np.inf)
            high = np.where(own < 0, -np.inf, high)
            low, back = m * (curvature - errors[0]) / own, m * overlap / own
            low = np.where(back > 1, np.maximum(low, 1 + back), low)
        high, low = np.where(own == 0, np.inf, high), np.where(own == 0, -np.inf, low)
        return high, low, np.where(np.abs(fresh) > errors[3], np.sign(fresh), 0)

    def consult(past, m, after):
        """The loss's say, from the epoch's values and promises of steps at m = 1."""
        weights = np.cumprod([1.0] + [(t + 8) / t for t in range(1, len(epoch))])
        weights /= weights.sum()
        loss = np.sum(weights * [row["value"] for row in epoch])
        promise = np.sum(weights * _promises(epoch))
        nothing = np.zeros(len(m))
        gain = past["loss"] - loss if past else 0.0
        fell = bool(past) and gain > 0 and gain >= share * past["gain"]
        failed = (past.get("tried", nothing) > 0) & (not fell)
        grew, shrank = (after > m).any(), (after < decay * m * (1 - 1e-6)).any()
        wait, failures = (past.get(x, nothing) for x in ("wait", "failures"))
        far = (promise > 0) & (loss > permission * m * promise)
        free = far & (wait == 0) & (not grew and not shrank)
        good = fell or not past
        held = np.maximum(after, m) if fell else after
        chosen = np.where(good & free, trial * np.maximum(after, m), held)
        back = np.minimum(after, np.maximum(m / trial, np.minimum(m, 1)))
        return np.where(failed | (gain < 0), back, chosen), {
            "loss": loss,
            "gain": gain,
            "tried": (good & (free | grew)).astype(float),
            "wait": np.where(failed, 2**failures, np.maximum(wait - 1, 0)),
            "failures": failures + failed,
        }

    def cut(m, square, usual):
        ratio = square / (guard * usual) if usual else 0.0
        return np.where(m > 1, 1 + (m - 1) / max(ratio, 1), m)

    tensors = range(len(backbones))
    peak, k, usual = np.ones(len(backbones)), 0, 0.0
    settled = np.zeros(len(backbones))
    all_updates, applied, multipliers, epochs, epoch = [], [], [], [], []
    last, told = None, {}
    for n, (theta, g) in enumerate(zip(thetas, gradients, strict=True)):
        theta = [np.asarray(x, np.float64) for x in theta]
        g = [np.asarray(x, np.float64) for x in g]
        t = len(epoch)
        if k == 0:
            high, _, trend = judge(_motion(epoch, pooling), 1.0)
            aim = min(early_target, target)
            short = (trend > 0) & (high >= 0) & (high < aim)
            with np.errstate(divide="ignore"):
                m = np.where(short, aim / high, 1) * np.ones(len(backbones))
            m = np.minimum(m, max(min(multiplier_max, early_growth ** (t - 2)), 1))
            usual = np.mean([row["square"] for row in epoch]) if epoch else 0.0
        else:
            m = peak - np.maximum(peak - 1, 0) * min(t / steps_per_epoch, 1)
        square = sum(np.sum(x**2) for x in g)
        m = cut(m, square, usual)
        if last:
            moves = [(theta[i] - last["theta"][i]) / last["m"][i] for i in tensors]
            length = np.sqrt(sum(np.sum(v**2) for v in moves))
            norm = np.sqrt(
                sum(np.sum(theta[i] ** 2) for i in tensors if moves[i].any())
            )
            m = np.minimum(m, max(stride * norm / length, 1)) if length else m
        s = 1.0 if schedule is None else float(schedule(n))
        raw = [backbones[i](theta[i], g[i]) for i in tensors]
        all_updates.append([m[i] * s * raw[i] for i in tensors])
        applied.append(m * s)
        last = {"theta": theta, "g": g, "m": m, "s": s, "square": square}
        last["value"] = values[n] if values is not None else 0.0
        epoch.append(last)

        if closing[n] if closing is not None else t == steps_per_epoch - 1:
            terms = _motion(epoch, pooling)
            high, low, trend = judge(terms, peak)
            first = (settled == 0) & (peak == 1)
            below = np.where(first, first_threshold, threshold)
            longer = (high < below) & (trend > 0)
            with np.errstate(invalid="ignore", divide="ignore"):
                shorter = np.where(low > 1, 1 / low, 1)
                grown = np.minimum(np.where(first, np.inf, growth), target / high)
            after = peak * np.where(longer, np.maximum(grown, 1), shorter)
            falls = (trend < 0) & (after > 1)
            after = np.where(falls, np.maximum(decay * after, 1), after)
            known = np.isfinite(low) & (high >= 0)
            after = np.where(known, after, np.minimum(peak, 1))
            if values is not None:
                after, told = consult(told, peak, after)
            mean_square = np.mean([row["square"] for row in epoch])
            after = np.clip(after, multiplier_min, multiplier_max)
            before, peak = peak, cut(after, mean_square, usual if k else 0.0)
            if told:
                told["tried"] = told["tried"] * np.any(peak > before)
            usual = mean_square
            settled = np.maximum(settled, np.abs(trend))
            curvature, own, _, fresh = terms.sum(0).T
            with np.errstate(invalid="ignore"):
                signal = curvature / np.sqrt((terms[..., 0] ** 2).sum(0))
            epochs.append(
                {
                    "step_high": high,
                    "step_low": low,
                    "signal": np.where(own == 0, 0, np.nan_to_num(signal)),
                    "held": fresh / np.where(own == 0, 1, own),
                    "trend": trend,
                    "threshold": below,
                    "settled": settled,
                    "gradient_square": usual,
                    **told,
                }
            )
            k, epoch = k + 1, []
        multipliers.append(peak)
    return all_updates, applied, multipliers, epochs


def _motion(epoch, pooling):
    """For every step and tensor, or all together, the terms of N, D, O and P."""
    tensors = len(epoch[0]["g"]) if epoch else 1
    terms = np.zeros((len(epoch), tensors, 4))
    for t in range(2, len(epoch)):
        older, before, now = epoch[t - 2 : t + 1]
        for i in range(tensors):
            v_older = (before["theta"][i] - older["theta"][i]) / older["m"][i]
            v = (now["theta"][i] - before["theta"][i]) / before["m"][i]
            m, g_before, g = before["m"][i], before["g"][i], now["g"][i]
            terms[t, i] = (
                np.sum(v_older * (g - g_before)) / m,
                -older["s"] * np.sum(v * g_before),
                older["s"] * np.sum(v * g) / m,
                -before["s"] * np.sum(v_older * g_before),
            )
    return terms.sum(1, keepdims=True) if pooling == "all" else terms


def _promises(epoch):
    """For every step, the descent that the last move promised at multiplier 1."""
    promises = [0.0]
    for before, now in itertools.pairwise(epoch):
        moves = zip(
            before["theta"], now["theta"], before["g"], before["m"], strict=True
        )
        promises.append(sum(np.sum((x - y) * g) / m for x, y, g, m in moves))
    return np.array(promises)
