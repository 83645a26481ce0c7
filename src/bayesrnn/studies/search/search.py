"""A search in its folder: trials are asked for, taken up, and told, by any number of workers.

DIR/search.toml            what all trials have in common, and the space
DIR/journal.log            Optuna's journal; it can be made again from the trials
DIR/trials/0007/           an ordinary run, with trial.json and the lease of its worker
DIR/best.toml              the settings of the best trial, for `bayesrnn train --config`
DIR/search.html            all of it as a page
"""

import math
import shutil
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

from bayesrnn.durable import explained
from bayesrnn.errors import ConfigError
from bayesrnn.studies.search.journal import SystemLock, open_journal, require_optuna
from bayesrnn.studies.search.lease import Lease
from bayesrnn.studies.search.record import (
    COMPLETE,
    DIVERGED,
    PRUNED,
    RUNNING,
    Progress,
    TrialRecord,
    read_progress,
    read_record,
)
from bayesrnn.studies.search.settings import Settings

#: The file that `optuna-dashboard` reads, and the study in it.
JOURNAL: Final = "journal.log"
_NAME: Final = "search"
#: Refused combinations of settings in a row, after which the space has to be at fault.
_REFUSALS: Final = 50
#: Trials that a pruned one has to be worse than half of.
_COMPARED: Final = 5


class Claim(NamedTuple):
    """A trial that this worker trains."""

    record: TrialRecord
    folder: Path
    lease: Lease


