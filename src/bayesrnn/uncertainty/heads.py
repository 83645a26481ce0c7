"""Heads: what the output of a network means, so that draws of it can be averaged."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor

from bayesrnn.errors import ConfigError
from bayesrnn.uncertainty.average import AverageProbabilities, RunningMoments
from bayesrnn.uncertainty.plot import plot_probabilities

_Prediction = TypeVar("_Prediction", covariant=True)


class Average(Protocol[_Prediction]):
    """The predictions of several networks, averaged one after the other."""

    def add(self, output: Tensor) -> None:
        """Add the output of one more network."""

    def prediction(self) -> _Prediction:
        """The prediction of the networks so far."""


class Head(Protocol[_Prediction]):
    """What the output of a network means."""

    def average(self) -> Average[_Prediction]:
        """An average without any network in it yet."""


@dataclass  # not frozen: Lightning's `predict` copies results field by field
class Prediction:
    """Probabilities averaged over draws, with their uncertainty in nats.

    total = H[mean p] splits into aleatoric = mean H[p], the noise of the data itself, and
    epistemic = total - aleatoric, the mutual information between the prediction and the weights:
    what more data could teach.

    mean: of several classes the probability of each, [..., classes]; of a yes or no, that of yes.
    spread: the standard deviation of each probability over the draws, where the head was asked to
        keep it.
    """

    mean: Tensor
    total: Tensor
    aleatoric: Tensor
    epistemic: Tensor
    spread: Tensor | None = None

    def plot(self, *, names: Sequence[str] | None = None, ax: Any = None) -> Any:
        """Draw the probabilities, with their spread over draws; gives the matplotlib axes.

        Of one example, a bar for each class; of several, a line for each class along the examples.
        More than ten classes are too many to tell apart: the most probable ones are drawn.
        """
        return plot_probabilities(self, names, ax)


@dataclass(frozen=True)
class Classes:
    """Logits of classes that exclude each other, on the last axis: softmax.

    spread: whether to keep the spread of the probabilities over draws, which takes time and memory
        of its own.
    """

    spread: bool = False

    def average(self) -> Average[Prediction]:
        """The mean of class probabilities."""
        return _AverageClasses(self.spread)


@dataclass(frozen=True)
class Binary:
    """One logit, of yes against no: sigmoid. The last axis has this one number, and goes.

    spread: as in `Classes`.
    """

    spread: bool = False

    def average(self) -> Average[Prediction]:
        """The mean of the probability of yes."""
        return _AverageAnswers(self.spread, one=True)


@dataclass(frozen=True)
class MultiLabel:
    """Logits of labels that each apply or do not, whatever the others do: a sigmoid each.

    The uncertainties are those of each label by itself.

    spread: as in `Classes`.
    """

    spread: bool = False

    def average(self) -> Average[Prediction]:
        """The mean of the probability of each label."""
        return _AverageAnswers(self.spread, one=False)


class _AverageClasses:
    """The mean of class probabilities, and their entropies."""

    def __init__(self, spread: bool) -> None:
        self._average = AverageProbabilities()
        self._moments = RunningMoments() if spread else None

    def add(self, output: Tensor) -> None:
        if output.shape[-1] == 1:
            raise ConfigError(
                f"the network's output has the shape {list(output.shape)}: a single number for "
                "each input, whose softmax is 1 whatever it is. Say what it means: "
                "head=br.Binary() for the logit of yes or no, head=br.Regression(noise=...) for a "
                "number, head=br.MultiLabel() for labels that each apply or do not"
            )
        self._average.add(output)
        if self._moments is not None:
            self._moments.add(output.detach().float().softmax(-1))

    def prediction(self) -> Prediction:
        found = self._average
        total = found.total()
        return Prediction(
            found.mean, total, found.aleatoric, total - found.aleatoric, _spread(self._moments)
        )


class _AverageAnswers:
    """The mean of probabilities of yes, each beside a no whose logit is 0."""

    def __init__(self, spread: bool, one: bool) -> None:
        self._one = one
        self._average = AverageProbabilities()
        self._moments = RunningMoments() if spread else None

    def add(self, output: Tensor) -> None:
        if self._one:
            if output.shape[-1] != 1:
                raise ConfigError(
                    f"the network's output has the shape {list(output.shape)}, and Binary() is for "
                    "one logit on the last axis; for classes that exclude each other leave the "
                    "head out, for several answers of yes or no take head=br.MultiLabel()"
                )
            output = output.squeeze(-1)
        self._average.add(torch.stack([torch.zeros_like(output), output], dim=-1))
        if self._moments is not None:
            self._moments.add(output.detach().float().sigmoid())

    def prediction(self) -> Prediction:
        found = self._average
        total, spread = found.total(), _spread(self._moments)
        epistemic = total - found.aleatoric
        return Prediction(found.mean[..., 1], total, found.aleatoric, epistemic, spread)


def _spread(moments: RunningMoments | None) -> Tensor | None:
    return None if moments is None else moments.variance().sqrt()
