"""The tabs of all tasks: what they answer, against the parts of the program that they show."""

import io
import json
import math
import re
from dataclasses import replace
from importlib import import_module
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest
import torch

from bayesrnn.errors import BayesRNNError, ConfigError, CorpusError
from bayesrnn.random import seeded
from bayesrnn.runs.tab import checked, scaling_of
from bayesrnn.serve.app import encoded
from bayesrnn.tasks import TASKS
from bayesrnn.tasks.captions import tab as captions
from bayesrnn.tasks.forecast.forecasting import backtest_of
from bayesrnn.tasks.forecast.future import forecast_future
from bayesrnn.tasks.lm.generate import prompt_tokens
from bayesrnn.tasks.lm.inspect import inspected
from bayesrnn.tasks.mnist.data import BRIGHTEST, load_images
from bayesrnn.tasks.mnist.tab import as_learnt
from bayesrnn.tasks.sentiment.data import review_words
from bayesrnn.tasks.sentiment.predict import predicted
from bayesrnn.tasks.sentiment.tab import moves
from bayesrnn.uncertainty.draws import Draws

SCRIPTS = [
    *files("bayesrnn").joinpath("serve", "static").iterdir(),
    *(files("bayesrnn").joinpath(*task.tab().script.split("/")) for task in TASKS.values()),
]


@pytest.fixture
def opened(request, program, tmp_path):
    """A function that trains a tiny run of a task, and opens it as its tab does."""

    def open_run(task, method, *options):
        tiny = import_module(f"...tasks.{task}.tiny", __name__)
        given = [*tiny.arguments(request), "--method", method, "--epochs", "1", *options]
        out = tmp_path / f"{task}-{method}"
        common = ("--device", "cpu", "--threads", "1", "--no-calibrate", "--out", out)
        code, _, errors = program("train", task, *given, *common)
        assert code == 0, errors
        return TASKS[task].tab().open(out)

    return open_run


def ask(task, opened, name, content=b"", **given):
    question = TASKS[task].tab().questions[name]
    answer = question.answer(opened, checked(question.options, given), content)
    return json.loads(encoded(answer))


