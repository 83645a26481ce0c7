"""Bayesian recurrent neural networks: any nn.Module with distributions for weights."""

from bayesrnn.compression import Pruned, prune
from bayesrnn.core import (
    Bayesian,
    ExactPrior,
    Gaussian,
    Langevin,
    Prior,
    ScaleMixture,
    ScoredPrior,
    Sharpening,
    Weights,
    absolute,
    relative,
)
from bayesrnn.errors import BayesRNNError
from bayesrnn.evaluation import Prediction, Regression, RegressionPrediction, predict

__version__ = "0.1.0"

__all__ = [
    "BayesRNNError",
    "Bayesian",
    "ExactPrior",
    "Gaussian",
    "Langevin",
    "Prediction",
    "Prior",
    "Pruned",
    "Regression",
    "RegressionPrediction",
    "ScaleMixture",
    "ScoredPrior",
    "Sharpening",
    "Weights",
    "__version__",
    "absolute",
    "predict",
    "prune",
    "relative",
]
