"""The figures of the benchmark on a page."""

from collections.abc import Mapping
from typing import Any

import torch

from bayesrnn.report.axes import step_axis
from bayesrnn.report.chart import Chart, Series, line_chart
from bayesrnn.report.page import Section, document
from bayesrnn.report.table import Table

#: What stands beside the methods in the result of `bench`.
MORE = ("growth", "programs")


def bench_page(result: Mapping[str, Any], steps: int) -> str:
    """A page with all that was measured."""
    methods = {name: row for name, row in result.items() if name not in MORE}
    sections = [Section("Training at medium size", _training(methods, steps))]
    for axis, kinds in result.get("growth", {}).items():
        charts = [_growth_chart(axis, kinds, *what) for what in _SHOWN]
        exponents = [
            f"{kind} grows like {axis}^{found['exponent_of_seconds']:.2f} in time, "
            f"{axis}^{found['exponent_of_megabytes']:.2f} in memory"
            for kind, found in kinds.items()
        ]
        sections.append(Section(f"Growth with {axis}, at small size", exponents, *charts))
    for title, rows in result.get("programs", {}).items():
        sections.append(Section(title.capitalize(), _programs(rows)))
    return document("Benchmark", sections)


_SHOWN = (("seconds", "seconds"), ("megabytes", "peak megabytes"))


def _training(methods: Mapping[str, Mapping[str, float]], steps: int) -> Table:
    rows = [
        [
            name,
            f"{row['ratio']:.2f}x",
            f"{row['memory_ratio']:.2f}x",
            f"{row['seconds']:.3f}",
            f"{row['megabytes']:.0f}",
        ]
        for name, row in methods.items()
    ]
    note = (
        f"{torch.get_num_threads()} threads, median of {steps} interleaved steps; ratios are to "
        "plain training on the same machine in the same run."
    )
    return Table(("method", "speed", "memory", "s/step", "MB"), rows, ("method",), (note,))


def _growth_chart(axis: str, kinds: Mapping[str, Any], key: str, label: str) -> Chart:
    series = [
        Series(kind, list(zip(found["values"], found[key], strict=True)))
        for kind, found in kinds.items()
    ]
    return line_chart(series, f"{label} by {axis}".capitalize(), axis, label, x=step_axis)


def _programs(rows: Mapping[str, Mapping[str, Any]]) -> Table:
    cells = [
        [
            name,
            f"{row['seconds']:.4f}",
            f"{row['per_second']:,.0f} {row.get('unit', 'words')}" if "per_second" in row else "",
            f"{row['ratio']:.2f}x" if "ratio" in row else "",
        ]
        for name, row in rows.items()
    ]
    return Table(("what", "seconds", "in a second", "to the mean"), cells, ("what",))
