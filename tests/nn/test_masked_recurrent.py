"""Recurrent layers with masks: all layers and directions, and what torch's layers can do."""

import copy
from itertools import product

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_sequence, pad_packed_sequence
from torch.utils._pytree import tree_leaves

import bayesrnn as br
from bayesrnn.errors import ConfigError
from bayesrnn.nn.dropout import dropout_layers, dropping, never_drop
from bayesrnn.nn.masked import MaskStyle
from bayesrnn.nn.masked_recurrent import masked_recurrent

KINDS = {"lstm": nn.LSTM, "gru": nn.GRU, "rnn": nn.RNN}
GATES = {"lstm": 4, "gru": 3, "rnn": 1}
TIME, BATCH, INPUTS, HIDDEN = 5, 3, 4, 2


@pytest.fixture(autouse=True)
def seeded():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        yield


@pytest.fixture(params=KINDS)
def cell(request):
    return request.param


def make(cell, style=None, input_rate=0.5, recurrent_rate=0.3, **options):
    plain = KINDS[cell](INPUTS, HIDDEN, **options).double()
    return plain, masked_recurrent(plain, input_rate, recurrent_rate, style or MaskStyle())


def make_state(cell, layers, batch=BATCH):
    h, c = torch.randn(2, layers, batch, HIDDEN).double()
    return (h, c) if cell == "lstm" else h


def assert_same(one, other):
    for mine, theirs in zip(tree_leaves(one), tree_leaves(other), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-10, atol=1e-12)


class Recorded:
    """A style that remembers the masks that were drawn."""

    def __init__(self, style):
        self.style = style
        self.masks = []

    def draw(self, rate, x, gates):
        self.masks.append(self.style.draw(rate, x, gates))
        return self.masks[-1]


def test_all_layers_against_the_equations(cell, literal_layer):
    for gates, every_step, bidirectional in product(("tied", "untied"), *2 * [(False, True)]):
        plain, layer = make(cell, num_layers=2, bidirectional=bidirectional)
        recorded = layer.style = Recorded(MaskStyle("bernoulli", every_step, gates))
        directions = 2 if bidirectional else 1
        x, state = torch.randn(TIME, BATCH, INPUTS).double(), make_state(cell, 2 * directions)
        outputs, last = layer(x, state)
        masks = iter(recorded.masks)
        h, c = state if cell == "lstm" else (state, [None] * 2 * directions)
        ends, below, number = [], x, 0
        for _ in range(2):
            sides = []
            for direction in range(directions):
                seen = below.flip(0) if direction else below
                first = h[number], c[number]
                weights = plain.all_weights[number]
                read, *end = literal_layer(cell, seen, first, weights, next(masks), next(masks))
                sides.append(read.flip(0) if direction else read)
                ends.append(end)
                number += 1
            below = torch.cat(sides, -1)
        torch.testing.assert_close(outputs, below, rtol=1e-10, atol=1e-12)
        expected = [torch.stack(part) for part in zip(*ends, strict=True) if part[0] is not None]
        assert_same(last, expected)
        # The masks are of the right kind, and no two are the same.
        steps, of_gates = TIME if every_step else 1, GATES[cell] if gates == "untied" else 1
        for mask in recorded.masks:
            assert mask.shape[0] == steps
            assert mask.dim() == (4 if of_gates > 1 else 3)
        assert len(recorded.masks) == 4 * directions


def test_untied_gates_have_masks_of_their_own_and_tied_ones_do_not(cell):
    wide = torch.empty(TIME, BATCH, 50)
    mask = MaskStyle(gates="untied").draw(0.5, wide, GATES[cell])
    patterns = {tuple(row.tolist()) for row in mask.flatten(0, -2)}
    assert len(patterns) == GATES[cell] * BATCH
    assert MaskStyle(gates="tied").draw(0.5, wide, GATES[cell]).dim() == 3


def test_in_evaluation_and_without_rates_it_is_torchs_layer(cell):
    for layers, options in product((1, 2), ({}, {"batch_first": True}, {"bidirectional": True})):
        plain, layer = make(cell, num_layers=layers, **options)
        x = torch.randn(TIME, BATCH, INPUTS).double()
        assert_same(layer.eval()(x), plain(x))
        never_drop(layer.train())
        assert_same(layer(x), plain(x))


def test_shapes_are_those_of_torchs_layer(cell):
    for batch_first, with_state in product((False, True), repeat=2):
        # Rates so small that nothing is dropped let the masked path give what torch's gives.
        options = {"num_layers": 2, "batch_first": batch_first}
        plain, layer = make(cell, input_rate=1e-18, recurrent_rate=1e-18, **options)
        x = torch.randn(TIME, BATCH, INPUTS).double()
        state = make_state(cell, 2, batch=TIME if batch_first else BATCH) if with_state else None
        assert_same(layer(x, state), plain(x, state))
        single = state
        if with_state:
            single = tuple(part[:, 0] for part in state) if cell == "lstm" else state[:, 0]
        assert_same(layer(x[0], single), plain(x[0], single))


