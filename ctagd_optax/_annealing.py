"""How the divisor γ falls back to 1 within an epoch."""

from collections.abc import Callable

import jax
import jax.numpy as jnp

Annealing = Callable[[jax.Array, jax.Array, jax.Array], jax.Array]


def _linear(gamma, fraction, step):
    r"""Paper: :math:`\gamma_{k,t} = \gamma_k - (\gamma_k - 1)\, t / T`."""
    del step
    return gamma - (gamma - 1.0) * fraction


def _exponential(gamma, fraction, step):
    r"""Our reading of "factor ½": :math:`\gamma_{k,t} = 1 + (\gamma_k - 1) / 2^t`."""
    del fraction
    annealed = 1.0 + (gamma - 1.0) * 0.5 ** step.astype(gamma.dtype)
    return jnp.where(annealed > 0, annealed, gamma)  # 1 + (γ - 1) may round to 0


def _none(gamma, fraction, step):
    del fraction, step
    return gamma


_BY_NAME: dict[str, Annealing] = {
    "linear": _linear,
    "exponential": _exponential,
    "none": _none,
}


def get_annealing(annealing: str | Annealing) -> Annealing:
    """Looks up an annealing by name; a function is returned as it is.

    Args:
      annealing: a known name, or a function of the divisors γ_k (a vector, one entry a
        tensor), the fraction t / T of the epoch done, and the step t, that returns the
        divisors γ_{k,t}.

    Returns:
      The function.
    """
    if callable(annealing):
        return annealing
    if not isinstance(annealing, str) or annealing not in _BY_NAME:
        raise ValueError(
            f"annealing must be a function or one of {', '.join(map(repr, _BY_NAME))}; "
            f"got {annealing!r}"
        )
    return _BY_NAME[annealing]
