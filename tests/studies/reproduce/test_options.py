import shlex
from pathlib import Path

import pytest
import tyro

from bayesrnn.errors import ConfigError, RunError
from bayesrnn.methods import METHODS
from bayesrnn.runs.options import command
from bayesrnn.studies.reproduce.options import _SETTINGS, PARTS, PtbOptions
from bayesrnn.tasks.lm.config import RECIPES, SIZES
from bayesrnn.tasks.lm.task import LanguageModelTask


def test_every_method_has_a_configuration_at_every_size():
    for size in SIZES:
        options = PtbOptions(size=size, methods=",".join(METHODS))
        assert options.methods == tuple(METHODS)
        for method in METHODS:
            config = LanguageModelTask().resolve(options.given(method, 7))
            assert (config.method, config.size, config.seed) == (method, size, 7)
            assert config.corpus == ("ptb",)


def test_the_settings_are_for_methods_and_sizes_that_exist():
    assert all(size in SIZES and method in METHODS for size, method in _SETTINGS)


def test_small_is_trained_as_suits_each_and_medium_by_the_recipes():
    small, medium = PtbOptions(), PtbOptions(size="medium")
    configs = {m: LanguageModelTask().resolve(small.given(m, 1)) for m in small.methods}
    assert (configs["plain"].epochs, configs["plain"].hold_epochs) == (13, 4)
    schedules = {m: (c.epochs, c.hold_epochs, c.decay) for m, c in configs.items()}
    assert schedules["dropout"] == (15, 6, 0.7)
    assert schedules["variational-dropout"] == (20, 8, 0.76)
    assert schedules["sharpened"] == (12, 6, 0.7)
    assert schedules["bbb"][:2] == (30, 9), "the recipe's 21 of 70, stretched"
    for method in ("plain", "dropout", "bbb"):
        config = LanguageModelTask().resolve(medium.given(method, 1))
        recipe = RECIPES.find([method], "medium", "paper" if method == "bbb" else "tuned")
        assert (config.epochs, config.decay) == (recipe.epochs, recipe.decay)


def test_tuned_methods_are_trained_as_the_program_does_by_itself():
    options = PtbOptions(recipe="tuned", precision="bfloat16")
    for method in ("dropout", "bbb"):
        config = LanguageModelTask().resolve(options.given(method, 1))
        recipe = RECIPES.find([method], "small")
        assert (config.epochs, config.hold_epochs) == (recipe.epochs, recipe.hold_epochs)
        assert config.average == recipe.average
        assert config.precision == "bfloat16"
    published = LanguageModelTask().resolve(PtbOptions().given("bbb", 1))
    assert (published.average, published.precision) == (0, "float32")


def test_epochs_are_for_all_methods():
    options = PtbOptions(epochs=4)
    for method in ("plain", "dropout", "bbb"):
        config = LanguageModelTask().resolve(options.given(method, 1))
        assert config.epochs == 4
        name = "paper" if method == "bbb" else "tuned"
        assert config.decay == RECIPES.find([method], "small", name).stretched(4).decay


def test_what_the_machine_is_goes_along():
    options = PtbOptions(threads=2, device="cpu", data_dir=Path("data"))
    machine = {"threads": 2, "device": "cpu", "data_dir": Path("data")}
    assert options.machine() == machine
    assert options.given("bbb", 1).items() >= machine.items()
    assert PtbOptions().machine() == {}


def test_names_are_read_once_and_blanks_do_not_matter():
    options = PtbOptions(methods="bbb, plain,bbb", seeds="3, 1,3", skip="bench,draws")
    assert options.methods == ("bbb", "plain")
    assert options.seeds == (3, 1)
    assert options.skip == ("bench", "draws")
    assert options.folder == Path("reproduction/ptb-small")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"methods": "bbb,lstm"}, r"--methods has lstm; there are: plain, .*bbb"),
        ({"methods": ""}, "--methods is empty"),
        ({"methods": " ,"}, "--methods is ' ,', which has no name"),
        ({"skip": ","}, "--skip is ',', which has no name"),
        ({"seeds": "1,b"}, r"--seeds is '1,b'; give whole numbers"),
        ({"seeds": ""}, "--seeds is ''"),
        ({"seeds": "-1"}, "--seeds has -1; each has to be 0 or more"),
        ({"skip": "tests"}, f"--skip has tests; there are: {', '.join(PARTS)}"),
        ({"samples": 0}, "--samples is 0; it has to be 1 or more"),
        ({"epochs": 0}, "--epochs is 0"),
        ({"threads": 0}, "--threads is 0"),
    ],
)
def test_mistakes_are_told(options, words):
    with pytest.raises(ConfigError, match=words):
        PtbOptions(**options)


def test_a_file_is_no_folder(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match="is a file; give a folder"):
        PtbOptions(out=tmp_path / "file")


def test_the_command_gives_the_same_options_back():
    for options in (
        PtbOptions(),
        PtbOptions("medium", "bbb,plain", "1,2", Path("a folder/x"), 5, 3, "bench", threads=2),
        PtbOptions(recipe="tuned", precision="bfloat16"),
    ):
        words = shlex.split(options.command())
        assert words[:3] == ["bayesrnn", "reproduce", "ptb"]
        parsed: list[PtbOptions] = []
        tyro.cli(command(PtbOptions)(parsed.append), args=words[3:])
        assert parsed == [options]
    assert "dry" not in PtbOptions(dry_run=True).command()
