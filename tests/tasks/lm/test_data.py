from __future__ import annotations

import gzip
import os
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from bayesrnn.data.batches import TrainingBatches, evaluation_batches
from bayesrnn.data.vocabulary import EOS, UNK
from bayesrnn.errors import CorpusError
from bayesrnn.tasks.lm.data import Corpus, load_corpus

STORY = "The cat saw the dog. The dog saw the cat. A bird saw both. The cat ran. The dog ran. " * 20

needs_data = pytest.mark.skipif(
    not os.environ.get("BAYESRNN_DATA"), reason="BAYESRNN_DATA does not name a data folder"
)


def sizes(corpus: Corpus) -> tuple[int, int, int]:
    return len(corpus.train), len(corpus.valid), len(corpus.test)


def write_folder(folder: Path, **texts: str) -> Path:
    folder.mkdir(exist_ok=True)
    for name, text in texts.items():
        (folder / f"{name}.txt").write_text(text)
    return folder


# Published corpora


@needs_data
def test_penn_treebank():
    corpus = load_corpus(["ptb"])
    assert sizes(corpus) == (929_589, 73_760, 82_430)
    assert len(corpus.vocabulary) == 10_000
    assert len(TrainingBatches(corpus.train, 20, 35)) == 1327
    for streams, unroll in ((1, 35), (20, 35), (7, 100)):
        batches = evaluation_batches(corpus.test, streams, unroll)
        assert sum(int(batch.mask.sum()) for batch in batches) == 82_429
    limited = load_corpus(["ptb"], vocabulary_limit=100)
    assert len(limited.vocabulary) == int(limited.test.max()) + 1 == 100
    assert sizes(limited) == sizes(corpus)


@needs_data
def test_wikitext_2():
    corpus = load_corpus("wikitext-2")
    assert sizes(corpus) == (2_088_628, 217_646, 245_569)
    assert len(corpus.vocabulary) == 33_278


def test_published_corpus_without_a_data_folder(monkeypatch):
    monkeypatch.delenv("BAYESRNN_DATA", raising=False)
    with pytest.raises(CorpusError, match=r"ptb/ptb\.train\.txt.*--data-dir.*BAYESRNN_DATA"):
        load_corpus(["ptb"])


def test_published_corpus_that_is_not_there_or_another_version(tmp_path):
    with pytest.raises(CorpusError, match=r"looked for .*wiki\.train\.tokens and .*tokens\.gz"):
        load_corpus(["wikitext-2"], tmp_path)
    (tmp_path / "ptb").mkdir()
    (tmp_path / "ptb" / "ptb.train.txt.gz").write_bytes(gzip.compress(b"a b c\n"))
    with pytest.raises(CorpusError, match=r"has 4 tokens .* has 929,589"):
        load_corpus(["ptb"], tmp_path)


# The embedded corpus


def test_the_novel_ships_with_the_package():
    corpus = load_corpus(["pride-and-prejudice"])
    assert sum(sizes(corpus)) == 148_643
    assert 3_000 < len(corpus.vocabulary) < 4_000
    assert "mr." in corpus.vocabulary
    assert "darcy's" in corpus.vocabulary
    eos, unk = corpus.vocabulary.index(EOS), corpus.vocabulary.index(UNK)
    for stream in (corpus.train, corpus.valid, corpus.test):
        assert stream[-1] == eos
        assert 0.01 < (stream == unk).double().mean() < 0.04
    assert torch.bincount(corpus.train, minlength=len(corpus.vocabulary)).min() >= 2


# A folder


