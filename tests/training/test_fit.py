"""Training a module of one's own by every method, and predicting with what comes out."""

import copy
import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

import bayesrnn as br
from bayesrnn.errors import ConfigError, TrainingDivergedError
from bayesrnn.methods import METHODS


def seeded(seed):
    return torch.Generator().manual_seed(seed)


class Reader(nn.Module):
    """Which of two signs the numbers of a sequence mostly have."""

    def __init__(self, dropout=0.1):
        super().__init__()
        self.recurrent = nn.GRU(1, 8, batch_first=True)
        self.dropout = nn.Dropout(dropout)
        self.output = nn.Linear(8, 2)

    def forward(self, x):
        return self.output(self.dropout(self.recurrent(x)[0][:, -1]))


def made(dropout=0.1):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return Reader(dropout)


def sequences(count, seed):
    x = torch.randn(count, 6, 1, generator=seeded(seed))
    return x, (x.sum((1, 2)) > 0).long()


@pytest.fixture(scope="module")
def batches():
    data = TensorDataset(*sequences(120, 1))
    return DataLoader(data, batch_size=32, shuffle=True, generator=seeded(2))


@pytest.fixture(scope="module")
def valid():
    return [sequences(100, 3)]


@pytest.mark.parametrize("method", sorted(set(METHODS) - {"ivon"}))
def test_every_method(batches, valid, method):
    options = {"ensemble": {"members": 2}, "sgld": {"snapshots": 2}, "psgld": {"snapshots": 2}}
    found = br.fit(
        made(), batches, F.cross_entropy, method=method, epochs=2, valid=valid,
        **options.get(method, {}),
    )  # fmt: skip
    assert len(found.history) == (4 if method == "ensemble" else 2)
    x, labels = valid[0]
    assert found(x).shape == (100, 2)
    assert math.isfinite(F.cross_entropy(found(x), labels).item())
    prediction = br.predict(found, x, samples=3, generator=seeded(4))
    torch.testing.assert_close(prediction.mean.sum(-1), torch.ones(100))
    same = br.predict(found, x, samples=3, generator=seeded(4))
    assert torch.equal(prediction.mean, same.mean)
    differs = method not in ("plain",)
    assert bool((prediction.epistemic > 0).any()) is differs


def test_learning_by_plain_descent_is_that_of_a_loop_by_hand(batches):
    data = list(batches)
    found = br.fit(
        made(0), data, F.cross_entropy, method="plain", epochs=2, optimizer="sgd", lr=0.5, clip=None
    )
    by_hand = made(0)
    for rate in (0.5, 0.5 * 0.8):
        for x, labels in data:
            F.cross_entropy(by_hand.train()(x), labels).backward()
            with torch.no_grad():
                for parameter in by_hand.parameters():
                    parameter -= rate * parameter.grad
                    parameter.grad = None
    for name, parameter in found.module.named_parameters():
        torch.testing.assert_close(parameter, by_hand.get_parameter(name))


class Pairs:
    """Batches that are not a list, as those of a `DataLoader`."""

    def __init__(self, pairs):
        self.pairs = pairs

    def __len__(self):
        return len(self.pairs)

    def __iter__(self):
        return iter(self.pairs)


@pytest.mark.parametrize(
    ("kind", "counted"),
    [(list, 4 + 4 + 2), (Pairs, 3 * 4)],  # as many predictions as there are, or as the first has
)
def test_the_kl_is_charged_by_the_predictions_of_an_epoch(kind, counted):
    """With one weight and a flat likelihood, the prior alone decides: the mean goes to 0."""

    class One(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.tensor([1.0]))

        def forward(self, x):
            return x * 0 + 0 * self.weight

    seen = []
    data = kind([(torch.zeros(size, 1), torch.zeros(size, 1)) for size in (4, 4, 2)])

    def loss(output, target):
        seen.append(len(target))
        return F.mse_loss(output, target)

    found = br.fit(
        One(), data, loss, epochs=1, method="bbb", optimizer="sgd", lr=0.1, clip=None,
        prior="gaussian", prior_sigma1=2.0, sigma_lr=0.0, prior_step="gradient", kl_weight=1.0,
        antithetic=False,
    )  # fmt: skip
    assert seen == [4, 4, 2]
    # d KL / d mu = mu / sigma^2; each minibatch, however small, is charged KL / examples on a mean.
    expected = (1 - 0.1 / 4 / counted) ** 3
    assert found.module.weight.item() == pytest.approx(expected, rel=1e-5)


