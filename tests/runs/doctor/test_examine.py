"""Runs of every method, examined."""

import shutil

import pytest
import torch

from bayesrnn.core.bayesian import Bayesian
from bayesrnn.methods import METHODS
from bayesrnn.random import RandomStreams
from bayesrnn.runs.calibration import Calibration, write_calibration
from bayesrnn.runs.doctor.examine import build_anew, examine
from bayesrnn.runs.load import make_method
from bayesrnn.runs.verdict import read_verdict, write_verdict
from bayesrnn.tasks import TASKS
from bayesrnn.training.checkpoints import CheckpointStore
from bayesrnn.uncertainty.fitting import FittedScaling
from bayesrnn.uncertainty.scaling import Scaling

from ...conftest import METHODS as TRAINED
from ...conftest import model_hash

LM = TASKS["lm"]


def untrained(path):
    """The network of a run as its training began."""
    config = LM.open_run(path, device="cpu").config
    streams = RandomStreams(config.seed)
    files = {"vocabulary.txt": (path / "vocabulary.txt").read_text()}
    return LM.build(config, files, make_method(config, streams), streams)


@pytest.mark.parametrize("method", TRAINED)
def test_a_run_of_every_method_is_examined_and_left_as_it_is(method, runs, tmp_path):
    path = shutil.copytree(runs / method, tmp_path / method)
    before = {file: file.read_bytes() for file in path.rglob("*") if file.is_file()}
    found = examine(LM, path, device="cpu", samples=2)
    assert {file: file.read_bytes() for file in path.rglob("*") if file.is_file()} == before
    own = METHODS[method].own_optimiser
    has_posterior = method in ("bbb", "sharpened", "ivon")
    assert bool(found.tensors) == has_posterior
    assert found.gradients.keys() == (
        set() if own else {"mu", "rho"} if has_posterior else {"weights"}
    )
    assert all(noise.noise > 0 for noise in found.gradients.values())
    assert len(found.left_out) == own + (not has_posterior) + (method == "ivon")
    assert 0 < found.validation.mean.nll < 10
    assert (found.validation.draws is None) == (method == "plain")
    assert found.nats.train.mean < found.nats.base + 2
    assert found.course.epochs == 1
    assert not found.nats.numbers
    config = LM.open_run(path, device="cpu").config
    assert found.settings.options == config.options
    assert found.settings.average == (config.average or 0)
    assert found.settings.can_average == METHODS[method].can_average


def test_the_start_is_that_of_the_untrained_network(runs):
    anew = build_anew(LM, LM.open_run(runs / "bbb", device="cpu"))
    start = untrained(runs / "bbb").sigmas()
    assert anew.start.keys() == start.keys()
    for name, sigma in anew.start.items():
        assert torch.equal(sigma, start[name])
        assert not torch.equal(sigma, anew.posterior.sigmas()[name])
    saved = CheckpointStore(runs / "bbb").load_model("best").model
    assert torch.equal(anew.net.state_dict()["rho.output.weight"], saved["rho.output.weight"])


def test_the_divergence_is_shared_by_the_predictions_of_an_epoch(runs):
    found = examine(LM, runs / "bbb", device="cpu", samples=0)
    predictions = found.minibatches * 4 * 10  # rows, and words of a row
    assert found.nats.kl == pytest.approx(sum(one.kl for one in found.tensors) / predictions)
    charged = found.nats.kl_weight * found.nats.kl
    assert found.nats.free_energy == pytest.approx(found.nats.train.draws + charged)
    assert found.validation.draws is None


def test_of_an_ensemble_of_posteriors_one_member_is_shown(train_arguments, program, tmp_path):
    options = ("--method", "ensemble", "--base", "bbb", "--members", "2", "--epochs", "1")
    run = tmp_path / "run"
    code, _, errors = program(*train_arguments, *options, "--out", run)
    assert code == 0, errors
    anew = build_anew(LM, LM.open_run(run, device="cpu"))
    members = [module for module in untrained(run).modules() if isinstance(module, Bayesian)]
    for name, sigma in members[1].sigmas().items():  # the last that was trained
        assert torch.equal(anew.start[name], sigma)
    found = examine(LM, run, device="cpu", samples=2)
    assert [one.name for one in found.tensors] == list(members[1].names)
    assert found.gradients.keys() == {"mu", "rho"}


