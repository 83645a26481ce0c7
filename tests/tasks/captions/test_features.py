from __future__ import annotations

import io

import numpy as np
import pytest
import torch

from bayesrnn.errors import CorpusError
from bayesrnn.tasks.captions.features import FEATURE_WIDTH, load_features

NAMES = ["a.jpg", "b.jpg", "c.jpg", "d.jpg"]
ROWS = np.arange(4 * FEATURE_WIDTH).reshape(4, FEATURE_WIDTH).astype(np.float32) / 8


def write(folder, **arrays):
    path = folder / "pictures" / "features-efficientnet-lite0.npz"
    path.parent.mkdir(exist_ok=True)
    data = io.BytesIO()
    np.savez(data, **arrays)
    path.write_bytes(data.getvalue())
    return path


def refused(folder, complaint):
    with pytest.raises(CorpusError, match=complaint) as caught:
        load_features("pictures", folder)
    assert "\n" not in str(caught.value)
    assert "give an .npz file with names [images] and features [images, 1280]" in str(caught.value)


def test_rows_by_name(tmp_path):
    write(tmp_path, names=np.array(NAMES), features=ROWS.astype(np.float64))
    found = load_features("pictures", tmp_path)
    assert found.features.dtype == torch.float32
    assert found.names == tuple(NAMES)
    assert found.of(["c.jpg", "a.jpg"]).tolist() == ROWS[[2, 0]].tolist()
    assert found.of([]).shape == (0, FEATURE_WIDTH)


def test_where_there_is_no_file_it_is_said_what_makes_it(tmp_path):
    with pytest.raises(CorpusError, match=r"not found: .*`bayesrnn features` makes it"):
        load_features("pictures", tmp_path)


def test_names_without_features(tmp_path):
    path = write(tmp_path, names=np.array(NAMES), features=ROWS)
    found = load_features("pictures", tmp_path)
    assert found.missing(["x", "b.jpg", "y"]) == ["x", "y"]
    with pytest.raises(CorpusError, match=r"no features for 2 of 3 images: x, y; make") as caught:
        found.of(["x", "b.jpg", "y"])
    assert str(path) in str(caught.value)
    with pytest.raises(CorpusError, match=r"for 5 of 5 images: p, q, r, \.\.\.; make"):
        found.of(list("pqrst"))


@pytest.mark.parametrize(
    ("changed", "complaint"),
    [
        ({"features": ROWS[:, :1000]}, "features have 1000 instead of 1280 numbers for an image"),
        ({"features": ROWS[0]}, r"features have the shape \[1280\] instead of 1280"),
        ({"features": ROWS[:3]}, "there are 4 names for the features of 3 images"),
        ({"features": ROWS.astype(np.int64)}, "features are of the type int64"),
        ({"features": np.where(ROWS == 1, np.nan, ROWS)}, "of 1 images are not finite: a.jpg"),
        ({"names": np.array([*NAMES[:3], "a.jpg"])}, "1 names are there more than once: a.jpg"),
        ({"names": np.arange(4)}, r"names have the shape \[4\] and the type int64, not text"),
        ({"names": np.array(NAMES)[:, None]}, r"names have the shape \[4, 1\]"),
    ],
)
def test_a_file_with_something_wrong(tmp_path, changed, complaint):
    write(tmp_path, **{"names": np.array(NAMES), "features": ROWS} | changed)
    refused(tmp_path, complaint)


def test_arrays_of_other_names(tmp_path):
    write(tmp_path, labels=np.array(NAMES), features=ROWS)
    refused(tmp_path, "has no names; it has: labels, features;")
    write(tmp_path, labels=np.array(NAMES))
    refused(tmp_path, "has no names and no features; it has: labels;")


def test_a_file_that_is_damaged(tmp_path):
    path = write(tmp_path, names=np.array(NAMES), features=ROWS)
    whole = path.read_bytes()
    array = io.BytesIO()
    np.save(array, ROWS)
    for data in (b"", b"text", whole[:-40], whole[:300], array.getvalue()):
        path.write_bytes(data)
        refused(tmp_path, "is not an .npz file, or damaged")


def test_objects_are_not_loaded(tmp_path):
    write(tmp_path, names=np.array(NAMES, dtype=object), features=ROWS)
    refused(tmp_path, "is not an .npz file, or damaged")
