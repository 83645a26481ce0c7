"""The other files of a run as its checkpoints know them: settings and words, by their hashes.

A manifest says that the weights are whole. Words in another order, or an edited setting, would give
other predictions from the same weights, and nobody would see it.
"""

import contextlib
import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from bayesrnn.errors import CheckpointError, ConfigError, RunError
from bayesrnn.options import from_toml
from bayesrnn.progress import say
from bayesrnn.training.checkpoints import CheckpointStore
from bayesrnn.training.run_directory import RunDirectory

CONFIG = "config.toml"

#: Entries of a configuration that change no prediction and no step; of moved data there is a hash.
_HARMLESS = (
    *("epochs", "data_dir", "start_from", "device", "threads", "save_minutes", "tensorboard"),
    "calibrate",
)


class KeptFiles:
    """The files that a run keeps beside its checkpoints, while it is trained.

    texts: what is in them, by name.
    before: a configuration that may still be there when a checkpoint is saved.
    """

    def __init__(self, texts: Mapping[str, str], before: str | None = None) -> None:
        self.texts, self.before = dict(texts), before

    def state(self) -> dict[str, Any]:
        """What a checkpoint keeps of them."""
        configs = [self.before, self.texts.get(CONFIG)]
        hashes = {name: _hash(text) for name, text in self.texts.items() if name != CONFIG}
        return {"hashes": hashes, "configs": [text for text in configs if text is not None]}

    def restore_missing(self, run: RunDirectory) -> None:
        """Write those again that somebody removed while the run was trained."""
        for name, text in self.texts.items():
            if not (run.path / name).exists():
                say(f"note: {run.path / name} was removed, and is written again")
                run.write_text(name, text)


def require_words(run: Path, state: Any, texts: Mapping[str, str]) -> None:
    """Refuse files of a run that are not those that a checkpoint was saved beside.

    state: of the checkpoint. Those of earlier versions know nothing of other files.
    """
    kept = _kept(state)
    if kept is None:
        say(
            f"note: the checkpoints of {run}, of an earlier version, keep no hashes of its other "
            "files: if those were changed, that goes unnoticed"
        )
        return
    hashes = kept.get("hashes")
    for name, text in texts.items():
        if not isinstance(hashes, dict) or hashes.get(name) != _hash(text):
            raise RunError(
                f"{run / name} was changed since the run was trained, so that predictions would "
                "be wrong; put it back as it was, or train again with another --out"
            )


def require_settings(run: Path, entries: Mapping[str, Any], harmless: Iterable[str]) -> None:
    """Refuse settings of a run that none of its checkpoints was trained by, and name them.

    entries: of the configuration as it is now.
    harmless: further entries that may differ, such as where the data are.
    """
    texts = _trained_by(run)
    found = [_changed(from_toml(text, CONFIG), entries, harmless) for text in texts]
    if not found or not all(found):
        return
    raise RunError(
        f"{run / CONFIG} was changed since the run was trained: {', '.join(found[0])}; put that "
        "back, give what is to change as an option to `train --resume`, or train a new run with "
        f"--config {run / CONFIG}"
    )


def read_metrics(run: Path) -> list[dict[str, Any]]:
    """The records of a run, refused where they are not those that the last checkpoint knows."""
    known = None
    with contextlib.suppress(CheckpointError):
        state = CheckpointStore(run).plain_state()
        size, found = (state.get(name) for name in ("metrics_size", "metrics_hash"))
        known = (size, found) if isinstance(size, int) and isinstance(found, str) else None
    return RunDirectory(run).metrics.read(known)


def differs(before: str, after: str, harmless: Iterable[str]) -> bool:
    """Whether two configurations differ in more than what is harmless."""
    return bool(_changed(from_toml(before, CONFIG), from_toml(after, CONFIG), harmless))


def _trained_by(run: Path) -> list[str]:
    """The configurations that the checkpoints of a run know, the last one's first."""
    store, texts = CheckpointStore(run), list[str]()
    for step in reversed(store.steps()):
        # Of damaged ones it is said when they are loaded.
        with contextlib.suppress(CheckpointError):
            kept = _kept(store.plain_state(str(step))) or {}
            texts += [text for text in reversed(kept.get("configs", [])) if isinstance(text, str)]
    return list(dict.fromkeys(texts))


def _changed(
    before: Mapping[str, Any], after: Mapping[str, Any], harmless: Iterable[str]
) -> list[str]:
    """Which settings differ, in words."""
    first, second = _flat(before), _flat(after)
    free = {*_HARMLESS, *harmless}
    return [
        f"{name} is {_shown(second.get(name))} and was {_shown(first.get(name))}"
        for name in dict.fromkeys([*first, *second])
        if name not in free and first.get(name) != second.get(name)
    ]


def _flat(entries: Mapping[str, Any]) -> dict[str, Any]:
    options = entries.get("options", {})
    own = {name: value for name, value in entries.items() if name != "options"}
    if not isinstance(options, Mapping):
        raise ConfigError(f"the entry options of {CONFIG} is no table")
    return {**own, **{f"[options] {name}": value for name, value in options.items()}}


def _shown(value: Any) -> str:
    return "not there" if value is None else repr(value)[:60]


def _kept(state: Any) -> dict[str, Any] | None:
    kept = state.get("files") if isinstance(state, dict) else None
    return kept if isinstance(kept, dict) else None


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
