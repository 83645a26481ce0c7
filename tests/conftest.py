"""Fixtures that every test can use."""

import os
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch

from bayesrnn.data import captions


def pytest_configure() -> None:
    """One thread per xdist worker and per program it starts: more would fight for the cores."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        os.environ["OMP_NUM_THREADS"] = "1"
        torch.set_num_threads(1)


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """The folder with the published data sets; a test that needs it is skipped without it."""
    given = os.environ.get("BAYESRNN_DATA")
    if not given:
        pytest.skip("BAYESRNN_DATA is not set")
    folder = Path(given)
    if not folder.is_dir():
        pytest.fail(f"BAYESRNN_DATA is not a folder: {folder}")
    return folder


#: Images of the tiny Flickr8k: a split's word in file names, and how many there are.
TINY_SPLITS = {"train": ("train", 48), "valid": ("dev", 12), "test": ("test", 12)}


@pytest.fixture(scope="session")
def tiny_flickr8k_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data folder with a made-up Flickr8k, whose features tell what captions say.

    Each image shows one of three animals at one of two places.
    """
    generator = np.random.default_rng(0)
    folder = tmp_path_factory.mktemp("data") / "flickr8k"
    folder.mkdir()
    scenes = list(product(("dog", "cat", "horse"), ("on the beach", "in snow")))
    names, lines, rows = [], [], []
    directions = generator.normal(size=(len(scenes), 1280))
    for split, size in TINY_SPLITS.values():
        own = [f"{split}{number}.jpg" for number in range(size)]
        (folder / f"Flickr_8k.{split}Images.txt").write_text("\n".join(own) + "\n")
        for number, name in enumerate(own):
            animal, place = scenes[number % len(scenes)]
            said = (f"A {animal} runs {place} .", f"The {animal}", f"One {animal} {place} .")
            lines += [f"{name}#{n}\t{text}\n" for n, text in enumerate(said)]
            rows.append(directions[number % len(scenes)] + 0.1 * generator.normal(size=1280))
        names += own
    (folder / "Flickr8k.token.txt").write_text("".join(lines))
    features = np.array(rows, dtype=np.float16)
    np.savez(folder / "features-efficientnet-lite0.npz", names=np.array(names), features=features)
    return folder.parent


@pytest.fixture
def tiny_flickr8k(tiny_flickr8k_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The data folder with the made-up Flickr8k, whose sizes count as the right ones."""
    monkeypatch.setattr(captions, "_FLICKR_SPLITS", TINY_SPLITS)
    monkeypatch.setenv("BAYESRNN_DATA", str(tiny_flickr8k_folder))
    return tiny_flickr8k_folder
