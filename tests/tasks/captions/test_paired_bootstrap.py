import importlib
import math

import numpy as np
import pytest
import torch
from scipy.stats import spearmanr

from bayesrnn.tasks.captions.compare import (
    CIDER,
    CaptionLine,
    ImageReadings,
    caption_table,
    paired_bootstrap,
    paired_readings,
    paired_sentence,
)
from bayesrnn.tasks.captions.scores import CaptionScores, bleu, score_captions
from bayesrnn.uncertainty.bootstrap import Interval

module = importlib.import_module("bayesrnn.tasks.captions.compare")


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def drawn_captions(images, seed):
    """Captions of random words for two systems, and references that the first is closer to."""
    rng = np.random.default_rng(seed)
    known, first, second = [], [], []
    for _ in range(images):
        truth = rng.choice(list("abcdefgh"), 6)
        noise = [rng.choice(list("abcdefgh"), 6) for _ in range(4)]
        mixed = [np.where(rng.random(6) < 0.7, truth, other) for other in noise]
        known.append([tuple(mixed[0]), tuple(mixed[1])])
        first.append(tuple(mixed[2]))
        second.append(tuple(np.where(rng.random(6) < 0.5, mixed[3], noise[0])))
    return score_captions(first, known), score_captions(second, known)


def test_against_slow_resampling(monkeypatch):
    # Each resample written out as rows, its figures from `figures`, in slices of 3 resamples.
    ours, theirs = drawn_captions(20, 0)
    monkeypatch.setattr(module, "_SLICE", 60)
    found = paired_bootstrap(ours, theirs, seeded(1), resamples=50, level=0.8)
    slow = []
    for rows in torch.randint(20, (50, 20), generator=seeded(1)):
        pair = [
            CaptionScores(s.bleu_counts[rows], s.rouge[rows], s.cider[rows]).metrics()
            for s in (ours, theirs)
        ]
        slow.append([pair[0][name] - pair[1][name] for name in found])
    assert len(slow) == 50
    low, high = np.percentile(slow, [10, 90], axis=0)
    assert len(found) == 6
    for place, (name, difference) in enumerate(found.items()):
        expected = ours.metrics()[name] - theirs.metrics()[name]
        assert difference.value == pytest.approx(expected, rel=1e-9)
        assert difference.low == pytest.approx(low[place], rel=1e-9)
        assert difference.high == pytest.approx(high[place], rel=1e-9)


def test_the_width_is_that_of_paired_means():
    # Of CIDEr's mean difference: the standard error of the differences, not of two samples.
    ours, theirs = drawn_captions(400, 3)
    error = (ours.cider - theirs.cider).std().item() / 20
    found = paired_bootstrap(ours, theirs, seeded(), resamples=4000, level=0.9)["CIDEr"]
    assert found.high - found.low == pytest.approx(2 * 1.645 * error, rel=0.08)


def test_which_is_better():
    ours, theirs = drawn_captions(200, 2)
    found = paired_bootstrap(ours, theirs, seeded(), resamples=200)
    turned = paired_bootstrap(theirs, ours, seeded(), resamples=200)
    for name in found:
        assert 0 < found[name].low < found[name].value < found[name].high
        assert turned[name].value == pytest.approx(-found[name].value)


def test_a_system_and_itself():
    ours, _ = drawn_captions(10, 4)
    found = paired_bootstrap(ours, ours, seeded(), resamples=20)
    assert all(difference == (0, 0, 0) for difference in found.values())


def test_the_generator_decides_and_the_global_one_is_left_alone():
    pair = drawn_captions(30, 5)
    before = torch.get_rng_state()
    first, again, other = (paired_bootstrap(*pair, seeded(s), resamples=50) for s in (0, 0, 1))
    assert first == again
    assert first["CIDEr"].low != other["CIDEr"].low
    assert torch.equal(torch.get_rng_state(), before)


def test_bleu_takes_counts_of_any_shape():
    counts = drawn_captions(6, 6)[0].bleu_counts
    assert torch.equal(bleu(counts.view(2, 3, 10)), bleu(counts).view(2, 3, 4))


def test_readings_against_slow_resampling():
    scores, generator = drawn_captions(20, 0), np.random.default_rng(1)
    pair = [
        (ImageReadings(*map(torch.tensor, (own * 30, own * 10 + 1, generator.random(20)))), each)
        for own, each in zip(generator.random((2, 20)), scores, strict=True)
    ]
    found = paired_readings(*pair, seeded(1), resamples=50, level=0.8)
    assert list(found) == ["perplexity", "Spearman"]

    def metrics(readings, own, rows):
        perplexity = math.exp(readings.nll[rows].sum() / readings.words[rows].sum())
        return [perplexity, spearmanr(readings.confidence[rows], own.cider[rows]).statistic]

    def difference(rows):
        ours, theirs = (np.array(metrics(*one, rows)) for one in pair)
        return ours - theirs

    drawn = torch.randint(20, (50, 20), generator=seeded(1))
    slow = np.array([difference(rows.numpy()) for rows in drawn])
    low, high = np.percentile(slow, [10, 90], axis=0)
    values = difference(np.arange(20))
    for place, interval in enumerate(found.values()):
        expected = values[place], low[place], high[place]
        assert tuple(interval) == pytest.approx(expected, rel=1e-9)


def test_the_difference_in_a_sentence():
    lines = [
        CaptionLine("one", "mean weights", {CIDER: 50.0}),
        CaptionLine("two", "10 draws", {CIDER: 52.0}, differences={CIDER: Interval(2, 0.5, 3.5)}),
        CaptionLine("three", "mean weights", {CIDER: 49.0}),
    ]
    said = paired_sentence(caption_table(lines, []))
    assert said == (
        "CIDEr against one (mean weights), with the 95% interval of a paired bootstrap: two (10 "
        "draws) +2.0 (0.5, 3.5) real."
    )
    assert paired_sentence(caption_table(lines[::2], [])) == ""
