"""A pruned language model from its compact file."""

from dataclasses import replace
from pathlib import Path

import torch

from bayesrnn.compression.cutting import cut
from bayesrnn.compression.file import read_compact
from bayesrnn.data.vocabulary import VOCABULARY_FILE, read_vocabulary
from bayesrnn.errors import BayesRNNError, CheckpointError, ConfigError
from bayesrnn.methods import METHODS
from bayesrnn.options import from_toml
from bayesrnn.random import RandomStreams
from bayesrnn.runs.calibration import Calibration
from bayesrnn.runs.config import resolve
from bayesrnn.runs.load import choose_device
from bayesrnn.tasks.lm.config import RECIPES, LanguageModelConfig
from bayesrnn.tasks.lm.model import LanguageModel
from bayesrnn.tasks.lm.sparse import SparseLanguageModel
from bayesrnn.tasks.lm.trained import TrainedLanguageModel


def load_pruned(
    path: Path, checkpoint: str = "best", device: str = "auto", for_inference: bool = False
) -> TrainedLanguageModel:
    """The network of a file of `prune --out`: one set of weights, so it predicts like `plain`.

    for_inference: the network may be one that only predicts, without the weights that were dropped
        where leaving them out is faster.
    """
    compact = read_compact(path)
    about = compact.about
    config_text, files, step = (about.get(name) for name in ("config", "files", "step"))
    if (
        about.get("task") != LanguageModelConfig.task
        or not isinstance(config_text, str)
        or not isinstance(files, dict)
        or not isinstance(files.get(VOCABULARY_FILE), str)
        or not isinstance(step, int)
    ):
        raise CheckpointError(
            f"{path} has weights, but not the settings and the words of a language model; give a "
            "file of `bayesrnn prune --out`"
        )
    if checkpoint not in ("best", "last", str(step)):
        raise ConfigError(
            f"--checkpoint is {checkpoint}, but {path} has one network only, that of step {step}; "
            "leave it out"
        )
    plain = METHODS["plain"]
    try:
        trained_as = resolve(
            LanguageModelConfig, RECIPES, {}, from_toml(config_text, f"the configuration in {path}")
        )
        config = replace(
            trained_as, method=plain.name, kl_weighting="uniform", kl_warmup=None, options={}
        )
        words = len(read_vocabulary(files))
        with torch.device("meta"):  # before memory is taken for a network that does not fit
            expected = language_model(config, words).state_dict()
    except (BayesRNNError, ValueError, RuntimeError) as error:
        raise CheckpointError(f"the network of {path} cannot be made: {error}") from None
    shapes = {name: weight.shape for name, weight in compact.weights.items()}
    if shapes != {name: weight.shape for name, weight in expected.items()}:
        raise CheckpointError(f"the weights of {path} do not fit its configuration")
    method = plain(plain.options_type(), RandomStreams(config.seed))
    module = language_model(config, words)
    module.load_state_dict(compact.weights)
    try:
        kept = about.get("calibration")
        calibration = None if kept is None else Calibration.from_json(kept)
    except (KeyError, TypeError, ValueError):
        raise CheckpointError(
            f"the calibration of {path} is damaged; prune the run again"
        ) from None
    place = choose_device(device)
    module = cut(module) if for_inference else module
    sparse = for_inference and place.type == "cpu"
    net = SparseLanguageModel(module, prefer="speed") if sparse else module
    return TrainedLanguageModel(
        path, config, method, net.to(place), step, place, files, calibration=calibration
    )


def language_model(config: LanguageModelConfig, words: int) -> LanguageModel:
    """The network of a configuration, for a vocabulary of `words` words."""
    return LanguageModel(words, config.hidden, config.layers, config.cell, config.tied)
