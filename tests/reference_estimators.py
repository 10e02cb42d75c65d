"""Every estimator on one tensor and one epoch: NumPy, float64, from all samples."""

import numpy as np


def _pairs(thetas, gradients):
    """(t, Δθ, Δg) where the gradients of steps t - 1 and t are both finite."""
    finite = [np.isfinite(g).all() for g in gradients]
    return {
        t: (thetas[t] - thetas[t - 1], gradients[t] - gradients[t - 1])
        for t in range(1, len(thetas))
        if finite[t] and finite[t - 1]
    }


def secant(thetas, gradients, eps):
    """Weighted mean of quotients, and where there are any."""
    value, seen = np.zeros(thetas[0].shape), np.zeros(thetas[0].shape, bool)
    pairs = _pairs(thetas, gradients)
    for i in np.ndindex(value.shape):
        used = [(t, dg[i] / dx[i]) for t, (dx, dg) in pairs.items() if abs(dx[i]) > eps]
        if used:
            t, h = np.transpose(used)
            value[i], seen[i] = (t * h).sum() / (t.sum() + eps), True
    return value, seen


def same_batch(thetas, gradients, second_thetas, second_gradients, every):
    """Least squares through the origin, of every n-th step."""
    shape = thetas[0].shape
    used = [
        t
        for t in range(0, len(thetas), every)
        if np.isfinite(gradients[t]).all() and np.isfinite(second_gradients[t]).all()
    ]
    count = np.full(shape, len(used))
    if not used:
        return np.zeros(shape), count > 0, np.full(shape, np.inf), count
    dx = np.stack([second_thetas[t] - thetas[t] for t in used])
    dg = np.stack([second_gradients[t] - gradients[t] for t in used])
    value = (dx * dg).sum(0) / (dx**2).sum(0)
    if len(used) == 1:
        return value, count > 0, np.full(shape, np.inf), count
    residuals = ((dg - value * dx) ** 2).sum(0)
    error = np.sqrt(residuals / (dx**2).sum(0) / (len(used) - 1))
    return value, count > 0, error, count


def hutchinson(products, gradients, every):
    """Mean of v·Hv of every n-th step, and its standard error."""
    shape = gradients[0].shape
    used = [
        products[t]
        for t in range(0, len(gradients), every)
        if np.isfinite(gradients[t]).all()
    ]
    count = np.full(shape, len(used))
    value = np.mean(used, axis=0) if used else np.zeros(shape)
    error = np.full(shape, np.inf)
    if len(used) > 1:
        error = np.std(used, axis=0, ddof=1) / np.sqrt(len(used))
    return value, count > 0, error, count
