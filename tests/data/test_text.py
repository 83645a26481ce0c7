from __future__ import annotations

import gzip
import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bayesrnn.data.text import detokenize, line_tokens, read_text, sentence_tokens
from bayesrnn.data.vocabulary import EOS, UNK
from bayesrnn.errors import CorpusError


def sentences(text: str) -> list[str]:
    return [part.strip() for part in " ".join(sentence_tokens(text)).split(EOS)][:-1]


@pytest.mark.parametrize(
    "data",
    [
        b"a b\nc\n",
        b"\xef\xbb\xbfa b\nc\n",
        b"a b\r\nc\r\n",
        b"a b\rc\r",
        gzip.compress(b"a b\nc\n"),
    ],
    ids=["plain", "bom", "crlf", "cr", "gzip"],
)
def test_same_text_in_every_wrapping(tmp_path, data):
    (tmp_path / "text").write_bytes(data)
    assert read_text(tmp_path / "text") == "a b\nc\n"


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"abc\0d", r"bad\.txt has a NUL byte at byte 3"),
        (b"abcd\xe9f", r"bad\.txt is not valid UTF-8: byte 0xe9 at byte 4"),
        (b"abc\xc3", "at byte 3"),
        ("word".encode("utf-16"), "UTF-16"),
        ("word".encode("utf-32"), "UTF-32"),
        (gzip.compress(b"word " * 100)[:-9], "not a whole gzip file"),
        (gzip.compress(b"word " * 100)[:12], "not a whole gzip file"),
        (b"\x1f\x8b", "not a whole gzip file"),
        (gzip.compress(b"word\0"), "NUL byte at byte 4"),
    ],
    # A gzip header holds the time, which must not become part of a test's name.
    ids=["nul", "latin-1", "cut", "utf-16", "utf-32", "gz-tail", "gz-head", "gz-magic", "gz-nul"],
)
def test_what_is_not_text_is_refused(tmp_path, data, message):
    (tmp_path / "bad.txt").write_bytes(data)
    with pytest.raises(CorpusError, match=message):
        read_text(tmp_path / "bad.txt")


def test_flipped_byte_inside_gzip_is_refused(tmp_path):
    data = bytearray(gzip.compress(bytes(range(32, 127)) * 50))
    data[40] ^= 0xFF
    (tmp_path / "bad.gz").write_bytes(data)
    with pytest.raises(CorpusError, match="damaged"):
        read_text(tmp_path / "bad.gz")


def test_missing_file_and_folder_are_refused(tmp_path):
    with pytest.raises(CorpusError, match="no file"):
        read_text(tmp_path / "absent.txt")
    with pytest.raises(CorpusError, match="not a file"):
        read_text(tmp_path)


@given(data=st.binary(max_size=60))
def test_any_bytes_give_text_or_a_clear_error(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("fuzz") / "text"
    path.write_bytes(data)
    try:
        text = read_text(path)
    except CorpusError:
        return
    assert text.encode() in (data, data.removeprefix(b"\xef\xbb\xbf")) or b"\r" in data


def test_every_line_ends_with_eos_also_a_blank_one():
    assert line_tokens(" a  b \n\nc") == ["a", "b", EOS, EOS, "c", EOS]
    assert line_tokens("a\r\nb\r\n") == ["a", EOS, "b", EOS]
    assert line_tokens("a <eos>\n<eos>\n") == ["a", EOS, EOS]
    assert line_tokens("") == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("It is _so_. Is it?", ["it is so .", "is it ?"]),
        ('"Is it so?" cried she. "Yes."', ['" is it so ? " cried she .', '" yes . "']),
        ('He said "Yes." Then he left.', ['he said " yes . "', "then he left ."]),
        ("Oh! my dear (really!) Mr. Hill.", ["oh ! my dear ( really ! )", "mr. hill ."]),
        ("Don't; it's four o'clock, my sister's.", ["don't ; it's four o'clock , my sister's ."]),
        ("The sisters' aunt--a well-known one", ["the sisters ' aunt -- a well-known one"]),
        ("From B. by Colonel F., to St. James", ["from b. by colonel f. , to st. james"]),
        ("It was I. Then he.", ["it was i .", "then he ."]),
        ("In the U.S. at 5 p.m. e.g. now.", ["in the u.s. at 5 p.m. e.g. now ."]),
        ("1,000.5 men on the 15th, 2. And 3.", ["1,000.5 men on the 15th , 2 .", "and 3 ."]),
        ("See example.org. Well... no", ["see example . org .", "well ... no"]),
        ("What?! No!! Yes", ["what ? !", "no ! !", "yes"]),
        ("hard\nwrapped\n\nheading\n \n\ntext", ["hard wrapped", "heading", "text"]),
        ("\u201cDon\u2019t\u201d\u2014he\u2026", ['" don\'t " -- he ...']),
        ("the <unk> ----shire <eos> x", ["the <unk> -- shire", "x"]),
        ("caf\u00e9 cafe\u0301 \u0939\u093f\u0928\u094d\u0926\u0940", None),
    ],
)
def test_sentences(text, expected):
    assert sentences(text) == ([text] if expected is None else expected)


