"""The rows of an evaluation: one for each way of prediction, and how they read."""

import textwrap
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from bayesrnn.methods.base import Bounded
from bayesrnn.runs.task import TrainedRun
from bayesrnn.tasks.captions.rows import caption_notes, score_lines
from bayesrnn.tasks.sentiment.rows import reader_figures, reference_lines
from bayesrnn.uncertainty.draws import networks_to_read
from bayesrnn.uncertainty.likelihood import Likelihood

#: Draws to average over where an evaluation shows their average unasked.
DEFAULT_SAMPLES = 10

#: Columns that scores and notes are wrapped to.
_WIDTH = 100

#: Figures by name, with how they came about: `inference` is a short word for it, also the name of
#: the result's file; `label` says it in words.
Row = dict[str, Any]

BOUND_NOTE = (
    "the bound is an upper bound on what the mean weights with noise sigma0 would reach; its "
    "networks have seen the targets of the minibatch that they score, and the KL pays for it"
)


def inference_rows(
    trained: TrainedRun[Any],
    samples: int,
    averaged: Callable[[int], Row],
    bounded: Callable[[Bounded], Row],
) -> list[Row]:
    """The mean weights or an average over draws; all there is for a method that gives a bound.

    `averaged` gives the figures of the mean weights (0) or averaged over so many draws. Where a
    method keeps several networks, one of them is not what it is about: all are averaged as well.
    """
    method = trained.method
    if not isinstance(method, Bounded):
        members = method.members(trained.net)
        wanted = [samples] if samples or members == 1 else [0, members]
        return [_averaged_row(trained, draws, averaged) for draws in wanted]
    draws = samples or DEFAULT_SAMPLES
    label = "sharpened bound, NLL + KL"
    return [
        _averaged_row(trained, 0, averaged, "phi "),
        _averaged_row(trained, draws, averaged, "phi "),
        {"inference": "bound", "label": label, "samples": 0, **bounded(method)},
    ]


def _averaged_row(
    trained: TrainedRun[Any], samples: int, averaged: Callable[[int], Row], name: str = ""
) -> Row:
    method = trained.method
    if samples:
        networks = networks_to_read(method, trained.net, samples)
        noun = "draw" if method.draws_differ else "network"
        counted = f"{networks} {noun}{'s' * (networks > 1)}"
        label, inference = f"{name}averaged over {counted}", f"samples{samples}"
    else:
        label, inference = f"{name}mean" if name else method.mean_label, "mean"
    return {"inference": inference, "label": label, "samples": samples, **averaged(samples)}


def likelihood_figures(found: Likelihood) -> Row:
    """The likelihood of a text as figures of a row."""
    return {"perplexity": found.perplexity, **asdict(found)}


def about(trained: TrainedRun[Any], split: str, seed: int) -> Row:
    """What has to be said with every row."""
    config = trained.config
    return {
        "task": config.task,
        "method": config.method,
        "split": split,
        "step": trained.step,
        "seed": seed,
    }


def describe(result: Row) -> str:
    """An evaluation as lines of text."""
    data = next(result[key] for key in ("corpus", "images", "data") if key in result)
    rows = result["rows"]
    figures = [_figures(row) for row in rows]
    width = max(len(row["label"]) for row, own in zip(rows, figures, strict=True) if own)
    lines = []
    for row, own in zip(rows, figures, strict=True):
        lines.append(f"{row['label']:{width}}  {own}" if own else row["label"])
        lines += [_wrapped(scores, "  ") for scores in score_lines(row)]
    bound = any(row["inference"] == "bound" for row in rows)
    notes = [*([BOUND_NOTE] if bound else []), *reference_lines(result), *caption_notes(result)]
    return "\n".join(
        [f"{data} {result['split']}, {result['method']}:", *lines, *map(_wrapped, notes)]
    )


def _wrapped(text: str, indent: str = "") -> str:
    return textwrap.fill(
        text, _WIDTH, initial_indent=indent, subsequent_indent=2 * indent, break_on_hyphens=False
    )


def _figures(row: Row) -> str:
    """The figures beside the label of a row; nothing where there are scores of captions alone."""
    at_most = "<= " if row["inference"] == "bound" else ""
    if "perplexity" in row:
        return (
            f"perplexity {at_most}{row['perplexity']:.2f} ({at_most}{row['nll']:.4f} nats a word"
            f"{_kl(row)}, {row['tokens']:,} words)"
        )
    if "scores" in row:
        return ""
    if "segments" in row:
        return reader_figures(row)
    if "error" not in row:
        return f"nll {at_most}{row['nll']:.4f}{_kl(row)} ({row['examples']:,} images)"
    return (
        f"error {row['error']:.2%}, nll {row['nll']:.4f}, calibration error {row['ece']:.2%}, "
        f"Brier score {row['brier']:.4f} ({row['examples']:,} images)"
    )


def _kl(row: Row) -> str:
    return f", {row['kl']:.4f} of it KL" if "kl" in row else ""
