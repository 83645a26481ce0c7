"""How many weights a language model can lose, and which."""

import math
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from torch import Tensor, nn

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
from bayesrnn.core.bayesian import Bayesian
from bayesrnn.errors import ConfigError, RunError
from bayesrnn.progress import progress_bar
from bayesrnn.random import RandomStreams
from bayesrnn.runs.fine_tuning import fine_tune
from bayesrnn.runs.output import require_outputs, require_writable, write_json, write_text
from bayesrnn.runs.summary import read_summary
from bayesrnn.tasks.lm.likelihood import target_log_probs
from bayesrnn.tasks.lm.prune_report import pruning_page, pruning_text
from bayesrnn.tasks.lm.prune_results import Curve, KeptQuality, Measured, PrunedFile, PrunedRun
from bayesrnn.tasks.lm.prune_settings import PruneOptions, PruneSettings
from bayesrnn.tasks.lm.task import TASK
from bayesrnn.tasks.lm.trained import TrainedLanguageModel
from bayesrnn.training.run_directory import RunDirectory

#: The names of the orders in which weights are dropped.
SIGNAL_TO_NOISE, MAGNITUDE, RANDOM = "signal-to-noise", "magnitude", "random"

#: The share of the weights whose pattern is shown, unless a quality is to be kept.
_SHOWN = 0.8

#: The largest fraction that keeps the quality is found to one weight in this many.
_EXACTNESS = 1000

_UNROLL = 100


def prune_report(options: PruneOptions) -> str:
    """What pruning costs a run, as text; if asked for also as files.

    With `out` the pruned network itself is written, as a compact file.
    """
    require_outputs(options.html, options.json)
    if options.out is not None:
        require_writable(options.out)
    if is_compact(options.run):
        raise ConfigError(
            f"{options.run} is the file of a network that is pruned already; give the folder of a "
            "run"
        )
    trained = TASK.open_run(options.run, options.checkpoint, options.device)
    found, kept = prune_run(trained, options, options.out)
    if options.html is not None:
        write_text(pruning_page(found, matrices(kept)), options.html)
    if options.json is not None:
        write_json(as_json(found), options.json)
    return pruning_text(found)


def prune_run(
    trained: TrainedLanguageModel, settings: PruneSettings, out: Path | None = None
) -> tuple[PrunedRun, dict[str, Tensor]]:
    """What pruning costs a run, and the masks whose patterns are shown; `out` as `prune_report`."""
    trained.note_one_network("prune")
    text: Tensor = getattr(trained.corpus(), settings.split).to(trained.device)
    rankings = _rankings(trained, settings)
    bench = Bench(trained.method.mean_module(trained.net), text, settings.streams)
    curves = _curves(bench, rankings, settings.fractions, trained.path.resolve().name)
    if not math.isfinite(curves[0].points[0].nll):
        raise RunError(
            f"{trained.path} gives no likelihood that is a number at step {trained.step}; give "
            "another --checkpoint, or train it again"
        )
    best, ranking = next(iter(rankings.items()))
    quality = None
    if settings.keep_quality is not None:
        quality = kept_quality(bench, ranking, curves[0], settings.keep_quality)
    shown = _SHOWN if settings.fraction is None else settings.fraction
    shown = shown if quality is None else quality.found.fraction
    kept = ranking.kept(shown)
    summary = read_summary(TASK, trained.path)
    found = PrunedRun(
        name=summary.name,
        path=str(trained.path),
        method=summary.method,
        corpus=summary.data,
        settings=f"{summary.network}, {summary.settings}",
        split=settings.split,
        streams=settings.streams,
        step=trained.step,
        seed=settings.seed,
        only=settings.only,
        per_tensor=settings.per_tensor,
        weights=ranking.weights,
        fixed=sum(p.numel() for p in bench.module.parameters()) - ranking.weights,
        curves=tuple(curves),
        quality=quality,
        shown_order=best,
        shown_fraction=shown,
        shown_dropped=dropped_weights(kept),
        patterns=tuple(patterns(kept)),
    )
    if out is None:
        return found, kept
    return replace(found, file=_write(trained, bench, kept, found, settings, out)), kept


