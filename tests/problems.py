"""Small problems that many tests share."""

import jax
import jax.numpy as jnp
import numpy as np
import optax

import ctagd_optax

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


def rotated_hessian(size):
    """A full Hessian with eigenvalues from 0.1 to 10."""
    rotation, _ = np.linalg.qr(np.random.default_rng(0).standard_normal((size, size)))
    return jnp.asarray((rotation * np.logspace(-1, 1, size)) @ rotation.T)


def observed_step(t, x, gradients, updates, epoch=0):
    """A step as an estimator sees it."""
    sizes = tuple(jnp.max(jnp.abs(g), initial=0) for g in jax.tree.leaves(gradients))
    tensors = (len(sizes),)
    return ctagd_optax.Step(
        epoch=jnp.asarray(epoch, jnp.int32),
        epoch_step=jnp.asarray(t, jnp.int32),
        sizes=sizes,
        figures=None,
        left_out=jnp.zeros(tensors, jnp.int32),
        gradients=gradients,
        params=x,
        updates=updates,
        gamma=jnp.ones(tensors, jnp.float32),
        schedule=jnp.ones((), jnp.float32),
    )


def estimate(estimator, x, samples, objective, backbone=None, eps=0.0):
    """What an estimator makes of an epoch of SGD with momentum, a step a sample.

    The objective is a function of the parameters and the sample.
    """
    backbone = optax.sgd(0.01, momentum=0.85) if backbone is None else backbone

    def step(carry, sample):
        t, x, state, (evidence, memory) = carry
        grad_fn = jax.grad(lambda x: objective(x, sample))
        gradients = grad_fn(x)
        updates, state = backbone.update(gradients, state, x)
        seen = observed_step(t, x, gradients, updates)
        kept = (
            estimator.observe(
                evidence,
                memory,
                seen,
                eps,
                grad_fn=grad_fn,
                obj_fn=lambda x: objective(x, sample),
            ),
            estimator.remember(memory, seen),
        )
        return (t + 1, optax.apply_updates(x, updates), state, kept), None

    @jax.jit
    def run(x, samples):
        start = jnp.zeros((), jnp.int32), x, backbone.init(x), estimator.init(x, None)
        (*_, (evidence, _)), _ = jax.lax.scan(step, start, samples)
        return estimator.estimate(evidence, eps)

    return run(x, samples)
