"""What prediction with uncertainty costs: N draws against N passes of the deterministic network.

A pass is what a user would write without us: the network in evaluation mode and the softmax of its
logits. Each round times N passes and then N draws, so that a busy moment of the machine hits both;
the figure is the median of the rounds' ratios. Where the machine is busy, `--processor` counts the
seconds of the processor instead of those of the clock; with one thread they mean the same.
"""

import argparse
import statistics
import time
from collections.abc import Callable

import torch
from torch import Tensor, nn

from bayesrnn import Bayesian, KeptDraws, absolute, predict
from bayesrnn.tasks.lm.model import LanguageModel

WORDS = 10_000
SIZES = {"small": 200, "medium": 650}
#: Texts side by side, and words of each.
INPUTS = "20x100,1x400,1x20"


def main() -> None:
    """Print a table of ratios."""
    parser = argparse.ArgumentParser(description="N draws against N deterministic passes")
    parser.add_argument("--draws", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--inputs", default=INPUTS, help="texts x words, ...")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--processor", action="store_true")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    clock = time.process_time if arguments.processor else time.perf_counter
    draws, rounds = arguments.draws, arguments.rounds
    print(f"{draws} draws against {draws} passes, {torch.get_num_threads()} threads")
    for size, hidden in SIZES.items():
        module = LanguageModel(WORDS, hidden, 2)
        module.initialise(0.05, torch.Generator().manual_seed(0))
        dropping = LanguageModel(WORDS, hidden, 2)
        dropping.load_state_dict(module.state_dict())
        dropping.output_dropout.p = dropping.input_dropout.p = 0.5
        bayesian = Bayesian(module, sigma_init=absolute(0.02))
        for texts, length in (map(int, each.split("x")) for each in arguments.inputs.split(",")):
            inputs = torch.randint(WORDS, (length, texts))
            for name, net, plain in (
                ("bbb", bayesian, module),
                ("kept", KeptDraws(bayesian, draws), module),
                ("dropout", dropping, dropping),
            ):
                ratios = [_ratio(net, plain, inputs, draws, clock) for _ in range(rounds + 1)][1:]
                ratio = statistics.median(ratios)
                print(f"{size:7} {name:8} {texts:2} x {length:3} words: {ratio:.2f}x", flush=True)


def _ratio(
    net: nn.Module | KeptDraws,
    plain: nn.Module,
    inputs: Tensor,
    draws: int,
    clock: Callable[[], float],
) -> float:
    def seconds(work: Callable[[], object]) -> float:
        start = clock()
        work()
        return clock() - start

    def passes() -> None:
        plain.eval()
        with torch.no_grad():
            for _ in range(draws):
                plain(inputs)[0].softmax(-1)

    return seconds(lambda: predict(net, inputs, samples=draws)) / seconds(passes)


if __name__ == "__main__":
    main()