class Search:
    """The search in a folder, as this worker sees it."""

    def __init__(self, folder: Path, settings: Settings, lease_seconds: float) -> None:
        self.folder, self.settings = folder, settings
        self.lease_seconds = lease_seconds
        self._optuna = require_optuna()
        with explained(f"make {folder / 'trials'}", "give a folder that can be written to"):
            (folder / "trials").mkdir(parents=True, exist_ok=True)
        with self.locked():
            storage = open_journal(folder / JOURNAL)
            is_new = _NAME not in self._optuna.get_all_study_names(storage)
            begin = self._optuna.create_study if is_new else self._optuna.load_study
            self._study = begin(
                storage=storage,
                study_name=_NAME,
                pruner=self._optuna.pruners.MedianPruner(n_startup_trials=_COMPARED),
            )
            self._replay()

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other workers from changing the search inside the block."""
        with SystemLock(self.folder / ".lock").held():
            yield

    def trial_folder(self, number: int) -> Path:
        """The run directory of a trial."""
        return self.folder / "trials" / f"{number:04d}"

    def claim(self, most: int) -> Claim | None:
        """A trial that a dead worker left, or else a new one; None where all are in work or over.

        most: trials of the search in all.
        """
        with self.locked():
            running = self._trials(self._optuna.trial.TrialState.RUNNING)
            for trial in running:
                folder = self.trial_folder(trial.number)
                folder.mkdir(exist_ok=True)
                lease = Lease.take(folder / "lease", self.lease_seconds)
                if lease is not None:
                    if record := self._taken_up(trial, folder):
                        return Claim(record, folder, lease)
                    lease.release()
                    if read_record(folder) is None:
                        shutil.rmtree(folder)  # it was refused, and is no run
            for _ in range(_REFUSALS):
                if self.asked >= most:
                    return None
                number, params = self._ask()
                if self._is_refused(number, params):
                    continue
                folder = self.trial_folder(number)
                folder.mkdir(exist_ok=True)
                lease = Lease.take(folder / "lease", self.lease_seconds)
                assert lease is not None, "a new trial has a lease"
                record = TrialRecord(number, params)
                record.write(folder)
                return Claim(record, folder, lease)
        raise ConfigError(
            f"{_REFUSALS} settings in a row cannot be trained, the last of them because "
            f"{self._refusal(params)}; give a --space without such combinations"
        )

    def tell(self, record: TrialRecord) -> None:
        """Say what became of a trial, once: first in its folder, which is the truth."""
        with self.locked():
            record.write(self.trial_folder(record.number))
            self._tell(record)

    def report(self, record: TrialRecord, progress: Progress) -> bool:
        """Say how good a trial was after each epoch; gives whether to stop it."""
        trial = self._trial(record.number)
        known = self._frozen(record.number).intermediate_values
        for epoch, loss in enumerate(progress.losses, start=1):
            if loss is not None and epoch not in known:
                trial.report(loss, epoch)
        return self.settings.pruning and progress.falling and bool(trial.should_prune())

    @property
    def asked(self) -> int:
        """The trials so far, without those whose settings were refused or wait in the queue."""
        states = self._optuna.trial.TrialState
        return len(self._trials(states.RUNNING, states.COMPLETE, states.PRUNED))

    def records(self) -> list[TrialRecord]:
        """All trials, by their folders."""
        folders = sorted((self.folder / "trials").iterdir())
        return [record for folder in folders if (record := read_record(folder))]

    def importances(self) -> dict[str, float]:
        """The share of each option in what makes trials good, by PED-ANOVA (Watanabe et al. 2023).

        Nothing where too few trials are over, or all are alike.
        """
        done = self._trials(self._optuna.trial.TrialState.COMPLETE)
        if len(done) < _COMPARED:
            return {}
        found: Mapping[str, float] = self._optuna.importance.get_param_importances(self._study)
        return dict(found) if all(map(math.isfinite, found.values())) else {}

    def _trials(self, *states: Any) -> list[Any]:
        found: list[Any] = self._study.get_trials(deepcopy=False, states=states or None)
        return found

    def _frozen(self, number: int) -> Any:
        return self._trials()[number]

    def _trial(self, number: int) -> Any:
        """Optuna's trial of a number, whoever asked for it."""
        self._study.sampler = self._sampler(number)
        return self._optuna.trial.Trial(self._study, self._frozen(number)._trial_id)

    def _sampler(self, number: int) -> Any:
        """Its choice depends on the trials that are known and on the number alone.

        So a trial that is asked for again after a kill gets the same settings.
        """
        seed = zlib.crc32(f"{self.settings.given.get('seed', 1)} {number}".encode())
        return self._optuna.samplers.TPESampler(seed=seed)

    def _ask(self) -> tuple[int, dict[str, Any]]:
        """A new trial, or the one that somebody put in the queue."""
        waiting = self._trials(self._optuna.trial.TrialState.WAITING)
        number = waiting[0].number if waiting else len(self._trials())
        first = self.settings.space.first
        if not waiting and number < len(first):
            self._study.enqueue_trial(dict(first[number]))
        self._study.sampler = self._sampler(number)
        return number, self._suggested(self._study.ask())

    def _suggested(self, trial: Any) -> dict[str, Any]:
        """The settings of a trial; those that it has already stay."""
        for one in self.settings.space.dimensions:
            if one.choices:
                trial.suggest_categorical(one.name, one.choices)
            else:
                suggest = trial.suggest_int if one.is_whole else trial.suggest_float
                suggest(one.name, one.low, one.high, log=one.log)
        return dict(trial.params)

    def _refusal(self, params: Mapping[str, Any]) -> str:
        """Why nothing can be trained with the settings; empty where something can."""
        try:
            self.settings.task.resolve(self.settings.trial_options(params))
        except ConfigError as error:
            return str(error)
        return ""

    def _is_refused(self, number: int, params: Mapping[str, Any]) -> bool:
        reason = self._refusal(params)
        if reason:
            self._trial(number).set_user_attr("refused", reason)
            self._study.tell(number, state=self._optuna.trial.TrialState.FAIL)
        return bool(reason)

    def _taken_up(self, frozen: Any, folder: Path) -> TrialRecord | None:
        """A trial whose worker is gone; None where it was over, and only the journal knew not."""
        record = read_record(folder)
        if record is None:
            # It was killed between asking and writing: what it did not ask for is asked now.
            params = self._suggested(self._trial(frozen.number))
            if self._is_refused(frozen.number, params):
                return None
            record = TrialRecord(frozen.number, params)
            record.write(folder)
        if record.state != RUNNING:
            self._tell(record)
            return None
        return record

    def _tell(self, record: TrialRecord) -> None:
        """Tell the journal what the folder says; nothing happens if it knows."""
        states = self._optuna.trial.TrialState
        if self._frozen(record.number).state != states.RUNNING:
            return
        trial = self._trial(record.number)
        if record.reason:
            trial.set_user_attr("reason", record.reason)
        if record.state == COMPLETE:
            self._study.tell(record.number, record.value)
        else:
            assert record.state in (PRUNED, DIVERGED)
            self._study.tell(record.number, state=states.PRUNED)

    def _replay(self) -> None:
        """Put trials into the journal that it does not know, because it was lost."""
        records = {record.number: record for record in self.records()}
        for number in range(len(self._trials()), max(records, default=-1) + 1):
            self._study.add_trial(self._restored(records.get(number)))

    def _restored(self, record: TrialRecord | None) -> Any:
        """A trial of a folder as Optuna has it; one that has no folder was refused."""
        states, make = self._optuna.trial.TrialState, self._optuna.trial.create_trial
        kinds = self._optuna.distributions
        if record is None:
            return make(state=states.FAIL)
        progress = read_progress(self.trial_folder(record.number))
        losses = progress.losses if progress else []
        by_state = {RUNNING: states.RUNNING, COMPLETE: states.COMPLETE}
        return make(
            state=by_state.get(record.state, states.PRUNED),
            value=record.value if record.state == COMPLETE else None,
            params=dict(record.params),
            distributions={
                one.name: kinds.CategoricalDistribution(one.choices)
                if one.choices
                else (kinds.IntDistribution if one.is_whole else kinds.FloatDistribution)(
                    one.low, one.high, log=one.log
                )
                for one in self.settings.space.dimensions
            },
            intermediate_values={e: x for e, x in enumerate(losses, 1) if x is not None},
            user_attrs={"reason": record.reason} if record.reason else {},
        )
