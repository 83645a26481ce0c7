"""torch's own ways to train with several processes, around a Bayesian network."""

import os
from importlib import util
from pathlib import Path

from ..training.processes import free_port, server

EXAMPLE = Path(__file__).parents[2] / "examples" / "data_parallel.py"


def process(rank, port, steps, found):
    """One of two processes of the example."""
    environment = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    os.environ.update(environment, RANK=str(rank), WORLD_SIZE="2")
    spec = util.spec_from_file_location("data_parallel", EXAMPLE)
    module = util.module_from_spec(spec)
    spec.loader.exec_module(module)
    found.write_text(repr(module.main(steps)))


def test_ddp_with_no_sync_and_a_spread_optimiser(tmp_path):
    """Both processes have the same network in the end, and it has learnt."""
    port, found = str(free_port()), [tmp_path / f"{rank}.txt" for rank in range(2)]
    processes = [
        server().Process(target=process, args=(rank, port, 60, found[rank])) for rank in range(2)
    ]
    for each in processes:
        each.start()
    for each in processes:
        each.join()
    assert [each.exitcode for each in processes] == [0, 0]
    first, second = (float(path.read_text()) for path in found)
    assert first == second
    assert first < 0.35  # a line is at 0.45, nothing at 0.7
