from collections.abc import Callable
from pathlib import Path

import pytest

from bayesrnn.errors import RunError
from bayesrnn.report import EpochPoint, read_summary

MakeRun = Callable[..., Path]


def test_a_run_is_summarised(make_run: MakeRun) -> None:
    kept = {"perplexity": 190.0, "samples": 0, "split": "test"}
    run = make_run("one", "bbb", valid=(900.0, 210.0, 220.0), results={"test-mean": kept})
    summary = read_summary(run)
    assert (summary.name, summary.data, summary.method) == ("one", "ptb", "bbb")
    assert summary.network == "lstm 1x200"
    assert (summary.epochs_done, summary.epochs_planned) == (3, 8)
    assert summary.points[1] == EpochPoint(epoch=2, step=200, train=300.0, valid=210.0)
    assert (summary.best_valid, summary.best_epoch) == (210.0, 2)
    assert summary.results["test-mean"]["perplexity"] == 190.0
    assert summary.settings == "seed 1, 8 epochs, mixture prior per row"
    assert summary.items_per_second == 2000


@pytest.mark.parametrize(
    ("method", "options", "said"),
    [
        ("plain", "", "seed 3, 1 epoch"),
        ("dropout", "dropout = 0.25", "seed 3, 1 epoch, dropout 0.25"),
        ("bbb", 'prior = "gaussian"\nprior_per = "row"', "seed 3, 1 epoch, gaussian prior"),
        (
            "bbb",
            'prior = "mixture"\nprior_per = "weight"\nkl_weight = 0.5',
            "seed 3, 1 epoch, mixture prior per weight, KL weight 0.5",
        ),
    ],
)
def test_settings_that_must_be_said(
    make_run: MakeRun, method: str, options: str, said: str
) -> None:
    run = make_run("run", method, seed=3, epochs=1)
    text = (run / "config.toml").read_text().split("[options]")[0]
    (run / "config.toml").write_text(f"{text}[options]\n{options}\n")
    assert read_summary(run).settings == said


def test_a_run_without_a_finished_epoch(make_run: MakeRun) -> None:
    run = make_run("fresh", valid=())
    (run / "metrics.jsonl").unlink()
    summary = read_summary(run)
    assert (summary.points, summary.epochs_done, summary.best) == ((), 0, None)
    assert (summary.best_valid, summary.best_epoch, summary.items_per_second) == (None,) * 3


def test_an_infinite_perplexity_is_no_best(make_run: MakeRun) -> None:
    summary = read_summary(make_run("run", valid=(None, 300.0)))
    assert (summary.points[0].valid, summary.best_epoch) == (None, 2)


def test_the_name_of_the_folder_that_one_is_in(
    make_run: MakeRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(make_run("here"))
    assert read_summary(Path()).name == "here"


def test_the_vocabulary_tells_runs_apart(make_run: MakeRun) -> None:
    runs = [make_run(name) for name in "abc"]
    for run, words in zip(runs, ("the\nof\n", "the\nof\n", "the\n"), strict=True):
        (run / "vocabulary.txt").write_text(words)
    one, same, other = (read_summary(run).vocabulary for run in runs)
    assert one == same != other


def test_most_draws_win(make_run: MakeRun) -> None:
    found = {
        f"test-samples{n}": {"perplexity": 100.0 + n, "samples": n, "split": "test"}
        for n in (0, 20, 5)
    }
    found["valid-samples50"] = {"perplexity": 1.0, "samples": 50, "split": "valid"}
    summary = read_summary(make_run("run", "bbb", results=found))
    mean, drawn = summary.result("test", "mean"), summary.result("test", "samples")
    assert mean is not None
    assert drawn is not None
    assert (mean["perplexity"], drawn["perplexity"]) == (100.0, 120.0)
    assert summary.result("train", "mean") is None


def test_what_is_not_a_run_is_refused(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(RunError, match="not a run directory"):
            read_summary(path)


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        ("config.toml", "corpus = ", "not a TOML file"),
        ("config.toml", 'corpus = "ptb"', "does not say the cell of its network"),
        ("metrics.jsonl", "nonsense\n", "line 1 is not a record"),
        ("metrics.jsonl", '{"kind": "epoch"}\n', "without its number"),
        ("results/test-mean.json", "{", "not the result of an evaluation"),
        ("results/test-mean.json", "[1]", "not the result of an evaluation"),
        ("results/test-mean.json", '{"split": "test", "samples": 0}', "not the result of an"),
    ],
)
def test_damage_is_named(make_run: MakeRun, file: str, text: str, message: str) -> None:
    run = make_run("run")
    (run / file).write_text(text)
    with pytest.raises(RunError, match=message):
        read_summary(run)
