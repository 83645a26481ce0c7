"""What pruning costs a run and what it leaves, for a terminal and as a page."""

import base64
import math
import struct
import textwrap
import zlib
from collections.abc import Mapping

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray
from torch import Tensor

from bayesrnn.compression.patterns import Pattern
from bayesrnn.report.axes import share_axis, value_axis
from bayesrnn.report.chart import Reference, Series, line_chart
from bayesrnn.report.page import Section, document, entries, render
from bayesrnn.report.table import Table, titled_text
from bayesrnn.report.text import counted, number_text, perplexity_text, printable
from bayesrnn.runs.pruning.results import KeptQuality, Measured, PrunedFile, PrunedRun

#: The largest picture of a matrix, the narrowest, and the most points of a line over its rows.
_WIDTH, _HEIGHT = 400, 300
_NARROWEST = 120
_POINTS = 100

_ORDERS = {
    "signal-to-noise": "|mean| / sigma of the posterior, lowest first",
    "magnitude": "|weight|, smallest first",
    "random": "weights by chance, what any other order has to beat",
}
_VANISHED = (
    "rows and columns gone: those without a single weight left. Rows are words in an embedding and "
    "in an output matrix over words, else units, in a recurrent one of a gate; columns are the "
    "units of the vector that a word has, or that is read"
)
_UNITS = (
    "units left: those to which a path of weights leads from an input or a bias, and from which "
    "one leads to an output. The others do nothing, and are cut out of a file that is written, and "
    "of the network that predicts from it"
)
_PICTURES = (
    "One picture for each matrix: dark where weights were kept, white where they were dropped. "
    "Below it the share that each row lost; at 1 the row is gone. In the recurrent matrices of an "
    "LSTM the rows are, in four equal blocks, those of input gate, forget gate, cell and output "
    "gate."
)


def pruning_text(run: PrunedRun, width: int = 100) -> str:
    """The tables for a terminal."""
    said = [f"{textwrap.fill(printable(line), width)}\n" for line in _said(run)]
    tables = [(_cost_title(run), _costs(run)), (_shown_title(run), _matrices(run))]
    tables += [("Units that are left", _units(run))] if run.units else []
    return "\n".join([*said, titled_text(tables, width)]).rstrip("\n")


def pruning_page(run: PrunedRun, kept: Mapping[str, Tensor]) -> str:
    """One HTML file: the curve, the tables, and a picture of each matrix from its mask."""
    pictures = [_picture(pattern, kept[pattern.name]) for pattern in run.patterns]
    shown = render("runs/pruning/pictures.html.j2", pictures=pictures)
    streams = "" if run.streams is None else f" in {counted(run.streams, 'stream')}"
    origin = (
        f"{run.path} at step {run.step:,}; {run.place}{streams}; seed {run.seed} of the random "
        "order"
    )
    sections = [
        Section(_cost_title(run), *_said(run), _chart(run), _costs(run)),
        Section(_shown_title(run), _matrices(run)),
        *([Section("Units that are left", _units(run))] if run.units else []),
        Section("The pattern of each matrix", _PICTURES, shown),
        Section("Settings", entries([("", f"{run.data}, {run.method}, {run.settings}", origin)])),
    ]
    return document(f"Pruning {run.name}", sections)


def _said(run: PrunedRun) -> list[str]:
    """The paragraphs before the tables."""
    quality = [_quality(run, run.quality)] if run.quality else []
    return [_summary(run), *quality, *([_file(run, run.file)] if run.file else [])]


def _file(run: PrunedRun, file: PrunedFile) -> str:
    size, growth = file.size, file.written.nll - file.masked.nll
    return (
        f"{file.path}: {size.total:,} bytes with {_percent(file.masked.dropped / run.weights, 3)} "
        f"dropped, {size.ratio:.3f}x the {size.dense:,} of all weights in float32; "
        f"{size.index_share:.1%} of it tells where the weights belong; {run.title} "
        f"{_value(run, file.written)} with its {file.values} values, {_value(run, file.masked)} "
        f"before ({_grown(run, growth, 2)}){_tuned(file)}"
    )


