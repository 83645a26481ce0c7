"""What a reproduction measures of its runs, each metric once for the same weights."""

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

import torch

from bayesrnn.durable import explained, write_durably
from bayesrnn.errors import RunError
from bayesrnn.methods import METHODS
from bayesrnn.methods.base import Bounded
from bayesrnn.runs.evaluate import evaluate
from bayesrnn.runs.evaluation import EvaluationSettings, about
from bayesrnn.runs.pruning.prune import prune_run
from bayesrnn.runs.pruning.results import as_json as pruning_json
from bayesrnn.runs.pruning.settings import PruneSettings
from bayesrnn.runs.summary import read_summary
from bayesrnn.studies.bench import bench
from bayesrnn.studies.reproduce.options import PtbOptions
from bayesrnn.tasks.lm.dynamic_settings import DynamicOptions, choose_settings
from bayesrnn.tasks.lm.evaluate import dynamic_row
from bayesrnn.tasks.lm.prune import TextPruneOptions
from bayesrnn.tasks.lm.task import TASK
from bayesrnn.tasks.lm.trained import TrainedLanguageModel
from bayesrnn.tasks.lm.uncertainty import UncertaintySettings, uncertainty
from bayesrnn.tasks.lm.uncertainty import as_json as uncertainty_json
from bayesrnn.training.run_directory import RunDirectory

EVALUATED: Final = ("valid", "test")
DYNAMIC: Final = "dynamic-sgd"
_DYNAMIC_OPTIONS = DynamicOptions(dynamic="sgd")

#: Of the draws, and of what is done at random in the benchmarks.
_SEED = 1
_BENCH_STEPS = 40
#: Numbers of draws for which the entropy gap is shown, beside the mean weights and all draws.
_FEWER_DRAWS = (1, 2, 5)


def missing_results(trained: TrainedLanguageModel, options: PtbOptions) -> list[tuple[str, str]]:
    """The split and the inference of each result that the run's folder does not have.

    A result counts if it is exact, and of the same weights and settings.
    """
    results = read_summary(TASK, trained.path).results

    def is_there(split: str, inference: str) -> bool:
        found = results.get(f"{split}-{inference}", {})
        same = found.get("step") == trained.step and found.get("streams") == 1
        if inference == DYNAMIC:
            settings = choose_settings(trained.path, _DYNAMIC_OPTIONS)
            return same and found.get("dynamic") == settings.numbers()
        return same and found.get("seed") == _SEED

    draws = 0 if "draws" in options.skip else differing_draws(trained, options)
    inferences = [
        "mean",
        *([f"samples{draws}"] if draws else []),
        *(["bound"] if isinstance(trained.method, Bounded) else []),
        *([DYNAMIC] if "dynamic" not in options.skip else []),
    ]
    wanted = [(split, inference) for split in EVALUATED for inference in inferences]
    return [one for one in wanted if not is_there(*one)]


def evaluate_missing(trained: TrainedLanguageModel, options: PtbOptions) -> None:
    """Measure what is missing, with the text in one piece, and keep it in the run's folder."""
    draws = differing_draws(trained, options)
    for split, inference in missing_results(trained, options):
        if (split, inference) not in missing_results(trained, options):
            continue  # one evaluation may give several rows
        if inference == DYNAMIC:
            _evaluate_dynamic(trained, split)
        else:
            mean = inference == "mean" and not isinstance(trained.method, Bounded)
            settings = EvaluationSettings(
                split=split,
                samples=0 if mean else draws,
                seed=_SEED,
                device=options.device,
                uncalibrated=True,  # as in the paper
            )
            evaluate(TASK, trained.path, settings)


def differing_draws(trained: TrainedLanguageModel, options: PtbOptions) -> int:
    """How many draws there are to average over; 0 where all would be the same network."""
    members = trained.method.members(trained.net)
    if trained.method.draws_differ:
        return max(options.samples, members)
    return members if members > 1 else 0


def _evaluate_dynamic(trained: TrainedLanguageModel, split: str) -> None:
    """As `evaluate` with `dynamic`, without reading the text another time for the mean weights."""
    corpus = trained.corpus()
    text = getattr(corpus, split).to(trained.device)
    row = dynamic_row(trained, corpus, text, choose_settings(trained.path, _DYNAMIC_OPTIONS))
    shared = about(trained, EvaluationSettings(split=split, seed=_SEED))
    result = {**shared, "corpus": " ".join(trained.config.corpus), **row.as_json()}
    RunDirectory(trained.path).write_result(f"{split}-{row.inference}", result)


