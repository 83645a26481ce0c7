"""Checkpoints that survive kills, full disks and bad bytes.

    RUN/checkpoints/<step>/model.safetensors    the model's tensors under their own names
                           state.safetensors    the other tensors: optimiser, random generators, ...
                           manifest.json        the state's plain values, sizes and hashes, checksum
    RUN/last, RUN/best                          text files that hold a step

A checkpoint is written in a hidden folder beside the others and renamed when it is wholly on the
disk; only then do the pointers move. `best` moves before a state that knows of it can be resumed
(before `last`, or before the swap when a step is saved again): after a kill in between, the older
state is resumed and marks the same best again, whereas the other order would forget it.
"""

import contextlib
import hashlib
import json
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from torch import Tensor

from bayesrnn.durable import explained, fsync_directory, reason, write_durably, write_synced
from bayesrnn.errors import CheckpointError
from bayesrnn.training.state import JSON, pack, storable, unpack
from bayesrnn.untrusted import MOST_TEXT, read_regular

_FORMAT = "bayesrnn-checkpoint"
_VERSION = 1
_MODEL, _STATE, _MANIFEST = "model.safetensors", "state.safetensors", "manifest.json"
_STEP = re.compile(r"0|[1-9][0-9]{0,17}", re.ASCII)


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """All that is needed to go on from a step: the model's tensors and any other nested state."""

    step: int
    model: dict[str, Tensor]
    state: Any


