"""Text and images to tensors to iterators of minibatches. Knows no model."""

from bayesrnn.data.batches import Batch, EvaluationBatch, TrainingBatches, evaluation_batches
from bayesrnn.data.corpora import CORPUS_NAMES, SPLITS, Corpus, load_corpus
from bayesrnn.data.images import (
    IMAGE_NAMES,
    Images,
    ImageSet,
    ShuffledBatches,
    available_images,
    load_images,
)
from bayesrnn.data.shifts import reversed_text, shuffled_text, text_with_random_words
from bayesrnn.data.text import (
    detokenize,
    known_tokens,
    line_tokens,
    read_text,
    sentence_tokens,
)
from bayesrnn.data.vocabulary import EOS, UNK, Vocabulary

__all__ = [
    "CORPUS_NAMES",
    "EOS",
    "IMAGE_NAMES",
    "SPLITS",
    "UNK",
    "Batch",
    "Corpus",
    "EvaluationBatch",
    "ImageSet",
    "Images",
    "ShuffledBatches",
    "TrainingBatches",
    "Vocabulary",
    "available_images",
    "detokenize",
    "evaluation_batches",
    "known_tokens",
    "line_tokens",
    "load_corpus",
    "load_images",
    "read_text",
    "reversed_text",
    "sentence_tokens",
    "shuffled_text",
    "text_with_random_words",
]
