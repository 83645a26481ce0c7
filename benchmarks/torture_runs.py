"""The tiny runs that `torture.py` damages, kills and feeds, and what they say while well."""

from __future__ import annotations

import hashlib
import json
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from same_results import make_data
from torture_cases import fresh_copy
from torture_worker import Said, ended, exit_code, forked, judged_call, say_to

from bayesrnn.data.reading import read_series
from bayesrnn.methods import METHODS
from bayesrnn.tasks import TASKS
from bayesrnn.tasks.captions import data as captions_data
from bayesrnn.tasks.captions.features import load_features
from bayesrnn.tasks.captions.photographs import read_photograph
from bayesrnn.tasks.mnist.data import read_idx
from bayesrnn.training.checkpoints import CheckpointStore
from bayesrnn.training.state import pack

#: A checkpoint after every step, so that a kill often meets one.
FLICKR_SPLITS = {"train": ("train", 48), "valid": ("dev", 12), "test": ("test", 12)}
COMMON = ("--epochs", "2", "--device", "cpu", "--save-minutes", "0.000001", "--no-calibrate")


class Reference(NamedTuple):
    """A run that nobody killed: the hash of its weights, and how long it took."""

    hash: str
    seconds: float


class Use(NamedTuple):
    """What reads an input: a function, or a command."""

    name: str
    call: Callable[[Path], object] | None = None
    arguments: Callable[[Path], list[str]] = lambda file: [str(file)]


@dataclass
class Target:
    """A run or a compact file that is damaged, how often, and the commands that use it.

    commands: by the beginning of the name of the damaged file, the first that fits; with RUN for
        the damaged copy.
    """

    path: Path
    weight: int
    commands: dict[str, list[str]]
    said: dict[str, Said] = field(default_factory=dict)

    def command(self, name: str, copy: Path) -> list[str]:
        """The command that uses a file of it."""
        found = next(words for start, words in self.commands.items() if name.startswith(start))
        return [str(copy) if word == "RUN" else word for word in found]

    def expected(self, name: str, copy: Path) -> Said:
        """What the command says of the copy while it is undamaged."""
        words = self.command(name, copy)
        key = json.dumps(words)
        if key not in self.said:
            self.said[key] = say_to(words)
            assert self.said[key].code == 0, self.said[key]
        return self.said[key]


