"""Checks of arguments, with messages that say what would be right."""

import math
from typing import Any

import jax.numpy as jnp
import numpy as np
import optax
from jax.core import Tracer
from jax.typing import DTypeLike


def check_backbone(backbone: Any) -> None:
    """Checks that a backbone is an optimizer."""
    if not isinstance(backbone, optax.GradientTransformation):
        raise TypeError(
            "backbone must be an optax.GradientTransformation such as optax.sgd(1e-2), "
            f"got {type(backbone).__name__}"
        )


def check_choice(name: str, value: Any, known: tuple[str, ...]) -> None:
    """Checks that an argument is one of the known words."""
    if value not in known:
        raise ValueError(
            f"{name} must be one of {', '.join(map(repr, known))}; got {value!r}"
        )


def check_dtype(name: str, dtype: DTypeLike | None) -> None:
    """Checks that a dtype is real and floating-point, or None."""
    if dtype is not None and not jnp.issubdtype(dtype, jnp.floating):
        raise TypeError(
            f"{name} must be a real floating-point dtype, got {jnp.dtype(dtype).name}"
        )


def concrete(name: str, value: Any) -> float | None:
    """The number, or None where it is traced and cannot be checked."""
    if isinstance(value, Tracer):
        return None
    if isinstance(value, str) or np.ndim(value):
        raise TypeError(f"{name} must be a number, got {value!r}")
    try:
        return float(value)
    except TypeError as error:
        raise TypeError(f"{name} must be a number, got {value!r}") from error


def check_whole(name: str, value: Any) -> None:
    """Checks that a number of steps is a whole number of at least 1."""
    steps = concrete(name, value)
    if steps is not None and not (steps >= 1 and steps.is_integer()):
        raise ValueError(f"{name} must be a whole number of at least 1, got {value}")


def check_number(
    name: str,
    value: Any,
    low: float,
    high: float = math.inf,
    *,
    above: bool = False,
    infinite: bool = False,
) -> None:
    """Checks that a number is in range; a traced one is taken as it comes.

    Args:
      name: the argument.
      value: what it was given.
      low: the smallest value.
      high: the largest one.
      above: whether that itself is too small.
      infinite: whether infinity will do.
    """
    number = concrete(name, value)
    if number is None:
        return
    large = number > low if above else number >= low
    if not large or number > high or not (infinite or number < math.inf):
        finite = "" if infinite or high < math.inf else "finite and "
        bound = "above" if above else "at least"
        most = f" and at most {high:g}" if high < math.inf else ""
        raise ValueError(f"{name} must be {finite}{bound} {low:g}{most}, got {value}")
