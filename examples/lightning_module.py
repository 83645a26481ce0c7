"""A Bayesian network in a LightningModule (pip install lightning).

    python examples/lightning_module.py

`training_step` draws the weights and charges the KL; `predict_step` gives a prediction with its
uncertainty. Nothing else of Lightning has to know.
"""

import argparse

import lightning
import torch
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


class BayesianReader(lightning.LightningModule):
    """The network, its loss and its predictions."""

    def __init__(self, dataset_size: int) -> None:
        super().__init__()
        self.dataset_size = dataset_size
        self.net = br.Bayesian(Reader(), prior=br.FittedGaussian(), sigma_init=0.02)

    def training_step(self, batch: list[Tensor], index: int) -> Tensor:
        """The negative ELBO with one draw of the weights."""
        x, y = batch
        weights = self.net.sample()
        nll = F.cross_entropy(self.net(x, weights=weights), y)
        self.log("nll", nll, prog_bar=True)
        return br.elbo(nll, weights, dataset_size=self.dataset_size, kl_weight=0.1)

    def validation_step(self, batch: list[Tensor], index: int) -> None:
        """The mean weights: Lightning has put the network in evaluation mode."""
        x, y = batch
        self.log("valid_nll", F.cross_entropy(self.net(x), y), prog_bar=True)

    def predict_step(self, batch: list[Tensor], index: int) -> br.Prediction:
        """Probabilities of 20 draws, with their uncertainty."""
        return br.predict(self.net, batch[0], samples=20)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Any optimiser."""
        return torch.optim.Adam(self.net.parameters(), lr=3e-3)


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
    module = BayesianReader(dataset_size=len(training))
    trainer = lightning.Trainer(
        max_epochs=options.epochs, accelerator="cpu", logger=False, enable_checkpointing=False
    )
    trainer.fit(module, DataLoader(training, 50, shuffle=True), DataLoader(valid, 500))
    (prediction,) = trainer.predict(module, DataLoader(valid, 500))
    print(f"accuracy {br.metrics.accuracy(prediction, valid.tensors[1]):.3f}")
    print(f"mean epistemic uncertainty {prediction.epistemic.mean():.4f} nats")


if __name__ == "__main__":
    main()