def _write(
    trained: TrainedLanguageModel,
    bench: "Bench",
    kept: Mapping[str, Tensor],
    run: PrunedRun,
    settings: PruneSettings,
    out: Path,
) -> PrunedFile:
    """Write the pruned network, read it again, and measure both."""
    about = {
        "task": trained.config.task,
        "config": RunDirectory(trained.path).read_config(),
        "files": dict(trained.files),
        "run": run.name,
        "method": run.method,
        "step": run.step,
        "order": run.shown_order,
        "only": list(run.only),
        "per_tensor": run.per_tensor,
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
        pruned, tuned = fine_tune(TASK, trained, trained.corpus(), kept, epochs, lr)
    else:
        pruned = without(bench.module, kept)
    weights = dict(pruned.named_parameters(remove_duplicate=False))
    size = write_compact(out, weights, kept, about, settings.values)
    again = TASK.open_run(out, device=trained.device.type)
    with progress_bar(2 * bench.words, " words", f"reading {out.name}") as bar:
        masked = bench.nll(pruned, bar)
        written = bench.nll(again.method.mean_module(again.net), bar)
    fraction, dropped = run.shown_fraction, run.shown_dropped
    return PrunedFile(
        path=str(out),
        values=settings.values,
        size=size,
        masked=Measured(fraction, dropped, masked),
        written=Measured(fraction, dropped, written),
        tuned=tuple(Measured(fraction, dropped, nll) for nll in tuned),
    )


def _rankings(trained: TrainedLanguageModel, settings: PruneSettings) -> dict[str, Ranking]:
    """The orders that the run can be pruned in, the most promising first."""
    net, generator = trained.net, RandomStreams(settings.seed)["pruning at random"]
    importance: dict[str, Mapping[str, Tensor]] = {}
    if isinstance(net, Bayesian):
        weights: Mapping[str, Tensor] = net.mean()
        importance[SIGNAL_TO_NOISE] = signal_to_noise(net)
    else:
        weights = droppable(trained.method.mean_module(net))
    importance[MAGNITUDE] = magnitude(weights)
    importance[RANDOM] = at_random(weights, generator)
    chosen = _chosen(weights, settings.only)
    return {
        order: Ranking({name: values[name] for name in chosen}, settings.per_tensor)
        for order, values in importance.items()
    }


def _chosen(names: Collection[str], only: tuple[str, ...]) -> list[str]:
    """The names that one of the patterns fits, or all where there are no patterns."""
    if not only:
        return list(names)
    for pattern in only:
        if not any(fnmatchcase(name, pattern) for name in names):
            raise ConfigError(
                f"--only has {pattern}, which fits the name of no weight that can be dropped; there"
                f" are: {', '.join(names)}"
            )
    return [name for name in names if any(fnmatchcase(name, pattern) for pattern in only)]


@dataclass(frozen=True)
class Bench:
    """A network, and the text on which its pruned copies are measured."""

    module: nn.Module
    text: Tensor
    streams: int

    @property
    def words(self) -> int:
        """The predictions of one measurement."""
        return len(self.text) - 1

    def measure(self, ranking: Ranking, fraction: float, bar: Any) -> Measured:
        """What is left when this share of the weights is dropped."""
        kept = ranking.kept(fraction)
        return Measured(fraction, dropped_weights(kept), self.nll(without(self.module, kept), bar))

    def nll(self, network: nn.Module, bar: Any = None) -> float:
        """Nats a word."""
        network.eval()
        advance = None if bar is None else bar.update
        log_probs = target_log_probs(network, self.text, self.streams, _UNROLL, advance)
        return -log_probs.cpu().double().mean().item()


def _curves(
    bench: Bench, rankings: Mapping[str, Ranking], wanted: tuple[float, ...], label: str
) -> list[Curve]:
    """The metrics of every order at every fraction; at 0 and 1 there is only one network."""
    fractions = sorted({0.0, *wanted})
    same = {fraction for fraction in fractions if fraction in (0, 1)}
    runs = len(same) + len(rankings) * (len(fractions) - len(same))
    known: dict[float, Measured] = {}
    curves = []
    with progress_bar(runs * bench.words, " words", f"pruning {label}") as bar:
        for order, ranking in rankings.items():
            points = []
            for fraction in fractions:
                point = known.get(fraction) or bench.measure(ranking, fraction, bar)
                if fraction in same:
                    known[fraction] = point
                points.append(point)
            curves.append(Curve(order, tuple(points)))
    return curves


def kept_quality(bench: Bench, ranking: Ranking, curve: Curve, quality: float) -> KeptQuality:
    """The largest fraction whose perplexity is within the quality, to 0.1% of the weights.

    The perplexity need not grow with every weight that is dropped, so a bisection from 0 to 1 could
    end in the wrong place. The one here is between the last fraction of the curve that is within
    the limit and the one after it (1 if there is none): what the curve has seen is respected, and
    a dent between two of its points beyond may be missed.
    """
    limit = curve.points[0].nll + math.log1p(quality)
    place = max(place for place, point in enumerate(curve.points) if point.nll <= limit)
    found, after = curve.points[place], curve.points[place + 1 : place + 2]
    total = ranking.weights
    exact = max(total // _EXACTNESS, 1)
    low, high = round(found.fraction * total), round(after[0].fraction * total) if after else total
    steps = math.ceil(math.log2(max((high - low) / exact, 1))) + (not after)
    tried: list[Measured] = []
    with progress_bar(steps * bench.words, " words", "keeping the quality") as bar:

        def within(dropped: int) -> bool:
            nonlocal found
            tried.append(bench.measure(ranking, dropped / total, bar))
            if tried[-1].nll > limit:
                return False
            found = tried[-1]
            return True

        if not after and low < total and within(total):
            low = total
        while high - low > exact:
            middle = (low + high) // 2
            if within(middle):
                low = middle
            else:
                high = middle
    return KeptQuality(quality, limit, curve.order, found, tuple(tried))


def as_json(run: PrunedRun) -> dict[str, Any]:
    """The metrics as values for a JSON file, with those that follow from others."""
    quality, file = run.quality, run.file
    return {
        **asdict(run),
        "full": _point(run.full),
        "curves": {curve.order: [_point(point) for point in curve.points] for curve in run.curves},
        "quality": quality
        and {
            "quality": quality.quality,
            "order": quality.order,
            "limit": _finite(Measured(0, 0, quality.limit).perplexity),
            **_point(quality.found),
            "tried": [_point(point) for point in quality.tried],
        },
        "patterns": [
            {**asdict(pattern), "dropped": pattern.dropped, "share": pattern.share}
            for pattern in run.patterns
        ],
        "file": file
        and {
            "path": file.path,
            "values": file.values,
            "bytes": asdict(file.size),
            "ratio": file.size.ratio,
            "index_share": file.size.index_share,
            "masked": _point(file.masked),
            "written": _point(file.written),
            "tuned": [_point(point) for point in file.tuned],
        },
    }


def _point(point: Measured) -> dict[str, Any]:
    return {**asdict(point), "perplexity": _finite(point.perplexity)}


def _finite(value: float) -> float | None:
    """JSON knows no infinity."""
    return value if math.isfinite(value) else None
