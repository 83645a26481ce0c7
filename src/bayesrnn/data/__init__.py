"""Text and images to tensors to iterators of minibatches. Knows no model."""

from bayesrnn.data.batches import Batch, EvaluationBatch, TrainingBatches, evaluation_batches
from bayesrnn.data.caption_batches import CaptionBatch, CaptionBatches, EncodedCaptions
from bayesrnn.data.captions import (
    COCO,
    FEWEST_TIMES,
    FLICKR8K,
    CaptionedImages,
    Captions,
    CaptionWords,
    caption_vocabulary,
    caption_words,
    has_coco,
    load_coco,
    load_flickr8k,
)
from bayesrnn.data.corpora import CORPUS_NAMES, SPLITS, Corpus, load_corpus
from bayesrnn.data.features import FEATURE_WIDTH, ImageFeatures, load_features
from bayesrnn.data.images import (
    IMAGE_NAMES,
    Images,
    ImageSet,
    ShuffledBatches,
    available_images,
    load_images,
)
from bayesrnn.data.photographs import Photograph, Preview, image_files, read_photograph
from bayesrnn.data.reviews import (
    SCALE,
    Labels,
    Numbers,
    Reviews,
    load_reviews,
    read_target,
    review_words,
    target_text,
    three_classes,
)
from bayesrnn.data.segments import BucketedBatches, SegmentBatch, Segments
from bayesrnn.data.shifts import reversed_text, shuffled_text, text_with_random_words
from bayesrnn.data.tables import TARGET_KINDS
from bayesrnn.data.text import (
    decode_text,
    detokenize,
    known_tokens,
    line_tokens,
    read_text,
    sentence_tokens,
)
from bayesrnn.data.vocabulary import EOS, UNK, Vocabulary

__all__ = [
    "COCO",
    "CORPUS_NAMES",
    "EOS",
    "FEATURE_WIDTH",
    "FEWEST_TIMES",
    "FLICKR8K",
    "IMAGE_NAMES",
    "SCALE",
    "SPLITS",
    "TARGET_KINDS",
    "UNK",
    "Batch",
    "BucketedBatches",
    "CaptionBatch",
    "CaptionBatches",
    "CaptionWords",
    "CaptionedImages",
    "Captions",
    "Corpus",
    "EncodedCaptions",
    "EvaluationBatch",
    "ImageFeatures",
    "ImageSet",
    "Images",
    "Labels",
    "Numbers",
    "Photograph",
    "Preview",
    "Reviews",
    "SegmentBatch",
    "Segments",
    "ShuffledBatches",
    "TrainingBatches",
    "Vocabulary",
    "available_images",
    "caption_vocabulary",
    "caption_words",
    "decode_text",
    "detokenize",
    "evaluation_batches",
    "has_coco",
    "image_files",
    "known_tokens",
    "line_tokens",
    "load_coco",
    "load_corpus",
    "load_features",
    "load_flickr8k",
    "load_images",
    "load_reviews",
    "read_photograph",
    "read_target",
    "read_text",
    "reversed_text",
    "review_words",
    "sentence_tokens",
    "shuffled_text",
    "target_text",
    "text_with_random_words",
    "three_classes",
]
