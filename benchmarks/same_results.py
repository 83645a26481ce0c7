"""Do two versions of the program give the same results, and does the new one read old runs?

    python benchmarks/same_results.py measure /tmp/old --source /path/to/old/src
    python benchmarks/same_results.py measure /tmp/new
    python benchmarks/same_results.py compare /tmp/old/measured.json /tmp/new/measured.json
    python benchmarks/same_results.py old-runs /tmp/old

`measure` makes tiny data, trains every task with several methods on it, and lets all commands of
the program loose on the runs. Whatever comes out is written to FOLDER/measured.json: a hash of the
trained weights, settings, metrics, results, and what the commands printed and wrote. `compare`
finds what differs between two such files. `old-runs` takes the runs of an earlier `measure`,
evaluates and resumes copies of them, and holds what comes out against what the earlier version got.

Only the command line is used, `python -m bayesrnn` of the interpreter that runs this script, so
that it works with any version. All numbers are compared to the last bit, which is possible because
everything runs on one thread of one machine; figures of two machines differ.

Not covered: `bench`, which measures time; `quickstart` and `reproduce`, which take too long; MNIST,
Penn Treebank, WikiText-2 and the film reviews, which have to be the published files.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import importlib.util
import json
import math
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
import safetensors.numpy

# What is not compared, and why

#: Entries of measured.json that `compare` passes over, by pattern of their key path.
LEFT_OUT = {
    "program/*": "says which version was measured, and with which libraries; they may differ",
}
#: Entries that need not be equal to the last bit, with the relative difference that is allowed.
CLOSE = {
    "commands/*/compact *, for speed/stdout/*": (
        1e-5,
        "a compact file is read by a sparse or a dense product, whichever a timing at the start "
        "finds faster, and the two round differently; `compact *, in full` is compared exactly",
    ),
}
#: Fields of metrics.jsonl that never get into measured.json: they are measured by the clock.
CLOCK_FIELDS = re.compile(r".*_per_second|seconds|speed")
#: Lines of standard error that never get into it: they are printed when a minute has passed.
CLOCK_LINES = re.compile(r"step \d+: ")
#: Files of a run that are not read. A manifest and the state beside it hold the length of
#: metrics.jsonl, and with it the digits of speeds; that a run can be resumed from them to the
#: same bits is measured instead. The number of a process is in the lock.
UNREAD_FILES = ("manifest.json", "state.safetensors", ".lock")

# What is measured

#: Relative to the folder, in which all commands run: so no path depends on where the folder is.
DATA, RUNS, RESUMED, COMPARED, OUTPUTS = "data", "runs", "resumed", "compared", "outputs"
MEASURED = "measured.json"
EPOCHS = 2

TRAINING = ("--epochs", str(EPOCHS), "--device", "cpu", "--threads", "1")
CPU = ("--device", "cpu")
TEXT = ("--corpus", f"{DATA}/text.txt", "--batch-size", "4", "--unroll", "10", "--init", "0")
CAPTIONS = ("--data-dir", DATA, "--hidden", "8", "--batch-size", "60", "--lr", "0.05")
REVIEWS = ("--hidden", "10", "--segment", "12", "--batch-size", "4", "--lr", "0.01")
NUMBERS = ("--data", f"{DATA}/numbers.csv", "--target-column", "stars", *REVIEWS)
LABELS = ("--data", f"{DATA}/labels.csv", *REVIEWS)
DIGITS = ("--images", "digits", "--hidden", "12", "--batch-size", "32", "--lr", "0.01")

COLD = ("--kl-weight", "0.01", "--sigma-scale", "0.2")
TWO = ("--members", "2")
TWO_AT_ONCE = (*TWO, "--side-by-side")

SENTENCE = "the old dog sees a red house and the"


@dataclass(frozen=True)
class Run:
    """A run to train: its task, method and options.

    needs: a module without which the run is left out; an extra of the program installs it.
    """

    name: str
    task: str
    method: str
    options: tuple[str, ...]
    needs: str = ""

    @property
    def folder(self) -> str:
        """Where it is trained."""
        return f"{RUNS}/{self.name}"

    @property
    def has_rounds(self) -> bool:
        """Whether it trains networks one after the other, so that no epoch can be added."""
        return self.method == "ensemble" and "--side-by-side" not in self.options

    @property
    def is_looked_at_closely(self) -> bool:
        """Whether more is done with it than training and evaluation."""
        return self.name in ("lm-plain", "lm-bbb", "lm-ensemble")


def _text_run(method: str, *options: str, cell: str = "lstm", needs: str = "") -> Run:
    options = (*TEXT, "--layers", "2", "--hidden", "12", "--cell", cell, *options)
    return Run(f"lm-{method}", "lm", method, options, needs)


ALL_RUNS = (
    _text_run("plain"),
    _text_run("dropout", "--dropout", "0.2"),
    _text_run("variational-dropout", cell="gru"),
    _text_run("naive-dropout", cell="rnn"),
    _text_run("gaussian-dropout", "--gates", "untied"),
    _text_run("dropconnect"),
    _text_run("bbb"),
    _text_run("sharpened", "--tied", "--kl-weighting", "geometric"),
    _text_run("sgld"),
    _text_run("psgld", cell="rnn"),
    _text_run("ivon", cell="gru", needs="ivon"),
    _text_run("ensemble", *TWO),
    Run("captions-plain", "captions", "plain", CAPTIONS),
    Run("captions-bbb", "captions", "bbb", (*CAPTIONS, *COLD)),
    Run("captions-ensemble", "captions", "ensemble", (*CAPTIONS, *TWO_AT_ONCE)),
    Run("numbers-plain", "sentiment", "plain", NUMBERS),
    Run("numbers-bbb", "sentiment", "bbb", (*NUMBERS, *COLD)),
    Run("numbers-ensemble", "sentiment", "ensemble", (*NUMBERS, *TWO)),
    Run("labels-plain", "sentiment", "plain", LABELS),
    Run("labels-bbb", "sentiment", "bbb", (*LABELS, *COLD)),
    Run("labels-ensemble", "sentiment", "ensemble", (*LABELS, *TWO_AT_ONCE)),
    Run("mnist-plain", "mnist", "plain", DIGITS, "sklearn"),
    Run("mnist-bbb", "mnist", "bbb", DIGITS, "sklearn"),
    Run("mnist-ensemble", "mnist", "ensemble", (*DIGITS, *TWO), "sklearn"),
)

COMMANDS = (
    *("", "train lm", "train mnist", "train sentiment", "train captions", "evaluate"),
    *("tune-dynamic", "generate", "predict", "inspect", "caption", "uncertainty", "prune"),
    *("compare", "quickstart", "reproduce ptb", "bench"),
)

#: Command lines that have to be refused. (None with a word that is not one of several: the parser
#: lists those in an order that changes from process to process.)
MISTAKES = (
    ("evaluate", DATA),
    ("evaluate", f"{RUNS}/lm-plain", "--beam", "2"),
    ("evaluate", f"{RUNS}/lm-plain", "--checkpoint", "7"),
    ("generate", f"{RUNS}/numbers-plain"),
    ("predict", f"{RUNS}/lm-plain", "--text", SENTENCE),
    ("prune", f"{RUNS}/lm-bbb", "--values", "int8"),
    ("train", "lm", "--corpus", f"{DATA}/nothing.txt"),
    ("train", "lm", "--resume", "--out", f"{RUNS}/lm-bbb", "--hidden", "13"),
    ("train", "lm", "--epochs", "0"),
    ("train", "sentiment", "--data", f"{DATA}/text.txt"),
)


@dataclass(frozen=True)
class Command:
    """A command line: what it is about, its name there, and its arguments."""

    about: str
    name: str
    arguments: tuple[str, ...]
    fails: bool = False


def evaluations(run: Run) -> Iterator[Command]:
    """What is measured of a run, and kept in its folder."""
    for samples in ("0", "3"):
        arguments = ("evaluate", run.folder, "--samples", samples, *CPU)
        yield Command(run.name, f"evaluate --samples {samples}", arguments)
    if run.is_looked_at_closely:
        settings = {"sgd": ("0.05",), "rms": ("0.001", "--dynamic-decay", "0.01")}
        for rule, values in settings.items():
            options = ("--dynamic", rule, "--dynamic-segment", "5", "--dynamic-lr", *values)
            dynamic = ("evaluate", run.folder, *options, *CPU)
            yield Command(run.name, f"evaluate --dynamic {rule}", dynamic)


def compact_values(run: Run) -> tuple[str, ...]:
    """The kinds of values in the small files that are made of a run."""
    if not run.is_looked_at_closely:
        return ()
    return ("float32", "int8") if run.method == "bbb" else ("float32",)


def compact_file(run: Run, values: str) -> str:
    """Where a pruned network of a run goes."""
    return f"{OUTPUTS}/{run.name}.{values}.safetensors"


def compact_commands(run: Run) -> Iterator[Command]:
    """Write small files of a run."""
    for values in compact_values(run):
        made = f"{OUTPUTS}/{run.name}.pruned-{values}"
        arguments = (
            *("prune", run.folder, "--fractions", "0,0.3,0.6,0.9"),
            *("--fraction", "0.6" if values == "int8" else "0.3"),
            *("--values", values, "--out", compact_file(run, values), "--streams", "2"),
            *("--json", f"{made}.json", "--html", f"{made}.html", *CPU),
            *(("--per-tensor", "--fine-tune", "1") if values == "int8" else ()),
        )
        yield Command(run.name, f"prune --values {values}", arguments)


def compact_evaluations(run: Run) -> Iterator[Command]:
    """What is measured of the small files: for speed, and in full (dynamic evaluation needs it)."""
    for values in compact_values(run):
        file, made = compact_file(run, values), f"{OUTPUTS}/{run.name}.compact-{values}.json"
        in_full = ("--dynamic", "sgd", "--dynamic-lr", "0.05", "--json", made)
        for how, options in {"for speed": ("--json", "-"), "in full": in_full}.items():
            arguments = ("evaluate", file, *options, *CPU)
            yield Command(run.name, f"compact {values}, {how}", arguments)


def uses(run: Run) -> Iterator[Command]:
    """Commands that use a run and leave it as it is."""
    made = f"{OUTPUTS}/{run.name}"
    options: tuple[str, ...]
    yield from compact_commands(run)
    yield from compact_evaluations(run)
    if run.is_looked_at_closely:
        prompt = ("--prompt", SENTENCE, "--words", "30", *CPU)
        yield Command(run.name, "generate", ("generate", run.folder, *prompt))
        files = ("--json", f"{made}.inspect.json", "--html", f"{made}.inspect.html")
        arguments = ("inspect", run.folder, "--text", SENTENCE, "--samples", "3", *files, *CPU)
        yield Command(run.name, "inspect", arguments)
    if run.task == "sentiment":
        options = ("--file", f"{DATA}/texts.txt", "--samples", "3")
        options = (*options, "--json", f"{made}.predict.json")
        yield Command(run.name, "predict", ("predict", run.folder, *options, *CPU))
    if run.task == "captions" and _has("PIL", "efficientnet_lite_pytorch"):
        options = ("--image", f"{DATA}/image.ppm", "--samples", "3")
        files = ("--json", f"{made}.caption.json", "--html", f"{made}.caption.html")
        yield Command(run.name, "caption", ("caption", run.folder, *options, *files, *CPU))


def common_commands(runs: Sequence[Run]) -> Iterator[Command]:
    """Commands that use several runs, when all of them are trained and evaluated."""
    closely = [run for run in runs if run.is_looked_at_closely]
    texts = [run.folder for run in closely] + [compact_file(closely[0], "float32")]
    captioners = [run.folder for run in runs if run.task == "captions"]
    text_options = ("--window", "5", "--temperature-words", "300", "--shift", f"{DATA}/other.txt")
    for name, paths, options in (
        ("uncertainty lm", texts, text_options),
        ("uncertainty captions", captioners, ()),
    ):
        made = f"{OUTPUTS}/{name.replace(' ', '-')}"
        arguments = ("uncertainty", *paths, "--samples", "0,3", "--bootstrap", "50", *options)
        arguments += ("--json", f"{made}.json", "--html", f"{made}.html", *CPU)
        yield Command("several", name, arguments)
    for kind in dict.fromkeys(run.name.partition("-")[0] for run in runs):
        folders = [f"{COMPARED}/{run.name}" for run in runs if run.name.startswith(f"{kind}-")]
        arguments = ("compare", *folders, "--out", f"{OUTPUTS}/compare-{kind}.html")
        yield Command("several", f"compare {kind}", arguments)
    arguments = ("tune-dynamic", f"{RESUMED}/lm-bbb", "--words", "200", *CPU)
    yield Command("several", "tune-dynamic", arguments)
    for words in COMMANDS:
        arguments = (*words.split(), "--help")
        yield Command("help", words or "bayesrnn", arguments)
    yield Command("help", "--version", ("--version",))
    for arguments in MISTAKES:
        yield Command("mistakes", " ".join(arguments), arguments, fails=True)


# Running the program


class Program:
    """The program under test, as a command line that runs in a folder."""

    def __init__(self, folder: Path, source: Path | None) -> None:
        self.folder = folder.resolve()
        self.failed = 0
        self._environment = {k: v for k, v in os.environ.items() if k != "BAYESRNN_DATA"}
        # One thread: sums have one order then. Help and tables are as wide as the terminal.
        self._environment |= {"OMP_NUM_THREADS": "1", "COLUMNS": "100", "NO_COLOR": "1"}
        if source is not None:
            if not (source / "bayesrnn").is_dir():
                raise SystemExit(f"--source is {source}, which has no folder bayesrnn")
            self._environment["PYTHONPATH"] = str(source.resolve())

    def about(self) -> dict[str, str]:
        """Which version it is, and of what it depends on."""
        code = (
            "import bayesrnn, numpy, platform, torch; print(bayesrnn.__file__, bayesrnn.__version__"
            ", torch.__version__, numpy.__version__, platform.python_version(), sep='\\n')"
        )
        lines = self._python("-c", code).stdout.splitlines()
        return dict(zip(("file", "version", "torch", "numpy", "python"), lines, strict=True))

    def run(self, command: Command) -> dict[str, Any]:
        """What a command printed, and the files that it wrote into the folder of outputs."""
        done = self._python("-m", "bayesrnn", *command.arguments)
        if (done.returncode != 0) != command.fails:
            self.failed += 1
            line = " ".join(command.arguments)
            print(f"exit code {done.returncode}: bayesrnn {line}\n{done.stderr}", file=sys.stderr)
        errors = self._neutral(done.stderr).splitlines()
        return {
            "arguments": list(command.arguments),
            "code": done.returncode,
            "stdout": _lines_or_json(self._neutral(done.stdout)),
            "stderr": [line for line in errors if not CLOCK_LINES.match(line)],
            "files": {
                argument: self._content(self.folder / argument)
                for option, argument in zip(command.arguments, command.arguments[1:], strict=False)
                if option in ("--json", "--html", "--out") and argument.startswith(OUTPUTS)
            },
        }

    def train(self, run: Run) -> dict[str, Any]:
        """Train a run from the start."""
        options = (*run.options, "--method", run.method, "--out", run.folder, *TRAINING)
        return self.run(Command(run.name, "train", ("train", run.task, *options)))

    def resume(self, run: Run) -> dict[str, Any]:
        """Train a copy of a run for one more epoch, or the last ones again where it has rounds."""
        folder = f"{RESUMED}/{run.name}"
        if run.has_rounds:
            steps = [int(p.name) for p in (self.folder / folder / "checkpoints").iterdir()]
            more = ("--checkpoint", str(min(steps)))
        else:
            more = ("--epochs", str(EPOCHS + 1))
        arguments = ("train", run.task, "--resume", "--out", folder, *more)
        return self.run(Command(run.name, "resume", arguments))

    def _python(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, *arguments],
            cwd=self.folder,
            env=self._environment,
            capture_output=True,
            text=True,
            check=False,
        )

    def _neutral(self, text: str) -> str:
        return text.replace(str(self.folder), "FOLDER")

    def _content(self, path: Path) -> Any:
        if not path.exists():
            return None
        if path.suffix == ".safetensors":
            return _safetensors(path)
        return _lines_or_json(self._neutral(path.read_text(encoding="utf-8")))


def _lines_or_json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text.splitlines()


def _safetensors(path: Path) -> dict[str, Any]:
    """The tensors of a file as one hash, and what it says of itself."""
    digest = hashlib.sha256()
    tensors = safetensors.numpy.load_file(path)
    for name in sorted(tensors):
        tensor = np.ascontiguousarray(tensors[name])
        digest.update(f"{name} {tensor.dtype} {tensor.shape} ".encode() + tensor.tobytes())
    with safetensors.safe_open(path, framework="numpy") as file:
        said = file.metadata() or {}
    about = {key: _lines_or_json(value) for key, value in said.items()}
    return {"sha256": digest.hexdigest(), "tensors": sorted(tensors), "about": about}


def read_run(folder: Path) -> dict[str, Any]:
    """All that a run directory holds, but for `UNREAD_FILES`."""
    last = (folder / "last").read_text().strip()
    best = (folder / "best").read_text().strip()
    metrics = (folder / "metrics.jsonl").read_text().splitlines()
    texts = [path for path in folder.iterdir() if path.suffix in (".toml", ".txt")]
    values = [p for p in folder.rglob("*.json") if p.name not in UNREAD_FILES]
    return {
        "last": {"step": last, **_safetensors(folder / f"checkpoints/{last}/model.safetensors")},
        "best": {"step": best, **_safetensors(folder / f"checkpoints/{best}/model.safetensors")},
        "metrics": [_without_clock(json.loads(line)) for line in metrics],
        "texts": {path.name: path.read_text().splitlines() for path in sorted(texts)},
        "json": {str(p.relative_to(folder)): json.loads(p.read_text()) for p in sorted(values)},
        "names": sorted(str(path.relative_to(folder)) for path in folder.rglob("*")),
    }


def _without_clock(record: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in record.items() if not CLOCK_FIELDS.fullmatch(name)}


def _has(*modules: str) -> bool:
    return all(importlib.util.find_spec(module) is not None for module in modules)


def _runs_here() -> list[Run]:
    """The runs for which the extras are installed; says which are left out."""
    chosen = [run for run in ALL_RUNS if not run.needs or _has(run.needs)]
    for run in ALL_RUNS:
        if run not in chosen:
            print(f"left out, because {run.needs} is not installed: {run.name}", file=sys.stderr)
    return chosen


# Data


def make_data(folder: Path) -> None:
    """Tiny data for all tasks, always the same."""
    folder.mkdir(parents=True)
    (folder / "text.txt").write_text(_sentences(1, 420))
    (folder / "other.txt").write_text(_sentences(2, 30, backwards=True))
    (folder / "texts.txt").write_text("a good film\nthe plot is awful , awful and dull\nxyzzy\n")
    _make_tables(folder)
    _make_flickr8k(folder / "flickr8k")
    _make_coco(folder / "coco-val2017")
    row, column = np.mgrid[0:64, 0:96]
    pixels = np.stack([row * 4, column * 2, (row + column) % 256], 2).astype(np.uint8)
    (folder / "image.ppm").write_bytes(b"P6 96 64 255\n" + pixels.tobytes())


def _chooser(seed: int) -> Callable[[Sequence[str]], str]:
    """A function that picks one of several; the same for a seed in every version of Python."""
    generator = random.Random(seed)
    return lambda words: words[int(generator.random() * len(words))]


def _sentences(seed: int, count: int, backwards: bool = False) -> str:
    pick = _chooser(seed)
    adjectives = ("red", "old", "small", "good", "tall", "bright", "quiet")
    nouns = ("dog", "house", "man", "tree", "river", "child", "book", "king", "garden")
    verbs = ("sees", "likes", "finds", "leaves", "knows", "wants")
    lines = []
    for number in range(count):
        words = [pick(("the", "a")), pick(adjectives), pick(nouns), pick(verbs)]
        words += [pick(("the", "a", "no")), pick(nouns)]
        if number % 3 == 0:
            words += ["and", pick(verbs), "it"]
        if number % 40 == 0:
            words.append(f"word{number}")
        lines.append(" ".join(reversed(words) if backwards else words).capitalize() + ".")
    return "\n".join(lines) + "\n"


def _make_tables(folder: Path) -> None:
    """Texts whose rating is the share of praise in them: once as a number, once as a label."""
    generator, pick = random.Random(3), _chooser(4)
    rows = []
    for _ in range(150):
        quality = generator.random()
        words = []
        for _ in range(6 + int(generator.random() * 20)):
            praise = generator.random() < quality
            words.append(pick(("good", "great", "lovely") if praise else ("bad", "awful", "dull")))
            words.append(pick(("the", "film", "plot", "is", ",")))
        rows.append((" ".join(words), quality))
    tables: dict[str, tuple[str, Callable[[float], object]]] = {
        "numbers": ("stars", lambda quality: round(1 + 4 * quality, 2)),
        "labels": ("label", lambda quality: ("poor", "fair", "fine")[int(3 * quality)]),
    }
    for name, (column, target) in tables.items():
        with (folder / f"{name}.csv").open("w", newline="") as file:
            csv.writer(file).writerow(["text", column])
            csv.writer(file).writerows([text, target(quality)] for text, quality in rows)


SCENES = tuple(product(("dog", "cat", "horse", "child"), ("on the beach", "in snow", "outside")))
#: How many of the 1,280 features of an image are not 0: what is mostly zeros is a small file.
TELLING = 32


def _features(seed: int, count: int) -> tuple[np.ndarray[Any, Any], list[int]]:
    """Features of made-up images that tell the scene, and the number of the scene of each."""
    scenery, generator = random.Random(5), random.Random(seed)
    scenes = [[scenery.random() for _ in range(TELLING)] for _ in SCENES]
    shown = [int(generator.random() * len(SCENES)) for _ in range(count)]
    features = np.zeros((count, 1280), np.float16)
    for row, scene in zip(features, shown, strict=True):
        row[:TELLING] = [value + 0.2 * generator.random() for value in scenes[scene]]
    return features, shown


def _make_flickr8k(folder: Path) -> None:
    """As many images as the program asks for; each shows one of a few scenes."""
    folder.mkdir()
    names, lines = [], []
    sizes = {"train": 6000, "dev": 1000, "test": 1000}
    features, shown = _features(6, sum(sizes.values()))
    for split, size in sizes.items():
        own = [f"{split}{number}.jpg" for number in range(size)]
        (folder / f"Flickr_8k.{split}Images.txt").write_text("\n".join(own) + "\n")
        names += own
    for number, (name, scene) in enumerate(zip(names, shown, strict=True)):
        who, where = SCENES[scene]
        said = [f"A {who} runs {where} .", f"The {who} is {where} .", f"One {who}{number}"]
        first = number % 2 if number % 500 else 2
        lines.append(f"{name}#0\t{said[first]}\n")
        if not name.startswith("train"):
            lines.append(f"{name}#1\t{said[1 - number % 2]}\n")
    (folder / "Flickr8k.token.txt").write_text("".join(lines))
    path = folder / "features-efficientnet-lite0.npz"
    np.savez_compressed(path, names=np.array(names), features=features)


def _make_coco(folder: Path) -> None:
    """A few other images."""
    folder.mkdir()
    features, shown = _features(7, 40)
    names = [f"coco{number}.jpg" for number in range(len(shown))]
    content = {
        "images": [{"id": n, "file_name": name} for n, name in enumerate(names)],
        "annotations": [
            {"image_id": n, "caption": f"A {SCENES[scene][0]} again ."}
            for n, scene in enumerate(shown)
        ],
    }
    (folder / "captions_val2017.json").write_text(json.dumps(content))
    path = folder / "features-efficientnet-lite0.npz"
    np.savez_compressed(path, names=np.array(names), features=features[:, ::-1])


# The three subcommands


def measure(folder: Path, source: Path | None, jobs: int) -> int:
    """Make FOLDER/measured.json; gives the exit code."""
    if folder.exists() and any(folder.iterdir()):
        raise SystemExit(f"{folder} is not empty; give a new folder")
    started = time.monotonic()
    make_data(folder / DATA)
    for name in (RUNS, RESUMED, COMPARED, OUTPUTS):
        (folder / name).mkdir()
    program, runs = Program(folder, source), _runs_here()
    about = program.about()
    print(f"measuring {about['file']}", file=sys.stderr)
    commands: dict[str, dict[str, Any]] = {}

    def one(run: Run) -> dict[str, Any]:
        said = {"train": program.train(run)}
        shutil.copytree(folder / run.folder, folder / RESUMED / run.name)
        said["resume"] = program.resume(run)
        for command in (*evaluations(run), *uses(run)):
            said[command.name] = program.run(command)
        _copy_for_comparison(folder / run.folder, folder / COMPARED / run.name)
        print(f"{time.monotonic() - started:4.0f} s  {run.name}", file=sys.stderr)
        return said

    with ThreadPoolExecutor(jobs) as pool:
        # The longest first: nobody waits for them in the end.
        ordered = sorted(runs, key=lambda run: (run.task != "captions", run.task != "lm"))
        commands = dict(zip([run.name for run in ordered], pool.map(one, ordered), strict=True))
        # Kept now: what follows adds the settings that `tune-dynamic` finds.
        resumed = {run.name: read_run(folder / RESUMED / run.name) for run in runs}
        common = list(common_commands(runs))
        for command, said in zip(common, pool.map(program.run, common), strict=True):
            commands.setdefault(command.about, {})[command.name] = said
    measured = {
        "program": about,
        "commands": commands,
        "runs": {run.name: read_run(folder / run.folder) for run in runs},
        "resumed": resumed,
    }
    (folder / MEASURED).write_text(json.dumps(measured, indent=1, sort_keys=True) + "\n")
    count = sum(map(len, commands.values()))
    print(
        f"{count} commands in {time.monotonic() - started:.0f} s, {program.failed} did not end as "
        f"they should; see {folder / MEASURED}"
    )
    return 1 if program.failed else 0


def _copy_for_comparison(run: Path, copy: Path) -> None:
    """A copy of a run whose speeds are all the same: `compare` shows them."""
    shutil.copytree(run, copy, ignore=shutil.ignore_patterns("checkpoints"))
    lines = []
    for line in (copy / "metrics.jsonl").read_text().splitlines():
        record = json.loads(line)
        lines.append({k: 1000 if CLOCK_FIELDS.fullmatch(k) else v for k, v in record.items()})
    (copy / "metrics.jsonl").write_text("".join(json.dumps(record) + "\n" for record in lines))


class Comparison:
    """Two trees of values, compared leaf by leaf; every difference is printed as a line."""

    def __init__(self) -> None:
        self.compared = self.differing = self.left_out = 0

    def compare(self, old: Any, new: Any, *path: str) -> None:
        """Count what is equal and what is not below a path."""
        place = "/".join(path)
        if any(fnmatchcase(place, pattern) for pattern in LEFT_OUT):
            self.left_out += 1
        elif isinstance(old, dict) and isinstance(new, dict):
            for key in sorted(old.keys() | new.keys()):
                if key in old and key in new:
                    self.compare(old[key], new[key], *path, key)
                else:
                    self._differ("/".join((*path, key)), *((d.get(key, _NONE)) for d in (old, new)))
        elif isinstance(old, list) and isinstance(new, list):
            for number, (first, second) in enumerate(zip(old, new, strict=False)):
                self.compare(first, second, *path, str(number))
            if len(old) != len(new):
                self._differ(f"{place}/length", len(old), len(new))
        elif _equal(old, new, place):
            self.compared += 1
        else:
            self._differ(place, old, new)

    def close(self) -> int:
        """Say how many were compared; gives the exit code."""
        if self.left_out:
            print(f"left out on purpose: {self.left_out} values below {', '.join(LEFT_OUT)}")
        print(f"{self.compared} values compared, {self.differing} differ")
        return 1 if self.differing or not self.compared else 0

    def _differ(self, place: str, old: Any, new: Any) -> None:
        self.compared += 1
        self.differing += 1
        print(f"{place}: {_short(old)} -> {_short(new)}")


class _Nothing:
    def __repr__(self) -> str:
        return "(not there)"


_NONE = _Nothing()


def _equal(old: Any, new: Any, place: str) -> bool:
    if isinstance(old, float) and isinstance(new, float):
        if old == new or (math.isnan(old) and math.isnan(new)):
            return True
        allowed = [most for pattern, (most, _) in CLOSE.items() if fnmatchcase(place, pattern)]
        return bool(allowed) and math.isclose(old, new, rel_tol=allowed[0])
    return type(old) is type(new) and bool(old == new)


def _short(value: Any, most: int = 60) -> str:
    text = repr(value)
    return text if len(text) <= most else f"{text[: most - 3]}..."


def compare(old: Path, new: Path) -> int:
    """Print what differs between two files of `measure`; gives the exit code."""
    comparison = Comparison()
    first, second = (json.loads(path.read_text()) for path in (old, new))
    for name, value in first["program"].items():
        print(f"{name}: {value} -> {second['program'].get(name)}")
    comparison.compare(first, second)
    return comparison.close()


def old_runs(before: Path, source: Path | None, jobs: int) -> int:
    """Evaluate and resume copies of the runs of an earlier `measure`; gives the exit code."""
    if not (before / MEASURED).is_file():
        raise SystemExit(f"{before} has no {MEASURED}; give a folder that `measure` made")
    measured = json.loads((before / MEASURED).read_text())
    runs = [run for run in _runs_here() if run.name in measured["runs"]]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        program = Program(folder, source)
        about = program.about()
        print(f"runs of {measured['program']['file']}, read by {about['file']}", file=sys.stderr)
        shutil.copytree(before / DATA, folder / DATA)
        (folder / OUTPUTS).mkdir()
        for compact in (before / OUTPUTS).glob("*.safetensors"):
            shutil.copy(compact, folder / OUTPUTS)

        def one(run: Run) -> dict[str, Any]:
            # Without results: what is there in the end, this version has found.
            for copy in (RUNS, RESUMED):
                ignore = shutil.ignore_patterns("results")
                shutil.copytree(before / run.folder, folder / copy / run.name, ignore=ignore)
            said = {"resume": program.resume(run)}
            used = (*evaluations(run), *compact_evaluations(run))
            return said | {command.name: program.run(command) for command in used}

        with ThreadPoolExecutor(jobs) as pool:
            found = {
                "commands": dict(zip([r.name for r in runs], pool.map(one, runs), strict=True)),
                "runs": {run.name: read_run(folder / run.folder) for run in runs},
                "resumed": {run.name: read_run(folder / RESUMED / run.name) for run in runs},
            }
    comparison = Comparison()
    for run in runs:
        for kind in ("runs", "resumed"):
            comparison.compare(measured[kind][run.name], found[kind][run.name], kind, run.name)
        for command, said in found["commands"][run.name].items():
            path = ("commands", run.name, command)
            comparison.compare(measured["commands"][run.name][command], said, *path)
    return comparison.close()


def main() -> int:
    """Run one of the three subcommands; gives the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    for name, what in {
        "measure": "train and measure tiny runs in a new FOLDER",
        "old-runs": "evaluate and resume copies of the runs of an earlier FOLDER",
    }.items():
        own = commands.add_parser(name, help=what)
        own.add_argument("folder", type=Path)
        own.add_argument("--source", type=Path, help="folder that holds the package bayesrnn")
        own.add_argument("--jobs", type=int, default=2, help="commands at a time (default: 2)")
    own = commands.add_parser("compare", help="print what differs between two measured.json")
    own.add_argument("old", type=Path)
    own.add_argument("new", type=Path)
    given = parser.parse_args()
    if given.command == "measure":
        return measure(given.folder, given.source, given.jobs)
    if given.command == "old-runs":
        return old_runs(given.folder, given.source, given.jobs)
    return compare(given.old, given.new)


if __name__ == "__main__":
    sys.exit(main())