def test_as_a_layer_of_ones_own(cell):
    kind, torchs = getattr(br.nn, cell.upper()), KINDS[cell]
    options = {"num_layers": 2, "batch_first": True, "bidirectional": True}
    layer = kind(INPUTS, HIDDEN, dropout=0.4, recurrent_dropout=0.2, tied=False, **options)
    plain = torchs(INPUTS, HIDDEN, **options)
    assert list(layer.state_dict()) == list(plain.state_dict())
    plain.load_state_dict(layer.state_dict())
    x = torch.randn(BATCH, TIME, INPUTS)
    for mine, theirs in zip(
        tree_leaves(layer.eval()(x)), tree_leaves(plain.eval()(x)), strict=True
    ):
        assert torch.equal(mine, theirs)
    assert not torch.equal(layer.train()(x)[0], plain(x)[0])
    assert (layer.input_rate, layer.recurrent_rate) == (0.4, 0.2)
    assert layer.style == MaskStyle(gates="untied")
    assert "batch_first=True" in repr(layer)
    assert "recurrent_rate=0.2" in repr(layer)
    # What is random in it is drawn from, and a method puts its own masks in their place.
    found = br.predict(Last(layer), x, samples=5)
    assert (found.epistemic > 0).any()
    fitted = br.fit(
        Last(kind(INPUTS, HIDDEN, dropout=0.4, **options)),
        [(x, torch.zeros(BATCH).long())],
        nn.functional.cross_entropy,
        method="variational-dropout",
        dropout=0.1,
        epochs=1,
    )
    assert fitted.module.layer.input_rate == 0.1


class Last(nn.Module):
    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, x):
        return self.layer(x)[0][:, -1]


def test_the_masks_are_those_of_the_style_whether_a_layer_is_made_or_replaced(cell):
    kind = getattr(br.nn, cell.upper())
    layer = kind(INPUTS, HIDDEN, dropout=0.5, recurrent_dropout=0.3, dtype=torch.double)
    same = masked_recurrent(layer, 0.5, 0.3, MaskStyle())
    x, start = torch.randn(TIME, BATCH, INPUTS).double(), torch.get_rng_state()
    one = layer(x)
    torch.set_rng_state(start)
    assert_same(same(x), one)


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: br.nn.RNN(8, 16, 1, "relu"), "nonlinearity is 'relu', but the recurrent layers"),
        (lambda: br.nn.RNN(8, 16, nonlinearity="relu"), "have no nonlinearity; leave it out"),
        (lambda: br.nn.LSTM(8, 16, proj_size=4), "proj_size is 4, but .* have no proj_size"),
    ],
)
def test_what_torchs_layers_have_and_these_do_not(make, match):
    with pytest.raises(ConfigError, match=match):
        make()


@pytest.mark.parametrize("given", [{"dropout": 1.0}, {"recurrent_dropout": -0.1}])
def test_a_rate_that_is_none(given):
    with pytest.raises(ConfigError, match=rf"{next(iter(given))} is .*; it has to be 0 or more"):
        br.nn.LSTM(2, 3, **given)


LENGTHS = (2, 5, 1, 5, 3)


def test_packed_sequences_without_anything_dropped_are_read_as_torch_reads_them(cell):
    for bidirectional, with_state, ordered in product((False, True), repeat=3):
        options = {"num_layers": 2, "bidirectional": bidirectional}
        plain, layer = make(cell, input_rate=1e-18, recurrent_rate=1e-18, **options)
        lengths = sorted(LENGTHS, reverse=True) if ordered else LENGTHS
        parts = [torch.randn(length, INPUTS).double() for length in lengths]
        packed = pack_sequence(parts, enforce_sorted=ordered)
        states = make_state(cell, 4 if bidirectional else 2, batch=len(parts))
        state = states if with_state else None
        found, last = layer(packed, state)
        expected, expected_last = plain(packed, state)
        assert_same(found.data, expected.data)
        assert_same(last, expected_last)
        assert (found.unsorted_indices is None) is ordered
        gradients = [
            torch.autograd.grad(
                sum(leaf.sin().sum() for leaf in tree_leaves(out)), each.weight_hh_l0
            )
            for each, out in ((layer, (found.data, last)), (plain, (expected.data, expected_last)))
        ]
        assert_same(*gradients)


