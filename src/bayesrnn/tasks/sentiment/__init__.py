"""Ratings and labels of texts."""

from bayesrnn.runs.command import Command, TaskEntry

ENTRY = TaskEntry(
    "Train a recurrent network to predict the rating, or the label, of a text.",
    {
        "predict": Command(
            "bayesrnn.tasks.sentiment.commands:predict_ratings",
            "Predict the rating of a text with an interval, or the probabilities of its labels.",
        )
    },
    {"scaledata": "scaledata/scaledata/Dennis+Schwartz/subj.Dennis+Schwartz"},
)
