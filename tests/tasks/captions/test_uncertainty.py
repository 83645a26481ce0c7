"""`bayesrnn uncertainty` on captioners, and what it says to mistakes."""

import contextlib
import io
import json
import shutil
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from bayesrnn.cli.main import main
from bayesrnn.data.vocabulary import EOS, UNK
from bayesrnn.random import RandomStreams, seeded
from bayesrnn.tasks.captions import data as captions
from bayesrnn.tasks.captions import uncertainty as caption_uncertainty
from bayesrnn.tasks.captions.data import load_coco
from bayesrnn.tasks.captions.scores import score_captions
from bayesrnn.tasks.captions.search import CaptionSearch
from bayesrnn.tasks.captions.selective import rank_correlation
from bayesrnn.tasks.captions.task import TASK
from bayesrnn.uncertainty.draws import Draws

from ...conftest import TINY_SPLITS

METHODS = ("plain", "dropout", "bbb")
SAMPLES = (0, 1, 3)
SEED = 4
COCO_IMAGES = 15


@pytest.fixture(scope="module", autouse=True)
def data(tiny_flickr8k_folder, tmp_path_factory):
    """A data folder with a made-up Flickr8k and a made-up COCO of images like no other."""
    folder = tmp_path_factory.mktemp("both")
    shutil.copytree(tiny_flickr8k_folder / "flickr8k", folder / "flickr8k")
    coco = folder / "coco-val2017"
    coco.mkdir()
    names = [f"{number}.jpg" for number in range(COCO_IMAGES)]
    content = {
        "images": [{"id": number, "file_name": name} for number, name in enumerate(names)],
        "annotations": [{"image_id": n, "caption": "A red bus."} for n in range(len(names))],
    }
    (coco / "captions_val2017.json").write_text(json.dumps(content))
    features = np.random.default_rng(1).normal(size=(len(names), 1280)).astype(np.float16)
    np.savez(coco / "features-efficientnet-lite0.npz", names=np.array(names), features=features)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(captions, "_FLICKR_SPLITS", TINY_SPLITS)
        patch.setenv("BAYESRNN_DATA", str(folder))
        yield folder


@pytest.fixture(scope="module")
def captioners(data, tmp_path_factory):
    """A folder with a tiny captioner of some methods; nobody may change it."""
    folder = tmp_path_factory.mktemp("captioners")
    for method in METHODS:
        options = ["--method", method, "--epochs", "8", "--hidden", "16", "--batch-size", "16"]
        options += ["--lr", "0.01", "--threads", "1", "--device", "cpu", "--no-calibrate"]
        options += ["--kl-weight", "0.01"] if method == "bbb" else []
        out = str(folder / method)
        assert main(["train", "captions", *options, "--out", out]) == 0
    return folder


@pytest.fixture(scope="module")
def measured(captioners, tmp_path_factory):
    """All runs in one command: its output, its JSON and its page."""
    folder = tmp_path_factory.mktemp("measured")
    arguments = [*(captioners / method for method in METHODS), "--seed", SEED]
    arguments += ["--samples", ",".join(map(str, SAMPLES)), "--bootstrap", 30]
    arguments += ["--json", folder / "u.json", "--html", folder / "u.html"]
    with contextlib.redirect_stdout(io.StringIO()) as out:
        assert main(["uncertainty", *map(str, arguments)]) == 0
    found = json.loads((folder / "u.json").read_text())
    return out.getvalue(), found, (folder / "u.html").read_text(encoding="utf-8")


def levels(measured, method):
    (run,) = (run for run in measured[1] if run["method"] == method)
    return {level["samples"]: level for level in run["levels"]}


def test_everything_is_there_for_every_run(measured):
    out, found, page = measured
    assert [run["name"] for run in found] == list(METHODS)
    for run in found:
        assert (run["images"], run["unknown"]) == (12, COCO_IMAGES)
        assert [level["samples"] for level in run["levels"]] == list(SAMPLES)
        assert run["name"] in page
        for level in run["levels"]:
            doubts = level["doubts"]
            assert len(doubts["coverage"]) == len(doubts["score"]) == 10
            assert doubts["score"][-1] == pytest.approx(doubts["random"])
            assert doubts["oracle"] >= doubts["area"][0] - 1e-9
            for value, low, high in (doubts["area"], doubts["gain"], doubts["correlation"]):
                assert low <= high
                assert abs(value) <= 1000
            differ = run["method"] != "plain" and level["samples"] > 1
            assert (level["information"] is not None) == differ
            assert (level["unknown"]["by_information"] is not None) == differ
    assert max(map(len, out.splitlines())) <= 100
    assert "Telling images of coco-val2017 from those of flickr8k" in out
    assert "<script" not in page


