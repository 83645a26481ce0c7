"""Networks as ordinary models for other programs."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_padded_sequence

import bayesrnn as br
from bayesrnn.errors import ConfigError, MissingExtraError
from bayesrnn.uncertainty import export

#: What torch itself says while it exports recurrent layers, and is not for its caller to mend.
pytestmark = [
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]


class Reader(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(9, 3, padding_idx=0)
        self.recurrent = nn.LSTM(3, 4, batch_first=True, bidirectional=True)
        self.dropout = nn.Dropout(0.5)
        self.output = nn.Linear(8, 2)

    def forward(self, words):
        return self.output(self.dropout(self.recurrent(self.embedding(words))[0][:, -1]))


def made():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return Reader()


@pytest.fixture
def words():
    return torch.randint(1, 9, (2, 5), generator=torch.Generator().manual_seed(1))


def fitted(method, words, **options):
    data = [(words, torch.tensor([0, 1]))] * 4
    return br.fit(made(), data, F.cross_entropy, method=method, epochs=1, **options)


@torch.no_grad()
def run(path, words):
    """What the file says, in the program that it is for."""
    if path.suffix == ".pt2":
        return torch.export.load(path).module()(words)
    pytest.importorskip("onnxruntime", reason="the extra `onnx` brings it")
    import onnxruntime

    session = onnxruntime.InferenceSession(str(path))
    (name,) = (each.name for each in session.get_inputs())
    return torch.from_numpy(session.run(None, {name: words.numpy()})[0])


@pytest.fixture(params=[".pt2", ".onnx"])
def path(request, tmp_path):
    if request.param == ".onnx":
        for name in ("onnx", "onnxscript", "onnxruntime"):
            pytest.importorskip(name, reason="the extra `onnx` brings it")
    return tmp_path / f"model{request.param}"


def test_the_mean_and_a_draw(path, words):
    net = br.Bayesian(made(), sigma_init=0.3)
    with torch.no_grad():
        mean = net.eval()(words)
        drawn = net(words, weights=net.sample(noise=net.noise(7)))
    br.export(net.train(), path, words)
    torch.testing.assert_close(run(path, words), mean)
    br.export(net, path, (words,), draw=7)
    torch.testing.assert_close(run(path, words), drawn)
    assert not torch.allclose(mean, drawn)
    assert net.training  # nothing of it was changed
    assert all(parameter.requires_grad for parameter in net.parameters())


def test_another_number_of_sequences(path, words):
    net = br.Bayesian(made(), sigma_init=0.3)
    br.export(net, path, words, dynamic_shapes=({0: torch.export.Dim("batch")},))
    more = words.repeat(2, 1)[:3]
    with torch.no_grad():
        torch.testing.assert_close(run(path, more), net.eval()(more))


@pytest.mark.parametrize(
    ("method", "options"),
    [
        ("plain", {}),
        ("bbb", {}),
        ("sgld", {"snapshots": 2, "thinning": 1}),
        ("ensemble", {"members": 2}),
        ("ensemble", {"members": 2, "base": "bbb"}),
    ],
)
def test_what_fit_returns(words, method, options):
    found = fitted(method, words, **options)
    with torch.no_grad():
        if method != "ensemble":
            torch.testing.assert_close(export.ordinary(found).eval()(words), found(words))
        for seed in (4, 5):
            drawn = export.ordinary(found, seed).eval()
            expected = found.method.draw(found.net, seed)(words)
            torch.testing.assert_close(drawn(words), expected)
            names = [name for name, _ in drawn.named_parameters()]
            assert names == [name for name, _ in made().named_parameters()]


def test_lasting_masks_are_gone_in_the_mean_and_cannot_be_drawn(tmp_path, words):
    found = fitted("variational-dropout", words)
    br.export(found, tmp_path / "model.pt2", words)
    torch.testing.assert_close(run(tmp_path / "model.pt2", words), found(words).detach())
    with pytest.raises(ConfigError, match="variational-dropout drops something at each call"):
        br.export(found, tmp_path / "model.pt2", words, draw=1)


def test_an_ensemble_has_no_mean_weights(tmp_path, words):
    found = fitted("ensemble", words, members=3)
    with pytest.raises(ConfigError, match=r"ensemble has 3 networks.*: draw=0 to draw=2"):
        br.export(found, tmp_path / "model.pt2", words)
    assert list(tmp_path.iterdir()) == []


class Packing(Reader):
    def forward(self, words, lengths):
        packed = pack_padded_sequence(
            self.embedding(words), lengths, batch_first=True, enforce_sorted=False
        )
        return self.output(self.recurrent(packed)[1][0].transpose(0, 1).flatten(1))


def test_packed_sequences_are_refused(path, words):
    with pytest.raises(ConfigError, match="this Packing packs sequences, which torch cannot"):
        br.export(Packing(), path, (words, torch.tensor([3, 5])))
    assert not path.exists()


def test_other_errors_are_torchs_own(tmp_path, words):
    with pytest.raises(RuntimeError, match="input_size"):
        br.export(nn.LSTM(3, 4), tmp_path / "model.pt2", torch.zeros(2, 5, 7))


def test_mistakes(tmp_path, words, monkeypatch):
    with pytest.raises(ConfigError, match=r"has to be \.onnx or \.pt2"):
        br.export(made(), tmp_path / "model.pt", words)
    with pytest.raises(ConfigError, match="no distribution of them"):
        br.export(made(), tmp_path / "model.pt2", words, draw=1)
    monkeypatch.setattr(export, "find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"bayesrnn\[onnx\]"):
        br.export(made(), tmp_path / "model.onnx", words)
    assert list(tmp_path.iterdir()) == []
