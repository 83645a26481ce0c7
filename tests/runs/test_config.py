from dataclasses import replace
from functools import partial

import pytest
import torch

from bayesrnn.errors import ConfigError
from bayesrnn.methods import METHODS
from bayesrnn.options import flag, from_toml
from bayesrnn.runs.config import Recipe, Recipes, resolve
from bayesrnn.tasks.lm.config import RECIPES, LanguageModelConfig
from bayesrnn.tasks.mnist.config import MnistConfig
from bayesrnn.tasks.mnist.task import MnistTask
from bayesrnn.training.optimisation import default_lr, make_optimiser

resolve_language_model = partial(resolve, LanguageModelConfig, RECIPES)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("size", ["tiny", "small", "medium", "large"])
def test_a_configuration_survives_its_file(method, size):
    config = resolve_language_model({"method": method, "size": size, "seed": 5})
    assert resolve_language_model({}, from_toml(config.to_toml(), "test")) == config


@pytest.mark.parametrize("method", METHODS)
def test_a_configuration_for_digits_survives_its_file(method, tmp_path):
    task = MnistTask()
    config = task.resolve({"method": method, "images": "digits", "data_dir": tmp_path, "lr": 0.1})
    assert config.data_dir == tmp_path
    assert task.resolve({}, from_toml(config.to_toml(), "test")) == config


#: What `bayesrnn train lm` wrote when it was the only task.
OLD_FILE = """
method = "bbb"
epochs = 2
batch_size = 20
optimizer = "sgd"
lr = 1.0
hold_epochs = 1
decay = 0.015625
weight_decay = 0.0
clip = 5.0
seed = 1
device = "auto"
save_minutes = 10.0
tensorboard = false
corpus = ["pride-and-prejudice"]
size = "tiny"
cell = "lstm"
hidden = 30
layers = 1
tied = false
unroll = 35
init = 0.0

[options]
prior = "mixture"
prior_pi = 0.25
prior_sigma1 = 0.36787944117144233
prior_sigma2 = 0.0009118819655545162
prior_per = "row"
sigma_scale = 1.0
kl_weight = 1.0
antithetic = true
"""


def test_an_old_configuration_is_still_read():
    file = from_toml(OLD_FILE, "test")
    config = resolve_language_model({}, file, saved=True)
    assert (config.task, config.kl_weighting) == ("lm", "uniform")
    assert config.options.items() >= file["options"].items()
    # What it had no option for: the widths were trained like the means.
    assert config.options["sigma_lr"] == 0
    assert config.corpus == ("pride-and-prejudice",)
    for name in file.keys() - {"options", "corpus"}:
        assert getattr(config, name) == file[name]


def test_given_options_win_over_the_file_and_the_recipe():
    file = {"method": "dropout", "lr": 0.5, "hidden": 30, "options": {"dropout": 0.1}}
    config = resolve_language_model({"lr": 0.25, "dropout": 0.2}, file)
    assert (config.lr, config.hidden, config.options) == (0.25, 30, {"dropout": 0.2})


def test_the_recipes_of_the_papers():
    zaremba = resolve_language_model({"method": "dropout", "size": "medium"})
    assert (zaremba.hidden, zaremba.layers, zaremba.unroll, zaremba.batch_size) == (650, 2, 35, 20)
    assert (zaremba.epochs, zaremba.hold_epochs, zaremba.decay) == (39, 6, 0.8)
    assert (zaremba.init, zaremba.clip, zaremba.options["dropout"]) == (0.05, 5.0, 0.5)
    authors = resolve_language_model({"method": "bbb", "size": "medium", "recipe": "paper"})
    assert (authors.epochs, authors.hold_epochs, authors.decay) == (70, 21, 0.9)
    assert authors.options["prior_per"] == "row"
    small = resolve_language_model({"method": "plain", "size": "small"})
    assert (small.unroll, small.epochs, small.hold_epochs, small.decay) == (20, 13, 4, 0.5)


def test_a_schedule_is_stretched_to_the_epochs():
    given = {"method": "bbb", "size": "medium", "recipe": "paper"}
    config = resolve_language_model({**given, "epochs": 10})
    assert config.hold_epochs == 3
    assert config.decay**7 == pytest.approx(0.9**49)
    assert resolve_language_model({**given, "epochs": 1}).hold_epochs == 1


def test_a_saved_configuration_takes_nothing_from_recipes_of_today():
    options = {"sigma_lr": 1.0, "kl_weight": 0.1}
    tuned = Recipe(epochs=2, hold_epochs=1, decay=0.5, average=0.9, options=options)
    recipes = Recipes(default=tuned)
    file = {"method": "bbb", "images": "digits", "options": {"kl_weight": 0.3}}
    started = resolve(MnistConfig, recipes, {}, file)
    assert (started.options["sigma_lr"], started.options["kl_weight"]) == (1.0, 0.3)
    assert started.average == 0.9
    saved = resolve(MnistConfig, recipes, {}, file, saved=True)
    assert (saved.options["sigma_lr"], saved.options["kl_weight"]) == (0.0, 0.3)
    assert saved.average is None


def test_a_recipe_by_name():
    tuned, paper = (Recipe(epochs=n, hold_epochs=1, decay=0.5) for n in (2, 3))
    recipes = Recipes(default=tuned, by_method={"bbb": tuned}, paper={"bbb": paper})
    for method, name, epochs in [
        ("bbb", "tuned", 2),
        ("bbb", "paper", 3),
        ("sharpened", "paper", 3),
    ]:
        given = {"method": method, "images": "digits", "recipe": name}
        assert resolve(MnistConfig, recipes, given).epochs == epochs
    with pytest.raises(ConfigError, match="are known here for bbb, not for the method plain"):
        resolve(MnistConfig, recipes, {"method": "plain", "recipe": "paper"})
    with pytest.raises(ConfigError, match="--recipe is 'best'; there are: tuned, paper"):
        resolve(MnistConfig, recipes, {"recipe": "best"})


