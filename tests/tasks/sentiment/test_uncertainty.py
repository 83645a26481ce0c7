"""The uncertainty of text predictors: words that are unknown, texts that are shifted."""

import json

import pytest
import torch

from bayesrnn.tasks.sentiment.segments import Segments
from bayesrnn.tasks.sentiment.shifts import (
    random_words,
    shuffled_words,
    unknown_share,
    unknown_words,
)

from .tiny import arguments

MADE = ("shuffled", "random words", "unknown words")


def seeded(seed):
    return torch.Generator().manual_seed(seed)


@pytest.fixture
def segments():
    texts = [torch.tensor([1, 2, 0, 4, 5, 6, 0]), torch.tensor([7, 8]), torch.tensor([0, 0, 0])]
    return Segments.cut(texts, torch.zeros(3), longest=3)


def test_the_share_of_unknown_words_of_each_text(segments):
    assert unknown_share(segments, 0).tolist() == pytest.approx([2 / 7, 0, 1])


def test_words_are_shuffled_within_their_segment(segments):
    found = shuffled_words(segments, seeded(1))
    assert not torch.equal(found.words, segments.words)
    for start, length in zip(segments.starts, segments.lengths, strict=True):
        part = slice(int(start), int(start + length))
        assert found.words[part].sort().values.equal(segments.words[part].sort().values)


def test_random_words_are_any_of_the_vocabulary():
    segments = Segments.cut([torch.zeros(3000, dtype=torch.long)], torch.zeros(1), longest=100)
    found = random_words(segments, 6, seeded(1))
    assert found.starts.equal(segments.starts)
    counts = found.words.bincount(minlength=6)
    assert len(counts) == 6
    assert counts.min() > 400


def test_four_words_in_five_become_unknown():
    words = torch.arange(1, 10_001)
    segments = Segments.cut([words], torch.zeros(1), longest=100)
    found = unknown_words(segments, 0, seeded(1)).words
    assert (found == 0).double().mean().item() == pytest.approx(0.8, abs=0.02)
    assert found[found != 0].equal(words[found != 0])


@pytest.mark.parametrize("kind", ["number", "label"])
def test_what_the_program_finds(kind, request, program, tmp_path):
    run, result = tmp_path / "run", tmp_path / "result.json"
    given = (*arguments(request), "--target", kind, "--epochs", "2", "--device", "cpu")
    code, _, errors = program("train", "sentiment", *given, "--threads", "1", "--out", run)
    assert code == 0, errors
    other, table = tmp_path / "other.txt", tmp_path / "other.tsv"
    other.write_text("wholly strange utterances\n\nthe film was odd beyond measure\n")
    table.write_text("number\tText\n1\tthe film number one\n2\tlorem ipsum\n")
    shifts = ("--shift", other, "--shift", table, "--samples", "0,3", "--bootstrap", "10")
    page = tmp_path / "page.html"
    code, out, errors = program("uncertainty", run, *shifts, "--json", result, "--html", page)
    assert code == 0, errors
    assert "share of words that are unknown" in out
    assert "Risk and coverage" in page.read_text()
    (found,) = json.loads(result.read_text())
    mean, drawn = found["levels"]
    assert list(mean["shifts"]) == [*MADE, "other.txt", "other.tsv"]
    assert mean["sizes"] == {"": 12, **dict.fromkeys(MADE, 12), "other.txt": 2, "other.tsv": 2}
    scores = {"number": {"deviation", "epistemic"}, "label": {"H", "1-p", "MI"}}[kind]
    assert set(drawn["withholding"]) == scores | {"unknown"}
    assert drawn["shifts"]["other.txt"]["unknown"]["shifted"] == pytest.approx(
        (1 + 3 / 6) / 2, abs=0.2
    )
    assert ("90% holds" in mean["metrics"]) == (kind == "number")
    assert found["squared"] == (kind == "number")


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("blank.txt", " \n", "has no words; give a file of texts"),
        ("two.csv", "a,b\n1,2\n", "has no column 'text'"),
    ],
)
def test_files_that_are_no_texts(request, program, tmp_path, name, text, message):
    run = tmp_path / "run"
    given = (*arguments(request), "--epochs", "1", "--device", "cpu", "--method", "plain")
    assert program("train", "sentiment", *given, "--out", run)[0] == 0
    (tmp_path / name).write_text(text)
    code, _, errors = program("uncertainty", run, "--shift", tmp_path / name)
    assert code != 0
    assert message in errors
