"""Speed of language models that units were cut out of, with dense kernels, against the whole ones.

    python benchmarks/cut_networks.py --hidden 200,650 --dropped 0.3,0.5,0.7 --threads 1

Of each layer of units the same share is dropped. The network with zeros, the one that recurrent
units and dimensions are cut out of, and the one without the words either take turns; the ratio is
that of the median turns.
"""

import argparse
import statistics
import time
from unittest import mock

import torch

from bayesrnn.compression import cutting
from bayesrnn.compression.cutting import cut
from bayesrnn.compression.pruning import without
from bayesrnn.compression.ranking import droppable
from bayesrnn.compression.unit_ranking import UnitRanking, units_at_random
from bayesrnn.studies.bench_pruned import WORKLOADS
from bayesrnn.tasks.lm.model import LanguageModel


@torch.no_grad()
def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--hidden", default="200,650")
    parser.add_argument("--dropped", default="0.3,0.5,0.7")
    parser.add_argument("--vocabulary", type=int, default=10_000)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    generator = torch.Generator().manual_seed(1)
    for hidden in map(int, options.hidden.split(",")):
        model = LanguageModel(options.vocabulary, hidden)
        model.initialise(0.05, generator)
        for dropped in map(float, options.dropped.split(",")):
            scores = units_at_random(model, generator)
            ranking = UnitRanking(model, droppable(model), scores, per_layer=True)
            masked = without(model, ranking.kept(dropped)).eval()
            networks = {"masked": masked}
            for name, share in (("units", -1.0), ("units and words", 1.0)):
                with mock.patch.object(cutting, "_SHARE_LEFT", share):
                    networks[name] = cut(masked)
            for workload in WORKLOADS:
                shape = (workload.calls, workload.words, workload.streams)
                text = torch.randint(options.vocabulary, shape, generator=generator)
                times: dict[str, list[float]] = {name: [] for name in networks}
                for turn in range(options.steps + 1):
                    for name, network in networks.items():
                        state, start = None, time.perf_counter()
                        for words in text:
                            _, state = network(words, state)
                        if turn:  # the first one warms up
                            times[name].append(time.perf_counter() - start)
                medians = {name: statistics.median(own) for name, own in times.items()}
                shown = "  ".join(
                    f"{name} {medians['masked'] / median:.2f}x"
                    for name, median in medians.items()
                    if name != "masked"
                )
                print(f"hidden {hidden}  dropped {dropped:.0%}  {workload.name:13} {shown}")


if __name__ == "__main__":
    main()