@pytest.mark.parametrize(
    ("train", "valid", "test"),
    [
        ("train.txt", "valid.txt", "test.txt"),
        ("my.train.txt", "my.val.txt", "my.test.txt"),
        ("wiki.train.tokens.gz", "wiki.dev.tokens", "wiki.test.tokens"),
        ("train", "validation.txt.gz", "test.gz"),
    ],
)
def test_folder_with_usual_names(tmp_path, train, valid, test):
    for name, text in ((train, "a b <unk>\n" * 9), (valid, "a c\n"), (test, "\nb a\n")):
        data = text.encode()
        (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    (tmp_path / "README.txt").write_text("about")
    corpus = load_corpus([str(tmp_path)])
    assert sizes(corpus) == (36, 3, 4)
    assert set(corpus.vocabulary.words) == {"a", "b", UNK, EOS}
    assert corpus.vocabulary.decode(corpus.valid) == ["a", UNK, EOS]
    assert corpus.vocabulary.decode(corpus.test) == [EOS, "b", "a", EOS]


def test_folder_trains_unk_only_when_it_is_needed(tmp_path):
    closed = write_folder(tmp_path / "closed", train="a a b\n", valid="a\n", test="b\n")
    assert set(load_corpus(closed).vocabulary.words) == {"a", "b", EOS, UNK}
    opened = write_folder(tmp_path / "open", train="a a b\n", valid="a\n", test="c\n")
    assert (
        load_corpus(opened).train.tolist()
        == load_corpus(opened).vocabulary.encode(["a", "a", UNK, EOS]).tolist()
    )


def test_folder_errors_say_what_is_missing(tmp_path):
    folder = write_folder(tmp_path / "folder", train="a b\n", test="a\n")
    with pytest.raises(CorpusError, match=r"no valid file.*dev\.txt.*found test\.txt, train\.txt"):
        load_corpus(folder)
    write_folder(folder, valid="a\n", dev="a\n")
    with pytest.raises(CorpusError, match=r"more than one valid file: dev\.txt, valid\.txt"):
        load_corpus(folder)
    (folder / "dev.txt").unlink()
    write_folder(folder, valid="\n\n")
    with pytest.raises(CorpusError, match=r"valid\.txt has no words"):
        load_corpus(folder)


# The user's own text


def test_own_text_is_split_at_sentence_ends(tmp_path):
    (tmp_path / "story.txt").write_text(STORY)
    corpus = load_corpus([str(tmp_path / "story.txt")])
    total = sum(sizes(corpus))
    assert total == 600
    assert all(
        abs(size / total - share) < 0.02
        for size, share in zip(sizes(corpus), (0.8, 0.1, 0.1), strict=True)
    )
    for stream in (corpus.train, corpus.valid, corpus.test):
        assert corpus.vocabulary.decode(stream)[-1] == EOS
    assert corpus.name == "story.txt"
    assert len(load_corpus([tmp_path / "story.txt"], vocabulary_limit=5).vocabulary) == 5


def test_text_without_sentences_is_cut_between_words(tmp_path):
    (tmp_path / "log.txt").write_text("one two three four " * 250)
    assert sizes(load_corpus(tmp_path / "log.txt")) == (800, 100, 101)


def test_several_files_are_one_text(tmp_path):
    paths = [tmp_path / "1.txt", tmp_path / "2.txt"]
    for path in paths:
        path.write_text(STORY)
    corpus = load_corpus(paths)
    assert (corpus.name, sum(sizes(corpus))) == ("1.txt + 2.txt", 1200)


@pytest.mark.parametrize("text", ["", "\n\n", "... !!! --", "word", "one two three", "<unk>"])
def test_too_little_text(tmp_path, text):
    (tmp_path / "tiny.txt").write_text(text)
    with pytest.raises(CorpusError, match=r"tiny\.txt (has no words|is too small).*give"):
        load_corpus([tmp_path / "tiny.txt"])


def test_one_huge_line_loads(tmp_path):
    (tmp_path / "huge.txt").write_text(STORY * 200)
    assert sum(sizes(load_corpus([tmp_path / "huge.txt"]))) == 120_000


@given(data=st.binary(max_size=80) | st.text(max_size=80).map(str.encode), folder=st.booleans())
def test_any_file_gives_a_corpus_or_a_clear_error(tmp_path_factory, data, folder):
    place = tmp_path_factory.mktemp("fuzz")
    for name in ("train.txt", "valid.txt", "test.txt"):
        (place / name).write_bytes(data)
    try:
        corpus = load_corpus(place if folder else place / "train.txt")
    except CorpusError:
        return
    assert min(sizes(corpus)) >= 2


# What cannot be a corpus


@pytest.mark.parametrize("name", ["penn", "", "no/such/file.txt", "x" * 5000, "a\0b"])
def test_neither_name_nor_path(name):
    with pytest.raises(
        CorpusError, match=r"ptb, wikitext-2, pride-and-prejudice.*plain-text files"
    ):
        load_corpus([name])


def test_mixtures_are_refused(tmp_path):
    (tmp_path / "a.txt").write_text(STORY)
    path = str(tmp_path / "a.txt")
    with pytest.raises(CorpusError, match="cannot be mixed"):
        load_corpus(["ptb", path])
    with pytest.raises(CorpusError, match="is a folder and was given together with 1 other"):
        load_corpus([str(tmp_path), path])
    with pytest.raises(CorpusError, match="twice"):
        load_corpus([path, path])
    with pytest.raises(CorpusError, match="no corpus was given"):
        load_corpus([])
