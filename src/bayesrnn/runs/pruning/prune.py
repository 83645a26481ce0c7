"""How many weights or units the network of a run can lose, and which."""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from bayesrnn.compression.cutting import used_units, without_unused
from bayesrnn.compression.file import write_compact
from bayesrnn.compression.manifest import is_compact
from bayesrnn.compression.patterns import matrices, patterns
from bayesrnn.compression.pruning import dropped_weights, without
from bayesrnn.compression.ranking import (
    Ranking,
    at_random,
    droppable,
    magnitude,
    signal_to_noise,
)
from bayesrnn.compression.unit_ranking import UnitRanking, unit_scores, units_at_random
from bayesrnn.core.bayesian import Bayesian
from bayesrnn.errors import ConfigError, RunError
from bayesrnn.nn.units import units_of
from bayesrnn.random import RandomStreams
from bayesrnn.runs.fine_tuning import fine_tune
from bayesrnn.runs.output import require_outputs, require_writable, write_json, write_text
from bayesrnn.runs.places import moved
from bayesrnn.runs.pruning.bench import Bench, Order, curves, kept_quality
from bayesrnn.runs.pruning.report import pruning_page, pruning_text
from bayesrnn.runs.pruning.results import Curve, Measured, PrunedFile, PrunedRun, UnitsLeft, as_json
from bayesrnn.runs.pruning.settings import PruneOptions, PruneSettings
from bayesrnn.runs.summary import RunSummary, read_summary
from bayesrnn.runs.task import PERPLEXITY, Task, TrainedRun
from bayesrnn.training.run_directory import RunDirectory

#: The names of the orders in which weights are dropped.
SIGNAL_TO_NOISE, MAGNITUDE, RANDOM = "signal-to-noise", "magnitude", "random"

#: The share of the weights whose pattern is shown, unless a quality is to be kept.
_SHOWN = 0.8


def require_run(path: Path) -> None:
    """Refuse the file of a network that is pruned already."""
    if is_compact(path):
        raise ConfigError(
            f"{path} is the file of a network that is pruned already; give the folder of a run"
        )


def prune_report(task: Task[Any, Any], options: PruneOptions, for_task: Any) -> str:
    """What pruning costs a run, as text; if asked for also as files.

    With `out` the pruned network itself is written, as a compact file.
    """
    require_outputs(options.html, options.json)
    if options.out is not None:
        require_writable(options.out)
    for path in (options.run, *options.beside):
        require_run(path)
    opened = task.open_run(options.run, options.checkpoint, options.device)
    trained = moved(task, opened, options)
    others = [moved(task, task.open_run(p, device=options.device), options) for p in options.beside]
    found, kept = prune_run(task, trained, options, for_task, options.out)
    for name, other in zip(_names(found.name, others), others, strict=True):
        curve = _curve_beside(task, other, options, for_task, name)
        found = replace(found, curves=(*found.curves, curve))
    if options.html is not None:
        write_text(pruning_page(found, matrices(kept)), options.html)
    if options.json is not None:
        write_json(as_json(found), options.json)
    return pruning_text(found)


def prune_run(
    task: Task[Any, Any],
    trained: TrainedRun[Any],
    settings: PruneSettings,
    for_task: Any,
    out: Path | None = None,
) -> tuple[PrunedRun, dict[str, Tensor]]:
    """What pruning costs a run, and the masks whose patterns are shown; `out` as `prune_report`.

    for_task: what the task itself is asked for, its `prune_options`.
    """
    trained.note_one_network("prune")
    data = _data(task, trained)
    summary = read_summary(task, trained.path)
    orders, module = _orders(trained, settings), trained.method.mean_module(trained.net)
    bench = _bench(task, trained, data, for_task, summary)
    found_curves = curves(bench, orders, settings.fractions, summary.name)
    if not math.isfinite(found_curves[0].points[0].nll):
        raise RunError(
            f"{trained.path} gives no likelihood that is a number at step {trained.step}; give "
            "another --checkpoint, or train it again"
        )
    best, order = next(iter(orders.items()))
    quality = None
    if settings.keep_quality is not None:
        quality = kept_quality(bench, order, found_curves[0], settings.keep_quality)
    shown = _SHOWN if settings.fraction is None else settings.fraction
    shown = shown if quality is None else quality.found.fraction
    kept = order.kept(shown)
    found = PrunedRun(
        name=summary.name,
        path=str(trained.path),
        method=summary.method,
        data=summary.data,
        settings=f"{summary.network}, {summary.settings}",
        split=bench.measurement.split,
        streams=bench.measurement.streams,
        step=trained.step,
        seed=settings.seed,
        only=settings.only,
        per_tensor=settings.per_tensor,
        weights=order.weights,
        fixed=sum(p.numel() for p in module.parameters()) - order.weights,
        curves=tuple(found_curves),
        quality=quality,
        shown_order=best,
        shown_fraction=shown,
        shown_dropped=dropped_weights(kept),
        patterns=tuple(patterns(kept)),
        place=bench.measurement.place,
        title=summary.measure.title,
        digits=summary.measure.digits,
        whole_units=settings.units,
        units=units_left(without(module, kept)),
    )
    if out is None:
        return found, kept
    file = _write(task, trained, data, bench, kept, found, settings, out)
    return replace(found, file=file), kept


def _names(first: str, others: Sequence[TrainedRun[Any]]) -> list[str]:
    """The names of further runs, as much of their paths as tells them from one another."""
    names = [run.path.resolve().name for run in others]
    distinct = len({first, *names}) == 1 + len(names)
    return names if distinct else [str(run.path) for run in others]


