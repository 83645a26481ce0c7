"""How good a network is without some of its weights, measured on the data of a run."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor, nn

from bayesrnn.compression.pruning import dropped_weights, without
from bayesrnn.methods import METHODS
from bayesrnn.progress import progress_bar
from bayesrnn.random import RandomStreams
from bayesrnn.runs.pruning.results import Curve, KeptQuality, Measured

if TYPE_CHECKING:
    from bayesrnn.runs.task import Task, TrainedRun

#: The largest fraction that keeps the quality is found to one weight in this many.
_EXACTNESS = 1000


class Order(Protocol):
    """What is dropped first: a `Ranking` of weights, or a `UnitRanking`."""

    @property
    def weights(self) -> int:
        """How many weights can be dropped."""

    def kept(self, fraction: float) -> dict[str, Tensor]:
        """Masks of what is left when this share is dropped."""


@dataclass(frozen=True)
class Measurement:
    """How networks of a run are measured.

    place: on what, in words.
    metrics: of a network, by name; `nll` is one of them, in nats a prediction.
    split, streams: which part of the data, and of a text how many parts of it side by side.
    """

    place: str
    metrics: Callable[[nn.Module], Mapping[str, float]]
    split: str = "valid"
    streams: int | None = None


class _Slot(nn.Module):
    """Stands for one network after the other."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, *inputs: Any, **named: Any) -> Any:
        """The outputs of the network that it stands for."""
        return self.network(*inputs, **named)


def on_validation_data(task: Task[Any, Any], run: TrainedRun[Any], data: Any) -> Measurement:
    """As the training loop validates it, after each epoch."""
    plain = METHODS["plain"]
    method = plain(plain.options_type(), RandomStreams(run.config.seed))
    slot = _Slot(run.method.mean_module(run.net))
    problem = task.problem(run.config, data, method, slot, run.device)

    def metrics(network: nn.Module) -> Mapping[str, float]:
        slot.network = network
        slot.eval()
        with torch.no_grad():
            return problem.validate()

    return Measurement(f"validation {task.unit}s", metrics)


@dataclass(frozen=True)
class Bench:
    """A network, and how its pruned copies are measured.

    read: the task's own metric of the metrics, in the unit that is shown, if it is not perplexity.
    """

    module: nn.Module
    measurement: Measurement
    read: Callable[[Mapping[str, Any]], float | None] = lambda _: None

    def measure(self, order: Order, fraction: float) -> Measured:
        """What is left when this share of the weights is dropped."""
        kept = order.kept(fraction)
        return self.measured(without(self.module, kept), fraction, dropped_weights(kept))

    def measured(self, network: nn.Module, fraction: float, dropped: int) -> Measured:
        """The metrics of a network."""
        metrics = self.measurement.metrics(network.eval())
        return Measured(fraction, dropped, metrics["nll"], self.read(metrics))


def curves(
    bench: Bench, orders: Mapping[str, Order], wanted: tuple[float, ...], label: str
) -> list[Curve]:
    """The metrics of every order at every fraction; at 0 and 1 there is only one network."""
    fractions = sorted({0.0, *wanted})
    same = {fraction for fraction in fractions if fraction in (0, 1)}
    runs = len(same) + len(orders) * (len(fractions) - len(same))
    known: dict[float, Measured] = {}
    found = []
    with progress_bar(runs, " networks", f"pruning {label}") as bar:
        for name, order in orders.items():
            points = []
            for fraction in fractions:
                point = known.get(fraction)
                if point is None:
                    point = bench.measure(order, fraction)
                    bar.update()
                if fraction in same:
                    known[fraction] = point
                points.append(point)
            found.append(Curve(name, tuple(points)))
    return found


def kept_quality(bench: Bench, order: Order, curve: Curve, quality: float) -> KeptQuality:
    """The largest fraction whose perplexity is within the quality, to 0.1% of the weights.

    Perplexity is exp(nll), also where no words are predicted: the inverse of the geometric mean of
    the probabilities of what is true, so that another unit of numbers changes nothing.

    It need not grow with every weight that is dropped, so a bisection from 0 to 1 could end in the
    wrong place. The one here is between the last fraction of the curve that is within the limit and
    the one after it (1 if there is none): what the curve has seen is respected, and a dent between
    two of its points beyond may be missed.
    """
    limit = curve.points[0].nll + math.log1p(quality)
    place = max(place for place, point in enumerate(curve.points) if point.nll <= limit)
    found, after = curve.points[place], curve.points[place + 1 : place + 2]
    total = order.weights
    exact = max(total // _EXACTNESS, 1)
    low, high = round(found.fraction * total), round(after[0].fraction * total) if after else total
    steps = math.ceil(math.log2(max((high - low) / exact, 1))) + (not after)
    tried: list[Measured] = []
    with progress_bar(steps, " networks", "keeping the quality") as bar:

        def within(dropped: int) -> bool:
            nonlocal found
            tried.append(bench.measure(order, dropped / total))
            bar.update()
            if tried[-1].nll > limit:
                return False
            found = tried[-1]
            return True

        if not after and low < total and within(total):
            low = total
        while high - low > exact:
            middle = (low + high) // 2
            if within(middle):
                low = middle
            else:
                high = middle
    return KeptQuality(quality, limit, curve.order, found, tuple(tried))
