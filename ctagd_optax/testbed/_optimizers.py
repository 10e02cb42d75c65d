"""The table's optimizers, its control, and every one that Optax names."""

import dataclasses
import difflib
import inspect
from collections.abc import Callable
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import optax
import optax.contrib

from ctagd_optax.testbed._internals import CTAGDSettings, RobustSettings

Factory = Callable[[Any], optax.GradientTransformation]


@dataclasses.dataclass(frozen=True)
class Optimizer:
    """An optimizer up to its learning rate.

    Attributes:
      name: what tables and legends call it.
      make: makes it from a learning rate, which may be traced.
      paper: makes it as the paper sets it, where that differs in more than the rate.
      paper_rate: the paper's learning rate, or that of the backbone for a method that
        the paper has not; None where there is none.
      settings: for CT-AGD and the robust method, what reads their internals.
    """

    name: str
    make: Factory
    paper: Factory | None = None
    paper_rate: float | None = None
    settings: CTAGDSettings | RobustSettings | None = None

    def for_mode(self, mode: str) -> "Optimizer":
        """The optimizer as the "tuned" or the "paper" mode runs it."""
        if mode == "paper" and self.paper is not None:
            return dataclasses.replace(self, make=self.paper)
        return self


def newton(
    learning_rate: optax.ScalarOrSchedule = 1.0,
) -> optax.GradientTransformationExtraArgs:
    r"""Newton's method, pure: no damping, no line search.

    .. math::

        \theta \leftarrow \theta - \eta\, \nabla^2 V(\theta)^{-1}\, \nabla V(\theta)

    It walks to the nearest stationary point of its quadratic model, be that a minimum,
    a saddle or a summit. ``update`` needs ``value_fn``, as Optax's line searches do.
    The parameters must be one vector.

    Args:
      learning_rate: :math:`\eta`.

    Returns:
      A :class:`optax.GradientTransformationExtraArgs`.

    Examples:
      >>> import jax, jax.numpy as jnp
      >>> from ctagd_optax import testbed
      >>> def f(x):
      ...     return jnp.sum(jnp.asarray([1.0, 4.0]) * x**2)
      >>> opt = testbed.newton()
      >>> x = jnp.ones(2)
      >>> step, _ = opt.update(jax.grad(f)(x), opt.init(x), x, value_fn=f)
      >>> print(x + step)
      [0. 0.]
    """

    def direction() -> optax.GradientTransformationExtraArgs:
        def update(updates, state, params=None, *, value_fn: Any = None, **extra_args):
            del extra_args
            _check_value_fn(value_fn)
            return jnp.linalg.solve(jax.hessian(value_fn)(params), updates), state

        return optax.GradientTransformationExtraArgs(
            lambda params: optax.EmptyState(), update
        )

    return optax.chain(direction(), optax.scale_by_learning_rate(learning_rate))


def inner_iterations(
    optimizer: optax.GradientTransformation,
    iterations: int,
    gradient_tolerance: float = 1e-5,
) -> optax.GradientTransformationExtraArgs:
    """Makes one step of several iterations of an optimizer on the same function.

    The paper's L-BFGS takes up to 20 iterations in what counts as one step.

    Args:
      optimizer: the optimizer to iterate.
      iterations: the most iterations in a step.
      gradient_tolerance: a step ends early when no entry of the gradient is larger.

    Returns:
      An optimizer whose ``update`` needs ``value_fn``.

    Examples:
      >>> import jax, jax.numpy as jnp, optax
      >>> from ctagd_optax import testbed
      >>> def f(x):
      ...     return jnp.sum(x**2)
      >>> opt = testbed.inner_iterations(optax.sgd(0.25), iterations=3)
      >>> x = jnp.ones(1)
      >>> step, _ = opt.update(jax.grad(f)(x), opt.init(x), x, value_fn=f)
      >>> print(x + step)
      [0.125]
    """
    optimizer = optax.with_extra_args_support(optimizer)

    def update(updates, state, params=None, *, value_fn: Any = None, **extra_args):
        del updates, extra_args
        _check_value_fn(value_fn)
        value_and_grad = jax.value_and_grad(value_fn)

        def unfinished(carry):
            i, _, _, (_, grad) = carry
            return (i < iterations) & (jnp.max(jnp.abs(grad)) > gradient_tolerance)

        def iterate(carry):
            i, point, inner, (value, grad) = carry
            step, inner = optimizer.update(
                grad, inner, point, value=value, grad=grad, value_fn=value_fn
            )
            point = optax.apply_updates(point, step)
            return i + 1, point, inner, value_and_grad(point)

        first = jnp.zeros((), jnp.int32), params, state, value_and_grad(params)
        _, end, state, _ = jax.lax.while_loop(unfinished, iterate, first)
        return jax.tree.map(jnp.subtract, end, params), state

    return optax.GradientTransformationExtraArgs(optimizer.init, update)


def _check_value_fn(value_fn: Any) -> None:
    if value_fn is None:
        raise ValueError(
            "value_fn must be given: call update(gradients, state, params, "
            "value_fn=loss)"
        )


def _momentum_sgd(rate: Any) -> optax.GradientTransformation:
    return optax.sgd(rate, momentum=0.85)


