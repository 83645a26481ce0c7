"""The uncertainty of classifiers of digits, and the images that they should not know."""

import gzip
import json

import numpy as np
import pytest
import torch

from bayesrnn.errors import CorpusError
from bayesrnn.tasks.mnist.data import BRIGHTEST, other_images
from bayesrnn.tasks.mnist.shifts import SHIFTS


def idx_file(folder, images):
    folder.mkdir()
    header = bytes([0, 0, 8, 3]) + np.array(images.shape, ">u4").tobytes()
    data = gzip.compress(header + images.tobytes())
    (folder / "t10k-images-idx3-ubyte.gz").write_bytes(data)
    return folder


def made(name, images, seed=0):
    return SHIFTS[name](images, torch.Generator().manual_seed(seed))


def test_shifts_keep_what_they_say():
    images = torch.arange(18.0).view(2, 9) / 18
    square = torch.tensor([[2.0, 5, 8], [1, 4, 7], [0, 3, 6]]).flatten() / 18
    torch.testing.assert_close(made("rotated", images)[0], square)
    torch.testing.assert_close(made("inverted", images) + images, torch.full((2, 9), BRIGHTEST))
    permuted = made("permuted", images)
    assert not torch.equal(permuted, images)
    assert torch.equal(permuted.sort().values, images)
    torch.testing.assert_close(permuted[1] - permuted[0], torch.full((9,), 0.5))
    noise = made("noise", images.expand(200, 2, 9).reshape(400, 9))
    assert 0 <= noise.min() < 0.01 < BRIGHTEST - 0.01 < noise.max() <= BRIGHTEST
    assert noise.mean().item() == pytest.approx(BRIGHTEST / 2, rel=0.05)


def test_images_of_another_set(tmp_path):
    pixels = np.arange(5 * 64, dtype=np.uint8).reshape(5, 8, 8)
    found = other_images(idx_file(tmp_path / "other", pixels), pixels=64)
    np.testing.assert_allclose(found.images.numpy(), pixels.reshape(5, 64) / 126, rtol=1e-6)


@pytest.mark.parametrize(
    ("shape", "pixels", "message"),
    [
        ((5, 8, 8), 784, "holds 5 x 8 x 8 values instead of 5 x 28 x 28"),
        ((0, 8, 8), 64, "holds no images"),
    ],
)
def test_images_that_do_not_fit(tmp_path, shape, pixels, message):
    folder = idx_file(tmp_path / "other", np.zeros(shape, np.uint8))
    with pytest.raises(CorpusError, match=message):
        other_images(folder, pixels)


def test_a_folder_without_images(tmp_path):
    with pytest.raises(CorpusError, match="give a folder with the test images of Fashion-MNIST"):
        other_images(tmp_path, 64)


def test_what_the_program_finds(program, tmp_path):
    pytest.importorskip("sklearn")
    run = tmp_path / "run"
    small = ("--images", "digits", "--hidden", "24", "--batch-size", "64", "--epochs", "6")
    settings = ("--method", "bbb", "--lr", "0.01", "--device", "cpu", "--threads", "1")
    code, _, errors = program("train", "mnist", *small, *settings, "--out", run)
    assert code == 0, errors
    images = np.random.default_rng(0).integers(0, 256, (40, 8, 8), dtype=np.uint8)
    other, page, result = idx_file(tmp_path / "other", images), tmp_path / "p.html", tmp_path / "r"
    options = ("--samples", "0,3", "--bootstrap", "20", "--shift", other)
    code, out, errors = program("uncertainty", run, *options, "--html", page, "--json", result)
    assert code == 0, errors
    assert "Telling shifted from regular images" in out
    assert "Reliability" in page.read_text()
    (found,) = json.loads(result.read_text())
    mean, drawn = found["levels"]
    assert list(mean["shifts"]) == [*SHIFTS, "other"]
    assert (mean["sizes"][""], mean["sizes"]["other"]) == (300, 40)
    assert set(drawn["withholding"]) == {"H", "1-p", "MI"}
    # Noise is told apart, and errors are among the doubtful answers.
    assert drawn["shifts"]["noise"]["H"]["detection"]["auroc"][0] > 0.7
    risk = drawn["withholding"]["H"]["risk"]
    assert risk[len(risk) // 2] < risk[-1] == pytest.approx(drawn["metrics"]["error"])
    code, out, errors = program("evaluate", run, "--samples", "0", "--json", "-")
    assert json.loads(out)["error"] == pytest.approx(mean["metrics"]["error"])
    # Measured are the probabilities that every command gives: calibrated, unless it is told not to.
    for option, name in (((), "samples3-calibrated"), (("--uncalibrated",), "samples3")):
        code, _, errors = program("uncertainty", run, *options, *option, "--json", result)
        assert code == 0, errors
        assert ("calibrated on validation data" in errors) == (not option)
        program("evaluate", run, "--samples", "3", *option)
        expected = json.loads((run / "results" / f"test-{name}.json").read_text())["nll"]
        drawn = json.loads(result.read_text())[0]["levels"][1]
        assert drawn["metrics"]["NLL"] == pytest.approx(expected, rel=1e-5)
    code, _, errors = program("uncertainty", run, "--shift", tmp_path / "nowhere")
    assert code != 0
    assert "Fashion-MNIST" in errors
