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


def _quotient(a, b):
    return np.divide(a, b, out=np.zeros_like(a), where=b != 0)


def secant(thetas, gradients, eps):
    """Weighted mean of quotients, and the standard error of that mean."""
    shape = thetas[0].shape
    value, error = np.zeros(shape), np.full(shape, np.inf)
    count = np.zeros(shape, int)
    pairs = _pairs(thetas, gradients)
    for i in np.ndindex(shape):
        used = [(t, dg[i] / dx[i]) for t, (dx, dg) in pairs.items() if abs(dx[i]) > eps]
        count[i] = len(used)
        if not used:
            continue
        t, h = np.transpose(used)
        value[i] = (t * h).sum() / (t.sum() + eps)
        if len(used) > 1:
            mean = (t * h).sum() / t.sum()
            spread = (t * (h - mean) ** 2).sum() / t.sum()
            error[i] = np.sqrt(4 / 3 * spread / (len(used) - 1))
    return value, count > 0, error, count


def instrumental(thetas, gradients, eps):
    """Ratio of sums with the step before as the instrument."""
    del eps
    shape = thetas[0].shape
    pairs = _pairs(thetas, gradients)
    samples = [(pairs[t - 1][0], *pairs[t]) for t in pairs if t - 1 in pairs]
    count = np.full(shape, len(samples))
    if not samples:
        return np.zeros(shape), count > 0, np.full(shape, np.inf), count
    z, dx, dg = (np.stack(column) for column in zip(*samples, strict=True))
    denominator = (z * dx).sum(0)
    value = _quotient((z * dg).sum(0), denominator)
    if len(samples) == 1:
        return value, denominator != 0, np.full(shape, np.inf), count
    variance = ((dg - value * dx) ** 2).sum(0) / (len(samples) - 1) / 2
    error = np.sqrt(variance * ((dx - z) ** 2).sum(0)) / np.abs(denominator)
    return value, denominator != 0, error, count


def regression(thetas, gradients, eps):
    """Weighted regression over the whole epoch, from its exact means."""
    del eps
    shape = thetas[0].shape
    used = [t for t, g in enumerate(gradients) if t and np.isfinite(g).all()]
    count = np.full(shape, len(used))
    if len(used) < 3:
        unknown = np.full(shape, np.inf)
        return np.zeros(shape), np.zeros(shape, bool), unknown, count
    w = np.asarray(used, float).reshape(-1, *[1] * len(shape))
    x, g = (np.stack([a[t] for t in used]) for a in (thetas, gradients))
    dx, dg = (a - (w * a).sum(0) / w.sum() for a in (x, g))
    value = (w * dx * dg).sum(0) / (w * dx**2).sum(0)
    freedom = w.sum() ** 2 / (w**2).sum() - 2
    residuals = (w * (dg - value * dx) ** 2).sum(0)
    error = np.full(shape, np.inf)
    if freedom > 0:
        error = np.sqrt(residuals / (w * dx**2).sum(0) / freedom)
    return value, np.ones(shape, bool), error, count


def shrunk(value, observed, error, weight):
    """Values moved to their mean, and their errors; the spread by Paule and Mandel."""
    known = observed & np.isfinite(error)
    h, variance, share = value[known], error[known] ** 2, weight[known]
    if len(h) < 4:
        return value, error
    share = share / share.sum()
    mean = (share * h).sum()

    def spread(chance):
        """Where the sum of squares over their variances is as expected, or 0."""
        low, high = 0.0, 100 * ((h - mean) ** 2).sum()
        for _ in range(300):
            middle = (low + high) / 2
            total = variance + middle
            # Of a value's distance from a mean of which it is a part.
            expected = total * (1 - 2 * share) + (share**2 * total).sum()
            with np.errstate(divide="ignore", invalid="ignore"):
                wider = (((h - mean) ** 2 - expected) / total).sum() > -chance
            low, high = (middle, high) if wider else (low, middle)
        return high

    def prior(spread):
        return spread + (share**2 * (spread + variance)).sum()

    chances = 0.0, np.sqrt(2 * (len(h) - 1))
    guess, doubt = (prior(spread(chance)) for chance in chances)
    kept = guess / (guess + variance)
    value, error = value.copy(), error.copy()
    value[known] = kept * h + (1 - kept) * mean
    error[known] = np.sqrt(kept**2 * variance + (1 - kept) ** 2 * doubt)
    return value, error


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
