"""The only writer of result tables, charts and pages. Reads run directories."""

from bayesrnn.report.charts import Series, line_chart
from bayesrnn.report.highlights import marked_html, marked_text
from bayesrnn.report.page import Section, comparison_page, curves
from bayesrnn.report.summaries import EpochPoint, RunSummary, read_summary
from bayesrnn.report.tables import Table, comparable_groups, comparison_table

__all__ = [
    "EpochPoint",
    "RunSummary",
    "Section",
    "Series",
    "Table",
    "comparable_groups",
    "comparison_page",
    "comparison_table",
    "curves",
    "line_chart",
    "marked_html",
    "marked_text",
    "read_summary",
]
