"""A classifier of texts of different lengths: a packed bidirectional GRU, by several methods.

    python examples/packed_gru.py
    python examples/packed_gru.py --methods plain bbb variational-dropout --epochs 20

The texts are made up: numbers from 1 to 11, and whether most of them are above 6.
"""

import argparse

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_padded_sequence
from torch.utils.data import DataLoader, TensorDataset

import bayesrnn as br

WORDS, LONGEST = 12, 15


class Classifier(nn.Module):
    """Reads padded texts [batch, time] of given lengths, in both directions."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(WORDS, 8, padding_idx=0)
        self.recurrent = nn.GRU(8, 16, batch_first=True, bidirectional=True)
        self.dropout = nn.Dropout(0.1)
        self.output = nn.Linear(32, 2)

    def forward(self, words: Tensor, lengths: Tensor) -> Tensor:
        """Logits [batch, 2]."""
        packed = pack_padded_sequence(
            self.embedding(words), lengths.cpu(), batch_first=True, enforce_sorted=False
        )
        _, last = self.recurrent(packed)
        return self.output(self.dropout(last.transpose(0, 1).flatten(1)))


def data(count: int, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Texts, their lengths, and their classes."""
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(3, LONGEST + 1, (count,), generator=generator)
    words = torch.randint(1, WORDS, (count, LONGEST), generator=generator)
    words[torch.arange(LONGEST) >= lengths[:, None]] = 0
    return words, lengths, ((words > 6).sum(1) * 2 > lengths).long()


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--methods", nargs="+", default=["plain", "bbb", "variational-dropout"])
    parser.add_argument("--epochs", type=int, default=15)
    parser.add_argument("--texts", type=int, default=1000)
    options = parser.parse_args()
    batches = DataLoader(TensorDataset(*data(options.texts, 1)), batch_size=50, shuffle=True)
    words, lengths, labels = data(1000, 3)
    print("| method | accuracy | nll | calibration error | mean epistemic |")
    print("|---|---:|---:|---:|---:|")
    for method in options.methods:
        torch.manual_seed(1)
        given = {"dropout": 0.1} if "dropout" in method else {}
        found = br.fit(
            Classifier(), batches, F.cross_entropy, method=method, epochs=options.epochs,
            valid=[data(500, 2)], lr=3e-3, **given,
        )  # fmt: skip
        prediction = br.predict(found, words, lengths, samples=1 if method == "plain" else 20)
        right = br.metrics.accuracy(prediction, labels)
        nll = br.metrics.nll(prediction, labels)
        error = br.metrics.calibration_error(prediction, labels)
        epistemic = prediction.epistemic.mean().item()
        print(f"| {method} | {right:.3f} | {nll:.3f} | {error:.3f} | {epistemic:.4f} |", flush=True)


if __name__ == "__main__":
    main()
