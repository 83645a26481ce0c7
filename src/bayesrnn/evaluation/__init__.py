"""Functions from a predictor and data to numbers. Never trains."""

from bayesrnn.evaluation.likelihood import Likelihood, likelihood, target_log_probs
from bayesrnn.evaluation.prediction import Prediction, predict

__all__ = ["Likelihood", "Prediction", "likelihood", "predict", "target_log_probs"]
