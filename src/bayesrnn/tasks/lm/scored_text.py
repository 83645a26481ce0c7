"""The text that a language model is evaluated on: a part of its own corpus, or another text."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from torch import Tensor

from bayesrnn.data.files import with_home
from bayesrnn.data.text import read_text, spelt_length
from bayesrnn.data.tokens import WORD, Spelling
from bayesrnn.data.vocabulary import EOS
from bayesrnn.errors import CorpusError
from bayesrnn.progress import say
from bayesrnn.report.text import counted
from bayesrnn.tasks.lm.data import CORPUS_NAMES, Corpus, corpus_fingerprint, load_corpus
from bayesrnn.tasks.lm.data import unknown_share as share_of
from bayesrnn.tasks.lm.trained import TrainedLanguageModel


@dataclass(frozen=True)
class ScoredText:
    """A text in the words of a run.

    spelling: what its unknown words cost to spell, in nats.
    split: what results of it are called. whole: whether it is all of another text.
    """

    name: str
    split: str
    text: Tensor
    unknown: float
    characters: int
    spelling: float
    whole: bool = False


def own_text(run: TrainedLanguageModel, corpus: Corpus, split: str) -> ScoredText:
    """A part of the corpus that a run learnt from."""
    name = " ".join(run.config.corpus)
    text = getattr(corpus, split)
    return ScoredText(
        name,
        split,
        text,
        corpus.unknown(split),
        corpus.characters.get(split, 0),
        corpus.spelling.get(split, 0.0),
    )


def other_text(
    run: TrainedLanguageModel, given: Sequence[str], split: str, data_dir: Path | None
) -> ScoredText:
    """Another text; the run's own is noticed, and then it is a part that it was not trained on."""
    name, data_dir = " ".join(given), data_dir or run.config.data_dir
    own = _own_corpus(run, given, data_dir)
    if own is not None:
        say(f"note: {name} is what {run.path} was trained on; its {split} part is evaluated")
        return replace(own_text(run, own, split), name=name)
    paths = [with_home(item) for item in given]
    if given[0] in CORPUS_NAMES or paths[0].is_dir():
        corpus = load_corpus(given, data_dir, tokens=run.config.tokens, vocabulary=run.vocabulary)
        text, characters = getattr(corpus, split), corpus.characters[split]
        spelling = corpus.spelling[split]
    else:
        raw = "\n\n".join(map(read_text, paths))
        tokens = run.tokeniser.tokens(raw)
        if sum(token != EOS for token in tokens) < 2:
            raise CorpusError(
                f"--corpus is {name}, which has fewer than two {run.unit}s; give a text"
            )
        # As in training, the end of a sentence comes before the first word, which has a chance so.
        text = run.vocabulary.encode([EOS, *tokens])
        # Words are counted as those of a corpus are, whose text is not kept.
        characters = spelt_length(tokens) if run.config.tokens == WORD else len(raw)
        spelling = Spelling(run.vocabulary).nats(tokens)
    whole = given[0] not in CORPUS_NAMES and not paths[0].is_dir()
    said = f"all of its {counted(len(text) - 1, run.unit)} are" if whole else f"its {split} part is"
    say(f"note: {name} is not what {run.path} was trained on; {said} evaluated")
    unknown = share_of(text[whole:], run.vocabulary)
    stored = "other-" + re.sub(r"[^A-Za-z0-9._-]", "_", paths[0].name)[:60]
    return ScoredText(name, stored, text, unknown, characters, spelling, whole)


def _own_corpus(
    run: TrainedLanguageModel, given: Sequence[str], data_dir: Path | None
) -> Corpus | None:
    """The corpus of the run, if that is what was given."""
    config = run.config
    words = run.vocabulary if config.start_from else None
    try:
        corpus = load_corpus(given, data_dir, config.vocabulary_limit, config.tokens, words)
    except CorpusError:  # too small to train on, which another text may be
        return None
    return corpus if corpus_fingerprint(corpus) == run.fingerprint else None
