"""Ablations: a method with one thing changed at a time."""

import math

from benchmarks.specs import with_options
from benchmarks.study.compare import Entry, entry

# What the ablations change of CT-AGD, one at a time: first the paper's, then ours.
_CHANGES = (
    "curvature_max=1000,curvature_min=0.001",
    "noise_std=0.1",  # the paper states variances: 0.01 and 0.1
    f"noise_std={math.sqrt(0.1)}",
    "annealing=none",
    "annealing=exponential",
    "weighting=uniform",
    "quantile=0.2",
    "quantile=0.5",
    "pairing=algorithm",
    "unobserved=skip",
    "correction_rate=0.05",
    "correction_rate=0.005",
    "eps=1e-5",
    "eps=1e-8",
)

# By method: the arms that have one thing changed.
ABLATIONS = {
    "ct_sgd": (
        "ct_sgd_appendix",
        "ct_sgd_no_correction",
        *(f"ct_sgd:{change}" for change in _CHANGES),
    ),
    "ct_sgd_appendix": (
        "ct_sgd",
        "ct_sgd_no_correction:curvature_max=100,curvature_min=0.01",
        *(f"ct_sgd_appendix:{change}" for change in _CHANGES),
    ),
    "robust_sgd": (
        "robust_sgd:target=1",
        "robust_sgd:target=3",
        "robust_sgd:confidence=0",
        "robust_sgd:confidence=2",
        "robust_sgd:pooling=tensor",
        "robust_sgd:multiplier_max=10",
        "robust_sgd:multiplier_max=40",
    ),
}


def ablation_arms(
    method: str = "ct_sgd", learning_rate: float | None = None
) -> tuple[Entry, ...]:
    """SGD, a method, and the method with one thing changed.

    Args:
      method: "ct_sgd", "ct_sgd_appendix" (the paper's own ablations), or "robust_sgd",
        which the sawtooth joins as its control.
      learning_rate: of all of them; None is the paper's.
    """
    if method not in ABLATIONS:
        known = ", ".join(ABLATIONS)
        raise ValueError(f"optimizer must be one of {known}; got {method!r}")
    arms = [Entry("sgd", "backbone")]
    if method == "robust_sgd":
        arms.append(Entry("sawtooth_control", "control"))
    arms.append(entry(method))
    arms += [Entry(spec, "control") for spec in ABLATIONS[method]]
    if learning_rate is None:
        return tuple(arms)
    return tuple(
        Entry(with_options(spec, learning_rate=learning_rate), role)
        for spec, role in arms
    )
