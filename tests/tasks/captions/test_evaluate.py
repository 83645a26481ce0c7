"""What captioners say, scored and compared, on a made-up Flickr8k."""

import json
import re
import shutil

import pytest
import torch
from scipy.stats import spearmanr

from bayesrnn.methods.base import Outcome
from bayesrnn.random import seeded
from bayesrnn.tasks.captions.baseline import consensus_captions
from bayesrnn.tasks.captions.batches import EncodedCaptions
from bayesrnn.tasks.captions.compare import COMPARED, paired_bootstrap
from bayesrnn.tasks.captions.data import caption_words
from bayesrnn.tasks.captions.likelihood import caption_likelihood
from bayesrnn.tasks.captions.scores import score_captions
from bayesrnn.tasks.captions.search import CaptionSearch
from bayesrnn.tasks.captions.task import TASK
from bayesrnn.uncertainty.draws import Draws
from bayesrnn.untrusted import unsealed

WAYS = ("greedy", "beam")
FIGURES = ("BLEU-1", "BLEU-2", "BLEU-3", "BLEU-4", "ROUGE-L", "CIDEr")


def evaluated(program, tmp_path, *arguments):
    file = tmp_path / "result.json"
    code, out, errors = program("evaluate", *arguments, "--json", file)
    assert code == 0, errors
    return json.loads(file.read_text()), out


def kept(run, name):
    """A result without its checksum, as earlier versions wrote them."""
    return unsealed(json.loads((run / "results" / f"{name}.json").read_text()))


# Evaluation


def test_figures_and_captions(trained_captioner, program, tmp_path, tiny_flickr8k):
    run = trained_captioner("plain", "--epochs", "12")
    found, out = evaluated(program, tmp_path, run)
    assert (found["task"], found["data"], found["beam"]) == ("captions", "flickr8k", 3)
    assert found["perplexity"] < 4
    assert "captions" not in found
    assert [row["inference"] for row in found["rows"]] == ["mean", "consensus48"]
    result, captions = kept(run, "test-mean"), TASK.open_run(run).captions()
    assert (
        result["tokens"]
        == found["tokens"]
        == sum(len(words) + 1 for own in captions.test.captions for words in own)
    )
    said = result["captions"]
    assert [entry["image"] for entry in said] == list(captions.test.names)
    for way in WAYS:
        texts = [caption_words(entry[way]) for entry in said]
        scores = score_captions(texts, captions.test.captions).metrics()
        for name in FIGURES:
            assert found["scores"][way][name] == pytest.approx(100 * scores[name])
            assert result["scores"][way][name] == found["scores"][way][name]
        shown = ", ".join(f"{name} {100 * scores[name]:.1f}" for name in FIGURES)
        assert f"{'beam 3' if way == 'beam' else way}: {shown}" in out
        # Each image shows one of three animals; the captions say which.
        named = [set(words) & {"dog", "cat", "horse"} for words in texts]
        expected = [set(own[0]) & {"dog", "cat", "horse"} for own in captions.test.captions]
        assert named == expected
    assert max(map(len, out.splitlines())) <= 100
    out = " ".join(out.split())
    assert "lower case without punctuation" in out
    assert "fewer than 5 times" in out
    assert "<eos> is counted" in out
    assert "times 100" in out
    assert found["score_scale"] == 100


def test_captions_are_those_of_a_search_with_the_draws(trained_captioner, program, tmp_path):
    run = trained_captioner("bbb", "--epochs", "2", "--sigma-scale", "1")
    evaluated(program, tmp_path, run, "--samples", "3", "--seed", "7", "--beam", "4")
    result, trained = kept(run, "test-beam4-samples3"), TASK.open_run(run)
    words, test = trained.vocabulary, trained.captions().test
    draws = Draws(trained.method, trained.net, 3, seeded(7))
    texts = {}
    for way, beam in {"greedy": 1, "beam": 4}.items():
        search = CaptionSearch(words.index("<eos>"), (words.index("<unk>"),), beam)
        found = [best[0] for best in search.captions(list(draws.networks()), test.features)]
        texts[way] = [" ".join(words.decode(caption.words)) for caption in found]
        assert [entry[way] for entry in result["captions"]] == texts[way]
    assert texts["greedy"] != texts["beam"]
    encoded = EncodedCaptions.encode(test, words)
    assert result["nll"] == pytest.approx(caption_likelihood(draws, encoded).of_all().nll, rel=1e-6)


