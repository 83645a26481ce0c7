"""What `bayesrnn serve` shows of the runs of a task: a tab of its page, and what the tab asks."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from bayesrnn.errors import ConfigError
from bayesrnn.options import REQUIRED, CheckedOptions, options_of
from bayesrnn.runs.task import TrainedRun
from bayesrnn.uncertainty.scaling import UNSCALED, Scaling

#: Bytes of a question that is JSON, texts included.
TEXT_BYTES: Final = 1_000_000


@dataclass(frozen=True)
class Question:
    """Something that a page asks of a run.

    options: a dataclass of options, which the page gives as JSON.
    answer: given what `Tab.open` gave, the options and the content; values for JSON.
    content: the most bytes of a file that comes with it, with the options in the address; 0: none.
    noun: what that file is, for messages.
    """

    options: type[CheckedOptions]
    answer: Callable[[Any, Any, bytes], Any]
    content: int = 0
    noun: str = "text"


@dataclass(frozen=True)
class Tab:
    """A tab.

    title: what stands on it.
    script: its JavaScript module, by its path in the package, which exports `makeContent`.
    open: a run that is ready to answer, from its path.
    about: what the script has to know of it, as values for JSON.
    questions: by the names that the script calls them.
    """

    title: str
    script: str
    open: Callable[[Path], Any]
    about: Callable[[Any], Mapping[str, Any]]
    questions: Mapping[str, Question]


def checked(options_type: type[CheckedOptions], given: Mapping[str, Any]) -> CheckedOptions:
    """The options of a question from what a page gave; numbers may be written as texts."""
    known = {item.name: item for item in options_of(options_type)}
    if unknown := sorted(given.keys() - known.keys()):
        raise ConfigError(f"there is no option {unknown[0]!r}; there are: {', '.join(known)}")
    missing = [n for n, item in known.items() if item.default is REQUIRED and n not in given]
    if missing:
        raise ConfigError(f"{missing[0]} is missing; give it")
    values = dict(given)
    for name, value in given.items():
        if isinstance(value, str) and known[name].kind in (int, float):
            try:
                values[name] = known[name].kind(value)
            except ValueError:
                raise ConfigError(f"{name} is {value!r}; it has to be a number") from None
    return options_type(**values)


def scaling_of(run: TrainedRun[Any], noise: float = 1.0) -> Scaling:
    """How predictions of a run are scaled, with `noise` times the noise of its draws.

    As calibrated, where the calibration is of these weights.
    """
    found = run.calibration
    scaling = UNSCALED if found is None or found.step != run.step else found.scaling
    return replace(scaling, noise=scaling.noise * noise) if noise != 1 else scaling


def about_draws(run: TrainedRun[Any]) -> dict[str, Any]:
    """Whether draws of a run differ, and whether a factor can change their noise."""
    members = run.method.members(run.net)
    return {
        "step": run.step,
        "draws": run.method.draws_differ or members > 1,
        "noise": run.method.noise_can_change,
        "calibrated": scaling_of(run) != UNSCALED,
    }
