"""`prune --fine-tune`: what is left learns, what was dropped stays dropped."""

import json

import pytest
import torch

from bayesrnn.compression.file import read_compact
from bayesrnn.compression.pruning import without
from bayesrnn.compression.ranking import Ranking, droppable, magnitude
from bayesrnn.tasks.lm.fine_tuning import fine_tune
from bayesrnn.tasks.lm.task import TASK


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
    assert dropped / sum(mask.numel() for mask in compact.kept.values()) == pytest.approx(
        0.9, abs=1e-3
    )


def test_one_step_against_a_step_by_hand(runs):
    """One minibatch, no clipping: the kept weights move by -lr * gradient, the others do not."""
    trained = TASK.open_run(runs / "plain")
    kept = Ranking(magnitude(droppable(trained.net))).kept(0.5)
    pruned, before = without(trained.net, kept), without(trained.net, kept)
    train = trained.corpus().train
    config = trained.config
    count = len(train) // config.batch_size
    columns = train[: config.batch_size * count].view(config.batch_size, count).t()
    short = columns[: config.unroll + 1]

    class OneBatch:
        config = trained.config
        device = torch.device("cpu")

        def corpus(self):
            class Short:
                train = short.t().flatten()

            return Short

    object.__setattr__(trained.config, "clip", 0)
    calls = iter([2.0, 1.0])
    assert fine_tune(OneBatch(), pruned, kept, 1, 0.3, lambda module: next(calls)) == [2.0, 1.0]
    logits, _ = before(short[:-1], None)
    loss = -logits.log_softmax(-1).gather(-1, short[1:, :, None]).sum(0).mean()
    loss.backward()
    for name, parameter in before.named_parameters():
        if parameter.requires_grad:
            step = 0.3 * parameter.grad * kept.get(name, torch.tensor(True))
            found = pruned.get_parameter(name)
            torch.testing.assert_close(found, parameter - step, rtol=1e-4, atol=1e-6)


def test_the_best_is_kept(runs):
    trained = TASK.open_run(runs / "plain")
    kept = Ranking(magnitude(droppable(trained.net))).kept(0.5)
    pruned = without(trained.net, kept)
    seen, calls = [], iter([3.0, 1.0, 2.0])

    def measure(module):
        seen.append({name: value.clone() for name, value in module.state_dict().items()})
        return next(calls)

    fine_tune(trained, pruned, kept, 2, 0.1, measure)
    for name, value in pruned.state_dict().items():
        assert torch.equal(value, seen[1][name])


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
