"""A Bayesian network in a loop by Accelerate (pip install accelerate).

    python examples/accelerate_loop.py
    accelerate launch --cpu --num_processes 2 examples/accelerate_loop.py

In several processes the gradients are averaged where the output of the wrapped network comes from,
so that draw and KL are made inside its call. Each process draws noise of its own.
"""

import argparse

import torch
from accelerate import Accelerator
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

import bayesrnn as br


class Reader(nn.Module):
    """Which sign the sum of a sequence [batch, time, 1] has."""

    def __init__(self) -> None:
        super().__init__()
        self.recurrent = nn.GRU(1, 16, batch_first=True)
        self.output = nn.Linear(16, 2)

    def forward(self, x: Tensor) -> Tensor:
        """Logits [batch, 2]."""
        return self.output(self.recurrent(x)[0][:, -1])


class WithKL(nn.Module):
    """Output and KL in one call, so that the gradients of both are averaged over processes."""

    def __init__(self, net: br.Bayesian) -> None:
        super().__init__()
        self.net = net

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The output of one draw, and what the draw costs."""
        weights = self.net.sample()
        return self.net(x, weights=weights), weights.kl


def data(count: int, seed: int) -> TensorDataset:
    """Sequences of ten numbers, and whether their sum is above 0."""
    x = torch.randn(count, 10, 1, generator=torch.Generator().manual_seed(seed))
    return TensorDataset(x, (x.sum((1, 2)) > 0).long())


def main() -> None:
    """Train, and predict."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--epochs", type=int, default=20)
    options = parser.parse_args()
    torch.manual_seed(1)
    training, valid = data(1000, 1), data(500, 2)
    accelerator = Accelerator(cpu=True)
    net = br.Bayesian(Reader(), prior=br.FittedGaussian(), sigma_init=0.02)
    model, optimiser, batches = accelerator.prepare(
        WithKL(net),
        torch.optim.Adam(net.parameters(), lr=3e-3),
        DataLoader(training, 50, shuffle=True),
    )
    torch.manual_seed(1 + accelerator.process_index)  # noise of its own for each process
    for _ in range(options.epochs):
        for x, y in batches:
            output, kl = model(x)
            loss = F.cross_entropy(output, y) + 0.1 * kl / len(training)
            accelerator.backward(loss)
            optimiser.step()
            optimiser.zero_grad()
    x, y = valid.tensors
    prediction = br.predict(net, x.to(accelerator.device), samples=20)
    accelerator.print(f"accuracy {br.metrics.accuracy(prediction, y):.3f}")
    accelerator.print(f"mean epistemic uncertainty {prediction.epistemic.mean():.4f} nats")


if __name__ == "__main__":
    main()
