"""The mathematics: priors, the posterior, and the network that carries it."""

from bayesrnn.core.arithmetic import inverse_softplus
from bayesrnn.core.bayesian import Bayesian
from bayesrnn.core.functional import run_with
from bayesrnn.core.kernel import kernel_for
from bayesrnn.core.langevin import Langevin
from bayesrnn.core.noise import Noise, draw_seed
from bayesrnn.core.norms import total_norm
from bayesrnn.core.priors import (
    ExactPrior,
    Gaussian,
    Grouping,
    Prior,
    ScaleMixture,
    ScoredPrior,
)
from bayesrnn.core.scales import Scale, absolute, relative
from bayesrnn.core.sharpening import Sharpening
from bayesrnn.core.weights import Weights

__all__ = [
    "Bayesian",
    "ExactPrior",
    "Gaussian",
    "Grouping",
    "Langevin",
    "Noise",
    "Prior",
    "Scale",
    "ScaleMixture",
    "ScoredPrior",
    "Sharpening",
    "Weights",
    "absolute",
    "draw_seed",
    "inverse_softplus",
    "kernel_for",
    "relative",
    "run_with",
    "total_norm",
]
