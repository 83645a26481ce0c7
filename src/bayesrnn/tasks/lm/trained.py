"""A trained language model, ready to predict."""

from dataclasses import dataclass
from functools import cached_property

from bayesrnn.data.tokens import UNITS, Tokeniser, make_tokeniser
from bayesrnn.data.vocabulary import Vocabulary, read_vocabulary
from bayesrnn.errors import RunError
from bayesrnn.runs.task import TrainedRun
from bayesrnn.tasks.lm.config import LanguageModelConfig
from bayesrnn.tasks.lm.data import Corpus, corpus_fingerprint, load_corpus


def corpus_of(config: LanguageModelConfig, vocabulary: Vocabulary | None = None) -> Corpus:
    """The corpus that a configuration names, in the words of a `vocabulary` if one is given."""
    return load_corpus(
        config.corpus, config.data_dir, config.vocabulary_limit, config.tokens, vocabulary
    )


@dataclass(frozen=True)
class TrainedLanguageModel(TrainedRun[LanguageModelConfig]):
    """A trained language model, ready to predict."""

    @cached_property
    def vocabulary(self) -> Vocabulary:
        """The words that the model knows."""
        return read_vocabulary(self.files)

    @cached_property
    def tokeniser(self) -> Tokeniser:
        """How it cuts text."""
        return make_tokeniser(self.config.tokens, self.vocabulary)

    @property
    def unit(self) -> str:
        """What it calls what it predicts, in the singular."""
        return UNITS[self.config.tokens]

    def corpus(self) -> Corpus:
        """The corpus that the run learnt from, with the same words and the same training text."""
        own = self.vocabulary if self.config.start_from else None
        corpus = corpus_of(self.config, own)
        if corpus.vocabulary != self.vocabulary:
            raise RunError(
                f"the words of {' '.join(self.config.corpus)} are not those that {self.path} was "
                "trained on; give back the same text"
            )
        # With words that were given, any text has those of the run.
        if self.fingerprint not in (None, corpus_fingerprint(corpus)):
            raise RunError(
                f"the text of {' '.join(self.config.corpus)} is not the one that {self.path} was "
                "trained on; give back the same text"
            )
        return corpus