def literal_bound(run):
    """The bound on the test captions in minibatches of 16, shortest first, by the word."""
    trained = TASK.open_run(run)
    encoded = EncodedCaptions.encode(trained.captions().test, trained.vocabulary)
    order = sorted(range(len(encoded)), key=lambda caption: int(encoded.lengths[caption]))
    generator, total = seeded(1), 0.0
    for start in range(0, len(order), 16):
        batch = encoded.batch(torch.tensor(order[start : start + 16]))

        def objective(network, batch=batch):
            logits = network(batch.inputs, batch.features)[0]
            of_words = logits.log_softmax(-1).gather(-1, batch.targets[..., None])[..., 0]
            return Outcome(-(of_words * batch.mask).sum(), None)

        bound = trained.method.bound(trained.net, objective, generator)
        total += bound.nll + bound.kl
    return total / int(encoded.lengths.sum())


def test_the_rows_of_methods(trained_captioner, program, tmp_path):
    run = trained_captioner("sharpened", "--epochs", "1")
    found, out = evaluated(program, tmp_path, run, "--samples", "2")
    rows = [row["inference"] for row in found["rows"]]
    assert rows == ["mean", "samples2", "bound", "consensus48"]
    assert found["label"] == "phi averaged over 2 draws"
    assert found["rows"][2]["kl"] > 0
    assert found["rows"][2]["tokens"] == found["tokens"]
    assert "scores" not in found["rows"][2]
    assert "perplexity <= " in out
    assert found["rows"][2]["nll"] == pytest.approx(literal_bound(run), rel=1e-5)
    run = trained_captioner("bbb", "--epochs", "1")
    found, _ = evaluated(program, tmp_path, run, "--samples", "3", "--split", "valid")
    assert [row["inference"] for row in found["rows"]] == ["samples3", "consensus48"]
    assert kept(run, "valid-samples3")["captions"][0]["image"] == "dev0.jpg"
    again, _ = evaluated(program, tmp_path, run, "--samples", "3", "--split", "valid")
    assert again == found


def test_the_images_that_it_learnt_from_have_no_baseline(trained_captioner, program, tmp_path):
    run = trained_captioner("plain", "--epochs", "1")
    found, _ = evaluated(program, tmp_path, run, "--split", "train", "--beam", "1")
    assert [row["inference"] for row in found["rows"]] == ["beam1-mean"]
    assert found["scores"]["beam"] == found["scores"]["greedy"]
    assert len(kept(run, "train-beam1-mean")["captions"]) == 48


def test_the_baseline_is_kept(trained_captioner, program, tmp_path, monkeypatch):
    run = trained_captioner("plain", "--epochs", "1")
    found, out = evaluated(program, tmp_path, run)
    captions = TASK.open_run(run).captions()
    said = consensus_captions(captions.train, captions.test.features, 48)
    expected = score_captions(said, captions.test.captions).metrics()
    row = found["rows"][-1]
    assert row["label"] == "consensus of 48 nearest images"
    assert row["scores"]["consensus"]["CIDEr"] == pytest.approx(100 * expected["CIDEr"])
    assert "perplexity" not in row
    assert f"consensus of 48 nearest images\n  BLEU-1 {100 * expected['BLEU-1']:.1f}, " in out
    texts = [entry["consensus"] for entry in kept(run, "test-consensus48")["captions"]]
    assert texts == [" ".join(words) for words in said]

    def not_again(*arguments):
        raise AssertionError("looked at similar images once more")

    with monkeypatch.context() as patch:
        patch.setattr("bayesrnn.tasks.captions.baseline.consensus_captions", not_again)
        assert evaluated(program, tmp_path, run)[0]["rows"][-1] == row
        # Of other images the baseline is another one.
        with pytest.raises(AssertionError, match="once more"):
            program("evaluate", run, "--split", "valid")
    # A damaged result is made again, and `compare` says what is wrong with it.
    path = run / "results" / "test-consensus48.json"
    whole = kept(run, "test-consensus48")
    for damage in ({"scores": 3}, {"scores": {}}, {"captions": 3}):
        path.write_text(json.dumps({**whole, **damage}))
        code, _, errors = program("compare", run)
        assert code == 1
        assert "does not have the captions that it should" in errors
        assert errors.count("\n") == 1
        assert evaluated(program, tmp_path, run)[0]["rows"][-1] == row
    path.write_text("{")
    assert evaluated(program, tmp_path, run)[0]["rows"][-1] == row


