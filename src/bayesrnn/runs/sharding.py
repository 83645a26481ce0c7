"""How the minibatches of a run are cut for several processes."""

from dataclasses import replace
from typing import Any

from bayesrnn.errors import ConfigError, RunError
from bayesrnn.methods import METHODS
from bayesrnn.options import to_toml
from bayesrnn.runs.config import TrainingConfig
from bayesrnn.runs.task import Config, Task
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
    if shards > 1 and not METHODS[config.method].can_shard(config.options):
        raise ConfigError(
            f"--shards is {shards}, but {config.method} with --form shrinking keeps statistics of "
            "the minibatches that it has seen, which cannot be cut; leave one of them out"
        )
    if config.shard_noise == "shared" and not METHODS[config.method].can_share_noise:
        have = ", ".join(name for name, method in METHODS.items() if method.can_share_noise)
        raise ConfigError(
            f"--shard-noise is shared, but {config.method} draws something else for each sequence "
            f"or minibatch; leave it out, or give another --method: {have}"
        )


def require_same(task: Task[Config, Any], config: Config, fingerprint: str, group: Group) -> None:
    """Refuse processes that were given other options, or other data, than the first one."""
    own = ("device", "threads", "data_dir", "start_from", task.data_key)
    values = {name: value for name, value in vars(config).items() if name not in own}
    (options, data), *others = group.gather((to_toml(values), fingerprint))
    for rank, (its_options, its_data) in enumerate(others, start=1):
        if its_options != options or its_data != data:
            what = "data" if its_options == options else "options"
            raise RunError(
                f"process {rank} of {group.size} has other {what} than process 0; start all of "
                "them with the same command, on machines with the same version and the same data"
            )