class CheckpointStore:
    """The checkpoints of one run directory. Only one process at a time may save or clean."""

    def __init__(self, run: Path) -> None:
        self.run = run
        self.folder = run / "checkpoints"

    def exists(self, which: str = "last") -> bool:
        """Whether a checkpoint was completely saved under a pointer, `last` or `best`."""
        try:
            return (self.run / which).exists()
        except OSError as error:
            raise CheckpointError(f"cannot read {self.run}: {reason(error)}") from error

    def steps(self) -> list[int]:
        """The steps that have a checkpoint, ascending; not all of them need to be whole."""
        try:
            names = [entry.name for entry in self.folder.iterdir()]
        except FileNotFoundError:
            return []
        except OSError as error:
            raise CheckpointError(f"cannot read {self.folder}: {reason(error)}") from error
        names = [name.removeprefix(".replaced-") for name in names]
        return sorted({int(name) for name in names if _STEP.fullmatch(name)})

    def step(self, which: str = "last") -> int:
        """The step that `last`, `best` or a number stands for."""
        if which in ("last", "best"):
            return self._pointed(which)
        if not _STEP.fullmatch(which):
            raise CheckpointError(f"no checkpoint is called {which!r}: give last, best or a step")
        return int(which)

    def save(self, checkpoint: Checkpoint, best: bool) -> None:
        """Save durably, move `last` (and `best`), and keep only the last two and the best.

        Whatever fails, the checkpoints saved before and the pointers to them stay whole. A model
        with a NaN or an infinity in it is refused before anything is written.
        """
        step = checkpoint.step
        if not _STEP.fullmatch(str(step)):
            raise ValueError(f"a checkpoint's step is a whole number from 0 on, not {step!r}")
        files = _encode(checkpoint)
        advice = "the checkpoints saved before are whole"
        with explained(f"save the checkpoint of step {step} in {self.folder}", advice):
            again = self._where(step).exists()
            if best and again:
                self._point("best", step)
            self._place(step, files)
            if best and not again:
                self._point("best", step)
            self._point("last", step)
        with explained(f"remove old checkpoints in {self.folder}", advice):
            self._prune(step)

    def load(self, which: str = "last") -> Checkpoint:
        """Read `last`, `best` or a step, after its sizes, hashes and checksum were found right."""
        return self._load(which, with_state=True)

    def load_model(self, which: str = "last") -> Checkpoint:
        """Like `load`, without state.safetensors: each tensor of the state is `None`."""
        return self._load(which, with_state=False)

    def plain_state(self, which: str = "last") -> Any:
        """The state of `last`, `best` or a step without its tensors, and no tensor is read."""
        try:
            step = self.step(which)
            content = _read_manifest(self._where(step) / _MANIFEST)
        except OSError as error:
            raise CheckpointError(f"cannot read {self.folder}: {reason(error)}") from error
        return unpack(None, content.get("state"))

    def clean(self) -> None:
        """Tidy up after a killed process. For the process that holds the run's lock only."""
        with explained(f"tidy up {self.folder}", "the checkpoints saved before are whole"):
            for aside in self.folder.glob(".replaced-*"):
                whole = self.folder / aside.name.removeprefix(".replaced-")
                if whole.exists():
                    shutil.rmtree(aside)
                else:
                    aside.rename(whole)
            for pattern in (".writing-*", ".removed-*"):
                for left in self.folder.glob(pattern):
                    shutil.rmtree(left)
            for pattern in (".last.*.tmp", ".best.*.tmp"):
                for left in self.run.glob(pattern):
                    left.unlink()

    # Writing

    def _point(self, name: str, step: int) -> None:
        write_durably(self.run / name, f"{step}\n".encode())

    def _place(self, step: int, files: Mapping[str, bytes]) -> None:
        """Write the folder of a step under a hidden name and give it its own when it is complete.

        A folder that already has the name steps aside first, and is found there if this process
        fails or is killed before the new one is in place.
        """
        writing, final = self.folder / f".writing-{step}", self.folder / str(step)
        aside = self.folder / f".replaced-{step}"
        if not self.folder.exists():
            self.folder.mkdir()
            fsync_directory(self.run)
        try:
            if writing.exists():
                shutil.rmtree(writing)
            writing.mkdir()
            for name, data in files.items():
                write_synced(writing / name, data)
            fsync_directory(writing)
            if final.exists():
                if aside.exists():
                    shutil.rmtree(aside)
                final.rename(aside)
            writing.rename(final)
        except BaseException:
            shutil.rmtree(writing, ignore_errors=True)
            raise
        fsync_directory(self.folder)
        if aside.exists():
            shutil.rmtree(aside)

    def _prune(self, last: int) -> None:
        """Remove all but `last`, the one before it and the best.

        Steps after `last` go too: the run went back to an earlier step and left them behind.
        While the pointer to the best is damaged, any step may be the best and none is removed.
        """
        steps = self.steps()
        keep = {last, *[step for step in steps if step < last][-1:]}
        if (self.run / "best").exists():
            try:
                keep.add(self._pointed("best"))
            except CheckpointError:
                return
        for step in steps:
            if step not in keep:
                # Renamed first: a half-removed folder must not look like a checkpoint.
                removed = self.folder / f".removed-{step}"
                if removed.exists():
                    shutil.rmtree(removed)
                self._where(step).rename(removed)
                shutil.rmtree(removed)

    # Reading

    def _load(self, which: str, with_state: bool) -> Checkpoint:
        step: int | None = None
        try:
            step = self.step(which)
            return _read(self._where(step), step, with_state)
        except OSError as error:
            raise CheckpointError(f"cannot read {self.folder}: {reason(error)}") from error
        except CheckpointError as error:
            raise CheckpointError(f"{error}; {self._advice(step)}") from error

    def _advice(self, refused: int | None) -> str:
        for step in reversed(self.steps()):
            if step != refused:
                with contextlib.suppress(CheckpointError, OSError):
                    _read(self._where(step), step, with_state=True)
                    return (
                        f"the checkpoint of step {step} is whole: use it with --checkpoint {step}"
                    )
        return f"{self.run} has no other whole checkpoint"

    def _pointed(self, name: str) -> int:
        """The step that a pointer file holds; anything but a step in it is refused."""
        text = _read_file(self.run / name, limit=32).decode("ascii", errors="replace")
        if not (text.endswith("\n") and _STEP.fullmatch(text[:-1])):
            raise CheckpointError(f"{self.run / name} is damaged: it does not hold a step")
        return int(text)

    def _where(self, step: int) -> Path:
        """The folder of a step, also when a kill left it aside in the middle of a replacement."""
        final, aside = self.folder / str(step), self.folder / f".replaced-{step}"
        return aside if aside.exists() and not final.exists() else final


