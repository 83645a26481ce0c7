"""The sentiment task through the program, on small tables of the user's own."""

import csv
import io
import json
import random
import signal
from urllib.parse import quote

import pytest

from ...conftest import model_hash

SMALL = (
    *("--hidden", "12", "--segment", "12", "--batch-size", "16", "--epochs", "6", "--lr", "0.02"),
    # So few texts leave nothing to learn from where most words are replaced.
    *("--unknown-words", "0", "--device", "cpu", "--threads", "1", "--no-calibrate"),
)
#: That of a method where the recipe for thousands of reviews is too slow for these few.
OPTIONS = {
    "plain": (),
    "dropout": ("--dropout", "0.1"),
    "bbb": ("--kl-weight", "0.01", "--sigma-scale", "0.2"),
    "sharpened": ("--kl-weight", "0.01", "--sigma-scale", "0.2"),
}
TEXTS = 160


def _reviews():
    """Texts whose rating is the share of praise in them, and the rating."""
    generator = random.Random(0)
    praise, blame = ["good", "great", "lovely"], ["bad", "awful", "dull"]
    for _ in range(TEXTS):
        quality = generator.random()
        words = [
            generator.choice(praise if generator.random() < quality else blame)
            if generator.random() < 0.7
            else generator.choice(["the", "film", "plot", "is"])
            for _ in range(generator.randint(8, 30))
        ]
        yield " ".join(words), quality


@pytest.fixture(scope="session")
def tables(tmp_path_factory):
    """Two CSV files: one with stars from 1 to 5, one with labels."""
    folder = tmp_path_factory.mktemp("tables")
    kinds = {
        "number": ("stars", lambda quality: round(1 + 4 * quality, 2)),
        "label": ("label", lambda quality: "fine" if quality > 0.5 else "poor"),
    }
    for kind, (column, target) in kinds.items():
        with (folder / f"{kind}.csv").open("w", newline="") as file:
            rows = [[f"{text},\nthe end", target(quality)] for text, quality in _reviews()]
            csv.writer(file).writerows([["text", column], *rows])
    return folder


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory):
    """Where runs are that no test changes."""
    return tmp_path_factory.mktemp("runs")


@pytest.fixture
def trained(tables, program, run_folder):
    """A function that trains a method on numbers or labels, once; gives the folder of the run."""

    def train(kind="number", method="plain", *options):
        run = run_folder / quote("_".join(map(str, (kind, method, *options))), safe="")
        if not run.exists():
            data = ("--data", tables / f"{kind}.csv")
            arguments = ["train", "sentiment", *data, *SMALL, "--method", method, *OPTIONS[method]]
            code, _, errors = program(*arguments, *options, "--out", run)
            assert code == 0, errors
            assert ("rmse" if kind == "number" else "error") in errors
        return run

    return train


@pytest.mark.parametrize("method", OPTIONS)
def test_numbers(method, trained, program, tmp_path):
    run = trained("number", method, "--epochs", "15")
    file = tmp_path / "result.json"
    code, out, errors = program("evaluate", run, "--samples", "3", "--json", file)
    assert code == 0, errors
    found = json.loads(file.read_text())
    assert found["rmse"] < 0.8 * found["constant_rmse"]
    assert (found["examples"], found["task"]) == (32, "sentiment")
    assert found["segments"] > 32
    assert len(found["coverage"]) == 4
    assert found["coverage"] == sorted(found["coverage"])
    assert "class_error" not in found, "stars have no classes"
    assert f"rmse {found['rmse']:.4f} (by segment {found['segment_rmse']:.4f})" in out
    assert f"for every text: rmse {found['constant_rmse']:.4f}" in out
    rows = [row["inference"] for row in found["rows"]]
    assert rows == (["mean", "samples3", "bound"] if method == "sharpened" else ["samples3"])
    if method == "sharpened":
        assert "rmse" not in found["rows"][2]
        assert found["rows"][2]["kl"] > 0
        assert "nll <= " in out


@pytest.mark.parametrize("method", ["dropout", "sharpened"])
def test_labels(method, trained, program, tmp_path):
    run = trained("label", method, "--epochs", "15")
    file = tmp_path / "result.json"
    code, out, errors = program("evaluate", run, "--json", file)
    assert code == 0, errors
    found = json.loads(file.read_text())
    assert found["error"] < found["constant_error"] - 0.1
    assert set(found) >= {"nll", "ece", "brier", "segment_error", "segments", "data"}
    assert f"error {found['error']:.2%} (by segment {found['segment_error']:.2%})" in out


