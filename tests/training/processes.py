"""Several processes that train networks together, started quickly: a server forks them."""

import multiprocessing
import os
import socket
import sys
from contextlib import contextmanager
from pathlib import Path

#: What each process would have to import.
PRELOADED = [
    *("bayesrnn.cli.commands", "torch.distributed", "torch._dynamo", "torch._inductor"),
    *(f"bayesrnn.tasks.{task}.task" for task in ("lm", "captions", "sentiment")),
]


def server():
    """Where processes come from that need to import nothing more."""
    root = str(Path(__file__).parents[2])
    if root not in sys.path:  # the processes get a copy, to find the functions of tests
        sys.path.append(root)
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    return context


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def programs(environments, calls, output, splits):
    """One process: the program once for each of `calls`; what it prints goes to a file."""
    descriptor = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    import torch

    from bayesrnn.cli.main import main
    from bayesrnn.tasks.captions import data as captions

    torch.set_num_threads(1)
    if splits:
        captions._FLICKR_SPLITS = splits
    for environment, arguments in zip(environments, calls, strict=True):
        os.environ.update(environment)
        code = main(arguments)
        if code:
            sys.exit(code)


@contextmanager
def group_of(size, folder, *calls, splits=None, **environment):
    """`size` processes that run the program for each of `calls`; what is left is killed.

    Gives the processes by rank; their `output` is the file with what each has printed.
    """
    context = server()
    folder.mkdir(parents=True, exist_ok=True)
    ports = [str(free_port()) for _ in calls]
    common = {"WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1", **environment}
    given = [[str(argument) for argument in arguments] for arguments in calls]
    processes = []
    for rank in range(size):
        own = {**common, "RANK": str(rank), "LOCAL_RANK": str(rank)}
        environments = [{**own, "MASTER_PORT": port} for port in ports]
        output = folder / f"{rank}.txt"
        process = context.Process(target=programs, args=(environments, given, output, splits))
        process.start()
        process.output = output
        processes.append(process)
    try:
        yield processes
    finally:
        for process in processes:
            process.kill()
            process.join()


def ended(processes):
    """The exit codes, and what each process has printed."""
    for process in processes:
        process.join()
    return [each.exitcode for each in processes], [each.output.read_text() for each in processes]
