import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bayesrnn.report.table import Table
from bayesrnn.report.text import cells
from bayesrnn.tasks.lm.uncertainty_results import RunUncertainty
from bayesrnn.tasks.lm.uncertainty_tables import uncertainty_tables, uncertainty_text

MakeUncertainty = Callable[..., RunUncertainty]


def tables(*runs: RunUncertainty, every_level: bool = False) -> list[Table]:
    return [table for _, table in uncertainty_tables(runs, every_level)]


def lines(table: Table) -> list[dict[str, str]]:
    return [dict(zip(table.header, row, strict=True)) for row in table.rows]


def test_the_gap_with_its_control(make_uncertainty: MakeUncertainty) -> None:
    gap, _, _ = tables(make_uncertainty("a"))
    assert lines(gap) == [
        {
            "run": "a",
            "draws": "mean",
            "ppl": f"{math.exp(4.5):.2f}",
            "NLL-H": "0.500",
            "H": "4.000",
            "H rev.": "4.432",
            "gap": "0.432",
            "MI": "-",
            "MI rev.": "-",
            "T": "1.250",
            "gap at T": "0.216",
        },
        {
            "run": "a",
            "draws": "20",
            "ppl": f"{math.exp(4.7):.2f}",
            "NLL-H": "0.500",
            "H": "4.200",
            "H rev.": "4.632",
            "gap": "0.432",
            "MI": "0.400",
            "MI rev.": "0.443",
            "T": "1.250",
            "gap at T": "0.216",
        },
    ]
    notes = " ".join(gap.notes)
    assert "a flatter model widens the gap for free" in notes
    assert "(unigram): 6.1234 (ptb)" in notes
    assert "different corpora" not in notes


def test_every_level_can_be_shown(make_uncertainty: MakeUncertainty) -> None:
    gap, calibration, _ = tables(make_uncertainty("a"), every_level=True)
    assert [line["draws"] for line in lines(gap)] == ["mean", "1", "2", "5", "10", "20"]
    assert [line["T"] for line in lines(gap)] == ["1.250", "-", "-", "-", "-", "1.250"]
    assert [line["MI"] for line in lines(gap)] == ["-", "-", "0.040", "0.100", "0.200", "0.400"]
    assert len(calibration.rows) == 4


def test_calibration_with_and_without_temperature(make_uncertainty: MakeUncertainty) -> None:
    _, calibration, _ = tables(make_uncertainty("a", temperature=1.0))
    assert [(line["draws"], line["T"]) for line in lines(calibration)] == [
        *(("mean", "1"), ("mean", "1.000"), ("20", "1"), ("20", "1.000"))
    ]
    _, calibration, _ = tables(make_uncertainty("a"))
    raw, scaled = lines(calibration)[2:]
    same = {"run": "a", "draws": "20", "error": "0.7321", "Brier": "0.8123", "AURC": "0.5151"}
    assert raw == {**same, "T": "1", "ECE": "0.0301", "ECE mass": "0.0402"}
    assert scaled == {**same, "T": "1.250", "ECE": "0.0241", "ECE mass": "0.0322"}


def test_texts_told_apart(make_uncertainty: MakeUncertainty) -> None:
    runs = [make_uncertainty("a"), make_uncertainty("one", draws=(0,), auroc=0.6, window=20)]
    titles, found = zip(*uncertainty_tables(runs), strict=True)
    assert titles[2] == "Telling shifted from regular text in windows of 50 or 20 words"
    told = lines(found[2])
    assert [(line["run"], line["shift"], line["by"]) for line in told] == [
        *(("a", "reversed", "H"), ("a", "reversed", "MI"), ("a", "reversed", "S")),
        *(("a", "random 20%", "H"), ("a", "random 20%", "MI"), ("a", "random 20%", "S")),
        *(("one", "reversed", "H"), ("one", "reversed", "S")),
        *(("one", "random 20%", "H"), ("one", "random 20%", "S")),
    ]
    assert told[0] == {
        "run": "a",
        "shift": "reversed",
        "by": "H",
        "gap": "0.432",
        "AUROC": "0.900 (0.880-0.920)",
        "AUPR": "0.910 (0.000-1.000)",
        "FPR95": "0.600 (0.000-1.000)",
    }
    assert told[1]["AUROC"] == "0.800 (0.780-0.820)"
    last = runs[0].levels[-1]
    rise = last.shifts["reversed"].figures.information - last.regular.information
    assert told[1]["gap"] == f"{rise:.3f}"
    assert (told[2]["AUROC"], told[2]["gap"]) == ("0.950 (0.930-0.970)", "0.632")
    assert told[8]["gap"] == "0.876"


