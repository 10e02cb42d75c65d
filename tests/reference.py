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
                        np.linalg.norm(correction) / norm if norm else 0.0
                    ),
                    "left_out": left_out,
                }
            )
            k, t = k + 1, 0
        updates.append(update)
        gammas.append(gamma)
    return updates, gammas, epochs
