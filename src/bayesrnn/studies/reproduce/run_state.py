"""A run of a reproduction: how far it is, and how it differs from what was asked and published."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bayesrnn.errors import BayesRNNError, RunError
from bayesrnn.methods import METHODS
from bayesrnn.runs.load import read_config
from bayesrnn.runs.start import RunArguments, train_run
from bayesrnn.runs.summary import RunSummary, read_summary
from bayesrnn.studies.reproduce.options import PtbOptions, recipe_option
from bayesrnn.tasks.lm.config import LanguageModelConfig
from bayesrnn.tasks.lm.task import TASK
from bayesrnn.training.checkpoints import CheckpointStore
from bayesrnn.training.run_directory import RunDirectory

#: Options that say nothing about the results, or nothing that others do not.
_MACHINE = (
    *("recipe", "calibrate"),
    *("data_dir", "device", "threads", "save_minutes", "tensorboard"),
)

#: The sizes at which each method was published; the first is compared with where ours is another.
_PUBLISHED_SIZES = {
    "plain": ("small",),
    "dropout": ("medium", "large"),
    "variational-dropout": ("medium", "large"),
    "bbb": ("medium",),
    "sharpened": ("medium",),
}
#: What is known of the published set-up, where our recipe does not follow it.
_ONLY_KNOWN = {"variational-dropout": ("hidden", "layers")}

_GROUPINGS = {
    "row": "mixture prior per row, as in the authors' code; the paper's formula is per weight",
    "weight": "mixture prior per weight, as in the paper's formula; the authors' code is per row",
    "tensor": "mixture prior per tensor; the paper's formula is per weight, the code per row",
}
_UNPUBLISHED = {
    "sharpened": (
        "rate of the steps eta and clipping of the gradient that sharpens: ours, the paper does "
        "not say",
    ),
    "variational-dropout": ("schedule and rates: ours, not those of Gal & Ghahramani 2016",),
}


class WeightsGoneError(RunError):
    """A run was trained and measured, and its checkpoints were removed."""


@dataclass(frozen=True)
class RunState:
    """How far a run is.

    wanted: the configuration that was asked for.
    saved, summary: of the run as it is; None where nothing is saved yet.
    complete: whether all of them are done and saved.
    asked: whether it was asked for, and is not only there.
    """

    path: Path
    wanted: LanguageModelConfig
    saved: LanguageModelConfig | None
    summary: RunSummary | None
    complete: bool
    asked: bool = True

    @property
    def name(self) -> str:
        """The name of the run's folder."""
        return self.path.name

    @property
    def config(self) -> LanguageModelConfig:
        """The configuration that counts: a run that is begun keeps its own."""
        return self.saved or self.wanted

    @property
    def epochs(self) -> int:
        """How many epochs are planned, in all rounds of the method."""
        method = METHODS[self.config.method]
        return sum(method.round_epochs(self.config.options, self.config.epochs))

    @property
    def epochs_done(self) -> int:
        """How many epochs are finished."""
        return self.summary.epochs_done if self.summary else 0


def read_states(options: PtbOptions) -> list[RunState]:
    """All runs that were asked for, the seeds of a method together."""
    return [read_state(options, m, seed) for m in options.methods for seed in options.seeds]


def read_shown_states(options: PtbOptions) -> list[RunState]:
    """The runs that were asked for, and all others that earlier calls left in the same folder.

    The seeds of a method stand together, and the methods that were asked for come first.
    """
    asked = read_states(options)
    others = [
        state
        for path in options.folder.glob("*-seed*")
        if path not in [state.path for state in asked]
        and (state := _left_there(options, path)) is not None
    ]
    methods = list(dict.fromkeys([*options.methods, *METHODS]))
    return sorted(
        [*asked, *others], key=lambda one: (methods.index(one.config.method), one.config.seed)
    )


def _left_there(options: PtbOptions, path: Path) -> RunState | None:
    """The state of a run that nobody asked for; None for what is none of this reproduction."""
    method, _, seed = path.name.rpartition("-seed")
    if method not in METHODS or not seed.isdecimal() or seed != str(int(seed)):
        return None
    try:
        state = replace(read_state(options, method, int(seed)), asked=False)
    except WeightsGoneError:
        raise  # a report without it would take the place of the one that has it
    except BayesRNNError:
        return None
    return None if state.saved is None else state


