"""The toy task, whole in one file: two values of a wave say the next one."""

import hashlib
import math
from dataclasses import dataclass

import torch
from torch import nn

from bayesrnn.core.init import absolute
from bayesrnn.methods.base import Hints, Outcome
from bayesrnn.options import CheckedOptions, option
from bayesrnn.random import seeded
from bayesrnn.runs.config import Recipe, Recipes, TrainingConfig
from bayesrnn.runs.evaluation import Evaluation, Row, about, asked_row, inference_rows
from bayesrnn.runs.load import load_run
from bayesrnn.runs.task import Measure, Task, TrainedRun
from bayesrnn.uncertainty.draws import Draws
from toy import ENTRY


@dataclass(frozen=True)
class ToyConfig(TrainingConfig):
    task = "toy"

    wave: str = option("sine", "which wave", choices=("sine", "square"))
    hidden: int = option(8, "units", gt=0)


@dataclass(frozen=True)
class ToyOptions(CheckedOptions):
    wave_scale: float = option(1.0, "factor on the wave that is foretold", gt=0)


@dataclass(frozen=True, kw_only=True)
class ToyRow(Row):
    rmse: float


@dataclass(frozen=True, kw_only=True)
class ToyEvaluation(Evaluation):
    wave: str


class Minibatches:
    sequences, steps = 20, 1

    def __init__(self, inputs, targets):
        self.inputs, self.targets = inputs.split(self.sequences), targets.split(self.sequences)

    def __len__(self):
        return len(self.inputs)

    def length(self, number):
        return 1.0

    def __getitem__(self, number):
        return self.inputs[number], self.targets[number]


@dataclass(frozen=True)
class ToyProblem:
    train: tuple
    valid: tuple
    method: object
    net: nn.Module

    def minibatches(self, epoch):
        return Minibatches(*self.train)

    def objective(self, batch, state):
        inputs, targets = batch
        return lambda network: Outcome((network(inputs) - targets).square().mean(), None)

    def loss_metrics(self, nll):
        return {"mse": nll}

    def validate(self):
        found = rmse(self.method.mean(self.net)(self.valid[0]), self.valid[1])
        return {"rmse": found, "nll": found**2}


def rmse(outputs, targets):
    return (outputs - targets).square().mean().sqrt().item()


class ToyTask(Task):
    name = "toy"
    summary = ENTRY.summary
    example = "bayesrnn train toy --wave square"
    config_type = ToyConfig
    recipes = Recipes(
        default=Recipe(epochs=2, hold_epochs=1, decay=0.5, lr=0.1, clip=5.0, batch_size=20)
    )
    unit = "value"
    data_key = "wave"
    evaluate_options = ToyOptions

    def run_name(self, config):
        return f"toy-{config.wave}"

    def load(self, config):
        wave = torch.sin(torch.arange(182.0) / 3)
        wave = wave.sign() if config.wave == "square" else wave
        inputs, targets = wave.unfold(0, 2, 1)[:-1], wave[2:, None]
        parts = {"train": slice(0, 120), "valid": slice(120, 150), "test": slice(150, 180)}
        return {split: (inputs[part], targets[part]) for split, part in parts.items()}

    def fingerprint(self, data):
        return hashlib.sha256(data["train"][0].numpy().tobytes()).hexdigest()

    def measure(self, read):
        return Measure("rmse", "RMSE", digits=4)

    def build(self, config, files, method, streams):
        module = nn.Sequential(nn.Linear(2, config.hidden), nn.Tanh(), nn.Linear(config.hidden, 1))

        def initialise(module, generator):
            for weight in module.parameters():
                bound = 1 / math.sqrt(weight.shape[-1])
                with torch.no_grad():
                    weight.uniform_(-bound, bound, generator=generator)

        initialise(module, streams["init"])
        return method.build(module, Hints(sigma_init={"*": absolute(0.02)}, initialise=initialise))

    def problem(self, config, data, method, net, device):
        return ToyProblem(data["train"], data["valid"], method, net)

    def open_run(self, path, checkpoint="best", device="auto"):
        return load_run(self, path, checkpoint, device, TrainedRun)

    def evaluate(self, path, settings, options):
        run = self.open_run(path, settings.checkpoint, settings.device)
        inputs, targets = self.load(run.config)[settings.split]

        def averaged(inference):
            draws = Draws(run.method, run.net, inference.samples, seeded(settings.seed))
            with torch.no_grad():
                outputs = torch.stack([network(inputs) for network in draws.networks()]).mean(0)
            return ToyRow(**inference._asdict(), rmse=rmse(outputs, options.wave_scale * targets))

        rows = inference_rows(run, settings, averaged, bounded=None)
        return ToyEvaluation(
            **about(run, settings),
            wave=run.config.wave,
            rows=tuple(rows),
            asked=asked_row(rows, settings.samples),
        )

    def line(self, row):
        return f"rmse {row.rmse:.4f}"

    def network(self, config):
        return f"mlp 1x{config['hidden']}"


def show_wave() -> None:
    """Print the wave that the toy learns.

    bayesrnn wave
    """
    print(TASK.load(TASK.resolve({}))["test"][1].flatten().tolist())


TASK = ToyTask()
