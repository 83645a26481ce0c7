"""What a reproduction measures of its runs, each figure once for the same weights."""

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import torch

from bayesrnn.durable import explained, write_durably
from bayesrnn.errors import RunError
from bayesrnn.methods import METHODS
from bayesrnn.methods.base import Bounded
from bayesrnn.runs.evaluate import evaluate
from bayesrnn.runs.evaluation import EvaluationSettings, about
from bayesrnn.runs.summary import read_summary
from bayesrnn.studies.bench import bench
from bayesrnn.studies.reproduce.options import PtbOptions
from bayesrnn.tasks.lm.dynamic_settings import DynamicOptions, choose_settings
from bayesrnn.tasks.lm.evaluate import dynamic_row
from bayesrnn.tasks.lm.prune import as_json as pruning_json
from bayesrnn.tasks.lm.prune import prune_run
from bayesrnn.tasks.lm.prune_settings import PruneSettings
from bayesrnn.tasks.lm.task import TASK
from bayesrnn.tasks.lm.trained import TrainedLanguageModel
from bayesrnn.tasks.lm.uncertainty import UncertaintySettings, uncertainty
from bayesrnn.tasks.lm.uncertainty import as_json as uncertainty_json
from bayesrnn.training.run_directory import RunDirectory

SPLITS: Final = ("valid", "test")
DYNAMIC: Final = "dynamic-sgd"
_DYNAMIC = DynamicOptions(dynamic="sgd")

#: Of the draws, and of what is done at random in the benchmarks.
_SEED = 1
_BENCH_STEPS = 40
#: Numbers of draws for which the entropy gap is shown, beside the mean weights and all draws.
_FEWER_DRAWS = (1, 2, 5)


def missing_results(trained: TrainedLanguageModel, options: PtbOptions) -> list[tuple[str, str]]:
    """The split and the way of prediction of each result that the run's folder does not have."""
    return [
        (split, way)
        for split in SPLITS
        for way in _ways(trained, options)
        if not _is_there(trained, split, way)
    ]


def evaluate_missing(trained: TrainedLanguageModel, options: PtbOptions) -> None:
    """Measure what is missing, with the text in one piece, and keep it in the run's folder."""
    draws = differing_draws(trained, options)
    for split, way in missing_results(trained, options):
        if _is_there(trained, split, way):
            continue  # one evaluation may give several rows
        if way == DYNAMIC:
            _evaluate_dynamic(trained, split)
        else:
            samples = 0 if way == "mean" and not isinstance(trained.method, Bounded) else draws
            settings = EvaluationSettings(
                split=split, samples=samples, seed=_SEED, device=options.device
            )
            evaluate(TASK, trained.path, settings)


def differing_draws(trained: TrainedLanguageModel, options: PtbOptions) -> int:
    """How many draws there are to average over; 0 where all would be the same network."""
    members = trained.method.members(trained.net)
    if trained.method.draws_differ:
        return max(options.samples, members)
    return members if members > 1 else 0


def _ways(trained: TrainedLanguageModel, options: PtbOptions) -> list[str]:
    draws = 0 if "draws" in options.skip else differing_draws(trained, options)
    return [
        "mean",
        *([f"samples{draws}"] if draws else []),
        *(["bound"] if isinstance(trained.method, Bounded) else []),
        *([DYNAMIC] if "dynamic" not in options.skip else []),
    ]


def _is_there(trained: TrainedLanguageModel, split: str, way: str) -> bool:
    """Whether the run has the result, exact, and of the same weights and settings."""
    found = read_summary(TASK, trained.path).results.get(f"{split}-{way}", {})
    same = found.get("step") == trained.step and found.get("streams") == 1
    if way == DYNAMIC:
        settings = choose_settings(trained.path, _DYNAMIC)
        return same and found.get("dynamic") == settings.numbers()
    return same and found.get("seed") == _SEED


def _evaluate_dynamic(trained: TrainedLanguageModel, split: str) -> None:
    """As `evaluate` with `dynamic`, without reading the text another time for the mean weights."""
    corpus = trained.corpus()
    text = getattr(corpus, split).to(trained.device)
    row = dynamic_row(trained, corpus, text, choose_settings(trained.path, _DYNAMIC))
    said = about(trained, EvaluationSettings(split=split, seed=_SEED))
    result = {**said, "corpus": " ".join(trained.config.corpus), **row.as_json()}
    RunDirectory(trained.path).write_result(f"{split}-{row.inference}", result)


