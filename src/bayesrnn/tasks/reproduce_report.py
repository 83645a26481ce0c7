"""From the folders of a reproduction to its page and its Markdown file."""

from collections.abc import Mapping
from typing import Any

from bayesrnn.report import (
    GapLevel,
    PruningFigures,
    ReproducedRun,
    Reproduction,
    Speed,
    reproduction_charts,
    reproduction_markdown,
    reproduction_page,
)
from bayesrnn.tasks.output import write_text
from bayesrnn.tasks.prune import MAGNITUDE, SIGNAL_TO_NOISE
from bayesrnn.tasks.reproduce_options import PtbRequest
from bayesrnn.tasks.reproduce_results import (
    DYNAMIC,
    SPLITS,
    part_file,
    read_part,
    weights_key,
)
from bayesrnn.tasks.reproduce_runs import (
    RunState,
    read_states,
    settings_key,
    unlike_asked,
    unlike_published,
)
from bayesrnn.tasks.uncertainty import REVERSED
from bayesrnn.training import CheckpointStore


def write_report(request: PtbRequest, command: str) -> Reproduction:
    """Write results.md with its pictures, and results.html, from what there is; gives it."""
    found = gather(request, command)
    for name, chart in reproduction_charts(found).items():
        write_text(chart, request.out / name)
    write_text(reproduction_markdown(found), request.out / "results.md")
    write_text(reproduction_page(found), request.out / "results.html")
    return found


def gather(request: PtbRequest, command: str) -> Reproduction:
    """All figures that the folders hold."""
    states = read_states(request)
    runs = [made for state in states if (made := _run(request, state)) is not None]
    speeds = read_part(part_file(request, "bench"))
    return Reproduction(
        size=request.size,
        command=command,
        runs=runs,
        missing=[state.name for state in states if state.saved is None],
        skipped=sorted(request.skip),
        speeds={
            name: Speed(found["ratio"], found["memory_ratio"])
            for name, found in (speeds[1] if speeds else {}).items()
        },
    )


def _run(request: PtbRequest, state: RunState) -> ReproducedRun | None:
    if state.saved is None or state.summary is None:
        return None
    store = CheckpointStore(state.path)
    step = store.step("best" if store.exists("best") else "last")
    results = {
        name: result
        for name, result in state.summary.results.items()
        if result.get("step") == step and result.get("streams") == 1
    }
    draws = _draws(results, request.samples)
    names = {"mean": "mean", "dynamic": DYNAMIC, "draws": f"samples{draws}", "bound": "bound"}
    rows = {f"{s}-{shown}": f"{s}-{kept}" for s in SPLITS for shown, kept in names.items()}
    dynamic = next((results[n]["label"] for n in results if n.endswith(DYNAMIC)), "")
    weights = weights_key(state.path, step)
    gaps = _part(request, "entropy", state.name, weights)
    pruning = _part(request, "pruning", state.name, weights)
    return ReproducedRun(
        summary=state.summary,
        seed=state.saved.seed,
        epochs=state.epochs,
        settings=settings_key(state.saved),
        figures={
            shown: value
            for shown, kept in rows.items()
            if kept in results and (value := state.summary.figure(results[kept])) is not None
        },
        draws=draws,
        dynamic=dynamic.removeprefix("dynamic "),
        asked=unlike_asked(state),
        departures=unlike_published(state.saved),
        gaps=_gaps(gaps) if gaps else (),
        pruning=_pruning(pruning) if pruning else None,
    )


def _draws(results: Mapping[str, Mapping[str, Any]], wanted: int) -> int:
    """The number of draws to show: the wanted one, or else the largest there is."""
    there = {int(r["samples"]) for r in results.values() if r["samples"]}
    return wanted if wanted in there else max(there, default=0)


def _part(request: PtbRequest, part: str, run: str, weights: Mapping[str, Any]) -> Any:
    """The figures of a part, if they are of these weights."""
    kept = read_part(part_file(request, part, run))
    same = kept is not None and {name: kept[0].get(name) for name in weights} == weights
    return kept[1] if kept and same else None


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


def _pruning(found: Mapping[str, Any]) -> PruningFigures:
    def curve(order: str) -> dict[float, float | None]:
        return {point["fraction"]: point["perplexity"] for point in found["curves"][order]}

    kept = found["quality"]
    share = kept["dropped"] / found["weights"]
    return PruningFigures(curve(SIGNAL_TO_NOISE), curve(MAGNITUDE), (share, kept["perplexity"]))
