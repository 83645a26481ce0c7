"""Pictures of predictions, by matplotlib: an extra."""

from collections.abc import Sequence
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from bayesrnn.errors import ConfigError, MissingExtraError

if TYPE_CHECKING:
    from bayesrnn.uncertainty.heads import Prediction
    from bayesrnn.uncertainty.regression import RegressionPrediction

#: More classes than this cannot be told apart; the most probable ones are shown.
_MOST = 10


def new_axes() -> Any:
    """Axes of a new figure."""
    try:
        from matplotlib import pyplot
    except ImportError:
        raise MissingExtraError(
            "prediction.plot needs an extra: pip install 'bayesrnn[plot]'"
        ) from None
    return pyplot.subplots(figsize=(7, 4), layout="constrained")[1]


def plot_numbers(prediction: "RegressionPrediction", x: Any, y: Any, share: float, ax: Any) -> Any:
    """Mean and interval along `x`, the part that is about the network inside, and truths `y`."""
    low, high = prediction.interval(share)
    shape = prediction.mean.shape
    if max(shape, default=1) != shape.numel():
        raise ConfigError(
            f"the prediction has the shape {list(shape)}, and a picture shows one number for each "
            "example; predict with a single output, or make a picture of your own"
        )
    mean, low, high, epistemic = (
        part.detach().cpu().double().reshape(-1)
        for part in (prediction.mean, low, high, prediction.epistemic)
    )
    places = _column("x", torch.arange(len(mean)) if x is None else x, len(mean))
    order = places.argsort()
    # At equal probability: the interval if the network's own doubt were all there is.
    inner = NormalDist().inv_cdf((1 + share) / 2) * epistemic.sqrt()
    bands = {f"{share:.0%} of values": (low, high)}
    bands["of that, epistemic"] = (mean - inner, mean + inner)
    ax = new_axes() if ax is None else ax
    along = places[order].numpy()
    colour = ax.plot(along, mean[order].numpy(), label="mean")[0].get_color()
    for (label, edges), alpha in zip(bands.items(), (0.2, 0.35), strict=True):
        low, high = (edge[order] for edge in edges)
        ax.fill_between(
            along, low.numpy(), high.numpy(), color=colour, alpha=alpha, linewidth=0, label=label
        )
    if y is not None:
        truths = _column("y", y, len(mean))[order]
        ax.plot(along, truths.numpy(), ".", color="black", markersize=3, label="data")
    ax.legend()
    return ax


def plot_probabilities(prediction: "Prediction", names: Sequence[str] | None, ax: Any) -> Any:
    """Bars for the classes of one example, or a line for each class along several examples."""
    mean, spread = (
        None if part is None else part.detach().cpu().double()
        for part in (prediction.mean, prediction.spread)
    )
    assert mean is not None
    if mean.dim() == prediction.total.dim():  # of yes or no, or of labels: no axis of classes
        if mean.dim() < 2:
            mean, spread = mean.reshape(-1, 1), None if spread is None else spread.reshape(-1, 1)
        names = ["yes"] if names is None and mean.shape[-1] == 1 else names
    mean = mean.reshape(-1, mean.shape[-1])
    spread = None if spread is None else spread.reshape(mean.shape)
    count = mean.shape[1]
    if names is not None and len(names) != count:
        raise ConfigError(f"there are {len(names)} names for {count} classes; give one for each")
    named = [str(number) for number in range(count)] if names is None else list(names)
    shown = mean.mean(0).argsort(descending=True)[:_MOST].sort().values.tolist()
    ax = new_axes() if ax is None else ax
    if len(mean) == 1:
        errors = None if spread is None else _errors(mean[0, shown], spread[0, shown]).numpy()
        heights = mean[0, shown].numpy()
        ax.bar([named[place] for place in shown], heights, yerr=errors, capsize=3)
    else:
        for place in shown:
            column, places = mean[:, place], range(len(mean))
            line = ax.plot(places, column.numpy(), marker=".", label=named[place])[0]
            if spread is not None:
                down, up = _errors(column, spread[:, place])
                low, high = (column - down).numpy(), (column + up).numpy()
                colour = line.get_color()
                ax.fill_between(places, low, high, color=colour, alpha=0.25, linewidth=0)
        ax.set_xlabel("example")
        ax.legend()
    ax.set_ylim(0, 1)
    ax.set_ylabel("probability" if spread is None else "probability, +- sd over draws")
    return ax


def _errors(mean: Tensor, spread: Tensor) -> Tensor:
    """How far down and up the interval reaches: a probability stays between 0 and 1."""
    return torch.stack([torch.minimum(spread, mean), torch.minimum(spread, 1 - mean)])


def _column(name: str, given: Any, count: int) -> Tensor:
    found = torch.as_tensor(given).detach().cpu().double().reshape(-1)
    if len(found) != count:
        raise ConfigError(f"{name} has {len(found)} numbers for {count} predictions; give as many")
    return found
