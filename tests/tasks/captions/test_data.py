from __future__ import annotations

import gzip
import json

import numpy as np
import pytest
import torch

from bayesrnn.errors import CorpusError
from bayesrnn.tasks.captions import data as captions
from bayesrnn.tasks.captions.data import (
    caption_vocabulary,
    caption_words,
    has_coco,
    load_coco,
    load_flickr8k,
)

SPLITS = {"train": ["a.jpg", "b.jpg", "c.jpg"], "dev": ["d.jpg"], "test": ["e.jpg", "f.jpg"]}
NAMES = [name for names in SPLITS.values() for name in names]
TOKENS = "Flickr8k.token.txt"
FEATURES = "features-efficientnet-lite0.npz"


def write_features(folder, names, width=1280):
    """Row i is full of the number i + 1."""
    rows = np.repeat(np.arange(1, len(names) + 1), width).reshape(-1, width)
    np.savez(folder / FEATURES, names=np.array(names), features=rows.astype(np.float16))


@pytest.fixture
def tiny(tmp_path, monkeypatch):
    """A data folder with a tiny Flickr8k and a tiny COCO, and these sizes as the right ones."""
    sizes = {"train": ("train", 3), "valid": ("dev", 1), "test": ("test", 2)}
    monkeypatch.setattr(captions, "_FLICKR_SPLITS", sizes)
    monkeypatch.delenv("BAYESRNN_DATA", raising=False)
    flickr, coco = tmp_path / "flickr8k", tmp_path / "coco-val2017"
    flickr.mkdir()
    coco.mkdir()
    lines = [f"{name}#{n}\tThe dog of {name[0]} runs {n} .\n" for name in NAMES for n in (0, 1)]
    (flickr / TOKENS).write_text("".join([*lines, "unused.jpg#0\tA word .\n"]))
    for split, names in SPLITS.items():
        (flickr / f"Flickr_8k.{split}Images.txt").write_text("\n".join(names) + "\n")
    write_features(flickr, ["unused.jpg", *reversed(NAMES)])
    content = {
        "images": [{"id": 7, "file_name": "x.jpg"}, {"id": 5, "file_name": "y.jpg"}],
        "annotations": [
            {"image_id": 5, "caption": "A cat, asleep."},
            {"image_id": 7, "caption": "Two men\n sit."},
            {"image_id": 5, "caption": "The cat's bed"},
        ],
    }
    (coco / "captions_val2017.json").write_text(json.dumps(content))
    write_features(coco, ["y.jpg"])
    return tmp_path


# Words


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("A black dog , and a Spotted dog .", "a black dog and a spotted dog"),
        ('A sign says " Stop ! " ; a man waits - or not', "a sign says stop a man waits or not"),
        ("A boy ( on the left ) jumps...", "a boy on the left jumps"),
        ('"Go," she said: (yes) {no}; what?!', "go she said yes no what"),
        ("The man's dog doesn't run, it's 5:30 or 1,000.", "the man 's dog does n't run "
         "it 's 5:30 or 1,000"),
        ("a tri-colored dog in Washington D.C.", "a tri-colored dog in washington d.c."),
        ("two men ' s hats", "two men s hats"),
        (" . ", ""),
    ],
)  # fmt: skip
def test_words(text, expected):
    assert " ".join(caption_words(text)) == expected


# Flickr8k


def test_the_published_flickr8k(data_dir):
    found = load_flickr8k(data_dir)
    assert found.name == "flickr8k"
    parts = (found.train, found.valid, found.test)
    assert [len(part) for part in parts] == [6000, 1000, 1000]
    assert len({name for part in parts for name in part.names}) == 8000
    for part in parts:
        assert part.features.shape == (len(part), 1280)
        assert part.features.dtype == torch.float32
        assert {len(own) for own in part.captions} == {5}
    assert len(found.vocabulary) == 2539
    assert {"<eos>", "<unk>", "dog", "'s", "t-shirt"} <= set(found.vocabulary.words)
    assert not {".", ",", '"', "(", "-"} & set(found.vocabulary.words)
    lengths = [len(caption) for own in found.train.captions for caption in own]
    assert (min(lengths), max(lengths)) == (2, 36)


def test_captions_and_features_come_by_name(tiny):
    found = load_flickr8k(tiny)
    for part, names in zip((found.train, found.valid, found.test), SPLITS.values(), strict=True):
        assert list(part.names) == names
        for name, row, own in zip(names, part.features, part.captions, strict=True):
            # Features lie there backwards, after those of an image that no split has.
            assert row.tolist() == [2 + NAMES[::-1].index(name)] * 1280
            assert own == tuple(("the", "dog", "of", name[0], "runs", str(n)) for n in (0, 1))


def test_the_vocabulary_is_of_training_words_seen_five_times(tiny):
    assert set(load_flickr8k(tiny).vocabulary.words) == {
        *("the", "dog", "of", "runs", "<eos>", "<unk>")
    }
    assert "cat" not in caption_vocabulary(load_coco(tiny))


