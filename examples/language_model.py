"""A Bayesian language model of the novel that comes with the package.

    python examples/language_model.py                # 5 epochs: minutes on a CPU
    python examples/language_model.py --epochs 1

The state of the LSTM is carried from one cut of the text to the next, as a loop of one's own has to
do it; each cut has one draw of the weights, which is held over all its words.
"""

import argparse
import math
import re
from collections import Counter
from importlib.resources import files

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import bayesrnn as br

STEPS, TEXTS = 35, 20


class LanguageModel(nn.Module):
    """Embedding, LSTM, and a linear map to words; inputs are [time, batch]."""

    def __init__(self, words: int, hidden: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(words, hidden)
        self.recurrent = nn.LSTM(hidden, hidden)
        self.output = nn.Linear(hidden, words)

    def forward(
        self, x: Tensor, state: tuple[Tensor, Tensor] | None = None
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """Logits of the next words, and the state after them."""
        outputs, state = self.recurrent(self.embedding(x), state)
        return self.output(outputs), state


def novel(least: int = 3) -> tuple[list[str], Tensor]:
    """The words that occur at least so often (all others are one), and the text as numbers."""
    path = files("bayesrnn") / "data" / "bundled" / "pride-and-prejudice.txt"
    text = re.findall(r"[a-z]+|[.,;!?]", path.read_text(encoding="utf-8").lower())
    words = ["<unk>", *(word for word, count in Counter(text).items() if count >= least)]
    number = {word: place for place, word in enumerate(words)}
    return words, torch.tensor([number.get(word, 0) for word in text])


def cuts(text: Tensor) -> list[tuple[Tensor, Tensor]]:
    """Inputs and targets [time, texts] of cuts, each of which goes on where the last one ended."""
    side_by_side = text[: len(text) // TEXTS * TEXTS].view(TEXTS, -1).t()
    starts = range(0, len(side_by_side) - 1, STEPS)
    ends = [min(start + STEPS, len(side_by_side) - 1) for start in starts]
    pairs = zip(starts, ends, strict=True)
    return [(side_by_side[a:b], side_by_side[a + 1 : b + 1]) for a, b in pairs]


def train(
    net: br.Bayesian, batches: list[tuple[Tensor, Tensor]], optimiser: torch.optim.Optimizer
) -> None:
    """One epoch."""
    words, state = sum(y.numel() for _, y in batches), None
    for x, y in batches:
        weights = net.sample()  # one draw, held over the whole cut
        logits, state = net(x, state, weights=weights)
        state = tuple(part.detach() for part in state)  # gradients stop here
        nll = F.cross_entropy(logits.flatten(0, 1), y.flatten())
        br.elbo(nll, weights, dataset_size=words, kl_weight=0.1).backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimiser.step()
        optimiser.zero_grad()


@torch.no_grad()
def perplexity(net: br.Bayesian, batches: list[tuple[Tensor, Tensor]]) -> float:
    """Of the mean weights, over a whole text."""
    total, count, state = 0.0, 0, None
    for x, y in batches:
        logits, state = net.eval()(x, state)
        total += F.cross_entropy(logits.flatten(0, 1), y.flatten(), reduction="sum").item()
        count += y.numel()
    return math.exp(total / count)


def main() -> None:
    """Train, and say how uncertain the network is of some words."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--hidden", type=int, default=128)
    parser.add_argument("--words", type=int, default=None, help="only so many words of the text")
    options = parser.parse_args()
    torch.manual_seed(1)
    words, text = novel()
    text = text[: options.words]
    held_out = len(text) // 10
    training, valid = cuts(text[:-held_out]), cuts(text[-held_out:])
    module = LanguageModel(len(words), options.hidden)
    net = br.Bayesian(module, prior=br.FittedGaussian(), sigma_init=0.02)
    optimiser = torch.optim.Adam(net.parameters(), lr=0.004)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, options.epochs)
    for epoch in range(1, options.epochs + 1):
        train(net, training, optimiser)
        schedule.step()
        print(f"epoch {epoch}: perplexity {perplexity(net, valid):.1f}", flush=True)
    x, y = valid[0]
    found = br.predict(net, x[:, :1], samples=20)
    print(f"{'the next word':14} {'probability':>12} {'entropy':>8} {'epistemic':>10}")
    for place, word in enumerate(y[:10, 0].tolist()):
        figures = (found.mean[place, 0, word], found.total[place, 0], found.epistemic[place, 0])
        print("{:14} {:12.4f} {:8.2f} {:10.3f}".format(words[word], *map(float, figures)))


if __name__ == "__main__":
    main()
