"""What is in the folder of a run."""

import hashlib


def contents(run):
    """A hash of every file of a run but its results."""
    return {
        path: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in run.rglob("*")
        if path.is_file() and path.parent.name != "results"
    }
