from itertools import product

import pytest
import torch

from bayesrnn.nn.recurrent import CELLS
from bayesrnn.tasks.captions import search as caption_search
from bayesrnn.tasks.captions.model import Captioner
from bayesrnn.tasks.captions.search import CaptionSearch, SpokenCaption

WIDTH, VOCABULARY = 4, 5
EOS, UNK = 1, 3


def captioner(seed, cell="lstm", layers=1):
    """A network that says different things of different images."""
    made = Captioner(WIDTH, VOCABULARY, 6, layers, cell, feature_norm=4.0).double()
    made.initialise(1.5, torch.Generator().manual_seed(seed))
    return made.eval()


def images(count, seed=0):
    return torch.randn(count, WIDTH, generator=torch.Generator().manual_seed(seed)).double()


@torch.no_grad()
def log_probs_after(networks, features, words):
    """The log of the mean probability of what follows `<eos>` and `words`, read in one go."""
    read = torch.tensor([EOS, *words])[:, None]
    mean = sum(network(read, features[None])[0][-1, 0].softmax(0) for network in networks)
    return (mean / len(networks)).log()


def log_prob(networks, features, words):
    """Of a whole caption, `<eos>` included."""
    return sum(
        log_probs_after(networks, features, words[:place])[word].item()
        for place, word in enumerate([*words, EOS])
    )


def greedy(networks, features, longest, unspoken=()):
    """One word after the other, the likeliest of those that may be said."""
    words = ()
    while len(words) < longest:
        scores = log_probs_after(networks, features, words)
        scores[list(unspoken)] = -torch.inf
        word = int(scores.argmax())
        if word == EOS:
            break
        words = (*words, word)
    return SpokenCaption(words, log_prob(networks, features, words))


def every_caption(networks, features, longest, unspoken=()):
    """All captions there are, the most confident first."""
    known = [word for word in range(VOCABULARY) if word not in (EOS, *unspoken)]
    said = [words for length in range(longest + 1) for words in product(known, repeat=length)]
    found = [SpokenCaption(words, log_prob(networks, features, words)) for words in said]
    return sorted(found, key=lambda caption: -caption.confidence)


def assert_same(found, expected):
    assert [caption.words for caption in found] == [caption.words for caption in expected]
    for one, other in zip(found, expected, strict=True):
        assert one.log_prob == pytest.approx(other.log_prob, rel=1e-9)


@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("cell", CELLS)
def test_a_beam_of_one_takes_the_likeliest_word(cell, layers):
    networks, features = [captioner(8, cell, layers)], images(12)
    found = CaptionSearch(EOS, (), 1, 6).captions(networks, features)
    expected = [[greedy(networks, own, 6)] for own in features]
    for one, other in zip(found, expected, strict=True):
        assert_same(one, other)
    assert len({len(best[0].words) for best in found}) > 1, "some end before others"


@pytest.mark.parametrize("seeds", [(1,), (1, 2)])
@pytest.mark.parametrize("unspoken", [(), (UNK,)])
def test_a_wide_beam_finds_every_caption(seeds, unspoken):
    networks, features, longest = [captioner(seed) for seed in seeds], images(3), 3
    everything = [every_caption(networks, own, longest, unspoken) for own in features]
    for beam in (len(everything[0]), VOCABULARY**longest):
        found = CaptionSearch(EOS, unspoken, beam, longest).captions(networks, features)
        for one, other in zip(found, everything, strict=True):
            assert_same(one, other)


def literal_beams(networks, features, beam, longest, unspoken=()):
    """The search as it is told: extend, sort, end what ends among the first `beam`, go on."""
    alive, ended = [((), 0.0)], []
    for length in range(longest + 1):
        grown = []
        for words, total in alive:
            scores = log_probs_after(networks, features, words).tolist()
            for word, score in enumerate(scores):
                if word not in unspoken and (length < longest or word == EOS):
                    grown.append(((*words, word), total + score))
        grown.sort(key=lambda pair: -pair[1])
        ended += [
            SpokenCaption(words[:-1], total) for words, total in grown[:beam] if words[-1] == EOS
        ]
        if len(ended) >= beam:
            break
        alive = [pair for pair in grown if pair[0][-1] != EOS][:beam]
    return sorted(ended, key=lambda caption: -caption.confidence)[:beam]


@pytest.mark.parametrize("beam", [2, 3, 4])
@pytest.mark.parametrize("seeds", [(5,), (5, 6, 7)])
def test_beams_between(seeds, beam):
    networks, features = [captioner(seed) for seed in seeds], images(8, seed=1)
    found = CaptionSearch(EOS, (UNK,), beam, 6).captions(networks, features)
    for one, own in zip(found, features, strict=True):
        assert_same(one, literal_beams(networks, own, beam, 6, (UNK,)))


def test_the_probabilities_of_networks_are_averaged():
    """Neither network alone says what the two say together."""
    one, other, features = captioner(1), captioner(2), images(20)
    search = CaptionSearch(EOS, (), 1, 5)
    together = search.captions([one, other], features)
    assert_same([best[0] for best in together], [greedy([one, other], own, 5) for own in features])
    for alone in (one, other):
        assert search.captions([alone], features) != together


@pytest.mark.parametrize("beam", [1, 3])
def test_an_image_alone_gets_the_captions_that_it_gets_beside_others(beam, monkeypatch):
    networks, features = [captioner(3), captioner(4)], images(10)
    search = CaptionSearch(EOS, (UNK,), beam, 8)
    together = search.captions(networks, features)
    for row, expected in zip(features, together, strict=True):
        assert_same(search.captions(networks, row[None])[0], expected)
    monkeypatch.setattr(caption_search, "_BATCH", 4)
    counted = []
    for found, expected in zip(
        search.captions(networks, features, counted.append), together, strict=True
    ):
        assert_same(found, expected)
    assert counted == [4, 4, 2]


def test_the_longest_are_cut():
    network = captioner(1)
    with torch.no_grad():
        network.output.bias[EOS] = -50.0
    found = CaptionSearch(EOS, (), 2, 4).captions([network], images(3))
    assert {len(caption.words) for best in found for caption in best} == {4}
    assert all(caption.log_prob < -40 for best in found for caption in best), "<eos> is counted"


def test_a_caption_ends_even_if_rounding_says_it_cannot():
    network = captioner(1).float()
    with torch.no_grad():
        network.output.bias[EOS] = -1e4
    (best,) = CaptionSearch(EOS, (), 2, 3).captions([network], images(1).float())
    assert [len(caption.words) for caption in best] == [3, 3]


@pytest.mark.parametrize("beam", [1, 3])
def test_what_is_unspoken_is_never_said(beam):
    network = captioner(1)
    with torch.no_grad():
        network.output.bias[UNK] = 20.0
    found = CaptionSearch(EOS, (UNK,), beam, 5).captions([network], images(9))
    assert not any(UNK in caption.words for best in found for caption in best)
    spoken = CaptionSearch(EOS, (), beam, 5).captions([network], images(9))
    assert all(UNK in best[0].words for best in spoken)


def test_nothing_to_say_is_a_caption_too():
    network = captioner(1)
    with torch.no_grad():
        network.output.bias[EOS] = 50.0
    (best,) = CaptionSearch(EOS, (), 1, 5).captions([network], images(1))
    assert best[0].words == ()
    assert best[0].confidence == best[0].log_prob


def test_confidence_is_by_word():
    assert SpokenCaption((4, 2, 4), -6.0).confidence == -1.5
