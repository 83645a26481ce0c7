"""`bayesrnn uncertainty` on runs of every method, and what it says to mistakes."""

import contextlib
import hashlib
import io
import json
import math
import shutil

import pytest
import torch
from torch.distributions import Categorical

from bayesrnn.cli.main import main
from bayesrnn.data.vocabulary import Vocabulary
from bayesrnn.tasks.lm.data import load_corpus
from bayesrnn.tasks.lm.reading import spelt_surprise
from bayesrnn.tasks.lm.task import TASK
from bayesrnn.tasks.lm.uncertainty import unigram_entropy

from ...conftest import FAINT, METHODS

QUICK = ("--bootstrap", 50, "--temperature-words", 300, "--window", 10)


@pytest.fixture(scope="module")
def other_text(tmp_path_factory):
    path = tmp_path_factory.mktemp("other") / "other.txt"
    path.write_text("The stock market fell. It is a truth that Mr. Darcy sold his shares. " * 30)
    return path


@pytest.fixture(scope="module")
def benchmark(runs, other_text, tmp_path_factory):
    """All methods in one command: its output, its JSON and its page."""
    folder = tmp_path_factory.mktemp("benchmark")
    before = _contents(runs)
    arguments = [*(runs / method for method in METHODS), "--samples", "0,1,2,6", *QUICK]
    arguments += ["--shift", other_text, "--json", folder / "u.json", "--html", folder / "u.html"]
    with contextlib.redirect_stdout(io.StringIO()) as out:
        assert main(["uncertainty", *map(str, arguments)]) == 0
    assert _contents(runs) == before
    found = json.loads((folder / "u.json").read_text())
    return out.getvalue(), found, (folder / "u.html").read_text(encoding="utf-8")


def _contents(folder):
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path: hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def test_everything_is_there_for_every_method(benchmark, other_text):
    out, found, page = benchmark
    assert [run["method"] for run in found] == list(METHODS)
    shifts = ["reversed", "shuffled", "random 20%", other_text.name]
    for run in found:
        assert [level["samples"] for level in run["levels"]] == [0, 1, 2, 6]
        assert [level["samples"] for level in run["scaled"]] == [0, 6]
        for level in run["levels"] + run["scaled"]:
            assert list(level["shifts"]) == shifts
            assert level["perplexity"] == pytest.approx(math.exp(level["regular"]["nll"]))
            for name in ("ece", "ece_equal_mass", "error", "aurc"):
                assert 0 <= level[name] <= 1
            assert 0 <= level["brier"] <= 2
            assert level["risk_coverage"]["risk"][-1] == pytest.approx(level["error"])
            for shift in level["shifts"].values():
                gap = shift["figures"]["entropy"] - level["regular"]["entropy"]
                assert shift["gap"] == pytest.approx(gap)
                for value, low, high in (
                    shift[by][k]
                    for by in ("by_entropy", "by_surprise")
                    for k in ("auroc", "aupr", "fpr95")
                ):
                    assert 0 <= low <= high <= 1
                    assert 0 <= value <= 1
        assert out.count(run["name"]) >= 3
        assert run["name"] in page
    assert max(map(len, out.splitlines())) <= 100
    for shift in shifts:
        assert shift in out
        assert shift in page
    assert "<script" not in page
    for word in ("Reliability", "Risk and coverage", "Entropy gap", "AUROC", "unigram"):
        assert word in page


def test_information_is_nought_for_plain_and_one_draw_and_positive_else(benchmark):
    for run in benchmark[1]:
        for level in run["levels"] + run["scaled"]:
            both = [level["regular"], *(shift["figures"] for shift in level["shifts"].values())]
            known = [shift["by_information"] for shift in level["shifts"].values()]
            if run["method"] == "plain" or level["samples"] < 2 or level["temperature"] != 1:
                assert all(figures["information"] == 0 for figures in both)
                assert known == [None] * len(known)
            else:
                least = 0 if run["method"] in FAINT else 1e-12
                assert all(figures["information"] >= least for figures in both)
                assert None not in known


