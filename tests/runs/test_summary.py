import json
from collections.abc import Callable
from pathlib import Path

import pytest

from bayesrnn.errors import RunError
from bayesrnn.runs.compare import comparison_page, comparison_table
from bayesrnn.runs.summary import EpochPoint

from ..made_up import summary_of

MakeRun = Callable[..., Path]


def test_a_run_is_summarised(make_run: MakeRun) -> None:
    kept = {"perplexity": 190.0, "samples": 0, "split": "test"}
    run = make_run("one", "bbb", valid=(900.0, 210.0, 220.0), results={"test-mean": kept})
    summary = summary_of(run)
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
        (
            "sharpened",
            'prior = "mixture"\nprior_per = "row"\nkl_weight = 0.1\nsigma0 = 0.02',
            "seed 3, 1 epoch, mixture prior per row, sigma0 0.02, KL weight 0.1",
        ),
        (
            "variational-dropout",
            'dropout = 0.5\nembedding_dropout = 0.1\ngates = "untied"\nlength_scale = 0.75',
            "seed 3, 1 epoch, dropout 0.5, embedding dropout 0.1, length scale 0.75, untied gates",
        ),
        ("dropconnect", "weight_dropout = 0.5", "seed 3, 1 epoch, weight dropout 0.5"),
        (
            "psgld",
            "prior_sigma = 0.5\ntemperature = 0.001\nmemory = 0.99",
            "seed 3, 1 epoch, temperature 0.001, prior sigma 0.5",
        ),
        (
            "ensemble",
            'base = "bbb"\nmembers = 3\nprior = "gaussian"',
            "seed 3, 1 epoch, 3 x bbb, gaussian prior",
        ),
        ("bbb", 'prior = "mixture"\nof_another_version = 3', "seed 3, 1 epoch, mixture prior"),
        ("of-another-version", "dropout = 0.5", "seed 3, 1 epoch"),
        ("ensemble", 'base = "of-another-version"\nmembers = 3', "seed 3, 1 epoch"),
    ],
)
def test_settings_that_must_be_said(
    make_run: MakeRun, method: str, options: str, said: str
) -> None:
    run = make_run("run", method, seed=3, epochs=1)
    text = (run / "config.toml").read_text().split("[options]")[0]
    (run / "config.toml").write_text(f"{text}[options]\n{options}\n")
    assert summary_of(run).settings == said


def test_averaged_parameters_are_said(make_run: MakeRun) -> None:
    run = make_run("run", "dropout", average=0.998)
    path = run / "metrics.jsonl"
    records = [json.loads(line) for line in path.read_text().splitlines()]
    for record in records:
        if record["kind"] == "epoch":
            record["averaged"] = record["epoch"] > 1
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    summary = summary_of(run)
    assert [point.averaged for point in summary.points] == [False, True, True]
    assert summary.settings == "seed 1, 8 epochs, averaged 0.998, dropout 0.5"
    assert "averaged" not in summary_of(make_run("off", average=0.0)).settings
    plain = make_run("plain")
    note = "parameters averaged over steps: run"
    assert note in comparison_table([summary, summary_of(plain)]).notes
    assert not any("averaged" in each for each in comparison_table([summary_of(plain)]).notes)
    page = comparison_page([summary])
    assert "averaged 0.998" in page
    assert "at epoch 3 (averaged)" in page


def test_a_run_without_a_finished_epoch(make_run: MakeRun) -> None:
    run = make_run("fresh", valid=())
    (run / "metrics.jsonl").unlink()
    summary = summary_of(run)
    assert (summary.points, summary.epochs_done, summary.best) == ((), 0, None)
    assert (summary.best_valid, summary.best_epoch, summary.items_per_second) == (None,) * 3


def test_an_infinite_perplexity_is_no_best(make_run: MakeRun) -> None:
    summary = summary_of(make_run("run", valid=(None, 300.0)))
    assert (summary.points[0].valid, summary.best_epoch) == (None, 2)


