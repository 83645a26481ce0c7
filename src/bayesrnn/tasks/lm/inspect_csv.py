"""What a run made of a text as rows: one for each word, or for each line."""

from collections.abc import Iterator
from typing import Any

from bayesrnn.report.table import Table
from bayesrnn.report.text import number_text, perplexity_text
from bayesrnn.runs.output import csv_text
from bayesrnn.tasks.lm.inspect_results import InspectedText


def words_csv(text: InspectedText) -> str:
    """A row for each word."""
    return csv_text(_word_rows(text))


def lines_csv(text: InspectedText) -> str:
    """A row for each line."""
    return csv_text(vars(line) for line in text.lines)


def lines_table(text: InspectedText, top: int) -> Table:
    """The least expected lines."""
    worst = sorted(text.lines, key=lambda line: -line.perplexity)[:top]
    header = ["line", "text", "words", "unknown", "perplexity", "entropy", "epistemic"]
    rows = [
        [
            str(line.line),
            line.text,
            str(line.words),
            str(line.unknown),
            perplexity_text(line.perplexity),
            number_text(line.entropy),
            number_text(line.epistemic),
        ]
        for line in worst
    ]
    note = "entropy and epistemic: means over the line, in nats"
    return Table(header, rows, ("text",), [note])


def _word_rows(text: InspectedText) -> Iterator[dict[str, Any]]:
    lines = (number for line in text.lines for number in [line.line] * line.words)
    for number, word in enumerate(text.words, start=1):
        line = {"line": next(lines)} if text.lines else {}
        yield {"place": number, **line, **vars(word)}