@pytest.mark.parametrize("name", [TOKENS, "Flickr_8k.devImages.txt", FEATURES])
def test_plain_and_gz_can_be_mixed(tiny, name):
    expected = load_flickr8k(tiny)
    plain = tiny / "flickr8k" / name
    plain.with_name(f"{name}.gz").write_bytes(gzip.compress(plain.read_bytes(), mtime=0))
    plain.unlink()
    found = load_flickr8k(tiny)
    assert found.valid.captions == expected.valid.captions
    assert torch.equal(found.train.features, expected.train.features)


def test_the_environment_names_the_folder(tiny, monkeypatch):
    with pytest.raises(CorpusError, match=r"'flickr8k' needs a data folder .*BAYESRNN_DATA"):
        load_flickr8k()
    monkeypatch.setenv("BAYESRNN_DATA", str(tiny))
    assert len(load_flickr8k().test) == 2


def test_files_that_are_missing(tiny):
    with pytest.raises(CorpusError, match=r"'flickr8k' was not found: looked for .*token.txt and"):
        load_flickr8k(tiny / "elsewhere")
    for name in ("Flickr_8k.testImages.txt", FEATURES, TOKENS):
        (tiny / "flickr8k" / name).unlink()
        with pytest.raises(CorpusError, match=f"was not found: looked for .*{name} and .*gz; put"):
            load_flickr8k(tiny)


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("a.jpg#0 A dog", r"two columns with a tab .* but it has 1, the first being 'a.jpg#0 A"),
        ("a.jpg#0\tA dog\tmore", "but it has 3, the first being 'a.jpg#0'"),
        ("a.jpg\tA dog", "a number, and a caption, but it has 2, the first being 'a.jpg'"),
        ("#1\tA dog", "the first being '#1'"),
        ("a.jpg#0\t . !", r"the caption of a.jpg has no words; give it some, or leave it out"),
    ],
)
def test_lines_of_other_columns(tiny, line, complaint):
    path = tiny / "flickr8k" / TOKENS
    path.write_text(f"a.jpg#0\tA dog .\n{line}\n")
    with pytest.raises(CorpusError, match=rf"token.txt, line 2: .*{complaint}"):
        load_flickr8k(tiny)


def test_a_file_without_captions(tiny):
    (tiny / "flickr8k" / TOKENS).write_text("")
    with pytest.raises(CorpusError, match="has no captions; get the original file"):
        load_flickr8k(tiny)


def test_images_of_the_split_without_captions(tiny):
    path = tiny / "flickr8k" / TOKENS
    kept = [line for line in path.read_text().splitlines() if line[0] not in "ef"]
    path.write_text("\n".join(kept))
    with pytest.raises(CorpusError, match=r"no captions for 2 of the 2 images of the test split, "
                       r"the first of them e.jpg"):  # fmt: skip
        load_flickr8k(tiny)


@pytest.mark.parametrize(("names", "said"), [("a.jpg b.jpg", "2 names"), ("a a b", "3 names")])
def test_a_split_of_another_size(tiny, names, said):
    (tiny / "flickr8k" / "Flickr_8k.trainImages.txt").write_text(names)
    with pytest.raises(CorpusError, match=f"has {said} of images, 2 of them different, .* has 3;"):
        load_flickr8k(tiny)


# COCO


def test_the_published_coco(data_dir):
    found = load_coco(data_dir)
    assert len(found) == 4313
    assert found.features.shape == (4313, 1280)
    place = found.names.index("000000179765.jpg")
    assert found.captions[place][0] == caption_words(
        "a black honda motorcycle parked in front of a garage"
    )
    assert {len(own) for own in found.captions} == {5, 6, 7}


def test_coco_has_the_images_with_features(tiny):
    found = load_coco(tiny)
    assert found.names == ("y.jpg",)
    assert found.captions == ((("a", "cat", "asleep"), ("the", "cat", "'s", "bed")),)
    write_features(tiny / "coco-val2017", ["x.jpg", "y.jpg"])
    found = load_coco(tiny)
    assert dict(zip(found.names, found.features[:, 0].tolist(), strict=True)) == {
        "x.jpg": 1,
        "y.jpg": 2,
    }
    assert (("two", "men", "sit"),) in found.captions
    write_features(tiny / "coco-val2017", ["z.jpg"])
    with pytest.raises(CorpusError, match=r"has features for none of the 2 images with captions"):
        load_coco(tiny)


@pytest.mark.parametrize("missing", ["captions_val2017.json", FEATURES])
def test_coco_is_there_with_both_of_its_files(tiny, missing):
    assert has_coco(tiny)
    (tiny / "coco-val2017" / missing).unlink()
    assert not has_coco(tiny)
    with pytest.raises(CorpusError, match=f"was not found: looked for .*{missing}"):
        load_coco(tiny)


@pytest.mark.parametrize("content", ["", "[]", '{"images": []}', '{"images": [{"id": 1}]}'])
def test_another_file_than_cocos(tiny, content):
    (tiny / "coco-val2017" / "captions_val2017.json").write_text(content)
    with pytest.raises(
        CorpusError, match=r"is not a file of COCO's captions .* image_id and caption"
    ):
        load_coco(tiny)
