"""The pruned network in a file: written by `prune --out`, used in place of a run."""

import contextlib
import io
import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from bayesrnn.cli.main import main
from bayesrnn.compression.cutting import without_unused
from bayesrnn.compression.file import VALUE_TYPES, read_compact, write_compact
from bayesrnn.compression.pruning import without
from bayesrnn.compression.ranking import Ranking, droppable, magnitude, signal_to_noise
from bayesrnn.core.bayesian import Bayesian
from bayesrnn.data.text import detokenize
from bayesrnn.methods import METHODS as KINDS
from bayesrnn.random import RandomStreams
from bayesrnn.tasks.lm.generate import continuation, prompt_tokens
from bayesrnn.tasks.lm.inspect import inspected
from bayesrnn.tasks.lm.likelihood import likelihood
from bayesrnn.tasks.lm.task import TASK

from ...conftest import METHODS, TINY

FRACTION = 0.8


@pytest.fixture(scope="module")
def all_runs(runs, tiny_text, tmp_path_factory):
    """The runs of every method, and one with tied weights and another cell."""
    tied = tmp_path_factory.mktemp("tied") / "tied"
    options = ["--method", "bbb", "--tied", "--cell", "gru", "--epochs", "1", "--out", str(tied)]
    assert main(["train", "lm", "--corpus", str(tiny_text), *TINY, *options]) == 0
    return {**{method: runs / method for method in METHODS}, "tied": tied}


@pytest.fixture(scope="module")
def written(all_runs, tmp_path_factory):
    """For the name of a run and a type of values: the file, and what was said in JSON."""
    folder = tmp_path_factory.mktemp("files")
    known = {}

    def write(name, values="float32"):
        if (name, values) not in known:
            path = folder / f"{name}-{values}" / "small.safetensors"
            said = folder / f"{name}-{values}.json"
            options = ["--out", path, "--values", values, "--json", said]
            options += ["--fraction", FRACTION, "--fractions", FRACTION]
            # What it prints must not end up in the output of the test that happens to be first.
            with contextlib.redirect_stdout(io.StringIO()):
                assert main(["prune", *map(str, [all_runs[name], *options])]) == 0
            known[name, values] = path, json.loads(said.read_text())
        return known[name, values]

    return write


def masked(run):
    """The pruned network made directly: the mean with zeros, as a trained model."""
    trained = TASK.open_run(run)
    net = trained.net
    bayesian = isinstance(net, Bayesian)
    module = trained.method.mean_module(net)
    order = signal_to_noise(net) if bayesian else magnitude(droppable(module))
    plain = KINDS["plain"]
    return replace(
        trained,
        net=without(module, Ranking(order).kept(FRACTION)),
        method=plain(plain.options_type(), RandomStreams(1)),
        config=replace(trained.config, method="plain", options={}),
    )


@pytest.mark.parametrize("name", [*METHODS, "tied"])
def test_the_file_is_the_masked_network(all_runs, written, name):
    path, said = written(name)
    direct, loaded = masked(all_runs[name]), TASK.open_run(path)
    assert (loaded.method.name, loaded.config.method) == ("plain", "plain")
    assert loaded.vocabulary == direct.vocabulary
    assert loaded.step == direct.step
    # The weights of units that do nothing are left out as well, which changes nothing.
    every = {n: torch.ones_like(w, dtype=torch.bool) for n, w in droppable(direct.net).items()}
    left = without_unused(direct.net, every)
    expected = without(direct.net, left).state_dict()
    assert list(loaded.net.state_dict()) == list(expected)
    words = direct.corpus().valid[:40, None]
    with torch.no_grad():
        logits = [net.eval()(words)[0] for net in (direct.net, loaded.net)]
    torch.testing.assert_close(*logits, rtol=1e-6, atol=1e-7)
    for key, weight in loaded.net.state_dict().items():
        assert torch.equal(weight, expected[key]), key
    tied = loaded.net.output.weight is loaded.net.embedding.weight
    assert tied == (name == "tied")
    about = read_compact(path).about
    assert about["method"] == TASK.open_run(all_runs[name]).config.method
    assert about["config"] == (all_runs[name] / "config.toml").read_text()
    assert (about["fraction"], about["order"]) == (FRACTION, said["shown_order"])
    assert said["file"]["bytes"]["total"] == path.stat().st_size


