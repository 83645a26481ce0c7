"""Several processes train one network as one does: the same bits, also over a resume."""

import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch.distributed import HashStore

from bayesrnn.cli.main import main
from bayesrnn.errors import ConfigError, PeerError
from bayesrnn.tasks.captions import data as captions
from bayesrnn.training.distributed import (
    Group,
    Processes,
    _from_bytes,
    _met,
    _to_bytes,
    in_order,
)
from bayesrnn.training.launch import Launch, launched
from bayesrnn.training.run_directory import FollowedRunDirectory, RunDirectory

from ..conftest import TINY_SPLITS, model_hash
from .processes import ended, group_of

COMMON = ("--device", "cpu", "--threads", "1", "--no-calibrate", "--shards", "4")
CHAIN = ("--hold-epochs", "1", "--decay", "0.5", "--kl-warmup", "1")


@pytest.fixture(scope="module")
def calls(tmp_path_factory):
    """The program's arguments for a tiny run of each task, by name."""
    folder = tmp_path_factory.mktemp("data-of-groups")
    words = ("bad", "fair", "good")
    rows = [f"the film number {n} was {words[n % 3]} indeed,{n % 3 + 0.5}" for n in range(60)]
    (folder / "ratings.csv").write_text("\n".join(["text,rating", *rows]) + "\n")
    text = "it is a truth universally acknowledged that a single man\nmust be in want of a wife\n"
    (folder / "text.txt").write_text(60 * text)
    lm = ("train", "lm", "--corpus", folder / "text.txt", "--hidden", "8", "--batch-size", "8")
    lm = (*lm, "--unroll", "8", "--method", "bbb", *COMMON)
    captioner = ("train", "captions", "--hidden", "8", "--batch-size", "16", *COMMON)
    ratings = ("train", "sentiment", "--data", folder / "ratings.csv", "--hidden", "8", *COMMON)
    return {
        "lm": (*lm, "--epochs", "1"),
        "shared": (*lm, "--epochs", "1", "--shard-noise", "shared"),
        "captions": (*captioner, "--epochs", "1", "--method", "bbb"),
        "sentiment": (*ratings, "--batch-size", "16", "--epochs", "1"),
        "chain": (*lm, *CHAIN),
    }


