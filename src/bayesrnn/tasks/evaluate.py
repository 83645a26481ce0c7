"""Evaluate a run: how probable it finds a text that it did not train on."""

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from bayesrnn.data import SPLITS
from bayesrnn.errors import ConfigError, RunError
from bayesrnn.evaluation import likelihood
from bayesrnn.progress import progress_bar
from bayesrnn.tasks.language_model import TrainedRun, load_run
from bayesrnn.training import RunDirectory


def evaluate(
    run: Path,
    split: str = "test",
    samples: int = 0,
    checkpoint: str = "best",
    streams: int = 1,
    unroll: int = 35,
    seed: int = 1,
    device: str = "auto",
) -> dict[str, Any]:
    """The perplexity of a run; kept in the run's results as well."""
    if samples < 0:
        raise ConfigError(f"--samples is {samples}; it has to be 0 (the mean) or more")
    trained = load_run(run, checkpoint, device)
    result = evaluate_trained(trained, split, samples, streams, unroll, seed)
    suffix = f"-samples{samples}" if samples else "-mean"
    RunDirectory(run).write_result(f"{split}{suffix}", result)
    return result


def evaluate_trained(
    trained: TrainedRun,
    split: str,
    samples: int,
    streams: int = 1,
    unroll: int = 35,
    seed: int = 1,
) -> dict[str, Any]:
    """The perplexity of a loaded run on a split of its own corpus."""
    if split not in SPLITS:
        raise ConfigError(f"--split is {split}; there are: {', '.join(SPLITS)}")
    text = getattr(trained.corpus(), split).to(trained.device)
    with progress_bar(max(samples, 1) * (len(text) - 1), " words", "evaluating") as bar:
        found = likelihood(
            trained.method,
            trained.net,
            text,
            samples,
            torch.Generator().manual_seed(seed),
            streams,
            unroll,
            bar.update,
        )
    return {
        "perplexity": found.perplexity,
        **asdict(found),
        "samples": samples,
        "method": trained.config.method,
        "corpus": " ".join(trained.config.corpus),
        "split": split,
        "step": trained.step,
        "seed": seed,
        "streams": streams,
    }


def write_json(value: Any, path: Path) -> None:
    """Write JSON to a file, or to standard output for `-`."""
    text = json.dumps(value, indent=2) + "\n"
    if str(path) == "-":
        sys.stdout.write(text)
        return
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise RunError(f"cannot write {path}: {error.strerror}") from error


def describe(result: dict[str, Any]) -> str:
    """A result as one line of text."""
    draws = result["samples"]
    how = f"averaged over {draws} draw{'s' * (draws > 1)}" if draws else "mean weights"
    return (
        f"{result['corpus']} {result['split']}, {result['method']}, {how}: perplexity "
        f"{result['perplexity']:.2f} ({result['nll']:.4f} nats a word, {result['tokens']:,} words)"
    )
