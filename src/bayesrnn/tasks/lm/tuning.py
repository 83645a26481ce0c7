"""What finding settings of a run begins with: its validation text, and how it does without them."""

from dataclasses import dataclass

from torch import Tensor

from bayesrnn.errors import ConfigError
from bayesrnn.runs.arguments import DataOptions, RunOptions
from bayesrnn.runs.places import moved
from bayesrnn.tasks.lm.data import Corpus
from bayesrnn.tasks.lm.likelihood import target_log_probs
from bayesrnn.tasks.lm.task import TASK
from bayesrnn.tasks.lm.trained import TrainedLanguageModel
from bayesrnn.uncertainty.likelihood import Likelihood


@dataclass(frozen=True, kw_only=True)
class TuningOptions(RunOptions, DataOptions):
    """Which run to find settings for."""


@dataclass(frozen=True)
class TuningText:
    """The beginning of a run's validation text, and its likelihood under the mean weights."""

    trained: TrainedLanguageModel
    corpus: Corpus
    text: Tensor
    static: Likelihood

    @property
    def where(self) -> str:
        """Which words these are."""
        return f"the first {self.static.tokens:,} words of valid"


def open_tuning_text(options: TuningOptions, words: int, segment: int, segments: int) -> TuningText:
    """Open a run to find settings on `words` words, in at least so many segments of `segment`."""
    if words < segments * segment:
        raise ConfigError(
            f"--words is {words}; for segments of {segment} it has to be "
            f"{segments * segment} or more"
        )
    if options.run.is_file():
        raise ConfigError(
            f"{options.run} is a file, which keeps no settings; give the folder of a run"
        )
    opened = TASK.open_run(options.run, options.checkpoint, options.device)
    trained = moved(TASK, opened, options)
    corpus = trained.corpus()
    text = corpus.valid[: words + 1].to(trained.device)
    nll = -target_log_probs(trained.method.mean(trained.net), text).double().mean().item()
    return TuningText(trained, corpus, text, Likelihood(nll, len(text) - 1))
