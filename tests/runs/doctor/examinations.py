"""Examinations of runs that were never trained."""

from dataclasses import replace
from pathlib import Path

from bayesrnn.runs.calibration import Calibration
from bayesrnn.runs.doctor.course import Course
from bayesrnn.runs.doctor.examination import Examination, Nats, Settings, Validation
from bayesrnn.runs.doctor.gradients import GradientNoise, TrainingLoss
from bayesrnn.runs.doctor.posterior import EDGES, TensorReport, Widths
from bayesrnn.runs.held_out import PredictionScore
from bayesrnn.runs.verdict import KeptVerdict, Verdict
from bayesrnn.uncertainty.fitting import FittedScaling
from bayesrnn.uncertainty.scaling import Scaling

BINS = len(EDGES) - 1


def tensor(sd=1.0, at_prior=0.5, mean=0.5, mean_correlation=0.4, start=None, name="output.weight"):
    """The report of a tensor whose widths have learnt, unless asked otherwise."""
    histogram = tuple(range(BINS))
    widths = Widths((0.2, 1.6, 9.0), mean, sd, start, histogram=histogram)
    return TensorReport(name, 1000, 500.0, at_prior, mean_correlation, histogram, widths)


def course(**changes):
    """A training that fell and came to rest."""
    well = Course(planned=3, valid=(90.0, 60.1, 60.0), best=3, clipped=0.1, norms=3.0)
    return replace(well, **changes)


def nats(mean=3.8, draws=3.9, base=6.0, kl=4.0, kl_weight=0.2):
    """A network whose weights bring more than they cost."""
    return Nats(TrainingLoss(mean, draws, 10_000), base, kl, kl_weight)


def validation(mean=3.9, draws=3.88, mean_entropy=3.89, draws_entropy=3.87):
    """Draws that beat the mean, and know how sure they may be."""
    scores = (PredictionScore(mean, mean_entropy, 500), PredictionScore(draws, draws_entropy, 500))
    return Validation(*scores, samples=10)


#: What `--recipe paper` trains with, and what the tuned recipe does.
PAPER = Settings({"prior": "mixture", "sigma_lr": 0.0, "kl_weight": 1.0}, hold_epochs=4, decay=0.5)
TUNED = Settings(
    {"prior": "fitted", "sigma_lr": 1.0, "kl_weight": 0.12},
    average=0.998,
    hold_epochs=11,
    decay=0.5,
)
DROPOUT = Settings({"dropout": 0.5}, hold_epochs=4, decay=0.5)
IVON = Settings({"prior_sigma": 1.0, "hess_init": 0.1}, can_average=False, own_optimiser=True)


def calibration(noise=0.9, draws_fitted=3.8, whole=False):
    """A calibration after which draws beat the mean."""
    scaling = Scaling(noise=noise, temperature=1.1, mean_temperature=1.2)
    fitted = FittedScaling(scaling, 10, 4000, 3.95, 3.9, 3.92, draws_fitted)
    return Calibration(300, samples=10, seed=1, unit="word", fitted=fitted, whole=whole)


def verdict(*findings, predictions=2000, unit="word", step=300):
    """A verdict that is kept, on the step that is examined."""
    return KeptVerdict(step, Verdict(findings, predictions, unit))


def examination(**changes):
    """An examination in which nothing is wrong, but for the changes."""
    well = Examination(
        path=Path("runs/mine"),
        method="bbb",
        task="lm",
        measure="perplexity",
        step=300,
        checkpoint="best",
        minibatches=100,
        clip=5.0,
        course=course(),
        nats=nats(),
        tensors=(tensor(),),
        gradients={"mu": GradientNoise(1.0, 4.0), "rho": GradientNoise(0.0, 2.0)},
        validation=validation(),
        settings=PAPER,
    )
    return replace(well, **changes)


def without_posterior(**changes):
    """An examination of a method that has none."""
    return examination(
        method="dropout",
        **{
            "tensors": (),
            "nats": nats(kl=None),
            "settings": DROPOUT,
            "left_out": ["widths, prior and KL: dropout has no posterior over weights"],
            **changes,
        },
    )
