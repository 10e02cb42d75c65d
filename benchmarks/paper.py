"""The paper's own numbers, by workload and arm, to stand beside ours.

Accuracies are in %, as printed. The paper does not say what its ± is; at least five
runs are behind each number.
"""

import dataclasses
from typing import NamedTuple

from benchmarks.analysis.curves import saving
from ctagd_optax.testbed import Interval

Column = dict[str, Interval]


@dataclasses.dataclass(frozen=True)
class Numbers:
    """The paper's numbers on a workload; columns have arms as keys.

    Attributes:
      cutoff: the accuracy that counts as arrived, for all arms.
      best: best test accuracies.
      epochs_to_cutoff: epochs to the cutoff.
      seconds_to_cutoff: seconds to the cutoff, on a V100S.
      epochs_to_final: epochs to within 5 % of each run's own last accuracy.
      train_accuracy: last training accuracies, where they are given instead.
    """

    cutoff: float | None = None
    best: Column = dataclasses.field(default_factory=dict)
    epochs_to_cutoff: Column = dataclasses.field(default_factory=dict)
    seconds_to_cutoff: Column = dataclasses.field(default_factory=dict)
    epochs_to_final: Column = dataclasses.field(default_factory=dict)
    train_accuracy: Column = dataclasses.field(default_factory=dict)

    def saving(self, arm: str, backbone: str) -> float | None:
        """Epochs to the cutoff that an arm saves, in %; None where one has none."""
        if not {arm, backbone} <= self.epochs_to_cutoff.keys():
            return None
        return saving(
            self.epochs_to_cutoff[arm].mean, self.epochs_to_cutoff[backbone].mean
        )


class Ablation(NamedTuple):
    """A row of the paper's ablations, ResNet-20 on CIFAR-10.

    Attributes:
      ingredients: what it is about; none for SGD, which both tables have.
      setting: what was changed.
      optimizer: the arm that has it so.
      best: best test accuracy.
      epochs_to_final: epochs to within 5 % of each run's own last accuracy.
    """

    ingredients: tuple[str, ...]
    setting: str
    optimizer: str
    best: Interval
    epochs_to_final: Interval


def _column(**pairs: tuple[float, float]) -> Column:
    # The paper's runs have the clamp of its appendix, our defaults have not.
    return {
        f"{arm}_appendix" if arm.startswith("ct_") else arm: Interval(*pair)
        for arm, pair in pairs.items()
    }


