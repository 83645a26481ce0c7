"""Does `bayesrnn serve` lose a request under load, and does its memory stay as it is?

    python benchmarks/serve.py RUN

RUN is a language model. Several clients at once ask it to read a text, and ask again when they are
told that the server is busy; then one client asks many times, while the resident memory of the
server is looked at. The texts differ from one request to the next.
"""

import argparse
import os
import re
import statistics
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import httpx

TEXT = "it is a truth universally acknowledged , that a single man must be in want of a wife ."


#: One for all threads: a client of its own for each request would take longer than the answer.
_CLIENT = httpx.Client(timeout=120)


class Load(NamedTuple):
    """What became of the requests of all clients, and the seconds that each waited."""

    statuses: Counter[int]
    lost: int
    seconds: list[float]


def main() -> None:
    """Start the server, ask, print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("run", type=Path)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--requests", type=int, default=100, help="of each client")
    parser.add_argument("--long", type=int, default=1000, help="requests while memory is looked at")
    parser.add_argument("--samples", type=int, default=2)
    options = parser.parse_args()
    command = [sys.executable, "-m", "bayesrnn", "serve", str(options.run)]
    server = subprocess.Popen(
        [*command, "--port", "0", "--threads", "1"], stdout=subprocess.PIPE, text=True
    )
    try:
        assert server.stdout is not None
        found = re.search(r"http://\S+", server.stdout.readline())
        assert found is not None, "the server did not start"
        address = f"{found[0]}api/runs/0/read"
        ask(address, 0, options.samples)  # which opens the run
        load = loaded(address, options.clients, options.requests, options.samples)
        print(
            f"{options.clients} clients x {options.requests} requests: {load.statuses[200]} "
            f"answered, {load.statuses[503]} times told to come again, {load.lost} lost; median "
            f"{statistics.median(load.seconds):.2f} s, longest {max(load.seconds):.2f} s"
        )
        before = resident(server.pid)
        peak = before
        begun = time.monotonic()
        for number in range(options.long):
            assert ask(address, number, options.samples) == 200, "a request was lost"
            peak = max(peak, resident(server.pid))
        each = (time.monotonic() - begun) / options.long
        print(
            f"{options.long} more requests, {each * 1000:.0f} ms each: {before:.0f} MB before, "
            f"{resident(server.pid):.0f} MB after, at most {peak:.0f} MB"
        )
    finally:
        server.terminate()
        server.communicate()


def ask(address: str, number: int, samples: int) -> int:
    """The status of a request whose text depends on its number; 0 without a right answer."""
    words = TEXT.split()
    words = [words[(number + place) % len(words)] for place in range(5 + number % 40)]
    try:
        found = _CLIENT.post(address, json={"text": " ".join(words), "samples": samples})
    except httpx.HTTPError:
        return 0
    if found.status_code != 200:
        return found.status_code
    read = [one["word"] for one in found.json()["words"] if not one["end"]]
    return 200 if read == words else 0


def loaded(address: str, clients: int, requests: int, samples: int) -> Load:
    """Let clients ask at once, each of them until all of its requests are answered."""
    statuses, seconds, lost, lock = Counter[int](), list[float](), [0], threading.Lock()

    def client(first: int) -> None:
        for number in range(first, first + requests):
            begun = time.monotonic()
            status = 503
            while status == 503:
                status = ask(address, number, samples)
                with lock:
                    statuses[status] += 1
                if status == 503:
                    time.sleep(0.05)
            with lock:
                lost[0] += status != 200
                seconds.append(time.monotonic() - begun)

    threads = [threading.Thread(target=client, args=(n * requests,)) for n in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return Load(statuses, lost[0], seconds)


def resident(process: int) -> float:
    """The resident memory of a process in MB."""
    pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


if __name__ == "__main__":
    main()