@pytest.mark.parametrize("name", ["bbb", "plain", "tied"])
def test_the_loss_is_shown(all_runs, written, program, tmp_path, name):
    said = {values: written(name, values)[1] for values in VALUE_TYPES}
    sizes = [said[values]["file"]["bytes"] for values in VALUE_TYPES]
    data = [size["values"] + size["indices"] for size in sizes]
    assert data[0] > data[1] > data[2]
    text = masked(all_runs[name]).corpus().valid
    for values, found in said.items():
        file = found["file"]
        order = found["curves"][found["shown_order"]]
        assert file["masked"]["nll"] == pytest.approx(order[1]["nll"], rel=1e-12)
        loaded = TASK.open_run(written(name, values)[0])
        nll = likelihood(loaded.method, loaded.net, text, streams=20, unroll=100).nll
        assert file["written"]["nll"] == pytest.approx(nll, rel=1e-5)
        assert file["written"]["perplexity"] == pytest.approx(
            file["masked"]["perplexity"], rel=1e-9 if values == "float32" else 0.01
        )
        assert found["shown_dropped"] == file["written"]["dropped"]
    assert said["int8"]["file"]["written"]["nll"] != said["int8"]["file"]["masked"]["nll"]
    html = tmp_path / "page.html"
    code, out, errors = program(
        *("prune", all_runs[name], "--fractions", 0, "--fraction", FRACTION, "--values", "int8"),
        *("--out", tmp_path / "new" / "file", "--html", html),
    )
    assert code == 0, errors
    assert max(map(len, out.splitlines())) <= 100 + len(str(tmp_path))
    file = said["int8"]["file"]
    size = f"{file['bytes']['total']:,} bytes with 80% dropped, {file['ratio']:.3f}x the "
    for shown in (" ".join(out.split()), html.read_text(encoding="utf-8")):
        assert size in shown
        assert f"{file['index_share']:.1%} of it tells where" in shown
        assert f"perplexity {file['written']['perplexity']:.2f} with its int8 values" in shown
    first, again = written(name, "int8")[0], tmp_path / "new" / "file"
    assert first.read_bytes() == again.read_bytes()


@pytest.mark.parametrize("name", ["bbb", "plain", "tied"])
def test_commands_take_the_file(all_runs, written, program, name):
    path, _ = written(name)
    direct = masked(all_runs[name])

    def ran(*arguments):
        code, out, errors = program(*arguments)
        assert code == 0, errors
        return out

    result = json.loads(ran("evaluate", path, "--json", "-"))
    expected = likelihood(direct.method, direct.net, direct.corpus().test, unroll=100)
    assert result["nll"] == pytest.approx(expected.nll, rel=1e-5)
    assert result["perplexity"] == pytest.approx(expected.perplexity, rel=1e-5)
    assert (result["method"], result["step"]) == ("plain", direct.step)
    drawn = json.loads(ran("evaluate", path, "--samples", 2, "--json", "-"))
    assert drawn["nll"] == pytest.approx(expected.nll, rel=1e-4)
    dynamic = json.loads(ran("evaluate", path, "--dynamic", "sgd", "--json", "-"))
    assert dynamic["inference"] == "dynamic-sgd"

    text = ran("generate", path, "--prompt", "it is a truth", "--words", 30)
    prompt = prompt_tokens("it is a truth", direct.tokeniser)
    assert text == detokenize(continuation(direct, prompt, 30)) + "\n"

    seen = json.loads(ran("inspect", path, "--text", "it is a truth", "--json", "-"))
    words = inspected(direct, prompt, 20, 5, 1)
    assert seen["method"] == "plain"
    assert seen["perplexity"] == pytest.approx(words.perplexity, rel=1e-5)
    assert [w["probability"] for w in seen["words"]] == pytest.approx(
        [word.probability for word in words.words], rel=1e-4
    )

    (doubts,) = json.loads(
        ran(
            *("uncertainty", path, "--samples", "0,3", "--bootstrap", 0, "--streams", 4),
            *("--temperature-words", 100, "--json", "-"),
        )
    )
    mean, several = doubts["levels"]
    assert doubts["method"] == "plain"
    assert mean["perplexity"] == pytest.approx(several["perplexity"], rel=1e-5)
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]  # nothing was left


@pytest.mark.parametrize("fraction", [0, 1])
@pytest.mark.parametrize("values", VALUE_TYPES)
def test_nothing_and_all_dropped(runs, program, tmp_path, fraction, values):
    path = tmp_path / "file"
    code, out, errors = program(
        *("prune", runs / "bbb", "--fractions", 0, "--fraction", fraction, "--values", values),
        *("--out", path, "--json", "-"),
    )
    assert code == 0, errors
    found = json.loads(out)
    kept = read_compact(path).kept
    assert {bool(mask.all()) for mask in kept.values()} == {fraction == 0}
    assert {bool(mask.any()) for mask in kept.values()} == {fraction == 0}
    assert found["file"]["written"]["dropped"] == fraction * found["weights"]
    assert found["file"]["written"]["nll"] == pytest.approx(found["file"]["masked"]["nll"], 1e-3)
    if fraction == 0:
        assert found["file"]["masked"]["nll"] == pytest.approx(found["full"]["nll"], rel=1e-12)
        assert found["file"]["bytes"]["indices"] == 0