def test_a_calibration_counts_for_its_own_checkpoint_alone(runs, program, tmp_path):
    run = shutil.copytree(runs / "bbb", tmp_path / "run")
    step = CheckpointStore(run).load_model("best").step
    file = run / "calibration.json"
    fitted = FittedScaling(Scaling(noise=0.4), 2, 100, 3.0, 2.9, 2.8, 2.7)
    for stored, counts in ((step, True), (step - 1, False)):
        write_calibration(run, Calibration(stored, 2, 1, "word", fitted))
        found = examine(LM, run, device="cpu", samples=0).calibration
        assert (found is not None) == counts
    file.write_text("{")
    code, _, errors = program("doctor", run)
    assert code == 1
    assert "calibration.json is damaged" in errors


def test_validation_data_are_predicted_as_calibrated(runs, tmp_path):
    """Draws without noise at the temperature of the mean are the mean."""
    run = shutil.copytree(runs / "bbb", tmp_path / "run")
    before = examine(LM, run, device="cpu", samples=2).validation
    fitted = FittedScaling(Scaling(1e-6, 3.0, 3.0), 2, 100, 3.0, 2.9, 2.8, 2.7)
    step = CheckpointStore(run).load_model("best").step
    write_calibration(run, Calibration(step, 2, 1, "word", fitted))
    found = examine(LM, run, device="cpu", samples=2).validation
    assert found.mean_as_trained == before.mean
    assert before.mean_as_trained is None
    assert found.mean.entropy > before.mean.entropy
    assert found.draws.nll == pytest.approx(found.mean.nll, abs=1e-4)


def test_the_verdict_of_the_run_is_found_with_its_step(runs, program, tmp_path):
    run = shutil.copytree(runs / "bbb", tmp_path / "run", symlinks=True)
    assert examine(LM, run, device="cpu", samples=0).kept_verdict is None
    code, out, errors = program("calibrate", run, "--samples", "2", "--device", "cpu")
    assert code == 0, errors
    found = examine(LM, run, device="cpu", samples=0)
    assert found.verdict.line in out + errors
    assert found.kept_verdict == read_verdict(run)
    assert found.kept_verdict.step == found.step
    write_verdict(run, found.verdict, found.step + 1)
    other = examine(LM, run, device="cpu", samples=0)
    assert other.verdict is None
    assert other.kept_verdict.verdict == found.verdict
    (run / "verdict.json").write_text('{"findings": 3}')
    assert examine(LM, run, device="cpu", samples=0).kept_verdict is None


def test_wrong_data_and_files_are_refused_in_words(runs, program, tmp_path, train_arguments):
    file = tmp_path / "file"
    file.write_text("")
    code, _, errors = program("doctor", file)
    assert code == 1
    assert "give one of `bayesrnn prune --out`, or the folder of a run" in errors
    text = tmp_path / "own.txt"
    text.write_text("the cat sat on the mat and the dog sat on the log .\n" * 200)
    arguments = [*train_arguments, "--method", "plain", "--epochs", "1", "--out", tmp_path / "run"]
    arguments[arguments.index("--corpus") + 1] = text
    code, _, errors = program(*arguments)
    assert code == 0, errors
    text.write_text("the cat sat on the mat and the dog sat on the cat .\n" * 200)
    code, _, errors = program("doctor", tmp_path / "run")
    assert code == 1
    assert "give back the same" in errors


def test_gradients_are_taken_without_learning(runs):
    before = model_hash(runs / "bbb")
    first, second = (examine(LM, runs / "bbb", device="cpu", samples=0) for _ in range(2))
    assert first == second
    assert model_hash(runs / "bbb") == before
