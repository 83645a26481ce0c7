"""Commands for captioners alone."""

from bayesrnn.errors import CorpusError
from bayesrnn.report.text import counted
from bayesrnn.runs.options import command
from bayesrnn.tasks.captions.caption import PhotographOptions, caption_images


@command(PhotographOptions)
def caption_photographs(options: PhotographOptions) -> None:
    """Say what images show, how sure the run is of each word, and where its draws disagree.

    For runs of `bayesrnn train captions`. Needs an extra, pip install 'bayesrnn[captions]', which
    brings the image network, and runs it here: no image leaves this machine.

    bayesrnn caption runs/mine --image dog.jpg holidays/ --html page.html
    """
    text, left_out = caption_images(options)
    options.show(text)
    if left_out:
        raise CorpusError(
            f"{counted(left_out, 'image')} could not be read and left out, as said above; the "
            "captions of all others are whole"
        )
