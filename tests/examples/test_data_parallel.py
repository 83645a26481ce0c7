"""torch's own ways to train with several processes, around a Bayesian network."""

import socket
import sys
from importlib import util
from pathlib import Path

from torch import distributed, multiprocessing

EXAMPLE = Path(__file__).parents[2] / "examples" / "data_parallel.py"


def process(rank, port, errors, steps):
    """One of two processes of the example."""
    import os

    environment = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    os.environ.update(environment, RANK=str(rank), WORLD_SIZE="2")
    spec = util.spec_from_file_location("data_parallel", EXAMPLE)
    module = util.module_from_spec(spec)
    spec.loader.exec_module(module)
    errors[rank] = module.main(steps)
    assert not distributed.is_initialized()


def test_ddp_with_no_sync_and_a_spread_optimiser():
    """Both processes have the same network in the end, and it has learnt."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    root = str(EXAMPLE.parents[1])
    if root not in sys.path:  # the processes get a copy, to find this module
        sys.path.append(root)
    with multiprocessing.get_context("spawn").Manager() as manager:
        errors = manager.dict()
        multiprocessing.start_processes(process, (port, errors, 60), nprocs=2, start_method="spawn")
        first, second = errors[0], errors[1]
    assert first == second
    assert first < 0.35  # a line is at 0.45, nothing at 0.7
