"""The only writer of result tables, charts and pages. Reads run directories."""

from bayesrnn.report.caption_comparison import COMPARED, CaptionLine, caption_table
from bayesrnn.report.caption_uncertainty import (
    caption_uncertainty_tables,
    caption_uncertainty_text,
)
from bayesrnn.report.caption_uncertainty_page import caption_uncertainty_page
from bayesrnn.report.captions import (
    CaptionedImage,
    CaptionedWord,
    Captioning,
    DrawnCaption,
    RankedCaption,
    captions_text,
)
from bayesrnn.report.captions_page import captions_page
from bayesrnn.report.charts import Reference, Series, line_chart
from bayesrnn.report.document import Section, document
from bayesrnn.report.heat import wants_colour
from bayesrnn.report.highlights import marked_html, marked_text
from bayesrnn.report.inspection import (
    InspectedText,
    InspectedWord,
    NextWord,
    inspection_page,
    inspection_text,
)
from bayesrnn.report.page import comparison_page, curves
from bayesrnn.report.predictions import predicted_labels_table, predicted_numbers_table
from bayesrnn.report.pruning import (
    Curve,
    KeptQuality,
    Measured,
    PrunedFile,
    PrunedRun,
    pruning_page,
    pruning_text,
)
from bayesrnn.report.reproduction import (
    GapLevel,
    PruningFigures,
    ReproducedRun,
    Reproduction,
    Speed,
    epoch_values,
    reproduction_values,
    with_kept_figures,
)
from bayesrnn.report.reproduction_charts import reproduction_charts
from bayesrnn.report.reproduction_page import reproduction_markdown, reproduction_page
from bayesrnn.report.reproduction_tables import results_table
from bayesrnn.report.summaries import EpochPoint, RunSummary, read_summary
from bayesrnn.report.tables import Table, comparable_groups, comparison_table, distinct_names
from bayesrnn.report.uncertainty import uncertainty_tables, uncertainty_text
from bayesrnn.report.uncertainty_page import uncertainty_page

__all__ = [
    "COMPARED",
    "CaptionLine",
    "CaptionedImage",
    "CaptionedWord",
    "Captioning",
    "Curve",
    "DrawnCaption",
    "EpochPoint",
    "GapLevel",
    "InspectedText",
    "InspectedWord",
    "KeptQuality",
    "Measured",
    "NextWord",
    "PrunedFile",
    "PrunedRun",
    "PruningFigures",
    "RankedCaption",
    "Reference",
    "ReproducedRun",
    "Reproduction",
    "RunSummary",
    "Section",
    "Series",
    "Speed",
    "Table",
    "caption_table",
    "caption_uncertainty_page",
    "caption_uncertainty_tables",
    "caption_uncertainty_text",
    "captions_page",
    "captions_text",
    "comparable_groups",
    "comparison_page",
    "comparison_table",
    "curves",
    "distinct_names",
    "document",
    "epoch_values",
    "inspection_page",
    "inspection_text",
    "line_chart",
    "marked_html",
    "marked_text",
    "predicted_labels_table",
    "predicted_numbers_table",
    "pruning_page",
    "pruning_text",
    "read_summary",
    "reproduction_charts",
    "reproduction_markdown",
    "reproduction_page",
    "reproduction_values",
    "results_table",
    "uncertainty_page",
    "uncertainty_tables",
    "uncertainty_text",
    "wants_colour",
    "with_kept_figures",
]