def test_the_best_epoch_is_kept(batches, valid):
    found = br.fit(
        made(), batches, F.cross_entropy, method="plain", epochs=6, lr=0.05, valid=valid,
        average=0.9,
    )  # fmt: skip
    losses = [entry["valid"] for entry in found.history]
    assert found.best_epoch == 1 + losses.index(min(losses))
    x, labels = valid[0]
    assert F.cross_entropy(found(x), labels).item() == pytest.approx(min(losses), rel=1e-5)
    assert min(losses) < 0.3


def test_patience_ends_it(batches, valid):
    found = br.fit(
        made(), batches, F.cross_entropy, method="plain", epochs=50, lr=0.3, valid=valid,
        patience=2,
    )  # fmt: skip
    assert len(found.history) == found.best_epoch + 2 < 50


def test_a_seed_gives_the_same_network(batches):
    data = list(batches)
    one, other = (
        br.fit(made(), data, F.cross_entropy, epochs=1).net.state_dict() for _ in range(2)
    )
    assert all(torch.equal(tensor, other[name]) for name, tensor in one.items())


def test_an_interruption_keeps_what_was_learnt(batches):
    calls = []

    def loss(output, target):
        calls.append(1)
        if len(calls) > 6:  # in the second epoch of four minibatches
            raise KeyboardInterrupt
        return F.cross_entropy(output, target)

    found = br.fit(made(), batches, loss, method="plain", epochs=9)
    assert len(found.history) == found.best_epoch == 1


def test_an_interruption_keeps_the_members_that_are_trained(batches):
    calls = []

    def loss(output, target):
        calls.append(1)
        if len(calls) > 6:  # the second member's first epoch
            raise KeyboardInterrupt
        return F.cross_entropy(output, target)

    found = br.fit(made(), batches, loss, method="ensemble", members=2, epochs=1)
    assert found.best_epoch == 1
    assert found.net.trained == 1


def test_numbers_with_a_regression_head(valid):
    x, _ = valid[0]
    data = [(x.flatten(1), x.mean((1, 2))[:, None])]
    found = br.fit(nn.Linear(6, 1), data, F.mse_loss, epochs=3)
    prediction = br.predict([found, found], data[0][0], samples=4, head=br.Regression(noise=0.1))
    assert prediction.mean.shape == (100, 1)
    assert (prediction.epistemic > 0).all()


def test_mistakes(batches, valid):
    x, labels = valid[0]
    net = made()

    def fit(**given):
        given = {"module": net, "batches": batches, "loss": F.cross_entropy, "epochs": 1, **given}
        return br.fit(given.pop("module"), given.pop("batches"), given.pop("loss"), **given)

    for given, match in (
        ({"method": "bayes"}, r"method is 'bayes'; there are: plain, dropout"),
        ({"strength": 3}, r"bbb has no option strength; it has: prior"),
        ({"module": br.Bayesian(copy.deepcopy(net))}, r"give net\.module"),
        ({"batches": iter([(x, labels)])}, "no length"),
        ({"batches": [x]}, "a batch is a Tensor"),
        ({"batches": [(x, "label")]}, "has to hold a tensor"),
        ({"patience": 3}, "give valid="),
        ({"epochs": 0}, "1 or more"),
        ({"lr": 0.0}, r"lr is 0\.0; it has to be above 0"),
        ({"lr": math.nan}, "lr is nan"),
        ({"clip": 0}, "clip is 0; it has to be above 0, or None"),
        ({"average": 1.0}, r"average is 1\.0; it has to be 0 or more, and below 1"),
        ({"patience": 0, "valid": valid}, "patience is 0; it has to be 1 or more"),
        ({"seed": -1}, "seed is -1; it has to be 0 or more"),
        ({"loss": nn.CrossEntropyLoss(reduction="none")}, r"shape \[32\], not one number"),
        ({"loss": lambda output, target: 1.0}, "a float, not one number"),
        ({"valid": iter([])}, "gone after one reading"),
        ({"method": "sgld", "average": 0.9}, "cannot be averaged"),
    ):
        with pytest.raises(ConfigError, match=match):
            fit(**given)
    with pytest.raises(TrainingDivergedError, match=r"the loss became nan.*in epoch 1"):
        fit(batches=[(x * math.nan, labels)])
