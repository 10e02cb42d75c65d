"""CT-AGD on one tensor, from the paper's equations: NumPy, float64, one loop."""

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
    curvature_min=1e-2,
    curvature_max=1e2,
    quantile=0.1,
    eps=1e-3,
    correction_gradient="average",
    annealing="linear",
    pairing="equation",
    weighting="linear",
    unobserved="clamp",
    noise=None,
):
    """Replays a run: what CT-AGD does at each of the points it was given.

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
            used = np.ones_like(observed) if unobserved == "clamp" else observed
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
    pooling="all",
    errors="terms",
    evidence_steps=0.0,
    promise="fresh",
    target=2.0,
    early_target=0.7,
    early_growth=1.5,
    aim="peak",
    confidence=1.0,
    require_descent=True,
    first_threshold=2.0,
    threshold=0.25,
    growth=3.0,
    decay=0.9,
    floor=1.0,
    multiplier_min=0.1,
    multiplier_max=20.0,
    guard=4.0,
    correction="mean",
    correction_multiplier_max=1.0,
    correction_confidence=2.0,
    correction_limit=0.5,
    correction_samples=32,
    closing=None,
):
    """Replays a run of the robust method on several tensors.

    Args:
      thetas: for every step, the list of tensors.
      gradients: for every step, the list of gradients.
      backbones: for every tensor, ``backbone(theta, g)`` returns the raw update.
      steps_per_epoch: T.
      pooling: "all", "tensor" or "mix".
      errors: "gradients" or "terms".
      evidence_steps: steps in which evidence loses weight by a factor of e.
      promise: "fresh" (P) or "own" (D).
      target: the step length to grow to.
      early_target: the same within the first epoch.
      early_growth: in that epoch m is at most this to the power of t - 2.
      aim: "mean" or "peak".
      confidence: standard errors.
      require_descent: whether P > 0, or with "own" O < 0, is needed.
      first_threshold: q_lo up to the first epoch that surely descends or ascends.
      threshold: q_lo after it.
      growth: ρ.
      decay: of m after an epoch with P < 0.
      floor: share of m to which an epoch falls after one with P < 0 and m <= 1.
      multiplier_min: the smallest m.
      multiplier_max: the largest m.
      guard: ratio of ‖g‖² to the mean of the last epoch.
      correction: "mean", "line", "coordinate_line" or "none".
      correction_multiplier_max: the largest next m, of any tensor, with a correction.
      correction_confidence: standard errors that the fall of the loss on the way to the
        mean, or the line's slope, must be above 0.
      correction_limit: κ.
      correction_samples: how many steps are samples for the correction at most.
      closing: for every step, whether it closes an epoch; None is every T-th.

    Returns:
      The updates at every step, a list of tensors; m after every step; and, for every
      epoch, a dict of what was computed.
    """

    def standard_errors(terms):
        """Of N, D, O and P; N has two, as its terms share gradients."""
        by_terms = np.sqrt((terms**2).sum(0).T)
        if errors == "gradients":
            by_terms[0] = np.minimum(by_terms[0], by_terms[4])
        return by_terms

    def judge(terms, multiplier):
        """q⁺, q⁻, and whether the path surely descends and ascends."""
        curvature, own, overlap, fresh, _ = terms.sum(0).T
        slack = confidence * standard_errors(terms)
        with np.errstate(invalid="ignore", divide="ignore"):
            bound = np.maximum(curvature, 0) + slack[0]
            if promise == "fresh":
                high = np.where(fresh > 0, multiplier * bound / fresh, np.inf)
                high = np.where(own < 0, -np.inf, high)
                descends = fresh > slack[3]
            else:
                high = multiplier * np.maximum(bound, 2 * overlap) / own
                descends = overlap < -slack[2]
            low = multiplier * (curvature - slack[0]) / own
            back = multiplier * overlap / own
            low = np.where(back > 1, np.maximum(low, 1 + back), low)
        high, low = np.where(own == 0, np.inf, high), np.where(own == 0, -np.inf, low)
        return high, low, descends, fresh < -slack[3]

    tensors = range(len(backbones))
    peak, k, usual = np.ones(len(backbones)), 0, 0.0
    settled, lowest = np.zeros(len(backbones)), np.ones(len(backbones))
    all_updates, multipliers, epochs, epoch = [], [], [], []
    kept = None
    for n, (theta, g) in enumerate(zip(thetas, gradients, strict=True)):
        theta = [np.asarray(x, np.float64) for x in theta]
        g = [np.asarray(x, np.float64) for x in g]
        t = len(epoch)
        if k == 0:
            early = []
            for use in _pooled(_motion(epoch, tensors), pooling, kept):
                high, _, descends, _ = judge(use, np.ones(use.shape[1]))
                grows = descends | (not require_descent)
                short = grows & (high >= 0) & (high < early_target)
                with np.errstate(divide="ignore"):
                    found = np.where(short, early_target / high, 1)
                early.append(found * np.ones(len(backbones)))
            start = np.prod(early, 0) ** (1 / len(early))
            m = np.minimum(start, max(min(multiplier_max, early_growth ** (t - 2)), 1))
        else:
            done = min(t / steps_per_epoch, 1)
            m = peak - np.maximum(peak - 1, 0) * done
            m = m * (1 - (1 - lowest) * done)
        square = sum(np.sum(x**2) for x in g)
        if k == 0 and t:
            usual = np.mean([row[4] for row in epoch])
        ratio = square / (guard * usual) if usual else 0.0
        if ratio > 1:
            m = np.where(m > 1, 1 + (m - 1) / ratio, m)
        raw = [backbones[i](theta[i], g[i]) for i in tensors]
        updates = [m[i] * raw[i] for i in tensors]
        epoch.append((theta, g, raw, m, square))

        if closing[n] if closing is not None else t == steps_per_epoch - 1:
            judged, moved, before = [], np.zeros(len(backbones)), peak
            evidence = _pooled(_motion(epoch, tensors), pooling, kept)
            for use in evidence:
                high, low, descends, ascends = judge(use, peak)
                first = (settled == 0) & (peak == 1)
                short = high < np.where(first, first_threshold, threshold)
                longer = short & (descends | (not require_descent))
                most = np.where(first, np.inf, growth)
                with np.errstate(invalid="ignore", divide="ignore"):
                    factor = np.where(low > 1, 1 / low, 1)
                    grown = np.maximum(np.minimum(most, target / high), 1)
                    factor = np.where(longer, grown, factor)
                after = peak * factor
                after = np.where(
                    ascends & (after > 1), np.maximum(decay * after, 1), after
                )
                known = np.isfinite(low) & (high >= 0)
                after = np.where(known, after, np.minimum(peak, 1))
                judged.append((after, high, low, use, descends, ascends))
            after = np.prod([row[0] for row in judged], 0) ** (1 / len(judged))
            if aim == "mean":
                after = np.where(first & (after > 1), 2 * after - 1, after)
            peak = np.clip(after, multiplier_min, multiplier_max)
            mean_square = np.mean([row[4] for row in epoch])
            ratio = mean_square / (guard * usual) if k and usual else 0.0
            if ratio > 1:
                peak = np.where(peak > 1, 1 + (peak - 1) / ratio, peak)
            usual = mean_square
            half = steps_per_epoch // 2
            stride = int(np.ceil((steps_per_epoch - half) / correction_samples))
            samples = [
                row
                for s, row in enumerate(epoch)
                if s >= half and (steps_per_epoch - 1 - s) % stride == 0
            ]
            ends = [theta[i] + updates[i] for i in tensors]
            ways = _ways(
                samples,
                ends,
                correction if peak.max() <= correction_multiplier_max else "none",
                correction_confidence,
                correction_limit,
            )
            for i in tensors:
                updates[i] = updates[i] + ways[i]
                moved[i] = np.linalg.norm(ways[i]) / np.linalg.norm(theta[i])
            _, high, low, use, descends, ascends = judged[0]
            settled = np.maximum(settled, descends | ascends)
            lowest = np.where(ascends & (before <= 1), floor, lowest)
            lowest = np.where(descends | (peak > 1), 1, lowest)
            curvature, own, overlap, fresh, _ = use.sum(0).T
            with np.errstate(invalid="ignore"):
                signal = curvature / standard_errors(use)[0]
            epochs.append(
                {
                    "step_high": high,
                    "step_low": low,
                    "signal": np.nan_to_num(signal),
                    "overlap": overlap / np.where(own == 0, 1, own),
                    "held": fresh / np.where(own == 0, 1, own),
                    "multiplier": peak,
                    "floor": lowest,
                    "relative_correction": moved,
                    "settled": settled,
                    "gradient_square": usual,
                }
            )
            lasting = np.exp(-len(epoch) / evidence_steps) if evidence_steps else 0
            same = peak == before
            kept = [
                lasting * (same if use.shape[1] > 1 else same.all())[..., None] * use
                for use in evidence
            ]
            k, epoch = k + 1, []
        all_updates.append(updates)
        multipliers.append(peak)
    return all_updates, multipliers, epochs


def _motion(epoch, tensors):
    """For every step and tensor, the terms of N, D, O and P, and g_t's share of N."""
    terms = np.zeros((len(epoch), len(tensors), 5))
    for s in range(2, len(epoch)):
        older, before, g_now = epoch[s - 2][2], epoch[s - 1], epoch[s][1]
        _, g_before, latest, m_before, _ = before
        for i in tensors:
            now = np.sum(older[i] * g_now[i]) / m_before[i]
            then = np.sum(older[i] * g_before[i]) / m_before[i]
            terms[s, i, :4] = (
                now - then,
                -np.sum(latest[i] * g_before[i]),
                np.sum(latest[i] * g_now[i]) / m_before[i],
                -np.sum(older[i] * g_before[i]),
            )
            terms[s, i, 4] += now
            terms[s - 1, i, 4] -= then
    return terms


