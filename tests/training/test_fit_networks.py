"""Every method on networks of one's own: packed sequences, attention, convolutions."""

import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_padded_sequence

import bayesrnn as br
from bayesrnn.methods import METHODS

WORDS, LONGEST = 12, 7


class PackedGRU(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(WORDS, 4, padding_idx=0)
        self.recurrent = nn.GRU(4, 6, batch_first=True, bidirectional=True)
        self.dropout = nn.Dropout(0.1)
        self.output = nn.Linear(12, 2)

    def forward(self, words, lengths):
        packed = pack_padded_sequence(
            self.embedding(words), lengths, batch_first=True, enforce_sorted=False
        )
        _, last = self.recurrent(packed)
        return self.output(self.dropout(last.transpose(0, 1).flatten(1)))


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(WORDS, 8, padding_idx=0)
        layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.1, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)
        self.output = nn.Linear(8, 2)

    def forward(self, words, lengths):
        padding = torch.arange(LONGEST) >= lengths[:, None]
        read = self.encoder(self.embedding(words), src_key_padding_mask=padding)
        return self.output(read.masked_fill(padding[..., None], 0).sum(1) / lengths[:, None])


class Convolution(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(WORDS, 4, padding_idx=0)
        self.convolution = nn.Conv1d(4, 8, 3, padding=1)
        self.dropout = nn.Dropout(0.1)
        self.output = nn.Linear(8, 2)

    def forward(self, words, lengths):
        del lengths
        read = self.convolution(self.embedding(words).transpose(1, 2)).relu()
        return self.output(self.dropout(read.mean(2)))


def texts(count, seed):
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(2, LONGEST + 1, (count,), generator=generator)
    words = torch.randint(1, WORDS, (count, LONGEST), generator=generator)
    words[torch.arange(LONGEST) >= lengths[:, None]] = 0
    return words, lengths, ((words > 6).sum(1) * 2 > lengths).long()


@pytest.mark.parametrize("network", [PackedGRU, Attention, Convolution])
@pytest.mark.parametrize("method", sorted(set(METHODS) - {"ivon"}))
def test_every_method(network, method):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        module = network()
    options = {"ensemble": {"members": 2}, "sgld": {"snapshots": 2}, "psgld": {"snapshots": 2}}
    data = [texts(8, 1), texts(8, 2)]
    found = br.fit(
        module, data, F.cross_entropy, method=method, epochs=2, valid=[texts(8, 3)],
        **options.get(method, {}),
    )  # fmt: skip
    words, lengths, labels = texts(8, 4)
    prediction = br.predict(found, words, lengths, samples=3)
    assert math.isfinite(F.nll_loss(prediction.mean.log(), labels).item())
    assert bool((prediction.epistemic > 0).any()) is (method != "plain")


def test_the_defaults_of_bbb_reach_nearly_what_plain_reaches():
    words, lengths, labels = texts(500, 4)
    right = {}
    for method in ("plain", "bbb"):
        with torch.random.fork_rng():
            torch.manual_seed(0)
            module = PackedGRU()
        data = [texts(40, seed) for seed in range(10, 20)]
        found = br.fit(module, data, F.cross_entropy, method=method, epochs=25, lr=0.02)
        mean = br.predict(found, words, lengths, samples=1 if method == "plain" else 10).mean
        right[method] = (mean.argmax(-1) == labels).float().mean().item()
    assert right["plain"] > 0.93
    assert right["bbb"] > right["plain"] - 0.03


@pytest.mark.parametrize("method", ["variational-dropout", "bbb"])
def test_a_packed_sequence_is_read_by_a_draw_as_it_is_alone(method):
    """What a network says of a sequence does not depend on those that it is packed with."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        module = PackedGRU()
    found = br.fit(module, [texts(8, 1)], F.cross_entropy, method=method, epochs=1)
    words, lengths, _ = texts(8, 4)
    network = found.method.draw(found.net, 5)
    together = network(words, lengths)
    for number, length in enumerate(lengths):
        one = slice(number, number + 1)
        torch.testing.assert_close(network(words[one, :length], lengths[one]), together[one])
