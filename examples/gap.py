"""Regression with a gap in the data: one mean-field posterior, and a mixture of three.

    python examples/gap.py                  # seeds 1, 2 and 3
    python examples/gap.py --seeds 4 5
    python examples/gap.py --seeds 1 --plot gap.png       # a picture; pip install 'bayesrnn[plot]'

The data lie at -1 <= x <= -0.4 and at 0.4 <= x <= 1, and nothing is known of the function between.
A mean-field posterior does not say so: its weights are independent, so what makes the function
uncertain between the data would make it uncertain at the data too (Foong et al. 2019). Networks
from different starts cross the gap in different ways, and their mixture does say so.
"""

import argparse
from typing import NamedTuple

import torch
from torch import Tensor, nn

import bayesrnn as br

NOISE = 0.1
EDGE = 0.4
UNITS = 20
MEMBERS = 3


class Found(NamedTuple):
    """What a prediction says along -1 <= x <= 1.

    on_data, in_gap: the mean epistemic standard deviation where the data are, and where not.
    inside: the share of places at which the function lies in the 95% band.
    """

    on_data: float
    in_gap: float
    inside: float

    @property
    def ratio(self) -> float:
        """How much wider the band is in the gap."""
        return self.in_gap / self.on_data


def function(x: Tensor) -> Tensor:
    """What is to be learnt."""
    return 0.8 * torch.sin(3 * x)


def data(seed: int, count: int = 500) -> tuple[Tensor, Tensor]:
    """Places on both sides of the gap, and the function there with noise."""
    generator = torch.Generator().manual_seed(seed)
    side = torch.randint(2, (count, 1), generator=generator) * 2 - 1
    x = side * (EDGE + (1 - EDGE) * torch.rand(count, 1, generator=generator))
    return x, function(x) + NOISE * torch.randn(count, 1, generator=generator)


def network(generator: torch.Generator) -> br.Bayesian:
    """One layer of rectified linear units, whose kinks lie anywhere between the data and on them.

    Where they are in the gap, the data do not say: there the starts go on to differ.
    """
    module = nn.Sequential(nn.Linear(1, UNITS), nn.ReLU(), nn.Linear(UNITS, 1))
    inner, outer = module[0], module[2]
    with torch.no_grad():
        inner.weight.normal_(0, 4, generator=generator)
        inner.bias.uniform_(-4, 4, generator=generator)
        outer.weight.normal_(0, UNITS**-0.5, generator=generator)
        outer.bias.zero_()
    return br.Bayesian(module, prior=br.Gaussian(1.0), sigma_init=0.005, generator=generator)


def train(x: Tensor, y: Tensor, seed: int, steps: int) -> br.Bayesian:
    """A posterior trained on all data at once, the KL in full."""
    generator = torch.Generator().manual_seed(seed)
    net = network(generator)
    optimiser = torch.optim.Adam(net.parameters())
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, 0.03, total_steps=steps)
    for _ in range(steps):
        weights = net.sample(generator)
        errors = net(x, weights=weights) - y
        loss = errors.square().sum() / (2 * NOISE**2) + weights.kl
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        schedule.step()
    return net


def measure(net: br.Bayesian | list[br.Bayesian], seed: int, samples: int = 120) -> Found:
    """What a network, or a mixture of several, says on the data and between."""
    x = torch.linspace(-1, 1, 201)[:, None]
    generator = torch.Generator().manual_seed(seed)
    head = br.Regression(noise=NOISE)
    prediction = br.predict(net, x, samples=samples, generator=generator, head=head)
    low, high = prediction.interval(0.95)
    deviation, gap = prediction.epistemic.sqrt(), x.abs() < EDGE
    inside = (low <= function(x)) & (function(x) <= high)
    return Found(
        on_data=deviation[~gap].mean().item(),
        in_gap=deviation[gap].mean().item(),
        inside=inside.double().mean().item(),
    )


def trained(seed: int, steps: int) -> list[br.Bayesian]:
    """Three networks from different starts, on the same data."""
    x, y = data(seed)
    return [train(x, y, 1000 * seed + number, steps) for number in range(MEMBERS)]


def compare(seed: int, steps: int = 1000) -> tuple[list[Found], Found]:
    """What each of three networks says, and what their mixture says, on the same data."""
    nets = trained(seed, steps)
    return [measure(net, seed) for net in nets], measure(nets, seed)


def plot(nets: list[br.Bayesian], seed: int, path: str) -> None:
    """Draw the 95% bands of one network and of the mixture, and in them what is epistemic."""
    from matplotlib.figure import Figure

    places = torch.linspace(-1, 1, 201)[:, None]
    figure = Figure((9, 3.4), layout="constrained")
    pair = figure.subplots(1, 2, sharey=True)
    shown = {"one posterior": nets[0], f"a mixture of {len(nets)}": nets}
    for axes, (title, net) in zip(pair, shown.items(), strict=True):
        generator = torch.Generator().manual_seed(seed)
        head = br.Regression(noise=NOISE)
        found = br.predict(net, places, samples=120, generator=generator, head=head)
        low, high = found.interval(0.95)
        mean, doubt = found.mean.flatten(), 2 * found.epistemic.sqrt().flatten()
        at = places.flatten()
        axes.fill_between(at, low.flatten(), high.flatten(), color="#0072b2", alpha=0.2, lw=0)
        axes.fill_between(at, mean - doubt, mean + doubt, color="#d55e00", alpha=0.4, lw=0)
        axes.plot(at, mean, color="#0072b2")
        axes.plot(at, function(at), color="black", ls="--", lw=1)
        axes.scatter(*(part[:100] for part in data(seed)), s=6, color="black", alpha=0.5)
        axes.set_title(title)
    figure.savefig(path)


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--steps", type=int, default=1000, help="training steps of each network")
    parser.add_argument("--plot", default=None, help="a picture of the first seed")
    options = parser.parse_args()
    if options.plot is not None:
        plot(trained(options.seeds[0], options.steps), options.seeds[0], options.plot)
    print("| seed | posterior | epistemic sd on the data | in the gap | ratio | 95% band holds |")
    print("|---|---|---:|---:|---:|---:|")
    for seed in options.seeds:
        singles, mixture = compare(seed, options.steps)
        named = [(f"bbb {number}", one) for number, one in enumerate(singles, start=1)]
        for name, one in [*named, (f"mixture of {MEMBERS}", mixture)]:
            figures = f"{one.on_data:.3f} | {one.in_gap:.3f} | {one.ratio:.2f} | {one.inside:.0%}"
            print(f"| {seed} | {name} | {figures} |", flush=True)


if __name__ == "__main__":
    main()