def _tuned(file: PrunedFile) -> str:
    """What fine-tuning did."""
    if not file.tuned:
        return ""
    passed = ", ".join(perplexity_text(point.perplexity) for point in file.tuned)
    return f"; fine-tuned, perplexity before and after each epoch: {passed}, and the best is kept"


def _summary(run: PrunedRun) -> str:
    return (
        f"{run.name} ({run.method}): {run.weights:,} weights that can be dropped, and {run.fixed:,}"
        f" that stay; {run.title} {_value(run, run.full)} on the {run.place} with all of them"
    )


def _quality(run: PrunedRun, kept: KeptQuality) -> str:
    within = "" if _is_text(run) else " in the probability of what is true (the geometric mean)"
    return (
        f"largest fraction within {_percent(kept.quality)} of the full network{within}: "
        f"{kept.found.dropped / run.weights:.1%} ({kept.found.dropped:,} weights, by {kept.order})"
        f", {run.title} {_value(run, kept.found)}; found to 0.1% of the weights"
    )


def _cost_title(run: PrunedRun) -> str:
    return f"{run.title[:1].upper()}{run.title[1:]} of the mean network on the {run.place}"


def _costs(run: PrunedRun) -> Table:
    """A row for each fraction, a column for each order."""
    first, full = run.curves[0], run.full
    header = ["dropped", "weights left", *(curve.order for curve in run.curves), "growth"]
    rows = [
        [
            _percent(points[0].fraction),
            f"{run.weights - points[0].dropped:,}",
            *(_value(run, point) for point in points),
            _grown(run, points[0].nll - full.nll),
        ]
        for points in zip(*(curve.points for curve in run.curves), strict=True)
    ]
    orders = (f"{c.order}: {_ORDERS[c.order]}" for c in run.curves if c.order in _ORDERS)
    place = " and ".join(run.only) if run.only else "the whole network"
    each = "layer" if run.whole_units else "tensor"
    ranked = f"in each {each} of {place} by itself" if run.per_tensor else f"over {place}"
    grown = "of the perplexity" if _is_text(run) else "of the negative log-likelihood, in nats,"
    notes = [
        f"dropped: set to zero, ranked {ranked}; {'; '.join(orders)}",
        f"growth: {grown} by {first.order}, from the full network",
    ]
    if run.whole_units:
        share = "the units of each layer" if run.per_tensor else "the weights, or less"
        notes.append(
            f"whole units are dropped, each with all of its weights, by the root mean square over "
            f"them; shares are of {share}; weights left: by {first.order}"
        )
    return Table(header, rows, notes=notes)


def _shown_title(run: PrunedRun) -> str:
    share = run.shown_dropped / run.weights
    return f"What is left with {_percent(share, 3)} dropped by {run.shown_order}"


def _matrices(run: PrunedRun) -> Table:
    header = ["matrix", "shape", "dropped", "rows gone", "columns gone"]
    rows = [
        [
            pattern.name,
            f"{pattern.rows:,} x {pattern.columns:,}",
            f"{pattern.share:.1%}",
            f"{pattern.rows_gone:,}",
            f"{pattern.columns_gone:,}",
        ]
        for pattern in run.patterns
    ]
    notes = [_VANISHED]
    others = run.weights - sum(pattern.rows * pattern.columns for pattern in run.patterns)
    if others:
        gone = run.shown_dropped - sum(pattern.dropped for pattern in run.patterns)
        notes.append(f"of the {others:,} weights in vectors (biases), {gone:,} were dropped")
    return Table(header, rows, ("matrix",), notes)


def _units(run: PrunedRun) -> Table:
    header = ["layer", "units", "left"]
    rows = [[units.layer, f"{units.units:,}", f"{units.left:,}"] for units in run.units]
    return Table(header, rows, ("layer",), [_UNITS])


def _chart(run: PrunedRun) -> Markup:
    full = _number(run.full)
    references = [] if full is None else [Reference.level("full network", full)]
    return line_chart(
        [
            Series(curve.order, [(point.fraction, _number(point)) for point in curve.points])
            for curve in run.curves
        ],
        _cost_title(run),
        "share of the weights dropped",
        run.title,
        x=share_axis,
        y=value_axis,
        references=references,
        empty="no figures",
    )


