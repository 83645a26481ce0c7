"""The words of given captions, against a literal reading, and what single networks say."""

import math
from collections import Counter

import pytest
import torch

from bayesrnn.tasks.captions.model import Captioner
from bayesrnn.tasks.captions.search import CaptionSearch
from bayesrnn.tasks.captions.words import each_draw_says, read_captions

WORDS, WIDTH, EOS = 11, 6, 2
CAPTIONS = [(3, 1, 4), (), (5,), (9, 0, 6, 5, 3), (3, 1)]


def captioner(seed, cell="lstm"):
    """A network with weights large enough to have opinions."""
    made = Captioner(WIDTH, WORDS, hidden=8, cell=cell)
    generator = torch.Generator().manual_seed(seed)
    for weight in made.parameters():
        torch.nn.init.normal_(weight, 0.0, 1.0, generator)
    return made.eval()


@pytest.fixture
def networks():
    return [captioner(seed) for seed in (1, 2, 3)]


@pytest.fixture
def features():
    return torch.randn(len(CAPTIONS), WIDTH, generator=torch.Generator().manual_seed(0))


@torch.no_grad()
def literal(networks, image, caption):
    """Word by word: probability of the word, entropy of the mean, mean of the entropies."""
    states = [{"features": image[None]} for _ in networks]
    said, found = EOS, []
    for word in (*caption, EOS):
        single = []
        for number, network in enumerate(networks):
            logits, state = network(torch.tensor([[said]]), **states[number])
            states[number] = {"state": state}
            single.append(logits[0, 0].double().softmax(-1))
        mean = sum(single) / len(single)
        entropies = [-sum(p * math.log(p) for p in one.tolist()) for one in (mean, *single)]
        aleatoric = sum(entropies[1:]) / len(single)
        found.append((mean[word].item(), entropies[0], aleatoric))
        said = word
    return list(zip(*found, strict=True))


@pytest.mark.parametrize("cell", ["lstm", "gru"])
def test_figures_are_those_of_a_literal_reading(cell, features):
    networks = [captioner(seed, cell) for seed in (1, 2, 3)]
    found = read_captions(networks, features, CAPTIONS, EOS)
    assert len(found) == len(CAPTIONS)
    for figures, image, caption in zip(found, features, CAPTIONS, strict=True):
        probability, entropy, aleatoric = literal(networks, image, caption)
        assert figures.probability.dtype == torch.double
        assert figures.probability.tolist() == pytest.approx(probability, rel=1e-4)
        assert figures.entropy.tolist() == pytest.approx(entropy, rel=1e-4)
        assert figures.aleatoric.tolist() == pytest.approx(aleatoric, rel=1e-4)
        gap = [total - mean for total, mean in zip(entropy, aleatoric, strict=True)]
        assert figures.epistemic.tolist() == pytest.approx(gap, abs=1e-5)
        assert figures.log_prob == pytest.approx(sum(map(math.log, probability)), rel=1e-5)
        assert figures.confidence == pytest.approx(figures.log_prob / (len(caption) + 1))


def test_captions_that_were_found_have_the_probability_that_they_were_found_with(
    networks, features
):
    search = CaptionSearch(EOS, unspoken=(7,), beam=4, longest=9)
    for image, spoken in zip(features, search.captions(networks, features), strict=True):
        said = [caption.words for caption in spoken]
        figures = read_captions(networks, image.expand(len(said), -1), said, EOS)
        for caption, of_words in zip(spoken, figures, strict=True):
            assert of_words.log_prob == pytest.approx(caption.log_prob, abs=1e-4)
            assert of_words.confidence == pytest.approx(caption.confidence, abs=1e-4)


def test_one_network_has_no_doubts_about_itself(networks, features):
    for figures in read_captions(networks[:1], features, CAPTIONS, EOS):
        assert (figures.epistemic == 0).all()
        assert (figures.entropy > 0).all()


def test_more_captions_than_are_read_at_once(networks, features):
    told = []
    many = read_captions(networks, features.repeat(60, 1), CAPTIONS * 60, EOS, told.append)
    assert told == [128, 128, 44]
    few = read_captions(networks, features, CAPTIONS, EOS)
    assert len(many) == 300
    for place in (0, 1, 3, 127, 128, 131, 299):
        wanted = few[place % len(CAPTIONS)]
        for name in ("probability", "entropy", "aleatoric"):
            torch.testing.assert_close(
                *(getattr(one, name) for one in (many[place], wanted)), rtol=1e-4, atol=1e-5
            )


def test_a_word_that_is_ruled_out_leaves_the_figures_finite(features):
    network = captioner(1)
    with torch.no_grad():
        network.output.bias[3] = -1e4
    figures = read_captions([network], features[:1], [(3,)], EOS)[0]
    assert figures.probability[0] == 0
    assert -100 < figures.log_prob < -80
    assert figures.entropy.isfinite().all()


def test_no_captions(networks):
    assert read_captions(networks, torch.empty(0, WIDTH), [], EOS) == []


@torch.no_grad()
def likeliest(network, image, longest):
    """What one network says, always with the likeliest word but 7."""
    said, given = [EOS], {"features": image[None]}
    while True:
        logits, state = network(torch.tensor([[said[-1]]]), **given)
        given, choice = {"state": state}, logits[0, 0].clone()
        choice[7] = -math.inf
        word = EOS if len(said) > longest else int(choice.argmax())
        if word == EOS:
            return tuple(said[1:])
        said.append(word)


def test_each_network_speaks_for_itself(networks, features):
    search = CaptionSearch(EOS, unspoken=(7,), beam=3, longest=5)
    chosen = [networks[0], networks[1], networks[0]]
    found = each_draw_says(chosen, search, features)
    for counts, image in zip(found, features, strict=True):
        assert counts == Counter(likeliest(network, image, 5) for network in chosen)
        assert sum(counts.values()) == 3
    assert any(len(counts) > 1 for counts in found)
