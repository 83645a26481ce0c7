"""Averages over networks, against all of them stacked at once in double precision."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.distributions import Categorical

from bayesrnn.errors import ConfigError
from bayesrnn.uncertainty import average as averaging
from bayesrnn.uncertainty.average import AverageProbabilities, RunningMoments, blocks, entropy


def normal(*shape, seed=0, scale=3.0):
    generator = torch.Generator().manual_seed(seed)
    return scale * torch.randn(shape, generator=generator, dtype=torch.double)


def averaged(draws):
    average = AverageProbabilities()
    for logits in draws:
        average.add(logits)
    return average


def assert_stacked(average, draws, **close):
    """Compare with `draws` [samples, ..., classes] as a whole."""
    # Without its checks, which fail for empty batches.
    members = Categorical(logits=draws.double(), validate_args=False)
    mean = members.probs.mean(0)
    found = (average.mean, average.aleatoric, average.total())
    expected = (mean, members.entropy().mean(0), Categorical(probs=mean).entropy())
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one.double(), other, **close)


@pytest.mark.parametrize("shape", [(5,), (3, 2), (4, 3, 7), (1, 1), (0, 5), (2, 0, 5)])
@pytest.mark.parametrize("samples", [1, 2, 13])
def test_mean_and_entropies_of_everything_at_once(shape, samples):
    draws = normal(samples, *shape)
    average = averaged(draws)
    assert average.samples == samples
    assert average.mean.shape == shape
    assert average.aleatoric.shape == average.total().shape == shape[:-1]
    assert_stacked(average, draws, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    ("dtype", "kept"),
    [
        (torch.half, torch.float),
        (torch.bfloat16, torch.float),
        (torch.float, torch.float),
        (torch.double, torch.double),
    ],
)
def test_short_numbers_are_averaged_as_longer_ones(dtype, kept):
    draws = normal(40, 6, 9).to(dtype)
    average = averaged(draws)
    assert average.mean.dtype == average.aleatoric.dtype == average.total().dtype == kept
    assert_stacked(average, draws, rtol=1e-5, atol=1e-6)


def test_pieces_do_not_show(monkeypatch):
    monkeypatch.setattr(averaging, "_BLOCK", 11)  # two rows of five, and one left over
    draws = normal(3, 7, 3, 5)
    assert_stacked(averaged(draws), draws, rtol=1e-12, atol=1e-12)


def test_many_rows_of_many_classes():
    draws = normal(2, 9, 5, 4000)
    assert draws[0].numel() > averaging._BLOCK
    assert_stacked(averaged(draws), draws, rtol=1e-10, atol=1e-12)


def test_axes_in_any_order_in_memory():
    draws = normal(4, 3, 2, 5)
    swapped = draws.transpose(1, 2)
    assert_stacked(averaged(swapped), swapped, rtol=1e-12, atol=1e-12)
    classes_first = normal(4, 5, 3).transpose(1, 2)
    assert_stacked(averaged(classes_first), classes_first, rtol=1e-12, atol=1e-12)
    repeated = normal(4, 1, 5).expand(4, 6, 5)
    assert_stacked(averaged(repeated), repeated, rtol=1e-12, atol=1e-12)


def test_the_logits_are_neither_changed_nor_kept():
    logits = normal(4, 5)
    given_logits = logits.clone()
    average = averaged([given_logits])
    assert torch.equal(given_logits, logits)
    given_logits.zero_()
    assert_stacked(average, logits[None], rtol=1e-12, atol=1e-12)


def test_the_order_does_not_matter():
    draws = normal(11, 4, 6)
    shuffled = draws[torch.randperm(11, generator=torch.Generator().manual_seed(1))]
    assert not torch.equal(draws, shuffled)
    one, other = averaged(draws), averaged(shuffled)
    torch.testing.assert_close(one.mean, other.mean, rtol=1e-13, atol=1e-14)
    torch.testing.assert_close(one.aleatoric, other.aleatoric, rtol=1e-13, atol=1e-14)
    torch.testing.assert_close(one.total(), other.total(), rtol=1e-13, atol=1e-14)


def test_classes_that_are_ruled_out_have_no_share():
    draws = normal(5, 3, 6)
    masked = draws.clone()
    masked[..., 4:] = -math.inf
    masked[0, 0, 1:] = -math.inf  # a single class is left: certain
    # Far below all others, instead of -inf, which Categorical does not take.
    draws[..., 4:] = -1e4
    draws[0, 0, 1:] = -1e4
    average = averaged(masked)
    assert_stacked(average, draws, rtol=1e-12, atol=1e-12)
    assert not average.mean[..., 4:].any()


def test_networks_that_are_sure_of_different_classes():
    # Each is certain, together they know nothing: all of the uncertainty is between them.
    draws = [torch.full((3,), -1e4).index_fill(0, torch.tensor(i), 1e4) for i in range(3)]
    average = averaged(draws)
    torch.testing.assert_close(average.mean, torch.full((3,), 1 / 3))
    assert average.aleatoric.item() == 0
    torch.testing.assert_close(average.total(), torch.tensor(math.log(3)))


LOGITS = st.one_of(
    st.sampled_from([0.0, 1e4, -1e4, 1e-4]), st.floats(-1e4, 1e4, width=32), st.floats(-3, 3)
)


@settings(deadline=None, max_examples=200)
@given(st.data(), st.integers(1, 6), st.integers(1, 5), st.booleans())
def test_the_total_is_never_below_the_aleatoric_part(data, samples, classes, double):
    row = st.lists(LOGITS, min_size=classes, max_size=classes)
    rows = data.draw(st.lists(row, min_size=samples, max_size=samples))
    average = averaged(torch.tensor(rows, dtype=torch.double if double else torch.float))
    assert 0 <= average.aleatoric <= average.total() <= math.log(classes) + 1e-5
    assert abs(average.mean.sum() - 1) < 1e-5


@pytest.mark.parametrize("shape", [(5,), (4, 1), (3, 2, 6), (0, 4)])
def test_entropy_is_that_of_a_categorical(shape):
    probs = normal(*shape).softmax(-1)
    torch.testing.assert_close(entropy(probs), Categorical(probs=probs).entropy())


def test_entropy_of_certainty_and_of_ignorance():
    certain = torch.eye(4)
    assert torch.equal(entropy(certain), torch.zeros(4))
    even = torch.full((2, 8), 1 / 8, dtype=torch.double)
    torch.testing.assert_close(entropy(even), torch.full((2,), math.log(8), dtype=torch.double))


def test_moments_of_small_differences_between_large_numbers():
    values = 1e6 + normal(500, 3, 2, scale=1e-2)
    moments = RunningMoments()
    for value in values:
        moments.add(value)
    assert moments.count == 500
    torch.testing.assert_close(moments.mean, values.mean(0), rtol=1e-14, atol=0)
    # The differences are known to 1e-10 / 1e-2 of themselves.
    for correction in (0, 1):
        expected = values.var(0, correction=correction)
        torch.testing.assert_close(moments.variance(correction), expected, rtol=1e-6, atol=0)


def test_moments_of_one_number_and_of_equal_ones():
    moments = RunningMoments()
    for _ in range(7):
        moments.add(torch.tensor([0.1, -1e8, 3.0]))
        assert torch.equal(moments.mean, torch.tensor([0.1, -1e8, 3.0]))
        assert not moments.variance().any()


def test_moments_do_not_keep_what_they_are_given():
    moments, value = RunningMoments(), torch.ones(2)
    moments.add(value)
    value += 5
    moments.add(value)
    assert torch.equal(moments.mean, torch.tensor([3.5, 3.5]))
    assert torch.equal(moments.variance(), torch.tensor([6.25, 6.25]))


@settings(deadline=None)
@given(st.lists(st.integers(0, 9), max_size=2), st.integers(1, 30), st.integers(1, 40))
def test_every_row_is_in_exactly_one_block(leading, classes, size):
    tensor = torch.arange(math.prod(leading) * classes).view(*leading, classes)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(averaging, "_BLOCK", size)
        parts = blocks(tensor)
    assert torch.equal(torch.cat(parts), tensor.reshape(-1, classes))
    for part in parts:
        assert part.numel() <= max(size, classes)


def test_a_row_longer_than_a_block_stays_whole():
    tensor = torch.arange(3 * (averaging._BLOCK + 1)).view(3, -1)
    parts = blocks(tensor)
    assert len(parts) == 3
    assert torch.equal(torch.cat(parts), tensor)


@pytest.mark.parametrize("second", [(4, 6), (3, 5), (5, 5), (4, 5, 1)])
def test_outputs_of_another_shape_are_refused(second):
    """The compiled loop trusts the shapes: a wider output would be written past the end."""
    average, moments = AverageProbabilities(), RunningMoments()
    for running in (average, moments):
        running.add(torch.zeros(4, 5))
        with pytest.raises(ConfigError, match="have to be alike"):
            running.add(torch.zeros(second))
        with pytest.raises(ConfigError, match="have to be alike"):
            running.add(torch.zeros(4, 5, dtype=torch.double))