def test_a_prior_has_a_grouping_of_its_own_unless_one_is_given():
    for given, per in [
        ({"prior": "mixture"}, "row"),
        ({"prior": "fitted"}, "tensor"),
        ({"prior": "fitted", "prior_per": "column"}, "column"),
    ]:
        assert resolve_language_model({"method": "bbb", **given}).options["prior_per"] == per


def test_other_optimisers_get_their_own_learning_rate():
    assert resolve_language_model({"optimizer": "adam"}).lr == 1e-3
    assert resolve_language_model({"optimizer": "Adam", "lr": 0.1}).lr == 0.1


@pytest.mark.parametrize(
    "wrong",
    [
        {"epochs": 0},
        {"lr": float("nan")},
        {"clip": -1.0},
        {"average": 1.0},
        {"average": -0.1},
        {"size": "huge"},
        {"cell": "transformer"},
        {"threads": 0},
        {"kl_weight": 0.0},
    ],
)
def test_impossible_values_are_refused(wrong):
    with pytest.raises(ConfigError, match=f"--{next(iter(wrong)).replace('_', '-')}"):
        resolve_language_model(wrong)


@pytest.mark.parametrize(
    ("method", "text", "words"),
    [
        ("sharpened", 'sigma0 = "x"', "--sigma0 is 'x'; it has to be a number"),
        ("sharpened", 'eta_lr = "0.1"', "--eta-lr is '0.1'; it has to be a number"),
        ("sharpened", 'eta_init = "a"', "--eta-init is 'a'; it has to be a number"),
        ("sharpened", 'second_order = "false"', "--second-order is 'false'; .* true or false"),
        ("bbb", 'antithetic = "no"', "--antithetic is 'no'; it has to be true or false"),
        ("bbb", 'prior = "foo"', "--prior is 'foo'; there are: mixture, gaussian"),
        ("bbb", "prior = 3", "--prior is 3; there are: mixture, gaussian"),
        ("bbb", 'prior_per = "net"', "--prior-per is 'net'; there are: weight, row"),
        ("bbb", "kl_weight = true", "--kl-weight is True; it has to be a number"),
        ("dropout", "dropout = [0.5]", r"--dropout is \[0.5\]; it has to be a number"),
    ],
)
def test_options_of_the_wrong_kind_are_refused(method, text, words):
    file = from_toml(f'method = "{method}"\n[options]\n{text}', "test")
    with pytest.raises(ConfigError, match=words):
        resolve_language_model({}, file)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("options = 3", "'options' is 3; it has to be a table"),
        ("data_dir = 3", "--data-dir is 3; it has to be the path"),
        ("corpus = 3", "--corpus is 3; it has to be a text or a list of texts"),
        ('corpus = ["a", 1]', "--corpus is .*; it has to be a text or a list of texts"),
        ("tied = 1", "--tied is 1; it has to be true or false"),
    ],
)
def test_entries_of_the_wrong_kind_are_refused(text, words):
    with pytest.raises(ConfigError, match=words):
        resolve_language_model({}, from_toml(text, "test"))


def test_none_is_refused_where_a_value_is_needed():
    assert resolve_language_model({"method": "sharpened", "eta_init": None})
    with pytest.raises(ConfigError, match="--sigma0 is None; it has to be a number"):
        resolve_language_model({"method": "sharpened", "sigma0": None})


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(("name", "value"), [("kl_weighting", "geometric"), ("kl_warmup", 2.5)])
def test_only_methods_with_a_kl_can_weight_it(method, name, value):
    given = {"method": method, name: value}
    if method in ("bbb", "sharpened", "variational-dropout"):
        assert getattr(resolve_language_model(given), name) == value
    else:
        with pytest.raises(ConfigError, match=rf"{flag(name)} .* {method} .*: bbb, sharpened"):
            resolve_language_model(given)


@pytest.mark.parametrize("method", METHODS)
def test_a_recipe_can_turn_averaging_on_for_methods_that_can(method):
    def averaging(found):
        by_size = found if isinstance(found, dict) else {None: found}
        return {size: replace(recipe, average=0.99) for size, recipe in by_size.items()}

    recipes = replace(
        RECIPES,
        default=averaging(RECIPES.default),
        by_method={name: averaging(found) for name, found in RECIPES.by_method.items()},
    )
    config = resolve(LanguageModelConfig, recipes, {"method": method})
    assert config.average == (0.99 if METHODS[method].can_average else 0.0)
    assert METHODS[method].can_average != METHODS[method].own_optimiser
    assert from_toml(config.to_toml(), "test")["average"] == config.average
    assert resolve(LanguageModelConfig, recipes, {"method": method, "average": 0.0}).average == 0


def usable_optimisers():
    with pytest.raises(ConfigError) as refused:
        default_lr("magic")
    return str(refused.value).rpartition(": ")[2].split(", ")


@pytest.mark.parametrize("name", usable_optimisers())
def test_every_optimiser_that_is_offered_can_step(name):
    net = torch.nn.Linear(3, 2)
    before = [parameter.clone() for parameter in net.parameters()]
    lr = resolve_language_model({"optimizer": name}).lr
    optimiser = make_optimiser(name, [{"params": list(net.parameters())}], lr, 0.0)
    net(torch.ones(4, 3)).square().sum().backward()
    optimiser.step()
    for parameter, old in zip(net.parameters(), before, strict=True):
        assert not torch.equal(parameter, old)