NUMBERS: dict[str, Numbers] = {
    "cifar10_resnet20": Numbers(
        85.7,
        best=_column(
            ct_sgd=(90.05, 0.36),
            sgd=(90.35, 0.14),
            adam=(89.20, 0.38),
            ct_adam=(88.82, 0.09),
            lbfgs=(82.79, 6.42),
        ),
        epochs_to_cutoff=_column(
            ct_sgd=(24.0, 2.9), sgd=(32.4, 3.4), adam=(39.8, 3.7), ct_adam=(34.2, 3.4)
        ),
        seconds_to_cutoff=_column(
            ct_sgd=(255.13, 30.17),
            sgd=(316.81, 28.85),
            adam=(388.12, 37.54),
            ct_adam=(374.33, 36.40),
            lbfgs=(16295.83, 3140.84),
        ),
        epochs_to_final=_column(
            ct_sgd=(28.20, 2.22),
            sgd=(44.00, 3.29),
            adam=(39.20, 3.09),
            ct_adam=(31.40, 2.08),
            lbfgs=(90.60, 29.50),
        ),
    ),
    "cifar100_resnet20": Numbers(
        61.2,
        best=_column(
            ct_sgd=(64.70, 0.32),
            sgd=(64.10, 0.53),
            adam=(61.86, 0.55),
            ct_adam=(61.57, 0.39),
        ),
        epochs_to_cutoff=_column(
            ct_sgd=(42.2, 1.4),
            sgd=(85.0, 5.0),
            adam=(117.8, 31.2),
            ct_adam=(121.4, 16.8),
        ),
        seconds_to_cutoff=_column(
            ct_sgd=(463.03, 15.86),
            sgd=(857.62, 54.83),
            adam=(1179.86, 306.30),
            ct_adam=(1335.25, 190.49),
        ),
        epochs_to_final=_column(
            ct_sgd=(48.00, 2.91),
            sgd=(88.60, 7.43),
            adam=(75.20, 2.69),
            ct_adam=(72.00, 6.74),
        ),
    ),
    "tiny_imagenet_resnet20": Numbers(
        44.3,
        best=_column(ct_sgd=(46.24, 0.52), sgd=(46.88, 0.49), adam=(44.28, 0.60)),
        epochs_to_cutoff=_column(
            ct_sgd=(116.5, 5.5), sgd=(113.0, 6.4), adam=(145.2, 17.7)
        ),
        seconds_to_cutoff=_column(
            ct_sgd=(4343.79, 207.09), sgd=(3660.27, 202.14), adam=(4771.47, 660.88)
        ),
        epochs_to_final=_column(
            ct_sgd=(108.50, 7.50), sgd=(120.00, 8.91), adam=(105.60, 7.78)
        ),
    ),
    "cifar10_wrn28_4": Numbers(
        88.9,
        best=_column(
            ct_sgd=(93.68, 0.15),
            sgd=(93.69, 0.19),
            adam=(93.35, 0.09),
            ct_adam=(92.36, 0.23),
        ),
        epochs_to_cutoff=_column(
            ct_sgd=(18.8, 1.6), sgd=(22.8, 5.2), adam=(28.8, 5.2), ct_adam=(23.6, 1.4)
        ),
        seconds_to_cutoff=_column(
            ct_sgd=(388.66, 33.75),
            sgd=(416.61, 95.57),
            adam=(525.29, 93.24),
            ct_adam=(524.07, 31.57),
        ),
        epochs_to_final=_column(
            ct_sgd=(23.00, 0.88),
            sgd=(33.80, 4.25),
            adam=(40.00, 7.02),
            ct_adam=(23.00, 1.24),
        ),
    ),
    "cifar100_wrn28_4": Numbers(
        70.2,
        best=_column(
            ct_sgd=(73.84, 0.42),
            sgd=(74.12, 0.44),
            adam=(74.05, 0.20),
            ct_adam=(72.09, 0.24),
        ),
        epochs_to_cutoff=_column(
            ct_sgd=(31.2, 6.0), sgd=(62.0, 3.6), adam=(83.8, 9.8), ct_adam=(57.8, 3.2)
        ),
        seconds_to_cutoff=_column(
            ct_sgd=(666.94, 132.49),
            sgd=(1140.35, 66.81),
            adam=(1542.87, 185.55),
            ct_adam=(1283.09, 72.73),
        ),
        epochs_to_final=_column(
            ct_sgd=(37.80, 3.66),
            sgd=(67.80, 1.62),
            adam=(100.40, 2.26),
            ct_adam=(45.20, 5.51),
        ),
    ),
    "tiny_imagenet_wrn28_4": Numbers(
        55.5,
        best=_column(ct_sgd=(58.69, 0.48), sgd=(58.69, 0.50), adam=(57.11, 0.29)),
        epochs_to_cutoff=_column(
            ct_sgd=(54.5, 9.6), sgd=(80.4, 13.8), adam=(87.8, 9.7)
        ),
        seconds_to_cutoff=_column(
            ct_sgd=(9382.40, 2322.14), sgd=(11015.84, 1881.44), adam=(12000.42, 1317.28)
        ),
        epochs_to_final=_column(
            ct_sgd=(63.25, 5.42), sgd=(96.40, 11.77), adam=(80.40, 5.99)
        ),
    ),
    "tiny_imagenet_deit12": Numbers(
        30.4,
        best=_column(ct_sgd=(31.87, 0.32), sgd=(31.31, 0.35), adam=(32.61, 0.31)),
        epochs_to_cutoff=_column(
            ct_sgd=(35.6, 3.7), sgd=(91.2, 49.6), adam=(96.2, 8.4)
        ),
        seconds_to_cutoff=_column(
            ct_sgd=(3785.37, 415.78), sgd=(8598.44, 4677.69), adam=(9132.21, 799.30)
        ),
        epochs_to_final=_column(
            ct_sgd=(37.00, 2.32), sgd=(47.00, 8.14), adam=(115.40, 14.76)
        ),
    ),
    "reddit_graphsage": Numbers(
        epochs_to_final=_column(
            adam=(23.4, 0.5), ct_adam=(23.2, 0.4), ct_sgd=(18.8, 0.8), sgd=(27.8, 0.4)
        ),
        train_accuracy=_column(
            adam=(97.60, 0.0), ct_adam=(97.60, 0.0), ct_sgd=(93.30, 0.0), sgd=(92.80, 0)
        ),
    ),
}

