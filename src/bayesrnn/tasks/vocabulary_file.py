"""The words that a run knows, as a file in its folder."""

from collections.abc import Mapping
from typing import Final

from bayesrnn.data import Vocabulary

VOCABULARY_FILE: Final = "vocabulary.txt"


def vocabulary_text(vocabulary: Vocabulary) -> str:
    """One word a line, in the order of their numbers."""
    return "\n".join(vocabulary.words) + "\n"


def read_vocabulary(files: Mapping[str, str]) -> Vocabulary:
    """The vocabulary out of the files of a run."""
    return Vocabulary(tuple(files[VOCABULARY_FILE].split("\n")[:-1]))
