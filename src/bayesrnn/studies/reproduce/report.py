"""From the folders of a reproduction to its page and its Markdown file."""

import platform
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import torch

from bayesrnn import __version__
from bayesrnn.methods import METHODS
from bayesrnn.runs.output import write_json, write_text
from bayesrnn.runs.pruning.prune import MAGNITUDE, SIGNAL_TO_NOISE
from bayesrnn.studies.reproduce.measure import DYNAMIC, EVALUATED, read_stored
from bayesrnn.studies.reproduce.options import PtbOptions
from bayesrnn.studies.reproduce.page import (
    reproduction_charts,
    reproduction_markdown,
    reproduction_page,
)
from bayesrnn.studies.reproduce.results import (
    GapLevel,
    PruningCurves,
    ReproducedRun,
    Reproduction,
    Speed,
    reproduction_values,
)
from bayesrnn.studies.reproduce.run_state import (
    RunState,
    read_shown_states,
    settings_key,
    unlike_asked,
    unlike_published,
)
from bayesrnn.tasks.lm.uncertainty import REVERSED
from bayesrnn.training.checkpoints import CheckpointStore


def write_report(options: PtbOptions) -> Reproduction:
    """Write the page, the Markdown file with its pictures, and a JSON file; returns it all."""
    found = gather(options)
    write_json(reproduction_values(found), options.folder / "results.json")
    for name, chart in reproduction_charts(found).items():
        write_text(chart, options.folder / name)
    write_text(reproduction_markdown(found), options.folder / "results.md")
    write_text(reproduction_page(found), options.folder / "results.html")
    return found


def gather(options: PtbOptions) -> Reproduction:
    """All results that the folders hold."""
    states = read_shown_states(options)
    runs = [made for state in states if (made := _run(options, state)) is not None]
    speeds = _speeds(options)
    return Reproduction(
        size=options.size,
        command=options.command(),
        made_with=_made_with(),
        runs=runs,
        missing=[state.name for state in states if state.saved is None],
        skipped=_not_measured(options.skip, runs, bool(speeds)),
        speeds=speeds,
    )


def _made_with() -> str:
    python, processor = platform.python_version(), f"{platform.system()} {platform.machine()}"
    return f"bayesrnn {__version__}, torch {torch.__version__}, Python {python}, {processor}"


def _speeds(options: PtbOptions) -> dict[str, Speed]:
    _, found = read_stored(options, "bench")
    return {name: Speed(one["ratio"], one["memory_ratio"]) for name, one in found.items()}


def _run(options: PtbOptions, state: RunState) -> ReproducedRun | None:
    """A run with what its folder has of its best weights; None if it is not begun."""
    if state.saved is None or state.summary is None:
        return None
    store = CheckpointStore(state.path)
    step = store.step("best" if store.exists("best") else "last")
    results = {
        name: result
        for name, result in state.summary.results.items()
        if result.get("step") == step and result.get("streams") == 1
    }
    draws = _draws(results, options.samples)
    names = {"mean": "mean", "dynamic": DYNAMIC, "draws": f"samples{draws}", "bound": "bound"}
    rows = {f"{s}-{shown}": f"{s}-{file}" for s in EVALUATED for shown, file in names.items()}
    labels = [results[name]["label"] for name in sorted(results) if name.endswith(DYNAMIC)]
    gaps = _stored(options, "entropy", state.name, step)
    pruning = _stored(options, "pruning", state.name, step)
    return ReproducedRun(
        summary=state.summary,
        seed=state.saved.seed,
        settings=settings_key(state.saved),
        perplexities={
            shown: value
            for shown, file in rows.items()
            if file in results and (value := state.summary.measure.read(results[file])) is not None
        },
        draws=draws,
        one_network=METHODS[state.saved.method].mean_label,
        dynamic=" and ".join(dict.fromkeys(label.removeprefix("dynamic ") for label in labels)),
        unlike_asked=unlike_asked(state),
        unlike_published=unlike_published(state.saved),
        gaps=_gaps(gaps) if gaps else (),
        pruning=_pruning(pruning) if pruning else None,
    )


def _draws(results: Mapping[str, Mapping[str, Any]], wanted: int) -> int:
    """The number of draws to show: the wanted one, or else the largest there is."""
    there = {int(r["samples"]) for r in results.values() if r["samples"]}
    return wanted if wanted in there else max(there, default=0)


def _not_measured(skip: Collection[str], runs: Sequence[ReproducedRun], speeds: bool) -> list[str]:
    """The parts that were left out and of which earlier calls have no results either."""
    there = {
        "draws": any("test-draws" in run.perplexities for run in runs),
        "dynamic": any("test-dynamic" in run.perplexities for run in runs),
        "entropy": any(run.gaps for run in runs),
        "pruning": any(run.pruning is not None for run in runs),
        "bench": speeds,
    }
    return [part for part, measured in there.items() if part in skip and not measured]


def _stored(options: PtbOptions, name: str, run: str, step: int) -> Any:
    """The result of a measurement, if it is of the weights of this step."""
    key, found = read_stored(options, name, run)
    return found if key.get("step") == step else None


def _gaps(found: Mapping[str, Any]) -> tuple[GapLevel, ...]:
    scaled = {level["samples"]: level["shifts"][REVERSED]["gap"] for level in found["scaled"]}
    return tuple(
        GapLevel(
            samples=level["samples"],
            nll=level["regular"]["nll"],
            entropy=level["regular"]["entropy"],
            gap=level["shifts"][REVERSED]["gap"],
            scaled_gap=scaled.get(level["samples"]),
        )
        for level in found["levels"]
    )


def _pruning(found: Mapping[str, Any]) -> PruningCurves:
    def curve(order: str) -> dict[float, float | None]:
        points = found["curves"].get(order, ())
        return {point["fraction"]: point["perplexity"] for point in points}

    quality = found["quality"]
    within = (quality["dropped"] / found["weights"], quality["perplexity"])
    return PruningCurves(curve(SIGNAL_TO_NOISE), curve(MAGNITUDE), within)
