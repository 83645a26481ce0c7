"""The short examples run, with few steps, and print what they say."""

import pytest
import torch

import bayesrnn as br


@pytest.fixture(autouse=True)
def own_generator():
    with torch.random.fork_rng():
        yield


def test_packed_gru(run_example):
    methods = ["plain", "bbb", "variational-dropout"]
    lines = run_example("packed_gru", "--epochs", "1", "--texts", "100", "--methods", *methods)
    rows = [line.strip("| ").split(" | ") for line in lines[2:]]
    assert [row[0] for row in rows] == methods
    assert all(0 <= float(row[1]) <= 1 for row in rows)
    assert [float(row[4]) > 0 for row in rows] == [False, True, True]


def test_language_model(run_example):
    lines = run_example("language_model", "--epochs", "2", "--hidden", "16", "--words", "8000")
    first, second = (float(line.split()[-1]) for line in lines[:2])
    assert second < first
    assert lines[2].split()[-1] == "epistemic"
    assert len(lines) == 13
    assert all(len(line.split()) == 4 and float(line.split()[-1]) >= 0 for line in lines[3:])


@pytest.mark.filterwarnings("ignore")  # of another package's making
def test_lightning_module(run_example):
    pytest.importorskip("lightning", reason="the example is for those who have it")
    lines = run_example("lightning_module", "--epochs", "2")
    assert lines[-1].startswith("mean epistemic uncertainty 0.")


@pytest.mark.filterwarnings("ignore")
def test_accelerate_loop(run_example):
    pytest.importorskip("accelerate", reason="the example is for those who have it")
    lines = run_example("accelerate_loop", "--epochs", "2")
    assert lines[-1].startswith("mean epistemic uncertainty 0.")


def test_what_predict_returns_can_be_copied_field_by_field():
    """As Lightning does with what `predict_step` returns."""
    copy_to = pytest.importorskip("lightning_utilities.core.apply_func", reason="torchmetrics' own")
    x = torch.zeros(2, 3)
    net = br.Bayesian(torch.nn.Linear(3, 2))
    for head in (br.Classes(), br.Regression(noise=0.1)):
        found = br.predict(net, x, samples=2, head=head)
        moved = copy_to.apply_to_collection(found, torch.Tensor, lambda tensor: tensor.double())
        assert moved.mean.dtype == torch.double
        assert torch.equal(moved.epistemic.float(), found.epistemic)
