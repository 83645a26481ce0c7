"""What every task has to do, told by the protocol alone; a task of a user's own does it too."""

import json
from dataclasses import fields
from importlib import import_module
from pathlib import Path

import pytest
import torch

from bayesrnn.compression.file import read_compact
from bayesrnn.compression.ranking import importance
from bayesrnn.errors import ConfigError
from bayesrnn.nn.units import units_of
from bayesrnn.options import flag, from_toml, options_of
from bayesrnn.runs.evaluate import describe, evaluate
from bayesrnn.runs.evaluation import EvaluationSettings
from bayesrnn.tasks import TASKS, task_of
from bayesrnn.training.checkpoints import CheckpointStore
from bayesrnn.training.run_directory import RunDirectory

from ..conftest import model_hash

#: A task that only the tests know: one folder, beside this file, and one line, in `task_name`.
TOY = "toy"

HALF = ("--precision", "bfloat16")


@pytest.fixture(params=[*TASKS, TOY])
def task_name(request, monkeypatch):
    if request.param == TOY:
        monkeypatch.syspath_prepend(Path(__file__).parent)
        monkeypatch.setitem(TASKS.packages, TOY, TOY)
    return request.param


@pytest.fixture
def task(task_name):
    return TASKS[task_name]


@pytest.fixture
def train(task_name, request, program):
    """A function that trains the task on little data, or goes on; gives the folder."""
    tiny = import_module(f"..{task_name}.tiny", __name__)
    given = [*tiny.arguments(request), "--device", "cpu", "--threads", "1"]

    def run(folder, *options):
        code, _, errors = program("train", task_name, *given, "--out", folder, *options)
        assert code == 0, errors
        return folder

    return run


def epochs(number, warmup="1.5"):
    """So many epochs of one schedule, which recipes would stretch."""
    schedule = ("--hold-epochs", "1", "--decay", "0.5", "--kl-warmup", warmup)
    return ("--epochs", number, *schedule)


def test_a_run_is_trained_resumed_evaluated_and_compared(task, train, program, tmp_path):
    whole = train(tmp_path / "whole", "--method", "bbb", *epochs(2))
    halves = train(tmp_path / "halves", "--method", "bbb", *epochs(1))
    train(halves, "--resume", "--epochs", "2")
    assert model_hash(whole) == model_hash(halves)

    *_, last = map(json.loads, (whole / "metrics.jsonl").read_text().splitlines())
    measure = task.measure(lambda file: (whole / file).read_text())
    assert {"valid_nll", f"valid_{measure.key}"} <= last.keys()
    assert last["best"] == ((whole / "best").read_text() == (whole / "last").read_text())
    by = next(name for name in ("fitted_nll", "nll") if f"valid_{name}" in last)
    assert CheckpointStore(whole).load().state["position"]["best_by"] == by

    assert task_of(whole) is task
    loaded = task.open_run(whole)
    assert loaded.config.task == task.name
    assert set(loaded.files) == set(task.file_names)
    entries = from_toml((whole / "config.toml").read_text(), "config.toml")
    assert task.resolve({}, entries) == loaded.config
    assert task.resolve({}, from_toml(loaded.config.to_toml(), "again")) == loaded.config

    calibrated = "-calibrated" if loaded.calibrated() else ""
    for samples, name in ((0, "mean"), (3, f"samples3{calibrated}")):
        found = evaluate(task, whole, EvaluationSettings(samples=samples))
        assert found.asked.samples == samples
        assert found.asked.inference == name
        kept = json.loads((whole / "results" / f"test-{name}.json").read_text())
        assert kept["task"] == task.name
        assert kept[measure.key] == getattr(found.asked, measure.key)
        assert found.asked.label in describe(task, found)
        code, out, errors = program("evaluate", whole, "--samples", samples)
        assert code == 0, errors
        assert out.strip() == describe(task, found).strip()

    code, out, errors = program("compare", whole, halves, "--out", tmp_path / "page.html")
    assert code == 0, errors
    assert "whole" in out
    assert f"{task.unit}s/s" in out
    assert measure.text(measure.read(kept)) in out
    assert measure.title in (tmp_path / "page.html").read_text()


