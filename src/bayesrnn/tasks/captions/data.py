"""Images with captions that people wrote: Flickr8k and MS COCO."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias

from torch import Tensor

from bayesrnn.data.files import find_published, published_file
from bayesrnn.data.text import read_text
from bayesrnn.data.vocabulary import Vocabulary
from bayesrnn.errors import CorpusError
from bayesrnn.tasks.captions.features import has_features, load_features
from bayesrnn.untrusted import plain_json

CaptionWords: TypeAlias = tuple[str, ...]
"""A caption, cut into words."""

FLICKR8K: Final = "flickr8k"
COCO: Final = "coco-val2017"

_FLICKR_CAPTIONS = f"{FLICKR8K}/Flickr8k.token.txt"
_FLICKR_SPLITS = {"train": ("train", 6000), "valid": ("dev", 1000), "test": ("test", 1000)}
_COCO_CAPTIONS = f"{COCO}/captions_val2017.json"

FEWEST_TIMES: Final = 5
"""How often a word has to be in the training captions to be in the vocabulary."""

# What coco-caption drops after its tokeniser, as it stands in a text: there the tokeniser has
# turned " into `` or '', and brackets and braces into -LRB- and the like.
_DROPPED = frozenset(["''", "'", "``", "`", *'"(){}.?!,:-;', "--", "..", "..."])
# What does not belong to the word it touches. Numbers keep their signs (1,000 or 5:30), and
# initials their full stop (D.C.); 's and n't are words of their own in the Penn Treebank.
_SPLIT = re.compile(
    r"""(["(){};!?]|[,:](?!\d)|\.\.+|--+|(?<!\b\w)\.(?=["')\s]*$)"""
    r"""|(?<=\w)(?:'(?:s|re|ve|ll|d|m)|n't)\b)"""
)


@dataclass(frozen=True)
class CaptionedImages:
    """Images, each with its captions.

    names: the file name of each image.
    features: float32 `[images, width]`, what an image network says of each.
    captions: for each image the words of its captions, of which it has one or more.
    """

    names: tuple[str, ...]
    features: Tensor
    captions: tuple[tuple[CaptionWords, ...], ...]

    def __len__(self) -> int:
        return len(self.names)


@dataclass(frozen=True)
class Captions:
    """Captioned images to train on, to validate with and to test with, and the known words."""

    name: str
    vocabulary: Vocabulary
    train: CaptionedImages
    valid: CaptionedImages
    test: CaptionedImages


def caption_words(text: str) -> CaptionWords:
    """The words of a caption: lower-cased, without punctuation.

    It stands in for the tokeniser of coco-caption (Stanford's for the Penn Treebank, less a list
    of signs), which needs Java, and gives the same words for all but 14 of the 40,460 captions of
    Flickr8k and 48 of the 25,014 of COCO val2017. Six of the former have brackets, which
    coco-caption means to drop as -LRB- and -RRB- but misses, because it lower-cases first.
    """
    return tuple(w for w in _SPLIT.sub(r" \1 ", text.lower()).split() if w not in _DROPPED)


def load_flickr8k(data_dir: Path | None = None) -> Captions:
    """Flickr8k (Hodosh, Young & Hockenmaier 2013) in its official split, 6,000 / 1,000 / 1,000.

    Its files are in the folder flickr8k under `data_dir`, or else under the folder in the
    environment variable BAYESRNN_DATA, plain or .gz: captions, the lists of the split, and
    features. The vocabulary is the words seen at least 5 times in the training captions.
    """
    path = published_file(FLICKR8K, _FLICKR_CAPTIONS, data_dir)
    captions = _read_flickr_captions(path)
    features = load_features(FLICKR8K, data_dir)
    parts = []
    for file, size in _FLICKR_SPLITS.values():
        names = _read_split(file, size, data_dir)
        if without := [name for name in names if name not in captions]:
            raise CorpusError(
                f"{path} has no captions for {len(without):,} of the {len(names):,} images of the "
                f"{file} split, the first of them {without[0]}; get the file and the split of the "
                "same release of Flickr8k"
            )
        chosen = tuple(tuple(captions[name]) for name in names)
        parts.append(CaptionedImages(tuple(names), features.of(names), chosen))
    return Captions(FLICKR8K, caption_vocabulary(parts[0]), *parts)


def load_coco(data_dir: Path | None = None) -> CaptionedImages:
    """The images of MS COCO val2017 (Lin et al. 2014) that have features, with their captions.

    The two files are in the folder coco-val2017 under `data_dir`, or else under the folder in the
    environment variable BAYESRNN_DATA. There is no split: to a model that was trained on
    Flickr8k, all of it is new.
    """
    path = published_file(COCO, _COCO_CAPTIONS, data_dir)
    captions = _read_coco_captions(path)
    features = load_features(COCO, data_dir)
    missing = set(features.missing(list(captions)))
    names = [name for name in captions if name not in missing]
    if not names:
        raise CorpusError(
            f"{features.source} has features for none of the {len(captions):,} images with "
            f"captions in {path}; get the two files of the same images"
        )
    chosen = tuple(tuple(captions[name]) for name in names)
    return CaptionedImages(tuple(names), features.of(names), chosen)


def has_coco(data_dir: Path | None = None) -> bool:
    """Whether `load_coco` would find its two files."""
    return find_published(_COCO_CAPTIONS, data_dir) is not None and has_features(COCO, data_dir)


def caption_vocabulary(images: CaptionedImages) -> Vocabulary:
    """The words seen at least 5 times in the captions, with `<unk>` and `<eos>`."""
    words = (word for captions in images.captions for caption in captions for word in caption)
    return Vocabulary.build(words, min_count=FEWEST_TIMES, require_unk=True)


def _read_flickr_captions(path: Path) -> dict[str, list[CaptionWords]]:
    """Lines of an image's name, # and a number, a tab, and the caption."""
    lines = enumerate(read_text(path).splitlines(), 1)
    return _collected(path, (_columns(path, number, line) for number, line in lines))


def _columns(path: Path, number: int, line: str) -> tuple[str, str, str]:
    columns = line.split("\t")
    name, sign, _ = columns[0].rpartition("#")
    if len(columns) != 2 or not sign or not name:
        raise CorpusError(
            f"{path}, line {number}: it has to have two columns with a tab between them, an "
            f"image's name with # and a number, and a caption, but it has {len(columns)}, the "
            f"first being {columns[0][:40]!r}; get the original file"
        )
    return f"line {number}", name, columns[1]


def _read_split(file: str, size: int, data_dir: Path | None) -> list[str]:
    path = published_file(FLICKR8K, f"{FLICKR8K}/Flickr_8k.{file}Images.txt", data_dir)
    names = read_text(path).split()
    if len(set(names)) != size or len(names) != size:
        raise CorpusError(
            f"{path} has {len(names):,} names of images, {len(set(names)):,} of them different, "
            f"but the official split has {size:,}; get the original file"
        )
    return names


def _read_coco_captions(path: Path) -> dict[str, list[CaptionWords]]:
    try:
        content: dict[str, Any] = plain_json(read_text(path))
        names = {image["id"]: str(image["file_name"]) for image in content["images"]}
        rows = [
            (f"annotation {number}", names[row["image_id"]], str(row["caption"]))
            for number, row in enumerate(content["annotations"], 1)
        ]
    except (ValueError, KeyError, TypeError) as error:
        raise CorpusError(
            f"{path} is not a file of COCO's captions ({repr(error)[:200]}); it has to have "
            "images with id and file_name, and annotations with image_id and caption; get the "
            "original file"
        ) from None
    return _collected(path, rows)


def _collected(path: Path, rows: Iterable[tuple[str, str, str]]) -> dict[str, list[CaptionWords]]:
    """The captions of each image by its name, from rows of a place, a name and a caption."""
    found: dict[str, list[CaptionWords]] = {}
    for place, name, text in rows:
        words = caption_words(text)
        if not words:
            raise CorpusError(
                f"{path}, {place}: the caption of {name} has no words; "
                "give it some, or leave it out"
            )
        found.setdefault(name, []).append(words)
    if not found:
        raise CorpusError(f"{path} has no captions; get the original file")
    return found
