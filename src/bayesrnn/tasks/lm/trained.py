"""A trained language model, ready to predict."""

from dataclasses import dataclass
from functools import cached_property

from bayesrnn.data.vocabulary import Vocabulary, read_vocabulary
from bayesrnn.errors import RunError
from bayesrnn.runs.task import TrainedRun
from bayesrnn.tasks.lm.config import LanguageModelConfig
from bayesrnn.tasks.lm.data import Corpus, load_corpus


def corpus_of(config: LanguageModelConfig) -> Corpus:
    """The corpus that a configuration names."""
    return load_corpus(config.corpus, config.data_dir, config.vocabulary_limit)


@dataclass(frozen=True)
class TrainedLanguageModel(TrainedRun[LanguageModelConfig]):
    """A trained language model, ready to predict."""

    @cached_property
    def vocabulary(self) -> Vocabulary:
        """The words that the model knows."""
        return read_vocabulary(self.files)

    def corpus(self) -> Corpus:
        """The corpus that the run learnt from, with the same words."""
        corpus = corpus_of(self.config)
        if corpus.vocabulary != self.vocabulary:
            raise RunError(
                f"the words of {' '.join(self.config.corpus)} are not those that {self.path} was "
                "trained on; give back the same text"
            )
        return corpus
