"""A trial belongs to one living worker."""

import os
import signal
import subprocess
import sys
import time

import pytest

from bayesrnn.studies.search import lease as leases
from bayesrnn.studies.search.lease import Lease, holder

HOLD = """
import sys, time
from pathlib import Path
from bayesrnn.studies.search.lease import Lease
assert Lease.take(Path(sys.argv[1]), float(sys.argv[2]))
print("held", flush=True)
time.sleep(60)
"""


@pytest.fixture
def other(tmp_path):
    """Another process that holds the lease."""
    path, started = tmp_path / "lease", []

    def start(seconds=60.0):
        command = [sys.executable, "-c", HOLD, str(path), str(seconds)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        started.append(process)
        assert process.stdout.readline() == "held\n"
        return process

    yield path, start
    for process in started:
        process.kill()
        process.communicate()


def test_the_lease_of_a_living_worker_is_not_taken_and_that_of_a_dead_one_is(other):
    path, start = other
    process = start()
    assert Lease.take(path, 60) is None
    assert f"process {process.pid}" in holder(path)
    process.send_signal(signal.SIGKILL)
    process.wait()
    with Lease.take(path, 60):
        assert f"process {os.getpid()}" in holder(path)
    assert holder(path) == ""


def test_a_worker_elsewhere_is_dead_once_its_file_is_old(other, monkeypatch):
    path, start = other
    start(seconds=600)  # its heart beats so seldom that it does not beat here
    monkeypatch.setattr(leases, "this_machine", lambda: "another machine")
    assert Lease.take(path, 60) is None
    (path.parent / ".lock").touch()
    an_hour_ago = time.time() - 3600
    os.utime(path, (an_hour_ago, an_hour_ago))
    with Lease.take(path, 60):
        assert not (path.parent / ".lock").exists()


def test_who_finds_the_file_to_be_of_another_ends(other):
    path, start = other
    process = start(seconds=0.1)
    path.unlink()
    assert process.wait(30) == 1


def test_the_file_is_kept_new(tmp_path):
    path = tmp_path / "lease"
    with Lease.take(path, 0.06):
        os.utime(path, (0, 0))
        while path.stat().st_mtime == 0:
            time.sleep(0.005)