def test_the_best_epoch_is_chosen_on_the_validation_texts(trained):
    run = trained()
    records = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    epochs = [record for record in records if record["kind"] == "epoch"]
    assert set(epochs[0]) >= {
        *("train_nll", "train_rmse", "valid_rmse", "valid_nll", "valid_segment_rmse", "valid_mae"),
    }
    assert not any("test" in name for record in records for name in record)
    best = min(epochs, key=lambda record: record["valid_fitted_nll"])
    assert int((run / "best").read_text()) == best["step"]


def test_all_runs_share_the_split(trained, program, tmp_path):
    """Whatever their seed: what predicts nothing gets the same error."""
    constants = []
    for seed in (1, 2):
        run = trained("number", "plain", "--seed", str(seed), "--epochs", "1")
        program("evaluate", run, "--json", tmp_path / "result.json")
        constants.append(json.loads((tmp_path / "result.json").read_text())["constant_rmse"])
    assert constants[0] == constants[1]


@pytest.mark.parametrize("cell", ["gru", "rnn"])
def test_other_cells(cell, trained, program):
    run = trained("label", "bbb", "--cell", cell, "--layers", "2", "--epochs", "1")
    assert program("predict", run, "--text", "a good film")[0] == 0


def test_stopped_and_resumed(tables, trained, stop_after, program, tmp_path):
    minibatches = 14  # of 16 segments
    expected = model_hash(trained("number", "dropout", "--epochs", "3"))
    run = tmp_path / "stopped"
    arguments = ["train", "sentiment", "--data", tables / "number.csv", *SMALL, "--epochs", "3"]
    arguments += ["--method", "dropout", *OPTIONS["dropout"], "--out", run]
    with stop_after(minibatches + 3):
        assert program(*arguments)[0] == 128 + signal.SIGTERM
    code, _, errors = program(*arguments, "--resume")
    assert code == 0, errors
    assert model_hash(run) == expected


def test_predict_numbers(trained, program, tmp_path):
    run, file = trained("number", "bbb", "--epochs", "15"), tmp_path / "found.json"
    text = "A great film; good, lovely. " * 9
    code, out, errors = program("predict", run, "--text", text, "--json", file)
    assert code == 0, errors
    good = json.loads(file.read_text())
    (one,) = good["texts"]
    assert (good["samples"], good["target"], one["words"]) == (20, "number", 9 * 8)
    assert one["low"] < one["score"] < one["high"]
    assert 0 < one["epistemic_share"] < 1
    assert "90% interval" in out
    assert f"{one['score']:.3f}" in out
    program("predict", run, "--text", "a dull plot, bad, awful", "--json", file)
    assert json.loads(file.read_text())["texts"][0]["score"] < one["score"] - 0.5
    narrow = ("--interval", "0.5", "--samples", "0", "--json", file)
    program("predict", run, "--text", "a good film", *narrow)
    mean = json.loads(file.read_text())
    half = mean["texts"][0]
    # Half of a normal distribution lies within 0.6745 deviations.
    assert (half["high"] - half["low"]) / 2 == pytest.approx(0.67449 * half["deviation"], rel=1e-3)
    assert (mean["samples"], half["epistemic_share"]) == (0, 0)


def test_predict_lines_of_labels(trained, program, tmp_path, monkeypatch):
    run, lines = trained("label", "dropout", "--epochs", "15"), tmp_path / "texts.txt"
    lines.write_text("a great film, good, lovely\nawful plot, bad and dull\n\n")
    code, out, errors = program("predict", run, "--file", lines, "--json", tmp_path / "a.json")
    assert code == 0, errors
    found = json.loads((tmp_path / "a.json").read_text())["texts"]
    assert [one["label"] for one in found] == ["fine", "poor"]
    for one in found:
        assert sum(one["probabilities"].values()) == pytest.approx(1)
        assert 0 < one["mutual_information"] < one["entropy"] < 0.7
    assert "p(fine)" in out
    windows = b"\xef\xbb\xbf" + lines.read_bytes().replace(b"\n", b"\r\n")
    give_input(monkeypatch, windows)
    code, shown, _ = program("predict", run, "--file", "-", "--json", "-")
    assert code == 0
    assert json.loads(shown)["texts"] == found


