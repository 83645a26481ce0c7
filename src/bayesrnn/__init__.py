"""Bayesian recurrent neural networks: any nn.Module with distributions for weights."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bayesrnn import metrics, nn
    from bayesrnn.compression.pruning import Pruned, prune
    from bayesrnn.core.bayesian import Bayesian
    from bayesrnn.core.init import absolute, relative
    from bayesrnn.core.langevin import Langevin
    from bayesrnn.core.loading import load
    from bayesrnn.core.objective import elbo
    from bayesrnn.core.priors import (
        ExactPrior,
        FittedGaussian,
        Gaussian,
        Prior,
        ScaleMixture,
        ScoredPrior,
        SquaresPrior,
    )
    from bayesrnn.core.sharpening import Sharpening
    from bayesrnn.core.weights import Weights
    from bayesrnn.core.widths import WidthSGD
    from bayesrnn.data.reading import read_series
    from bayesrnn.data.series import Frequency, Series, SeriesSet
    from bayesrnn.errors import BayesRNNError
    from bayesrnn.training.fit import Fit, fit
    from bayesrnn.uncertainty.export import export
    from bayesrnn.uncertainty.heads import Binary, Classes, MultiLabel, Prediction
    from bayesrnn.uncertainty.kept import KeptDraws
    from bayesrnn.uncertainty.predict import predict
    from bayesrnn.uncertainty.regression import Regression, RegressionPrediction

    #: Tasks are above the public face, which hands this one on without importing it.
    Forecaster: Any

__version__ = "0.1.0"

__all__ = [
    "BayesRNNError",
    "Bayesian",
    "Binary",
    "Classes",
    "ExactPrior",
    "Fit",
    "FittedGaussian",
    "Forecaster",
    "Frequency",
    "Gaussian",
    "KeptDraws",
    "Langevin",
    "MultiLabel",
    "Prediction",
    "Prior",
    "Pruned",
    "Regression",
    "RegressionPrediction",
    "ScaleMixture",
    "ScoredPrior",
    "Series",
    "SeriesSet",
    "Sharpening",
    "SquaresPrior",
    "Weights",
    "WidthSGD",
    "__version__",
    "absolute",
    "elbo",
    "export",
    "fit",
    "load",
    "metrics",
    "nn",
    "predict",
    "prune",
    "read_series",
    "relative",
]

#: The module of each name. It is imported when the name is first used: `bayesrnn --help` must not
#: wait for torch.
_HOMES = {
    "compression.pruning": ("Pruned", "prune"),
    "core.bayesian": ("Bayesian",),
    "core.init": ("absolute", "relative"),
    "core.langevin": ("Langevin",),
    "core.loading": ("load",),
    "core.objective": ("elbo",),
    "core.priors": (
        "ExactPrior",
        "FittedGaussian",
        "Gaussian",
        "Prior",
        "ScaleMixture",
        "ScoredPrior",
        "SquaresPrior",
    ),
    "core.sharpening": ("Sharpening",),
    "core.weights": ("Weights",),
    "core.widths": ("WidthSGD",),
    "data.reading": ("read_series",),
    "data.series": ("Frequency", "Series", "SeriesSet"),
    "errors": ("BayesRNNError",),
    "tasks.forecast.forecaster": ("Forecaster",),
    "training.fit": ("Fit", "fit"),
    "uncertainty.export": ("export",),
    "uncertainty.heads": ("Binary", "Classes", "MultiLabel", "Prediction"),
    "uncertainty.kept": ("KeptDraws",),
    "uncertainty.predict": ("predict",),
    "uncertainty.regression": ("Regression", "RegressionPrediction"),
}

#: Names that are modules.
_MODULES = ("metrics", "nn")


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f"{__name__}.{name}")
    for module, names in _HOMES.items():
        if name in names:
            return getattr(import_module(f"{__name__}.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
