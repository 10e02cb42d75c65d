"""The paper's set-ups in one call."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import jax
import optax
from jax.typing import ArrayLike

from ctagd_optax._checks import check_number, check_rate
from ctagd_optax._ct_agd import ct_agd

_OPTIONS = [
    option
    for option in inspect.signature(ct_agd).parameters.values()
    if option.kind is option.KEYWORD_ONLY
]


def _show_options(preset: Callable[..., Any]) -> Callable[..., Any]:
    """Lists ct_agd's options in the signature in place of ``**options``.

    ``optax.inject_hyperparams`` reads the signature to find the numbers it can inject.
    """
    signature = inspect.signature(preset)
    own = list(signature.parameters.values())[:-1]
    preset.__signature__ = signature.replace(parameters=own + _OPTIONS)  # pyright: ignore
    return preset


def _check_options(preset: str, options: Mapping[str, Any]) -> None:
    for name in set(options) - {option.name for option in _OPTIONS}:
        raise TypeError(
            f"{preset} has no option {name!r}; for another backbone call "
            "ct_agd(optimizer, steps_per_epoch), for a schedule give learning_rate one"
        )


@_show_options
def ct_sgd(
    learning_rate: optax.ScalarOrSchedule = 1e-2,
    *,
    steps_per_epoch: int | jax.Array,
    momentum: ArrayLike = 0.85,
    weight_decay: float | jax.Array = 5e-4,
    **ct_agd_options: Any,
) -> optax.GradientTransformationExtraArgs:
    r"""CT-AGD around SGD with momentum, with the paper's settings.

    Args:
      learning_rate: :math:`\eta_1`, a number or a schedule.
      steps_per_epoch: optimizer steps :math:`T` in an epoch.
      momentum: decay of the momentum; there is no Nesterov term.
      weight_decay: coefficient of the parameters that are added to the gradient inside
        the backbone, so the curvature is that of the plain loss.
      **ct_agd_options: options of :func:`ct_agd`.

    Returns:
      The optimizer, see :func:`ct_agd`.

    Examples:
      >>> import jax, jax.numpy as jnp, optax
      >>> import ctagd_optax
      >>> def f(x):
      ...     return jnp.sum(x**2)
      >>> opt = ctagd_optax.ct_sgd(0.1, steps_per_epoch=10, weight_decay=0.0)
      >>> params = jnp.asarray([1.0, -2.0])
      >>> state = opt.init(params)
      >>> for _ in range(60):
      ...     updates, state = opt.update(jax.grad(f)(params), state, params)
      ...     params = optax.apply_updates(params, updates)
      >>> print(f"f = {f(params):.4f} after {state.epoch} epochs")
      f = 0.0002 after 6 epochs
    """
    _check_options("ct_sgd", ct_agd_options)
    check_rate("learning_rate", learning_rate)
    check_number("weight_decay", weight_decay, 0)
    backbone = optax.chain(
        optax.add_decayed_weights(weight_decay),
        optax.sgd(learning_rate, momentum=momentum),
    )
    return ct_agd(backbone, steps_per_epoch, **ct_agd_options)


@_show_options
def ct_adam(
    learning_rate: optax.ScalarOrSchedule = 1e-3,
    *,
    steps_per_epoch: int | jax.Array,
    b1: ArrayLike = 0.9,
    b2: ArrayLike = 0.999,
    weight_decay: float | jax.Array = 5e-4,
    **ct_agd_options: Any,
) -> optax.GradientTransformationExtraArgs:
    r"""CT-AGD around Adam, with the paper's settings.

    Args:
      learning_rate: :math:`\eta_1`, a number or a schedule.
      steps_per_epoch: optimizer steps :math:`T` in an epoch.
      b1: decay of the first moment.
      b2: decay of the second moment.
      weight_decay: coefficient of the parameters that are added to the gradient inside
        the backbone (coupled, not AdamW's), so the curvature is that of the plain loss.
      **ct_agd_options: options of :func:`ct_agd`.

    Returns:
      The optimizer, see :func:`ct_agd`.

    Examples:
      >>> import jax, jax.numpy as jnp, optax
      >>> import ctagd_optax
      >>> def f(x):
      ...     return jnp.sum(x**2)
      >>> opt = ctagd_optax.ct_adam(0.1, steps_per_epoch=10, weight_decay=0.0)
      >>> params = jnp.asarray([1.0, -2.0])
      >>> state = opt.init(params)
      >>> for _ in range(100):
      ...     updates, state = opt.update(jax.grad(f)(params), state, params)
      ...     params = optax.apply_updates(params, updates)
      >>> print(f"f = {f(params):.4f} after {state.epoch} epochs")
      f = 0.0000 after 10 epochs
    """
    _check_options("ct_adam", ct_agd_options)
    check_rate("learning_rate", learning_rate)
    check_number("weight_decay", weight_decay, 0)
    backbone = optax.chain(
        optax.add_decayed_weights(weight_decay),
        optax.adam(learning_rate, b1=b1, b2=b2),
    )
    return ct_agd(backbone, steps_per_epoch, **ct_agd_options)
