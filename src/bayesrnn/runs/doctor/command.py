"""`bayesrnn doctor`: its options, and where what it finds goes."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bayesrnn.options import option
from bayesrnn.runs.arguments import DataOptions, JsonOptions, RunOptions, html_option, seed_option
from bayesrnn.runs.doctor.examine import examine
from bayesrnn.runs.doctor.report import doctor_json, doctor_page, doctor_text
from bayesrnn.runs.evaluation import DEFAULT_SAMPLES
from bayesrnn.runs.output import columns, require_outputs, write_json, write_text
from bayesrnn.runs.task import Task


@dataclass(frozen=True, kw_only=True)
class DoctorOptions(RunOptions, DataOptions, JsonOptions):
    """Which run, and where to write what is found."""

    samples: int = option(
        DEFAULT_SAMPLES,
        "draws that are averaged and compared with the mean weights on validation data",
        ge=0,
        zero="no draws",
    )
    seed: int = seed_option()
    html: Path | None = html_option("all figures, findings and histograms")


def doctor(task: Task[Any, Any], options: DoctorOptions) -> str:
    """Examine a run; returns the text, and writes the page and JSON that are asked for."""
    require_outputs(options.html, options.json)
    found = examine(
        task,
        options.run,
        options.checkpoint,
        options.device,
        options.samples,
        options.seed,
        options,
    )
    if options.html is not None:
        write_text(doctor_page(found), options.html)
    if options.json is not None:
        write_json(doctor_json(found), options.json)
    return doctor_text(found, columns())