def test_plain_is_the_same_whatever_the_draws(benchmark):
    levels = benchmark[1][0]["levels"]
    for level in levels[1:]:
        assert {**level, "samples": 0} == levels[0]


@torch.no_grad()
def test_the_gap_word_by_word(runs, benchmark):
    """Equations 19 and 20 of the paper, with the mean network, one word at a time."""
    trained = TASK.open_run(runs / "bbb")
    network = trained.method.mean(trained.net)

    def entropy(words):
        state, total = None, 0.0
        for word in words[:-1]:
            logits, state = network(word.view(1, 1), state)
            total += Categorical(logits=logits.double()).entropy().item()
        return total / (len(words) - 1)

    test = trained.corpus().test
    gap = entropy(test.flip(0)) - entropy(test)
    level = benchmark[1][METHODS.index("bbb")]["levels"][0]
    assert level["shifts"]["reversed"]["gap"] == pytest.approx(gap, abs=1e-5)
    assert level["regular"]["entropy"] == pytest.approx(entropy(test), abs=1e-5)


def test_the_likelihood_is_that_of_evaluate(runs, benchmark, program, tmp_path):
    result = tmp_path / "result.json"
    for method in ("plain", "bbb", "sharpened"):
        copy = shutil.copytree(runs / method, tmp_path / method)  # it gets results
        for samples in (0, 6):
            code, _, errors = program("evaluate", copy, "--samples", samples, "--json", result)
            assert code == 0, errors
            rows = json.loads(result.read_text())["rows"]
            row = next(row for row in rows if row["samples"] == samples)
            levels = benchmark[1][METHODS.index(method)]["levels"]
            level = next(level for level in levels if level["samples"] == samples)
            assert level["regular"]["nll"] == pytest.approx(row["nll"], rel=1e-5)
            assert level["regular"]["words"] == row["tokens"]


def test_the_temperature_makes_validation_text_more_probable(runs, program, tmp_path):
    result = tmp_path / "u.json"
    code, _, errors = program(
        *("uncertainty", runs / "plain", "--split", "valid", "--samples", 0, "--json", result),
        *("--bootstrap", 0, "--window", 10, "--streams", 20),
    )
    assert code == 0, errors
    (run,) = json.loads(result.read_text())
    assert run["scaled"][0]["regular"]["nll"] <= run["levels"][0]["regular"]["nll"]
    value, low, high = run["levels"][0]["shifts"]["reversed"]["by_entropy"]["auroc"]
    assert low == value == high


def test_the_same_seed_gives_the_same(runs, program):
    found = [
        program(
            "uncertainty", runs / "bbb", "--samples", "2", *QUICK, "--seed", seed, "--json", "-"
        )
        for seed in (1, 1, 2)
    ]
    assert [code for code, _, _ in found] == [0, 0, 0]
    values = [json.loads(out) for _, out, _ in found]  # nothing else is on the screen
    assert values[0] == values[1] != values[2]


def test_unigram_entropy():
    assert unigram_entropy(torch.tensor([3, 3, 3])) == 0
    assert unigram_entropy(torch.tensor([0, 1, 5, 7])) == pytest.approx(math.log(4))
    weighted = Categorical(torch.tensor([3.0, 1.0]).double()).entropy().item()
    assert unigram_entropy(torch.tensor([9, 9, 2, 9])) == pytest.approx(weighted)