def test_predict_the_texts_of_a_table(trained, program, tmp_path):
    run = trained("label", "dropout", "--epochs", "15")
    table, result = tmp_path / "new.csv", tmp_path / "a.json"
    table.write_text('id;text\n1;"a great film; good,\nlovely"\n\n2;""\n3;awful plot, bad, dull\n')
    code, _, errors = program("predict", run, "--file", table, "--json", result)
    assert code == 0, errors
    found = json.loads(result.read_text())["texts"]
    assert [one["text"] for one in found] == [
        "a great film; good,\nlovely",
        "awful plot, bad, dull",
    ]
    assert [one["row"] for one in found] == [2, 5]
    assert [one["label"] for one in found] == ["fine", "poor"]
    assert f"1 text without words left out of {table}" in errors
    table.write_text("said\tid\na great film\t1\n")
    given = ("--text-column", "said", "--delimiter", "tab", "--threads", "1")
    code, _, errors = program("predict", run, "--file", table, *given, "--json", result)
    assert code == 0, errors
    assert [one["text"] for one in json.loads(result.read_text())["texts"]] == ["a great film"]
    lines = tmp_path / "texts.txt"
    lines.write_text("a great film\n\n  \nawful plot\n")
    code, _, errors = program("predict", run, "--file", lines, "--json", result)
    assert code == 0, errors
    assert [one["row"] for one in json.loads(result.read_text())["texts"]] == [1, 4]
    assert "2 texts without words left out" in errors


def test_columns_between_semicolons_and_decimal_commas(tables, program, tmp_path):
    with (tables / "number.csv").open(newline="") as file:
        rows = [[text, stars.replace(".", ",")] for text, stars in csv.reader(file)]
    own = tmp_path / "german.csv"
    with own.open("w", newline="") as file:
        csv.writer(file, delimiter=";").writerows(rows)
    for run, options in (("found", ()), ("given", ("--delimiter", "semicolon"))):
        given = ("--data", own, *SMALL, "--epochs", "1", "--method", "plain", *options)
        code, _, errors = program("train", "sentiment", *given, "--out", tmp_path / run)
        assert code == 0, errors
        code, _, errors = program("evaluate", tmp_path / run)
        assert code == 0, errors
    found = [(tmp_path / run / "target.json").read_text() for run in ("found", "given")]
    assert found[0] == found[1]
    assert json.loads(found[0])["kind"] == "number"


def give_input(monkeypatch, data):
    """Bytes on standard input, which by itself would be read as ASCII."""
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(data), encoding="ascii"))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"\n \n", "standard input has no text"),
        (b"a sch\xf6n film\n", "standard input is not valid UTF-8: byte 0xf6 at byte 5"),
    ],
)
def test_mistakes_in_standard_input(data, message, program, tmp_path, monkeypatch):
    give_input(monkeypatch, data)
    code, _, errors = program("predict", tmp_path, "--file", "-")
    assert code == 1
    assert message in errors
    assert len(errors.strip().splitlines()) == 1


def test_standard_input_is_utf8_whatever_the_terminal_is(trained, program, monkeypatch):
    run = trained("number", "plain", "--epochs", "1")
    give_input(monkeypatch, "ein schöner film\n".encode())
    code, out, errors = program("predict", run, "--file", "-", "--json", "-")
    assert code == 0, errors
    assert json.loads(out)["texts"][0]["text"] == "ein schöner film"


def test_a_text_of_unknown_words_is_noted(trained, program):
    run = trained("number", "plain", "--epochs", "1")
    code, out, errors = program("predict", run, "--text", "xyzzy plugh")
    assert code == 0
    assert "knows no word of the text" in errors
    assert "100.0%" in out
    _, _, errors = program("predict", run, "--text", "xyzzy is a plugh grue here")
    assert "83% of the words of the text are unknown to the run; do not trust" in errors
    assert "note" not in program("predict", run, "--text", "xyzzy the film")[2]


