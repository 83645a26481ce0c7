"""How the minibatches of a run are cut for several processes."""

from dataclasses import replace

from bayesrnn.errors import ConfigError
from bayesrnn.methods import METHODS
from bayesrnn.runs.config import TrainingConfig
from bayesrnn.runs.task import Config
from bayesrnn.training.distributed import Group


def with_shards(config: Config, group: Group) -> Config:
    """The configuration of a new run: a shard for each process, unless it says how many."""
    if config.shards is None and group.size > 1:
        return replace(config, shards=group.size)
    return config


def require_shards(config: TrainingConfig, group: Group) -> None:
    """Refuse shards that the minibatches, the processes or the method do not allow."""
    shards, size = config.shards or 1, group.size
    if config.batch_size % shards:
        raise ConfigError(
            f"--shards is {shards}, but {config.batch_size} sequences or examples side by side "
            f"(--batch-size) cannot be cut into as many equal parts; give one that divides "
            f"{config.batch_size}"
        )
    if shards % size:
        raise ConfigError(
            f"there are {size} processes, but the minibatches of the run are cut into {shards} "
            f"(--shards); start as many processes as divide {shards}, or a new run with --shards "
            f"{size}"
        )
    if config.shard_noise == "shared" and not METHODS[config.method].can_share_noise:
        have = ", ".join(name for name, method in METHODS.items() if method.can_share_noise)
        raise ConfigError(
            f"--shard-noise is shared, but {config.method} draws something else for each sequence "
            f"or minibatch; leave it out, or give another --method: {have}"
        )
