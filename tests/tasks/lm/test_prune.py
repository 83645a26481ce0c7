"""`bayesrnn prune` on runs of every method, and what it says to mistakes."""

import hashlib
import json
import math
import shutil

import pytest
import torch
from torch.nn import functional as F

from bayesrnn.core.bayesian import Bayesian
from bayesrnn.data.batches import evaluation_batches
from bayesrnn.runs.pruning.bench import kept_quality
from bayesrnn.runs.pruning.results import Curve, Measured
from bayesrnn.tasks.lm.task import TASK

from ...conftest import METHODS

POSTERIOR = ("bbb", "sharpened", "ivon")
ORDERS = {m: ["signal-to-noise"] * (m in POSTERIOR) + ["magnitude", "random"] for m in METHODS}


def contents(folder):
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path: hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


@pytest.mark.parametrize("method", METHODS)
def test_everything_is_there_for_every_method(runs, program, tmp_path, method):
    before = contents(runs / method)
    code, out, errors = program(
        *("prune", runs / method, "--fractions", "0.5,0.9,0.5", "--keep-quality", 0.001),
        *("--json", tmp_path / "new" / "p.json", "--html", tmp_path / "p.html"),
    )
    assert code == 0, errors
    assert contents(runs / method) == before
    found = json.loads((tmp_path / "new" / "p.json").read_text())
    page = (tmp_path / "p.html").read_text(encoding="utf-8")
    assert max(map(len, out.splitlines())) <= 100
    assert list(found["curves"]) == ORDERS[method]
    for order, points in found["curves"].items():
        assert order in out
        assert order in page
        assert [point["fraction"] for point in points] == [0, 0.5, 0.9]
        assert points[0] == found["full"]
        for point in points:
            assert point["dropped"] == round(point["fraction"] * found["weights"])
            assert point["perplexity"] == pytest.approx(math.exp(point["nll"]))
    names = [
        "embedding.weight",
        *(f"recurrent.weight_{k}_l{n}" for n in (0, 1) for k in ("ih", "hh")),
    ]
    assert [pattern["name"] for pattern in found["patterns"]] == [*names, "output.weight"]
    dropped = sum(pattern["dropped"] for pattern in found["patterns"])
    biases = 2 * 4 * 12
    assert found["weights"] == biases + sum(p["rows"] * p["columns"] for p in found["patterns"])
    assert dropped <= found["shown_dropped"] == found["quality"]["dropped"] <= dropped + biases
    assert page.count("<img ") == len(found["patterns"])
    assert "<script" not in page
    check_quality(found)
    assert f"{found['quality']['dropped']:,} weights, by {ORDERS[method][0]}" in " ".join(
        out.split()
    )


def check_quality(found):
    """The fraction is within the limit, and a measured one just above is not."""
    quality, curve = found["quality"], found["curves"][found["quality"]["order"]]
    assert quality["limit"] == pytest.approx(found["full"]["perplexity"] * (1 + quality["quality"]))
    assert quality["perplexity"] <= quality["limit"] * (1 + 1e-9)
    above = [p["dropped"] for p in curve + quality["tried"] if p["perplexity"] > quality["limit"]]
    first = min((dropped for dropped in above if dropped > quality["dropped"]), default=None)
    if first is None:
        assert quality["dropped"] == found["weights"]
    else:
        assert first - quality["dropped"] <= found["weights"] // 1000 + 1


@pytest.mark.parametrize("method", METHODS)
def test_nothing_dropped_is_the_evaluation_of_the_run(runs, program, tmp_path, method):
    run = shutil.copytree(runs / method, tmp_path / method)  # an evaluation is kept in the run
    for command, *options in (["evaluate", "--split", "valid"], ["prune", "--fractions", "0.3"]):
        file = tmp_path / f"{command}.json"
        code, _, errors = program(command, run, *options, "--streams", 20, "--json", file)
        assert code == 0, errors
    result = json.loads((tmp_path / "evaluate.json").read_text())
    (mean,) = [row for row in result["rows"] if row["inference"] == "mean"]
    full = json.loads((tmp_path / "prune.json").read_text())["full"]
    assert full["perplexity"] == pytest.approx(mean["perplexity"], rel=1e-6)


