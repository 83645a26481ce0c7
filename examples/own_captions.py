"""Captions of images of one's own, by a Bayesian LSTM that starts from what an image looks like.

    python examples/own_captions.py                  # pictures that are drawn here: a minute

    bayesrnn features holidays                       # once; pip install 'bayesrnn[captions]'
    python examples/own_captions.py --captions captions.csv \
        --features holidays/features-efficientnet-lite0.npz

`captions.csv` has the columns image and caption, with a line for each caption of an image. Every
fifth image is held out. To caption new images by a network that learnt Flickr8k, no line of Python
is needed: `bayesrnn caption`.
"""

import argparse
import csv
from collections import Counter
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import bayesrnn as br

UNKNOWN, END, NONE = 0, 1, -100
SHAPES = ("square", "cross", "ring")
COLOURS = {"red": (1, 0, 0), "green": (0, 1, 0), "blue": (0, 0, 1), "yellow": (1, 1, 0)}


class Captioner(nn.Module):
    """What a language model says whose first state comes from an image; words are [time, batch]."""

    def __init__(self, features: int, words: int, hidden: int) -> None:
        super().__init__()
        self.image = nn.Linear(features, hidden)
        self.embedding = nn.Embedding(words, hidden)
        self.recurrent = nn.LSTM(hidden, hidden)
        self.output = nn.Linear(hidden, words)

    def forward(self, words: Tensor, features: Tensor) -> Tensor:
        """Logits [time, batch, words] of the word after each."""
        cell = self.image(features)[None]
        return self.output(self.recurrent(self.embedding(words), (cell.tanh(), cell))[0])


def drawn(count: int) -> tuple[dict[str, Tensor], list[tuple[str, str]]]:
    """Noisy pictures of 8 x 8 pixels, which are their own features, and what they show."""
    random = np.random.default_rng(1)
    features, captions = {}, []
    for number in range(count):
        shape, colour = random.choice(SHAPES), random.choice(list(COLOURS))
        left = bool(random.integers(2))
        form = np.ones((4, 4))
        if shape == "cross":
            form = np.eye(4) + np.eye(4)[::-1]
        elif shape == "ring":
            form[1:3, 1:3] = 0
        picture = 0.3 * random.standard_normal((8, 8, 3))
        row, column = random.integers(5), (0 if left else 4)
        picture[row : row + 4, column : column + 4] += form[..., None] * COLOURS[colour]
        name = f"{number:04}.png"
        features[name] = torch.tensor(picture.ravel(), dtype=torch.float32)
        captions.append((name, f"a {colour} {shape} on the {'left' if left else 'right'}"))
    return features, captions


def own(captions: Path, features: Path) -> tuple[dict[str, Tensor], list[tuple[str, str]]]:
    """The features of images by name, and rows of a name and a caption."""
    with np.load(features) as file:
        numbers = torch.from_numpy(file["features"].astype(np.float32))
        by_name = dict(zip(file["names"].tolist(), F.normalize(numbers, dim=-1) * 10, strict=True))
    with captions.open(encoding="utf-8", newline="") as file:
        rows = [(row["image"], row["caption"].lower()) for row in csv.DictReader(file)]
    return by_name, [row for row in rows if row[0] in by_name]


def padded(numbers: list[list[int]]) -> tuple[Tensor, Tensor]:
    """Inputs, which begin with END, and targets, which end with it, [time, captions]."""
    shape = max(map(len, numbers)) + 1, len(numbers)
    inputs, targets = torch.full(shape, END), torch.full(shape, NONE)
    for at, words in enumerate(numbers):
        inputs[1 : len(words) + 1, at] = torch.tensor(words)
        targets[: len(words) + 1, at] = torch.tensor([*words, END])
    return inputs, targets


