"""Fine-tune a run without some of its weights: the others go on learning, as they did before."""

import copy
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from bayesrnn.errors import ConfigError
from bayesrnn.runs.start import make_trainer
from bayesrnn.runs.task import Config, Data, Task, TrainedRun
from bayesrnn.training.run_directory import RunDirectory


def fine_tune(
    task: Task[Config, Data],
    run: TrainedRun[Config],
    data: Data,
    kept: Mapping[str, Tensor],
    epochs: int,
    lr: float | None = None,
) -> tuple[nn.Module, list[float]]:
    """The module of a run, trained further without the weights where a mask of `kept` is false.

    It is trained by the run's method, with its posterior if it has one, at a constant rate: `lr`,
    or a tenth of the run's own. The run itself stays as it is.

    Returns the module as it was after the epoch (or at the start) whose validation likelihood was
    the highest, and the validation nll at the start and after each epoch.
    """
    config, method = run.config, run.method
    if not method.can_drop:
        raise ConfigError(
            f"a run of {method.name} cannot be trained further without some of its weights: it "
            "learns more than one network, or more than its parameters; leave --fine-tune out"
        )
    course: dict[str, Any] = {
        "epochs": epochs,
        "lr": config.lr / 10 if lr is None else lr,
        "hold_epochs": epochs,
        "decay": 1.0,
        "kl_warmup": 0.0,
        "drop_to": 0.0,
    }
    with tempfile.TemporaryDirectory() as folder:
        directory = RunDirectory(Path(folder))
        trainer = make_trainer(task, replace(config, **course), data, directory, run.device)
        trainer.net.load_state_dict(run.net.state_dict())
        trainer.dropping.impose(kept)
        nlls = [trainer.problem.validate()["nll"]]
        start = copy.deepcopy(trainer.net.state_dict())
        trainer.train()
        epoch_records = (r for r in directory.metrics.read() if r["kind"] == "epoch")
        nlls += [record["valid_nll"] for record in epoch_records]
        best = trainer.store.load_model("best").model
        trainer.net.load_state_dict(start if nlls[0] == min(nlls) else best)
    return trainer.method.mean_module(trainer.net).eval(), nlls
