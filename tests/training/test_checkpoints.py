import errno
import io
import json
import os
import pickle
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from torch import Tensor

from bayesrnn.errors import CheckpointError, RunError
from bayesrnn.training import checkpoints
from bayesrnn.training.checkpoints import Checkpoint, CheckpointStore

FILES = ["model.safetensors", "state.safetensors", "manifest.json"]


def checkpoint(step: int, value: float | None = None) -> Checkpoint:
    value = float(step) if value is None else value
    state = {"epoch": step, "moments": {0: (torch.full((3,), value), None)}}
    return Checkpoint(step, {"loc": torch.full((2, 2), value), "rho": torch.ones(2)}, state)


def value_of(found: Checkpoint) -> float:
    """The one number a checkpoint of these tests is made of; model and state must agree on it."""
    value = found.model["loc"][0, 0].item()
    assert torch.equal(found.model["loc"], torch.full((2, 2), value))
    assert torch.equal(found.state["moments"][0][0], torch.full((3,), value))
    assert found.state["epoch"] == found.step
    return float(value)


def hidden(run: Path) -> list[str]:
    return [path.name for path in run.rglob(".*")]


@pytest.fixture
def store(tmp_path: Path) -> CheckpointStore:
    """Checkpoints of the steps 1 (best) and 2 (last)."""
    store = CheckpointStore(tmp_path)
    store.save(checkpoint(1), best=True)
    store.save(checkpoint(2), best=False)
    return store


def test_round_trip(store: CheckpointStore) -> None:
    assert store.exists()
    assert store.steps() == [1, 2]
    assert (store.step(), store.step("best")) == (2, 1)
    assert value_of(store.load()) == 2
    assert value_of(store.load("best")) == 1
    assert value_of(store.load("1")) == 1
    assert hidden(store.run) == []


def test_layout(store: CheckpointStore) -> None:
    assert (store.run / "last").read_text() == "2\n"
    assert (store.run / "best").read_text() == "1\n"
    assert {path.name for path in (store.folder / "2").iterdir()} == set(FILES)
    manifest = json.loads((store.folder / "2" / "manifest.json").read_text())["content"]
    assert (manifest["format"], manifest["version"], manifest["step"]) == (
        "bayesrnn-checkpoint",
        1,
        2,
    )


def test_dtypes_ties_and_own_memory(tmp_path: Path) -> None:
    weight = torch.randn(5, 3)
    model: dict[str, Tensor] = {
        "a": weight,
        "tied": weight,
        "turned": weight.t(),
        "half": torch.randn(3).bfloat16(),
        "odd": torch.arange(3, dtype=torch.uint8),
        "double": torch.randn(1, dtype=torch.float64),
        "scalar": torch.tensor(2.5),
        "none": torch.empty(0, 4),
    }
    store = CheckpointStore(tmp_path)
    store.save(Checkpoint(0, model, torch.get_rng_state()), best=False)
    found = store.load("0")
    assert set(found.model) == set(model)
    for name, tensor in model.items():
        assert found.model[name].dtype == tensor.dtype
        assert torch.equal(found.model[name], tensor)
        assert found.model[name].data_ptr() % 64 == 0
    assert torch.equal(found.state, torch.get_rng_state())
    addresses = [x.untyped_storage().data_ptr() for x in found.model.values() if x.numel()]
    assert len(set(addresses)) == len(addresses)


def test_model_alone_does_not_need_the_state(store: CheckpointStore) -> None:
    (store.folder / "2" / "state.safetensors").unlink()
    found = store.load_model()
    assert found.model["loc"][0, 0] == 2
    assert found.state == {"epoch": 2, "moments": {0: (None, None)}}
    with pytest.raises(CheckpointError, match=r"state.safetensors is missing.*--checkpoint 1"):
        store.load()


def test_pruning_keeps_the_last_two_and_the_best(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path)
    kept = []
    for step in range(1, 8):
        store.save(checkpoint(step), best=step in (1, 3))
        kept.append(store.steps())
    assert kept == [[1], [1, 2], [2, 3], [3, 4], [3, 4, 5], [3, 5, 6], [3, 6, 7]]
    assert value_of(store.load("best")) == 3
    store.save(checkpoint(4), best=False)  # the run went back to 3 and left 6 and 7 behind
    assert store.steps() == [3, 4]
    assert hidden(tmp_path) == []


def test_nothing_is_removed_while_the_best_is_unknown(store: CheckpointStore) -> None:
    (store.run / "best").write_text("x")
    for step in (3, 4):
        store.save(checkpoint(step), best=False)
    assert store.steps() == [1, 2, 3, 4]
    store.save(checkpoint(5), best=True)
    assert store.steps() == [4, 5]


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_not_finite_is_never_saved(store: CheckpointStore, bad: float) -> None:
    broken = checkpoint(3)
    broken.model["rho"][1] = bad
    with pytest.raises(CheckpointError, match="step 3: 'rho' holds a NaN or an infinity"):
        store.save(broken, best=True)
    assert store.steps() == [1, 2]
    assert value_of(store.load()) == 2


