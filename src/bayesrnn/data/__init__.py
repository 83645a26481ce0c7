"""Text to token numbers to iterators of minibatches. Knows no model."""

from bayesrnn.data.batches import Batch, EvaluationBatch, TrainingBatches, evaluation_batches
from bayesrnn.data.corpora import CORPUS_NAMES, SPLITS, Corpus, load_corpus
from bayesrnn.data.text import detokenize, line_tokens, read_text, sentence_tokens
from bayesrnn.data.vocabulary import EOS, UNK, Vocabulary

__all__ = [
    "CORPUS_NAMES",
    "EOS",
    "SPLITS",
    "UNK",
    "Batch",
    "Corpus",
    "EvaluationBatch",
    "TrainingBatches",
    "Vocabulary",
    "detokenize",
    "evaluation_batches",
    "line_tokens",
    "load_corpus",
    "read_text",
    "sentence_tokens",
]