def test_plain_is_the_same_whatever_the_draws(measured):
    found = levels(measured, "plain")
    for level in found.values():
        assert {**level, "samples": 0} == found[0]
    assert levels(measured, "bbb")[0]["confidence"] != levels(measured, "bbb")[3]["confidence"]


@torch.no_grad()
@pytest.mark.parametrize(("method", "samples"), [("plain", 0), ("bbb", 0), ("bbb", 3)])
def test_the_figures_image_by_image(captioners, measured, method, samples):
    """Each image by itself, each word by itself, and every pair of images."""
    trained = TASK.open_run(captioners / method)
    # The draws of all measured numbers come from one row, so they are the first of the most.
    draws = Draws(trained.method, trained.net, max(SAMPLES), seeded(SEED))
    networks = [draws[number] for number in range(samples)] or [draws.mean()]
    eos, unk = trained.vocabulary.index(EOS), trained.vocabulary.index(UNK)
    search = CaptionSearch(eos, (unk,), beam=3)

    def caption(features):
        """The words, the confidence and the information of one image."""
        best = search.captions(networks, features[None])[0][0]
        read = torch.tensor([eos, *best.words])[:, None]
        each = [network(read, features[None])[0][:, 0].double() for network in networks]
        single = torch.stack([logits.softmax(-1) for logits in each])
        mean = single.mean(0)
        said = mean.gather(1, torch.tensor([*best.words, eos])[:, None]).log().mean().item()
        apart = torch.special.entr(mean).sum(-1) - torch.special.entr(single).sum(-1).mean(0)
        return trained.vocabulary.decode(best.words), said, apart.mean().item()

    images = trained.captions().test
    words, sure, apart = zip(*map(caption, images.features), strict=True)
    _, other_sure, other_apart = zip(*map(caption, load_coco().features), strict=True)
    level = levels(measured, method)[samples]
    assert level["confidence"] == pytest.approx(np.mean(sure), abs=1e-5)
    assert level["unknown"]["confidence"] == pytest.approx(np.mean(other_sure), abs=1e-5)
    scores = 100 * score_captions(words, images.captions).cider
    assert level["doubts"]["random"] == pytest.approx(scores.mean().item())
    order = np.argsort(-np.array(sure))
    every = [scores[order[:size]].mean().item() for size in range(1, 13)]
    assert level["doubts"]["area"][0] == pytest.approx(np.mean(every))
    assert level["doubts"]["score"][4] == pytest.approx(every[5])
    correlation = rank_correlation(torch.tensor(sure), scores)
    assert level["doubts"]["correlation"][0] == pytest.approx(correlation)

    def auroc(regular, other):
        return np.mean([(two > one) + (two == one) / 2 for one in regular for two in other])

    told = level["unknown"]["by_confidence"]["auroc"][0]
    assert told == pytest.approx(auroc([-v for v in sure], [-v for v in other_sure]))
    if samples:
        assert level["information"] == pytest.approx(np.mean(apart), abs=1e-5)
        assert level["unknown"]["information"] == pytest.approx(np.mean(other_apart), abs=1e-5)
        told = level["unknown"]["by_information"]["auroc"][0]
        assert told == pytest.approx(auroc(apart, other_apart))


def test_cider_is_that_of_evaluate(captioners, measured, program, tmp_path):
    for method in ("bbb", "dropout"):
        copy = shutil.copytree(captioners / method, tmp_path / method)  # it gets results
        result = tmp_path / "result.json"
        arguments = ("--samples", 3, "--seed", SEED, "--json", result)
        code, _, errors = program("evaluate", copy, *arguments)
        assert code == 0, errors
        expected = json.loads(result.read_text())["scores"]["beam"]["CIDEr"]
        assert levels(measured, method)[3]["doubts"]["random"] == pytest.approx(expected)


def test_the_same_seed_gives_the_same(captioners, program):
    command = ("uncertainty", captioners / "bbb", "--samples", 2, "--bootstrap", 20, "--json", "-")
    found = [program(*command, "--seed", seed) for seed in (1, 1, 2)]
    assert [code for code, _, _ in found] == [0, 0, 0]
    values = [json.loads(out) for _, out, _ in found]  # nothing else is on the screen
    assert values[0] == values[1] != values[2]


@pytest.mark.parametrize("method", ["plain", "bbb"])
def test_the_progress_bar_ends_at_its_end(captioners, program, monkeypatch, method):
    work = []

    @contextlib.contextmanager
    def bar(total, unit, label):
        done = []
        yield SimpleNamespace(update=done.append)
        work.append((label, total, sum(done)))

    monkeypatch.setattr(caption_uncertainty, "progress_bar", bar)
    code, _, _ = program("uncertainty", captioners / method, "--samples", "0,1,3", "--bootstrap", 0)
    assert code == 0
    images = 12 + COCO_IMAGES
    # Three captions are pursued by each network, and the best is read once more.
    expected = (3 + 1) * images * (1 if method == "plain" else 1 + 1 + 3)
    assert work == [(method, expected, expected)]