def test_16_bits_in_products_change_little_and_are_resumed(train, tmp_path):
    exact = train(tmp_path / "exact", "--method", "bbb", *epochs(1))
    whole = train(tmp_path / "whole", "--method", "bbb", *epochs(2), *HALF)
    halves = train(tmp_path / "halves", "--method", "bbb", *epochs(1), *HALF)
    after_one = CheckpointStore(halves).load_model("last").model
    train(halves, "--resume", "--epochs", "2")
    assert model_hash(whole) == model_hash(halves)

    expected = CheckpointStore(exact).load_model("last").model
    assert {tensor.dtype for tensor in after_one.values()} == {torch.float32}
    found, wanted = (torch.cat([m[n].flatten() for n in expected]) for m in (after_one, expected))
    assert 0 < torch.dist(found, wanted) < 0.1 * wanted.norm()


def test_shards_with_one_draw_are_the_minibatch_in_one(task_name, train, program, tmp_path):
    """To rounding; a task whose minibatches have no parts says so."""
    given = ("--method", "bbb", *epochs(1, warmup="0"), "--no-calibrate")
    shards = ("--shards", "2", "--shard-noise", "shared")
    if task_name == TOY:
        code, _, errors = program("train", TOY, "--out", tmp_path / "toy", *given, *shards)
        assert code == 1
        assert "--shards is 2, but the minibatches of this task cannot be cut" in errors
        return
    whole = CheckpointStore(train(tmp_path / "whole", *given)).load_model("last").model
    parts = CheckpointStore(train(tmp_path / "parts", *given, *shards)).load_model("last").model
    for name, weight in whole.items():
        torch.testing.assert_close(parts[name], weight, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("method", ["bbb", "plain"])
def test_weights_are_dropped_while_it_trains(method, task, train, tmp_path):
    schedule = ("--drop-to", "0.7", "--drop-from", "0.1", "--drop-until", "0.9")
    schedule = (*schedule, *(() if method == "plain" else ("--kl-warmup", "0")))
    rate = ("--hold-epochs", "1", "--decay", "0.5", "--method", method, "--no-calibrate")
    whole = train(tmp_path / "whole", *rate, *schedule, "--epochs", "2")
    halves = train(tmp_path / "halves", *rate, *schedule, "--epochs", "1")
    train(halves, "--resume", "--epochs", "2")
    assert model_hash(whole) == model_hash(halves)
    records = list(map(json.loads, (whole / "metrics.jsonl").read_text().splitlines()))
    assert [r["dropped_share"] for r in records if r["kind"] == "epoch"] == [0.7, 0.7]

    loaded = task.open_run(whole)
    weights = importance(loaded.net, loaded.method.mean_module(loaded.net))
    zeros = sum(int((values == 0).sum()) for values in weights.values())
    assert zeros == round(0.7 * sum(values.numel() for values in weights.values()))


@pytest.mark.parametrize("method", ["bbb", "plain"])
def test_it_is_pruned_and_the_file_is_evaluated(method, task, train, program, tmp_path):
    run = train(tmp_path / "run", "--method", method, *epochs(1, warmup="0"), "--no-calibrate")
    file, said = tmp_path / "small.safetensors", tmp_path / "said.json"
    options = ("--fractions", "0.3,0.5", "--fraction", "0.5", "--out", file, "--json", said)
    code, out, errors = program("prune", run, *options)
    assert code == 0, errors
    found = json.loads(said.read_text())
    assert list(found["curves"])[-2:] == ["magnitude", "random"]
    assert (next(iter(found["curves"])) == "signal-to-noise") == (method == "bbb")

    # Nothing dropped is what training has validated, in the unit that the loop shows.
    loaded, measure = task.open_run(run), task.measure(lambda file: (run / file).read_text())
    (epoch,) = [r for r in RunDirectory(run).metrics.read() if r["kind"] == "epoch"]
    assert found["full"]["nll"] == pytest.approx(epoch["valid_nll"], rel=1e-5)
    shown = found["full"]["value"] or found["full"]["perplexity"]
    assert shown == pytest.approx(measure.read(epoch, "valid_"), rel=1e-5)
    assert measure.text(shown) in out

    # Half of the weights by hand, as the file has them, which is read in place of a run.
    weights = importance(loaded.net, loaded.method.mean_module(loaded.net))
    flat = torch.cat([values.flatten() for values in weights.values()])
    assert found["shown_dropped"] == round(0.5 * len(flat)) == round(0.5 * found["weights"])
    limit = flat.sort(stable=True).values[found["shown_dropped"]]
    kept = read_compact(file).kept
    assert kept.keys() == weights.keys()
    for name, mask in kept.items():
        assert not bool((mask & (weights[name] < limit)).any())
    again = task.open_run(file)
    assert again.method.name == "plain"
    assert task_of(file) is task
    options = task.evaluate_options(**({"streams": 20} if task.name == "lm" else {}))
    valid = evaluate(task, file, EvaluationSettings(split="valid"), options).asked
    written = found["file"]["written"]
    if hasattr(valid, "nll"):  # what the metric is made from may be another than while training
        assert valid.nll == pytest.approx(written["nll"], rel=1e-4)
    else:
        value = measure.read({measure.key: getattr(valid, measure.key)})
        assert value == pytest.approx(written["value"], rel=1e-4)
    code, out, errors = program("evaluate", file)
    assert code == 0, errors

    if task.uncertainty() is not None and task.name != "captions":  # which needs other images
        code, out, errors = program("uncertainty", file, "--bootstrap", "0", "--samples", "2")
        assert code == 0, errors
        assert file.name in out

    other = next(name for name in TASKS if name != task.name)
    with pytest.raises(ConfigError, match=f"is a pruned network of `bayesrnn train {task.name}`"):
        TASKS[other].open_run(file)
    code, _, errors = program("prune", file)
    assert code == 1
    assert "is pruned already" in errors


def test_whole_units_are_dropped(task, train, program, tmp_path):
    run = train(tmp_path / "run", "--method", "bbb", *epochs(1), "--no-calibrate")
    file, said = tmp_path / "small.safetensors", tmp_path / "said.json"
    options = ("--units", "--fractions", "0.5,1", "--fraction", "0.5")
    code, out, errors = program("prune", run, *options, "--out", file, "--json", said)
    loaded = task.open_run(run)
    whole = loaded.method.mean_module(loaded.net)
    if not units_of(whole):
        assert code == 1
        assert "does not say what its units are" in errors
        return
    assert code == 0, errors
    found = json.loads(said.read_text())
    assert "Units that are left" in out
    assert 0 < found["shown_dropped"] <= 0.5 * found["weights"]
    assert any(layer["left"] < layer["units"] for layer in found["units"])
    assert found["file"]["written"]["nll"] == pytest.approx(
        found["file"]["masked"]["nll"], rel=1e-5
    )
    numbers = [
        sum(t.numel() for t in net.state_dict().values())
        for net in (task.open_run(file, device="cpu").net, whole)
    ]
    assert numbers[0] < numbers[1] or task.name == "lm"  # which can go on learning


def test_a_run_is_examined(task, train, program, tmp_path):
    run = train(tmp_path / "run", "--method", "bbb", *epochs(1))
    page, values = tmp_path / "page.html", tmp_path / "found.json"
    arguments = ("--samples", "2", "--html", page, "--json", values)
    code, out, errors = program("doctor", run, *arguments, "--device", "cpu")
    assert code == 0, errors
    assert "sigma did not learn" in out
    assert "sigma did not learn" in page.read_text()
    found = json.loads(values.read_text())
    assert found["gradients"].keys() == {"mu", "rho"}
    (epoch,) = [r for r in RunDirectory(run).metrics.read() if r["kind"] == "epoch"]
    if found["validation"] is None:
        assert "nll" not in epoch
    else:
        # The loop has validated with the same weights, in the user's unit and on the same data.
        loaded = task.open_run(run, device="cpu")
        data = task.load(loaded.config)
        problem = task.problem(loaded.config, data, loaded.method, loaded.net, loaded.device)
        unit = problem.loss_metrics(0.0).get("nll", 0.0)
        as_trained = found["validation"]["mean_as_trained"]
        assert as_trained["nll"] + unit == pytest.approx(epoch["valid_nll"], rel=1e-4)
        assert found["validation"]["samples"] == 2
        # Training has calibrated it, and given a verdict on it.
        verdict = json.loads((run / "verdict.json").read_text())
        bad = [one["words"] for one in verdict["findings"] if not one["good"]]
        explained = [one["title"] for one in found["verdict"]["explanations"]]
        assert explained[: len(bad)] == bad
        assert found["verdict"]["trusted"] == verdict["trusted"]
        assert "Verdict (on" in out


def test_training_ends_with_a_calibration_and_a_verdict(task, train, program, tmp_path, capsys):
    run = train(tmp_path / "run", "--method", "bbb", *epochs(1))
    if task.name == TOY:
        # It does not say how probable its data are, so that there is nothing to fit.
        assert not (run / "calibration.json").exists()
        code, _, errors = program("calibrate", run)
        assert code == 1
        assert "cannot be calibrated" in errors
        return
    loaded = task.open_run(run)
    calibration = loaded.calibrated()
    fitted = calibration.fitted
    assert calibration.step == loaded.step
    assert fitted.mean_nll_fitted <= fitted.mean_nll
    assert fitted.draws_nll_fitted <= fitted.draws_nll
    verdict = json.loads((run / "verdict.json").read_text())
    assert verdict["step"] == loaded.step
    assert verdict["text"].startswith("verdict")

    # What `evaluate` finds on the validation data is what was fitted.
    options = task.evaluate_options(**({"streams": 20} if task.name == "lm" else {}))
    found = {}
    for uncalibrated in (True, False):
        settings = EvaluationSettings(split="valid", samples=10, uncalibrated=uncalibrated)
        found[uncalibrated] = evaluate(task, run, settings, options).asked
    assert found[True].nll == pytest.approx(fitted.draws_nll, abs=1e-4)
    assert found[False].nll == pytest.approx(fitted.draws_nll_fitted, abs=1e-3)
    assert found[True].inference == "samples10"
    assert found[False].inference == "samples10-calibrated"
    assert found[False].scaling == calibration.scaling
    assert "temperature" in found[False].label

    # Beside the mean weights as they are stands what predicts best.
    rows = evaluate(task, run, EvaluationSettings(split="valid"), options).rows
    assert rows[0].inference == "mean"
    assert rows[1].inference in ("mean-calibrated", "samples10-calibrated")
    assert rows[1].nll == pytest.approx(
        min(fitted.mean_nll_fitted, fitted.draws_nll_fitted), abs=2e-3
    )

    # Another call finds the same; other weights have nothing of it.
    before = (run / "calibration.json").read_text()
    code, out, errors = program("calibrate", run)
    assert code == 0, errors
    assert verdict["text"] in out
    assert (run / "calibration.json").read_text() == before
    # All of so little data is what was fitted to.
    part, all_of_it = (task.score(loaded, task.load(loaded.config), w).score for w in (False, True))
    network = loaded.method.mean(loaded.net)
    with torch.no_grad():
        assert torch.equal(part(network, [1.0, 2.0]), all_of_it(network, [1.0, 2.0]))
    train(run, "--resume", "--epochs", "2", "--no-calibrate")
    assert (run / "calibration.json").read_text() == before
    assert task.open_run(run, "last").calibrated() is None
    assert "calibrated at step" in capsys.readouterr().err


@pytest.mark.parametrize("method", ["plain", "ensemble"])
def test_other_methods_train_it_too(method, task, train, tmp_path):
    run = train(tmp_path / method, "--method", method, *epochs(1, warmup="0"))
    found = evaluate(task, run, EvaluationSettings(split="valid"))
    assert {row.samples for row in found.rows} >= {0}
    assert task.open_run(run).config.method == method


def test_help_shows_the_task_and_its_options(task, task_name, program):
    code, out, _ = program("train", "--help")
    assert code == 0
    assert task_name in out
    code, out, _ = program("train", task_name, "--help")
    assert code == 0
    for item in fields(task.config_type):
        given = flag(f"no_{item.name}" if item.default is True else item.name)
        assert item.name in ("options", "lr_from") or given in out
    for command, own in (("evaluate", task.evaluate_options), ("prune", task.prune_options)):
        code, out, _ = program(command, "--help")
        assert code == 0
        for item in options_of(own):
            assert item.flag in out


def test_first_lines_of_help_are_those_of_the_commands(task_name):
    entry = TASKS.entries()[task_name]
    assert TASKS[task_name].summary == entry.summary
    for command in entry.commands.values():
        assert " ".join(command.load().__doc__.split()).startswith(command.summary)