def _pooled(terms, pooling, kept):
    """The terms of each tensor, of all together, or both, after those that are kept."""
    together = terms.sum(1, keepdims=True)
    found = {"tensor": [terms], "all": [together], "mix": [terms, together]}[pooling]
    return [np.concatenate(x) for x in zip(kept, found, strict=True)] if kept else found


def _ways(samples, ends, correction, confidence, limit):
    """The correction of each tensor at the end of an epoch."""
    ways = [np.zeros_like(end) for end in ends]
    # Through two points there is always a line.
    if correction == "none" or len(samples) <= 2:
        return ways
    weights = np.arange(1.0, len(samples) + 1)
    xs = [np.stack(x) for x in zip(*(row[0] for row in samples), strict=True)]
    ys = [np.stack(y) for y in zip(*(row[1] for row in samples), strict=True)]
    means = [
        [np.average(z, axis=0, weights=weights) for z in each] for each in (xs, ys)
    ]
    if correction == "mean":
        # Each gradient, along the way back to the mean of the samples before.
        falls = [
            weights[n]
            * sum(
                np.sum(y[n] * (x[n] - np.average(x[:n], axis=0, weights=weights[:n])))
                for x, y in zip(xs, ys, strict=True)
            )
            for n in range(1, len(samples))
        ]
        error = np.sqrt(np.sum(np.square(falls)))
        fall = (np.sum(falls) - confidence * error) / weights.sum()
        to_mean = [x - end for x, end in zip(means[0], ends, strict=True)]
        rise = sum(np.sum(y * d) for y, d in zip(means[1], to_mean, strict=True))
        share = fall / (fall + max(rise, 0)) if fall > 0 else 0.0
        return [share * d for d in to_mean]
    for i, (x, y) in enumerate(zip(xs, ys, strict=True)):
        w, total = weights.reshape(-1, *[1] * (x.ndim - 1)), weights.sum()
        mean_x, mean_y = means[0][i], means[1][i]
        spread = (w * (x - mean_x) ** 2).sum(0)
        slope = (w * (x - mean_x) * (y - mean_y)).sum(0)
        rest = (w * (y - mean_y) ** 2).sum(0)
        if correction == "line":
            spread, slope, rest = spread.sum(), slope.sum(), rest.sum()
        rises = (slope > 0) & (spread > 0)
        safe = np.where(rises, spread, 1)
        h = np.where(rises, slope / safe, 1)
        error = np.maximum(rest - h * slope, 0) / (len(x) * safe)
        trust = np.maximum(1 - confidence**2 * error / h**2, 0)
        way = rises * trust * (mean_x - mean_y / h - ends[i])
        reach = limit * np.sqrt(spread / total)
        size = np.abs(way)
        if correction == "line":
            size = np.sqrt((way**2).sum())
        ways[i] = way * np.divide(
            reach, size, out=np.ones_like(size), where=size > reach
        )
    return ways
