"""Running sums, wide and narrow."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ctagd_optax._sums import accumulate, accumulators, values


@pytest.mark.parametrize(("dtype", "kept"), [("float64", True), ("float32", False)])
def test_sums_keep_their_bits(dtype, kept):
    total = accumulate(
        jnp.asarray(1.0, dtype), jnp.asarray(1e-9, "float32"), jnp.asarray(1)
    )
    assert total.dtype == dtype
    assert (total > 1) == kept


def test_rounding_of_narrow_sums_cancels(default_jax):
    # Each term but the first is below half of the sum's last digit.
    @jax.jit
    def run(total):
        def step(total, t):
            term = jnp.where(t == 0, -1.0, -(2.0**-20))
            return accumulate(total, jnp.full((50,), term), t), None

        return values(jax.lax.scan(step, total, jnp.arange(10_000))[0])

    zeros = accumulators(jnp.zeros(50), jnp.bfloat16)
    np.testing.assert_allclose(run(zeros), -1 - 9999 / 2**20, rtol=1e-4)
    for value in (np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, 1e-42, 3.4028e38):
        term = jnp.full((50,), value, jnp.float32)
        kept = values(accumulate(zeros, term, jnp.asarray(1)))
        np.testing.assert_allclose(kept, value, rtol=2e-5, atol=1e-42)
