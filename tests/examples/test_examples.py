"""The short examples run, with few steps, and print what they say."""

import numpy as np
import pytest
import torch

import bayesrnn as br
from bayesrnn.tasks.captions.features import write_features


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


def test_forecasting(run_example, tmp_path):
    days = np.datetime64("2023-01-02") + np.arange(400)
    sales = 150 + 40 * (np.arange(400) % 7 < 5) + np.random.default_rng(1).integers(20, size=400)
    rows = [f"{day},{value}" for day, value in zip(days, sales, strict=True)]
    (tmp_path / "sales.csv").write_text("\n".join(["ds,y", *rows]) + "\n")
    few = ["--epochs", "1", "--windows", "20", "--hidden", "4", "--samples", "2", "--horizon", "7"]
    few += ["--methods", "bbb"]
    picture = tmp_path / "sales.png"
    lines = run_example("forecasting", str(tmp_path / "sales.csv"), *few, "--plot", str(picture))
    method, mase, *_, epistemic = lines[2].strip("| ").split(" | ")
    assert method == "bbb"
    assert float(mase) > 0
    assert float(epistemic.rstrip("%")) > 0
    assert lines[3] == "bbb:"
    assert "7 steps ahead, 2024-02-12" in lines[4]
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_own_captions_of_drawn_pictures(run_example):
    lines = run_example("own_captions", "--images", "60", "--epochs", "8", "--hidden", "16")
    first, last = (float(line.split()[2]) for line in lines[:2])
    assert last < first
    assert lines[2].split() == ["image", "confidence", "epistemic", "caption"]
    confidences = [float(line.split()[1]) for line in lines[3:-1]]
    assert confidences == sorted(confidences)
    assert all(line.split()[0][-5] in "05" for line in lines[3:-1]), "held out is every fifth"
    assert lines[-1].startswith("as somebody wrote it: 0.")


def test_own_captions_of_a_file_of_features(run_example, tmp_path):
    """What `bayesrnn features` writes, and a table; images without features are left out."""
    names = [f"{number}.jpg" for number in range(100)]
    features = torch.eye(2)[torch.arange(100) % 2].repeat(1, 640)
    write_features(tmp_path / "features.npz", names, features)
    rows = [f"{name},A {('cat', 'dog')[at % 2]} sleeps" for at, name in enumerate(names)]
    (tmp_path / "captions.csv").write_text("\n".join(["image,caption", *rows, "x.jpg,a bird"]))
    given = ["--captions", tmp_path / "captions.csv", "--features", tmp_path / "features.npz"]
    lines = run_example("own_captions", *map(str, given), "--epochs", "40", "--hidden", "16")
    assert len(lines) == 20
    assert lines[-1].startswith("as somebody wrote it: 1.00")
    assert {line.split(maxsplit=3)[3] for line in lines[9:-1]} == {"a cat sleeps", "a dog sleeps"}


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