@pytest.mark.parametrize("method", ["plain", "bbb"])
@torch.no_grad()
def test_one_fraction_by_hand(runs, program, method):
    code, out, errors = program(
        "prune", runs / method, "--fractions", "0.7", "--streams", 4, "--json", "-"
    )
    assert code == 0, errors
    found = json.loads(out)  # nothing else is on the screen
    trained = TASK.open_run(runs / method)
    net = trained.net
    module = net.module if isinstance(net, Bayesian) else net
    # All weights but the output bias and the biases that torch has too many.
    weights = {
        name: weight
        for name, weight in module.named_parameters()
        if name != "output.bias" and "bias_hh" not in name
    }
    sigmas = net.sigmas() if isinstance(net, Bayesian) else {}
    flat = torch.cat([(w.abs() / sigmas.get(name, 1.0)).flatten() for name, w in weights.items()])
    assert len(flat) == found["weights"]
    dropped = sorted(range(len(flat)), key=flat.tolist().__getitem__)[: round(0.7 * len(flat))]
    mask = torch.ones(len(flat))
    mask[dropped] = 0
    for weight, part in zip(
        weights.values(), mask.split([w.numel() for w in weights.values()]), strict=True
    ):
        weight.mul_(part.view_as(weight))
    state, total, words = None, 0.0, 0
    module.eval()
    for inputs, targets, scored in evaluation_batches(trained.corpus().valid, 4, 35):
        logits, state = module(inputs, state)
        nll = F.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="none")
        total += nll.view_as(targets)[scored].double().sum().item()
        words += int(scored.sum())
    point = found["curves"][ORDERS[method][0]][1]
    assert (point["fraction"], point["dropped"]) == (0.7, len(dropped))
    assert point["nll"] == pytest.approx(total / words, rel=1e-6)


def test_further_runs_stand_in_the_same_table(runs, program):
    def pruned(run, *options):
        code, out, errors = program("prune", runs / run, "--fractions", "0.5", *options)
        assert code == 0, errors
        return out

    alone = {run: json.loads(pruned(run, "--json", "-")) for run in ("bbb", "dropout")}
    both = json.loads(pruned("bbb", "--beside", runs / "dropout", "--json", "-"))
    *own, other = both["curves"]
    assert own == ORDERS["bbb"]
    assert other == "dropout (dropout), magnitude"
    assert both["curves"][other] == alone["dropout"]["curves"]["magnitude"]
    assert {order: both["curves"][order] for order in own} == alone["bbb"]["curves"]
    assert other in " ".join(pruned("bbb", "--beside", runs / "dropout").split())
    code, _, errors = program("prune", runs / "bbb", "--beside", runs / "nothing")
    assert code == 1
    assert "nothing" in errors


def test_all_dropped_per_tensor_and_seeds(runs, program):
    def pruned(*options):
        code, out, errors = program(
            "prune", runs / "bbb", "--fractions", "0.5,1", "--json", "-", *options
        )
        assert code == 0, errors
        return json.loads(out)

    first, again, other, each = (
        pruned(*options) for options in ([], [], ["--seed", 2], ["--per-tensor"])
    )
    assert first == again
    assert first["curves"]["random"][1] != other["curves"]["random"][1]
    assert first["curves"]["magnitude"] == other["curves"]["magnitude"]
    ends = [points[2] for points in first["curves"].values()]
    assert ends == [ends[0]] * 3
    assert ends[0]["dropped"] == first["weights"]
    assert first["shown_fraction"] == 0.8
    assert len({round(pattern["share"], 2) for pattern in first["patterns"]}) > 1
    assert {round(pattern["share"], 2) for pattern in each["patterns"]} == {0.8}


