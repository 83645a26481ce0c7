import dataclasses
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bayesrnn.errors import ConfigError
from bayesrnn.tasks.language_model_config import LanguageModelConfig, resolve_language_model
from bayesrnn.tasks.options import from_toml, to_toml

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
values = st.one_of(
    texts,
    st.booleans(),
    st.integers(-(2**60), 2**60),
    st.floats(allow_nan=False, allow_infinity=False),
    st.lists(texts, max_size=3),
)
names = st.text("abc_", min_size=1, max_size=8)


@given(st.dictionaries(names, values), st.dictionaries(names, values, min_size=1))
def test_toml_round_trip(flat, table):
    flat.pop("table", None)
    assert from_toml(to_toml({**flat, "table": table}), "test") == {**flat, "table": table}


@pytest.mark.parametrize("method", ["plain", "dropout", "bbb"])
@pytest.mark.parametrize("size", ["tiny", "small", "medium", "large"])
def test_a_configuration_survives_its_file(method, size):
    config = resolve_language_model({"method": method, "size": size, "seed": 5})
    assert resolve_language_model({}, from_toml(config.to_toml(), "test")) == config


def test_given_options_win_over_the_file_and_the_recipe():
    file = {"method": "dropout", "lr": 0.5, "hidden": 30, "options": {"dropout": 0.1}}
    config = resolve_language_model({"lr": 0.25, "dropout": 0.2}, file)
    assert (config.lr, config.hidden, config.options) == (0.25, 30, {"dropout": 0.2})


def test_the_recipes_of_the_papers():
    zaremba = resolve_language_model({"method": "dropout", "size": "medium"})
    assert (zaremba.hidden, zaremba.layers, zaremba.unroll, zaremba.batch_size) == (650, 2, 35, 20)
    assert (zaremba.epochs, zaremba.hold_epochs, zaremba.decay) == (39, 6, 0.8)
    assert (zaremba.init, zaremba.clip, zaremba.options["dropout"]) == (0.05, 5.0, 0.5)
    authors = resolve_language_model({"method": "bbb", "size": "medium"})
    assert (authors.epochs, authors.hold_epochs, authors.decay) == (70, 21, 0.9)
    assert authors.options["prior_per"] == "row"
    small = resolve_language_model({"method": "plain", "size": "small"})
    assert (small.unroll, small.epochs, small.hold_epochs, small.decay) == (20, 13, 4, 0.5)


def test_a_schedule_is_stretched_to_the_epochs():
    config = resolve_language_model({"method": "bbb", "size": "medium", "epochs": 10})
    assert config.hold_epochs == 3
    assert config.decay**7 == pytest.approx(0.9**49)
    assert resolve_language_model({"method": "bbb", "size": "medium", "epochs": 1}).hold_epochs == 1


def test_other_optimisers_get_their_own_learning_rate():
    assert resolve_language_model({"optimizer": "adam"}).lr == 1e-3
    assert resolve_language_model({"optimizer": "Adam", "lr": 0.1}).lr == 0.1


@pytest.mark.parametrize(
    "wrong",
    [
        {"epochs": 0},
        {"lr": float("nan")},
        {"clip": -1.0},
        {"size": "huge"},
        {"cell": "transformer"},
        {"threads": 0},
        {"kl_weight": 0.0},
    ],
)
def test_impossible_values_are_refused(wrong):
    with pytest.raises(ConfigError, match=f"--{next(iter(wrong)).replace('_', '-')}"):
        resolve_language_model(wrong)


def test_every_option_has_a_line_of_help():
    for item in dataclasses.fields(LanguageModelConfig):
        assert item.metadata["help"]


@pytest.mark.skipif(sys.version_info < (3, 11), reason="tomllib is new in 3.11")
def test_toml_is_read_by_the_standard_library():
    import tomllib

    assert tomllib.loads(to_toml({"text": 'a "quoted" \\ line\nand\ttab'}))["text"].endswith("tab")