def test_unsupported_state_and_step_write_nothing(store: CheckpointStore) -> None:
    with pytest.raises(TypeError, match="state"):
        store.save(Checkpoint(3, {}, {1, 2}), best=False)
    with pytest.raises(ValueError, match="-1"):
        store.save(Checkpoint(-1, {}, None), best=False)
    assert store.steps() == [1, 2]


# Bad files


@pytest.mark.parametrize("name", FILES)
def test_every_changed_byte_is_found(store: CheckpointStore, name: str) -> None:
    path = store.folder / "2" / name
    good = path.read_bytes()
    for place in range(len(good)):
        bad = bytearray(good)
        bad[place] ^= (0x01, 0x20, 0xFF, 0x08)[place % 4]
        path.write_bytes(bad)
        with pytest.raises(CheckpointError, match=name):
            checkpoints._read(path.parent, 2, with_state=True)
    path.write_bytes(good)
    assert value_of(store.load()) == 2


@pytest.mark.parametrize("name", FILES)
def test_every_other_length_is_found(store: CheckpointStore, name: str) -> None:
    path = store.folder / "2" / name
    good = path.read_bytes()
    for bad in [*(good[:size] for size in range(len(good))), good + b"\n", good + good]:
        path.write_bytes(bad)
        with pytest.raises(CheckpointError, match=name):
            checkpoints._read(path.parent, 2, with_state=True)


class Trap:
    """Leaves a mark when it is unpickled."""

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return (os.mkdir, ("trapped",))


def zip_bytes() -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("data.pkl", pickle.dumps(Trap()))
    return buffer.getvalue()


FOREIGN = {
    "empty": b"",
    "pickle": pickle.dumps(Trap()),
    "zip": zip_bytes(),
    "text": b"hello\n",
    "not utf-8": b"\xff\xfe\xfa",
    "list": b"[]",
    "number": b"1",
    "other object": b'{"content": {}}',
    "other format": b'{"content": {"format": "x", "version": 1}, "checksum": ""}',
    "content a list": b'{"content": ["format", "version"]}',
    "deep list": b"[" * 100_000,
    "deep object": b'{"content":' * 20_000 + b"1" + b"}" * 20_000,
    "long number": b'{"content": ' + b"1" * 10_000 + b"}",
    "nan": b'{"content": {"format": NaN, "version": NaN}}',
}


@pytest.mark.parametrize("name", FILES)
def test_foreign_files_are_refused(
    store: CheckpointStore, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(store.run)
    for kind, content in FOREIGN.items():
        (store.folder / "2" / name).write_bytes(content)
        with pytest.raises(CheckpointError, match=rf"{name} is .*--checkpoint 1$"):
            store.load()
        assert not (store.run / "trapped").exists(), kind


@pytest.mark.parametrize("name", FILES)
def test_missing_files_folders_and_pipes_are_refused(store: CheckpointStore, name: str) -> None:
    path = store.folder / "2" / name
    path.unlink()
    with pytest.raises(CheckpointError, match=f"{name} is missing"):
        store.load()
    path.mkdir()
    with pytest.raises(CheckpointError, match=f"{name} is not a file"):
        store.load()
    path.rmdir()
    os.mkfifo(path)
    with pytest.raises(CheckpointError, match=f"{name} is not a file"):
        store.load()


def forge(folder: Path, **changes: Any) -> None:
    """Change a manifest and make its checksum right again, as someone with intent would."""
    path = folder / "manifest.json"
    content = json.loads(path.read_text())["content"]
    path.write_bytes(checkpoints._manifest_bytes({**content, **changes}))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"version": 2}, "format version 2; this bayesrnn reads version 1"),
        ({"step": 7}, "another step: 7"),
        ({"files": {}}, "does not list model.safetensors"),
        ({"files": None}, "does not list"),
        ({"files": {"model.safetensors": {"size": "x", "sha256": 1}}}, "does not list"),
        ({"state": {"tensor": "../../x"}}, "refers to the tensor"),
        ({"state": {"odd": 1}}, "does not write"),
    ],
)
def test_forged_manifests_are_refused(
    store: CheckpointStore, changes: dict[str, Any], words: str
) -> None:
    forge(store.folder / "2", **changes)
    with pytest.raises(CheckpointError, match=words):
        store.load()


