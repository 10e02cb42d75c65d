"""The paper's drifting landscape: a bowl, lumps on it, and how they wander."""

import dataclasses
import itertools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp


@dataclasses.dataclass(frozen=True)
class LandscapeConfig:
    r"""Every constant of the landscape that the paper leaves open, with a reason.

    The paper gives the formula of a snapshot and the laws of its drift, but no number.
    The defaults below were settled without running any optimizer: round numbers, for
    which the lowest point of the train average lies near -6.3 and the gap there near
    2.1, on average over landscapes. The paper's table shows -6.4 and 2.2: its final
    value with noise less its gap, and its gap, on average over optimizers.

    Attributes:
      lumps: number :math:`M` of Gaussian lumps. Twelve leave some valleys and some
        hills between any start and the target.
      quadratic: range of the quadratic factor :math:`q`, drawn uniformly. About 0.5
        gives the bowl the curvature :math:`2q \approx 1`, so that a learning rate of
        0.01 with momentum 0.85, the paper's, crosses it within a hundred steps.
      target: half-width of the square from which the target centre :math:`c_0` is
        drawn. Not 0, so that no method gains from a pull towards the origin.
      spread: standard deviation of the lumps' centres :math:`c_j` around the target,
        along each axis. Lumps far from the target never matter, as the bowl outgrows
        them; about the distance of the start keeps them on the way.
      amplitude: range of the amplitudes :math:`a_j`, drawn uniformly. Sets the depth of
        the valleys; see above.
      scale: range of the scales :math:`s_j`, drawn uniformly. Around 1, the unit that
        :math:`\theta` is measured in.
      negative: probability that the sign :math:`\sigma_j` is -1, a valley. "Random
        signs" is taken as a fair coin.
      center_drift: :math:`\sigma_c`, drift of the lumps' centres per snapshot. Sets the
        gap; see above.
      amplitude_drift: :math:`\sigma_a`, relative drift of the amplitudes. "Small": a
        lump changes by a fifth over a pass of the train sequence.
      scale_drift: :math:`\sigma_s`, relative drift of the scales. As the amplitudes.
      target_drift: drift of the target centre :math:`c_0` per snapshot. The paper's
        text lets noise act on "the quadratic equation itself", its appendix has no such
        term; 0 is the appendix.
      train_snapshots: length :math:`T_\mathrm{train}` of the train sequence. Twenty, so
        that the paper's 120 to 160 steps are several passes over it.
      test_snapshots: length :math:`T_\mathrm{test}` of the test sequence, which goes on
        where the train sequence ends. "Shorter": half of it.
      start_distance: range of the distance of the start from the target; the direction
        is uniform. Beyond most lumps, so that every run has a way to go.

    Examples:
      >>> from ctagd_optax import testbed
      >>> testbed.LandscapeConfig(lumps=3).stationary().center_drift
      0.0
    """

    lumps: int = 12
    quadratic: tuple[float, float] = (0.4, 0.6)
    target: float = 1.0
    spread: float = 2.0
    amplitude: tuple[float, float] = (3.0, 9.0)
    scale: tuple[float, float] = (0.6, 1.4)
    negative: float = 0.5
    center_drift: float = 0.2
    amplitude_drift: float = 0.05
    scale_drift: float = 0.05
    target_drift: float = 0.0
    train_snapshots: int = 20
    test_snapshots: int = 10
    start_distance: tuple[float, float] = (4.0, 5.0)

    def __post_init__(self):
        for name, least in (
            ("lumps", 0),
            ("train_snapshots", 1),
            ("test_snapshots", 1),
        ):
            if getattr(self, name) < least:
                raise ValueError(
                    f"{name} must be at least {least}, got {getattr(self, name)}"
                )
        for name in ("quadratic", "amplitude", "scale", "start_distance"):
            low, high = getattr(self, name)
            if not 0 <= low <= high:
                raise ValueError(
                    f"{name} must be a range (low, high) with 0 <= low <= high, got "
                    f"({low}, {high})"
                )
        if self.quadratic[0] == 0 or self.scale[0] == 0:
            raise ValueError("quadratic and scale must be above 0")
        for name in ("center_drift", "amplitude_drift", "scale_drift", "target_drift"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} must be at least 0")
        if not 0 <= self.negative <= 1:
            raise ValueError(f"negative must be a probability, got {self.negative}")

    def stationary(self) -> "LandscapeConfig":
        """The same landscape with every drift 0: all snapshots are the first one."""
        return dataclasses.replace(
            self,
            center_drift=0.0,
            amplitude_drift=0.0,
            scale_drift=0.0,
            target_drift=0.0,
        )


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Snapshots:
    r"""One snapshot :math:`\mathcal S`, or a sequence of them along the first axis.

    Attributes:
      target: centre :math:`c_0` of the bowl, ``(..., 2)``.
      center: centres :math:`c_j` of the lumps, ``(..., M, 2)``.
      amplitude: amplitudes :math:`a_j`, ``(..., M)``.
      scale: scales :math:`s_j`, ``(..., M)``.
    """

    target: jax.Array
    center: jax.Array
    amplitude: jax.Array
    scale: jax.Array

    def __getitem__(self, index: Any) -> "Snapshots":
        return jax.tree.map(lambda x: x[index], self)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Landscape:
    r"""A bowl with signed Gaussian lumps, as a sequence of train and test snapshots.

    .. math::

        V(\theta; \mathcal S) = q\, \|\theta - c_0\|^2 + \sum_{j=1}^{M} \sigma_j\, a_j
            \exp\Bigl(-\frac{\|\theta - c_j\|^2}{2 s_j^2}\Bigr)

    Its parameters drift from one snapshot to the next,

    .. math::

        c_j \leftarrow c_j + \mathcal N(0, \sigma_c^2 I_2), \quad
        a_j \leftarrow a_j\,[1 + \mathcal N(0, \sigma_a^2)], \quad
        s_j \leftarrow s_j\,[1 + \mathcal N(0, \sigma_s^2)],

    and the test sequence goes on where the train sequence ends. A landscape is a pytree
    of arrays: it can be batched with ``jax.vmap`` over keys, jitted and differentiated.

    Attributes:
      quadratic: the factor :math:`q`.
      sign: the signs :math:`\sigma_j`.
      train: the train snapshots.
      test: the test snapshots.
      start: where a run starts.

    Examples:
      >>> import jax
      >>> from ctagd_optax import testbed
      >>> landscape = testbed.Landscape.create(jax.random.key(0))
      >>> landscape.train.center.shape, landscape.test.center.shape
      ((20, 12, 2), (10, 12, 2))
      >>> jax.grad(landscape.train_average)(landscape.start).shape
      (2,)
    """

    quadratic: jax.Array
    sign: jax.Array
    train: Snapshots
    test: Snapshots
    start: jax.Array

    @staticmethod
    def create(key: jax.Array, config: LandscapeConfig | None = None) -> "Landscape":
        """Draws a landscape; the same key and configuration give the same, bit by bit.

        The first snapshot and the start do not depend on the drifts, so a stationary
        landscape is the noisy one of the same key, held at its first snapshot.

        Args:
          key: a PRNG key.
          config: the constants; None is the defaults.

        Returns:
          The landscape, in JAX's default float type.
        """
        config = LandscapeConfig() if config is None else config
        lumps, snapshots = config.lumps, config.train_snapshots + config.test_snapshots
        first_key, center_key, drift_key = jax.random.split(key, 3)

        # In three blocks, as a call of its own for each item compiles for seconds; and
        # in float32, so that a key stands for one landscape in any precision.
        dtype = jnp.zeros(()).dtype
        ends = tuple(itertools.accumulate((1, 2, lumps, lumps, lumps, 1, 1)))
        share = jax.random.uniform(first_key, (ends[-1],), jnp.float32).astype(dtype)
        shares = iter(jnp.split(share, ends[:-1]))

        def uniform(limits):
            low, high = limits
            return low + (high - low) * next(shares)

        [quadratic] = uniform(config.quadratic)
        target = uniform((-config.target, config.target))
        amplitude, scale = uniform(config.amplitude), uniform(config.scale)
        negative = next(shares) < config.negative
        [distance], [angle] = uniform(config.start_distance), uniform((0, 2 * jnp.pi))
        offset = jax.random.normal(center_key, (lumps, 2), jnp.float32).astype(dtype)
        center = target[None] + config.spread * offset
        drift = jax.random.normal(
            drift_key, (snapshots - 1, 4 * lumps + 2), jnp.float32
        ).astype(dtype)
        center_drift, amplitude_drift, scale_drift, target_drift = jnp.split(
            drift, (2 * lumps, 3 * lumps, 4 * lumps), axis=1
        )
        sequence = Snapshots(
            center=_wander(
                center,
                config.center_drift * center_drift.reshape(snapshots - 1, lumps, 2),
            ),
            amplitude=_grow(amplitude, config.amplitude_drift * amplitude_drift),
            scale=_grow(scale, config.scale_drift * scale_drift),
            target=_wander(target, config.target_drift * target_drift),
        )
        return Landscape(
            quadratic=quadratic,
            sign=jnp.where(negative, -1.0, 1.0).astype(amplitude.dtype),
            train=sequence[: config.train_snapshots],
            test=sequence[config.train_snapshots :],
            start=target + distance * jnp.stack([jnp.cos(angle), jnp.sin(angle)]),
        )

    def value(self, theta: jax.Array, snapshot: Snapshots) -> jax.Array:
        r"""The value :math:`V(\theta; \mathcal S)` of one snapshot at one point."""
        bowl = self.quadratic * jnp.sum((theta - snapshot.target) ** 2)
        distance = jnp.sum((theta[None] - snapshot.center) ** 2, axis=-1)
        lumps = snapshot.amplitude * jnp.exp(-distance / (2 * snapshot.scale**2))
        return bowl + jnp.sum(self.sign * lumps)

    def train_loss(self, theta: jax.Array, step: jax.Array | int) -> jax.Array:
        """What an optimizer sees at a step: the train snapshot, taken cyclically."""
        return self.value(theta, self.train[step % self.train.scale.shape[0]])

    def train_average(self, theta: jax.Array) -> jax.Array:
        r"""Train loss :math:`L_\mathrm{avg}`: the mean over the train snapshots."""
        return self._average(theta, self.train)

    def test_average(self, theta: jax.Array) -> jax.Array:
        r"""Test loss :math:`E_\mathrm{avg}`: the mean over the test snapshots."""
        return self._average(theta, self.test)

    def gap(self, theta: jax.Array) -> jax.Array:
        r"""Generalisation gap :math:`E_\mathrm{avg} - L_\mathrm{avg}`."""
        return self.test_average(theta) - self.train_average(theta)

    def _average(self, theta: jax.Array, snapshots: Snapshots) -> jax.Array:
        values = jax.vmap(self.value, in_axes=(None, 0))(theta, snapshots)
        # The mean of what differs from the first: exact where all snapshots are equal.
        return values[0] + jnp.mean(values - values[:1])


def surface(
    loss: Callable[[jax.Array], jax.Array], x: jax.Array, y: jax.Array
) -> jax.Array:
    """Values of a loss on a grid, ``(len(y), len(x))``, as contour plots take them.

    Args:
      loss: a function of one point, for example ``landscape.test_average``.
      x: coordinates along the first axis of θ.
      y: coordinates along the second axis of θ.

    Returns:
      The matrix of values.

    Examples:
      >>> import jax.numpy as jnp
      >>> from ctagd_optax import testbed
      >>> testbed.surface(lambda theta: theta[0], jnp.arange(3.0), jnp.zeros(2)).shape
      (2, 3)
    """
    points = jnp.stack(jnp.meshgrid(x, y), axis=-1)
    return jax.vmap(jax.vmap(loss))(points)


def _wander(first: jax.Array, steps: jax.Array) -> jax.Array:
    """A path that adds each step."""
    return jnp.concatenate([first[None], first[None] + jnp.cumsum(steps, axis=0)])


def _grow(first: jax.Array, steps: jax.Array) -> jax.Array:
    """A path that multiplies by one plus each step."""
    return jnp.concatenate([first[None], first[None] * jnp.cumprod(1 + steps, axis=0)])
