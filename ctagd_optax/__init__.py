"""Curvature-tuned training for Optax: ``robust_ct_agd``, and the paper's CT-AGD."""

from ctagd_optax._ct_agd import CurvatureInfo, close_epoch, ct_agd
from ctagd_optax._estimators.base import CurvatureEstimate, CurvatureEstimator
from ctagd_optax._estimators.hutchinson import hutchinson
from ctagd_optax._estimators.same_batch import same_batch
from ctagd_optax._estimators.secant import secant
from ctagd_optax._presets import ct_adam, ct_sgd
from ctagd_optax._quantile import tensor_quantile
from ctagd_optax._report import (
    CurvatureReport,
    CurvatureRow,
    RobustRow,
    curvature_report,
    learning_rate_multiplier,
)
from ctagd_optax._robust import RobustInfo, robust_ct_agd
from ctagd_optax._wrapper import CTAGDState, Step

__version__ = "0.1.0"

__all__ = [
    "CTAGDState",
    "CurvatureEstimate",
    "CurvatureEstimator",
    "CurvatureInfo",
    "CurvatureReport",
    "CurvatureRow",
    "RobustInfo",
    "RobustRow",
    "Step",
    "close_epoch",
    "ct_adam",
    "ct_agd",
    "ct_sgd",
    "curvature_report",
    "hutchinson",
    "learning_rate_multiplier",
    "robust_ct_agd",
    "same_batch",
    "secant",
    "tensor_quantile",
]
