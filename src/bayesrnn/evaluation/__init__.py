"""Functions from a predictor and data to numbers. Never trains, but for copies."""

from bayesrnn.evaluation.averaging import entropy
from bayesrnn.evaluation.bound import (
    BoundedLikelihood,
    example_minibatches,
    likelihood_bound,
    text_minibatches,
)
from bayesrnn.evaluation.calibration import Reliability, reliability
from bayesrnn.evaluation.caption_bootstrap import Difference, paired_bootstrap
from bayesrnn.evaluation.caption_doubts import (
    CaptionDoubts,
    CaptionLevel,
    CaptionUncertainty,
    UnknownImages,
    caption_doubts,
    rank_correlation,
)
from bayesrnn.evaluation.caption_likelihood import (
    caption_likelihood,
    caption_minibatches,
    caption_nll,
)
from bayesrnn.evaluation.caption_scores import CaptionScores, bleu, score_captions
from bayesrnn.evaluation.caption_search import CaptionSearch, SpokenCaption
from bayesrnn.evaluation.caption_words import (
    CaptionWordFigures,
    each_draw_says,
    read_captions,
)
from bayesrnn.evaluation.classification import (
    Classification,
    calibration_error,
    classification,
    score_probabilities,
)
from bayesrnn.evaluation.consensus import CaptionIndex, consensus_captions, nearest_images
from bayesrnn.evaluation.detection import (
    Detection,
    Interval,
    detection,
    require_window,
    window_means,
)
from bayesrnn.evaluation.draws import Draws, networks_to_read
from bayesrnn.evaluation.dynamic import (
    GradientDescent,
    RootMeanSquare,
    dynamic_log_probs,
    gradient_statistics,
)
from bayesrnn.evaluation.inspection import Inspection, inspect_words
from bayesrnn.evaluation.likelihood import Likelihood, likelihood, target_log_probs
from bayesrnn.evaluation.numbers import INTERVALS, NumberFigures, number_figures
from bayesrnn.evaluation.official_scores import official_scores, require_official
from bayesrnn.evaluation.prediction import Prediction, predict
from bayesrnn.evaluation.reading import (
    Way,
    WordFigures,
    readings,
    require_words,
    side_by_side,
    word_figures,
)
from bayesrnn.evaluation.regression import Regression, RegressionPrediction
from bayesrnn.evaluation.segments import (
    PredictedLabels,
    PredictedNumbers,
    predict_labels,
    predict_numbers,
    segment_minibatches,
    segment_nll,
)
from bayesrnn.evaluation.selective import RiskCoverage, risk_coverage
from bayesrnn.evaluation.temperature import TemperatureFit
from bayesrnn.evaluation.uncertainty import Level, RunUncertainty, ShiftFigures, StreamFigures

__all__ = [
    "INTERVALS",
    "BoundedLikelihood",
    "CaptionDoubts",
    "CaptionIndex",
    "CaptionLevel",
    "CaptionScores",
    "CaptionSearch",
    "CaptionUncertainty",
    "CaptionWordFigures",
    "Classification",
    "Detection",
    "Difference",
    "Draws",
    "GradientDescent",
    "Inspection",
    "Interval",
    "Level",
    "Likelihood",
    "NumberFigures",
    "PredictedLabels",
    "PredictedNumbers",
    "Prediction",
    "Regression",
    "RegressionPrediction",
    "Reliability",
    "RiskCoverage",
    "RootMeanSquare",
    "RunUncertainty",
    "ShiftFigures",
    "SpokenCaption",
    "StreamFigures",
    "TemperatureFit",
    "UnknownImages",
    "Way",
    "WordFigures",
    "bleu",
    "calibration_error",
    "caption_doubts",
    "caption_likelihood",
    "caption_minibatches",
    "caption_nll",
    "classification",
    "consensus_captions",
    "detection",
    "dynamic_log_probs",
    "each_draw_says",
    "entropy",
    "example_minibatches",
    "gradient_statistics",
    "inspect_words",
    "likelihood",
    "likelihood_bound",
    "nearest_images",
    "networks_to_read",
    "number_figures",
    "official_scores",
    "paired_bootstrap",
    "predict",
    "predict_labels",
    "predict_numbers",
    "rank_correlation",
    "read_captions",
    "readings",
    "reliability",
    "require_official",
    "require_window",
    "require_words",
    "risk_coverage",
    "score_captions",
    "score_probabilities",
    "segment_minibatches",
    "segment_nll",
    "side_by_side",
    "target_log_probs",
    "text_minibatches",
    "window_means",
    "word_figures",
]
