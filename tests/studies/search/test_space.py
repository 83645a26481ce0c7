"""A space is made of what options say of themselves."""

import itertools
import math

import pytest

from bayesrnn.errors import ConfigError
from bayesrnn.methods import METHODS
from bayesrnn.options import from_toml, options_of, to_toml
from bayesrnn.studies.search.space import Dimension, Space
from bayesrnn.studies.search.spaces import find_space
from bayesrnn.tasks import TASKS

LM = TASKS["lm"]


def dimensions(space):
    return {one.name: one for one in space.dimensions}


def test_the_paper_s_space_begins_with_its_recipe_and_has_its_27_points():
    space = find_space("paper", LM, {"method": "bbb", "size": "medium"})
    assert space.held == {"prior": "mixture", "recipe": "paper"}
    begin = space.first[0]
    assert begin["prior_pi"] == 0.25
    assert begin["prior_sigma1"] == pytest.approx(math.exp(-1))
    assert begin["prior_sigma2"] == pytest.approx(math.exp(-7))
    assert (begin["lr"], begin["decay"]) == (1.0, 0.9)
    points = {
        (p["prior_pi"], round(math.log(p["prior_sigma1"])), round(math.log(p["prior_sigma2"])))
        for p in space.first
    }
    assert points == set(itertools.product((0.25, 0.5, 0.75), (0, -1, -2), (-6, -7, -8)))
    assert len(space.first) == 27
    assert {(p["lr"], p["decay"]) for p in space.first} == {(1.0, 0.9)}


def test_sharpening_adds_its_sigma0():
    space = find_space("paper", LM, {"method": "sharpened"})
    assert dimensions(space)["sigma0"].contains(0.02)
    assert all(point["sigma0"] == 0.02 for point in space.first)


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("method", METHODS)
def test_the_wide_space_names_what_the_method_has_and_its_ends_are_allowed(task, method):
    task = TASKS[task]
    space = find_space("wide", task, {"method": method})
    config = task.resolve({"method": method})
    known = {
        item.name: item
        for item in (*options_of(type(config)), *options_of(METHODS[method].options_type))
    } | {item.name: item for item in options_of(METHODS[method].options_for(config.options))}
    assert {"lr"} <= dimensions(space).keys() <= known.keys()
    for one in space.dimensions:
        for value in one.choices or (one.low, one.high):
            known[one.name].check(value)
    # The recipe is a point of it, unless it is at an end that the space does not reach.
    for point in space.first:
        assert task.resolve({"method": method, **point}) == config


def test_bounds_and_choices_that_a_file_leaves_out_are_the_option_s(space_file, toy):
    space = find_space(str(space_file), toy, {"method": "bbb"})
    assert dimensions(space) == {
        "prior_per": Dimension("prior_per", choices=("row", "weight")),
        "antithetic": Dimension("antithetic", choices=(False, True)),
        "sigma_scale": Dimension("sigma_scale", 0.1, 3.0, log=True),
    }
    assert space.held == {"prior": "mixture"}
    assert space.first == ({"prior_per": "row", "antithetic": True, "sigma_scale": 1.0},)
    saved = from_toml(to_toml(space.as_toml()), "there and back")
    assert Space.from_saved(saved) == Space(space.dimensions, dict(space.held), space.first)


def test_a_recipe_outside_of_the_space_is_no_first_trial(tmp_path, toy):
    path = tmp_path / "space.toml"
    path.write_text("[lr]\nlow = 0.2\nhigh = 0.5\n")
    assert find_space(str(path), toy, {"method": "plain"}).first == ()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[pi]\nlow = 0.1\nhigh = 0.5", "'pi', which is not an option of `bayesrnn train toy"),
        ("[prior_p]\nlow = 0.1\nhigh = 0.5", "did you mean prior_pi?"),
        ("[members]\nlow = 2\nhigh = 5", "an option of ensemble and not of the method bbb"),
        ("[seed]\nlow = 2\nhigh = 5", "'seed', which a search cannot change"),
        ("[prior_pi]\nlow = 0.1\nhigh = 1", "--prior-pi is 1; it has to be between 0 and 1"),
        ("[prior_pi]\nlow = 0.1", "--prior-pi needs a low and a high end, between 0 and 1"),
        ("[prior_pi]\nlow = 0.5\nhigh = 0.1", "the low end has to be lower"),
        ("[prior_pi]\nleast = 0.1", "has 'least'; there are: low, high, log, choices"),
        ("[prior]\nchoices = ['mixed']", "--prior is 'mixed'; there are: mixture, gaussian"),
        ("[prior]\nchoices = ['fitted', 'fitted']", "give each once"),
        ("[prior]\nchoices = 'fitted'", "give a list of values"),
        ("[sigma_lr]\nlow = 0\nhigh = 1\nlog = true", "true above 0"),
        ("[hidden]\nlow = 0.5\nhigh = 8", "--hidden is 0.5; it has to be a whole number"),
        ("prior = 'fitted'", "names no option to search"),
        ("prior = ", "is not a TOML file"),
    ],
)
def test_what_a_file_cannot_say(tmp_path, toy, text, said):
    path = tmp_path / "space.toml"
    path.write_text(text)
    with pytest.raises(ConfigError) as refused:
        find_space(str(path), toy, {"method": "bbb"})
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


def test_what_is_searched_cannot_be_given_nor_what_is_held_be_another():
    with pytest.raises(ConfigError, match="--prior-pi is given, but the space paper searches"):
        find_space("paper", LM, {"prior_pi": 0.5})
    with pytest.raises(ConfigError, match="--prior is fitted, but the space paper holds it at"):
        find_space("paper", LM, {"prior": "fitted"})
    with pytest.raises(ConfigError, match="the method dropout has none; give --method bbb or"):
        find_space("paper", LM, {"method": "dropout"})
    with pytest.raises(ConfigError, match=r"cannot be read: .*; give paper, wide, or a TOML file"):
        find_space("papers", LM, {})
