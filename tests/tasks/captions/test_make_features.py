"""`bayesrnn features`: a folder of images becomes the file that captioners learn from."""

import shutil
import signal

import numpy as np
import pytest
import torch

from bayesrnn.tasks.captions import make_features
from bayesrnn.tasks.captions.features import FEATURE_WIDTH, FEATURES_FILE, read_features
from bayesrnn.tasks.captions.image_network import ImageNetwork

Image = pytest.importorskip("PIL.Image", reason="the extra `captions` brings Pillow")


@pytest.fixture
def looks(monkeypatch):
    """A stand-in for the image network, whose features are the mean red; and what it looked at."""
    looked = []

    class Reds(torch.nn.Module):
        def extract_features(self, pixels):
            reds = (pixels[:, 0].mean((1, 2)) * 128 + 127).round()
            looked.extend(reds.tolist())
            return reds[:, None, None, None].expand(-1, FEATURE_WIDTH, 2, 2)

    network = ImageNetwork(Reds())
    monkeypatch.setattr(make_features, "load_image_network", lambda: network)
    return looked


def picture(path, red):
    path.parent.mkdir(exist_ok=True)
    Image.new("RGB", (40, 30), (red, 9, 99)).save(path)
    return path


@pytest.fixture
def folder(tmp_path):
    for number in range(6):
        picture(tmp_path / "holidays" / f"{number}.png", 10 * number)
    return tmp_path / "holidays"


def reds(path):
    found = read_features(path)
    return dict(zip(found.names, found.features[:, 7].tolist(), strict=True))


def test_a_folder_and_later_what_was_added(folder, looks, program):
    code, _, said = program("features", folder)
    path = folder / FEATURES_FILE
    assert (code, said) == (0, f"{path} has the features of 6 images\n")
    assert reds(path) == {f"{n}.png": 10.0 * n for n in range(6)}
    with np.load(path) as file:
        assert file["features"].dtype == np.float16
    picture(folder / "new.png", 200)
    looks.clear()
    code, _, said = program("features", folder)
    assert said == f"{path} has the features of 7 images, of which 6 were there already\n"
    assert looks == [200]
    assert reds(path)["new.png"] == 200
    before = path.read_bytes()
    assert program("features", folder)[0] == 0
    assert path.read_bytes() == before


def test_what_a_captioner_sees_of_an_image_is_in_the_file(folder, looks, program, tmp_path):
    out = tmp_path / "made" / "here.npz"
    files = [folder / "4.png", folder / "2.png"]
    assert program("features", *files, "--out", out)[0] == 0
    assert list(reds(out).items()) == [("4.png", 40), ("2.png", 20)]


def test_an_image_that_cannot_be_read_stops_no_other(folder, looks, program):
    (folder / "3.png").write_bytes(b"no image")
    code, _, said = program("features", folder)
    assert code == 1
    first, whole, last = said.splitlines()
    assert first.startswith(f"left out: {folder / '3.png'}")
    assert whole.endswith("has the features of 5 images")
    assert last.startswith("bayesrnn: 1 image could not be read")
    assert "3.png" not in reds(folder / FEATURES_FILE)
    again = program("features", folder)
    assert again[0] == 1
    assert "has the features of 5 images, of which 5 were there already" in again[2]
    code, _, said = program("features", folder / "3.png", "--out", folder / "one.npz")
    assert code == 1
    assert said.startswith(f"bayesrnn: {folder / '3.png'} is not an image")


def test_it_goes_on_where_it_was_stopped(folder, looks, program, monkeypatch):
    """The signal comes while the first images are looked at."""
    network = make_features.load_image_network()
    look = network.convolutional.extract_features

    def stopped(pixels):
        signal.raise_signal(signal.SIGTERM)
        return look(pixels)

    with monkeypatch.context() as patch:
        patch.setattr(network.convolutional, "extract_features", stopped)
        code, _, said = program("features", folder)
    path = folder / FEATURES_FILE
    assert code == 128 + signal.SIGTERM
    assert f"stopped with the features of 4 images in {path}; the same command goes on" in said
    assert len(reds(path)) == 4
    looks.clear()
    assert program("features", folder)[0] == 0
    assert looks == [40, 50]
    assert len(reds(path)) == 6


def test_it_is_saved_on_the_way(folder, looks, program, monkeypatch):
    monkeypatch.setattr(make_features, "_SAVED_EACH", 4)
    sizes = []
    write = make_features.write_features
    monkeypatch.setattr(
        make_features,
        "write_features",
        lambda path, names, features: (sizes.append(len(names)), write(path, names, features)),
    )
    assert program("features", folder)[0] == 0
    assert sizes == [4, 6]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "no images were given"),
        (["{0}/1.png"], "say which file to write: --out features.npz"),
        (["{0}", "--out", "{0}/f.csv"], "its ending has to be .npz"),
        (["{0}/no"], "there is no file {0}/no"),
        (["{0}", "{0}/1.png", "--out", "{0}/f.npz"], "several images have the name 1.png"),
        (["{0}", "--out", "{0}/damaged.npz"], "damaged.npz is not an .npz file, or damaged"),
    ],
)
def test_what_is_refused(arguments, words, folder, looks, program):
    (folder / "damaged.npz").write_bytes(b"PK")
    code, _, said = program("features", *(one.format(folder) for one in arguments))
    assert code == 1
    assert said.count("\n") == 1
    assert words.format(folder) in said
    assert looks == []


def test_a_captioner_learns_from_them(tiny_flickr8k, looks, program, tmp_path, monkeypatch):
    """The file of Flickr8k is made from its images, and `train captions` reads it."""
    data = shutil.copytree(tiny_flickr8k, tmp_path / "data")
    monkeypatch.setenv("BAYESRNN_DATA", str(data))
    path = data / "flickr8k" / FEATURES_FILE
    names = read_features(path).names
    path.unlink()
    for number, name in enumerate(names):
        picture(tmp_path / "images" / name, number % 200)
    assert program("features", tmp_path / "images", "--out", path)[0] == 0
    given = ["--hidden", "8", "--epochs", "1", "--no-calibrate", "--out", tmp_path / "run"]
    code, _, said = program("train", "captions", "--method", "plain", *given)
    assert code == 0, said
