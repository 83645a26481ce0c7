"""kill -9 in the middle of a save, before every change that it makes on the disk.

Python announces each change (open, mkdir, rename, remove, rmdir) to its audit hooks, and a patched
write kills half way; between two of these moments the disk does not change, so none is left out.
"""

import subprocess
import sys
from pathlib import Path

# A fresh process forks a child for each moment n. The child saves and kills itself at its n-th
# moment; the parent then looks at what is on the disk.
SCRIPT = """
import os, shutil, signal, sys
from pathlib import Path
import torch
from bayesrnn.training.checkpoints import Checkpoint, CheckpointStore

torch.set_num_threads(1)
EVENTS = {"open", "os.mkdir", "os.rename", "os.remove", "os.rmdir"}

def checkpoint(step, value):
    return Checkpoint(step, {"w": torch.full((8,), value)}, {"s": torch.full((8,), value)})

def value_of(found):
    assert torch.equal(found.model["w"], found.state["s"])
    return found.state["s"][0].item()

def die():
    os.kill(os.getpid(), signal.SIGKILL)

def arm(n):
    left = n
    def moment():
        nonlocal left
        left -= 1
        return left < 0
    def hook(event, args):
        if event in EVENTS and moment():
            die()
    write = os.write
    def halved(descriptor, data):
        if moment():
            write(descriptor, bytes(data[: len(data) // 2]))
            die()
        return write(descriptor, data)
    sys.addaudithook(hook)
    os.write = halved

def child(store, step, n):
    pid = os.fork()
    if pid == 0:
        try:
            arm(n)
            store.save(checkpoint(step, 7.0), best=True)
            os._exit(0)
        finally:
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

def kill_everywhere(run, step):
    start = CheckpointStore(run / "start")
    start.run.mkdir(parents=True)
    if step > 1:
        start.save(checkpoint(1, 1.0), best=True)
        start.save(checkpoint(2, 2.0), best=False)
    seen, n, code = set(), 0, None
    while code != 0:
        store = CheckpointStore(run / "run")
        shutil.copytree(start.run, store.run)
        code = child(store, step, n)
        assert code in (0, -signal.SIGKILL), (n, code)
        for when in ("killed", "cleaned"):
            if start.exists() or store.exists():
                last, best = value_of(store.load("last")), value_of(store.load("best"))
                assert last in (2.0, 7.0) and best in (1.0, 2.0, 7.0), (n, when, last, best)
                seen.add((last, best))
            for found in store.steps():  # what is offered to the user can be used
                value_of(store.load(str(found)))
            store.clean()
        assert not list(store.run.rglob(".*")), (n, list(store.run.rglob(".*")))
        store.save(checkpoint(step, 8.0), best=True)
        assert value_of(store.load("last")) == value_of(store.load("best")) == 8.0, n
        shutil.rmtree(store.run)
        n += 1
    print(n - 1, *sorted(seen), sep=";")

for step in (1, 2, 3):  # the first save, the same step again, the next step
    kill_everywhere(Path(sys.argv[1]) / str(step), step)
"""


def test_a_kill_leaves_the_old_or_the_new(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", SCRIPT, str(tmp_path)],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    first, again, following = (line.split(";") for line in done.stdout.splitlines())
    for moments, *seen in (first, again, following):
        assert int(moments) > 15, "the kills did not reach into the save"
        assert "(7.0, 7.0)" in seen
        assert "(7.0, 1.0)" not in seen, "a kill made the run forget which is the best"
    old = "(2.0, 1.0)"
    assert old in again
    assert old in following