def _picture(pattern: Pattern, kept: Tensor) -> dict[str, object]:
    """The matrix as a picture with its caption, and the share that each row lost."""
    shares = block_means(kept.cpu().numpy(), _HEIGHT, _WIDTH)
    height, width = shares.shape
    zoom = max(min(_WIDTH // width, _HEIGHT // height), 1)
    said = f"{pattern.rows:,} rows x {pattern.columns:,} columns, {pattern.share:.1%} dropped"
    if shares.size < pattern.rows * pattern.columns:
        down, across = _block(pattern.rows, _HEIGHT), _block(pattern.columns, _WIDTH)
        said += f"; each point is the mean of {down} x {across} weights"
    return {
        "name": pattern.name,
        "said": said,
        "png": base64.b64encode(grey_png(1 - shares)).decode(),
        "width": width * max(zoom, _NARROWEST // width),
        "height": height * zoom,
        "rows": _rows_chart(pattern),
    }


def _rows_chart(pattern: Pattern) -> Markup:
    """The share that each row lost; of many rows, means over a few at a time."""
    lost = np.array(pattern.dropped_per_row)[:, None] / pattern.columns
    means = block_means(lost, _POINTS, 1)[:, 0].tolist()
    block = _block(pattern.rows, _POINTS)
    said = "row" if block == 1 else f"row (means over {block} rows)"
    return line_chart(
        [Series("dropped", [(place * block, mean) for place, mean in enumerate(means)])],
        f"Share dropped by row: {pattern.name}",
        said,
        "share dropped",
        y=share_axis,
        height=240,
    )


def block_means(values: NDArray[np.generic], height: int, width: int) -> NDArray[np.float64]:
    """The matrix in at most `height` rows and `width` columns: the mean of each block of entries.

    All blocks are equally large but for the last ones of a row or column.
    """
    found = values.astype(np.float64)
    for axis, most in enumerate((height, width)):
        size = found.shape[axis]
        starts = np.arange(0, size, _block(size, most))
        sizes = np.diff(starts, append=size)
        found = np.add.reduceat(found, starts, axis=axis) / np.expand_dims(sizes, 1 - axis)
    return found


def _block(size: int, most: int) -> int:
    """How long a block is if there may be at most `most`."""
    return -(-size // most)


def grey_png(brightness: NDArray[np.float64]) -> bytes:
    """A picture of a matrix of numbers from 0 (black) to 1 (white), as the bytes of a PNG file."""
    height, width = brightness.shape
    pixels = np.rint(brightness * 255).astype(np.uint8)
    lines = np.pad(pixels, ((0, 0), (1, 0))).tobytes()  # each line begins with its filter, 0

    def chunk(kind: bytes, data: bytes) -> bytes:
        checksum = zlib.crc32(kind + data)
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", checksum)

    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)  # 8 bits of grey
    parts = [(b"IHDR", header), (b"IDAT", zlib.compress(lines, 9)), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunk(*part) for part in parts)


def _is_text(run: PrunedRun) -> bool:
    """Whether words are predicted, whose metric is the perplexity."""
    return run.full.value is None


def _number(point: Measured) -> float | None:
    """The task's metric."""
    return point.perplexity if point.value is None else point.value


def _value(run: PrunedRun, point: Measured) -> str:
    """The task's metric as text."""
    if _is_text(run):
        return perplexity_text(point.perplexity)
    return number_text(point.value, run.digits)


def _grown(run: PrunedRun, nats: float, digits: int = 1) -> str:
    """How much worse a network is than the full one: in perplexity, else in nats."""
    return _growth(nats, digits) if _is_text(run) else f"{nats:+.4f}"


def _percent(share: float, digits: int = 6) -> str:
    return f"{float(f'{100 * share:.{digits}g}'):.10g}%"


def _growth(nats: float, digits: int = 1) -> str:
    """How much a perplexity grew, from the difference of the log-likelihoods."""
    grown = round(math.expm1(min(nats, 700)), digits + 2) + 0.0
    return f"{grown:+.{digits}%}" if grown < 10 else f"x {perplexity_text(grown + 1)}"
