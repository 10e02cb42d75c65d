"""CT-AGD: curvature-tuned accelerated gradient descent for Optax."""

from ctagd_optax._ct_agd import CurvatureInfo, close_epoch, ct_agd
from ctagd_optax._curvature import CurvatureEstimate, CurvatureEstimator
from ctagd_optax._hutchinson import hutchinson
from ctagd_optax._instrumental import instrumental
from ctagd_optax._presets import ct_adam, ct_sgd
from ctagd_optax._quantile import tensor_quantile
from ctagd_optax._regression import regression
from ctagd_optax._report import (
    CurvatureReport,
    CurvatureRow,
    RobustRow,
    curvature_report,
)
from ctagd_optax._robust import RobustInfo, robust_ct_agd
from ctagd_optax._same_batch import same_batch
from ctagd_optax._secant import secant
from ctagd_optax._transform import CTAGDState, Step

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
    "instrumental",
    "regression",
    "robust_ct_agd",
    "same_batch",
    "secant",
    "tensor_quantile",
]
