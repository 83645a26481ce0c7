"""Kill processes of a run under torchrun at random, and compare what it learns with a quiet run.

    python benchmarks/rank_kills.py --kills 50

Each time the run has saved a few more checkpoints, one of its processes gets SIGKILL; torchrun then
starts all of them again, and they go on from the last checkpoint. In the end the weights have to be
those of a run that nobody disturbed, to the last bit. It reads /proc, so it needs Linux.
"""

import argparse
import hashlib
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bayesrnn.training.checkpoints import CheckpointStore

TEXT = "it is a truth universally acknowledged that a single man\nmust be in want of a wife\n"


def command(folder: Path, name: str, processes: int, restarts: int, epochs: int) -> list[str]:
    """What starts a run that saves after every step."""
    # By itself: without that all launches of a machine ask for one port.
    launcher = ["--standalone", "--nproc-per-node", processes, "--max-restarts", restarts]
    run = ["train", "lm", "--corpus", folder / "text.txt", "--method", "bbb", "--hidden", 8]
    run += ["--batch-size", 8, "--unroll", 8, "--shards", processes, "--epochs", epochs]
    run += ["--device", "cpu", "--threads", 1, "--no-calibrate", "--save-minutes", 1e-9]
    program = [sys.executable, "-m", "torch.distributed.run", *launcher, "-m", "bayesrnn"]
    return [str(part) for part in (*program, *run, "--out", folder / name)]


def children(parent: int) -> list[int]:
    """The processes that this one has started."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it has just ended
        if fields[1] == str(parent) and fields[0] not in "ZX":
            found.append(int(stat.parent.name))
    return found


def last_step(run: Path) -> int:
    """The step of the last checkpoint, 0 before the first."""
    try:
        return int((run / "last").read_text())
    except FileNotFoundError:
        return 0


def disturbed(arguments: list[str], run: Path, kills: int, processes: int, chance: random.Random):
    """Run to the end, killing on the way; gives how many processes were killed."""
    done, before = 0, 0
    with subprocess.Popen(arguments, stderr=subprocess.PIPE, text=True) as launcher:
        # The launcher waits for a reader where it has much to say.
        while launcher.poll() is None:
            if done < kills and last_step(run) >= before + chance.randint(1, 3):
                workers = children(launcher.pid)
                if len(workers) == processes:
                    os.kill(chance.choice(workers), signal.SIGKILL)
                    done, before = done + 1, last_step(run)
                    print(f"kill {done} after step {before}", flush=True)
                    while set(workers) & set(children(launcher.pid)):
                        time.sleep(0.02)  # torchrun ends those that are left
                    before = last_step(run)
            time.sleep(0.02)
        assert launcher.returncode == 0, launcher.stderr.read()
    return done


def learnt(run: Path) -> str:
    """A hash over the last model of a run."""
    model = CheckpointStore(run).load("last").model
    digest = hashlib.sha256()
    for name in sorted(model):
        digest.update(name.encode() + model[name].numpy().tobytes())
    return digest.hexdigest()


def compare(folder: Path, kills: int, processes: int, epochs: int, seed: int) -> tuple[int, bool]:
    """How many processes were killed, and whether the weights are those of the quiet run."""
    (folder / "text.txt").write_text(60 * TEXT)
    quiet = command(folder, "quiet", processes, 0, epochs)
    subprocess.run(quiet, check=True, capture_output=True)
    arguments = command(folder, "killed", processes, kills, epochs)
    done = disturbed(arguments, folder / "killed", kills, processes, random.Random(seed))
    return done, learnt(folder / "quiet") == learnt(folder / "killed")


def main() -> None:
    """Print what came of it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        done, same = compare(Path(folder), given.kills, given.processes, given.epochs, given.seed)
    print(f"{done} of {given.kills} processes killed; {'the same' if same else 'OTHER'} weights")
    sys.exit(0 if same and done == given.kills else 1)


if __name__ == "__main__":
    main()