# Comparison


def test_comparison(trained_captioner, program, tmp_path):
    good, bad = (
        trained_captioner("plain", "--epochs", "12", name="good"),
        trained_captioner("plain", "--epochs", "1"),
    )
    for run in (good, bad):
        evaluated(program, tmp_path, run)
    evaluated(program, tmp_path, good, "--samples", "2")
    page = tmp_path / "page.html"
    code, out, errors = program("compare", good, bad, "--out", page)
    assert code == 0, errors
    lines = out.splitlines()
    start = next(n for n, line in enumerate(lines) if line.startswith("score "))
    cells = [re.split(r"\s{2,}", line) for line in lines[start + 2 : start + 16]]
    rows = {}
    for score, *row in cells:
        rows.setdefault(score, []).append(row)
    trained = ["good", "good", "plain"]
    runs = {score: [row[0] for row in found] for score, found in rows.items()}
    assert runs == {
        "perplexity": trained,
        "BLEU-4": [*trained, "consensus"],
        "CIDEr": [*trained, "consensus"],
        "Spearman": trained,
    }
    labels = ["mean, beam 3", "1 network, beam 3", "mean, beam 3", "48 neighbours"]
    assert [row[1] for row in rows["CIDEr"]] == labels
    results = [kept(good, "test-mean"), kept(bad, "test-mean")]
    captions = TASK.open_run(good).captions().test.captions
    first, second = (
        score_captions([caption_words(entry["beam"]) for entry in result["captions"]], captions)
        for result in results
    )
    for place, result, scores in ((0, results[0], first), (2, results[1], second)):
        values = {score: found[place][2] for score, found in rows.items()}
        sure = [entry["confidence"] for entry in result["captions"]]
        assert values == {
            "perplexity": f"{result['perplexity']:.2f}",
            **{name: f"{result['scores']['beam'][name]:.1f}" for name in ("BLEU-4", "CIDEr")},
            "Spearman": f"{spearmanr(sure, scores.cider).statistic:.3f}",
        }
    assert all(found[0][3] == "-" for found in rows.values())
    # A plain network has no draws that differ from its mean.
    assert rows["BLEU-4"][1][3] == "+0.0 (0.0, 0.0)"
    assert rows["perplexity"][1][3] == "+0.00 (0.00, 0.00)"
    expected = paired_bootstrap(second, first, seeded(1))["CIDEr"]
    value, low, high = (100 * number for number in (expected.value, expected.low, expected.high))
    assert high < 0
    assert rows["CIDEr"][2][3] == f"{value:+.1f} ({low:.1f}, {high:.1f}) real"
    assert rows["CIDEr"][2][3] in page.read_text()
    worse = results[1]["perplexity"] - results[0]["perplexity"]
    assert rows["perplexity"][2][3].startswith(f"{worse:+.2f} (")
    assert rows["perplexity"][2][3].endswith(" real")


