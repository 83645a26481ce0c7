"""A posterior in a file, and back."""

import json

import pytest
import safetensors.torch
import torch
from torch import nn

import bayesrnn as br
from bayesrnn.errors import BayesRNNError, ConfigError


def generator(seed):
    return torch.Generator().manual_seed(seed)


class Model(nn.Module):
    """Tied words, a recurrent layer, a buffer, a frozen and a deterministic parameter."""

    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(7, 4, padding_idx=0)
        self.recurrent = nn.LSTM(4, 4)
        self.norm = nn.BatchNorm1d(4)
        self.out = nn.Linear(4, 7)
        self.out.weight = self.words.weight
        self.scale = nn.Parameter(torch.tensor(2.0), requires_grad=False)

    def forward(self, x):
        return self.out(self.norm(self.recurrent(self.words(x))[0].flatten(0, 1))) * self.scale


PRIORS = {
    "words.*": br.FittedGaussian("row", a=2.0, b=1e-3),
    "recurrent.*": br.ScaleMixture(0.5, 0.7, 0.01, per="weight"),
    "*": br.Gaussian(0.3),
}


@pytest.fixture(params=[True, br.Sharpening(form="shrinking", names=("out.*", "words.*"))])
def net(request):
    net = br.Bayesian(
        Model(), PRIORS, 0.1, deterministic=("out.bias",), min_sigma=0.02, sharpening=request.param
    )
    net.drop({"recurrent.weight_ih_l0": torch.arange(64).view(16, 4) % 3 == 0})
    net.module.norm.running_mean.uniform_(generator=generator(1))
    return net


def test_there_and_back(net, tmp_path):
    net.save(tmp_path / "net.safetensors")
    found = br.load(tmp_path / "net.safetensors", Model())
    assert found.names == net.names
    assert repr(found) == repr(net)
    assert found.sharpening == net.sharpening
    assert found.min_sigma == net.min_sigma
    for name, tensor in net.state_dict().items():
        assert torch.equal(found.state_dict()[name], tensor)
    assert found.module.out.weight is found.module.words.weight
    x = torch.arange(6).view(3, 2)
    one, other = (each.eval().sample(generator(2)) for each in (net, found))
    assert torch.equal(one.kl, other.kl)
    assert torch.equal(net(x, weights=one), found(x, weights=other))
    assert torch.equal(net(x), found(x))
    assert found.train().dropped()["recurrent.weight_ih_l0"].sum() == 22


def test_nothing_but_numbers_and_words_is_in_the_file(net, tmp_path):
    net.save(str(tmp_path / "net.safetensors"))
    with safetensors.safe_open(tmp_path / "net.safetensors", "pt") as file:
        manifest = json.loads(file.metadata()["bayesrnn-posterior"])
        assert set(file.keys()) == set(net.state_dict())
    assert manifest["priors"]["out.weight" if "out.weight" in net.names else "words.weight"] == {
        "kind": "FittedGaussian",
        "per": "row",
        "a": 2.0,
        "b": 1e-3,
        "std": 0.2,
    }


class Own(br.Prior):
    std = 0.2

    def log_prob(self, weight, axis):
        return torch.distributions.Laplace(0.0, 0.2).log_prob(weight).sum()


def test_a_prior_of_ones_own_is_given_again(tmp_path):
    path = tmp_path / "net.safetensors"
    br.Bayesian(nn.Linear(2, 3), Own()).save(path)
    with pytest.raises(ConfigError, match=r"a class of your own.*give it as prior="):
        br.load(path, nn.Linear(2, 3))
    assert "Own" in repr(br.load(path, nn.Linear(2, 3), prior=Own()))


def test_mistakes(net, tmp_path):
    path = tmp_path / "net.safetensors"
    net.save(path)
    with pytest.raises(
        ConfigError, match=r"has a posterior of words\.weight.*it has: weight, bias"
    ):
        br.load(path, nn.Linear(2, 3))
    wide = Model()
    wide.norm = nn.BatchNorm1d(5)
    with pytest.raises(ConfigError, match=r"loc\.norm\.weight is \[4\] in the file and \[5\] here"):
        br.load(path, wide)
    with pytest.raises(BayesRNNError, match=r"cannot read .*no such file"):
        br.load(tmp_path / "none", Model())
    for what in (b"", b"text, not tensors", path.read_bytes()[:-100]):
        (tmp_path / "bad").write_bytes(what)
        with pytest.raises(ConfigError, match=r"is damaged, or no file of net\.save"):
            br.load(tmp_path / "bad", Model())
    safetensors.torch.save_file({"a": torch.ones(2)}, tmp_path / "other")
    with pytest.raises(ConfigError, match="not one of a posterior"):
        br.load(tmp_path / "other", Model())
    safetensors.torch.save_file(
        {"a": torch.ones(2)}, tmp_path / "later", {"bayesrnn-posterior": '{"version": 9}'}
    )
    with pytest.raises(ConfigError, match="later version"):
        br.load(tmp_path / "later", Model())


def test_numbers_that_are_none_leave_the_old_file_whole(net, tmp_path):
    path = tmp_path / "net.safetensors"
    net.save(path)
    before = path.read_bytes()
    with torch.no_grad():
        net.module.out.bias[2] = float("nan")
    with pytest.raises(BayesRNNError, match=r"loc\.out\.bias holds a NaN"):
        net.save(path)
    assert path.read_bytes() == before
