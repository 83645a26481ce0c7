"""The baseline without training: kept, and made again where it would be another one."""

import json
from dataclasses import replace

import pytest
import torch

from bayesrnn.tasks.captions import baseline as captions_baseline
from bayesrnn.tasks.captions.baseline import consensus_captions, consensus_of
from bayesrnn.tasks.captions.evaluate import consensus_row
from bayesrnn.tasks.captions.task import TASK


@pytest.fixture
def captions(tiny_flickr8k):
    return TASK.load(TASK.resolve({"method": "plain"}))


@pytest.fixture
def searches(monkeypatch):
    """A list that grows whenever captions of similar images are looked for."""
    made = []

    def counted(*arguments):
        made.append(1)
        return consensus_captions(*arguments)

    monkeypatch.setattr(captions_baseline, "consensus_captions", counted)
    return made


@pytest.fixture
def baseline(captions, tmp_path):
    """The row of a run, which is kept; parts of the data can be others."""

    def row(known=captions.train, images=captions.test):
        consensus = consensus_of(tmp_path, known, "test", images, neighbours=9)
        found = consensus_row(consensus, images).as_json(all_fields=True)
        file = tmp_path / "results" / "test-consensus9.json"
        file.parent.mkdir(exist_ok=True)
        file.write_text(json.dumps(found))
        return found

    return row


def _renamed(images):
    return replace(images, names=("another.jpg", *images.names[1:]))


def _other_caption(images):
    (_, *rest), *others = images.captions
    return replace(images, captions=((("a", "whale"), *rest), *others))


def _other_feature(images):
    features = images.features.clone()
    features[0, 0] += 1
    return replace(images, features=features)


@pytest.mark.parametrize("change", [_renamed, _other_caption, _other_feature])
@pytest.mark.parametrize("part", ["known", "images"])
def test_other_data_has_another_baseline(part, change, captions, baseline, searches):
    first = baseline()
    assert baseline() == first
    assert len(searches) == 1, "the same data: it was kept"
    split = {"known": captions.train, "images": captions.test}[part]
    other = baseline(**{part: change(split)})
    assert len(searches) == 2
    assert other["made_from"] != first["made_from"]
    assert [entry["image"] for entry in other["captions"]] == list(
        (change(split) if part == "images" else captions.test).names
    )


@pytest.mark.parametrize(
    "damage",
    [
        {"captions": 3},
        {"captions": {}},
        {"captions": [{"image": "test0.jpg"}]},
        {"captions": [{"image": "test0.jpg", "consensus": 5}]},
        {"captions": []},
        {"made_from": None},
    ],
)
def test_what_is_damaged_is_made_again(damage, baseline, searches, tmp_path):
    first = baseline()
    file = tmp_path / "results" / "test-consensus9.json"
    for content in (json.dumps({**first, **damage}), "3", "[]", "{", '"text"'):
        file.write_text(content)
        searches.clear()
        assert baseline() == first
        assert len(searches) == 1


@pytest.mark.parametrize("scores", [3, {}, {"consensus": None}, {"consensus": {"CIDEr": "x"}}])
def test_scores_that_were_damaged_are_made_again(scores, baseline, searches, tmp_path):
    first = baseline()
    file = tmp_path / "results" / "test-consensus9.json"
    file.write_text(json.dumps({**first, "scores": scores}))
    assert baseline() == first
    assert len(searches) == 1, "what was said is whole"
    assert torch.tensor(list(first["scores"]["consensus"].values())).isfinite().all()
