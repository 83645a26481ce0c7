"""Run directories that were made up, written by hand as training writes them."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

MakeRun = Callable[..., Path]

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
        lines = [f"corpus = [{json.dumps(corpus)}]", *lines, "", "[options]", OPTIONS[method]]
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
