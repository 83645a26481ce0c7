import pytest

from bayesrnn.data.vocabulary import VOCABULARY_FILE, Vocabulary, read_vocabulary, vocabulary_text


@pytest.mark.parametrize("words", [("a",), ("<eos>", "it's", "é", "a b", " "), ("\r", "\u2028")])
def test_words_survive_the_file(words):
    text = vocabulary_text(Vocabulary(words))
    assert text.count("\n") == len(words)
    assert read_vocabulary({VOCABULARY_FILE: text}).words == words
