"""Dropout layers and embeddings whose masks last for a whole sequence."""

import math

import pytest
import torch
from torch import nn

from bayesrnn.nn.masked import MaskedDropout, MaskedEmbedding, MaskStyle, draw_mask

STYLES = {noise: MaskStyle(noise) for noise in ("bernoulli", "gaussian")}


@pytest.fixture(autouse=True)
def seeded():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        yield


@pytest.mark.parametrize("rate", [0.2, 0.5, 0.8])
@pytest.mark.parametrize("noise", STYLES)
def test_factors_have_mean_one_and_the_variance_of_dropout(noise, rate):
    count = 200_000
    mask = draw_mask((count,), rate, noise, torch.empty(0, dtype=torch.double))
    variance = rate / (1 - rate)
    assert mask.dtype is torch.double
    assert abs(mask.mean().item() - 1) < 5 * math.sqrt(variance / count)
    if noise == "bernoulli":
        assert set(mask.tolist()) == {0.0, 1 / (1 - rate)}
        share = (mask == 0).double().mean().item()
        assert abs(share - rate) < 5 * math.sqrt(rate * (1 - rate) / count)
    else:
        # The square of a Gaussian's deviation has variance 2 variance^2, the cube 15 variance^3.
        squares = (mask - 1).square().mean().item()
        assert abs(squares - variance) < 5 * variance * math.sqrt(2 / count)
        assert abs((mask - 1).pow(3).mean()) < 5 * math.sqrt(15 * variance**3 / count)


def test_the_style_says_what_a_mask_is_shared_by():
    x = torch.empty(7, 3, 5)
    shapes = {
        (False, "tied"): (1, 3, 5),
        (True, "tied"): (7, 3, 5),
        (False, "untied"): (1, 4, 3, 5),
        (True, "untied"): (7, 4, 3, 5),
    }
    for (every_step, gates), shape in shapes.items():
        style = MaskStyle(every_step=every_step, gates=gates)
        assert style.draw(0.5, x, gates=4).shape == shape
        assert style.draw(0.0, x, gates=4) is None
    assert MaskStyle(gates="untied").draw(0.5, x, gates=1).shape == (1, 3, 5)


@pytest.mark.parametrize("noise", STYLES)
@pytest.mark.parametrize("time_axis", [0, 1])
def test_a_mask_is_the_same_at_all_times_and_another_for_each_sequence(noise, time_axis):
    layer = MaskedDropout(0.5, STYLES[noise], time_axis)
    ones = torch.ones(6, 8, 40) if time_axis == 0 else torch.ones(8, 6, 40)
    factors = layer(ones).movedim(time_axis, 0)
    assert (factors == factors[0]).all()
    assert len({tuple(row.tolist()) for row in factors[0]}) == 8
    assert not torch.equal(layer(ones).movedim(time_axis, 0), factors)


@pytest.mark.parametrize(
    ("style", "time_axis", "shape"),
    [
        (MaskStyle(every_step=True), 0, (30, 8, 40)),
        (MaskStyle(), None, (30, 8, 40)),
        (MaskStyle(), 0, (30, 40)),
    ],
    ids=["every step", "no time", "two axes"],
)
def test_where_no_mask_is_shared(style, time_axis, shape):
    rows = MaskedDropout(0.5, style, time_axis)(torch.ones(shape)).flatten(0, -2)
    assert len({tuple(row.tolist()) for row in rows}) == len(rows)


def test_nothing_is_dropped_in_evaluation_or_at_rate_zero():
    x = torch.randn(3, 2, 4)
    layer = MaskedDropout(0.5, MaskStyle(), 0)
    assert layer.eval()(x) is x
    layer.train().switch_off()
    assert layer(x) is x


def make_embedding(rate=0.5, words=20, batch_first=False, noise="bernoulli", **options):
    return MaskedEmbedding(nn.Embedding(words, 3, **options), rate, STYLES[noise], batch_first)


