"""Functions from a predictor and data to numbers. Never trains, but for copies."""

from bayesrnn.evaluation.bound import (
    BoundedLikelihood,
    example_minibatches,
    likelihood_bound,
    text_minibatches,
)
from bayesrnn.evaluation.classification import Classification, calibration_error, classification
from bayesrnn.evaluation.dynamic import (
    GradientDescent,
    RootMeanSquare,
    dynamic_log_probs,
    gradient_statistics,
)
from bayesrnn.evaluation.likelihood import Likelihood, likelihood, target_log_probs
from bayesrnn.evaluation.prediction import Prediction, predict

__all__ = [
    "BoundedLikelihood",
    "Classification",
    "GradientDescent",
    "Likelihood",
    "Prediction",
    "RootMeanSquare",
    "calibration_error",
    "classification",
    "dynamic_log_probs",
    "example_minibatches",
    "gradient_statistics",
    "likelihood",
    "likelihood_bound",
    "predict",
    "target_log_probs",
    "text_minibatches",
]