def read_state(options: PtbOptions, method: str, seed: int) -> RunState:
    """How far the run of a method and a seed is."""
    path = options.folder / f"{method}-seed{seed}"
    wanted = TASK.resolve(options.given(method, seed))
    if path.is_file():
        raise RunError(f"{path} is a file, where a run is to be; move it, or give another --out")
    if not _has_weights(path):
        return RunState(path, wanted, saved=None, summary=None, complete=False)
    saved = TASK.resolve({}, read_config(path), saved=True)
    for name in ("method", "size", "seed", "corpus", "vocabulary_limit"):
        if getattr(saved, name) != getattr(wanted, name):
            raise RunError(
                f"{path} is a run with {name} {_shown(getattr(saved, name))}, where one with "
                f"{_shown(getattr(wanted, name))} is to be; move it, or give another --out"
            )
    summary = _summary(path)
    # An epoch is logged a moment before it is saved: a run that was killed between is not done.
    step = CheckpointStore(path).step()
    done = summary.epochs_done >= summary.epochs_planned and step >= summary.points[-1].step
    return RunState(path, wanted, saved, summary, done)


def _has_weights(path: Path) -> bool:
    """Whether a checkpoint is saved; a run that had one, and has it no more, is refused."""
    store = CheckpointStore(path)
    if store.steps():
        return store.exists()
    if store.exists() or _outlived_an_epoch(path):
        raise WeightsGoneError(
            f"{path} has no weights any more, so it can be neither trained on nor measured: put "
            "its checkpoints back, move the folder away to train the run anew, or give another "
            "--out"
        )
    return False


def _outlived_an_epoch(path: Path) -> bool:
    """Whether there is more of a run than a kill before the first checkpoint leaves."""
    if not RunDirectory(path).has_config():
        return False
    summary = _summary(path)
    return len(summary.points) > 1 or bool(summary.results)


def _summary(path: Path) -> RunSummary:
    """The run in brief, by the name that it has here: the folder may be a link to another."""
    return replace(read_summary(TASK, path), name=path.name)


def train(options: PtbOptions, state: RunState) -> None:
    """Start the run, or continue it with its own settings."""
    config = state.wanted
    begun = state.saved is not None
    given = options.machine() if begun else options.given(config.method, config.seed)
    # A run that was killed before its first checkpoint is not begun: it starts as it is asked for.
    train_run(TASK, RunArguments(out=state.path, resume=begun), given)


def settings_key(config: LanguageModelConfig) -> str:
    """The same text for runs that differ only in their seed, or in where they were trained."""
    return repr(sorted((n, _shown(v)) for n, v in _flat(config).items() if n != "seed"))


def unlike_asked(state: RunState) -> tuple[str, ...]:
    """What is different in the run from what was asked for, as texts."""
    wanted = _flat(state.wanted) if state.asked else {}
    return tuple(_differences(_flat(state.config), wanted, "asked for"))


def unlike_published(config: LanguageModelConfig) -> tuple[str, ...]:
    """What is different in the run from the published set-up, as texts."""
    sizes = _PUBLISHED_SIZES.get(config.method)
    if sizes is None:
        return ("not in the paper",)
    size = config.size if config.size in sizes else sizes[0]
    given = {"corpus": ("ptb",), "size": size, "method": config.method}
    published = _flat(TASK.resolve({**given, **recipe_option(config.method)}))
    ours = _flat(config)
    if "antithetic" in published:
        published["antithetic"] = False  # the mirrored noise is this program's own
    left_out = ("size", "seed", "prior_per")
    known = _ONLY_KNOWN.get(config.method, published)
    compared = {n: value for n, value in published.items() if n in known and n not in left_out}
    found = [*_differences(ours, compared, "published"), *_UNPUBLISHED.get(config.method, ())]
    if ours.get("prior") == "mixture":
        found.append(_GROUPINGS[ours["prior_per"]])
    return tuple(found) or ("nothing that the configuration knows of",)


def _flat(config: LanguageModelConfig) -> dict[str, Any]:
    values = {name: value for name, value in vars(config).items() if name not in _MACHINE}
    options = values.pop("options")
    return {**values, **options}


def _differences(ours: Mapping[str, Any], other: Mapping[str, Any], whose: str) -> list[str]:
    return [
        f"{name.replace('_', ' ')} {_shown(ours.get(name))} ({whose}: {_shown(value)})"
        for name, value in other.items()
        if _shown(ours.get(name)) != _shown(value)
    ]


def _shown(value: Any) -> str:
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "none"}[value]
    if isinstance(value, float):
        return f"{value:.4g}"
    return " ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