@given(st.text(max_size=200))
def test_no_empty_token_no_space_in_a_token_and_an_eos_at_the_end(text):
    tokens = sentence_tokens(text)
    assert all(token and not any(map(str.isspace, token)) for token in tokens)
    assert not tokens or tokens[-1] == EOS
    assert (EOS, EOS) not in set(itertools.pairwise(tokens))


@given(st.lists(st.sampled_from(["One", "two", "mr.", "I", '"', ".", "!", "--", ","]), max_size=30))
def test_line_wrapping_does_not_matter(words):
    assert sentence_tokens("\n".join(words)) == sentence_tokens(" ".join(words))


@pytest.mark.parametrize("unit", ["a", " ", "word ", "1,", "a.", "-a", '"', "<un", "Mr.", "'"])
def test_one_huge_line(unit):
    """A pattern that tries again from every place would not come to the end of it."""
    text = unit * (2_000_000 // len(unit))
    words = [token for token in sentence_tokens(text) if token != EOS]
    assert "".join(words) == text.lower().replace(" ", "")
    assert sentence_tokens("." * 2_000_000) == ["...", EOS]


@pytest.mark.parametrize(
    "text",
    [
        '"It is so," said Mr. Hill; "is it not?"\nYes--I don\'t know (yet).',
        'He said: "no!"\n"Why?"',
        "I'm well-known... isn't <unk> is not.",
    ],
)
def test_detokenized_text_reads_as_it_was_written(text):
    assert detokenize(sentence_tokens(text)) == text


def test_detokenize_options_and_other_conventions():
    assert detokenize(["so", ".", EOS, "no", "."], capitals=False) == "so.\nno."
    assert detokenize(["so", ".", EOS, "no", "."], sentence_break=" ") == "So. No."
    assert detokenize(["it", "does", "n't", "cost", "$", "5", "'s"]) == "It doesn't cost $5's"
    assert detokenize(["a", "well", "@-@", "known", "1", "@,@", "000"]) == "A well-known 1,000"
    assert detokenize([UNK, "said"]) == "<unk> said"
    assert detokenize([]) == ""


@given(st.lists(st.text(min_size=1, max_size=5) | st.sampled_from([EOS, UNK, '"', "'"])))
def test_detokenize_takes_anything(tokens):
    assert isinstance(detokenize(tokens), str)


def test_a_word_is_cut_as_it_is_when_it_comes_alone() -> None:
    """Cuts are kept by word, but whether a sign ends a sentence depends on what follows."""
    assert sentences("Yes! said he. Yes! Said he.") == ["yes ! said he .", "yes !", "said he ."]
    assert sentences('So. "so" (so.) so. So') == ["so .", '" so " ( so . )', "so .", "so"]
    assert sentences("a <eos> <eos> b. <eos>") == ["a", "b ."]


def test_more_words_than_cuts_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "One, two. Three! one? four; two. Five"
    expected = sentence_tokens(text)
    monkeypatch.setattr("bayesrnn.data.text._MOST_KNOWN", 2)
    assert sentence_tokens(text) == expected
