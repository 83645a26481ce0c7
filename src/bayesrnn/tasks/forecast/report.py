"""Forecasts as a table, a CSV file, JSON, sentences and a page."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from bayesrnn.data.series import Floats
from bayesrnn.report.chart import Chart
from bayesrnn.report.page import Section, document, notes
from bayesrnn.report.table import Table
from bayesrnn.report.text import counted, number_text
from bayesrnn.runs.output import csv_text
from bayesrnn.tasks.forecast.backtest import Backtest, Tested
from bayesrnn.tasks.forecast.fan import Band, fan_chart
from bayesrnn.tasks.forecast.future import Future
from bayesrnn.tasks.forecast.layout import scale_text
from bayesrnn.tasks.forecast.scores import LEVELS, Scores
from bayesrnn.tasks.forecast.unlike import UNFAMILIAR_RANK

#: Seasons of history in a picture, and the fewest and the most values of it.
_SEASONS, _SHORTEST, _LONGEST = 6, 42, 600
#: Series that the terminal and the page show; the files have all.
_SHOWN: Final = 6
_SHOWN_STEPS: Final = 14
#: Steps of test windows that the page shows, at most, but for a window that is longer.
_TESTED_STEPS: Final = 150


@dataclass(frozen=True)
class Outlook:
    """Forecasts, and what is known of how good such forecasts are.

    unit: what the values are, if that is known. tested: on the test windows of the run.
    total_by: whether totals of days or weeks are shown.
    """

    run: str
    unit: str
    season: int
    levels: tuple[int, ...]
    future: Future
    tested: Backtest | None
    total_by: str | None = None


def outlook_rows(outlook: Outlook) -> Iterator[dict[str, Any]]:
    """One row for each series and step, with the columns of forecast.csv."""
    future = outlook.future
    median, mean = future.median, future.mean
    bounds = {level: future.interval(level) for level in outlook.levels}
    for number, one in enumerate(future.series.series):
        for step, label in enumerate(future.labels(number)):
            at = (number, step)
            row: dict[str, Any] = {
                "unique_id": one.name,
                "ds": label,
                "mean": float(mean[at]),
                "median": float(median[at]),
            }
            for level, (low, high) in bounds.items():
                row |= {f"lo-{level}": float(low[at]), f"hi-{level}": float(high[at])}
            share = future.epistemic_share
            row["epistemic_share"] = None if share is None else float(share[at])
            unlike = future.novelty[number][0]
            row["novelty"] = unlike if math.isfinite(unlike) else None
            yield row


def outlook_csv(outlook: Outlook) -> str:
    """The rows as CSV; numbers with all the digits that mean something."""
    return csv_text(outlook_rows(outlook))


def paths_csv(outlook: Outlook) -> str:
    """All paths: one row for each value."""
    future = outlook.future

    def rows() -> Iterator[dict[str, Any]]:
        for number, one in enumerate(future.series.series):
            labels = future.labels(number)
            for path, values in enumerate([] if future.paths is None else future.paths[number]):
                for label, value in zip(labels, values.tolist(), strict=True):
                    yield {"unique_id": one.name, "path": path + 1, "ds": label, "y": value}

    return csv_text(rows())


def outlook_json(outlook: Outlook) -> dict[str, Any]:
    """Everything as values."""
    tested, future = outlook.tested, outlook.future
    found: dict[str, Any] = {
        "run": outlook.run,
        "horizon": future.horizon,
        "season": outlook.season,
        "calibrated": future.widening is not None,
        "sentences": outlook_sentences(outlook),
        "forecasts": list(outlook_rows(outlook)),
    }
    if outlook.total_by is not None:
        names = [one.name for one in future.series.series]
        found["totals"] = {
            name: future.totals(number, outlook.total_by, outlook.levels)
            for number, name in enumerate(names)
        }
    if tested is not None:
        scored = {
            "network": tested.network,
            "calibrated": tested.calibrated,
            "seasonal_naive": tested.seasonal,
            "last_value": tested.last,
        }
        found["backtest"] = {n: of.as_json() for n, of in scored.items() if of is not None}
    return found


def outlook_sentences(outlook: Outlook) -> list[str]:
    """What the forecasts say, and how far they are to be believed, in plain words."""
    future, tested = outlook.future, outlook.tested
    level = outlook.levels[0]
    sentences = []
    if len(future.series.series) == 1:
        low, high = (ends[0, -1] for ends in future.interval(level))
        unit = f" {outlook.unit}" if outlook.unit else ""
        sentences.append(
            f"{counted(future.horizon, 'step')} ahead, {future.labels(0)[-1]}: "
            f"{scale_text(float(future.median[0, -1]))}{unit}, {level}% between "
            f"{scale_text(float(low))} and {scale_text(float(high))}."
        )
    if future.epistemic_share is not None:
        share = float(future.epistemic_share.mean())
        sentences.append(f"{share:.0%} of the doubt is about the model and would shrink with data.")
    sentences += _unlike(future)
    if tested is None:
        return sentences
    used = tested.calibrated if future.widening is not None else tested.network
    # A forecast without paths is seasonal naive's.
    own = tested.seasonal if future.paths is None else used or tested.network
    held = own.coverage.get(str(level))
    windows = counted(own.windows, "test window")
    if held is not None:
        sentences.append(f"In {windows} such intervals held {held:.0%} of the values.")
    sentences.append(_against_naive(tested))
    return sentences


def _unlike(future: Future) -> list[str]:
    """Which series do not look like their past, so that no backtest speaks of them."""
    strange = [
        f"{one.name} ({words})"
        for one, (novelty, words) in zip(future.series.series, future.novelty, strict=True)
        if novelty >= UNFAMILIAR_RANK
    ]
    if not strange:
        return []
    more = f" and {len(strange) - 3:,} more series" if len(strange) > 3 else ""
    return [f"The last values are unlike the past, trust less: {', '.join(strange[:3])}{more}."]


def _against_naive(tested: Backtest) -> str:
    own, naive = tested.network, tested.seasonal
    own_wql, naive_wql = number_text(own.wql, 4), number_text(naive.wql, 4)
    if not own.wql < naive.wql:
        return (
            f"Not better than seasonal naive on this file: use that (WQL {own_wql} against "
            f"{naive_wql}; --method seasonal-naive writes the same files)."
        )
    scored = f"its WQL is {own_wql} against {naive_wql}"
    if not math.isfinite(own.mase):  # of series that repeat themselves exactly in the past
        return f"It is better than seasonal naive: {scored}."
    less = 1 - own.mase / naive.mase
    errs = f"errs {abs(less):.0%} {'less' if less > 0 else 'more'} than repeating the last season"
    return f"It {errs} ({_chance(own, naive)}), and {scored}."


def _chance(own: Scores, naive: Scores) -> str:
    """Whether the difference of MASE between windows may be chance, by a paired t statistic."""
    gains = naive.mase_by_window - own.mase_by_window
    gains = gains[~np.isnan(gains)]
    if len(gains) < 3 or not gains.std():
        return "too few windows to tell whether by chance"
    p = math.erfc(abs(gains.mean()) / (gains.std(ddof=1) / math.sqrt(len(gains))) / math.sqrt(2))
    if p >= 0.05:
        return f"which may be chance: p = {p:.2f}"
    return f"real: p {'< 0.01' if p < 0.01 else f'= {p:.2f}'}"


def outlook_table(outlook: Outlook, number: int, steps: int | None = None) -> Table:
    """The forecasts of one series."""
    rows = list(outlook_rows(_only(outlook, number)))[:steps]
    header = ["date", "median"]
    header += [f"{end} {level}%" for level in outlook.levels for end in ("low", "high")]
    has_share = outlook.future.epistemic_share is not None
    header += ["model's share"] if has_share else []
    made = []
    for row in rows:
        cells = [str(row["ds"]), scale_text(row["median"])]
        cells += [
            scale_text(row[f"{end}-{level}"]) for level in outlook.levels for end in ("lo", "hi")
        ]
        cells += [f"{row['epistemic_share']:.0%}"] if has_share else []
        made.append(cells)
    return Table(header, made, left=("date",))


def _only(outlook: Outlook, number: int) -> Outlook:
    """The same of one series."""
    return Outlook(**{**vars(outlook), "future": outlook.future.only(number)})


def totals_table(outlook: Outlook, number: int) -> Table:
    """Totals of days or weeks of one series."""
    by = str(outlook.total_by)
    found = outlook.future.totals(number, by, outlook.levels)
    header = [by, "values", "median"]
    header += [f"{end} {level}%" for level in outlook.levels for end in ("low", "high")]
    rows = []
    for row in found:
        numbers = [row["median"]]
        numbers += [row[f"{end}-{level}"] for level in outlook.levels for end in ("lo", "hi")]
        rows.append([str(row[by]), str(row["values"]), *map(scale_text, map(_float, numbers))])
    return Table(header, rows, left=(by,))


def _float(value: object) -> float:
    assert isinstance(value, float)
    return value


def outlook_text(outlook: Outlook) -> str:
    """For a terminal: the first series, totals, and the sentences."""
    names = [one.name for one in outlook.future.series.series]
    parts = []
    for number, name in enumerate(names[:1]):
        steps = outlook.future.horizon
        shown = steps if steps <= 2 * _SHOWN_STEPS else _SHOWN_STEPS
        parts.append(f"{name}:\n{outlook_table(outlook, number, shown).text()}")
        if shown < steps:
            parts.append(f"({steps - shown} further steps are in the files)")
        if outlook.total_by is not None:
            parts.append(totals_table(outlook, number).text())
    if len(names) > 1:
        parts.append(f"({counted(len(names) - 1, 'further series')[:-1]} are in the files)")
    return "\n".join([*parts, *outlook_sentences(outlook)])


def outlook_page(outlook: Outlook) -> str:
    """One page that needs no other file."""
    future, tested = outlook.future, outlook.tested
    sections = [Section("In words", outlook_sentences(outlook))]
    for number, one in enumerate(future.series.series[:_SHOWN]):
        parts: list[Any] = [outlook_chart(outlook, number)]
        if outlook.total_by is not None:
            parts.append(totals_table(outlook, number).html())
        parts.append(outlook_table(outlook, number).html())
        sections.append(Section(one.name, *parts))
    more = len(future.series.series) - _SHOWN
    if more > 0:
        sections.append(Section("Further series", f"{more:,} more are in forecast.csv."))
    if tested is not None:
        said = (
            "Each window of the test part is forecast from what lies before it, without training "
            "anew. MASE: mean absolute error in units of seasonal naive's on the past. WQL, CRPS "
            "and MSIS score the whole distribution; less is better for all."
        )
        table = backtest_table(tested, outlook.season).html()
        picture = backtest_chart(tested.windows)
        sections.append(Section("Backtest", picture, table, notes([said])))
    if future.series.description:
        sections.append(Section("Data", future.series.description))
    return document(f"Forecast by {outlook.run}", sections)


def shown_history(outlook: Outlook, number: int) -> tuple[Floats, int]:
    """The values of a series that a picture has before the forecast, and the place of the first."""
    target = outlook.future.series.series[number].target
    length = min(max(_SEASONS * outlook.season, outlook.future.horizon, _SHORTEST), _LONGEST)
    first = max(0, len(target) - length)
    return target[first:], first


def outlook_chart(outlook: Outlook, number: int) -> Chart:
    """One series as an SVG picture: what lies before, the median, and the bands."""
    future = outlook.future
    one = future.series.series[number]
    history, first = shown_history(outlook, number)
    labels = future.series.labels(one, first, len(history) + future.horizon)
    wide = sorted(outlook.levels, reverse=True)[:2]
    bands = [
        Band(f"{level}%", kind, *(ends[number] for ends in future.interval(level)))
        for level, kind in zip(wide, ("outer", "inner"), strict=False)
    ]
    ignorance = future.ignorance_band()
    if ignorance is not None:
        bands.append(Band("of it the model's", "ignorance", *(of[number] for of in ignorance)))
    return fan_chart(one.name, history, future.median[number], bands, labels)


def backtest_chart(tested: Tested) -> Chart:
    """The last test windows of the first series, one after the other, and what came."""
    known = tested.known
    number, horizon = int(known.places.series[0]), known.truths.values.shape[1]
    one, starts = known.series.series[number], known.places.starts.tolist()
    rows: list[int] = []
    for row in (known.places.series == number).nonzero().flatten().tolist()[::-1]:
        enough = (len(rows) + 1) * horizon > _TESTED_STEPS
        if rows and (enough or starts[rows[0]] - starts[row] != horizon):
            break
        rows.insert(0, row)
    bounds = tested.bounds or {level: tested.forecasts.interval(level) for level in LEVELS}
    bands = [
        Band(f"{level}%", kind, *(ends[rows].ravel() for ends in bounds[level]))
        for level, kind in zip(sorted(bounds, reverse=True), ("outer", "inner"), strict=True)
    ]
    return fan_chart(
        f"{one.name}: {counted(len(rows), 'test window')}, each forecast from its start",
        np.zeros(0),
        tested.forecasts.quantile(0.5)[rows].ravel(),
        bands,
        known.series.labels(one, starts[rows[0]], len(rows) * horizon),
        truth=known.truths.values[rows].ravel(),
    )


def backtest_table(tested: Backtest, season: int) -> Table:
    """The network, raw and calibrated, beside naive forecasts."""
    named = {
        "network, raw": tested.network,
        "network, calibrated": tested.calibrated,
        f"seasonal naive ({season})": tested.seasonal,
        "last value": tested.last,
    }
    header = ["forecast", "MASE", "WQL", "CRPS", "MSIS", "sMAPE", "80% holds", "95% holds"]
    rows = [
        [
            name,
            number_text(of.mase, 3),
            number_text(of.wql, 4),
            number_text(of.crps, 3),
            number_text(of.msis, 2),
            number_text(of.smape, 2),
            *(f"{of.coverage[level]:.0%}" for level in ("80", "95")),
        ]
        for name, of in named.items()
        if of is not None
    ]
    return Table(header, rows, left=("forecast",))
