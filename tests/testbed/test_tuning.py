"""The search: on other landscapes, by the train loss, the same for all."""

import numpy as np
import optax
import pytest

from ctagd_optax import testbed
from ctagd_optax.testbed._runner import Simulator
from ctagd_optax.testbed._tuning import choose, tune


def test_the_search_finds_the_rate_that_a_loop_finds():
    config = testbed.RunConfig(max_steps=200, patience=30)
    tuning = testbed.TuningConfig(rates=(0.0001, 0.3, 3.0), landscapes=3)
    optimizer = testbed.Optimizer("sgd", optax.sgd)
    landscape = testbed.LandscapeConfig(lumps=0).stationary()
    rate, trials, _ = tune(Simulator(optimizer, config, 4), landscape, 5, tuning)
    assert rate == 0.3
    # 3 overshoots the bowl, 0.0001 is not there yet.
    assert [trial.failures for trial in trials] == [3, 0, 3]
    batch = testbed.make_landscapes(3, 5, landscape, purpose="tuning")
    finals = []
    one = Simulator(optimizer, config, 1)
    for i in range(3):
        record, *_ = one(
            testbed.Landscape(
                quadratic=batch.quadratic[i : i + 1],
                sign=batch.sign[i : i + 1],
                train=batch.train[i : i + 1],
                test=batch.test[i : i + 1],
                start=batch.start[i : i + 1],
            ),
            np.asarray([0.3]),
        )
        finals.append(record.train_average[0, -1])
    assert trials[1].train_average == pytest.approx(
        float(np.mean(finals)), rel=1e-5, abs=1e-6
    )


def test_failures_come_first_then_loss_then_steps():
    safe = testbed.Trial(0.1, 0, -5.0, 300.0)
    deep = testbed.Trial(0.2, 1, -9.0, 100.0)
    assert choose([deep, safe], slack=0.25) is safe
    fast = testbed.Trial(0.3, 0, -4.9, 100.0)
    assert choose([safe, fast], slack=0.25) is fast
    assert choose([safe, fast], slack=0.05) is safe


@pytest.mark.parametrize("bad", [{"rates": ()}, {"rates": (0.0,)}, {"landscapes": 0}])
def test_bad_searches_are_refused(bad):
    [name] = bad
    with pytest.raises(ValueError, match=name):
        testbed.TuningConfig(**bad)