def _curve_beside(
    task: Task[Any, Any],
    trained: TrainedRun[Any],
    settings: PruneOptions,
    for_task: Any,
    name: str,
) -> Curve:
    """The same shares of another run, by its best order."""
    trained.note_one_network("prune")
    summary, first = (read_summary(task, path) for path in (trained.path, settings.run))
    if not summary.same_data(first):
        raise ConfigError(
            f"{trained.path} learnt from {summary.place}, not from {first.place} as {settings.run} "
            "did; give runs of the same data to --beside"
        )
    bench = _bench(task, trained, _data(task, trained), for_task, summary)
    best, order = next(iter(_orders(trained, settings).items()))
    label = f"{name} ({summary.method}), {best}"
    return curves(bench, {label: order}, settings.fractions, name)[0]


def _data(task: Task[Any, Any], trained: TrainedRun[Any]) -> Any:
    """The data of a run, which have to be those that it learnt from."""
    data = task.load_for(trained)
    if trained.fingerprint not in (None, task.fingerprint(data)):
        raise RunError(
            f"the data are not those that {trained.path} was trained on; give back the same data"
        )
    return data


def units_left(module: nn.Module) -> tuple[UnitsLeft, ...]:
    """What is left of the layers of a network without some of its weights."""
    used = used_units(module)
    return tuple(UnitsLeft(name, len(mask), int(mask.sum())) for name, mask in used.items())


def _bench(
    task: Task[Any, Any], trained: TrainedRun[Any], data: Any, for_task: Any, summary: RunSummary
) -> Bench:
    module, measure = trained.method.mean_module(trained.net), summary.measure
    measurement = task.pruning_measurement(trained, data, for_task)
    if measure is PERPLEXITY:
        return Bench(module, measurement)
    return Bench(module, measurement, measure.read)


def _write(
    task: Task[Any, Any],
    trained: TrainedRun[Any],
    data: Any,
    bench: Bench,
    kept: Mapping[str, Tensor],
    run: PrunedRun,
    settings: PruneSettings,
    out: Path,
) -> PrunedFile:
    """Write the pruned network, read it again, and measure both."""
    about = {
        "task": task.name,
        "config": RunDirectory(trained.path).read_config(),
        "files": dict(trained.files),
        "fingerprint": trained.fingerprint,
        "run": run.name,
        "method": run.method,
        "step": run.step,
        "order": run.shown_order,
        "only": list(run.only),
        "per_tensor": run.per_tensor,
        "units": run.whole_units,
        "fraction": run.shown_fraction,
        "values": settings.values,
        "fine_tune": settings.fine_tune,
    }
    calibration = trained.calibrated()
    if calibration is not None:
        about["calibration"] = calibration.for_one_network().as_json()
    tuned: list[float] = []
    if settings.fine_tune:
        epochs, lr = settings.fine_tune, settings.fine_tune_lr
        pruned, tuned = fine_tune(task, trained, data, kept, epochs, lr)
    else:
        pruned = without(bench.module, kept)
    fraction, dropped = run.shown_fraction, run.shown_dropped
    masked = bench.measured(pruned, fraction, dropped)
    # Nothing reads what the units are that nothing hears, or that hear nothing.
    left = without_unused(pruned, kept)
    weights = dict(without(pruned, left).named_parameters(remove_duplicate=False))
    size = write_compact(out, weights, left, about, settings.values)
    again = task.open_run(out, device=trained.device.type)
    network = again.method.mean_module(again.net)
    return PrunedFile(
        path=str(out),
        values=settings.values,
        size=size,
        masked=masked,
        written=bench.measured(network, fraction, dropped_weights(left)),
        tuned=tuple(Measured(fraction, dropped, nll) for nll in tuned),
    )


def _orders(trained: TrainedRun[Any], settings: PruneSettings) -> dict[str, Order]:
    """The orders that the run can be pruned in, the most promising first."""
    net, generator = trained.net, RandomStreams(settings.seed)["pruning at random"]
    module = trained.method.mean_module(net)
    weights: Mapping[str, Tensor] = net.mean() if isinstance(net, Bayesian) else droppable(module)
    importance: dict[str, Mapping[str, Tensor]] = {}
    if isinstance(net, Bayesian):
        importance[SIGNAL_TO_NOISE] = signal_to_noise(net)
    importance[MAGNITUDE] = magnitude(weights)
    if not settings.units:
        importance[RANDOM] = at_random(weights, generator)
        chosen = _chosen(weights, settings.only, "weight")
        return {
            order: Ranking({name: values[name] for name in chosen}, settings.per_tensor)
            for order, values in importance.items()
        }
    layers = [units.name for units in units_of(module)]
    if not layers:
        raise ConfigError(
            f"the network of {trained.path} does not say what its units are, so that they cannot "
            "be dropped as a whole; leave --units out"
        )
    chosen = _chosen(layers, settings.only, "layer")
    scores = {order: unit_scores(module, values) for order, values in importance.items()}
    scores[RANDOM] = units_at_random(module, generator)
    return {
        order: UnitRanking(
            module, weights, {name: of[name] for name in chosen}, settings.per_tensor
        )
        for order, of in scores.items()
    }


def _chosen(names: Collection[str], only: tuple[str, ...], noun: str) -> list[str]:
    """The names that one of the patterns fits, or all where there are no patterns."""
    if not only:
        return list(names)
    for pattern in only:
        if not any(fnmatchcase(name, pattern) for name in names):
            raise ConfigError(
                f"--only has {pattern}, which fits the name of no {noun} that can be dropped; there"
                f" are: {', '.join(names)}"
            )
    return [name for name in names if any(fnmatchcase(name, pattern) for pattern in only)]
