"""What is strange in new values: a table, CSV, JSON, sentences and a page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from bayesrnn.report.page import Section, document
from bayesrnn.report.table import Table
from bayesrnn.report.text import counted
from bayesrnn.runs.output import csv_text
from bayesrnn.tasks.forecast.fan import Band, fan_chart
from bayesrnn.tasks.forecast.layout import scale_text

if TYPE_CHECKING:
    from bayesrnn.tasks.forecast.anomalies import Judged

_SHOWN = 12


def anomaly_rows(found: Sequence[Judged]) -> Iterator[dict[str, Any]]:
    """One row for each new value."""
    for one in found:
        scan = one.scan
        columns = zip(
            one.labels,
            one.values,
            scan.median,
            scan.low,
            scan.high,
            scan.p,
            one.causes,
            strict=True,
        )
        for label, y, median, low, high, p, cause in columns:
            yield {
                "unique_id": one.name,
                "ds": label,
                "y": _or_none(y),
                "median": float(median),
                "lo-95": float(low),
                "hi-95": float(high),
                "p": _or_none(p),
                "cause": cause,
            }


def _or_none(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


def anomalies_csv(found: Sequence[Judged]) -> str:
    """The rows as CSV."""
    return csv_text(anomaly_rows(found))


def window_rows(one: Judged) -> list[dict[str, Any]]:
    """One row for each window: how many windows of the past were less strange."""
    past = one.past_scores[~np.isnan(one.past_scores)]
    return [
        {
            "window": name,
            "score": _or_none(score),
            "stranger_than": int((past > score).sum()) if np.isfinite(score) else None,
            "of": len(past),
            "novelty": float(novelty),
            "features": words,
        }
        for (name, _), score, novelty, words in zip(
            one.windows, one.scores, one.novelty, one.words, strict=True
        )
    ]


def anomalies_json(found: Sequence[Judged]) -> dict[str, Any]:
    """Everything as values."""
    return {
        "sentences": anomaly_sentences(found),
        "values": list(anomaly_rows(found)),
        "windows": {one.name: window_rows(one) for one in found},
    }


def anomaly_sentences(found: Sequence[Judged]) -> list[str]:
    """How strange it is, in plain words."""
    sentences = []
    for one in found:
        rows = [row for row in window_rows(one) if row["score"] is not None]
        flagged = sum(bool(cause) for cause in one.causes)
        said = f"{one.name}: {counted(flagged, 'value')} of {len(one.values):,} flagged"
        if rows:
            worst = min(rows, key=lambda row: float(row["score"]))
            said += (
                f"; the strangest window begins {worst['window']}: stranger than "
                f"{worst['stranger_than']} of {worst['of']} windows before"
            )
            if worst["novelty"] >= 0.95:
                said += f" ({worst['features']})"
        sentences.append(said + ".")
    return sentences


def flagged_table(found: Sequence[Judged], most: int = _SHOWN) -> Table:
    """The flagged values, the least probable first."""
    flagged = [row for row in anomaly_rows(found) if row["cause"]]
    flagged.sort(key=lambda row: row["p"] if row["p"] is not None else -1.0)
    rows = [
        [
            row["unique_id"],
            row["ds"],
            "-" if row["y"] is None else scale_text(row["y"]),
            scale_text(row["median"]),
            f"{scale_text(row['lo-95'])} to {scale_text(row['hi-95'])}",
            "-" if row["p"] is None else f"{row['p']:.1e}",
            row["cause"],
        ]
        for row in flagged[:most]
    ]
    header = ["series", "date", "value", "median", "95% between", "p", "cause"]
    more = len(flagged) - most
    notes = [f"{more:,} more are in anomalies.csv"] if more > 0 else []
    return Table(header, rows, left=("series", "date", "cause"), notes=notes)


def windows_table(one: Judged, most: int = _SHOWN) -> Table:
    """The strangest windows of a series."""
    found = [row for row in window_rows(one) if row["score"] is not None]
    found.sort(key=lambda row: float(row["score"]))
    rows = [
        [
            row["window"],
            f"{row['score']:.2f}",
            f"{row['stranger_than']} of {row['of']}",
            f"{row['novelty']:.2f}",
            row["features"],
        ]
        for row in found[:most]
    ]
    header = ["window from", "mean log-density", "stranger than", "novelty", "most unusual"]
    return Table(header, rows, left=("window from", "most unusual"))


def anomalies_text(found: Sequence[Judged]) -> str:
    """For a terminal."""
    table = flagged_table(found)
    shown = [table.text()] if table.rows else []
    return "\n".join([*shown, *anomaly_sentences(found)])


def anomalies_page(found: Sequence[Judged], run: str) -> str:
    """One page that needs no other file."""
    sections = [Section("In words", anomaly_sentences(found))]
    for one in found[:_SHOWN]:
        band = Band("95%", "outer", one.scan.low, one.scan.high)
        picture = fan_chart(
            one.name, np.zeros(0), one.scan.median, [band], one.labels, truth=one.values
        )
        tables = windows_table(one).html(), flagged_table([one], 100).html()
        sections.append(Section(one.name, picture, *tables))
    return document(f"What is strange, by {run}", sections)