class Runs:
    """What is made once and kept: data, runs, and their references.

    whole: of all tasks; or else of two.
    """

    def __init__(self, folder: Path, whole: bool = True) -> None:
        self.folder, self.data, self.whole = folder, folder / "data", whole
        self.empty = folder / "empty"
        captions_data._FLICKR_SPLITS = FLICKR_SPLITS
        for task in TASKS:  # all of the program now, whatever becomes of its files meanwhile
            import_module(f"bayesrnn.tasks.{task}.task")
        import_module("bayesrnn.cli.commands")
        if not (folder / "made").exists():
            shutil.rmtree(folder, ignore_errors=True)
            make_data(self.data)
            _shorten_flickr8k(self.data / "flickr8k")
            self.empty.mkdir()
            (folder / "made").touch()
        self.tasks: dict[str, list[str]] = {
            "lm": ["--corpus", f"{self.data}/text.txt", "--hidden", "8", "--batch-size", "8"],
            "sentiment": ["--data", f"{self.data}/labels.csv", "--hidden", "8"],
            "forecast": ["--data", "births", "--hidden", "8", "--windows", "16"],
            "mnist": ["--images", "digits", "--hidden", "8", "--batch-size", "200"],
            "captions": ["--data-dir", str(self.data), "--hidden", "8", "--batch-size", "48"],
        }
        self.tasks["sentiment"] += ["--batch-size", "16"]
        self.tasks["forecast"] += ["--horizon", "7", "--validation-windows", "4"]
        self.pairs = [(task, method) for method in METHODS for task in self.tasks]
        self.targets = self._targets()
        for target in self.targets[:2]:
            copy = folder / f"{target.path.name}-to-read"
            if not copy.exists():
                fresh_copy(target.path, copy)
        self._states: dict[Path, Any] = {}

    def arguments(self, task: str, method: str) -> list[str]:
        """How a task is trained by a method."""
        options = {"ensemble": ["--members", "2"]}.get(method, [])
        return ["train", task, "--method", method, *self.tasks[task], *COMMON, *options]

    def reference(self, task: str, method: str) -> Reference:
        """The run that nobody killed, trained once."""
        run, kept = self.folder / f"{task}-{method}", self.folder / f"{task}-{method}.json"
        if not kept.exists():
            seconds = self._train([*self.arguments(task, method), "--out", str(run)], run)
            kept.write_text(json.dumps([self.hash(run), seconds]))
        return Reference(*json.loads(kept.read_text()))

    def hash(self, run: Path) -> str:
        """Of the weights of the last and the best checkpoint, and of the metrics but for time."""
        store, found = CheckpointStore(run), hashlib.sha256()
        for which in ("last", "best"):
            checkpoint = store.load_model(which)
            found.update(f"{which} {checkpoint.step}".encode())
            for name, tensor in sorted(checkpoint.model.items()):
                found.update(name.encode() + tensor.reshape(-1).view(torch.uint8).numpy().tobytes())
        return found.hexdigest()

    def judged_state(self, copy: Path, source: Target) -> dict[str, Any]:
        """Whether all of a checkpoint is refused, or read as it was."""
        if source.path not in self._states:
            self._states[source.path] = _whole(source.path)
        found: list[str] = []
        judged = judged_call(lambda: found.append(_whole(copy)))
        if found and found[0] != self._states[source.path]:
            return {"end": "wrong"}
        return judged

    def sample(self, kind: str) -> bytes:
        """A whole input of a kind."""
        names = {
            "text": "text.txt",
            "table": "labels.csv",
            "series": "numbers.csv",
            "image": "image.ppm",
            "features": "coco-val2017/features-efficientnet-lite0.npz",
            "digits": "image.ppm",
        }
        return (self.data / names[kind]).read_bytes()

    def reader(self, kind: str) -> Use:
        """What reads a kind of input."""
        # Copies, since results of evaluations are kept in a run.
        lm, sentiment = (str(self.folder / f"{name}-to-read") for name in ("lm", "sentiment"))
        features = "made-up/features-efficientnet-lite0.npz"
        return {
            "text": Use("in.txt", None, lambda file: ["evaluate", lm, "--corpus", str(file)]),
            "table": Use("in.csv", None, lambda file: ["predict", sentiment, "--file", str(file)]),
            "series": Use("series.csv", read_series),
            "image": Use("image", read_photograph),
            "features": Use(features, lambda file: load_features("made-up", file.parents[1])),
            "digits": Use("digits", lambda file: read_idx(file, (None, 28, 28))),
        }[kind]

    def _train(self, arguments: list[str], run: Path) -> float:
        fresh_copy(self.empty, run)
        start = time.monotonic()
        if code := ended(forked(lambda: exit_code(arguments), self.folder), 300):
            said = say_to([*arguments, "--resume"])
            raise RuntimeError(f"exit code {code}: {said.traceback or said.errors}")
        return time.monotonic() - start

    def _made(self, name: str, *commands: list[str]) -> Path:
        """A run or a file, made by commands once; they have OUT for its path."""
        path = self.folder / name
        if not path.exists():
            for command in commands:
                words = [str(path) if word == "OUT" else word for word in command]
                if words[0] == "train":
                    self._train(words, path)
                elif ended(forked(lambda words=words: exit_code(words), self.folder), 300):
                    raise RuntimeError(str(say_to(words)))
        return path

    def _trained(self, name: str, task: str, *options: str) -> Path:
        train = ["train", task, "--method", "bbb", *self.tasks[task], *COMMON, *options]
        evaluate = ["evaluate", "OUT", "--samples", "2"]
        return self._made(name, [*train, "--out", "OUT"], ["calibrate", "OUT"], evaluate)

    def _targets(self) -> list[Target]:
        page = ["--out", str(self.folder / "page.html")]
        every = {"results": ["compare", "RUN", "RUN", *page], "verdict": ["doctor", "RUN"]}
        every |= {"metrics": every["results"]}
        numbers = ["--data", f"{self.data}/numbers.csv"]
        speak = ["generate", "RUN", "--words", "12", "--seed", "3"]
        rate = ["predict", "RUN", "--text", "a good film", "--samples", "2"]
        lm, labels = self._trained("lm", "lm"), self._trained("sentiment", "sentiment")
        prune = ["prune", str(lm), "--fractions", "0.3", "--fraction", "0.3", "--out", "OUT"]
        file = self._made("pruned.safetensors", prune)
        made = [
            Target(lm, 8, {**every, "": speak}),
            Target(labels, 6, {**every, "": rate}),
            Target(file, 4, {"": speak}),
        ]
        if self.whole:
            run = self._trained("numbers", "sentiment", *numbers)
            made.append(Target(run, 3, {**every, "": rate}))
            for task in ("forecast", "mnist"):
                run = self._trained(task, task)
                made.append(Target(run, 1, {**every, "": ["evaluate", "RUN"]}))
        return made


def _whole(run: Path) -> str:
    """All of the last checkpoint as a text."""
    checkpoint = CheckpointStore(run).load()
    tensors, plain = pack([dict(sorted(checkpoint.model.items())), checkpoint.state])
    found = hashlib.sha256(json.dumps(plain).encode())
    for name, tensor in tensors.items():
        found.update(name.encode() + tensor.reshape(-1).view(torch.uint8).numpy().tobytes())
    return found.hexdigest()


def _shorten_flickr8k(folder: Path) -> None:
    """Leave the first images of each split."""
    kept: list[str] = []
    for split, size in FLICKR_SPLITS.values():
        path = folder / f"Flickr_8k.{split}Images.txt"
        own = path.read_text().splitlines()[:size]
        path.write_text("\n".join(own) + "\n")
        kept += own
    path, known = folder / "Flickr8k.token.txt", set(kept)
    lines = [line for line in path.read_text().splitlines() if line.split("#")[0] in known]
    path.write_text("\n".join(lines) + "\n")
    path = folder / "features-efficientnet-lite0.npz"
    with np.load(path) as packed:
        names, features = packed["names"], packed["features"]
    own_rows = [row for row, name in enumerate(names.tolist()) if name in known]
    np.savez_compressed(path, names=names[own_rows], features=features[own_rows])