def _encode(checkpoint: Checkpoint) -> dict[str, bytes]:
    """The files of a checkpoint, by name."""
    model = {name: storable(x, f"model[{name!r}]") for name, x in checkpoint.model.items()}
    for name, tensor in model.items():
        if not bool(torch.isfinite(tensor).all()):
            raise CheckpointError(
                f"the model is not saved at step {checkpoint.step}: {name!r} holds a NaN or an "
                "infinity; the checkpoints saved before are whole"
            )
    tensors, value = pack(checkpoint.state)
    files = {_MODEL: _tensor_bytes(model), _STATE: _tensor_bytes(tensors)}
    content: JSON = {
        "format": _FORMAT,
        "version": _VERSION,
        "step": checkpoint.step,
        "files": {
            name: {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
            for name, data in files.items()
        },
        "state": value,
    }
    return {**files, _MANIFEST: _manifest_bytes(content)}


def _tensor_bytes(tensors: Mapping[str, Tensor]) -> bytes:
    """A safetensors file; tensors that share memory (tied weights) are stored once per name."""
    seen: set[int] = set()
    separate: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        address = tensor.untyped_storage().data_ptr()
        separate[name] = tensor.clone() if address in seen else tensor
        seen.add(address)
    return safetensors.torch.save(separate)


def _manifest_bytes(content: JSON) -> bytes:
    """The canonical bytes of a manifest, so that every changed byte is detected."""
    checksum = hashlib.sha256(_canonical(content)).hexdigest()
    return _canonical({"content": content, "checksum": checksum}) + b"\n"


def _canonical(value: JSON) -> bytes:
    return json.dumps(value, indent=1, sort_keys=True, allow_nan=False).encode("ascii")


def _read(folder: Path, step: int, with_state: bool) -> Checkpoint:
    """Verify and read a checkpoint's folder."""
    if not folder.is_dir():
        raise CheckpointError(f"there is no checkpoint of step {step}: {folder} is not there")
    path = folder / _MANIFEST
    content = _read_manifest(path)
    if content.get("step") != step:
        raise CheckpointError(f"{path} belongs to another step: {content.get('step')!r}")
    model = _read_tensors(folder / _MODEL, content)
    for name, tensor in model.items():
        if not bool(torch.isfinite(tensor).all()):
            raise CheckpointError(
                f"{folder / _MODEL} cannot be used: {name!r} holds a NaN or an infinity"
            )
    tensors = _read_tensors(folder / _STATE, content) if with_state else None
    try:
        state = unpack(tensors, content.get("state"))
    except CheckpointError as error:
        raise CheckpointError(f"{path} cannot be used: {error}") from error
    return Checkpoint(step, model, state)


def _read_manifest(path: Path) -> dict[str, Any]:
    data = _read_file(path)
    try:
        manifest = json.loads(data)
        content = manifest["content"]
        kind, version = content["format"], content["version"]
        intact = _manifest_bytes(content) == data
    except (ValueError, LookupError, TypeError, RecursionError):
        raise CheckpointError(f"{path} is damaged or not a manifest of bayesrnn") from None
    if kind != _FORMAT:
        raise CheckpointError(f"{path} is not a manifest of bayesrnn")
    if not intact:
        raise CheckpointError(f"{path} is damaged: its content does not match its checksum")
    if version != _VERSION:
        raise CheckpointError(
            f"{path} has format version {version!r}; this bayesrnn reads version {_VERSION}"
        )
    assert isinstance(content, dict)
    return content


def _read_tensors(path: Path, content: Mapping[str, Any]) -> dict[str, Tensor]:
    """The tensors of a file whose size and hash are those of the manifest, in memory of their own.

    Their own memory, because views over a buffer may be aligned otherwise, and arithmetic that
    depends on alignment would not go on bit for bit.
    """
    try:
        size, sha256 = content["files"][path.name]["size"], content["files"][path.name]["sha256"]
        size = int(size)
    except (LookupError, TypeError, ValueError):
        raise CheckpointError(f"{path.parent / _MANIFEST} does not list {path.name}") from None
    data = _read_file(path, limit=size)
    if len(data) != size:
        raise CheckpointError(f"{path} is damaged: {len(data)} bytes instead of {size}")
    if hashlib.sha256(data).hexdigest() != sha256:
        raise CheckpointError(f"{path} is damaged: its content does not match its hash")
    try:
        tensors: dict[str, Tensor] = safetensors.torch.load(data)
        for name in list(tensors):
            tensors[name] = tensors[name].clone()
    except Exception as error:
        raise CheckpointError(f"{path} is not a readable safetensors file: {error}") from error
    return tensors


def _read_file(path: Path, limit: int | None = None) -> bytes:
    """The bytes of a regular file of at most `limit` bytes."""
    try:
        if not path.exists():
            raise CheckpointError(f"{path} is missing")
        if not path.is_file():
            raise CheckpointError(f"{path} is not a file")
        size = path.stat().st_size
        if limit is not None and size > limit:
            raise CheckpointError(f"{path} is damaged: {size} bytes, at most {limit} expected")
        return read_regular(path, MOST_TEXT if limit is None else limit, inside=path.parent)
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {reason(error)}") from error