@dataclass(frozen=True)
class Part:
    """A measurement of a run beside its perplexities, kept in the run's folder.

    settings: all that the figures depend on, beside the weights.
    """

    name: str
    label: str
    settings: Callable[[TrainedLanguageModel, PtbOptions], Any]
    measure: Callable[[TrainedLanguageModel, PtbOptions], Any]

    def is_there(self, trained: TrainedLanguageModel, options: PtbOptions) -> bool:
        """Whether it was measured already."""
        path = part_file(options, self.name, trained.path.name)
        return part_is_there(path, self._key(trained, options))

    def do(self, trained: TrainedLanguageModel, options: PtbOptions) -> None:
        """Measure it, and keep it."""
        path = part_file(options, self.name, trained.path.name)
        write_part(path, self._key(trained, options), self.measure(trained, options))

    def _key(self, trained: TrainedLanguageModel, options: PtbOptions) -> dict[str, Any]:
        return {"step": trained.step, "settings": asdict(self.settings(trained, options))}


def _entropy_settings(trained: TrainedLanguageModel, options: PtbOptions) -> UncertaintySettings:
    """With the numbers of draws that an earlier call has measured, so that none is lost."""
    draws = 0 if "draws" in options.skip else differing_draws(trained, options)
    fewer = [number for number in _FEWER_DRAWS if number < draws]
    kept = read_part(part_file(options, "entropy", trained.path.name))
    there = kept[0].get("settings", {}).get("samples", ()) if kept else ()
    samples = tuple(sorted({0, *fewer, draws, *there}))
    return UncertaintySettings(samples=samples, only_reversed=True, bootstrap=0, seed=_SEED)


def _entropy(trained: TrainedLanguageModel, options: PtbOptions) -> Any:
    settings = _entropy_settings(trained, options)
    return uncertainty_json(uncertainty([trained.path], settings, device=options.device))[0]


def _pruning(trained: TrainedLanguageModel, options: PtbOptions) -> Any:
    kept = pruning_json(prune_run(trained, _PRUNE_SETTINGS)[0])
    return {name: kept[name] for name in ("weights", "curves", "quality")}


_PRUNE_SETTINGS = PruneSettings(keep_quality=0.01, seed=_SEED)

RUN_PARTS: Final = (
    Part("entropy", "entropy gap", _entropy_settings, _entropy),
    Part("pruning", "dropping weights", lambda *_: _PRUNE_SETTINGS, _pruning),
)


def speed_key(options: PtbOptions) -> dict[str, Any]:
    """What the speeds depend on, with the methods of earlier calls and then those asked for.

    Speeds are ratios of one measurement, so that all are measured again where one is missing.
    """
    kept = read_part(part_file(options, "bench"))
    names = () if kept is None else kept[0].get("methods", ())
    earlier = [name for name in names if name in METHODS]
    methods = list(dict.fromkeys([*earlier, *options.methods]))
    return {"methods": methods, "steps": _BENCH_STEPS, "threads": torch.get_num_threads()}


def measure_speed(options: PtbOptions, key: Mapping[str, Any]) -> None:
    """Measure the speed of training as the key says, and keep it."""
    found = bench(key["steps"], key["threads"], key["methods"])
    write_part(part_file(options, "bench"), key, found)


def part_file(options: PtbOptions, part: str, run: str = "") -> Path:
    """The file that keeps a part: of a run, or of the whole reproduction."""
    return options.folder / run / f"{part}.json"


def read_part(path: Path) -> tuple[Mapping[str, Any], Any] | None:
    """The key and the figures of a part that was measured; None if there is none."""
    try:
        with explained(f"read {path}", "see that it can be read"):
            kept = json.loads(path.read_bytes()) if path.exists() else None
        return None if kept is None else (kept["key"], kept["found"])
    except (ValueError, TypeError, KeyError):
        raise RunError(f"{path} is damaged; remove it, and it will be measured again") from None


def part_is_there(path: Path, key: Mapping[str, Any]) -> bool:
    """Whether the part was measured with this key."""
    kept = read_part(path)
    return kept is not None and kept[0] == json.loads(json.dumps(key))


def write_part(path: Path, key: Mapping[str, Any], found: Any) -> None:
    """Keep the figures of a part with its key."""
    with explained(f"make {path.parent}", "give another --out"):
        path.parent.mkdir(parents=True, exist_ok=True)
    write_durably(path, (json.dumps({"key": key, "found": found}, indent=2) + "\n").encode())
