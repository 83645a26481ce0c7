"""The journal survives what kills it; Optuna by itself does not."""

import json
import subprocess
import sys

import optuna
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend

from bayesrnn.studies.search.journal import cut_torn_end, mend, open_journal


def fill(storage, trials):
    study = optuna.create_study(study_name="s", storage=storage, load_if_exists=True)
    for number in range(trials):
        study.tell(study.ask({"x": optuna.distributions.FloatDistribution(0, 1)}), number)
    return study


def values(path):
    study = optuna.load_study(study_name="s", storage=JournalStorage(JournalFileBackend(str(path))))
    return [trial.value for trial in study.get_trials()]


@pytest.fixture
def journal(tmp_path):
    """A journal of two finished trials that ends in half a record."""
    path = tmp_path / "journal.log"
    fill(open_journal(path), 2)
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"op_code":6,"worker_id":"1234-')
    return path, whole


def test_optuna_itself_fails_after_a_torn_line(journal):
    path, _ = journal
    storage = JournalStorage(JournalFileBackend(str(path)))  # half a line at the end is passed over
    study = optuna.load_study(study_name="s", storage=storage)
    study.set_user_attr("key", 1)
    with pytest.raises(json.JSONDecodeError):
        study.set_user_attr("key", 2)
    with pytest.raises(json.JSONDecodeError):
        values(path)


def test_a_torn_end_is_cut_off_before_anything_is_written(journal):
    path, whole = journal
    storage = open_journal(path)
    assert path.read_bytes() == whole
    with path.open("ab") as file:
        file.write(b'{"op_code":5,"wor')  # another worker is killed while this one works
    fill(storage, 1)
    assert values(path) == [0, 1, 0]


def test_what_was_written_behind_a_torn_record_is_kept(journal):
    path, whole = journal
    plain = JournalStorage(JournalFileBackend(str(path)))
    optuna.load_study(study_name="s", storage=plain).set_user_attr("key", 1)
    mend(path)
    study = optuna.load_study(study_name="s", storage=open_journal(path))
    assert study.user_attrs == {"key": 1}
    assert values(path) == [0, 1]
    lines = path.read_bytes().splitlines(keepends=True)
    assert len(lines) == len(whole.splitlines()) + 1
    assert all(isinstance(json.loads(line), dict) for line in lines)


def test_a_line_of_zeros_is_taken_out(journal):
    path, whole = journal
    path.write_bytes(whole + b"\0" * 50 + b"\n")
    mend(path)
    assert path.read_bytes() == whole


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(cut=st.integers(0, 10_000))
def test_wherever_it_is_torn_whole_lines_stay(journal, cut):
    path, whole = journal
    torn = whole[: cut % (len(whole) + 1)]
    path.write_bytes(torn)
    cut_torn_end(path)
    assert path.read_bytes() == torn[: torn.rfind(b"\n") + 1]


def test_a_killed_writer_leaves_no_lock(tmp_path):
    path = tmp_path / "journal.log"
    open_journal(path)
    code = (
        "import os, sys; from pathlib import Path; "
        "from bayesrnn.studies.search.journal import _WritersLock; "
        "_WritersLock(Path(sys.argv[1])).acquire(); os.kill(os.getpid(), 9)"
    )
    ran = subprocess.run([sys.executable, "-c", code, str(path)], check=False)
    assert ran.returncode == -9
    fill(open_journal(path), 1)
    assert values(path) == [0]