@pytest.fixture(scope="module")
def trained(calls, tmp_path_factory, tiny_flickr8k_folder):
    """Folders of the runs of 1, 2 and 4 processes, and of one that went from 2 to 1 to 4."""
    folder = tmp_path_factory.mktemp("groups")
    data = {"BAYESRNN_DATA": str(tiny_flickr8k_folder)}
    quiet = [name for name in calls if name != "chain"]
    chain = (*calls["chain"], "--resume", "--out", folder / "chain")

    def together(size, *further):
        given = [(*calls[name], "--out", folder / f"{name}-{size}") for name in quiet]
        logs = folder / f"logs-{size}"
        with group_of(size, logs, *given, *further, splits=TINY_SPLITS, **data) as processes:
            codes, said = ended(processes)
        assert codes == [0] * size, said
        assert said[1:] == [""] * (size - 1)  # the first one alone prints

    def alone(*arguments):
        assert main([str(argument) for argument in arguments]) == 0

    together(2, (*chain, "--epochs", "1"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(captions, "_FLICKR_SPLITS", TINY_SPLITS)
        patch.setenv("BAYESRNN_DATA", data["BAYESRNN_DATA"])
        for name in quiet:
            alone(*calls[name], "--out", folder / f"{name}-1")
        alone(*chain, "--epochs", "2")
        alone(*calls["chain"], "--epochs", "3", "--out", folder / "whole")
    together(4, (*chain, "--epochs", "3"))
    return folder


@pytest.mark.parametrize("name", ["lm", "shared", "captions", "sentiment"])
def test_the_same_bits_with_1_2_and_4_processes(trained, name):
    hashes = {size: model_hash(trained / f"{name}-{size}") for size in (1, 2, 4)}
    assert len(set(hashes.values())) == 1, hashes
    logs = {(trained / f"{name}-{size}" / "config.toml").read_text() for size in (1, 2, 4)}
    assert len(logs) == 1


def test_two_processes_then_one_then_four(trained):
    assert model_hash(trained / "chain") == model_hash(trained / "whole")
    first, again = (RunDirectory(trained / name).metrics.read() for name in ("whole", "chain"))
    for record in (*first, *again):
        record.pop("words_per_second", None)
    assert first == again


def test_noise_of_their_own_is_not_shared_noise(trained):
    assert model_hash(trained / "lm-2") != model_hash(trained / "shared-2")


def test_a_signal_to_one_process_stops_all_and_nothing_is_lost(trained, calls, tmp_path):
    out = tmp_path / "run"
    arguments = (*calls["chain"], "--epochs", "3", "--out", out)
    with group_of(2, tmp_path / "logs", (*arguments, "--save-minutes", "1e-9")) as processes:
        while not (out / "last").exists():  # a first checkpoint
            assert processes[0].is_alive()
            time.sleep(0.01)
        os.kill(processes[1].pid, signal.SIGTERM)
        codes, said = ended(processes)
    assert codes == [0, 0], said
    assert "everything is saved; go on with" in said[0]
    assert said[1] == ""
    assert main([str(argument) for argument in (*arguments, "--resume")]) == 0
    assert model_hash(out) == model_hash(trained / "whole")


def test_a_process_that_hangs_or_is_killed_is_given_up(calls, tmp_path):
    out = tmp_path / "run"
    arguments = (*calls["chain"], "--epochs", "50", "--out", out, "--peer-timeout", "2")
    for sent, expected in ((signal.SIGSTOP, "not answered for 2 seconds"), (signal.SIGKILL, "end")):
        with group_of(2, tmp_path / "logs", (*arguments, "--resume")) as processes:
            before = (out / "last").read_text() if (out / "last").exists() else ""
            while not (out / "last").exists() or (out / "last").read_text() == before:
                assert processes[0].is_alive(), processes[0].output.read_text()
                time.sleep(0.01)
            os.kill(processes[1].pid, sent)
            processes[0].join()
            assert processes[0].exitcode == 1
            said = processes[0].output.read_text()
        last = said.strip().splitlines()[-1]
        assert last.startswith("bayesrnn: process 0 of 2 stops: another process has")
        assert expected in last
        assert "Traceback" not in said


def test_a_second_group_is_refused(calls, tmp_path):
    out = tmp_path / "run"
    run = RunDirectory(out)
    run.create()
    with run.lock(), group_of(2, tmp_path / "logs", (*calls["lm"], "--out", out)) as processes:
        codes, said = ended(processes)
    assert codes == [1, 1]
    assert f"another process (pid {os.getpid()}) is training in" in said[0]
    assert "Traceback" not in said[0] + said[1]


def test_a_mistake_is_said_once(calls, tmp_path):
    given = (*calls["lm"], "--shards", "3", "--out", tmp_path / "run")
    with group_of(2, tmp_path / "logs", given) as processes:
        codes, said = ended(processes)
    assert codes == [1, 1]
    assert said[0].startswith("bayesrnn: --shards is 3, but 8 sequences")
    assert said[1] == ""


# What needs no second process


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 6, 8, 12])
def test_sums_in_order_are_the_same_from_partial_sums(count):
    """For as many processes as are a power of two, and for one process each."""
    values = torch.randn(count, 1000, generator=torch.Generator().manual_seed(count))
    whole = in_order(lambda n: values[n].clone(), 0, count)
    torch.testing.assert_close(whole, values.double().sum(0).float())
    for size in {1, count, *(2**n for n in range(4))}:
        if count % size == 0:
            own = count // size
            parts = [in_order(lambda n: values[n].clone(), r * own, own) for r in range(size)]
            assert torch.equal(in_order(parts.__getitem__, 0, size), whole)


