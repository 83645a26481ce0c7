"""The loop over time against equations that are written out, and torch's own layers."""

import pytest
import torch
from torch import nn

from bayesrnn.nn import cells
from bayesrnn.nn.unrolled import unrolled

CELLS = {"lstm": cells.LSTM(), "gru": cells.GRU(), "rnn": cells.RNN()}
LAYERS = {"lstm": nn.LSTM, "gru": nn.GRU, "rnn": nn.RNN}
TIME, BATCH, INPUTS, HIDDEN = 4, 2, 3, 2
#: Which masks there are: (for inputs, for states), by step or by sequence, for each gate or all.
PAIRS = [
    ("none", "none"),
    ("sequence", "sequence"),
    ("step", "step"),
    ("sequence untied", "sequence untied"),
    ("step untied", "step untied"),
    ("none", "sequence"),
    ("none", "sequence untied"),
    ("sequence untied", "none"),
    ("step untied", "sequence"),
]


@pytest.fixture(params=CELLS)
def cell(request):
    return request.param


@pytest.fixture
def generator():
    return torch.Generator().manual_seed(0)


def normal(generator, *shape):
    return torch.randn(shape, generator=generator, dtype=torch.double)


def make_mask(kind, gates, units, generator):
    if kind == "none":
        return None
    steps = TIME if "step" in kind else 1
    of_gates = (gates,) if "untied" in kind else ()
    shape = (steps, *of_gates, BATCH, units)
    return torch.rand(shape, generator=generator, dtype=torch.double) * 2


def make_arguments(cell, generator):
    """Inputs, h, c and weights that all want a gradient."""
    gates = CELLS[cell].gates
    shapes = [(TIME, BATCH, INPUTS), (BATCH, HIDDEN), (BATCH, HIDDEN)]
    shapes += [(gates * HIDDEN, INPUTS), (gates * HIDDEN, HIDDEN)] + [(gates * HIDDEN,)] * 2
    x, h, c, *weights = (normal(generator, *shape).requires_grad_() for shape in shapes)
    return x, h, c if cell == "lstm" else None, *weights


def test_values_and_gradients_are_those_of_the_equations(cell, generator, literal_layer):
    for kinds in PAIRS:
        masks = [
            make_mask(kind, CELLS[cell].gates, units, generator)
            for kind, units in zip(kinds, (INPUTS, HIDDEN), strict=True)
        ]
        x, h, c, *weights = arguments = make_arguments(cell, generator)
        outputs, last = unrolled(CELLS[cell], x, cells.CellState(h, c), weights, *masks)
        expected = literal_layer(cell, x, (h, c), weights, *masks)
        pairs = [
            (one, other)
            for one, other in zip((outputs, *last), expected, strict=True)
            if one is not None
        ]
        assert len(pairs) == (3 if cell == "lstm" else 2)
        for one, other in pairs:
            torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)
        # The gradient of a random sum of everything that comes out.
        factors = [normal(generator, *one.shape) for one, _ in pairs]
        wanted = [argument for argument in arguments if argument is not None]
        sums = [
            sum((factor * pair[side]).sum() for factor, pair in zip(factors, pairs, strict=True))
            for side in (0, 1)
        ]
        found, right = (torch.autograd.grad(total, wanted) for total in sums)
        for one, other in zip(found, right, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("kinds", [("sequence", "sequence"), ("sequence untied",) * 2], ids=str)
def test_gradients_by_finite_differences(cell, kinds, generator):
    masks = [
        make_mask(kind, CELLS[cell].gates, units, generator)
        for kind, units in zip(kinds, (INPUTS, HIDDEN), strict=True)
    ]
    arguments = make_arguments(cell, generator)

    def run(x, h, c, *weights):
        outputs, last = unrolled(CELLS[cell], x, cells.CellState(h, c), weights, *masks)
        return (outputs, last.h) if last.c is None else (outputs, *last)

    assert torch.autograd.gradcheck(run, arguments)


@pytest.mark.parametrize("bias", [True, False])
def test_without_masks_it_is_torchs_layer(cell, bias, generator):
    layer = LAYERS[cell](INPUTS, HIDDEN, bias=bias).double()
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.copy_(normal(generator, *parameter.shape))
    x, h, c, *_ = make_arguments(cell, generator)
    weights = (*layer.all_weights[0], None, None)[:4]
    outputs, last = unrolled(CELLS[cell], x, cells.CellState(h, c), weights)
    theirs, state = layer(x, (h[None], c[None]) if cell == "lstm" else h[None])
    torch.testing.assert_close(outputs, theirs, rtol=1e-12, atol=1e-12)
    for mine, other in zip(last, state if cell == "lstm" else (state, None), strict=True):
        assert (mine is None) == (other is None)
        if mine is not None:
            torch.testing.assert_close(mine[None], other, rtol=1e-12, atol=1e-12)
    found, right = (
        torch.autograd.grad(out.square().sum(), [x, *layer.parameters()])
        for out in (outputs, theirs)
    )
    for one, other in zip(found, right, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-12)


def test_what_is_frozen_gets_no_gradient(cell, generator):
    x, h, c, w_ih, w_hh, b_ih, b_hh = make_arguments(cell, generator)
    for frozen in (w_hh, b_hh):
        frozen.requires_grad_(False)
    mask = make_mask("sequence", 1, HIDDEN, generator)
    weights = (w_ih, w_hh, b_ih, b_hh)
    outputs, _ = unrolled(CELLS[cell], x, cells.CellState(h, c), weights, None, mask)
    outputs.sum().backward()
    assert w_hh.grad is None
    assert b_hh.grad is None
    assert all((part.grad != 0).any() for part in (x, h, w_ih, b_ih))


def test_going_back_twice_gives_the_same_gradient(cell, generator):
    # Nothing of what is kept for the way back may be used up by it.
    x, h, c, *weights = make_arguments(cell, generator)
    mask = make_mask("sequence", 1, HIDDEN, generator)
    outputs, _ = unrolled(CELLS[cell], x, cells.CellState(h, c), weights, None, mask)
    total = outputs.square().sum()
    first = torch.autograd.grad(total, [x, *weights], retain_graph=True)
    again = torch.autograd.grad(total, [x, *weights])
    assert all(torch.equal(one, other) for one, other in zip(first, again, strict=True))
