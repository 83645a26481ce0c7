"""Commands for captioners alone."""

from bayesrnn.runs.options import command
from bayesrnn.tasks.captions.caption import PhotographOptions, caption_images


@command(PhotographOptions)
def caption_photographs(options: PhotographOptions) -> None:
    """Say what images show, how sure the run is of each word, and where its draws disagree.

    For runs of `bayesrnn train captions`. Needs an extra, pip install 'bayesrnn[captions]', which
    brings the image network, and runs it here: no image leaves this machine.

    bayesrnn caption runs/mine --image dog.jpg holidays/ --html page.html
    """
    options.show(caption_images(options))