def test_values_travel_as_they_are():
    shared = torch.arange(6.0)
    value = [{"state": (shared, shared[2:4]), "seeds": [2**62, 3], "none": None, "x": 1e-310}]
    vector = torch.nn.functional.pad(_to_bytes(value), (0, 100))
    (found,) = _from_bytes(vector)
    assert torch.equal(found["state"][0], shared)
    assert torch.equal(found["state"][1], shared[2:4])
    assert found["seeds"] == [2**62, 3]
    assert (found["none"], found["x"]) == (None, 1e-310)


def test_one_process_is_a_group():
    group, vector = Group(), torch.ones(3)
    assert group.total(vector) is vector
    assert group.largest(3, 0) == [3, 0]
    assert group.gather({"a": 1}) == [{"a": 1}]
    group.wait()


def test_what_the_launcher_says(monkeypatch):
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "TORCHELASTIC_RUN_ID"):
        monkeypatch.delenv(name, raising=False)
    assert launched() is None
    monkeypatch.setenv("RANK", "3")
    assert launched() is None  # a word that other programs use, too
    monkeypatch.setenv("WORLD_SIZE", "4")
    assert launched() == Launch(rank=3, size=4)
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "none")
    assert launched().name == ""
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "mine")
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "2")
    assert launched() == Launch(3, 4, 0, 2, "mine")
    monkeypatch.setenv("WORLD_SIZE", "3")
    with pytest.raises(ConfigError, match="RANK=3 and WORLD_SIZE=3"):
        launched()
    monkeypatch.setenv("WORLD_SIZE", "many")
    with pytest.raises(ConfigError, match="WORLD_SIZE=many, which is no whole number"):
        launched()


@pytest.mark.parametrize(
    ("error", "said"),
    [
        ("Timed out waiting 2000ms for recv operation to complete", "not answered for 2 seconds"),
        ("Connection closed by peer [127.0.0.1]:38121", "another process has ended"),
    ],
)
def test_what_is_wrong_with_the_others_is_a_sentence(error, said):
    with pytest.raises(PeerError, match=said), Processes(Launch(1, 2), 2.0)._peers():
        raise RuntimeError(error)


def test_what_dead_processes_have_written_is_not_read():
    """One store for two launches, as under torchrun: the second one starts with old names in it."""
    store, seen = HashStore(), []
    for _ in range(2):
        with ThreadPoolExecutor(3) as pool:
            # The first one comes first, and finds what asked in the launch before.
            waiting = [pool.submit(_met, store, rank, 3, 60.0) for rank in range(3)]
            first, *others = (each.result() for each in waiting)
        first.set("address", f"launch {len(seen)}")
        seen.append([other.get("address").decode() for other in others])
    assert seen == [["launch 0"] * 2, ["launch 1"] * 2]
    with pytest.raises(RuntimeError, match="2 of 3 have not come"):
        _met(store, 0, 3, 0.0)


def test_only_the_first_process_writes(tmp_path):
    followed = FollowedRunDirectory(tmp_path / "run")
    followed.create()
    with followed.lock(), RunDirectory(tmp_path).lock():
        followed.write_config("a = 1")
        followed.metrics.append({"step": 1})
        followed.metrics.truncate(0)
        assert followed.metrics.size() == 0
    assert [path.name for path in tmp_path.rglob("*")] == [".lock"]


def test_a_run_knows_its_launch(tmp_path):
    run = RunDirectory(tmp_path)
    assert not run.is_of_launch("mine")
    with run.lock("mine"):
        pass
    assert run.is_of_launch("mine")
    assert not run.is_of_launch("")
    with run.lock():
        pass
    assert not run.is_of_launch("mine")
    assert not run.is_of_launch("")