def test_forged_tensor_files_are_refused(
    store: CheckpointStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    good = safetensors.torch.save({"loc": torch.ones(2)})
    for bad in (b"", b"x" * 20, pickle.dumps(Trap()), good.replace(b"F32", b"F99"), good[:-1]):
        monkeypatch.setattr(checkpoints, "_tensor_bytes", lambda tensors, bad=bad: bad)
        store.save(checkpoint(2), best=False)
        with pytest.raises(CheckpointError, match="not a readable safetensors file"):
            store.load()


def test_a_checkpoint_moved_to_another_step_is_refused(store: CheckpointStore) -> None:
    shutil.copytree(store.folder / "1", store.folder / "9")
    with pytest.raises(CheckpointError, match="another step: 1"):
        store.load("9")


@pytest.mark.parametrize(
    "which", ["", "../../x", "1/../2", "01", "-1", "1\n", "٣", "LAST", "9" * 30]
)
def test_odd_names_are_refused(store: CheckpointStore, which: str) -> None:
    with pytest.raises(CheckpointError, match="give last, best or a step"):
        store.load(which)


@pytest.mark.parametrize("text", [b"", b"../1\n", b"2", b"2\n\n", b" 2\n", b"\xff\n", b"1" * 99])
def test_odd_pointers_are_refused(store: CheckpointStore, text: bytes) -> None:
    (store.run / "last").write_bytes(text)
    with pytest.raises(CheckpointError, match=r"last is damaged.*--checkpoint 2"):
        store.load()


def test_nothing_there(store: CheckpointStore, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"no checkpoint of step 5.*--checkpoint 2"):
        store.load("5")
    empty = CheckpointStore(tmp_path / "empty")
    assert not empty.exists()
    assert empty.steps() == []
    empty.clean()
    with pytest.raises(CheckpointError, match=r"last is missing; .* has no other whole checkpoint"):
        empty.load()
    with pytest.raises(RunError, match="no such file or folder"):
        empty.save(checkpoint(1), best=False)


# Failing disks


@pytest.mark.parametrize("step", [2, 3], ids=["again", "next"])
@pytest.mark.parametrize(
    ("call", "code"),
    [
        ("os.open", errno.EROFS),
        ("os.write", errno.ENOSPC),
        ("os.fsync", errno.EIO),
        ("Path.mkdir", errno.EACCES),
        ("Path.rename", errno.EROFS),
        ("Path.replace", errno.EDQUOT),
    ],
)
def test_a_failing_disk_leaves_what_was_saved(
    store: CheckpointStore, monkeypatch: pytest.MonkeyPatch, call: str, code: int, step: int
) -> None:
    """The n-th call fails, and all after it, for every n: the store holds the old or the new."""
    owner: Any = os if call.startswith("os") else Path
    name = call.partition(".")[2]
    real = getattr(owner, name)
    failures = 0
    while True:
        copy = CheckpointStore(store.run / f"copy{failures}")
        copy.run.mkdir()
        shutil.copytree(store.folder, copy.folder)
        for pointer in ("last", "best"):
            shutil.copy(store.run / pointer, copy.run)
        left = failures

        def failing(*args: Any, **kwargs: Any) -> Any:
            nonlocal left
            left -= 1
            if left < 0 and "dir_fd" not in kwargs:  # rmtree, which only cleans up, may open
                raise OSError(code, os.strerror(code))
            return real(*args, **kwargs)

        message = None
        monkeypatch.setattr(owner, name, failing)
        try:
            copy.save(checkpoint(step, value=7), best=True)
        except RunError as error:
            message = str(error)
        finally:
            monkeypatch.undo()
        assert value_of(copy.load("last")) in (2, 7)
        assert value_of(copy.load("best")) in (1, 2, 7)
        if message is None:
            break
        failures += 1
        assert message.startswith("cannot ")
        assert "whole" in message
        assert "\n" not in message
        copy.clean()
        assert hidden(copy.run) == []
        copy.save(checkpoint(step, value=8), best=True)
        assert value_of(copy.load("last")) == value_of(copy.load("best")) == 8
    assert failures > 0


def test_a_full_disk_cleans_up_and_says_so(
    store: CheckpointStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(
        RunError, match=r"step 3 in .*: the disk is full; .* saved before are whole"
    ):
        store.save(checkpoint(3), best=True)
    assert store.steps() == [1, 2]
    assert hidden(store.run) == []


def test_a_real_limit_on_file_sizes(store: CheckpointStore) -> None:
    script = f"""
import resource, signal, torch
from pathlib import Path
from bayesrnn.errors import RunError
from bayesrnn.training.checkpoints import Checkpoint, CheckpointStore
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))
try:
    store = CheckpointStore(Path({str(store.run)!r}))
    store.save(Checkpoint(3, {{"w": torch.ones(5000)}}, None), best=True)
except RunError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stderr == ""
    assert done.stdout.startswith("cannot save the checkpoint of step 3")
    assert store.steps() == [1, 2]
    assert value_of(store.load()) == 2
    assert hidden(store.run) == []
