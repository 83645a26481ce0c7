"""Draws of methods that keep one network, several, or as many as one likes."""

import pytest
import torch

from bayesrnn.errors import ConfigError
from bayesrnn.methods.base import Method
from bayesrnn.random import RandomStreams
from bayesrnn.tasks.lm.likelihood import likelihood
from bayesrnn.uncertainty.draws import Draws, networks_to_read
from bayesrnn.uncertainty.metrics import classification


class Numbers(Method[None]):
    """Keeps `kept` networks; network i answers with the logits i, 0 to anything."""

    name, summary, options_type = "numbers", "", type(None)

    def __init__(self, kept, differ):
        super().__init__(None, RandomStreams(0))
        self.kept, self.differ, self.seeds = kept, differ, []

    def build(self, module, hints):
        return module

    def loss(self, net, objective, shares):
        raise NotImplementedError

    def members(self, net):
        return self.kept

    @property
    def draws_differ(self):
        return self.differ

    def mean(self, net):
        return answering(-1.0)

    def draw(self, net, seed):
        self.seeds.append(seed)
        return answering(float(seed % self.kept))


def answering(number):
    def network(x, *state):
        logits = torch.tensor([number, 0.0]).expand(*x.shape, 2)
        return (logits, None) if state else logits

    return network


def draws_of(kept, differ, samples, seed=0):
    method = Numbers(kept, differ)
    return method, Draws(method, None, samples, torch.Generator().manual_seed(seed))


def kept_numbers(method):
    return [seed % method.kept for seed in method.seeds]


def test_the_networks_that_are_kept_are_read_once_each_in_random_order():
    orders = set()
    for seed in range(20):
        method, draws = draws_of(4, False, samples=9, seed=seed)
        assert [draws.differing(n) for n in (0, 1, 3, 4, 9)] == [0, 1, 3, 4, 4]
        assert len(list(draws.networks())) == networks_to_read(method, None, 9) == 4
        assert sorted(kept_numbers(method)) == [0, 1, 2, 3]
        orders.add(tuple(kept_numbers(method)))
    assert len(orders) > 5


def test_members_whose_draws_differ_take_turns():
    method, draws = draws_of(3, True, samples=7)
    assert len(list(draws.networks())) == networks_to_read(method, None, 7) == 7
    numbers = kept_numbers(method)
    assert sorted(numbers[:3]) == [0, 1, 2]
    assert numbers[3:] == numbers[:4]
    assert len(set(method.seeds)) == 7


@pytest.mark.parametrize("samples", [0, 1, 5])
def test_one_network_without_draws_is_read_once(samples):
    method, draws = draws_of(1, False, samples)
    (network,) = draws.networks()
    assert network(torch.zeros(1)).tolist() == [[-1.0, 0.0]]
    assert networks_to_read(method, None, samples) == 1
    assert not method.seeds


def test_no_draws_means_the_mean():
    method, draws = draws_of(3, True, samples=0)
    (network,) = draws.networks()
    assert network(torch.zeros(1)).tolist() == [[-1.0, 0.0]]
    assert networks_to_read(method, None, 0) == 1


def test_likelihoods_average_the_probabilities_of_what_is_kept():
    numbers = torch.arange(3.0)
    expected = -torch.sigmoid(numbers).mean().log().item()
    found = likelihood(Numbers(3, False), None, torch.zeros(5, dtype=torch.long), samples=50)
    assert found.nll == pytest.approx(expected)
    images, labels = torch.zeros(5), torch.zeros(5, dtype=torch.long)
    assert classification(Numbers(3, False), None, images, labels, samples=50).nll == pytest.approx(
        expected
    )


def test_a_negative_number_of_draws_is_refused():
    with pytest.raises(ConfigError, match="samples is -1"):
        draws_of(1, True, samples=-1)