@pytest.mark.parametrize("task", TASKS)
def test_a_tab_has_a_title_and_a_script_that_asks_what_there_is(task):
    tab = TASKS[task].tab()
    script = files("bayesrnn").joinpath(*tab.script.split("/")).read_text()
    assert tab.title
    assert "export function makeContent(runs)" in script
    asked = set(re.findall(r'ask\(\s*(?:run,\s*)?"([\w-]+)"', script))
    assert asked <= {*tab.questions, "about"}
    assert asked & set(tab.questions)


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda file: Path(str(file)).as_posix()[-24:])
def test_no_file_of_the_page_parses_text_as_html_or_names_another_host(script):
    text = script.read_text()
    for forbidden in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("):
        assert forbidden not in text
    hosts = set(re.findall(r"(?:https?:)?//[a-z0-9.-]+\.[a-z]+", text))
    assert hosts <= {"http://www.w3.org"}  # a namespace, which nobody asks for
    own = {f"/static/{Path(str(file)).name}" for file in SCRIPTS}
    assert set(re.findall(r'from "([^"]+)"', text)) <= own


def test_words_are_those_of_the_tokeniser_with_the_metrics_of_inspect(texts):
    tab = TASKS["lm"].tab()
    run = tab.open(texts / "bbb")
    text = "It is a truth universally acknowledged, that zebras"
    tokens = prompt_tokens(text, run.tokeniser)
    found = ask("lm", run, "read", text=text, samples=4, seed=3)
    wanted = inspected(run, tokens, samples=4, top=5, seed=3)
    assert [one["word"] for one in found["words"]] == tokens
    assert [one["known"] for one in found["words"]] == [word.known for word in wanted.words]
    for name in ("probability", "aleatoric", "epistemic"):
        ours = [one[name] for one in found["words"]]
        assert ours == pytest.approx([getattr(word, name) for word in wanted.words], abs=1e-6)
    assert found["perplexity"] == pytest.approx(wanted.perplexity, rel=1e-5)
    assert [word for word, _ in found["average"][-1]] == [one.word for one in wanted.next]
    assert len(found["average"]) == len(tokens) + 1
    assert [len(one) for one in found["single"]] == [len(tokens) + 1] * 3


def test_single_draws_are_those_that_are_averaged(texts):
    run = TASKS["lm"].tab().open(texts / "bbb")
    found = ask("lm", run, "read", text="it is a truth", samples=2, noise=3)
    draws = Draws(run.method, run.net, 2, seeded(1), replace(scaling_of(run), noise=3.0))
    ids = run.vocabulary.encode(["<eos>", "it", "is", "a", "truth"])
    for number, one in enumerate(found["single"]):
        logits, _ = draws[number](ids[:, None], None)
        best = logits[-1, 0].softmax(-1).topk(5)
        assert [word for word, _ in one[-1]] == run.vocabulary.decode(best.indices)
        assert [share for _, share in one[-1]] == pytest.approx(best.values.tolist(), abs=1e-4)
    assert len(found["single"]) == 2


def test_without_noise_draws_agree_and_with_more_they_disagree_more(texts):
    run = TASKS["lm"].tab().open(texts / "bbb")

    def doubt(noise):
        found = ask("lm", run, "read", text="it is a truth universally", noise=noise)
        return sum(one["epistemic"] for one in found["words"])

    assert doubt(0) < 1e-5 < doubt(1) < doubt(4)
    assert run.method.noise_factor == 1  # as before


def test_one_network_has_no_draws_to_show(texts):
    run = TASKS["lm"].tab().open(texts / "plain")
    found = ask("lm", run, "read", text="it is a truth", noise=2)
    assert found["draws"] == 0
    assert found["single"] == []
    assert {one["epistemic"] for one in found["words"]} == {0}


def test_a_text_goes_on_where_it_ends(texts):
    run = TASKS["lm"].tab().open(texts / "bbb")
    found = ask("lm", run, "continue", text="it is a truth", words=5, seed=1)["text"]
    assert found.lower().startswith("it is a truth")
    assert found == ask("lm", run, "continue", text="it is a truth", words=5, seed=1)["text"]
    assert found != ask("lm", run, "continue", text="it is a truth", words=5, seed=2)["text"]


@pytest.mark.parametrize("method", ["plain", "bbb"])
def test_a_score_is_that_of_predict_and_words_move_it_as_without_them(opened, method):
    run = opened("sentiment", method)
    text = "a good film , not bad"
    found = ask("sentiment", run, "rate", text=text, samples=3)
    words = review_words(text)
    (wanted,) = predicted(run, [text], [words], 3, 0.9, 1)["texts"]
    for name in ("score", "low", "high", "epistemic_share", "unknown"):
        assert found[name] == pytest.approx(wanted[name])
    texts = [words, *(words[:place] + words[place + 1 :] for place in range(len(words)))]
    scores = [predicted(run, [""], [one], 0, 0.9, 1)["texts"][0]["score"] for one in texts]
    moved = [scores[0] - without for without in scores[1:]]
    assert [one["word"] for one in found["tried"]] == words
    assert [one["moved"] for one in found["tried"]] == pytest.approx(moved, abs=1e-6)
    assert moves(run, ["good"]) == [0.0]


def test_labels_are_moved_in_the_probability_of_the_one_that_is_said(opened, tmp_path):
    rows = [f"the film was {('bad', 'good')[n % 2]} {n},{('no', 'yes')[n % 2]}" for n in range(60)]
    table = tmp_path / "labels.csv"
    table.write_text("\n".join(["text,label", *rows]) + "\n")
    run = opened("sentiment", "plain", "--data", str(table))
    found = ask("sentiment", run, "rate", text="the film was good")
    of = [
        predicted(run, [""], [words], 0, 0.9, 1)["texts"][0]["probabilities"][found["label"]]
        for words in (["the", "film", "was", "good"], ["the", "film", "was"])
    ]
    assert found["tried"][-1]["moved"] == pytest.approx(of[0] - of[1], abs=1e-6)


@pytest.mark.parametrize("text", ["", " \n", "a " * 30_000])
def test_a_text_without_words_or_with_too_many_is_refused(opened, text):
    with pytest.raises(CorpusError, match="words"):
        ask("sentiment", opened("sentiment", "plain"), "rate", text=text)


def test_a_drawing_is_put_into_the_box_with_its_mass_in_the_middle():
    drawing = torch.zeros(280, 280, dtype=torch.uint8)
    drawing[30:130, 200:250] = 255  # a bar, twice as high as wide
    seen = as_learnt(drawing, 28)
    rows, columns = (torch.nonzero(seen.sum(axis)).flatten() for axis in (1, 0))
    assert (len(rows), len(columns)) == (20, 10)
    assert seen.max() == pytest.approx(1)
    for axis in (0, 1):
        centre = (seen.sum(1 - axis) * torch.arange(28)).sum() / seen.sum()
        assert abs(centre - 13.5) <= 0.5


def test_an_image_of_the_data_is_seen_as_it_was_learnt():
    images = load_images("digits").test.images[:20].view(-1, 8, 8) / BRIGHTEST
    same = 0
    for image in images:
        large = (image * 255).repeat_interleave(8, 0).repeat_interleave(8, 1).round()
        same += bool((as_learnt(large.to(torch.uint8), 8) - image).abs().max() < 0.01)
    assert same > 5  # those that fill their box from top to bottom and lie in its middle


def test_the_probabilities_of_a_drawing_are_the_mean_of_those_of_draws(opened):
    run = opened("mnist", "bbb")
    drawing = torch.zeros(64, 64, dtype=torch.uint8)
    drawing[5:60, 25:40] = 200
    found = ask("mnist", run, "look", drawing.numpy().tobytes(), samples="3")
    draws = Draws(run.method, run.net, 3, seeded(1))
    inputs = (as_learnt(drawing, 8) * BRIGHTEST).view(1, -1)
    of = torch.stack([network(inputs)[0].double().softmax(-1) for network in draws.networks()])
    assert found["probabilities"] == pytest.approx(of.mean(0).tolist(), abs=1e-6)
    entropies = -(of * of.log()).sum(-1)
    assert found["aleatoric"] == pytest.approx(entropies.mean().item(), abs=1e-6)
    assert sum(found["answers"]) == 3
    assert len(found["seen"]) == 64


@pytest.mark.parametrize("content", [b"\0" * 10, b"\0" * 600**2, b"\0" * 100])
def test_what_is_no_drawing_is_refused(opened, content):
    with pytest.raises(CorpusError, match=r"not square|nothing is drawn"):
        ask("mnist", opened("mnist", "plain"), "look", content)


def test_a_fan_is_the_forecast_of_the_program_with_its_backtest(opened):
    forecaster = opened("forecast", "bbb")
    found = ask("forecast", forecaster, "fan", samples=3)
    run, own = forecaster.run, forecaster.own
    tested = backtest_of(own, forecaster.draws(5), 20, 1, (50, 80, 95))
    draws = Draws(run.method, run.net, 3, seeded(1))
    wanted = forecast_future(own.series, run.layout, draws, 7, 66, 1, tested.widening)
    assert found["median"] == pytest.approx(wanted.median[0].tolist())
    for level in (50, 80, 95):
        low, high = wanted.interval(level)
        assert found["bands"][str(level)][0] == pytest.approx(low[0].tolist())
        assert found["bands"][str(level)][1] == pytest.approx(high[0].tolist())
    last = own.series.series[0].target[-7:]
    assert found["naive"] == pytest.approx(last.tolist())
    assert len(found["labels"]) == len(found["history"]) + 7
    assert found["backtest"]["rows"][0][2] == f"{tested.network.wql:.4f}"


def test_a_file_is_read_as_the_run_reads_series(opened):
    forecaster = opened("forecast", "plain")
    one = forecaster.own.series.series[0]
    days = np.arange(np.datetime64("1989-01-01"), np.datetime64("1989-04-01"))
    values = one.target[: len(days)].copy()
    values[-3] = 10 * values.max()
    rows = [f"{day},{value:.0f}" for day, value in zip(days, values, strict=True)]
    content = "\n".join(["date,births", *rows]).encode()
    found = ask("forecast", forecaster, "fan-of-file", content, horizon="5")
    assert found["history"][-3] == values[-3]
    assert found["labels"][-5:] == [f"1989-04-0{day}" for day in range(1, 6)]
    strange = ask("forecast", forecaster, "strange-in-file", content)["strange"]
    assert "1989-03-29" in [one["label"] for one in strange]


@pytest.mark.parametrize(
    ("content", "given", "said"),
    [
        (b"\x1f\x8b\x08", {}, "compressed"),
        (b"date,y\n2020-01-01,1\n2020-01-02,2\n", {}, "too short"),
        (b"date,y\n", {}, "the file"),
        (b"", {"series": 5}, "no series number 5"),
        (b"", {"horizon": 401}, "at most 400|from 0 to 400"),
    ],
)
def test_what_cannot_be_forecast_is_refused_without_the_path_of_a_temporary_file(
    opened, content, given, said
):
    with pytest.raises(BayesRNNError, match=said) as refused:
        ask("forecast", opened("forecast", "plain"), "fan", content, **given)
    assert "tmp" not in str(refused.value)


def test_captions_of_an_image_come_with_what_draws_say(opened, monkeypatch):
    image = pytest.importorskip("PIL.Image", reason="the extra `captions` brings Pillow")
    run = opened("captions", "bbb")
    monkeypatch.setattr(captions, "_image_network", lambda: lambda pixels: torch.ones(1, 1280))
    made = io.BytesIO()
    image.new("RGB", (300, 200), "red").save(made, "PNG")
    found = ask("captions", run, "caption", made.getvalue(), samples="3", best="2")
    assert len(found["captions"]) == 2
    first = found["captions"][0]
    assert " ".join(one["word"] for one in first["words"][:-1]) == first["text"]
    assert math.exp(first["confidence"]) == pytest.approx(first["word_probability"])
    assert sum(one["draws"] for one in found["draws_said"]) == 3
    with pytest.raises(CorpusError, match="the image is not an image"):
        ask("captions", run, "caption", b"no image at all")
    monkeypatch.setattr(captions, "MOST_PIXELS", 59_999)
    with pytest.raises(CorpusError, match=r"at most 0\.059999 million"):
        ask("captions", run, "caption", made.getvalue())


@pytest.mark.parametrize("task", TASKS)
def test_an_option_that_nobody_knows_is_refused(task):
    for question in TASKS[task].tab().questions.values():
        with pytest.raises(ConfigError, match="no option"):
            checked(question.options, {"paint": "blue"})