# The paper has four results for CT-AGD with all its defaults: these under λ in
# [0.01, 100], noise 0 and ω = 0.1 (the numbers of λ in [0.001, 1000]), and that above.
ABLATIONS: tuple[Ablation, ...] = tuple(
    Ablation(ingredients, setting, optimizer, Interval(*best), Interval(*epochs))
    for ingredients, setting, optimizer, best, epochs in (
        (
            ("clamp",),
            "λ in [0.1, 10]",
            "ct_sgd",
            (90.13, 0.15),
            (24.60, 2.86),
        ),
        (
            ("clamp",),
            "λ in [0.01, 100]",
            "ct_sgd_appendix",
            (90.01, 0.22),
            (26.20, 4.16),
        ),
        (
            ("clamp",),
            "λ in [0.001, 1000]",
            "ct_sgd_appendix:curvature_max=1000,curvature_min=0.001",
            (90.23, 0.22),
            (25.80, 1.25),
        ),
        (
            ("noise",),
            "noise of variance 0",
            "ct_sgd_appendix",
            (90.09, 0.16),
            (23.67, 1.49),
        ),
        (
            ("noise",),
            "noise of variance 0.01",
            "ct_sgd_appendix:noise_std=0.1",
            (90.07, 0.23),
            (25.80, 2.39),
        ),
        (
            ("noise",),
            "noise of variance 0.1",
            "ct_sgd_appendix:noise_std=0.31622776601683794",
            (90.12, 0.14),
            (24.80, 1.04),
        ),
        (
            ("annealing",),
            "no annealing",
            "ct_sgd_appendix:annealing=none",
            (50.96, 3.82),
            (2.20, 0.56),
        ),
        (
            ("annealing",),
            "exponential annealing",
            "ct_sgd_appendix:annealing=exponential",
            (90.32, 0.35),
            (27.40, 5.31),
        ),
        (
            ("annealing", "weighting"),
            "linear annealing",
            "ct_sgd_appendix",
            (90.01, 0.22),
            (26.20, 4.16),
        ),
        (
            ("weighting",),
            "average without weights",
            "ct_sgd_appendix:weighting=uniform",
            (90.05, 0.29),
            (26.80, 1.62),
        ),
        (("quantile",), "ω = 0.1", "ct_sgd_appendix", (90.23, 0.22), (25.80, 1.25)),
        (
            ("quantile",),
            "ω = 0.2",
            "ct_sgd_appendix:quantile=0.2",
            (90.16, 0.26),
            (23.80, 3.21),
        ),
        (
            ("quantile",),
            "ω = 0.5",
            "ct_sgd_appendix:quantile=0.5",
            (90.18, 0.11),
            (35.80, 3.87),
        ),
        ((), "SGD", "sgd", (90.35, 0.14), (44.00, 3.29)),
    )
)
