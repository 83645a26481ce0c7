"""Whole units in the order of what all of their weights say."""

import pytest
import torch

from bayesrnn.compression.cutting import used_units
from bayesrnn.compression.pruning import without
from bayesrnn.compression.ranking import droppable
from bayesrnn.compression.unit_ranking import UnitRanking, unit_scores, units_at_random
from bayesrnn.errors import ConfigError
from bayesrnn.nn.recurrent import CELLS
from bayesrnn.tasks.captions.model import Captioner
from bayesrnn.tasks.lm.model import LanguageModel
from bayesrnn.tasks.mnist.model import MLP

WORDS, H = 7, 4


def network(cell="lstm", tied=False, layers=2):
    module = LanguageModel(WORDS, H, layers, cell, tied)
    module.initialise(0.5, torch.Generator().manual_seed(1))
    return module


def importance(module):
    return {name: weight.detach().abs() for name, weight in droppable(module).items()}


def entries_of(module, layer, unit):
    """All weights of a unit, by the definition of the layers: places in named parameters."""
    gates = module.recurrent.weight_hh_l0.shape[0] // H
    rows = [gate * H + unit for gate in range(gates)]
    if layer == "output":
        return {("output.weight", unit, column) for column in range(H)}
    dimension = {("embedding.weight", word, unit) for word in range(WORDS)}
    dimension |= {("recurrent.weight_ih_l0", row, unit) for row in range(gates * H)}
    if layer == "embedding":
        return dimension
    number = int(layer[-1])
    biases = ("bias_ih", "bias_hh") if gates == 3 else ("bias_ih",)
    found = {(f"recurrent.{bias}_l{number}", row) for bias in biases for row in rows}
    for kind in ("ih", "hh"):
        found |= {(f"recurrent.weight_{kind}_l{number}", r, c) for r in rows for c in range(H)}
    found |= {(f"recurrent.weight_hh_l{number}", row, unit) for row in range(gates * H)}
    if number + 1 < module.recurrent.num_layers:
        return found | {(f"recurrent.weight_ih_l{number + 1}", r, unit) for r in range(gates * H)}
    tied = module.output.weight is module.embedding.weight
    if tied:
        return found | dimension
    return found | {("output.weight", word, unit) for word in range(WORDS)}


def under_own_name(entries, module):
    tied = module.output.weight is module.embedding.weight
    return {
        ("embedding.weight", *e[1:]) if tied and e[0] == "output.weight" else e for e in entries
    }


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("cell", CELLS)
def test_a_score_is_the_root_mean_square_over_all_weights_of_a_unit(cell, tied):
    module = network(cell, tied)
    values = importance(module)
    scores = unit_scores(module, values)
    layers = {"embedding": H, "recurrent_l0": H, "recurrent_l1": H, "output": WORDS}
    if tied:
        del layers["embedding"]
    assert {name: len(found) for name, found in scores.items()} == layers
    for layer, count in layers.items():
        for unit in range(count):
            entries = under_own_name(entries_of(module, layer, unit), module)
            squares = [values[name][tuple(place)].item() ** 2 for name, *place in entries]
            expected = (sum(squares) / len(squares)) ** 0.5
            assert scores[layer][unit].item() == pytest.approx(expected, rel=1e-6), (layer, unit)