def test_the_name_of_the_folder_that_one_is_in(
    make_run: MakeRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(make_run("here"))
    assert summary_of(Path()).name == "here"


def test_the_vocabulary_tells_runs_apart(make_run: MakeRun) -> None:
    runs = [make_run(name) for name in "abc"]
    for run, words in zip(runs, ("the\nof\n", "the\nof\n", "the\n"), strict=True):
        (run / "vocabulary.txt").write_text(words)
    one, same, other = (summary_of(run).vocabulary for run in runs)
    assert one == same != other


def test_most_draws_win(make_run: MakeRun) -> None:
    found = {
        f"test-samples{n}": {"perplexity": 100.0 + n, "samples": n, "split": "test"}
        for n in (0, 20, 5)
    }
    found["valid-samples50"] = {"perplexity": 1.0, "samples": 50, "split": "valid"}
    summary = summary_of(make_run("run", "bbb", results=found))
    mean, drawn = summary.result("test", "mean"), summary.result("test", "samples")
    assert mean is not None
    assert drawn is not None
    assert (mean["perplexity"], drawn["perplexity"]) == (100.0, 120.0)
    assert summary.result("train", "mean") is None


def test_a_figure_of_zero_is_a_figure(make_mnist_run: MakeRun) -> None:
    found = {
        f"test-samples{draws}": {"error": error, "samples": draws, "split": "test"}
        for draws, error in ((10, 0.01), (50, 0.0))
    }
    summary = summary_of(make_mnist_run("run", found))
    drawn = summary.result("test", "samples")
    assert drawn is not None
    assert (drawn["samples"], summary.measure.read(drawn)) == (50, 0.0)


def test_ways_of_prediction_are_told_apart(make_run: MakeRun) -> None:
    """Of results that say their way, and of those of earlier versions that do not."""
    ways = ("mean", "samples10", "dynamic-sgd", "dynamic-rms", "bound")
    found = {
        f"test-{way}": {
            "perplexity": 100.0 + place,
            "split": "test",
            "inference": way,
            "samples": 10 if way == "samples10" else 0,
        }
        for place, way in enumerate(ways)
    }
    found["test-samples5"] = {"perplexity": 90.0, "samples": 5, "split": "test"}
    summary = summary_of(make_run("run", "bbb", results=found))
    for place, way in enumerate(("mean", "samples", "dynamic-sgd", "dynamic-rms", "bound")):
        result = summary.result("test", way)
        assert result is not None
        assert summary.measure.read(result) == 100.0 + place
    del found["test-mean"], found["test-samples10"]
    summary = summary_of(make_run("less", "bbb", results=found))
    assert summary.result("test", "mean") is None, "a bound has no draws either"
    drawn = summary.result("test", "samples")
    assert drawn is not None
    assert drawn["perplexity"] == 90.0


@pytest.fixture
def make_mnist_run(make_run: MakeRun) -> MakeRun:
    """A run of the digits task, best in the second of three epochs."""

    def make(name: str, results: dict[str, dict[str, object]]) -> Path:
        run = make_run(
            *(name, "bbb", ()), results=results, task="mnist", images="digits", layers=2, hidden=24
        )
        config = (run / "config.toml").read_text().splitlines(keepends=True)
        (run / "config.toml").write_text(
            "".join(line for line in config if not line.startswith(("corpus", "cell", "size")))
        )
        records = []
        for epoch, error in enumerate((0.25, 0.125, 0.5), start=1):
            at = {"epoch": epoch, "step": 18 * epoch}
            records.append({"kind": "train", **at, "images_per_second": 1000 * epoch})
            figures = {"train_nll": 0.5, "valid_nll": 1.0 / epoch, "valid_error": error}
            records.append({"kind": "epoch", **at, **figures})
        (run / "metrics.jsonl").write_text("".join(json.dumps(r) + "\n" for r in records))
        return run

    return make


def test_a_run_of_digits_is_summarised(make_mnist_run: MakeRun) -> None:
    """By its error, in percent; a bound on the likelihood has none."""
    found = {
        "test-mean": {"error": 0.03, "samples": 0, "split": "test", "inference": "mean"},
        "test-bound": {"nll": 0.5, "samples": 0, "split": "test", "inference": "bound"},
    }
    summary = summary_of(make_mnist_run("digits-run", found))
    assert (summary.name, summary.task.name, summary.data) == ("digits-run", "mnist", "digits")
    assert (summary.network, summary.measure.title) == ("mlp 2x24", "error in %")
    assert summary.points[1] == EpochPoint(epoch=2, step=36, train=None, valid=12.5)
    assert (summary.best_valid, summary.best_epoch) == (12.5, 2)
    assert summary.items_per_second == 2000
    mean = summary.result("test", "mean")
    assert mean is not None
    assert summary.measure.read(mean) == pytest.approx(3.0)
    assert set(summary.results) == {"test-mean", "test-bound"}
    assert summary.result("test", "bound") is None


def test_what_is_not_a_run_is_refused(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(RunError, match="not a run directory"):
            summary_of(path)


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
        summary_of(run)
