"""The training loop, its schedules, and the files that keep its work safe."""

from bayesrnn.training.checkpoints import Checkpoint, CheckpointStore
from bayesrnn.training.denormals import denormals_flushed
from bayesrnn.training.interrupts import Interrupted
from bayesrnn.training.loop import LoopSettings, Problem, Trainer
from bayesrnn.training.memory import keep_freed_memory
from bayesrnn.training.optimisation import Schedule, default_lr, make_optimiser
from bayesrnn.training.run_directory import RunDirectory
from bayesrnn.training.weighting import WEIGHTINGS, minibatch_shares

__all__ = [
    "WEIGHTINGS",
    "Checkpoint",
    "CheckpointStore",
    "Interrupted",
    "LoopSettings",
    "Problem",
    "RunDirectory",
    "Schedule",
    "Trainer",
    "default_lr",
    "denormals_flushed",
    "keep_freed_memory",
    "make_optimiser",
    "minibatch_shares",
]
