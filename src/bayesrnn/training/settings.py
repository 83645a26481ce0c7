"""What the training loop is told."""

from dataclasses import dataclass

from bayesrnn.training.dropping import DropSchedule
from bayesrnn.training.optimisation import Schedule


@dataclass(frozen=True)
class LoopSettings:
    """Settings of the loop; the epochs and the schedule are those of the first round.

    unit: what is counted, in the singular: a word, an image.
    measure: the metric of `Problem.validate` that is shown beside the one that chooses.
    average: the decay of the averaged parameters (`ParameterAverage`); 0: there are none.
    kl_warmup: epochs in which the KL's weight rises from 0 to what it is.
    precision: of the network's products in a training step (`PRECISIONS`).
    drop: how many weights are dropped, and when; None: all stay.
    shards, shard_noise: into how many parts minibatches are cut, and the noise of each.
    """

    unit: str
    measure: str
    epochs: int
    schedule: Schedule
    clip: float | None
    save_minutes: float
    kl_weighting: str = "uniform"
    log_every: int = 50
    average: float = 0.0
    kl_warmup: float = 0.0
    precision: str = "float32"
    drop: DropSchedule | None = None
    shards: int = 1
    shard_noise: str = "own"
