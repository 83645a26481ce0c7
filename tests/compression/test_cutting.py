"""Units that do nothing are found, and cut out of a network that says the same without them."""

import pytest
import torch

from bayesrnn.compression.cutting import cut, used_units, without_unused
from bayesrnn.compression.pruning import without
from bayesrnn.nn.cut import CutLinear, CutRecurrent
from bayesrnn.nn.recurrent import CELLS
from bayesrnn.nn.units import by_unit, units_of
from bayesrnn.tasks.captions.model import Captioner
from bayesrnn.tasks.lm.model import LanguageModel
from bayesrnn.tasks.mnist.model import MLP
from bayesrnn.tasks.sentiment.model import TextPredictor

WORDS, HIDDEN = 40, 12


def numbers(seed=0):
    return torch.Generator().manual_seed(seed)


@torch.no_grad()
def pruned(module, share=0.5, sending=0.4):
    """Weights set to zero at random, and all that some units send, or receive."""
    generator = numbers(1)
    for weight in module.parameters():
        weight.normal_(std=0.4, generator=generator)
        weight.mul_(torch.rand(weight.shape, generator=generator) < share)
    weights = dict(module.named_parameters(remove_duplicate=False))
    for units in units_of(module):
        for parts in (units.sends, units.receives):
            gone = torch.rand(units.count, generator=generator) < sending / (
                1 + (parts != units.sends)
            )
            for part in parts:
                by_unit(weights[part.name], part, units.count)[gone] = 0.0
    return module.eval()


def fewer_numbers(smaller, module):
    of_smaller, of_module = (
        sum(t.numel() for t in (*m.parameters(), *m.buffers())) for m in (smaller, module)
    )
    return of_smaller < of_module


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("layers", [1, 2, 3])
@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("double", [True, False])
@torch.no_grad()
def test_a_cut_language_model_says_the_same(cell, layers, tied, double):
    module = pruned(LanguageModel(WORDS, HIDDEN, layers, cell, tied))
    module = module.double() if double else module
    module.temperature = 1.3
    smaller = cut(module)
    assert fewer_numbers(smaller, module)
    assert isinstance(smaller.recurrent, CutRecurrent)
    used = used_units(module)
    assert smaller.recurrent.widths == [int(used[f"recurrent_l{n}"].sum()) for n in range(layers)]
    # Fewer zeros are added up, in another order: to the rounding of floats.
    close = {"rtol": 1e-12, "atol": 1e-14} if double else {"rtol": 1e-5, "atol": 1e-6}
    words = torch.randint(WORDS, (9, 3), generator=numbers())
    expected, state = module(words)
    found, own_state = smaller(words)
    torch.testing.assert_close(found, expected, **close)
    # Its own state carries it on, as the state of the whole network does that.
    torch.testing.assert_close(smaller(words, own_state)[0], module(words, state)[0], **close)
    # What is nothing but bias is the same to the last bit.
    silent = ~used["output"]
    assert silent.any()
    assert torch.equal(found[..., silent], expected[..., silent])


@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("cell", CELLS)
@torch.no_grad()
def test_a_cut_captioner_starts_from_the_same_image(cell, layers):
    module = pruned(Captioner(7, WORDS, HIDDEN, layers, cell)).double()
    smaller = cut(module)
    assert fewer_numbers(smaller, module)
    words = torch.randint(WORDS, (5, 3), generator=numbers())
    features = torch.randn(3, 7, generator=numbers()).double()
    (expected, state), (found, own) = module(words, features), smaller(words, features)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-14)
    torch.testing.assert_close(smaller(words, state=own)[0], module(words, state=state)[0])


@pytest.mark.parametrize("classes", [None, 3])
@pytest.mark.parametrize("cell", CELLS)
@torch.no_grad()
def test_a_cut_predictor_of_texts(cell, classes):
    module = pruned(TextPredictor(WORDS, HIDDEN, 2, cell, classes, unknown=1)).double()
    smaller = cut(module)
    assert fewer_numbers(smaller, module)
    words = torch.randint(WORDS, (9, 4), generator=numbers())
    lengths = torch.tensor([9, 1, 4, 7])
    torch.testing.assert_close(smaller(words, lengths), module(words, lengths))


