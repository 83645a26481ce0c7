from __future__ import annotations

import gzip
import math
import struct
import sys
from contextlib import nullcontext, suppress
from pathlib import Path

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from bayesrnn.data.batches import ShuffledBatches
from bayesrnn.errors import BayesRNNError, CorpusError, MissingExtraError
from bayesrnn.tasks.mnist import data as images
from bayesrnn.tasks.mnist.data import (
    IMAGE_NAMES,
    ImageSet,
    available_images,
    load_images,
)

NAMES = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)
SIZES = (5, 2, 3)


def idx(shape: tuple[int, ...], values: bytes) -> bytes:
    return struct.pack(f">4B{len(shape)}I", 0, 0, 8, len(shape), *shape) + values


def pack(data: bytes) -> bytes:
    return gzip.compress(data, mtime=0)


def pixels(count: int, first: int) -> bytes:
    return bytes((first + place) % 256 for place in range(count * 784))


def tiny_files() -> dict[str, bytes]:
    """Files like MNIST's, with 7 and 3 images."""
    return {
        NAMES[0]: idx((7, 28, 28), pixels(7, 0)),
        NAMES[1]: idx((7,), bytes([5, 0, 4, 1, 9, 2, 1])),
        NAMES[2]: idx((3, 28, 28), pixels(3, 100)),
        NAMES[3]: idx((3,), bytes([7, 2, 1])),
    }


@pytest.fixture
def tiny(tmp_path, monkeypatch):
    """A data folder with a tiny MNIST, and that size as the right one."""
    monkeypatch.setattr(images, "_MNIST_SIZES", SIZES)
    monkeypatch.delenv("BAYESRNN_DATA", raising=False)
    (tmp_path / "mnist").mkdir()
    for name, data in tiny_files().items():
        (tmp_path / "mnist" / name).write_bytes(data)
    return tmp_path


@pytest.fixture
def no_sklearn(monkeypatch):
    for name in [name for name in sys.modules if name.split(".")[0] == "sklearn"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "sklearn", None)


# MNIST