def test_some_or_no_images_of_coco(captioners, program, tmp_path):
    command = ("uncertainty", captioners / "plain", "--samples", 0, "--bootstrap", 0)
    for given, expected in ((5, 5), (10**6, COCO_IMAGES), (0, 0)):
        result = tmp_path / f"{given}.json"
        code, out, errors = program(*command, "--coco", given, "--json", result)
        assert (code, errors) == (0, "")
        (run,) = json.loads(result.read_text())
        assert run["unknown"] == expected
        assert ("Telling images" in out) == (given > 0)


def test_some_images_of_coco_are_chosen_at_random(captioners, program, monkeypatch):
    """The first of a random order, which is the same for all runs and another for another seed."""
    seen = []
    speak = caption_uncertainty._speak

    def watched(trained, networks, features, advance):
        seen.append(features)
        return speak(trained, networks, features, advance)

    monkeypatch.setattr(caption_uncertainty, "_speak", watched)
    runs = [captioners / method for method in ("plain", "bbb")]
    options = ("--samples", 0, "--bootstrap", 0, "--coco", 5)
    everything = load_coco().features
    for seed in (1, 2):
        seen.clear()
        assert program("uncertainty", *runs, *options, "--seed", seed)[0] == 0
        order = torch.randperm(COCO_IMAGES, generator=RandomStreams(seed)["coco"])
        expected = everything[sorted(order[:5].tolist())]
        assert torch.equal(seen[1], expected)
        assert torch.equal(seen[3], expected)


def test_without_coco_the_rest_is_shown(
    captioners, program, tiny_flickr8k_folder, monkeypatch, tmp_path
):
    monkeypatch.setenv("BAYESRNN_DATA", str(tiny_flickr8k_folder))
    page = tmp_path / "u.html"
    command = ("uncertainty", captioners / "plain", "--samples", 0, "--bootstrap", 0)
    code, out, errors = program(*command, "--html", page)
    assert code == 0
    assert errors.startswith("the data folder has no captions or no features of coco-val2017, so ")
    assert len(errors.splitlines()) == 1
    assert "Does confidence follow CIDEr?" in out
    assert "Telling images" not in out + page.read_text()
    code, out, errors = program(*command, "--coco", 5)
    assert (code, out) == (1, "")
    assert "the data set 'coco-val2017' was not found" in errors


def test_a_damaged_coco_is_an_error(captioners, program, data, tmp_path, monkeypatch):
    copy = shutil.copytree(data, tmp_path / "data")
    (copy / "coco-val2017" / "captions_val2017.json").write_text("{}")
    monkeypatch.setenv("BAYESRNN_DATA", str(copy))
    code, _, errors = program("uncertainty", captioners / "plain")
    assert code == 1
    assert "is not a file of COCO's captions" in errors


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--shift", "ptb"], "--shift is for runs of `bayesrnn train lm`; leave it out"),
        (["--window", 10], "--window is for runs of `bayesrnn train lm`"),
        (["--streams", 1], "--streams is for runs of `bayesrnn train lm`"),
        (
            ["--random-words", 0.1, "--temperature-words", 9],
            "--random-words, --temperature-words are for runs of `bayesrnn train lm`; "
            "leave them out",
        ),
        (["--coco", -1], "--coco is -1; it has to be 0 (none) or more"),
        (["--samples", "1,two"], "--samples is '1,two'; give whole numbers"),
        (["--samples", "5,-1"], "--samples has -1; each has to be 0 (the mean weights) or more"),
        (["--bootstrap", -1], "--bootstrap is -1"),
        (["--seed", 10**30], "--seed is 1000000"),
        (["--html", "-"], "--html is -"),
        (["--json", "/proc/no/such.json"], "cannot write /proc/no/such.json"),
        (["--checkpoint", "7"], "7"),
    ],
)
def test_mistakes_are_one_line(captioners, program, arguments, said):
    code, out, errors = program("uncertainty", captioners / "plain", *arguments)
    assert (code, out) == (1, "")
    assert errors.startswith("bayesrnn: ")
    assert said in errors
    assert len(errors.splitlines()) == 1


def test_runs_of_one_kind_at_a_time(captioners, program, tmp_path):
    (tmp_path / "config.toml").write_text('task = "lm"\n')
    for runs in ((captioners / "plain", tmp_path), (tmp_path, captioners / "plain")):
        code, _, errors = program("uncertainty", *runs)
        assert code == 1
        assert "of `bayesrnn train captions`" in errors
        assert "give runs of one task at a time" in errors
        assert len(errors.splitlines()) == 1
    code, _, errors = program("uncertainty", tmp_path, "--coco", 5)
    assert code == 1
    assert "--coco is for runs of `bayesrnn train captions`; leave it out" in errors
