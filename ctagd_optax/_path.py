"""The path through an epoch's second half, and where it says to go at the end.

Two corrections read it. One goes to the path's mean, as far as gradients of later
batches say that the loss falls on the way; the other, to the root of a line that is
fitted to gradients over parameters.
"""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax.typing import ArrayLike, DTypeLike

from ctagd_optax._curvature import accumulate, accumulators, counters
from ctagd_optax._transform import Step, inner, map_with_index, per_tensor, wide


class Return(NamedTuple):
    """How the loss falls from the path back to its mean, over all tensors.

    Attributes:
      fall: Σ w ⟨g_t, θ_t - θ̄_t⟩, with θ̄_t the mean of the samples before; none of them
        has used the batch of g_t.
      fall_error: the root of the sum of the squares of these terms.
    """

    fall: jax.Array
    fall_error: jax.Array


class Line(NamedTuple):
    """A weighted regression of gradients on parameters (Welford's sums).

    Attributes:
      spread: Σ w (θ - θ̄)², per coordinate or one number a tensor.
      slope_sum: Σ w (θ - θ̄)(g - ḡ), likewise.
      gradient_spread: Σ w (g - ḡ)², likewise.
    """

    spread: Any
    slope_sum: Any
    gradient_spread: Any


class Path(NamedTuple):
    """Weighted samples of parameters and gradients.

    Attributes:
      weight: for each tensor, W = Σ w.
      samples: for each tensor, how many samples.
      mean_params: θ̄, the weighted mean.
      mean_gradients: ḡ.
      fit: what the correction needs besides.
    """

    weight: jax.Array
    samples: jax.Array
    mean_params: Any
    mean_gradients: Any
    fit: Return | Line


def no_path(params: optax.Params, correction: str, dtype: DTypeLike | None) -> Path:
    """A path without samples.

    Args:
      params: the parameters.
      correction: "mean", "line" or "coordinate_line".
      dtype: of the sums; None is float32 for 16-bit parameters, else the parameter's.
    """

    def vector():
        return counters(params, jnp.float32)

    def sums():
        return accumulators(params, dtype) if coordinates else vector()

    coordinates = correction == "coordinate_line"
    return Path(
        weight=vector(),
        samples=vector(),
        # Distances from the means need every bit, and a coarse mean stops moving.
        mean_params=accumulators(params, None),
        mean_gradients=accumulators(params, None),
        fit=(
            Return(*(jnp.zeros((1,), jnp.float32) for _ in Return._fields))
            if correction == "mean"
            else Line(*(sums() for _ in Line._fields))
        ),
    )


# Jitted, so that an update outside of jit does not compile the cond at every call.
@functools.partial(jax.jit, static_argnums=3)
def observe_path(path: Path, step: Step, weight: jax.Array, coordinates: bool) -> Path:
    """Adds a sample, if it has a weight.

    Args:
      path: the samples so far.
      step: the step.
      weight: the weight of the sample, 0 for none.
      coordinates: whether a line is fitted to each coordinate.

    Returns:
      The path with the sample.
    """
    # Not by what is finite, which vmap makes a batch, so that it would always add.
    sampled = weight > 0
    weight = jnp.where(step.finite, weight.astype(jnp.float32), 0)
    before = jnp.where(step.epoch_step == 0, 0, path.weight)
    total = before + weight
    share = weight / jnp.maximum(total, 1)
    # By distances from the new means, so that the old ones can be overwritten.
    part = jnp.where(before > 0, weight * total / before, 0)
    first = (before == 0) & (weight > 0)

    def move(i, mean, x):
        dtype = wide(mean.dtype)
        kept = jnp.where(first[i], 0, mean.astype(dtype))
        x = jnp.where(step.finite[i], x.astype(dtype), 0)
        return (kept + share[i].astype(dtype) * (x - kept)).astype(mean.dtype)

    def distance(x, mean):
        dtype = wide(mean.dtype)
        return x.astype(dtype) - mean.astype(dtype)

    def per_coordinate(i, total, x, mean_x, y, mean_y):
        d, e = distance(x, mean_x), distance(y, mean_y)
        new = jnp.where(step.finite[i], part[i].astype(d.dtype) * d * e, 0)
        return accumulate(total, new, first[i])

    def products(total, *pairs):
        """Adds the products of two distances from the means."""
        if coordinates:
            return map_with_index(per_coordinate, total, *pairs)

        def product(x, mean_x, y, mean_y):
            return inner(distance(x, mean_x), distance(y, mean_y))

        # Without the barrier, XLA finds that sums share distances, and stores those.
        new = part * per_tensor(product, *jax.lax.optimization_barrier(pairs))
        return accumulate(total, jnp.where(step.finite, new, 0), first)

    def falls(sums, mean_params):
        def fall(x, mean_x, g):
            return inner(distance(x, mean_x), g)

        terms = part * per_tensor(fall, step.params, mean_params, step.gradients)
        term = jnp.sum(jnp.where(step.finite, terms, 0), keepdims=True)
        start = jnp.all(before == 0)
        error = jnp.where(start, 0, sums.fall_error)
        return Return(accumulate(sums.fall, term, start), jnp.hypot(error, term))

    def add():
        mean_params = map_with_index(move, path.mean_params, step.params)
        mean_gradients = map_with_index(move, path.mean_gradients, step.gradients)
        sums = path.fit
        if isinstance(sums, Return):
            return mean_params, mean_gradients, falls(sums, mean_params)
        p, g = (step.params, mean_params), (step.gradients, mean_gradients)
        line = Line(
            products(sums.spread, *p, *p),
            products(sums.slope_sum, *p, *g),
            products(sums.gradient_spread, *g, *g),
        )
        return mean_params, mean_gradients, line

    def keep():
        return path[2:]

    return Path(
        total,
        jnp.where(step.epoch_step == 0, 0, path.samples) + jnp.sign(weight),
        *jax.lax.cond(sampled, add, keep),
    )