def test_the_published_mnist(data_dir):
    found = load_images("mnist", data_dir)
    assert (found.name, found.classes) == ("mnist", 10)
    sets = (found.train, found.valid, found.test)
    assert [len(part) for part in sets] == [50_000, 10_000, 10_000]
    for part in sets:
        assert part.images.shape == (len(part), 784)
        assert part.images.dtype == torch.float32
        assert part.labels.dtype == torch.int64
        assert part.images.min() == 0
        assert part.images.max().item() == pytest.approx(255 / 126)
    # The known counts of the digits, and mean and deviation of pixel / 255 over all 60,000.
    train = torch.bincount(found.train.labels) + torch.bincount(found.valid.labels)
    assert train.tolist() == [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
    test = [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]
    assert torch.bincount(found.test.labels).tolist() == test
    every = torch.cat([found.train.images, found.valid.images]) * (126 / 255)
    assert every.mean(dtype=torch.double).item() == pytest.approx(0.1307, abs=5e-5)
    assert every.std().item() == pytest.approx(0.3081, abs=5e-5)
    assert found.train.labels[:10].tolist() == [5, 0, 4, 1, 9, 2, 1, 3, 1, 4]
    assert found.test.labels[:10].tolist() == [7, 2, 1, 0, 4, 1, 4, 9, 5, 9]
    assert load_images(None, data_dir).name == "mnist"


def test_the_last_of_the_training_file_validate(tiny):
    found = load_images("mnist", tiny)
    assert found.train.labels.tolist() == [5, 0, 4, 1, 9]
    assert found.valid.labels.tolist() == [2, 1]
    assert found.test.labels.tolist() == [7, 2, 1]
    every = torch.cat([found.train.images, found.valid.images])
    assert every.tolist() == (torch.tensor(list(pixels(7, 0))).view(7, 784) / 126).tolist()
    assert found.test.images[1, 3] == torch.tensor((100 + 784 + 3) % 256) / 126
    assert found.test.images.dtype == torch.float32


@pytest.mark.parametrize("packed", NAMES)
def test_plain_and_gz_can_be_mixed(tiny, packed):
    expected = load_images("mnist", tiny)
    plain = tiny / "mnist" / packed
    plain.with_name(f"{packed}.gz").write_bytes(pack(plain.read_bytes()))
    plain.unlink()
    found = load_images("mnist", tiny)
    for name in ("train", "valid", "test"):
        assert torch.equal(getattr(found, name).images, getattr(expected, name).images)
        assert torch.equal(getattr(found, name).labels, getattr(expected, name).labels)


def test_the_environment_names_the_folder(tiny, monkeypatch):
    with pytest.raises(CorpusError, match=r"'mnist' needs.*mnist/train-images.*--data-dir.*BAYES"):
        load_images("mnist")
    monkeypatch.setenv("BAYESRNN_DATA", str(tiny))
    assert len(load_images("mnist").train) == 5


@pytest.mark.parametrize("missing", NAMES)
def test_a_missing_file_is_named(tiny, missing):
    (tiny / "mnist" / missing).unlink()
    with pytest.raises(CorpusError, match=rf"looked for .*{missing} and .*{missing}\.gz; put"):
        load_images("mnist", tiny)
    # Some of its files are there, so MNIST is what is meant.
    with pytest.raises(CorpusError, match=missing):
        load_images("auto", tiny)


IMAGES, LABELS = tiny_files()[NAMES[0]], tiny_files()[NAMES[1]]
DAMAGE = {
    "empty": (0, b"", "has 0 bytes instead of 5,504"),
    "header cut": (0, IMAGES[:10], "has 10 bytes instead of 5,504"),
    "values cut": (0, IMAGES[:-1], "has 5,503 bytes instead of 5,504"),
    "too long": (0, IMAGES + b"\0", "has 5,505 bytes instead of 5,504"),
    "labels for images": (0, LABELS, "bytes 00 00 08 01 instead of 00 00 08 03"),
    "images for labels": (1, IMAGES, "bytes 00 00 08 03 instead of 00 00 08 01"),
    "floats": (0, IMAGES.replace(b"\x08", b"\x0d", 1), "00 00 0d 03"),
    "text": (1, b"<html>not found</html>", "bytes 3c 68 74 6d instead"),
    "more images": (0, idx((8, 28, 28), pixels(8, 0)), "holds 8 x 28 x 28 values instead of 7 x"),
    "smaller images": (2, idx((3, 14, 14), bytes(588)), "3 x 14 x 14 values instead of 3 x 28"),
    "little-endian": (1, b"\0\0\x08\x01" + struct.pack("<I", 7) + bytes(7), "117,440,512 values"),
    "more labels": (3, idx((60_000,), bytes(60_000)), "holds 60,000 values instead of 3"),
    "not a digit": (3, idx((3,), bytes([7, 10, 255])), "has the label 10 at place 1"),
    "gz cut": (0, pack(IMAGES)[:-9], "not a whole gzip file"),
    "gz header cut": (1, pack(LABELS)[:5], "not a whole gzip file"),
    "gz magic only": (1, b"\x1f\x8b", "not a whole gzip file"),
    "gz checksum": (1, pack(LABELS)[:-8] + bytes(8), "not a whole gzip file"),
    "gz twice": (1, pack(pack(LABELS)), "bytes 1f 8b 08 00 instead"),
    "gz with labels": (0, pack(LABELS), "00 00 08 01 instead"),
}


@pytest.mark.parametrize(("place", "data", "complaint"), DAMAGE.values(), ids=DAMAGE)
def test_damage_is_told_in_the_users_words(tiny, place, data, complaint):
    path = tiny / "mnist" / NAMES[place]
    path.write_bytes(data)
    with pytest.raises(CorpusError, match=complaint) as caught:
        load_images("mnist", tiny)
    assert str(caught.value).startswith(str(path))
    assert str(caught.value).endswith("; put the original file of MNIST there")


def test_a_plain_file_under_a_gz_name_is_refused(tiny):
    path = tiny / "mnist" / NAMES[1]
    path.rename(path.with_name(f"{NAMES[1]}.gz"))
    with pytest.raises(CorpusError, match=r"labels-idx1-ubyte\.gz is not a whole gzip file"):
        load_images("mnist", tiny)


def test_a_folder_in_the_place_of_a_file_is_refused(tiny):
    path = tiny / "mnist" / NAMES[0]
    path.unlink()
    path.mkdir()
    with pytest.raises(CorpusError, match="is not a file"):
        load_images("mnist", tiny)


def test_every_cut_and_every_flipped_byte_of_a_gzip_file(tmp_path):
    path, whole = tmp_path / "labels.gz", pack(LABELS)
    path.write_bytes(whole)
    assert images.read_idx(path, (7,)).tolist() == [5, 0, 4, 1, 9, 2, 1]
    for place in range(len(whole)):
        path.write_bytes(whole[:place])
        with pytest.raises(CorpusError):
            images.read_idx(path, (7,))
        flipped = bytearray(whole)
        flipped[place] ^= 0xFF
        path.write_bytes(flipped)
        with suppress(CorpusError):  # the header has bytes that mean nothing, such as the time
            assert images.read_idx(path, (7,)).tolist() == [5, 0, 4, 1, 9, 2, 1]


@given(st.binary(max_size=40) | st.binary(max_size=8).map(idx((2, 3), b"").__add__))
@example(idx((2, 3), bytes(6)))
def test_any_bytes_give_an_array_or_a_clear_error(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("fuzz") / "file"
    path.write_bytes(data)
    whole = data.startswith(b"\0\0\x08\x02\0\0\0\x02\0\0\0\x03") and len(data) == 18
    with nullcontext() if whole else pytest.raises(CorpusError, match=path.name):
        assert images.read_idx(path, (2, 3)).tobytes() == data[12:]


# Digits


def test_digits():
    datasets = pytest.importorskip("sklearn.datasets", reason="the extra `digits` brings it")
    found = load_images("digits")
    assert (found.name, found.classes) == ("digits", 10)
    sets = (found.train, found.valid, found.test)
    assert [len(part) for part in sets] == [1197, 300, 300]
    every = torch.cat([part.images for part in sets])
    labels = torch.cat([part.labels for part in sets])
    assert (every.dtype, labels.dtype) == (torch.float32, torch.int64)
    assert every.max().item() == pytest.approx(255 / 126)  # white as in MNIST
    # Each of scikit-learn's images is there once, with its label.
    pixels, digits = datasets.load_digits(return_X_y=True)
    grey = (every.double() * 126 / 255 * 16).round().int()
    rows = sorted((*row, label) for row, label in zip(grey.tolist(), labels.tolist(), strict=True))
    original = zip(pixels.astype(int).tolist(), digits.tolist(), strict=True)
    assert rows == sorted((*row, label) for row, label in original)


def test_digits_are_always_split_alike():
    pytest.importorskip("sklearn", reason="the extra `digits` brings it")
    torch_state = torch.get_rng_state()
    one, other = load_images("digits"), load_images("digits")
    assert torch.equal(one.train.images, other.train.images)
    assert one.test.labels[:12].tolist() == [3, 7, 8, 5, 7, 4, 5, 9, 5, 5, 8, 7]
    for part in (one.train, one.valid, one.test):  # shuffled: each digit in each part
        assert torch.bincount(part.labels, minlength=10).min() > len(part) / 20
    assert torch.equal(torch.get_rng_state(), torch_state)


def test_digits_without_scikit_learn(no_sklearn):
    with pytest.raises(MissingExtraError, match=r"pip install 'bayesrnn\[digits\]'"):
        load_images("digits")


# Which set


@pytest.mark.parametrize("name", [None, "auto"])
def test_auto_prefers_mnist(tiny, name, no_sklearn):
    assert load_images(name, tiny).name == available_images(tiny) == "mnist"


@pytest.mark.parametrize("name", [None, "auto"])
def test_auto_takes_digits_where_there_is_no_mnist(tmp_path, monkeypatch, name):
    pytest.importorskip("sklearn", reason="the extra `digits` brings it")
    monkeypatch.delenv("BAYESRNN_DATA", raising=False)
    assert load_images(name).name == available_images() == "digits"
    assert load_images(name, tmp_path).name == "digits"


@pytest.mark.parametrize("name", [None, "auto"])
def test_neither_set_names_both_ways(tmp_path, name, no_sklearn):
    with pytest.raises(CorpusError, match=r"mnist.*--data-dir or BAYESRNN_DATA.*bayesrnn\[digits"):
        load_images(name, tmp_path)
    with pytest.raises(CorpusError, match="no images were found"):
        available_images(tmp_path)


@pytest.mark.parametrize("name", ["cifar", "", "MNIST"])
def test_an_unknown_name(name):
    with pytest.raises(CorpusError, match=f"'{name}' is not.*{', '.join(IMAGE_NAMES)} or auto"):
        load_images(name)


def test_an_impossible_folder():
    for name in ("mnist", None):
        with pytest.raises(BayesRNNError, match="--data-dir or BAYESRNN_DATA"):
            load_images(name, Path("x" * 5000))


# Minibatches


def numbered(count: int) -> ImageSet:
    """Images whose two pixels and label tell which one it is."""
    number = torch.arange(count)
    return ImageSet(torch.stack([number, -number], 1).float(), number)


def drawn(count: int, batch_size: int, seed: int, epoch: int) -> list[int]:
    batches = ShuffledBatches(numbered(count), batch_size, seed, epoch)
    return torch.cat([batch.targets for batch in batches]).tolist()


@given(st.integers(1, 60), st.integers(1, 20), st.integers(0, 2**70), st.integers(0, 2**40))
def test_an_epoch_has_each_example_at_most_once(count, batch_size, seed, epoch):
    if count < batch_size:
        with pytest.raises(CorpusError, match=rf"are {count} images.*needs {batch_size}; give"):
            ShuffledBatches(numbered(count), batch_size, seed, epoch)
        return
    batches = ShuffledBatches(numbered(count), batch_size, seed, epoch)
    assert len(batches) == len(list(batches)) == count // batch_size
    assert (batches.sequences, batches.steps) == (batch_size, 1)
    for batch in batches:
        assert batch.inputs.shape == (batch_size, 2)
        assert batch.targets.shape == (batch_size,)
        assert torch.equal(batch.inputs, torch.stack([batch.targets, -batch.targets], 1).float())
    seen = drawn(count, batch_size, seed, epoch)
    assert len(set(seen)) == len(seen) == count // batch_size * batch_size
    assert set(seen) <= set(range(count))
    assert seen == drawn(count, batch_size, seed, epoch)


def test_every_seed_and_epoch_has_an_order_of_its_own():
    orders = {tuple(drawn(50, 10, seed, epoch)) for seed in range(12) for epoch in range(12)}
    assert len(orders) == 144


def test_the_order_does_not_depend_on_the_size_of_a_minibatch():
    assert drawn(60, 4, 3, 2) == drawn(60, 30, 3, 2)
    assert drawn(60, 7, 3, 2) == drawn(60, 60, 3, 2)[:56]


def test_all_places_are_equally_likely():
    # 3,000 orders of 5: an example is in a given place 600 times, with deviation 21.9.
    count = torch.zeros(5, 5)
    for epoch in range(3000):
        count[torch.arange(5), torch.tensor(drawn(5, 1, 1, epoch))] += 1
    assert (count - 600).abs().max() < 5 * math.sqrt(3000 * 0.2 * 0.8)


def test_the_tail_is_another_one_in_each_epoch():
    left_out = {(set(range(11)) - set(drawn(11, 5, 0, epoch))).pop() for epoch in range(99)}
    assert left_out == set(range(11))


def test_shuffling_leaves_the_global_generator_alone():
    state = torch.get_rng_state()
    drawn(20, 5, 0, 0)
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("number", [-1, 4])
def test_a_minibatch_that_does_not_exist(number):
    with pytest.raises(IndexError):
        ShuffledBatches(numbered(9), 2, 0, 0)[number]


def test_one_label_for_each_image():
    with pytest.raises(CorpusError, match="3 images and 2 labels; give one"):
        ImageSet(torch.zeros(3, 4), torch.zeros(2, dtype=torch.long))
