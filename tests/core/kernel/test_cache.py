"""The cache of compiled kernels: no one else's library, no damaged one, and none is no error."""

import ctypes
import os
import pwd
import shutil
from pathlib import Path

import pytest
import torch

from bayesrnn.core.kernel import build, cache, library
from bayesrnn.core.kernel.compiled import Kernel, load_kernel
from bayesrnn.errors import BayesRNNWarning

pytestmark = pytest.mark.skipif(load_kernel() is None, reason="no C compiler here")


@pytest.fixture(autouse=True)
def folder(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("BAYESRNN_KERNEL", raising=False)
    monkeypatch.setattr(build, "FLAGS", ("-O0", "-fPIC"))
    return tmp_path / "bayesrnn"


def load():
    found = library.load_library.__wrapped__()
    assert Kernel(found.loops).sum_of_squares(torch.ones(3)) == 3.0
    return found


def load_unkept(reason):
    """Load one that is not kept, which is said in one line."""
    with pytest.warns(BayesRNNWarning, match=reason) as said:
        found = load()
    (line,) = (str(one.message) for one in said)
    assert "\n" not in line
    assert "compiled at each start" in line
    return found


@pytest.fixture
def planted(folder):
    """Bytes in place of the library that would be loaded, under the name that they hash to."""
    load()
    (path,) = folder.iterdir()
    path.unlink()  # it stays loaded here
    data = b"not from here"
    path = path.with_name(f"{path.stem.rpartition('-')[0]}-{cache._hash(data)}.so")
    path.write_bytes(data)
    path.chmod(0o700)
    return path


@pytest.mark.parametrize("what", ["file", "folder", "parent"])
def test_nothing_is_loaded_that_others_could_have_written(what, planted):
    path = {"file": planted, "folder": planted.parent, "parent": planted.parent.parent}[what]
    path.chmod(0o777)
    load_unkept(f"{path} can be written by .*mend it: chmod")
    assert planted.read_bytes() == b"not from here"


@pytest.mark.parametrize("what", ["file", "folder"])
def test_nothing_is_loaded_that_belongs_to_others(what, planted, monkeypatch):
    path = planted if what == "file" else planted.parent
    if os.getuid() == 0:
        os.chown(path, 12_345, -1)
    else:
        monkeypatch.setattr(cache.os, "getuid", lambda: path.stat().st_uid + 1)
    load_unkept("can be written by others than you")
    assert planted.read_bytes() == b"not from here"


def test_a_link_out_of_the_folder_is_not_followed(planted, tmp_path):
    elsewhere = tmp_path / "elsewhere.so"
    shutil.move(planted, elsewhere)
    planted.symlink_to(elsewhere)
    load_unkept("kernel-")


def test_a_folder_that_everybody_may_use_but_nobody_can_take_from_another_is_trusted(tmp_path):
    tmp_path.chmod(0o1777)  # as /tmp
    load()


@pytest.mark.parametrize("damage", ["cut off", "a bit", "empty"])
def test_a_damaged_library_is_compiled_anew(damage, folder):
    load()
    (path,) = folder.iterdir()
    whole = path.read_bytes()
    half = len(whole) // 2
    broken = {
        "cut off": whole[:half],
        "a bit": whole[:half] + bytes([whole[half] ^ 1]) + whole[half + 1 :],
        "empty": b"",
    }[damage]
    path.unlink()  # it stays loaded here
    path.write_bytes(broken)
    path.chmod(0o700)
    load()
    (path,) = folder.iterdir()
    assert cache._hash(path.read_bytes()) == path.stem.rpartition("-")[2]


def test_the_library_is_on_the_disk_before_it_has_its_name(folder, monkeypatch):
    synced = []
    fsync = os.fsync

    def record(descriptor):
        synced.append([path.name for path in folder.glob("*.so")])
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", record)
    load()
    file, directory = synced
    assert file == []
    assert len(directory) == 1


def test_without_a_home_folder(monkeypatch):
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.delenv("HOME", raising=False)

    def unreadable(uid):
        raise KeyError(uid)

    monkeypatch.setattr(pwd, "getpwuid", unreadable)
    load_unkept("no home folder; set HOME or XDG_CACHE_HOME")


def test_a_relative_cache_is_none(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", "here")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert f"{tmp_path}/home/.cache/bayesrnn/" in load().origin
    assert not Path("here").exists()


def test_where_nothing_can_be_written(folder):
    folder.write_text("a file in the way")
    load_unkept("bayesrnn: ")


@pytest.mark.parametrize("mount", ["cache", "temporary"])
def test_a_mount_that_nothing_may_be_run_from(mount, folder, monkeypatch):
    load_file = ctypes.CDLL

    def loader(path):
        if (folder in Path(path).parents) == (mount == "cache"):
            raise OSError(f"{path}: failed to map segment from shared object")
        return load_file(path)

    monkeypatch.setattr(ctypes, "CDLL", loader)
    if mount == "cache":
        load_unkept("failed to map segment")
    else:
        assert str(folder) in load().origin


def test_what_another_process_removes_or_makes_anew_is_its_own(planted, monkeypatch):
    read = cache._read

    def gone(path):
        path.unlink()
        return read(path)

    monkeypatch.setattr(cache, "_read", gone)
    load()
    (path,) = planted.parent.iterdir()

    def mended_meanwhile(path):
        whole = read(path)
        return whole[1:]

    monkeypatch.setattr(cache, "_read", mended_meanwhile)
    monkeypatch.setattr(cache, "fsync_directory", lambda folder: None)
    removed = []
    monkeypatch.setattr(Path, "unlink", lambda path, **_: removed.append(path))
    load()
    assert path not in removed
    assert path.exists()


def test_with_no_folder_at_all_torch_does_the_work(folder, monkeypatch):
    folder.write_text("a file in the way")

    def full(*args, **kwargs):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(library.tempfile, "TemporaryDirectory", full)
    with pytest.warns(BayesRNNWarning, match="missing .*no folder to compile in: the disk is full"):
        assert library.load_library.__wrapped__().loops is None