def test_only_the_named_matrices_lose_weights(runs, program, tmp_path):
    trained = TASK.open_run(runs / "bbb")
    means = {name: trained.net.module.get_parameter(name) for name in trained.net.names}
    chosen = [name for name in means if name == "output.weight" or "hh" in name]
    file = tmp_path / "small.safetensors"
    code, out, errors = program(
        *("prune", runs / "bbb", "--only", "output.weight, *hh*", "--fractions", "0.5"),
        *("--fraction", "0.6", "--out", file, "--json", "-"),
    )
    assert code == 0, errors
    found = json.loads(out)
    assert found["weights"] == sum(means[name].numel() for name in chosen)
    assert [pattern["name"] for pattern in found["patterns"]] == chosen
    assert found["shown_dropped"] == round(0.6 * found["weights"])
    written = TASK.open_run(file).net
    zeros = {name: int((written.get_parameter(name) == 0).sum()) for name in means}
    before = {name: int((mean == 0).sum()) for name, mean in means.items()}
    assert sum(zeros[name] for name in chosen) == found["shown_dropped"]
    assert all(zeros[name] == before[name] for name in means if name not in chosen)


def test_a_limit_that_everything_keeps_drops_all_weights(runs, program):
    code, out, errors = program(
        "prune", runs / "plain", "--fractions", "0.1", "--keep-quality", 1e6, "--json", "-"
    )
    assert code == 0, errors
    found = json.loads(out)
    assert found["quality"]["dropped"] == found["weights"]
    assert len(found["quality"]["tried"]) == 1


class Dented:
    """Nats a word that grow, and come down once more between 0.55 and 0.65."""

    def __init__(self):
        self.asked = []

    def measure(self, ranking, fraction):
        self.asked.append(fraction)
        good = fraction <= 0.25 or 0.55 <= fraction <= 0.6543
        return Measured(fraction, round(fraction * ranking.weights), 1.0 if good else 2.0)


class TenThousand:
    weights = 10_000


def test_the_search_goes_on_after_the_last_good_fraction_of_the_curve():
    bench = Dented()
    points = tuple(bench.measure(TenThousand, tenth / 10) for tenth in range(10))
    bench.asked.clear()
    kept = kept_quality(bench, TenThousand, Curve("magnitude", points), 0.01)
    assert kept.found.nll == 1.0
    assert 6533 <= kept.found.dropped <= 6543
    assert all(0.6 < fraction < 0.7 for fraction in bench.asked)
    assert len(bench.asked) <= 7
    assert [point.fraction for point in kept.tried] == bench.asked


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--fractions", "0.1,half"], "--fractions is '0.1,half'; give numbers from 0 to 1"),
        (["--fractions", ""], "--fractions is ''; give numbers"),
        (["--fractions", "0.5,1.2"], "--fractions has 1.2; each has to be from 0 to 1"),
        (["--fractions=-0.1"], "--fractions has -0.1"),
        (["--fractions", "nan"], "--fractions has nan"),
        (["--keep-quality", "-0.01"], "--keep-quality is -0.01; it has to be 0 or more"),
        (["--keep-quality", "nan"], "--keep-quality is nan"),
        (["--only", "output*,lstm*"], "--only has lstm*, which fits the name of no weight"),
        (["--streams", "0"], "--streams is 0"),
        (["--checkpoint", "77"], "77"),
        (["--html", "."], "cannot write ."),
        (["--json", "/proc/no/such.json"], "cannot write /proc/no/such.json"),
    ],
)
def test_mistakes_are_one_line(runs, program, arguments, said):
    code, out, errors = program("prune", runs / "plain", *arguments)
    assert (code, out) == (1, "")
    assert errors.startswith("bayesrnn: ")
    assert said in errors
    assert len(errors.splitlines()) == 1


def test_a_run_of_images_has_no_streams(program, tmp_path):
    (tmp_path / "config.toml").write_text('task = "mnist"\n')
    code, _, errors = program("prune", tmp_path, "--streams", 4)
    assert code == 1
    assert "--streams is for runs of `bayesrnn train lm`" in errors
    assert len(errors.splitlines()) == 1
