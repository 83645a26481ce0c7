"""What was made up: run directories as training writes them, figures on their uncertainty."""

import json
import re
from collections.abc import Callable, Sequence
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from bayesrnn.runs.summary import RunSummary, read_summary
from bayesrnn.tasks import task_of
from bayesrnn.tasks.lm.uncertainty_results import (
    DrawLevel,
    RunUncertainty,
    ShiftMetrics,
    TextMetrics,
)
from bayesrnn.uncertainty.bootstrap import Interval
from bayesrnn.uncertainty.calibration import Reliability
from bayesrnn.uncertainty.detection import Detection
from bayesrnn.uncertainty.selective import RiskCoverage


def summary_of(run: Path) -> RunSummary:
    """A run in brief, of whichever task it is."""
    return read_summary(task_of(run), run)


MakeRun = Callable[..., Path]
MakeUncertainty = Callable[..., RunUncertainty]

EMPTY = {"meta", "rect", "path", "circle", "polyline", "img", "input", "br"}

BBB = 'prior = "mixture"\nprior_pi = 0.25\nprior_per = "row"\nkl_weight = 1.0\nantithetic = true\n'
OPTIONS = {"bbb": BBB, "dropout": "dropout = 0.5\n", "plain": ""}


@pytest.fixture
def make_run(tmp_path: Path) -> MakeRun:
    def make(
        name: str,
        method: str = "plain",
        valid: Sequence[float | None] = (900.0, 250.0, 200.0),
        corpus: str = "ptb",
        results: dict[str, dict[str, Any]] | None = None,
        **changes: Any,
    ) -> Path:
        run = tmp_path / name
        (run / "results").mkdir(parents=True)
        values: dict[str, Any] = {
            "method": method,
            "size": "tiny",
            "cell": "lstm",
            "hidden": 200,
            "layers": 1,
            "epochs": 8,
            "seed": 1,
            "lr": 1.0,
            **changes,
        }
        lines = [f"{key} = {json.dumps(value)}" for key, value in values.items()]
        lines = [
            f"corpus = [{json.dumps(corpus)}]",
            *lines,
            "",
            "[options]",
            OPTIONS.get(method, ""),
        ]
        (run / "config.toml").write_text("\n".join(lines))
        records: list[dict[str, Any]] = []
        for epoch, perplexity in enumerate(valid, start=1):
            for place, speed in enumerate((1000, 3000, 2000)):
                records.append(
                    {"kind": "train", "epoch": epoch, "step": place, "words_per_second": speed}
                )
            figures = {"train_perplexity": 600.0 / epoch, "valid_perplexity": perplexity}
            records.append({"kind": "epoch", "epoch": epoch, "step": 100 * epoch, **figures})
        (run / "metrics.jsonl").write_text("".join(json.dumps(r) + "\n" for r in records))
        for stem, result in (results or {}).items():
            kept = {"nll": 5.0, "tokens": 82429, "method": method, "corpus": corpus, **result}
            (run / "results" / f"{stem}.json").write_text(json.dumps(kept))
        return run

    return make


def reliability(error: float) -> Reliability:
    """Three bins, each that much less accurate than confident."""
    bins = (0.2, 0.5, 0.9)
    return Reliability(bins, tuple(sure - error for sure in bins), (600, 300, 100))


def detection(auroc: float) -> Detection:
    found = Interval(auroc, auroc - 0.02, auroc + 0.02)
    return Detection(found, Interval(auroc + 0.01, 0, 1), Interval(1.5 - auroc, 0, 1), 400)


def level(
    samples: int, gaps: dict[str, float], auroc: float, temperature: float = 1.0, **changes: Any
) -> DrawLevel:
    """Figures that all differ, and change a little with the draws and the temperature."""
    entropy = 4 + samples / 100 + (temperature - 1) / 2
    information = samples / 50 if samples > 1 else 0.0
    nll = entropy + 0.5

    def stream(more: float) -> TextMetrics:
        above = information + more / 10
        return TextMetrics(entropy + more, entropy + more - above, above, nll + more, 1000)

    values: dict[str, Any] = {
        "samples": samples,
        "temperature": temperature,
        "regular": stream(0.0),
        "error": 0.7321,
        "brier": 0.8123,
        "reliability": reliability(0.0301 / temperature),
        "reliability_equal_mass": reliability(0.0402 / temperature),
        "risk_coverage": RiskCoverage((0.25, 0.5, 1.0), (0.2, 0.4, 0.7321), 0.5151),
        "shifts": {
            name: ShiftMetrics(
                figures=stream(gap),
                gap=gap,
                by_entropy=detection(auroc),
                by_information=detection(auroc - 0.1) if samples > 1 else None,
                by_surprise=detection(auroc + 0.05),
                surprise=gap + 0.2,
            )
            for name, gap in gaps.items()
        },
    }
    return DrawLevel(**{**values, **changes})


@pytest.fixture
def make_uncertainty() -> MakeUncertainty:
    def make(
        name: str = "run",
        draws: Sequence[int] = (0, 1, 2, 5, 10, 20),
        gaps: dict[str, float] | None = None,
        auroc: float = 0.9,
        temperature: float = 1.25,
        changes: dict[str, Any] | None = None,
        **fields: Any,
    ) -> RunUncertainty:
        shifts = {"reversed": 0.4321, "random 20%": 0.8765} if gaps is None else gaps
        levels = tuple(level(samples, shifts, auroc, **(changes or {})) for samples in draws)
        ends = (*draws[:1], *draws[1:][-1:])
        smaller = {shift: gap / 2 for shift, gap in shifts.items()}
        values: dict[str, Any] = {
            "name": name,
            "path": f"runs/{name}",
            "method": "bbb",
            "corpus": "ptb",
            "vocabulary": "abc",
            "settings": "seed 1, 8 epochs, mixture prior per row",
            "split": "test",
            "step": 12345,
            "seed": 7,
            "window": 50,
            "streams": 1,
            "bootstrap": 1000,
            "temperature_words": 10_000,
            "unknown": {"reversed": 0.05},
            "unigram_entropy": 6.1234,
            "levels": levels,
            "scaled": tuple(level(n, smaller, auroc, temperature) for n in ends),
        }
        return RunUncertainty(**{**values, **fields})

    return make


class Page(HTMLParser):
    """Reads a page: its tags (which have to match), its attributes and its text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.text = ""
        self.open: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]
        if tag not in EMPTY:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def for_wide_screens(text: str) -> str:
    """A page without the second form of its charts, which narrow screens show."""
    return re.sub(r'<div class="on-narrow">.*?</svg>\s*</div>', "", text, flags=re.DOTALL)


@pytest.fixture
def read_page() -> Callable[[str], Page]:
    return lambda text: Page(for_wide_screens(text))