def test_results_of_earlier_versions_have_no_readings(trained_captioner, program, tmp_path):
    run, other = (trained_captioner("plain", "--epochs", "1", name=name) for name in "ab")
    for each in (run, other):
        evaluated(program, tmp_path, each)
    result = kept(other, "test-mean")
    older = [
        {key: entry[key] for key in ("image", "greedy", "beam")} for entry in result["captions"]
    ]
    (other / "results/test-mean.json").write_text(json.dumps({**result, "captions": older}))
    code, out, errors = program("compare", run, other)
    assert code == 0, errors
    table = out[out.index("\nscore ") :].splitlines()
    named = [re.split(r"\s{2,}", line)[:2] for line in table if "beam 3" in line]
    assert named == [
        *(["perplexity", "a"], ["BLEU-4", "a"], ["BLEU-4", "b"]),
        *(["CIDEr", "a"], ["CIDEr", "b"], ["Spearman", "a"]),
    ]


def test_another_beam_is_kept_by_itself(trained_captioner, program, tmp_path):
    run = trained_captioner("bbb", "--epochs", "1")
    first, _ = evaluated(program, tmp_path, run, "--samples", "2")
    usual = kept(run, "test-samples2")
    compared = program("compare", run)[1]
    assert "2 draws, beam 3" in compared
    other, out = evaluated(program, tmp_path, run, "--samples", "2", "--beam", "2")
    assert "beam 2: BLEU-1" in out
    assert other["inference"] == "beam2-samples2"
    assert other["perplexity"] == first["perplexity"]
    assert kept(run, "test-samples2") == usual
    assert kept(run, "test-beam2-samples2")["beam"] == 2
    assert program("compare", run)[1] == compared


def test_without_a_difference_nothing_is_said_of_it(trained_captioner, program, tmp_path):
    run, other = (trained_captioner("plain", "--epochs", "1", name=name) for name in "ab")
    for each in (run, other):
        evaluated(program, tmp_path, each)
    for name in ("test-mean", "test-consensus48"):
        result = kept(other, name)
        changed = {**result, "captions": result["captions"][1:]}
        (other / f"results/{name}.json").write_text(json.dumps(changed))
    code, out, _ = program("compare", run, other)
    assert code == 0
    assert "kept captions are of other images: b (mean, beam 3), consensus" in out
    assert "difference" not in out


def test_comparison_without_what_it_needs(trained_captioner, program, tmp_path, monkeypatch):
    run, other = (
        trained_captioner("plain", "--epochs", "1"),
        trained_captioner("bbb", "--epochs", "1"),
    )
    code, out, _ = program("compare", run, other)
    assert code == 0
    assert "CIDEr" not in out, "nothing was evaluated yet"
    evaluated(program, tmp_path, run)
    evaluated(program, tmp_path, other)
    # Mixed with another task, which has no captions.
    shutil.copytree(run, tmp_path / "lm")
    (tmp_path / "lm" / "config.toml").write_text(
        'corpus = "ptb"\nmethod = "plain"\ncell = "lstm"\nlayers = 1\nhidden = 4\nepochs = 1\n'
        "seed = 1\n"
    )
    code, out, errors = program("compare", tmp_path / "lm", run, other)
    assert code == 0, errors
    assert "the runs are on different data" in out
    assert out.count("mean, beam 3 ") == 2 * len(COMPARED), "in the table; a sentence has a bracket"
    result = kept(other, "test-mean")
    changed = {**result, "captions": result["captions"][1:]}
    (other / "results/test-mean.json").write_text(json.dumps(changed))
    code, out, _ = program("compare", run, other)
    assert code == 0
    assert "kept captions are of other images: bbb (mean, beam 3)" in out
    assert "difference: from the first line" in out, "there is one from the baseline"
    monkeypatch.setenv("BAYESRNN_DATA", str(tmp_path / "nowhere"))
    code, out, _ = program("compare", run, other)
    assert code == 0
    assert "no differences, because the captions of people are not there" in out
    assert "difference: " not in out
    changed = {**result, "captions": [{"image": "a.jpg"}]}
    (other / "results/test-mean.json").write_text(json.dumps(changed))
    code, _, errors = program("compare", run, other)
    assert code == 1
    assert "does not have the captions that it should" in errors
    assert errors.count("\n") == 1