def train(net: br.Bayesian, captions: list[tuple[Tensor, list[int]]], epochs: int) -> None:
    """Learn captions, each with the features of its image."""
    optimiser = torch.optim.Adam(net.parameters(), lr=0.004)
    words_of_all = sum(len(words) + 1 for _, words in captions)
    for epoch in range(1, epochs + 1):
        total = 0.0
        for batch in torch.randperm(len(captions)).split(32):
            features = torch.stack([captions[at][0] for at in batch])
            inputs, targets = padded([captions[at][1] for at in batch])
            weights = net.sample()  # one draw, held over whole captions
            logits = net(inputs, features, weights=weights).flatten(0, 1)
            nll = F.cross_entropy(logits, targets.flatten(), ignore_index=NONE)
            # What counts are the words; the padding is in neither.
            br.elbo(nll, weights, dataset_size=words_of_all, kl_weight=0.03).backward()
            optimiser.step()
            optimiser.zero_grad()
            total += nll.item() * int((targets != NONE).sum())
        if epoch % 5 == 0 or epoch == epochs:
            print(f"epoch {epoch}: {total / words_of_all:.3f} nats a word", flush=True)


@torch.no_grad()
def say(net: br.Bayesian, features: Tensor, longest: int) -> tuple[list[list[int]], Tensor, Tensor]:
    """The likeliest words of each image, the mean log-probability and epistemic nats of them."""
    words = torch.full((1, len(features)), END)
    over = torch.zeros(len(features), dtype=torch.bool)
    confidence, epistemic, count = (torch.zeros(len(features)) for _ in range(3))
    for _ in range(longest):
        draws = torch.Generator().manual_seed(1)  # the same networks for every word
        found = br.predict(net, words, features, samples=20, generator=draws)
        probability, chosen = found.mean[-1].max(-1)
        confidence += probability.log() * ~over
        epistemic += found.epistemic[-1] * ~over
        count += ~over
        words = torch.cat([words, chosen.masked_fill(over, END)[None]])
        over |= chosen == END
        if over.all():
            break
    said = [[word for word in column if word != END] for column in words[1:].t().tolist()]
    return said, confidence / count, epistemic / count


def main() -> None:
    """Train, and caption the images that were held out."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--captions", type=Path, default=None)
    parser.add_argument("--features", type=Path, default=None)
    parser.add_argument("--images", type=int, default=1500, help="how many to draw")
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--hidden", type=int, default=64)
    options = parser.parse_args()
    if (options.captions is None) != (options.features is None):
        parser.error("give both --captions and --features, or neither")
    if options.captions is None:
        features, rows = drawn(options.images)
    else:
        features, rows = own(options.captions, options.features)
    names = list(dict.fromkeys(name for name, _ in rows))
    held_out = set(names[::5])
    training = [(features[name], text.split()) for name, text in rows if name not in held_out]
    counts = Counter(word for _, text in training for word in text)
    vocabulary = ["<unk>", "<end>", *(word for word, count in counts.items() if count > 1)]
    number = {word: place for place, word in enumerate(vocabulary)}

    torch.manual_seed(1)
    module = Captioner(len(training[0][0]), len(vocabulary), options.hidden)
    net = br.Bayesian(module, prior=br.FittedGaussian(), sigma_init=0.02)
    train(
        net, [(seen, [number.get(w, UNKNOWN) for w in t]) for seen, t in training], options.epochs
    )

    test = [name for name in names if name in held_out]
    longest = max(len(text) for _, text in training) + 1
    said, confidence, epistemic = say(net, torch.stack([features[n] for n in test]), longest)
    texts = [" ".join(vocabulary[word] for word in words) for words in said]
    written: dict[str, set[str]] = {name: set() for name in test}
    for name, text in rows:
        if name in held_out:
            written[name].add(text)
    print(f"{'image':12} {'confidence':>10} {'epistemic':>9}  caption")
    order = confidence.argsort().tolist()
    for at in order if len(order) <= 10 else order[:5] + order[-5:]:
        print(f"{test[at]:12} {confidence[at]:10.2f} {epistemic[at]:9.3f}  {texts[at]}")
    right = torch.tensor([texts[at] in written[name] for at, name in enumerate(test)]).float()
    others, sure = right[confidence.argsort()].tensor_split(2)
    print(
        f"as somebody wrote it: {right.mean():.2f}; of the surer half {sure.mean():.2f}, "
        f"of the other {others.mean():.2f}"
    )


if __name__ == "__main__":
    main()
