"""Which layers drop units, and what the others do in the meantime."""

import pytest
import torch
from torch import nn

from bayesrnn.nn.dropout import dropout_layers, dropping


class ManyDropouts(nn.Module):
    """Layers of every kind, those that drop named so."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.drops_units = nn.Dropout(0.1)
        self.off = nn.Dropout(0.0)
        self.inner = nn.Sequential(nn.BatchNorm1d(3), nn.Dropout(0.2))
        self.drops_channels = nn.ModuleList(
            [nn.Dropout1d(0.3), nn.Dropout2d(0.3), nn.Dropout3d(0.3)]
        )
        self.drops_alpha = nn.ModuleList([nn.AlphaDropout(0.3), nn.FeatureAlphaDropout(0.3)])
        self.drops_between = nn.LSTM(3, 3, num_layers=2, dropout=0.4)
        self.one_layer = nn.GRU(3, 3)
        self.one_layer.dropout = 0.4  # nothing is in between
        self.two_layers = nn.RNN(3, 3, num_layers=2)
        self.drops_attention = nn.MultiheadAttention(4, 2, dropout=0.1)
        self.attention = nn.MultiheadAttention(4, 2)


def dropping_names():
    return {
        "drops_units",
        "inner.1",
        *(f"drops_channels.{i}" for i in range(3)),
        *(f"drops_alpha.{i}" for i in range(2)),
        "drops_between",
        "drops_attention",
    }


def test_layers_with_a_rate_are_found():
    module = ManyDropouts()
    names = {layer: name for name, layer in module.named_modules()}
    found = [names[layer] for layer in dropout_layers(module)]
    assert len(found) == len(set(found))
    assert set(found) == dropping_names()


def test_a_layer_is_found_by_itself_and_once_where_it_is_shared():
    layer = nn.Dropout(0.5)
    assert dropout_layers(layer) == [layer]
    assert dropout_layers(nn.Sequential(layer, nn.Linear(2, 2), layer)) == [layer]
    assert dropout_layers(nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.0))) == []


@pytest.mark.parametrize("training", [True, False])
def test_inside_only_dropout_is_on(training):
    module = ManyDropouts().train(training)
    with dropping(module):
        on = {name for name, layer in module.named_modules() if layer.training}
        assert on == dropping_names()
    assert all(layer.training is training for layer in module.modules())


def test_each_layer_gets_its_own_mode_back_even_from_an_error():
    module = ManyDropouts().train()
    module.inner.eval()
    module.drops_between.eval()
    module.inner[1].train()
    before = {name: layer.training for name, layer in module.named_modules()}
    assert len(set(before.values())) == 2
    with dropping(module):
        pass
    assert {name: layer.training for name, layer in module.named_modules()} == before
    with pytest.raises(RuntimeError, match="midway"), dropping(module):
        raise RuntimeError("midway")
    assert {name: layer.training for name, layer in module.named_modules()} == before


def test_normalisation_does_not_learn_meanwhile():
    norm = nn.BatchNorm1d(3)
    norm.running_mean.copy_(torch.tensor([1.0, 2.0, 3.0]))
    norm.running_var.copy_(torch.tensor([4.0, 1.0, 9.0]))
    module = nn.Sequential(norm, nn.Dropout(0.5)).train()
    before = {name: value.clone() for name, value in norm.state_dict().items()}
    x = torch.randn(50, 3, generator=torch.Generator().manual_seed(0))
    with dropping(module), torch.no_grad():
        found = module(x)
    after = norm.state_dict()
    assert all(torch.equal(after[name], value) for name, value in before.items())
    kept = found != 0
    assert 0 < kept.float().mean() < 1
    expected = 2 * (x - before["running_mean"]) / (before["running_var"] + norm.eps).sqrt()
    torch.testing.assert_close(found[kept], expected[kept])


@pytest.mark.parametrize("layers", [1, 2])
def test_transformers_take_no_shortcut_past_their_dropout(layers):
    # In evaluation mode and without gradients torch computes them with one fused operation.
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.5, batch_first=True)
    module = layer if layers == 1 else nn.TransformerEncoder(layer, layers)
    module.eval()
    x = torch.randn(2, 5, 8, generator=torch.Generator().manual_seed(0))
    with torch.no_grad(), torch.random.fork_rng():
        with dropping(module):
            torch.manual_seed(0)
            found = module(x)
        torch.manual_seed(0)
        torch.testing.assert_close(found, module.train()(x))
        torch.manual_seed(1)
        assert not torch.allclose(found, module(x))
