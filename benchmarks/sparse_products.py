"""Speed of sparse language models: the compiled loop and torch's CSR, against dense.

    python benchmarks/sparse_products.py --hidden 256,650 --dropped 0.7,0.8,0.95 --threads 1

The three take turns, and the ratio is that of the median turns. The fixed rule of
`bayesrnn.compression.sparse` for what is sparse comes from these figures.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from unittest import mock

import torch

from bayesrnn.compression import sparse
from bayesrnn.studies.bench_pruned import WORKLOADS, ModelSize, make_reader


def without_kernel(read: Callable[[], None]) -> Callable[[], None]:
    """The same with torch's products."""

    def run() -> None:
        with mock.patch.object(sparse, "kernel_for", return_value=None):
            read()

    return run


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--hidden", default="256,650")
    parser.add_argument("--dropped", default="0.7,0.8,0.9,0.95")
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    for hidden in map(int, options.hidden.split(",")):
        for dropped in map(float, options.dropped.split(",")):
            for workload in WORKLOADS:
                size = ModelSize(hidden=hidden)
                dense = make_reader(size, dropped, "dense", workload)
                packed = make_reader(size, dropped, "memory", workload)
                runs = {"dense": dense, "compiled": packed, "csr": without_kernel(packed)}
                times: dict[str, list[float]] = {name: [] for name in runs}
                for turn in range(options.steps + 1):
                    for name, run in runs.items():
                        start = time.perf_counter()
                        run()
                        if turn:  # the first one warms up
                            times[name].append(time.perf_counter() - start)
                medians = {name: statistics.median(own) for name, own in times.items()}
                ratios = {name: medians["dense"] / medians[name] for name in ("compiled", "csr")}
                shown = "  ".join(f"{name} {ratio:.2f}x" for name, ratio in ratios.items())
                print(f"hidden {hidden}  dropped {dropped:.0%}  {workload.name:13} {shown}")


if __name__ == "__main__":
    main()
