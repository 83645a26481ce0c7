"""Bayesian recurrent neural networks: any nn.Module with distributions for weights."""

from bayesrnn.compression.pruning import Pruned, prune
from bayesrnn.core.bayesian import Bayesian
from bayesrnn.core.init import absolute, relative
from bayesrnn.core.langevin import Langevin
from bayesrnn.core.priors import ExactPrior, Gaussian, Prior, ScaleMixture, ScoredPrior
from bayesrnn.core.sharpening import Sharpening
from bayesrnn.core.weights import Weights
from bayesrnn.errors import BayesRNNError
from bayesrnn.uncertainty.predict import Prediction, predict
from bayesrnn.uncertainty.regression import Regression, RegressionPrediction

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
