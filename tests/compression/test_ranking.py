"""The order in which weights are dropped, against a direct sort."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from bayesrnn.compression.ranking import Ranking, at_random, magnitude, signal_to_noise
from bayesrnn.core.bayesian import Bayesian
from bayesrnn.errors import ConfigError

VALUES = st.sampled_from([0.0, 0.5, 1.0, 2.0]) | st.floats(0, 1e6, width=32)
TENSORS = st.dictionaries(
    st.sampled_from(["a", "b", "c.d"]), st.lists(VALUES, min_size=1, max_size=7), min_size=1
)


def directly(values, fraction, per_tensor):
    """Sort (importance, place) and cut: which are kept, by name."""
    entries = [
        (number, order, name, place)
        for order, (name, numbers) in enumerate(values.items())
        for place, number in enumerate(numbers)
    ]
    groups = [[e for e in entries if e[2] == name] for name in values] if per_tensor else [entries]
    dropped = set()
    for group in groups:
        ordered = sorted(group, key=lambda entry: (entry[0], entry[1], entry[3]))
        dropped |= {entry[2:] for entry in ordered[: round(fraction * len(group))]}
    return {name: [(name, p) not in dropped for p in range(len(v))] for name, v in values.items()}


@given(TENSORS, st.floats(0, 1), st.booleans())
def test_masks_are_those_of_a_direct_sort(values, fraction, per_tensor):
    tensors = {name: torch.tensor(numbers) for name, numbers in values.items()}
    kept = Ranking(tensors, per_tensor).kept(fraction)
    found = {name: mask.tolist() for name, mask in kept.items()}
    assert found == directly(values, fraction, per_tensor)


@given(TENSORS, st.data())
def test_every_number_of_whole_weights_can_be_dropped(values, data):
    ranking = Ranking({name: torch.tensor(numbers) for name, numbers in values.items()})
    total = sum(map(len, values.values()))
    assert ranking.weights == total
    wanted = data.draw(st.integers(0, total))
    kept = ranking.kept(wanted / total)
    assert sum(int((~mask).sum()) for mask in kept.values()) == wanted


@pytest.mark.parametrize("per_tensor", [False, True])
def test_none_and_all(per_tensor):
    ranking = Ranking({"a": torch.rand(3, 4), "b": torch.zeros(2)}, per_tensor)
    assert all(mask.all() for mask in ranking.kept(0).values())
    assert not any(mask.any() for mask in ranking.kept(1).values())
    assert {name: mask.shape for name, mask in ranking.kept(1).items()} == {"a": (3, 4), "b": (2,)}


def test_one_weight_and_a_scalar():
    ranking = Ranking({"w": torch.tensor(3.0)})
    assert [bool(ranking.kept(fraction)["w"]) for fraction in (0, 0.4, 0.6, 1)] == [1, 1, 0, 0]
    assert ranking.kept(0)["w"].shape == ()


def test_an_empty_tensor_is_no_obstacle():
    values = {"none": torch.zeros(0, 3), "w": torch.tensor([2.0, 1.0])}
    for per_tensor in (False, True):
        kept = Ranking(values, per_tensor).kept(0.5)
        assert kept["none"].shape == (0, 3)
        assert kept["w"].tolist() == [True, False]


def test_among_equals_the_first_goes_first():
    kept = Ranking({"a": torch.ones(2), "b": torch.ones(2)}).kept(0.75)
    assert [kept["a"].tolist(), kept["b"].tolist()] == [[False, False], [False, True]]


def test_whole_network_and_per_tensor_differ():
    values = {"small": torch.tensor([0.1, 0.2]), "large": torch.tensor([10.0, 20.0])}
    whole, each = Ranking(values).kept(0.5), Ranking(values, per_tensor=True).kept(0.5)
    assert [whole["small"].tolist(), whole["large"].tolist()] == [[False, False], [True, True]]
    assert [each["small"].tolist(), each["large"].tolist()] == [[False, True], [False, True]]


def test_double_precision_is_not_lost():
    close = torch.tensor([1 + 1e-12, 1.0], dtype=torch.double)
    assert Ranking({"w": close}).kept(0.5)["w"].tolist() == [True, False]


@pytest.mark.parametrize("fraction", [-0.01, 1.01, float("nan")])
def test_fractions_outside_are_refused(fraction):
    with pytest.raises(ConfigError, match="from 0 to 1"):
        Ranking({"w": torch.ones(3)}).kept(fraction)


def test_what_cannot_be_ranked_is_refused():
    with pytest.raises(ConfigError, match="importance of w is NaN"):
        Ranking({"v": torch.ones(1), "w": torch.tensor([1.0, float("nan")])})
    with pytest.raises(ConfigError, match="no weights"):
        Ranking({})


def test_signal_to_noise_and_magnitude():
    net = Bayesian(nn.Linear(2, 1), deterministic=("bias",), min_sigma=0.0)
    with torch.no_grad():
        net.module.weight.copy_(torch.tensor([[-3.0, 0.5]]))
        net.rho.weight.copy_(torch.tensor([[2.0, -1.0]]))
    found = signal_to_noise(net)
    assert list(found) == ["weight"]
    sigma = torch.log1p(torch.tensor([2.0, -1.0]).exp())
    torch.testing.assert_close(found["weight"], torch.tensor([[3.0, 0.5]]) / sigma)
    assert not found["weight"].requires_grad
    assert magnitude(net.mean())["weight"].tolist() == [[3.0, 0.5]]


def test_a_zero_that_is_certain_has_no_signal():
    net = Bayesian(nn.Linear(2, 1, bias=False), min_sigma=0.0)
    with torch.no_grad():
        net.module.weight.copy_(torch.tensor([[0.0, 1e-9]]))
        net.rho.weight.fill_(-1000.0)  # sigma is as small as a number can be
    ((none, some),) = signal_to_noise(net)["weight"].tolist()
    assert none == 0.0
    assert some > 1e20


def test_at_random_follows_its_generator_and_not_the_weights():
    def drawn(seed, weight):
        generator = torch.Generator().manual_seed(seed)
        return at_random({"w": torch.full((50, 4), weight)}, generator)["w"]

    assert torch.equal(drawn(1, 0.0), drawn(1, 7.0))
    assert not torch.equal(drawn(1, 0.0), drawn(2, 0.0))
    assert drawn(1, 0.0).shape == (50, 4)
