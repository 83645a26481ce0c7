"""Several processes, each with its own part of the data and noise of its own, by torch's DDP.

    torchrun --nproc-per-node 2 examples/data_parallel.py

The network is a module that draws and gives output and KL in one call, so that all parameters take
part in what DDP sees. The optimiser's memory is spread over the processes.
"""

import contextlib

import torch
from torch import distributed, nn
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

import bayesrnn as br


class WithKL(nn.Module):
    """A Bayesian network that gives its output and the KL of the draw behind it."""

    def __init__(self, net: br.Bayesian, seed: int) -> None:
        super().__init__()
        self.net = net
        self.generator = torch.Generator().manual_seed(seed)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The output with a fresh draw, and what that draw cost."""
        weights = self.net.sample(self.generator)
        return self.net(x, weights=weights), weights.kl


def main(steps: int = 200) -> float:
    """Fit a sine; gives the error of the mean weights."""
    distributed.init_process_group("gloo")
    rank, size = distributed.get_rank(), distributed.get_world_size()
    x = torch.linspace(-3, 3, 240)[:, None]
    y = torch.sin(x)
    own_x, own_y = x[rank::size], y[rank::size]

    start = torch.Generator().manual_seed(0)
    module = nn.Sequential(nn.Linear(1, 32), nn.Tanh(), nn.Linear(32, 1))
    for weight in module.parameters():
        nn.init.uniform_(weight, -0.5, 0.5, generator=start)
    net = br.Bayesian(module, br.Gaussian(1.0), sigma_init=0.02)
    # Another seed in each process: the mean over processes varies less than one draw.
    model = DistributedDataParallel(WithKL(net, seed=rank))
    optimiser = ZeroRedundancyOptimizer(model.parameters(), torch.optim.Adam, lr=0.01)

    halves = list(zip(own_x.chunk(2), own_y.chunk(2), strict=True))
    for _ in range(steps):
        for number, (part_x, part_y) in enumerate(halves):
            # Gradients of all but the last part stay here: one exchange a step.
            last = number == len(halves) - 1
            with contextlib.nullcontext() if last else model.no_sync():
                output, kl = model(part_x)
                # The noise of the data has a standard deviation of 0.1. The KL belongs to all 240.
                nll = F.mse_loss(output, part_y) / (2 * 0.1**2)
                ((nll + kl / len(x)) / len(halves)).backward()
        optimiser.step()
        optimiser.zero_grad()

    with torch.no_grad():
        error = F.mse_loss(net.eval()(x), y).sqrt().item()
    if rank == 0:
        print(f"{size} processes: root mean squared error {error:.3f}")
    distributed.destroy_process_group()
    return error


if __name__ == "__main__":
    main()
