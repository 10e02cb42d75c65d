"""What the curvature-tuned optimizers do at each step, read from their states."""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from ctagd_optax._ct_agd import close_epoch, ct_agd
from ctagd_optax._estimators.secant import secant
from ctagd_optax._report import learning_rate_multiplier
from ctagd_optax._robust import robust_ct_agd
from ctagd_optax._wrapper import CTAGDState


class Internals(NamedTuple):
    r"""CT-AGD's view at one step, or along a path.

    Attributes:
      gamma: the divisor :math:`\gamma_{k,t}` of this step.
      curvature: :math:`\widehat H` per axis from the epoch so far, clamped as it would
        be used; NaN on an axis without evidence yet.
      correction: the correction :math:`-\eta_2 \tilde g / \widehat H`; 0 but at the
        last step of an epoch.
      closed: whether this step closed an epoch.
    """

    gamma: jax.Array
    curvature: jax.Array
    correction: jax.Array
    closed: jax.Array


class RobustInternals(NamedTuple):
    """The robust method's view at one step, or along a path.

    Attributes:
      multiplier: what the backbone's learning rate was multiplied by in this step.
      closed: whether this step closed an epoch.
    """

    multiplier: jax.Array
    closed: jax.Array


@dataclasses.dataclass(frozen=True)
class CTAGDSettings:
    r"""CT-AGD's own constants, from which the testbed makes and reads the optimizer.

    All but ``steps_per_epoch`` have the defaults of :func:`ctagd_optax.ct_agd`.

    Attributes:
      steps_per_epoch: :math:`T`. The paper does not give it; one pass over the train
        snapshots is what an epoch is.
      correction_rate: :math:`\eta_2`.
      curvature_min: :math:`\lambda_{\min}`.
      curvature_max: :math:`\lambda_{\max}`.
      quantile: :math:`\omega`.
      eps: :math:`\varepsilon`.

    Examples:
      >>> import optax
      >>> from ctagd_optax import testbed
      >>> settings = testbed.CTAGDSettings(steps_per_epoch=20)
      >>> optimizer = settings.wrap(optax.sgd(0.01, momentum=0.85))
    """

    steps_per_epoch: int = 20
    correction_rate: float = 0.5
    curvature_min: float = 0.1
    curvature_max: float = 10.0
    quantile: float = 0.1
    eps: float = 1e-3

    def wrap(
        self, backbone: optax.GradientTransformation
    ) -> optax.GradientTransformationExtraArgs:
        """CT-AGD around a backbone, with these constants."""
        return ct_agd(backbone, **dataclasses.asdict(self))

    def read(self, params: jax.Array, before: Any, after: Any) -> Internals:
        r"""Reads the internals of a step from the states before and after it.

        Only the public fields of :class:`CTAGDState` are used, and the correction is
        what :func:`close_epoch` makes of them, as in the optimizer itself.

        Args:
          params: the parameters :math:`\theta_t` that the step started from.
          before: the state before the step.
          after: the state after the step.

        Returns:
          The internals of this step.
        """
        gamma = 1 / learning_rate_multiplier(after)
        before, after = _state(before), _state(after)
        evidence = after.evidence
        estimate = secant().estimate(evidence.curvature, self.eps)
        weight = evidence.gradient_weight[0].astype(params.dtype) + self.eps
        _, correction, _ = close_epoch(
            estimate,
            evidence.gradient_sum / weight,
            params,
            correction_rate=self.correction_rate,
            curvature_min=self.curvature_min,
            curvature_max=self.curvature_max,
            quantile=self.quantile,
        )
        closed = after.epoch > before.epoch
        clamped = jnp.clip(estimate.value, self.curvature_min, self.curvature_max)
        return Internals(
            gamma=gamma[0],
            curvature=jnp.where(estimate.observed, clamped, jnp.nan),
            correction=jnp.where(closed, jnp.asarray(correction), 0),
            closed=closed,
        )


@dataclasses.dataclass(frozen=True)
class RobustSettings:
    """The robust method's constants; all but the epoch are the library's defaults.

    Attributes:
      steps_per_epoch: one pass over the train snapshots, as for CT-AGD.

    Examples:
      >>> import optax
      >>> from ctagd_optax import testbed
      >>> settings = testbed.RobustSettings(steps_per_epoch=20)
      >>> optimizer = settings.wrap(optax.sgd(0.01, momentum=0.85))
    """

    steps_per_epoch: int = 20

    def wrap(
        self, backbone: optax.GradientTransformation
    ) -> optax.GradientTransformationExtraArgs:
        """The robust method around a backbone."""
        return robust_ct_agd(backbone, self.steps_per_epoch)

    def read(self, params: jax.Array, before: Any, after: Any) -> RobustInternals:
        """Reads the internals of a step from the states before and after it.

        Args:
          params: the parameters that the step started from; not used.
          before: the state before the step.
          after: the state after the step.

        Returns:
          The internals of this step.
        """
        del params
        return RobustInternals(
            multiplier=learning_rate_multiplier(after)[0],
            closed=_state(after).epoch > _state(before).epoch,
        )


def _state(state: Any) -> CTAGDState:
    [(_, found)] = optax.tree.get_all_with_path(state, CTAGDState.__name__)
    return found
