from types import SimpleNamespace

import pytest

from bayesrnn.methods import METHODS
from bayesrnn.studies.reproduce.measure import differing_draws
from bayesrnn.studies.reproduce.options import PtbOptions, recipe_option
from bayesrnn.studies.reproduce.plan import PlanStep, plan_text
from bayesrnn.studies.reproduce.run_state import (
    read_states,
    settings_key,
    unlike_asked,
    unlike_published,
)
from bayesrnn.tasks.lm.task import LanguageModelTask


def config(**given):
    recipe = recipe_option(given.get("method", "bbb"))
    return LanguageModelTask().resolve({"corpus": ("ptb",), **recipe, **given})


def test_runs_that_are_not_there_are_to_be_made(tmp_path):
    options = PtbOptions(out=tmp_path, methods="plain,bbb", seeds="1,2")
    states = read_states(options)
    assert [state.name for state in states] == [
        "plain-seed1",
        "plain-seed2",
        *("bbb-seed1", "bbb-seed2"),
    ]
    assert not any(state.complete or state.saved or unlike_asked(state) for state in states)
    assert [state.epochs for state in states] == [13, 13, 30, 30]
    assert list(tmp_path.iterdir()) == [], "to look makes nothing"


def test_the_rounds_of_a_method_count(tmp_path):
    options = PtbOptions(out=tmp_path, methods="ensemble")
    (state,) = read_states(options)
    assert state.epochs == state.wanted.epochs * state.wanted.options["members"]


def test_settings_are_the_same_but_for_the_seed_and_the_machine():
    key = settings_key(config(method="bbb"))
    assert settings_key(config(method="bbb", seed=2, threads=1, device="cpu")) == key
    assert settings_key(config(method="bbb", lr=0.5)) != key
    assert settings_key(config(method="bbb", prior_per="weight")) != key


def test_the_published_recipe_differs_in_nothing_but_the_mirrored_noise():
    (noise, grouping) = unlike_published(config(method="bbb", size="medium"))
    assert noise == "antithetic yes (published: no)"
    assert "per row, as in the authors' code" in grouping
    (plain,) = unlike_published(config(method="plain", size="small"))
    assert plain.startswith("nothing")


def test_every_departure_from_the_published_set_up_is_told():
    given = {"size": "small", "epochs": 30, "prior_per": "weight", "kl_weight": 0.5}
    said = unlike_published(config(method="bbb", **given))
    for words in (
        *("hidden 200 (published: 650)", "epochs 30 (published: 70)"),
        *("hold epochs 9 (published: 21)", "decay 0.782 (published: 0.9)"),
        *("kl weight 0.5 (published: 1)", "antithetic yes (published: no)"),
    ):
        assert words in said
    assert any("per weight, as in the paper's formula" in one for one in said)
    assert not any("seed" in one or "size" in one for one in said)


def test_a_method_is_compared_at_a_size_at_which_it_was_published():
    large = " ".join(unlike_published(config(method="dropout", size="large")))
    assert "hidden" not in large
    for method in ("dropout", "variational-dropout"):
        said = unlike_published(config(method=method, size="small"))
        assert "hidden 200 (published: 650)" in said
    assert said[-1].startswith("schedule and rates: ours")
    assert not any("published" in one for one in said if "hidden" not in one)


@pytest.mark.parametrize("method", METHODS)
def test_methods_that_were_never_published_on_this_text_say_so(method):
    of_the_paper = ("plain", "dropout", "variational-dropout", "bbb", "sharpened")
    said = unlike_published(config(method=method))
    assert ("not in the paper" in said) == (method not in of_the_paper)


@pytest.mark.parametrize(
    ("differ", "members", "draws"), [(True, 1, 10), (True, 12, 12), (False, 1, 0), (False, 5, 5)]
)
def test_draws_are_those_that_are_different_networks(differ, members, draws):
    method = SimpleNamespace(draws_differ=differ, members=lambda net: members)
    trained = SimpleNamespace(method=method, net=None)
    assert differing_draws(trained, PtbOptions()) == draws


def test_the_plan_adds_up_what_is_left():
    steps = [
        PlanStep("first", 7200, None),
        PlanStep("second", 90 * 60, print),
        PlanStep("third", 60, print),
    ]
    lines = plan_text(steps, "the command").splitlines()
    assert lines[0].split() == ["done", "first"]
    assert lines[1].split() == ["to", "do", "1.5", "h", "second"]
    assert lines[2].split() == ["to", "do", "1", "min", "third"]
    assert lines[3] == "2 of 3 steps to do, about 1.5 h on two cores: the command"
    assert plan_text(steps[:1], "the command").splitlines()[-1] == "all is done"
