"""The commands of the sentiment task."""

from bayesrnn.runs.options import command
from bayesrnn.tasks.sentiment.predict import PredictOptions, predict_texts


@command(PredictOptions)
def predict_ratings(options: PredictOptions) -> None:
    """Predict the rating of a text with an interval, or the probabilities of its labels.

    For runs of `bayesrnn train sentiment`. Longer texts are cut into the segments that the run was
    trained on, and averaged. The table also shows how much of the uncertainty is epistemic, which
    more data could reduce, and how many words the run does not know.

    bayesrnn predict runs/mine --text "a fine film, if a little long"
    """
    options.show(predict_texts(options))
