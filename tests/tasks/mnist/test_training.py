"""The digits task through the program, on the small digits of scikit-learn."""

import json
import signal

import pytest

from ...conftest import model_hash

pytest.importorskip("sklearn")

#: Of 64 images, in the 1,197 that are trained on.
MINIBATCHES = 18

SMALL = (
    *("--images", "digits", "--hidden", "24", "--batch-size", "64", "--epochs", "4"),
    *("--device", "cpu", "--threads", "1", "--no-calibrate"),
)


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory):
    """Where runs are that no test changes."""
    return tmp_path_factory.mktemp("runs")


@pytest.fixture
def trained(program, run_folder):
    """A function that trains a method, once; gives the folder of the run."""

    def train(method, *options):
        run = run_folder / "_".join((method, *options))
        if not run.exists():
            arguments = ["train", "mnist", *SMALL, "--method", method, "--out", run, *options]
            code, _, errors = program(*arguments)
            assert code == 0, errors
            assert "validation fitted nll" in errors
        return run

    return train


@pytest.mark.parametrize("method", ["plain", "dropout", "bbb", "sharpened"])
def test_train_and_evaluate(method, trained, program, tmp_path):
    options = ("--dropout", "0.1") if method == "dropout" else ()
    run = trained(method, "--epochs", "12", "--lr", "0.01", *options)
    file = tmp_path / "result.json"
    code, out, errors = program("evaluate", run, "--json", file)
    assert code == 0, errors
    found = json.loads(file.read_text())
    assert found["error"] < 0.15
    assert found["examples"] == 300
    assert set(found) >= {"nll", "ece", "brier", "method", "images", "split"}
    assert f"error {found['error']:.2%}" in out
    rows = [row["inference"] for row in found["rows"]]
    assert rows == (["mean", "samples10", "bound"] if method == "sharpened" else ["mean"])
    if method == "sharpened":
        assert "error" not in found["rows"][2]


def test_stopped_and_resumed(trained, stop_after, program, tmp_path):
    expected = model_hash(trained("sharpened"))
    run = tmp_path / "stopped"
    arguments = ["train", "mnist", *SMALL, "--method", "sharpened", "--out", run]
    with stop_after(MINIBATCHES + 3):
        assert program(*arguments)[0] == 128 + signal.SIGTERM
    code, _, errors = program(*arguments, "--resume")
    assert code == 0, errors
    assert model_hash(run) == expected


def test_geometric_weighting_is_that_of_the_training(trained):
    """Step 50 is the 14th minibatch of epoch 3: 2^-14 of the KL instead of 1/18."""

    def charged(run):
        records = map(json.loads, (run / "metrics.jsonl").read_text().splitlines())
        return {r["step"]: r["kl_per_image"] for r in records if r["kind"] == "train"}

    uniform = charged(trained("bbb"))
    geometric = charged(trained("bbb", "--kl-weighting", "geometric"))
    assert set(uniform) == set(geometric) == {50}
    # The divergences themselves differ as well, by what the two learnt until then.
    assert geometric[50] / uniform[50] == pytest.approx(2**-14 * MINIBATCHES, rel=0.1)


def test_compare_shows_errors_in_percent(trained, program, tmp_path):
    runs = [trained("plain"), trained("bbb")]
    program("evaluate", runs[0])
    page = tmp_path / "page.html"
    code, out, _ = program("compare", *runs, "--out", page)
    assert code == 0
    assert "error in %" in out
    assert "images/s" in out
    assert "mlp 2x24" in out
    assert "Error in % by epoch: digits" in page.read_text()
    assert "bayesrnn train mnist --config" in page.read_text()
    chart = tmp_path / "chart.svg"
    assert program("compare", *runs, "--out", chart)[0] == 0
    assert chart.read_text().startswith("<svg")


def test_different_problems_do_not_share_a_chart(trained, train_arguments, program, tmp_path):
    text = tmp_path / "text"
    assert program(*train_arguments, "--epochs", "1", "--out", text)[0] == 0
    runs = [trained("plain"), text]
    code, _, errors = program("compare", *runs, "--out", tmp_path / "chart.svg")
    assert code == 1
    assert "different data" in errors
    code, out, _ = program("compare", *runs, "--out", tmp_path / "page.html")
    assert code == 0
    assert "perplexity" in out
    assert "error in %" in out
    page = (tmp_path / "page.html").read_text()
    assert page.count("<svg") == 4, "each for wide and for narrow screens"


def test_what_is_for_text_is_refused(trained, program, tmp_path):
    run = trained("plain")
    for arguments in (["generate", run], ["tune-dynamic", run], ["evaluate", run, "--dynamic"]):
        code, _, errors = program(*arguments)
        assert code == 1
        assert "`bayesrnn train lm`" in errors
    code, _, errors = program("train", "lm", "--config", run / "config.toml", "--out", tmp_path)
    assert code == 1
    assert "train mnist" in errors