def path_correction(
    path: Path,
    step: Step,
    confidence: ArrayLike,
    limit: ArrayLike,
    coordinates: bool,
) -> optax.Updates:
    """What to add to the last update of an epoch.

    Args:
      path: the samples.
      step: the last step.
      confidence: standard errors that the loss's fall, or the slope, must be above 0.
      limit: the largest way to a line's root, in standard deviations of the path.
      coordinates: whether a line is fitted to each coordinate.

    Returns:
      The way to the mean or to the root, as far as it can be trusted.
    """
    if isinstance(path.fit, Return):
        return _to_the_mean(path, path.fit, step, confidence)
    return _to_the_root(path, path.fit, step, confidence, limit, coordinates)


def _to_the_mean(
    path: Path, sums: Return, step: Step, confidence: ArrayLike
) -> optax.Updates:
    """The way to the path's mean, as far as the loss surely falls on it."""

    def to_mean(p, u, mean):
        dtype = wide(mean.dtype)
        return mean.astype(dtype) - (p.astype(dtype) + u.astype(dtype))

    way = jax.tree.map(to_mean, step.params, step.updates, path.mean_params)
    # A tensor that was rarely finite has no mean worth the name, perhaps an old one.
    known = path.samples > 2
    slack = jnp.asarray(confidence, jnp.float32) * sums.fall_error
    weight = jnp.maximum(jnp.max(path.weight, initial=0), 1)
    fall = (sums.fall - slack) / weight
    rises = per_tensor(inner, jax.lax.stop_gradient(way), path.mean_gradients)
    rise = jnp.sum(jnp.where(known, rises, 0))
    surely = (fall > 0) & jnp.isfinite(rise)
    share = fall / jnp.where(surely, fall + jnp.maximum(rise, 0), 1)

    def go(i, x):
        return jnp.where(surely[0] & known[i], share[0].astype(x.dtype) * x, 0)

    return map_with_index(go, way)


def _to_the_root(
    path: Path,
    line: Line,
    step: Step,
    confidence: ArrayLike,
    limit: ArrayLike,
    coordinates: bool,
) -> optax.Updates:
    """The way to the root of the fitted line, as far as its slope can be trusted."""

    def correct(i, p, u, mean_p, mean_g, spread, slope_sum, gradient_spread):
        dtype = wide(mean_p.dtype)
        mean_p, mean_g, spread, slope_sum, gradient_spread = (
            x.astype(dtype)
            for x in (mean_p, mean_g, spread, slope_sum, gradient_spread)
        )
        samples = path.samples[i].astype(dtype)
        # Through two points there is always a line.
        rises = (slope_sum > 0) & (spread > 0) & (samples > 2)
        spread = jnp.where(rises, spread, 1)
        slope = jnp.where(rises, slope_sum / spread, 1)
        rest = jnp.maximum(gradient_spread - slope * slope_sum, 0)
        error = rest / (jnp.maximum(samples, 1) * spread)  # squared, of the slope
        doubt = jnp.square(jnp.asarray(confidence, dtype) / slope) * error
        trust = jnp.where(rises, jnp.maximum(1 - doubt, 0), 0)
        end = p.astype(dtype) + u.astype(dtype)
        way = trust * (mean_p - mean_g / slope - end)
        weight = jnp.where(rises, path.weight[i].astype(dtype), 1)
        reach = jnp.asarray(limit, dtype) * jnp.sqrt(spread / weight)
        size = jax.lax.stop_gradient(way)  # a norm has no derivative at 0
        size = jnp.abs(size) if coordinates else optax.tree.norm(size)
        way *= jnp.where(size > reach, reach / jnp.where(size > 0, size, 1), 1)
        return jnp.where(jnp.isfinite(way), way, 0)

    def by_tensor(total):
        if coordinates:
            return total
        return jax.tree.unflatten(jax.tree.structure(step.params), list(total))

    return map_with_index(
        correct,
        step.params,
        step.updates,
        path.mean_params,
        path.mean_gradients,
        *map(by_tensor, line),
    )