def test_each_packed_sequence_has_the_masks_that_it_would_have_alone(cell):
    for gates, every_step in product(("tied", "untied"), (False, True)):
        plain, layer = make(cell, num_layers=2, bidirectional=True)
        recorded = layer.style = Recorded(MaskStyle("bernoulli", every_step, gates))
        parts = [torch.randn(length, INPUTS).double() for length in LENGTHS]
        found, last = layer(pack_sequence(parts, enforce_sorted=False))
        padded, _ = pad_packed_sequence(found)
        order = sorted(range(len(LENGTHS)), key=lambda number: -LENGTHS[number])
        for place, number in enumerate(order):
            masks = iter(recorded.masks)
            alone = masked_recurrent(plain, 0.5, 0.3, Given(masks, place, LENGTHS[number]))
            outputs, ends = alone(parts[number])
            assert_same(padded[: LENGTHS[number], number], outputs)
            whole = last if cell == "lstm" else (last,)
            assert_same([part[:, number] for part in whole], ends)


class Given:
    """A style that gives one sequence the masks that it had among others."""

    def __init__(self, masks, place, length):
        self.masks, self.place, self.length = masks, place, length
        self.drawn = 0

    def draw(self, rate, x, gates):
        del rate, x, gates
        mask = next(self.masks)[..., self.place : self.place + 1, :]
        # Inputs and states of layer 1 forwards, then backwards, ...: that reads from the end.
        backwards = self.drawn // 2 % 2 == 1
        self.drawn += 1
        return mask[-self.length :] if backwards else mask[: self.length]


def test_without_biases(cell):
    plain, layer = make(cell, input_rate=1e-18, recurrent_rate=1e-18, bias=False)
    x = torch.randn(TIME, BATCH, INPUTS).double()
    assert_same(layer(x), plain(x))


def test_wrong_shapes_are_refused_as_torch_refuses_them(cell):
    plain, layer = make(cell)
    for wrong in (torch.randn(TIME, BATCH, INPUTS + 1).double(), torch.randn(2, 2, 2, INPUTS)):
        for one in (plain, layer):
            with pytest.raises((RuntimeError, ValueError)):
                one(wrong)
    with pytest.raises(RuntimeError, match="hidden"):
        layer(torch.randn(TIME, BATCH, INPUTS).double(), make_state(cell, 3))


def test_masks_last_for_a_sequence_differ_between_sequences_and_are_new_each_time(cell):
    # Two equal sequences side by side tell masks apart; a change of step would, too.
    _, layer = make(cell, recurrent_rate=0.5)
    recorded = layer.style = Recorded(MaskStyle())
    x = torch.randn(TIME, 1, INPUTS).double().expand(TIME, 40, INPUTS)
    outputs, _ = layer(x)
    assert len({tuple(row) for row in outputs[-1].tolist()}) > 20
    again, _ = layer(x)
    assert not torch.equal(again, outputs)
    assert [len(mask) for mask in recorded.masks] == [1] * 4
    assert not torch.equal(recorded.masks[0], recorded.masks[2])


def test_reading_in_two_cuts_with_the_same_masks_is_reading_at_once(cell):
    _, layer = make(cell, num_layers=2)
    x = torch.randn(TIME, BATCH, INPUTS).double()
    start = torch.get_rng_state()
    whole, last = layer(x)
    torch.set_rng_state(start)
    first, state = layer(x[:2])
    torch.set_rng_state(start)
    second, final = layer(x[2:], state)
    assert_same((torch.cat([first, second]), final), (whole, last))


def test_parameters_are_shared_and_nothing_random_is_used_to_make_it(cell):
    plain = KINDS[cell](INPUTS, HIDDEN, num_layers=2).eval()
    plain.bias_hh_l0.requires_grad_(False)
    before = torch.get_rng_state()
    layer = masked_recurrent(plain, 0.5, 0.5, MaskStyle())
    assert torch.equal(torch.get_rng_state(), before)
    assert isinstance(layer, KINDS[cell])
    assert not layer.training
    assert list(layer.state_dict()) == list(plain.state_dict())
    shared = dict(plain.named_parameters())
    assert all(parameter is shared[name] for name, parameter in layer.named_parameters())
    layer.train()(torch.randn(TIME, BATCH, INPUTS))[0].sum().backward()
    assert plain.bias_hh_l0.grad is None
    assert all(p.grad is not None for p in plain.parameters() if p.requires_grad)
    other = copy.deepcopy(layer)
    assert other.rate == 0.5
    assert other.weight_hh_l0 is not plain.weight_hh_l0


def test_the_layer_counts_as_one_that_drops(cell):
    _, layer = make(cell, num_layers=1, input_rate=0.0)
    module = nn.Sequential(nn.Linear(2, 2), layer).eval()
    assert dropout_layers(module) == [layer]
    with dropping(module):
        assert layer.training
        assert not module.training
    never_drop(layer)
    assert dropout_layers(module) == []


def test_what_masks_cannot_be_put_on():
    class Own(nn.LSTM):
        pass

    style = MaskStyle()
    for layer, words in (
        (nn.RNN(2, 3, nonlinearity="relu"), "relu"),
        (nn.LSTM(2, 3, proj_size=1), "proj_size 1"),
        (Own(2, 3), "Own"),
    ):
        with pytest.raises(ConfigError, match=words):
            masked_recurrent(layer, 0.5, 0.5, style)