def test_compare(trained, program, tmp_path):
    runs = [trained("number", method) for method in ("plain", "bbb")]
    program("evaluate", runs[0])
    page = tmp_path / "page.html"
    code, out, _ = program("compare", *runs, "--out", page)
    assert code == 0
    assert "RMSE; valid: best epoch" in out
    assert "segments/s" in out
    assert "lstm 1x12" in out
    epochs = [json.loads(line) for line in (runs[0] / "metrics.jsonl").read_text().splitlines()]
    epochs = [epoch for epoch in epochs if epoch["kind"] == "epoch"]
    best = min(epochs, key=lambda epoch: epoch["valid_fitted_nll"])
    assert f"{best['valid_rmse']:.4f}" in out
    assert "RMSE by epoch: " in page.read_text()
    assert "bayesrnn train sentiment --config" in page.read_text()
    chart = tmp_path / "chart.svg"
    assert program("compare", *runs, "--out", chart)[0] == 0
    assert chart.read_text().startswith("<svg")
    other = trained("label")
    code, _, errors = program("compare", *runs, other, "--out", chart)
    assert code == 1
    assert "different data" in errors
    code, out, _ = program("compare", *runs, other)
    assert "RMSE, error in %" in out


def test_what_is_for_language_models_is_refused(trained, program):
    run = trained("number", "plain", "--epochs", "1")
    commands = (
        ["generate", run],
        ["inspect", run, "--text", "a film"],
        ["prune", run, "--streams", 4],
        ["tune-dynamic", run],
        ["evaluate", run, "--dynamic"],
    )
    for arguments in commands:
        code, _, errors = program(*arguments)
        assert code == 1, arguments
        assert "`bayesrnn train lm`" in errors
        assert len(errors.strip().splitlines()) == 1


def test_mistakes_in_what_to_predict(runs, trained, program, tmp_path):
    own = trained("number", "plain", "--epochs", "1")
    (tmp_path / "empty.txt").write_text("\n\n")
    (tmp_path / "gap.txt").write_text("a film\n\na plot\n")
    (tmp_path / "only.csv").write_text("text\n")
    (tmp_path / "other.csv").write_text("a,b\n1,2\n")
    (tmp_path / "signs.csv").write_text('text\n""\n" "\n')
    text = ("--text", "a film")
    mistakes = (
        ((runs / "plain", *text), "give a run of `bayesrnn train sentiment`"),
        ((tmp_path / "nothing", *text), "not a run directory"),
        ((own, "--text", "  "), "no words"),
        ((own,), "neither of --text and --file"),
        ((own, *text, "--file", tmp_path / "gap.txt"), "both of --text and --file"),
        ((own, "--file", tmp_path / "empty.txt"), "no text"),
        ((own, "--file", tmp_path / "gap.txt", "--delimiter", "tab"), "are for tables"),
        ((own, "--file", tmp_path / "only.csv"), "no rows below its header"),
        ((own, "--file", tmp_path / "other.csv"), "it has: a, b; say which"),
        ((own, "--file", tmp_path / "signs.csv"), "signs.csv has no words"),
        ((own, "--file", tmp_path / "none.txt"), "there is no file"),
        ((own, *text, "--samples", "-1"), "--samples is -1"),
        ((own, *text, "--interval", "1"), "--interval is 1"),
    )
    for arguments, message in mistakes:
        code, _, errors = program("predict", *arguments)
        assert code == 1, arguments
        assert message in errors
        assert len(errors.strip().splitlines()) == 1, errors


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("a,b,c\nx,1,2\n", (), "it has: a, b, c"),
        ("text,rating\nx,1\n", (), "1 different texts"),
        ("text,rating\nx,1\ny,2\nz,three\n", (), "row 4: 'three' is not a number"),
        ("text,rating\nx,1\n", ("--target-column", "stars"), "are: text, rating"),
        ("text;rating\nx;1\n", ("--delimiter", "comma"), "no column 'text'"),
    ],
)
def test_mistakes_in_the_table(program, tmp_path, text, options, message):
    table = tmp_path / "own.csv"
    table.write_text(text)
    code, _, errors = program("train", "sentiment", "--data", table, *options)
    assert code == 1
    assert message in errors
    assert len(errors.strip().splitlines()) == 1
    assert not (tmp_path / "runs").exists()


def test_the_data_has_to_stay_the_same(tables, trained, program, tmp_path):
    copy = tmp_path / "copy.csv"
    copy.write_text((tables / "number.csv").read_text())
    run = trained("number", "plain", "--epochs", "1", "--data", copy)
    copy.write_text(copy.read_text() + "one more,3\none more film,4\n" * 9)
    code, _, errors = program("evaluate", run)
    assert code == 1
    assert "not those that" in errors
    code, _, errors = program("train", "sentiment", "--out", run, "--resume", "--epochs", "2")
    assert code == 1
    assert "not what" in errors