def test_unigram_entropy_of_the_penn_treebank(data_dir):
    assert round(unigram_entropy(load_corpus("ptb", data_dir).test), 4) == 6.3304


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--samples", "1,two"], "--samples is '1,two'; give whole numbers"),
        (["--samples", "5,-1"], "--samples has -1; each has to be 0 (the mean weights) or more"),
        (["--random-words", "0"], "--random-words is 0; it has to be above 0"),
        (["--random-words", "2"], "--random-words is 2"),
        (["--window", "0"], "--window is 0"),
        (["--window", "100000"], "--window is 100000, but the test text has only"),
        (["--streams", "0"], "--streams is 0"),
        (["--streams", "100000"], "the test text has"),
        (["--seed", "99999999999999999999999"], "--seed is 99999999999999999999"),
        (["--html", "-"], "--html is -"),
        (["--html", "same", "--json", "same"], "both same"),
        (["--bootstrap", "-1"], "--bootstrap is -1"),
        (["--temperature-words", "1"], "--temperature-words is 1"),
        (["--shift", "no-such-file.txt"], "no-such-file.txt"),
        (["--html", "."], "cannot write ."),
        (["--json", "/proc/no/such.json"], "cannot write /proc/no/such.json"),
    ],
)
def test_mistakes_are_one_line(runs, program, arguments, said):
    code, out, errors = program("uncertainty", runs / "plain", *arguments)
    assert (code, out) == (1, "")
    assert errors.startswith("bayesrnn: ")
    assert said in errors
    assert len(errors.splitlines()) == 1


@pytest.mark.parametrize(("text", "said"), [("", "has no words"), ("It is.", "short.txt text has")])
def test_another_text_that_is_too_short(runs, program, tmp_path, text, said):
    path = tmp_path / "short.txt"
    path.write_text(text)
    code, _, errors = program("uncertainty", runs / "plain", "--shift", path)
    assert code == 1
    assert said in errors
    assert len(errors.splitlines()) == 1


def test_a_run_that_is_given_twice_is_numbered(runs, program):
    code, out, _ = program(
        *("uncertainty", runs / "plain", runs / "plain", "--samples", 0, *QUICK),
    )
    assert code == 0
    assert "(2)" in out


def test_unknown_words_of_another_text_are_told(benchmark, other_text):
    out, found, _ = benchmark
    share = found[0]["unknown"][other_text.name]
    assert 0.1 < share < 0.9  # stock, market, shares and the like are in no novel
    assert f"{other_text.name} {share:.1%}" in out


def test_no_intervals_without_resamples(runs, program):
    command = ("uncertainty", runs / "plain", "--samples", 0, "--window", 10)
    code, out, _ = program(*command, "--bootstrap", 0, "--temperature-words", 300)
    assert code == 0
    told = next(line for line in out.splitlines() if line.startswith("plain  reversed"))
    assert "(" not in told


def test_no_run_and_no_language_model(runs, program, tmp_path):
    assert "no run was given" in program("uncertainty")[2]
    (tmp_path / "config.toml").write_text('task = "mnist"\n')
    code, _, errors = program("uncertainty", tmp_path)
    assert code == 1
    assert len(errors.splitlines()) == 1


def test_unknown_words_are_spelt_out():
    """One of V equally likely types: its -log p is that of <unk> and of the type within it."""
    vocabulary = Vocabulary(("<unk>", "a", "b", "c"))
    nll, words = torch.tensor([1.0, 2.0, 0.5]), torch.tensor([1, 0, 0])
    found = spelt_surprise(nll, words, vocabulary)
    probabilities = (-nll).exp() * torch.tensor([1, 1 / 4, 1 / 4])
    torch.testing.assert_close(found, -probabilities.log())
    without = Vocabulary(("a", "b"))
    assert torch.equal(spelt_surprise(nll, words, without), nll)


def test_a_text_of_unknown_words_is_surprising_however_well_unk_is_foreseen():
    vocabulary = Vocabulary(("<unk>", *map(str, range(99))))
    regular = spelt_surprise(torch.full((200,), 4.0), torch.arange(1, 201) % 99 + 1, vocabulary)
    strange = spelt_surprise(torch.full((200,), 0.7), torch.zeros(200), vocabulary)
    assert strange.min() > regular.max()
