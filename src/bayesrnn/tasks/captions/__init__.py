"""Captions of images."""

from bayesrnn.runs.command import Command, TaskEntry

ENTRY = TaskEntry(
    "Train a recurrent network to say what an image shows.",
    {
        "caption": Command(
            "bayesrnn.tasks.captions.commands:caption_photographs",
            "Say what images show, how sure the run is of each word, and where its draws disagree.",
        ),
        "features": Command(
            "bayesrnn.tasks.captions.commands:make_features_of_images",
            "Make the features of a folder of images, for captioners to learn from.",
        ),
    },
    {
        "flickr8k": "flickr8k/Flickr8k.token.txt",
        "coco-val2017": "coco-val2017/captions_val2017.json",
    },
)
