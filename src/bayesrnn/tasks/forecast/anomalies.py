"""Is this new week normal? Each new value and each window of them, by what came before."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np

from bayesrnn.data.series import Floats, Series, SeriesSet
from bayesrnn.errors import ConfigError, CorpusError
from bayesrnn.methods.base import Network
from bayesrnn.options import REQUIRED, option
from bayesrnn.progress import progress_bar
from bayesrnn.random import seeded
from bayesrnn.runs.arguments import JsonOptions, RunOptions, html_option, seed_option
from bayesrnn.runs.output import require_writable, write_json, write_text
from bayesrnn.tasks.forecast.anomalies_report import (
    anomalies_csv,
    anomalies_json,
    anomalies_page,
    anomalies_text,
)
from bayesrnn.tasks.forecast.data import ForecastData, require_suits
from bayesrnn.tasks.forecast.layout import Layout
from bayesrnn.tasks.forecast.panel import covariate
from bayesrnn.tasks.forecast.scan import Scan, one_series, scan_series
from bayesrnn.tasks.forecast.source import series_of
from bayesrnn.tasks.forecast.task import TASK
from bayesrnn.tasks.forecast.unlike import UNFAMILIAR_RANK, past_novelty
from bayesrnn.uncertainty.broken_data import broken_mask, broken_runs
from bayesrnn.uncertainty.draws import Draws
from bayesrnn.uncertainty.novelty import window_features

#: What can be ranked as a whole.
WINDOWS: Final = ("horizon", "day", "week")
#: From which share of ignorance on a situation is unfamiliar.
UNFAMILIAR_SHARE: Final = 0.3


@dataclass(frozen=True, kw_only=True)
class AnomalyOptions(RunOptions, JsonOptions):
    """The new values, and what is called strange."""

    data: str = option(REQUIRED, "the new values, read as those of the run", metavar="FILE")
    window: str = option(
        "horizon",
        "what is ranked as a whole: as many values as the horizon, days, or weeks from Monday on",
        choices=WINDOWS,
    )
    p: float = option(0.001, "a value is flagged if one so far out has this chance", gt=0, lt=1)
    samples: int = option(10, "draws of the network; 0: the mean weights alone", ge=0)
    csv: Path | None = option(None, "the table (default: anomalies.csv in the folder of the run)")
    html: Path | None = html_option("the values, what was expected, and the flagged ones")
    seed: int = seed_option()


@dataclass(frozen=True)
class Judged:
    """One series: its new values, the scan of them, why some are flagged, and their windows.

    causes: "" where a value is not flagged. windows: a name and the number of its first value.
    scores: the mean log-density of each window. past_scores: those of windows of the past.
    novelty: of each window, the share of past windows that are less unusual. words: why.
    """

    name: str
    labels: list[str]
    values: Floats
    scan: Scan
    causes: list[str]
    windows: list[tuple[str, int]]
    scores: Floats
    past_scores: Floats
    novelty: Floats
    words: list[str]


def find_anomalies(options: AnomalyOptions) -> str:
    """What is strange in new values, as text; table and page are written."""
    run = TASK.open_run(options.run, options.checkpoint, "cpu")
    csv = options.csv or run.own_file("anomalies.csv")
    for path in (csv, options.html):
        if path is not None:
            require_writable(path)
    own = run.data()
    new = series_of(run.config, options.data, run.layout)
    draws = Draws(run.method, run.net, options.samples, seeded(options.seed))
    found = judge(own, new, list(draws.networks()), options.window, options.p, options.seed)
    write_text(anomalies_csv(found), csv)
    if options.html is not None:
        write_text(anomalies_page(found, str(options.run)), options.html)
    if options.json is not None:
        write_json(anomalies_json(found), options.json)
    return f"{anomalies_text(found)}\nwritten: {csv}"


def judge(
    own: ForecastData,
    new: SeriesSet,
    networks: Sequence[Network],
    window: str,
    p: float,
    seed: int,
) -> list[Judged]:
    """What networks that were trained on `own` say of the new values of its series.

    The networks are on the device of `own`.
    """
    require_suits_step(new, own.layout)
    joined = [_joined(own.series, new, one) for one in new.series]
    total = sum(len(one.target) - first for one, first, _ in joined)
    total += sum(_past_values(own, number) for _, _, number in joined)
    found, device = [], own.panel.values.device
    with progress_bar(total, " values", "reading", delay=1.0) as bar:
        for one, first, number in joined:
            series = replace(own.series, series=(one,))
            require_suits(series, own.layout)
            generator, past = seeded(seed), one_series(own.series, number)
            before, scan = (
                scan_series(
                    of, own.layout, networks, start, generator, advance=bar.update, device=device
                )
                for of, start in ((past, _scanned_from(own, number)), (series, first))
            )
            found.append(_judged(series, own, number, before, scan, window, p))
    return found


def require_suits_step(series: SeriesSet, layout: Layout) -> None:
    """Refuse new values with another step; how few they are does not matter here."""
    long_enough = tuple(replace(one, target=np.zeros(layout.fewest)) for one in series.series[:1])
    require_suits(replace(series, series=long_enough), layout)


def _joined(own: SeriesSet, new: SeriesSet, one: Series) -> tuple[Series, int, int]:
    """The own series with the new values after it, the place of the first new one, its number."""
    names = [series.name for series in own.series]
    if one.name in names:
        number = names.index(one.name)
    elif len(names) == 1 and len(new.series) == 1:
        number = 0
    else:
        raise CorpusError(f"the run knows no series {one.name}; it knows {', '.join(names[:5])}")
    before = own.series[number]
    if own.frequency is None:
        first = one.number - before.number
    else:
        first = int(own.frequency.place(before.start, np.array([one.start]))[0])
        if first < 0:
            raise CorpusError(
                f"the new values of {one.name} begin at {one.start}, before the run's or off their "
                "grid; give values that follow those it was trained on"
            )
    if first < 0 or first > len(before.target) + 10 * len(one.target) + 1000:
        raise CorpusError(f"the new values of {one.name} do not follow those of the run")
    joined = replace(
        before,
        name=one.name,
        target=_after(before.target, one.target, first),
        known={
            name: _after(of, covariate(one, name, "known"), first)
            for name, of in before.known.items()
        },
        past={
            name: _after(of, covariate(one, name, "past"), first)
            for name, of in before.past.items()
        },
    )
    # What the run knows already is not new, unless there is nothing else.
    begin = len(before.target) if len(joined.target) > len(before.target) else first
    return joined, max(first, begin), number


def _after(before: Floats, new: Floats, first: int) -> Floats:
    """Old values and, from the place `first` on, new ones; NaN between them."""
    made = np.full(max(len(before), first + len(new)), np.nan)
    made[: len(before)] = before
    made[first : first + len(new)] = new
    return made


def _scanned_from(own: ForecastData, number: int) -> int:
    """Where the windows begin that new ones are ranked among: those that were not trained on."""
    return max(int(own.slices.train_stops[number]), own.layout.fewest)


def _past_values(own: ForecastData, number: int) -> int:
    return len(own.series.series[number].target) - _scanned_from(own, number)


def _judged(
    series: SeriesSet,
    own: ForecastData,
    number: int,
    before: Scan,
    scan: Scan,
    window: str,
    p: float,
) -> Judged:
    one, first, layout = series.series[0], scan.first, own.layout
    values, past = one.target[first:], one.target[:first]
    novelty = past_novelty(own.series.series[number].target, layout.horizon, layout.season)
    windows = _windows(series, first, len(values), window, layout)
    features = [
        window_features(
            one.target[: first + stop], min(stop - start, layout.horizon), layout.season
        )
        for start, stop in _bounds(windows, len(values))
    ]
    made = np.array(features)
    ranks = np.zeros(len(features)) if novelty is None else novelty.novelty(made)
    words = [""] * len(features) if novelty is None else novelty.words(made, "windows")
    broken = broken_mask(broken_runs(values, past, scan.median), len(values))
    of_window = np.repeat(ranks, [stop - start for start, stop in _bounds(windows, len(values))])
    causes = [
        _cause(scan, place, bool(broken[place]), float(novelty_there), p)
        for place, novelty_there in enumerate(of_window)
    ]
    learnt = one_series(own.series, number)
    past_windows = _windows(learnt, before.first, len(before.p), window, layout)
    return Judged(
        name=one.name,
        labels=series.labels(one, first, len(values)),
        values=values,
        scan=scan,
        causes=causes,
        windows=windows,
        scores=_scores(scan, windows),
        past_scores=_scores(before, past_windows),
        novelty=ranks,
        words=words,
    )


def _cause(scan: Scan, place: int, broken: bool, novelty: float, p: float) -> str:
    if broken:
        return "broken data"
    if not scan.p[place] < p:
        return ""
    if scan.epistemic[place] >= UNFAMILIAR_SHARE or novelty >= UNFAMILIAR_RANK:
        return "unfamiliar situation"
    return "unusual value"


def _windows(
    series: SeriesSet, first: int, count: int, kind: str, layout: Layout
) -> list[tuple[str, int]]:
    """Names and first values of the windows: horizons, days, or weeks from Monday on."""
    one = series.series[0]
    if kind == "horizon":
        starts = list(range(0, count, layout.horizon))
        return [(series.labels(one, first + start, 1)[0], start) for start in starts]
    if series.frequency is None:
        raise ConfigError(f"--window is {kind}, but these series have no dates; leave it out")
    days = series.frequency.stamps(one.start, first, count).astype("datetime64[D]")
    groups = days - (days.astype(np.int64) + 3) % 7 if kind == "week" else days
    changes = np.flatnonzero(np.r_[True, groups[1:] != groups[:-1]]).tolist()
    return [(str(groups[start]), start) for start in changes]


def _bounds(windows: list[tuple[str, int]], count: int) -> list[tuple[int, int]]:
    starts = [start for _, start in windows]
    return list(zip(starts, [*starts[1:], count], strict=True))


def _scores(scan: Scan, windows: list[tuple[str, int]]) -> Floats:
    parts = [scan.log_prob[a:b] for a, b in _bounds(windows, len(scan.log_prob))]
    known = [part[~np.isnan(part)] for part in parts]
    return np.array([part.mean() if len(part) else np.nan for part in known])