def _roster(settings: CTAGDSettings) -> dict[str, Optimizer]:
    robust = RobustSettings(settings.steps_per_epoch)
    # The clamp of the paper's appendix, by which a correction can be fifty gradients.
    appendix = dataclasses.replace(settings, curvature_min=1e-2, curvature_max=1e2)
    # The control: γ falls to λ_min whatever the curvature, and nothing is corrected.
    control = dataclasses.replace(
        settings, curvature_max=settings.curvature_min, correction_rate=0.0
    )

    def tuned(name, settings, backbone, paper_rate):
        return Optimizer(
            name,
            lambda rate: settings.wrap(backbone(rate)),
            paper_rate=paper_rate,
            settings=settings,
        )

    return {
        "robust": tuned("Robust (SGD)", robust, _momentum_sgd, 1e-2),
        "robust-adam": tuned("Robust (Adam)", robust, optax.adam, 1e-3),
        "sgd": Optimizer("SGD", _momentum_sgd, paper_rate=1e-2),
        "adam": Optimizer("Adam", optax.adam, paper_rate=1e-3),
        "ct-agd": tuned("CT-AGD", settings, _momentum_sgd, 1e-2),
        "ct-agd-adam": tuned("CT-AGD (Adam)", settings, optax.adam, 1e-3),
        "ct-agd-appendix": tuned("CT-AGD, appendix", appendix, _momentum_sgd, 1e-2),
        "gamma-min": tuned("γ = λ_min", control, _momentum_sgd, 1e-2),
        "l-bfgs": Optimizer(
            "L-BFGS",
            lambda rate: optax.lbfgs(rate, memory_size=10),
            paper=lambda rate: inner_iterations(optax.lbfgs(rate, memory_size=10), 20),
            paper_rate=1.0,
        ),
        "newton": Optimizer("Newton", newton, paper_rate=1.0),
    }


TABLE_OPTIMIZERS = tuple(_roster(CTAGDSettings()))
"""Keys of the table's optimizers: the robust method, the paper's five, CT-AGD with the
appendix's clamp, the γ = λ_min control, and Newton."""

PICTURE_OPTIMIZERS = (
    "robust",
    "robust-adam",
    "sgd",
    "adam",
    "ct-agd",
    "ct-agd-adam",
    "l-bfgs",
)
"""Keys of the optimizers that a picture shows unless told otherwise: as many as there
are colours that everyone can tell apart."""


def get_optimizer(name: str, settings: CTAGDSettings | None = None) -> Optimizer:
    """Finds an optimizer by name.

    Args:
      name: one of :data:`TABLE_OPTIMIZERS`, or a name in ``optax`` or
        ``optax.contrib``, with or without that prefix. Without a prefix the testbed's
        own come first: "sgd" has the paper's momentum, "optax.sgd" has none.
      settings: CT-AGD's constants; None is the defaults.

    Returns:
      The :class:`Optimizer`.

    Raises:
      ValueError: there is no such optimizer; the message has close matches.

    Examples:
      >>> from ctagd_optax import testbed
      >>> testbed.get_optimizer("ct-agd").name
      'CT-AGD'
      >>> testbed.get_optimizer("adamm")
      Traceback (most recent call last):
      ValueError: unknown optimizer 'adamm'; did you mean adam, radam, adamw?
    """
    own = _roster(settings or CTAGDSettings())
    key = name.strip().lower()
    if key in own:
        return own[key]
    found = optax_optimizers()
    for prefix in ("", "optax.", "optax.contrib."):
        if prefix + key in found:
            return found[prefix + key]
    short = {k.rpartition(".")[2] for k in found}
    close = difflib.get_close_matches(key.rpartition(".")[2], sorted({*own, *short}))
    advice = (
        f"did you mean {', '.join(close)}?"
        if close
        else f"try one of {', '.join(own)} or a name in optax"
    )
    raise ValueError(f"unknown optimizer {name!r}; {advice}")


def optax_optimizers() -> dict[str, Optimizer]:
    """All optimizers of ``optax`` and ``optax.contrib`` that a learning rate makes.

    Returns:
      Optimizers by full name, such as "optax.contrib.prodigy".

    Examples:
      >>> from ctagd_optax import testbed
      >>> "optax.contrib.prodigy" in testbed.optax_optimizers()
      True
    """
    return {
        f"{module.__name__}.{name}": Optimizer(name, make)
        for module in (optax, optax.contrib)
        for name, make in _members(module)
    }


def _members(module: ModuleType) -> list[tuple[str, Factory]]:
    members = []
    for name in dir(module):
        function = getattr(module, name)
        if name.startswith(("_", "scale_by_")) or not inspect.isfunction(function):
            continue
        parameters = inspect.signature(function).parameters
        required = {
            p.name
            for p in parameters.values()
            if p.default is p.empty and p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)
        }
        for rate in ("learning_rate", "max_learning_rate"):
            if rate in parameters and required <= {rate}:
                members.append((name, _with_rate(function, rate)))
                break
    return members


def _with_rate(function: Callable[..., Any], argument: str) -> Factory:
    return lambda rate: function(**{argument: rate})
