"""Examine a run of any task."""

from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from torch import Tensor, nn

from bayesrnn.core.bayesian import Bayesian
from bayesrnn.errors import ConfigError, RunError
from bayesrnn.methods.base import Method
from bayesrnn.progress import progress_bar
from bayesrnn.random import RandomStreams, seeded
from bayesrnn.runs.arguments import DataOptions
from bayesrnn.runs.doctor.course import read_course
from bayesrnn.runs.doctor.examination import Examination, Nats, Settings, Validation
from bayesrnn.runs.doctor.gradients import (
    MINIBATCHES,
    gradient_noise,
    predictions_of,
    training_loss,
)
from bayesrnn.runs.doctor.posterior import tensor_reports
from bayesrnn.runs.held_out import HeldOut, PredictionScore, score
from bayesrnn.runs.load import make_method
from bayesrnn.runs.places import moved
from bayesrnn.runs.task import Task, TrainedRun
from bayesrnn.runs.verdict import read_verdict
from bayesrnn.training.kept_files import read_metrics
from bayesrnn.uncertainty.draws import Draws
from bayesrnn.uncertainty.scaling import UNSCALED, Scaling

#: Validation predictions that the mean weights and draws are scored on, at most.
MOST = 20_000


def examine(
    task: Task[Any, Any],
    path: Path,
    checkpoint: str = "best",
    device: str = "auto",
    samples: int = 10,
    seed: int = 1,
    where: DataOptions | None = None,
    most: int = MOST,
) -> Examination:
    """Examine a run of a task; `where` says where its data are now.

    most: validation predictions that the mean weights and draws are scored on.
    """
    if path.is_file():
        raise ConfigError(f"{path} is a file; doctor takes the folder of a run")
    run = moved(task, task.open_run(path, checkpoint, device), where or DataOptions())
    data = task.load_for(run)
    if run.fingerprint is not None and task.fingerprint(data) != run.fingerprint:
        raise RunError(
            f"the training data is not what {path} was trained on; give back the same data"
        )
    anew = build_anew(task, run)
    problem = task.problem(run.config, data, anew.method, anew.net, run.device)
    held_out = task.held_out(run, data, most)
    with progress_bar(2 * MINIBATCHES, " minibatches", "reading training data") as bar:
        train = training_loss(anew.method, anew.net, problem, seed, bar.update)
        gradients = {}
        if not run.method.own_optimiser:
            gradients = gradient_noise(anew.method, anew.net, problem, bar.update)
    tensors = []
    if anew.posterior is not None:
        tensors = tensor_reports(anew.posterior, anew.start, seeded(seed))
    measure, clip = task.measure(run.files.__getitem__), run.config.clip or None
    calibration = run.calibrated()
    records, batches = read_metrics(path), problem.minibatches(0)
    rounds = run.method.round_epochs(run.config.options, run.config.epochs)
    validation = None
    if held_out is not None:
        scaling = UNSCALED if calibration is None else calibration.scaling
        validation = _validation(run, held_out, samples, seed, scaling)
    return Examination(
        path=path,
        method=run.config.method,
        task=task.name,
        measure=measure.title,
        step=run.step,
        checkpoint=checkpoint,
        minibatches=len(batches),
        clip=clip,
        course=read_course(records, measure, rounds, clip),
        nats=Nats(
            train=train,
            base=None if held_out is None else held_out.base_nll(),
            kl=sum(one.kl for one in tensors) / predictions_of(batches) if tensors else None,
            kl_weight=run.config.options.get("kl_weight", 1.0),
            numbers=held_out is not None and held_out.train_targets.is_floating_point(),
        ),
        tensors=tensors,
        gradients=gradients,
        validation=validation,
        calibration=calibration,
        kept_verdict=read_verdict(path),
        settings=_settings(run),
        left_out=_left_out(task.name, anew, held_out),
    )


def _settings(run: TrainedRun[Any]) -> Settings:
    config = run.config
    return Settings(
        options=dict(config.options),
        average=config.average or 0.0,
        can_average=run.method.can_average,
        own_optimiser=run.method.own_optimiser,
        hold_epochs=config.hold_epochs,
        decay=config.decay,
        kl_warmup=config.kl_warmup or 0.0,
    )


def _left_out(task: str, anew: "Anew", held_out: HeldOut | None) -> list[str]:
    """What cannot be measured of such a run, and why."""
    method, own = anew.method.name, anew.method.own_optimiser
    said = {
        f"gradients: how weights are updated is what {method} is about": own,
        f"widths, prior and KL: {method} has no posterior over weights": anew.posterior is None,
        f"sigma against its start: the optimiser of {method} holds the widths": own
        and anew.posterior is not None,
        f"validation data: `bayesrnn train {task}` has no likelihood": held_out is None,
    }
    return [line for line, applies in said.items() if applies]


class Anew(NamedTuple):
    """The run's network built once more, with its trained weights.

    posterior: the one whose mean stands for all networks; None where there is none.
    start: the standard deviations of that posterior before training; None where not known.
    """

    method: Method[Any]
    net: nn.Module
    posterior: Bayesian | None
    start: dict[str, Tensor] | None


def build_anew(task: Task[Any, Any], run: TrainedRun[Any]) -> Anew:
    """Build the network as at the start of training, look at its widths, then give it its weights.

    Its draws are independent of each other, so that the noise of gradients is not underestimated.
    """
    options = dict(run.config.options)
    if "antithetic" in options:
        options["antithetic"] = False
    streams = RandomStreams(run.config.seed)
    method = make_method(replace(run.config, options=options), streams)
    net = task.build(run.config, run.files, method, streams).to(run.device)
    posteriors = [module for module in net.modules() if isinstance(module, Bayesian)]
    starts = [
        {name: factor.sigma for name, factor in posterior.factors(seeded(0)).items()}
        for posterior in posteriors
    ]
    net.load_state_dict(run.net.state_dict())
    mean = method.mean_module(net)
    for posterior, start in zip(posteriors, starts, strict=True):
        if posterior.module is mean:
            return Anew(method, net, posterior, None if method.own_optimiser else start)
    return Anew(method, net, None, None)


def _validation(
    run: TrainedRun[Any], held_out: HeldOut, samples: int, seed: int, scaling: Scaling
) -> Validation:
    """Score the mean weights and draws as scaled, and the mean weights also as trained."""

    def scored(number: int, scaling: Scaling) -> PredictionScore:
        draws = Draws(run.method, run.net, number, seeded(seed), scaling)
        return score(draws, held_out, bar.update)

    differing = Draws(run.method, run.net, samples, seeded(seed)).differing(samples)
    tempered = scaling.mean_temperature != 1
    predictions = sum(len(chunk.targets) for chunk in held_out.chunks)
    passes = 1 + tempered + differing
    with progress_bar(passes * predictions, " predictions", "validating") as bar:
        return Validation(
            mean=scored(0, scaling),
            draws=scored(samples, scaling) if differing else None,
            samples=differing,
            mean_as_trained=scored(0, UNSCALED) if tempered else None,
        )
