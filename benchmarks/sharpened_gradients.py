"""How noisy the gradients of a run's weights are, by the form of posterior sharpening.

    python benchmarks/sharpened_gradients.py bbb-run other-bbb-run

The same trained posterior is taken by each form, so that only what the form does differs: the
first minibatches of an epoch, one draw for each, and nothing is learnt. What the forms learn beside
the posterior (steps, sigma0) is as at the start of training.
"""

import argparse
from dataclasses import replace
from pathlib import Path
from typing import Any

from bayesrnn.progress import progress_bar
from bayesrnn.random import RandomStreams
from bayesrnn.runs.doctor.examine import build_anew
from bayesrnn.runs.doctor.gradients import MINIBATCHES, gradient_noise
from bayesrnn.runs.load import make_method
from bayesrnn.tasks import task_of

SHRINKING = {"form": "shrinking"}
#: Method and options of each form.
FORMS: dict[str, tuple[str, dict[str, Any]]] = {
    "bbb": ("bbb", {}),
    "literal": ("sharpened", {}),
    "shrinking, all tensors": ("sharpened", SHRINKING),
    "shrinking, biases": (
        "sharpened",
        {**SHRINKING, "sharpen_names": ("*bias*",), "sigma0": 0.1},
    ),
}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="noise of gradients, by form of sharpening")
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN")
    for path in parser.parse_args().runs:
        task = task_of(path)
        run = task.open_run(path, "best", "auto")
        data = task.load(run.config)
        trained = build_anew(task, run).net.state_dict()
        for form, (method_name, options) in FORMS.items():
            options = {**run.config.options, "antithetic": False, **options}
            config = replace(run.config, method=method_name, options=options)
            streams = RandomStreams(config.seed)
            method = make_method(config, streams)
            net = task.build(config, run.files, method, streams).to(run.device)
            left, unknown = net.load_state_dict(trained, strict=False)
            assert not unknown, unknown
            assert all(name.startswith(("eta.", "shrinking.")) for name in left), left
            problem = task.problem(config, data, method, net, run.device)
            with progress_bar(MINIBATCHES, " minibatches", form) as bar:
                found = gradient_noise(method, net, problem, bar.update)
            words = ", ".join(
                f"{kind}: noise {one.noise:.3f}, signal {one.signal:.3f}"
                for kind, one in found.items()
            )
            print(f"{path}  {form}: {words}", flush=True)


if __name__ == "__main__":
    main()