def factors_of(layer, words):
    """What the layer multiplied each vector by; a whole vector has one factor."""
    plain = nn.functional.embedding(words, layer.weight)
    ratio = layer(words) / plain
    torch.testing.assert_close(ratio, ratio[..., :1].expand_as(ratio))
    return ratio[..., 0]


def test_the_dog_and_the_cat():
    # "the dog and the cat" may lose both of its "the", never one of them.
    the, dog, and_, cat = range(4)
    words = torch.tensor([[the, dog, and_, the, cat]] * 200).T
    kept = factors_of(make_embedding(words=4), words) != 0
    assert torch.equal(kept[0], kept[3])
    patterns = {tuple(column.tolist()) for column in kept.T}
    assert len(patterns) == 2**4  # each word is dropped or not, whatever the others are
    assert abs(kept.double().mean() - 0.5) < 5 * 0.5 / math.sqrt(4 * 200)


@pytest.mark.parametrize("noise", STYLES)
@pytest.mark.parametrize("batch_first", [False, True])
def test_one_factor_for_each_word_type_and_sequence(noise, batch_first):
    words = torch.randint(20, (6, 50) if batch_first else (50, 6))
    layer = make_embedding(0.4, batch_first=batch_first, noise=noise)
    found = factors_of(layer, words)
    by_sequence = (
        zip(words, found, strict=True) if batch_first else zip(words.T, found.T, strict=True)
    )
    tables = []
    for sequence, factors in by_sequence:
        table = {}
        for word, factor in zip(sequence.tolist(), factors.tolist(), strict=True):
            assert table.setdefault(word, factor) == pytest.approx(factor, rel=1e-4)
        tables.append(tuple(round(table.get(word, 0.0), 3) for word in range(20)))
    assert len(set(tables)) == 6
    assert not torch.allclose(factors_of(layer, words), found)  # others for the next minibatch


def test_words_with_one_axis_are_one_sequence_and_with_three_belong_to_theirs():
    line = torch.randint(4, (60,))
    found = factors_of(make_embedding(words=4), line)
    for word in range(4):
        assert len(set(found[line == word].round(decimals=3).tolist())) == 1
    block = torch.zeros(5, 30, 2, dtype=torch.long)  # the same word everywhere
    found = factors_of(make_embedding(words=4), block)
    assert (found == found[0, :, :1][None]).all()
    assert set(found[0, :, 0].tolist()) == {0.0, 2.0}


def test_the_words_of_a_sequence_do_not_depend_on_how_much_of_it_is_read():
    layer, words = make_embedding(), torch.randint(20, (30, 4))
    state = torch.get_rng_state()
    whole = layer(words)
    torch.set_rng_state(state)
    assert torch.equal(layer(words[:7]), whole[:7])
    torch.set_rng_state(state)
    assert torch.equal(layer(words[7:]), whole[7:])


def test_an_embedding_keeps_its_weight_its_options_and_its_mode():
    plain = nn.Embedding(5, 3, padding_idx=2, max_norm=0.1, norm_type=1.0, scale_grad_by_freq=True)
    layer = MaskedEmbedding(plain.eval(), 0.5, MaskStyle(), False)
    assert layer.weight is plain.weight
    assert list(layer.state_dict()) == ["weight"]
    assert not layer.training
    assert repr(layer).partition("(")[2] == repr(plain).partition("(")[2]
    words = torch.tensor([[0, 1], [2, 3]])
    # max_norm writes the weights anew at each call, up to rounding.
    torch.testing.assert_close(layer(words), plain(words))
    layer.train().switch_off()
    torch.testing.assert_close(layer(words), plain(words))


def test_the_mean_over_many_masks_is_the_ordinary_vector():
    layer, words = make_embedding(0.3), torch.arange(20)[None]
    with torch.no_grad():
        draws = torch.stack([layer(words.T.expand(20, 100)) for _ in range(10)])
    draws = draws.movedim(1, 0).flatten(1, 2)  # [word, sequence, units]
    error = draws.std(1) / math.sqrt(draws.shape[1])
    assert ((draws.mean(1) - layer.weight).abs() < 5 * error).all()
