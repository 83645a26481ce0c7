"""A trained captioner, ready to speak."""

from dataclasses import dataclass
from functools import cached_property

from bayesrnn.data.vocabulary import Vocabulary, read_vocabulary
from bayesrnn.errors import RunError
from bayesrnn.runs.task import TrainedRun
from bayesrnn.tasks.captions.batches import captions_fingerprint
from bayesrnn.tasks.captions.config import CaptionsConfig
from bayesrnn.tasks.captions.data import Captions, load_flickr8k


@dataclass(frozen=True)
class TrainedCaptioner(TrainedRun[CaptionsConfig]):
    """A trained captioner, ready to speak."""

    @cached_property
    def vocabulary(self) -> Vocabulary:
        """The words that it knows."""
        return read_vocabulary(self.files)

    def captions(self) -> Captions:
        """The images that the run learnt from, with the same words, captions and features."""
        captions = load_flickr8k(self.config.data_dir)
        if captions_fingerprint(captions) != self.fingerprint:
            raise RunError(
                f"the captions or features of {self.config.data} are not those that {self.path} "
                "was trained on; give back the same data"
            )
        return captions
