"""The tab of digits: what a drawing shows, and how sure the network and each of its draws are."""

import math
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor
from torch.nn import functional as F

from bayesrnn.errors import CorpusError
from bayesrnn.options import CheckedOptions, option
from bayesrnn.random import seeded
from bayesrnn.runs.arguments import seed_option
from bayesrnn.runs.tab import Question, Tab, about_draws, scaling_of
from bayesrnn.runs.task import TrainedRun
from bayesrnn.tasks.mnist.config import PIXELS, MnistConfig
from bayesrnn.tasks.mnist.data import BRIGHTEST
from bayesrnn.tasks.mnist.task import TASK
from bayesrnn.uncertainty.average import AverageProbabilities
from bayesrnn.uncertainty.draws import Draws

#: The longest side of a drawing, in pixels.
_LONGEST: Final = 512
#: The box that a digit fills, by the side of an image: of MNIST 20 of 28, of the others all.
_BOX: Final = {28: 20, 8: 8}


@dataclass(frozen=True, kw_only=True)
class DigitOptions(CheckedOptions):
    """How a drawing is looked at."""

    samples: int = option(20, "draws of the network", ge=1, le=50)
    noise: float = option(1.0, "a factor on the noise of draws", ge=0, le=10)
    seed: int = seed_option()


def as_learnt(drawing: Tensor, side: int) -> Tensor:
    """A drawing [n, n], 0 to 255, as the images of the data are: float32 [side, side], 0 to 1.

    Those of MNIST were made in this way: the digit is scaled into a box, its proportions kept, and
    put where its centre of mass is the middle of the image.
    """
    ink = drawing.float() / 255
    rows, columns = (torch.nonzero(ink.sum(axis)).flatten() for axis in (1, 0))
    if not len(rows):
        raise CorpusError("nothing is drawn yet; draw a digit")
    cut = ink[int(rows[0]) : int(rows[-1]) + 1, int(columns[0]) : int(columns[-1]) + 1]
    box = _BOX[side]
    height, width = (max(1, round(box * length / max(cut.shape))) for length in cut.shape)
    small = F.interpolate(cut[None, None], (height, width), mode="area")[0, 0]
    made = torch.zeros(side, side)
    places = (_start(small.sum(1), side), _start(small.sum(0), side))
    made[places[0] : places[0] + height, places[1] : places[1] + width] = small
    return made


def _start(ink: Tensor, side: int) -> int:
    """Where a profile has to begin so that its centre of mass is the middle."""
    centre = (ink * torch.arange(len(ink))).sum().item() / ink.sum().item()
    return min(max(0, round((side - 1) / 2 - centre)), side - len(ink))


@torch.no_grad()
def look(run: TrainedRun[MnistConfig], options: DigitOptions, content: bytes) -> dict[str, Any]:
    """The probabilities of each digit, and the doubt; `content` has a byte for each pixel."""
    longest = math.isqrt(len(content))
    if longest**2 != len(content) or longest > _LONGEST:
        raise CorpusError(
            f"a drawing of {len(content):,} bytes is not square, or has sides of more than "
            f"{_LONGEST} pixels"
        )
    drawing = torch.frombuffer(bytearray(content), dtype=torch.uint8).view(longest, longest)
    side = math.isqrt(PIXELS[run.config.images])
    seen = as_learnt(drawing, side)
    inputs = (seen * BRIGHTEST).view(1, -1).to(run.device)
    scaling = scaling_of(run, options.noise if run.method.noise_can_change else 1.0)
    draws = Draws(run.method, run.net, options.samples, seeded(options.seed), scaling)
    average, answers = AverageProbabilities(), Counter[int]()
    for network in draws.networks():
        logits = network(inputs).double()
        average.add(logits)
        answers[int(logits.argmax())] += 1
    total, aleatoric = average.total().item(), average.aleatoric.item()
    return {
        "draws": draws.differing(options.samples),
        "probabilities": average.mean[0].tolist(),
        "answers": [answers[digit] for digit in range(average.mean.shape[-1])],
        "total": total,
        "aleatoric": aleatoric,
        "epistemic": total - aleatoric,
        "side": side,
        "seen": (seen.flatten() * 255).round().int().tolist(),
    }


def _open(path: Path) -> TrainedRun[MnistConfig]:
    return TASK.open_run(path, device="cpu")


TAB = Tab(
    title="Digits",
    script="tasks/mnist/tab.js",
    open=_open,
    about=about_draws,
    questions={"look": Question(DigitOptions, look, content=_LONGEST**2, noun="drawing")},
)
