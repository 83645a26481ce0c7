"""`prune --fine-tune`: what is left learns, what was dropped stays dropped."""

import copy
import json
from dataclasses import replace

import pytest
import torch

from bayesrnn.compression.file import read_compact
from bayesrnn.compression.pruning import without
from bayesrnn.compression.ranking import Ranking, droppable, magnitude, signal_to_noise
from bayesrnn.runs import fine_tuning
from bayesrnn.runs.fine_tuning import fine_tune
from bayesrnn.runs.start import make_trainer
from bayesrnn.tasks.lm.task import TASK, LanguageModelProblem


@pytest.mark.parametrize("method", ["plain", "dropout", "bbb"])
def test_fine_tuning_helps_and_keeps_the_zeros(method, runs, program, tmp_path):
    file, result = tmp_path / "small.safetensors", tmp_path / "r.json"
    options = ("--fractions", "0", "--fraction", "0.9", "--fine-tune", 3, "--fine-tune-lr", 0.5)
    code, out, errors = program(
        *("prune", runs / method, *options, "--out", file, "--json", result)
    )
    assert code == 0, errors
    written = json.loads(result.read_text())["file"]
    passed = [point["perplexity"] for point in written["tuned"]]
    assert len(passed) == 4
    assert min(passed) < passed[0]
    assert written["written"]["perplexity"] == pytest.approx(min(passed), rel=1e-6)
    assert "fine-tuned" in " ".join(out.split())
    compact = read_compact(file)
    for name, mask in compact.kept.items():
        assert (compact.weights[name][~mask] == 0).all()
    dropped = sum(int((~mask).sum()) for mask in compact.kept.values())
    # A few more are those of units that do nothing any more.
    assert dropped / sum(mask.numel() for mask in compact.kept.values()) == pytest.approx(
        0.905, abs=0.0055
    )


def test_one_step_against_a_step_by_hand(runs):
    """One minibatch, no clipping: the kept weights move by -lr * gradient, the others do not."""
    trained = TASK.open_run(runs / "plain")
    config = replace(trained.config, clip=0.0, average=0.0)
    kept = Ranking(magnitude(droppable(trained.net))).kept(0.5)
    corpus = trained.corpus()
    count = len(corpus.train) // config.batch_size
    columns = corpus.train[: config.batch_size * count].view(config.batch_size, count).t()
    short = columns[: config.unroll + 1]
    data = replace(corpus, train=short.t().flatten())
    tuned, nlls = fine_tune(TASK, replace(trained, config=config), data, kept, 1, 0.01)
    assert nlls[1] < nlls[0]
    before = without(trained.net, kept)
    logits, _ = before(short[:-1], None)
    loss = -logits.log_softmax(-1).gather(-1, short[1:, :, None]).sum(0).mean()
    loss.backward()
    for name, parameter in before.named_parameters():
        if parameter.requires_grad:
            step = 0.01 * parameter.grad * kept.get(name, torch.tensor(True))
            found = tuned.get_parameter(name)
            torch.testing.assert_close(found, parameter - step, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("best", [0, 1, 2])
def test_the_best_is_kept(best, runs, monkeypatch):
    trained = TASK.open_run(runs / "plain")
    kept = Ranking(magnitude(droppable(trained.net))).kept(0.5)
    seen, nlls = [], [3.0, 3.0, 3.0]
    nlls[best] = 1.0

    def validate(problem):
        seen.append(copy.deepcopy(problem.net.state_dict()))
        return {"nll": nlls[len(seen) - 1], "perplexity": 2.0}

    monkeypatch.setattr(LanguageModelProblem, "validate", validate)
    tuned, found = fine_tune(TASK, trained, trained.corpus(), kept, 2)
    assert found == nlls
    for name, value in tuned.state_dict().items():
        assert torch.equal(value, seen[best][name])


def test_a_posterior_goes_on_as_one(runs, monkeypatch):
    """Its widths are trained too, by the run's options, at a tenth of the run's rate."""
    trained = TASK.open_run(runs / "bbb")
    rho = copy.deepcopy(trained.net.rho.state_dict())
    kept = Ranking(signal_to_noise(trained.net)).kept(0.5)
    made = []

    def make(*arguments):
        made.append(make_trainer(*arguments))
        return made[-1]

    monkeypatch.setattr(fine_tuning, "make_trainer", make)
    tuned, _ = fine_tune(TASK, trained, trained.corpus(), kept, 1)
    (trainer,) = made
    assert tuned is trainer.net.module
    assert trainer.optimiser.param_groups[0]["lr"] == pytest.approx(trained.config.lr / 10)
    assert trainer.method.options == trained.method.options
    for name, mask in kept.items():
        after = trainer.net.rho.get_parameter(name)
        assert torch.equal(trainer.net.dropped()[name], ~mask)
        assert not torch.equal(after[mask], rho[name][mask])
    for name, value in trained.net.rho.state_dict().items():
        assert torch.equal(value, rho[name]), "the run itself stays as it is"


def test_methods_that_cannot_drop_are_refused(runs, program, tmp_path):
    options = ("--fraction", "0.5", "--fine-tune", "1", "--out", tmp_path / "f.safetensors")
    code, _, errors = program("prune", runs / "sgld", "--fractions", "0", *options)
    assert code == 1
    assert "a run of sgld cannot be trained further without some of its weights" in errors


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--fine-tune", -1), "--fine-tune is -1"),
        (("--fine-tune-lr", 0), "--fine-tune-lr is 0"),
        (("--fine-tune", 1), "--fine-tune trains what --out writes"),
    ],
)
def test_mistakes(options, said, runs, program):
    code, _, errors = program("prune", runs / "plain", *options)
    assert code == 1
    assert said in errors


def test_files_are_no_runs(runs, program, tmp_path):
    file = tmp_path / "small.safetensors"
    assert (
        program("prune", runs / "plain", "--fractions", 0, "--fraction", 0.5, "--out", file)[0] == 0
    )
    assert "is a file" in program("compare", file)[2]
    assert "is a file" in program("tune-dynamic", file)[2]