@dataclass(frozen=True)
class Measurement:
    """A measurement of a run beside its perplexities, stored as a file in the run's folder.

    settings: all that the result depends on, beside the weights.
    """

    name: str
    label: str
    settings: Callable[[TrainedLanguageModel, PtbOptions], Any]
    measure: Callable[[TrainedLanguageModel, PtbOptions], Any]

    def is_done(self, trained: TrainedLanguageModel, options: PtbOptions) -> bool:
        """Whether it was measured already."""
        key = self._key(trained, options)
        return is_stored(key, options, self.name, trained.path.name)

    def measure_missing(self, trained: TrainedLanguageModel, options: PtbOptions) -> None:
        """Measure it and store it, unless that is done."""
        if not self.is_done(trained, options):
            key, found = self._key(trained, options), self.measure(trained, options)
            _store(key, found, options, self.name, trained.path.name)

    def _key(self, trained: TrainedLanguageModel, options: PtbOptions) -> dict[str, Any]:
        settings = asdict(self.settings(trained, options))
        for always in ("uncalibrated", "units"):  # so here, and unknown to earlier versions
            settings.pop(always, None)
        return {"step": trained.step, "settings": settings}


def _entropy_settings(trained: TrainedLanguageModel, options: PtbOptions) -> UncertaintySettings:
    """With the numbers of draws that an earlier call has measured, so that none is lost."""
    draws = 0 if "draws" in options.skip else differing_draws(trained, options)
    fewer = [number for number in _FEWER_DRAWS if number < draws]
    key, _ = read_stored(options, "entropy", trained.path.name)
    earlier = key.get("settings", {}).get("samples", ())
    samples = tuple(sorted({0, *fewer, draws, *earlier}))
    return UncertaintySettings(
        samples=samples, only_reversed=True, bootstrap=0, seed=_SEED, uncalibrated=True
    )


def _entropy(trained: TrainedLanguageModel, options: PtbOptions) -> Any:
    settings = _entropy_settings(trained, options)
    return uncertainty_json(uncertainty([trained.path], settings, device=options.device))[0]


def _pruning(trained: TrainedLanguageModel, options: PtbOptions) -> Any:
    found = pruning_json(prune_run(TASK, trained, _PRUNE_SETTINGS, TextPruneOptions())[0])
    return {name: found[name] for name in ("weights", "curves", "quality")}


@dataclass(frozen=True, kw_only=True)
class _PruneSettings(PruneSettings, TextPruneOptions):
    """All that the curve depends on."""


_PRUNE_SETTINGS = _PruneSettings(keep_quality=0.01, seed=_SEED)

MEASUREMENTS: Final = (
    Measurement("entropy", "entropy gap", _entropy_settings, _entropy),
    Measurement("pruning", "dropping weights", lambda *_: _PRUNE_SETTINGS, _pruning),
)


def speed_key(options: PtbOptions) -> dict[str, Any]:
    """What the speeds depend on, with the methods of earlier calls and then those asked for.

    Speeds are ratios of one measurement, so that all are measured again where one is missing.
    """
    key, _ = read_stored(options, "bench")
    earlier = [name for name in key.get("methods", ()) if name in METHODS]
    methods = list(dict.fromkeys([*earlier, *options.methods]))
    return {"methods": methods, "steps": _BENCH_STEPS, "threads": torch.get_num_threads()}


def measure_speed(options: PtbOptions, key: Mapping[str, Any]) -> None:
    """Measure the speed of training as the key says, and store it."""
    _store(key, bench(key["steps"], key["threads"], key["methods"]), options, "bench")


def read_stored(options: PtbOptions, name: str, run: str = "") -> tuple[Mapping[str, Any], Any]:
    """The key and the result of a measurement of a run, or of the whole; empty if there is none."""
    path = options.folder / run / f"{name}.json"
    try:
        with explained(f"read {path}", "see that it can be read"):
            stored = json.loads(path.read_bytes()) if path.exists() else {"key": {}, "found": {}}
        return stored["key"], stored["found"]
    except (ValueError, TypeError, KeyError):
        raise RunError(f"{path} is damaged; remove it, and it will be measured again") from None


def is_stored(key: Mapping[str, Any], options: PtbOptions, name: str, run: str = "") -> bool:
    """Whether there is a result that was measured with this key."""
    stored, _ = read_stored(options, name, run)
    return bool(stored == json.loads(json.dumps(key)))


def _store(
    key: Mapping[str, Any], found: Any, options: PtbOptions, name: str, run: str = ""
) -> None:
    """Keep the result of a measurement with its key."""
    folder = options.folder / run
    with explained(f"make {folder}", "give another --out"):
        folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps({"key": key, "found": found}, indent=2) + "\n"
    write_durably(folder / f"{name}.json", text.encode())