def test_the_quality_that_is_kept_says_what_is_written(runs, program, tmp_path):
    path = tmp_path / "file"
    code, out, errors = program(
        *("prune", runs / "bbb", "--fractions", "0.5,0.9", "--keep-quality", 0.001),
        *("--out", path, "--json", "-"),
    )
    assert code == 0, errors
    found = json.loads(out)
    quality = found["quality"]
    assert found["file"]["written"]["perplexity"] == pytest.approx(quality["perplexity"])
    assert read_compact(path).about["fraction"] == quality["fraction"]
    assert sum(int((~m).sum()) for m in read_compact(path).kept.values()) == quality["dropped"]


def test_without_out_a_fraction_is_shown_and_no_file_said(runs, program):
    code, out, errors = program(
        "prune", runs / "plain", "--fractions", 0, "--fraction", 0.25, "--json", "-"
    )
    assert code == 0, errors
    found = json.loads(out)
    assert (found["shown_fraction"], found["file"]) == (0.25, None)
    assert math.isclose(found["shown_dropped"], 0.25 * found["weights"], abs_tol=0.5)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--out", "new"], "--out needs to know how many weights to drop; give --fraction"),
        (["--out", "new", "--fraction", 0.5, "--keep-quality", 0.1], "both of --fraction and"),
        (["--fraction", 1.5], "--fraction is 1.5; it has to be from 0 to 1"),
        (["--fraction", "nan"], "--fraction is nan"),
        (["--values", "int8"], "--values is int8, but there is no --out"),
        (["--out", ".", "--fraction", 0.5], "cannot write ."),
        (["--out", "-", "--fraction", 0.5], "--out is -; give a file of its own"),
        (["--out", "a", "--json", "a", "--fraction", 0.5], "--out is a; give a file of its own"),
    ],
)
def test_mistakes_are_one_line(runs, program, tmp_path, monkeypatch, arguments, said):
    monkeypatch.chdir(tmp_path)
    code, out, errors = program("prune", runs / "plain", *arguments)
    assert (code, out) == (1, "")
    assert errors.startswith("bayesrnn: ")
    assert said in errors
    assert len(errors.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


def test_what_a_file_cannot_do(written, program, train_arguments):
    path, _ = written("bbb")
    before = path.read_bytes()
    for arguments, said in (
        (["prune", path], "is the file of a network that is pruned already"),
        ([*train_arguments, "--resume", "--out", path], "which is a file; give the folder"),
        ([*train_arguments, "--out", path], "which is a file; give the folder"),
        (["generate", path, "--checkpoint", 77], "--checkpoint is 77, but"),
    ):
        code, out, errors = program(*arguments)
        assert (code, out) == (1, ""), arguments
        assert said in errors
        assert len(errors.splitlines()) == 1
    assert path.read_bytes() == before


@pytest.mark.parametrize("command", ["evaluate", "generate", "inspect", "uncertainty", "prune"])
def test_damaged_and_foreign_files_are_one_line(written, program, tmp_path, command):
    whole = written("bbb")[0].read_bytes()
    damaged = bytearray(whole)
    damaged[-1] ^= 1
    contents = {"cut": whole[:-9], "changed": bytes(damaged), "text": b"hello\n", "empty": b""}
    options = ["--text", "it is"] if command == "inspect" else []
    for name, content in contents.items():
        if command == "prune" and name in ("cut", "changed"):
            continue  # it still says that it is pruned, and that is reason enough
        path = tmp_path / name
        path.write_bytes(content)
        code, out, errors = program(command, path, *options)
        assert (code, out) == (1, "")
        assert f"{path} is damaged" in errors
        assert len(errors.splitlines()) == 1


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"config": None}, "not the settings and the words"),
        ({"files": {}}, "not the settings and the words"),
        ({"step": "7"}, "not the settings and the words"),
        ({"task": "mnist"}, "is a pruned network of `bayesrnn train mnist`"),
        ({"task": None}, "not the settings and the words"),
        ({"files": {"vocabulary.txt": "one\ntwo\n"}}, "do not fit its configuration"),
        ({"files": {"vocabulary.txt": "one\none\n"}}, "cannot be made: the vocabulary lists"),
        ({"config": "hidden = 12 12"}, "cannot be made: the configuration in"),
        ({"config": 'method = "other"'}, "cannot be made: "),
        ({"config": "hidden = 1000000000"}, "cannot be made: "),
        ({"config": "hidden = 100000"}, "do not fit its configuration"),
    ],
)
def test_a_file_that_is_no_language_model(written, program, tmp_path, change, said):
    compact = read_compact(written("bbb")[0])
    path: Path = tmp_path / "file"
    write_compact(path, compact.weights, compact.kept, {**compact.about, **change})
    code, out, errors = program("generate", path)
    assert (code, out) == (1, "")
    assert said in errors
    assert len(errors.splitlines()) == 1