@torch.no_grad()
def test_where_nothing_is_rounded_a_cut_network_is_the_same_to_the_last_bit():
    module = pruned(MLP(9, 4, 20, 3))
    for weight in module.parameters():
        weight.mul_(8).round_()  # whole numbers, whose sums are exact in any order
    smaller = cut(module)
    assert fewer_numbers(smaller, module)
    x = torch.randint(-9, 9, (50, 9), generator=numbers()).float()
    assert torch.equal(smaller(x), module(x))
    assert smaller(x).any()


@torch.no_grad()
def test_the_units_that_do_nothing_by_hand():
    """Two chains, of which one ends at an output, and a unit that only talks to itself."""
    module = LanguageModel(3, 6, 1, "rnn")
    for weight in module.parameters():
        weight.zero_()
    hh, ih = module.recurrent.weight_hh_l0, module.recurrent.weight_ih_l0
    module.embedding.weight[1, 0] = 1.0
    ih[0, 0] = ih[3, 0] = 1.0  # the word enters units 0 and 3
    hh[1, 0] = hh[2, 1] = 1.0  # 0 -> 1 -> 2 -> the output
    module.output.weight[2, 2] = 1.0
    hh[4, 3] = hh[3, 4] = hh[4, 4] = 1.0  # 3 and 4 talk to each other alone
    hh[2, 5] = hh[5, 5] = 1.0  # 5 is heard, and has nothing to say
    used = used_units(module)
    assert used["recurrent_l0"].tolist() == [True, True, True, False, False, False]
    assert used["embedding"].tolist() == [True, *[False] * 5]
    assert used["output"].tolist() == [False, False, True]
    smaller = cut(module)
    assert smaller.recurrent.widths == [3]
    assert isinstance(smaller.output, CutLinear)
    words = torch.tensor([[0, 1], [1, 1], [0, 2], [0, 0], [2, 0]])
    assert torch.equal(smaller(words)[0], module(words)[0])
    assert smaller(words)[0].any()
    module.recurrent.bias_ih_l0[5] = 0.1  # now it has
    assert used_units(module)["recurrent_l0"].tolist() == [True] * 3 + [False, False, True]


@torch.no_grad()
def test_a_network_of_which_nothing_is_left():
    module = LanguageModel(5, 4, 2, "lstm")
    for weight in module.parameters():
        weight.zero_()
    module.output.bias.copy_(torch.arange(5.0))
    smaller = cut(module)
    assert smaller.recurrent.widths == [1, 1]
    logits, _ = smaller(torch.zeros(3, 2, dtype=torch.long))
    assert torch.equal(logits, torch.arange(5.0).expand(3, 2, 5))


@torch.no_grad()
def test_a_network_that_uses_all_or_does_not_know_its_units_is_copied():
    for module in (LanguageModel(9, 4), torch.nn.Sequential(torch.nn.Linear(3, 2))):
        smaller = cut(module.eval())
        assert smaller is not module
        assert type(smaller) is type(module)
        for name, weight in module.named_parameters():
            assert torch.equal(weight, smaller.get_parameter(name))


@pytest.mark.parametrize("tied", [False, True])
@torch.no_grad()
def test_weights_of_unused_units_are_dropped_without_a_change(tied):
    module = pruned(LanguageModel(WORDS, HIDDEN, 2, "gru", tied))
    kept = {name: weight != 0 for name, weight in module.named_parameters()}
    del kept["output.bias"]
    fewer = without_unused(module, kept)
    assert sum(int(m.sum()) for m in fewer.values()) < sum(int(m.sum()) for m in kept.values())
    assert all(bool((kept[name] >= mask).all()) for name, mask in fewer.items())
    words = torch.randint(WORDS, (9, 3), generator=numbers())
    found = without(module, fewer)(words)[0]
    # Zeros take the place of numbers that met zeros, and one shape has one order of sums.
    assert torch.equal(found, module(words)[0])
    assert sorted(used_units(module)) == sorted(used_units(without(module, fewer)))