def test_draws_that_do_not_differ_have_no_information(make_uncertainty: MakeUncertainty) -> None:
    run = make_uncertainty()
    levels = tuple(
        replace(level, shifts={k: replace(s, by_information=None) for k, s in level.shifts.items()})
        for level in run.levels
    )
    gap, _, told = tables(replace(run, levels=levels))
    assert {line["MI"] for line in lines(gap)} == {"-"}
    assert {line["by"] for line in lines(told)} == {"H", "S"}


def test_other_texts_than_the_reversed_one(make_uncertainty: MakeUncertainty) -> None:
    runs = [make_uncertainty("a", gaps={"shuffled": 0.5}), make_uncertainty("b", gaps={"x": 0.1})]
    ((title, gap), *_) = uncertainty_tables(runs)
    assert title == "Entropy gap to the shuffled text"
    assert [line["gap"] for line in lines(gap)] == ["0.500", "0.500", "-", "-"]
    assert [line["H shift"] for line in lines(gap)][1:3] == ["4.700", "-"]
    reversed_last = make_uncertainty("c", gaps={"shuffled": 0.5, "reversed": 0.2})
    assert uncertainty_tables([reversed_last])[0][0] == "Entropy gap to the reversed text"


def test_runs_that_cannot_be_compared_are_told(make_uncertainty: MakeUncertainty) -> None:
    runs = [make_uncertainty("a"), make_uncertainty("b"), make_uncertainty("c", corpus="my.txt")]
    for table in tables(*runs):
        assert "can be compared only within one: ptb (a, b); my.txt (c)" in table.notes[-1]
    runs = [make_uncertainty("a"), make_uncertainty("b", vocabulary="other", unigram_entropy=5.5)]
    text = " ".join(uncertainty_text(runs).split())
    assert text.count("can be compared only within one: ptb (a); ptb (b)") == 3
    assert "6.1234 (ptb), 5.5000 (ptb)" in text


def test_runs_of_the_same_name_show_their_paths(make_uncertainty: MakeUncertainty) -> None:
    runs = [make_uncertainty("a", path="one/a"), make_uncertainty("a", path="two/a")]
    for table in tables(*runs):
        assert {line["run"] for line in lines(table)} == {"one/a", "two/a"}


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.text(max_size=150), min_size=1, max_size=6), st.text(max_size=150))
def test_any_names_fit_in_the_terminal(
    make_uncertainty: MakeUncertainty, names: list[str], word: str
) -> None:
    runs = [
        make_uncertainty(name, corpus=word + name, gaps={word: 0.5, name: 0.25}) for name in names
    ]
    for line in uncertainty_text(runs).split("\n"):
        assert cells(line) <= 100
        assert line.isprintable()


@pytest.mark.parametrize("name", ["long-name-" * 20, "長い名前" * 30, "\x1b[2J\n\t\0" * 30, ""])
def test_names_that_are_meant_ill(make_uncertainty: MakeUncertainty, name: str) -> None:
    runs = [make_uncertainty(name + end, gaps={name + "x": 0.5}) for end in ("first", "second")]
    text = uncertainty_text(runs)
    assert all(cells(line) <= 100 and line.isprintable() for line in text.split("\n"))
    assert text.count("0.500") >= 4, "figures are never shortened"


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf, 1e30])
def test_figures_that_are_no_numbers(make_uncertainty: MakeUncertainty, number: float) -> None:
    run = make_uncertainty(gaps={"reversed": number}, unigram_entropy=number)
    changed: dict[str, Any] = {"error": number, "brier": number, "temperature": number}
    levels = tuple(replace(level, **changed) for level in run.levels)
    run = replace(run, levels=levels, scaled=levels[:1])
    gap, calibration, told = tables(run)
    shown = "-" if number != 1e30 else "1.00e+30"
    assert lines(gap)[0]["gap"] == lines(gap)[0]["gap at T"] == lines(told)[0]["gap"] == shown
    assert lines(calibration)[0]["error"] == lines(calibration)[0]["Brier"] == shown
    assert "nan" not in uncertainty_text([run])


@pytest.mark.parametrize("draws", [(), (0,), (5,), (0, 20)])
def test_few_levels(make_uncertainty: MakeUncertainty, draws: tuple[int, ...]) -> None:
    gap, calibration, _ = tables(make_uncertainty(draws=draws))
    assert (len(gap.rows), len(calibration.rows)) == (len(draws), 2 * len(draws))


def test_nothing_was_tried(make_uncertainty: MakeUncertainty) -> None:
    gap, calibration, told = tables(make_uncertainty(gaps={}, scaled=()))
    assert {line["gap"] for line in lines(gap)} == {line["T"] for line in lines(gap)} == {"-"}
    assert (len(calibration.rows), len(told.rows)) == (2, 0)
