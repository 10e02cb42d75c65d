"""Small problems that many tests share."""

import jax
import jax.numpy as jnp
import optax

CURVATURE = {"w": jnp.asarray([[1.0, 2.0], [4.0, 8.0]]), "b": jnp.asarray([0.5, 3.0])}


def params(dtype=jnp.float32):
    """Parameters of a diagonal quadratic, away from its minimum at 0."""
    return {
        "w": jnp.asarray([[1.0, -2.0], [3.0, -1.0]], dtype),
        "b": jnp.asarray([2.0, -3.0], dtype),
    }


def loss(x):
    """A quadratic whose Hessian is diagonal, with entries CURVATURE."""
    return sum(
        jnp.sum(a.astype(p.dtype) * p**2) / 2
        for a, p in zip(jax.tree.leaves(CURVATURE), jax.tree.leaves(x), strict=True)
    )


def train(opt, x, steps, objective=loss, **extra):
    """Runs an optimizer in a jitted scan; returns parameters and state."""

    def step(carry, _):
        x, state = carry
        updates, state = opt.update(jax.grad(objective)(x), state, x, **extra)
        return (optax.apply_updates(x, updates), state), None

    run = jax.jit(lambda carry: jax.lax.scan(step, carry, length=steps)[0])
    return run((x, opt.init(x)))