def dropped_by(module, order):
    """Masks of all weights without those of units (layer, number)."""
    kept = {name: torch.ones_like(w, dtype=torch.bool) for name, w in importance(module).items()}
    for layer, unit in order:
        for name, *place in under_own_name(entries_of(module, layer, unit), module):
            kept[name][tuple(place)] = False
    return kept


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("cell", CELLS)
def test_units_go_one_after_the_other_with_all_of_their_weights(cell, tied):
    module = network(cell, tied)
    scores = unit_scores(module, importance(module))
    ranking = UnitRanking(module, importance(module), scores)
    order = sorted((score, layer, n) for layer, of in scores.items() for n, score in enumerate(of))
    order = [(layer, n) for _, layer, n in order]
    total = sum(w.numel() for w in importance(module).values())
    assert ranking.weights == total
    lost = []
    for number in range(len(order) + 1):
        expected = dropped_by(module, order[:number])
        lost.append(sum(int((~mask).sum()) for mask in expected.values()))
        found = ranking.kept(lost[-1] / total)
        again = lost.count(lost[-1]) > 1  # a unit that lost its last weight with others
        assert again or all(torch.equal(found[name], mask) for name, mask in expected.items())
    assert lost == sorted(lost)
    for fraction in torch.linspace(0, 1, 23).tolist():
        gone = sum(int((~mask).sum()) for mask in ranking.kept(fraction).values())
        assert gone == max(one for one in lost if one <= round(fraction * total))


def test_in_each_layer_by_itself_the_same_share_of_units_goes():
    module = network()
    scores = unit_scores(module, importance(module))
    ranking = UnitRanking(module, importance(module), scores, per_layer=True)
    worst = {name: of.argsort()[: round(0.5 * len(of))].tolist() for name, of in scores.items()}
    order = [(layer, unit) for layer, units in worst.items() for unit in units]
    expected = dropped_by(module, order)
    for name, mask in ranking.kept(0.5).items():
        assert torch.equal(mask, expected[name])


def test_only_some_layers_lose_units():
    module = network()
    values = importance(module)
    scores = {"recurrent_l1": unit_scores(module, values)["recurrent_l1"]}
    ranking = UnitRanking(module, values, scores)
    gone = dropped_by(module, [("recurrent_l1", n) for n in range(H)])
    assert ranking.weights == sum(int((~mask).sum()) for mask in gone.values())
    for name, mask in ranking.kept(1.0).items():
        assert torch.equal(mask, gone[name])


@pytest.mark.parametrize("cell", CELLS)
def test_what_was_dropped_is_cut_out(cell):
    module = network(cell)
    scores = units_at_random(module, torch.Generator().manual_seed(2))
    kept = UnitRanking(module, importance(module), scores, per_layer=True).kept(0.5)
    used = used_units(without(module, kept))
    for name, of in scores.items():
        left = set(used[name].nonzero().flatten().tolist())
        assert left <= set(of.argsort()[round(0.5 * len(of)) :].tolist())


def test_captioners_and_images():
    """An image enters all recurrent units; the last hidden layer's units leave to the classes."""
    captioner = Captioner(5, WORDS, H, 2)
    values = {name: torch.zeros_like(w) for name, w in importance(captioner).items()}
    values["image.weight"][H + 2] = values["image.bias"][H + 2] = 1.0
    scores = unit_scores(captioner, values)
    assert scores["recurrent_l0"].tolist() == [0] * H
    assert scores["recurrent_l1"].nonzero().flatten().tolist() == [2]
    mlp = MLP(6, 3, 5, 2)
    values = {name: torch.zeros_like(w) for name, w in importance(mlp).items()}
    values["output.weight"][:, 4] = 2.0
    assert unit_scores(mlp, values)["hidden.0"].tolist() == [0] * 5
    # Five weights and a bias enter it, and three leave it.
    assert unit_scores(mlp, values)["hidden.3"][4].item() == pytest.approx((3 * 4 / 9) ** 0.5)


def test_mistakes():
    module = network()
    values = importance(module)
    scores = unit_scores(module, values)
    with pytest.raises(ConfigError, match="has to be from 0 to 1"):
        UnitRanking(module, values, scores).kept(1.5)
    with pytest.raises(ConfigError, match="no units to rank"):
        UnitRanking(torch.nn.Linear(2, 2), {}, {})
    with pytest.raises(ConfigError, match="NaN"):
        UnitRanking(module, values, {"output": torch.full((WORDS,), torch.nan)})
