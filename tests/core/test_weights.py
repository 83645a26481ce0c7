from collections.abc import Mapping

import pytest
import torch

from bayesrnn.core.noise import Noise
from bayesrnn.core.weights import Weights
from bayesrnn.errors import ConfigError


def test_weights_are_a_mapping():
    tensors = {"a": torch.ones(2), "b.c": torch.zeros(3)}
    weights = Weights(tensors, torch.tensor(1.5), Noise(7, (), ()))
    assert isinstance(weights, Mapping)
    assert list(weights) == ["a", "b.c"]
    assert len(weights) == 2
    assert weights["b.c"] is tensors["b.c"]
    assert weights.kl.item() == 1.5
    assert weights.noise.seed == 7
    assert repr(weights) == "Weights(a, b.c)"


def test_later_changes_of_the_given_mapping_are_not_seen():
    tensors = {"a": torch.ones(2)}
    weights = Weights(tensors)
    tensors["b"] = torch.ones(1)
    assert list(weights) == ["a"]


def test_a_mean_has_neither_kl_nor_noise():
    weights = Weights({"a": torch.ones(2)})
    with pytest.raises(ConfigError, match="posterior mean"):
        _ = weights.kl
    with pytest.raises(ConfigError, match="posterior mean"):
        _ = weights.noise
