"""The steps of a reproduction: what is done already, what is to do, and how long it may take."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from bayesrnn.errors import ConfigError
from bayesrnn.random import RandomStreams
from bayesrnn.runs.load import make_method
from bayesrnn.studies.reproduce.measure import (
    MEASUREMENTS,
    evaluate_missing,
    is_stored,
    measure_speed,
    missing_results,
    speed_key,
)
from bayesrnn.studies.reproduce.options import PtbOptions
from bayesrnn.studies.reproduce.run_state import RunState, read_states, train, unlike_asked
from bayesrnn.tasks.lm.task import TASK
from bayesrnn.tasks.lm.trained import TrainedLanguageModel

#: Words of an epoch, and of the validation and the test text together.
_EPOCH, _READ = 929_589, 156_188

#: Words a second of training on two cores, by size, where no run says better.
_TRAINING_SPEEDS: Final = {"tiny": 6000, "small": 4000, "medium": 1100, "large": 250}
#: How many times as fast a text is read, in one piece or in parts side by side, and how many times
#: as fast dynamic evaluation goes; as measured at small size.
_READING, _SIDE_BY_SIDE, _DYNAMIC = 1.2, 2.7, 0.08
_SLOWER: Final = {"sharpened": 0.5}

#: Networks that the curves of dropping weights read the validation text with.
_PRUNED_NETWORKS = 42
_BENCH_SECONDS = 120


@dataclass(frozen=True)
class PlanStep:
    """A piece of the work: how long it may take, roughly, and what does it; None if it is done.

    run: the run that it belongs to; empty for what belongs to none.
    trains: whether it trains that run, so that without it nothing can be measured.
    """

    label: str
    seconds: float
    do: Callable[[], None] | None
    run: str = ""
    trains: bool = False

    @property
    def done(self) -> bool:
        """Whether there is nothing left to do."""
        return self.do is None


def make_plan(options: PtbOptions) -> list[PlanStep]:
    """All steps in their order, those that are done already included."""
    states = read_states(options)
    if "training" in options.skip and all(state.saved is None for state in states):
        raise ConfigError(
            f"--skip has training, and {options.folder} has none of the runs; leave it out to "
            "train them, or give the --out that has them"
        )
    steps = [step for state in states for step in _run_steps(options, state)]
    if "bench" not in options.skip:
        # Made now: training may yet change the number of threads to that of a run.
        key = speed_key(options)
        label = f"speed of training of {', '.join(key['methods'])}"
        done = is_stored(key, options, "bench")
        seconds = _BENCH_SECONDS * len(key["methods"])
        steps.append(
            PlanStep(label, seconds, None if done else partial(measure_speed, options, key))
        )
    return steps


def _run_steps(options: PtbOptions, state: RunState) -> list[PlanStep]:
    """The steps of one run: train, evaluate, and further measurements."""
    if state.saved is None and "training" in options.skip:
        return []
    trains = not state.complete and "training" not in options.skip
    speed = _training_speed(state)
    steps = []
    if trains or state.complete:
        left = (state.epochs - state.epochs_done) * _EPOCH / speed
        verb = "continue" if trains and state.saved is not None else "train"
        unlike = ", with other settings than asked for" if unlike_asked(state) else ""
        so_far = f"{state.epochs_done} of {state.epochs} epochs done"
        label = f"{verb} {state.name}: {so_far}{unlike}"
        do_train = partial(train, options, state) if trains else None
        steps.append(PlanStep(label, left, do_train, state.name, trains=True))
    # What is measured belongs to weights that are still to change, or to those that are there.
    trained = None if trains else TASK.open_run(state.path, device=options.device)
    lacking = None if trained is None else missing_results(trained, options)
    what = ", ".join(" ".join(one) for one in lacking or ()) or "validation and test text"
    reading = _networks(options, state) * _READ / (_READING * speed)
    dynamic = 0 if "dynamic" in options.skip else _READ / (_DYNAMIC * speed)
    do = None if lacking == [] else partial(_with_run, evaluate_missing, options, state)
    steps.append(PlanStep(f"evaluate {state.name}: {what}", reading + dynamic, do, state.name))
    pruning = _PRUNED_NETWORKS * _READ / 2 / (_SIDE_BY_SIDE * speed)
    for one in MEASUREMENTS:
        if one.name not in options.skip:
            done = trained is not None and one.is_done(trained, options)
            do = None if done else partial(_with_run, one.measure_missing, options, state)
            seconds = pruning if one.name == "pruning" else reading
            steps.append(PlanStep(f"{one.label} of {state.name}", seconds, do, state.name))
    return steps


def _with_run(
    work: Callable[[TrainedLanguageModel, PtbOptions], None], options: PtbOptions, state: RunState
) -> None:
    """Do some work with a run, which is loaded only now: it may have been trained just before."""
    work(TASK.open_run(state.path, device=options.device), options)


def _networks(options: PtbOptions, state: RunState) -> int:
    """How many networks read a text, about: the mean weights and all that are averaged."""
    config = state.config
    method = make_method(config, RandomStreams(config.seed))
    averaged = options.samples if method.draws_differ else method.rounds - 1
    return 1 if "draws" in options.skip else 1 + averaged


def _training_speed(state: RunState) -> float:
    """Words a second: what the run itself says, or else by its size."""
    if state.summary is not None and state.summary.items_per_second:
        return state.summary.items_per_second
    config = state.wanted
    return _TRAINING_SPEEDS[config.size] * _SLOWER.get(config.method, 1.0)


def plan_text(steps: Sequence[PlanStep], command: str) -> str:
    """The plan for the screen."""
    to_do = [step for step in steps if not step.done]
    lines = [
        f"done   {'':9}  {step.label}"
        if step.done
        else f"to do  {_duration(step.seconds):>9}  {step.label}"
        for step in steps
    ]
    total = _duration(sum(step.seconds for step in to_do))
    left = f"{len(to_do)} of {len(steps)} steps to do, about {total} on two cores: {command}"
    return "\n".join([*lines, left if to_do else "all is done"])


def _duration(seconds: float) -> str:
    if seconds < 5400:
        return f"{max(1, round(seconds / 60))} min"
    return f"{seconds / 3600:.1f} h" if seconds < 48 * 3600 else f"{seconds / 86400:.1f} days"
