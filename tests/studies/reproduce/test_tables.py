import json
import re
import statistics
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from bayesrnn.studies.reproduce.page import (
    reproduction_charts,
    reproduction_markdown,
    reproduction_page,
)
from bayesrnn.studies.reproduce.published import PAPER, published_rows
from bayesrnn.studies.reproduce.results import (
    GapLevel,
    PruningCurves,
    ReproducedRun,
    Reproduction,
    Speed,
    reproduction_values,
)
from bayesrnn.studies.reproduce.tables import (
    COLUMNS,
    epoch_table,
    first_epoch_table,
    gap_table,
    pruning_table,
    results_table,
    speed_table,
)

from ...made_up import summary_of

MakeRun = Callable[..., Path]
Reproduced = Callable[..., ReproducedRun]

PERPLEXITIES = {
    "valid-mean": 98.24,
    "test-mean": 94.71,
    "valid-dynamic": 92.31,
    "test-dynamic": 89.52,
    "valid-draws": 97.13,
    "test-draws": 93.64,
}


@pytest.fixture
def reproduced(make_run: MakeRun) -> Reproduced:
    def make(name: str = "bbb-seed1", method: str = "bbb", **changes: Any) -> ReproducedRun:
        run = {key: changes.pop(key) for key in ("valid", "epochs") if key in changes}
        run.setdefault("epochs", len(run.get("valid", "123")))
        summary = summary_of(make_run(name, method, **run))
        values: dict[str, Any] = {
            "seed": 1,
            "settings": "the same",
            "perplexities": PERPLEXITIES,
            "draws": 10,
        }
        return ReproducedRun(summary, **{**values, **changes})

    return make


def found(*runs: ReproducedRun, size: str = "small", **changes: Any) -> Reproduction:
    return Reproduction(size, "bayesrnn reproduce ptb", runs, **changes)


def rows_of(reproduction: Reproduction, model: str) -> list[dict[str, str]]:
    table = results_table(reproduction)
    rows = [dict(zip(table.header, row, strict=True)) for row in table.rows]
    return [row for row in rows if row["model"] == model]


def notes(reproduction: Reproduction) -> str:
    return "\n".join(results_table(reproduction).notes)


# The table of results


def test_a_row_has_every_perplexity_in_its_column(reproduced: Reproduced) -> None:
    (row,) = rows_of(found(reproduced()), "bbb")
    assert row == {
        "model": "bbb",
        "network": "lstm 1x200",
        "epochs": "3/3",
        "seeds": "1",
        "val": "98.24",
        "test": "94.71",
        "val DE": "92.31",
        "test DE": "89.52",
        "val draws": "97.13 (10)",
        "test draws": "93.64 (10)",
    }


def test_seeds_become_a_mean_and_a_spread(reproduced: Reproduced) -> None:
    values = (94.0, 95.5, 98.0)
    runs = [
        reproduced(
            f"bbb-seed{seed}", seed=seed, perplexities={"test-mean": value, "valid-mean": 1.0}
        )
        for seed, value in enumerate(values, start=1)
    ]
    (row,) = rows_of(found(*runs), "bbb")
    assert row["seeds"] == "1, 2, 3"
    assert row["test"] == f"{sum(values) / 3:.2f} +- {statistics.stdev(values):.2f}"
    assert "standard deviation" in notes(found(*runs))
    assert "standard deviation" not in notes(found(*runs[:1]))


def test_a_perplexity_that_only_some_seeds_have_says_so(reproduced: Reproduced) -> None:
    runs = [reproduced(), reproduced("bbb-seed2", seed=2, perplexities={"valid-mean": 90.24})]
    (row,) = rows_of(found(*runs), "bbb")
    assert row["test"] == "94.71 [1 of 2]"
    assert row["val"].startswith("94.24 +- ")


def test_seeds_with_other_settings_are_not_averaged(reproduced: Reproduced) -> None:
    runs = [reproduced(), reproduced("bbb-seed2", seed=2, settings="others")]
    assert [row["seeds"] for row in rows_of(found(*runs), "bbb")] == ["1", "2"]


def test_seeds_with_other_dynamic_evaluation_are_not_averaged(reproduced: Reproduced) -> None:
    runs = [reproduced(dynamic="sgd, lr 0.1"), reproduced("bbb-seed2", seed=2, dynamic="")]
    assert [row["seeds"] for row in rows_of(found(*runs), "bbb")] == ["1, 2"]
    assert "dynamic evaluation of ours: sgd, lr 0.1; the paper" in notes(found(*runs))
    runs += [reproduced("bbb-seed3", seed=3, dynamic="sgd, lr 0.05 (tuned)")]
    assert [row["seeds"] for row in rows_of(found(*runs), "bbb")] == ["1", "2", "3"]
    assert "sgd, lr 0.1 (bbb-seed1); sgd, lr 0.05 (tuned) (bbb-seed3)" in notes(found(*runs))


def test_a_network_that_is_not_the_mean_is_named(reproduced: Reproduced) -> None:
    run = reproduced()
    assert "one member" not in notes(found(run))
    said = notes(found(replace(run, one_network="one member")))
    assert "bbb: val, test and DE are not with the mean weights, but with: one member" in said


def test_an_unfinished_run_is_shown_and_marked(reproduced: Reproduced) -> None:
    """Alone, with the best validation figure so far where nothing else is measured."""
    runs = [reproduced(), reproduced("bbb-seed2", seed=2, epochs=30, perplexities={})]
    reproduction = found(*runs, missing=["bbb-seed3"])
    (row,) = rows_of(reproduction, "bbb (unfinished)")
    assert row["epochs"] == "3/30"
    assert row["val"] == "~200.00"
    assert row["test"] == "-"
    assert "bbb-seed2" in notes(reproduction)
    assert "not begun: bbb-seed3" in notes(reproduction)
    (finished,) = rows_of(reproduction, "bbb")
    assert finished["seeds"] == "1"


def test_several_seeds_without_results_have_no_figure_of_one(reproduced: Reproduced) -> None:
    runs = [reproduced(f"bbb-seed{seed}", seed=seed, perplexities={}) for seed in (1, 2)]
    (row,) = rows_of(found(*runs), "bbb")
    assert (row["seeds"], row["val"]) == ("1, 2", "-")


def test_a_bound_has_a_row_of_its_own(reproduced: Reproduced) -> None:
    figures = {**PERPLEXITIES, "valid-bound": 97.87, "test-bound": 94.16}
    reproduction = found(reproduced(perplexities=figures))
    (bound,) = rows_of(reproduction, "bbb, bound")
    assert (bound["val"], bound["test"]) == ("<= 97.87", "<= 94.16")
    assert bound["test DE"] == bound["test draws"] == "-"
    assert rows_of(reproduction, "bbb")[0]["test"] == "94.71"


def test_published_figures_stand_below_ours_and_are_marked(reproduced: Reproduced) -> None:
    reproduction = found(reproduced())
    models = [row[0] for row in results_table(reproduction).rows]
    assert models[:2] == ["bbb", "published: BRNN [1]"]
    assert all(model.startswith("published: ") for model in models[1:])
    (brnn,) = rows_of(reproduction, "published: BRNN [1]")
    assert [brnn[title] for title, _ in COLUMNS] == ["78.8", "75.5", "73.4", "70.7", "-", "-"]
    assert f"[1] {PAPER}" in notes(reproduction)
    (variational,) = rows_of(reproduction, "published: variational LSTM, tied masks [1]")
    assert variational["test draws"] == "79.0"
    (sharpened,) = rows_of(found(), "published: BRNN with sharpening [1]")
    assert [sharpened[title] for title, _ in COLUMNS[:2]] == ["<= 77.8", "<= 74.8"]


def test_the_papers_rows_are_always_there_others_by_size() -> None:
    for size in ("tiny", "small", "medium", "large"):
        rows = published_rows(size)
        assert sum(row.source == PAPER for row in rows) == 5
        assert all(row.size == size for row in rows if row.source != PAPER)
    assert {row.perplexities["test-mean"] for row in published_rows("large")} >= {78.29, 75.2}


# The other tables


def test_every_epoch_of_every_run_has_its_place(reproduced: Reproduced) -> None:
    runs = [
        reproduced(valid=(262.5, 200.25)),
        reproduced("plain-seed1", "plain", valid=(170.5,)),
        reproduced("bbb-seed2", valid=()),
    ]
    table = epoch_table(found(*runs))
    assert list(table.header) == ["epoch", "bbb-seed1", "plain-seed1", "bbb-seed2"]
    assert [list(row) for row in table.rows] == [
        ["1", "262.50", "170.50", "-"],
        ["2", "200.25", "-", "-"],
    ]
    assert not epoch_table(found(runs[2])).rows


def test_after_one_epoch_at_medium_size_only(reproduced: Reproduced) -> None:
    runs = [reproduced(valid=(262.5, 200.0)), reproduced("plain-seed1", "plain", valid=())]
    table = first_epoch_table(found(*runs, size="medium"))
    assert [list(row) for row in table.rows] == [["bbb-seed1", "262.50", "258"]]
    assert not first_epoch_table(found(*runs)).rows


def test_a_log_that_begins_later_has_no_figure_after_one_epoch(reproduced: Reproduced) -> None:
    run = reproduced(valid=(262.5, 200.0))
    later = replace(run, summary=replace(run.summary, points=run.summary.points[1:]))
    assert not first_epoch_table(found(later, size="medium")).rows


def test_entropy_gaps_beside_the_published_ones(reproduced: Reproduced) -> None:
    levels = (GapLevel(0, 4.5, 4.1, 0.31, 0.29), GapLevel(10, 4.4, 4.2, 0.36, None))
    table = gap_table(found(reproduced(gaps=levels)))
    assert [list(row) for row in table.rows] == [
        ["bbb-seed1", "mean", "4.500", "0.400", "0.310", "0.290", "just below 0.65"],
        ["bbb-seed1", "10", "4.400", "0.200", "0.360", "-", "about 0.67"],
    ]
    assert not gap_table(found(reproduced("none"))).rows


def pruned() -> PruningCurves:
    ratio = {0.0: 98.0, 0.5: 98.1, 0.8: 99.25, 0.99: None}
    return PruningCurves(ratio, {0.0: 98.0, 0.8: 111.5}, (0.7654, 98.97))


def test_pruning_says_what_80_percent_cost(reproduced: Reproduced) -> None:
    table = pruning_table(found(reproduced(pruning=pruned()), reproduced("other")))
    expected = [["bbb-seed1", "98.00", "99.25", "111.50", "76.5%"]]
    assert [list(row) for row in table.rows] == expected


def test_weights_without_sigma_are_dropped_by_magnitude(reproduced: Reproduced) -> None:
    figures = PruningCurves({}, {0.0: 97.5, 0.8: 117.25}, (0.5512, 98.4))
    run = reproduced("dropout-seed1", "dropout", pruning=figures)
    table = pruning_table(found(run))
    expected = [["dropout-seed1", "97.50", "-", "117.25", "55.1%"]]
    assert [list(row) for row in table.rows] == expected
    no_curve = replace(run, pruning=replace(figures, by_magnitude={}))
    lines, fewer = (
        reproduction_charts(found(one))["pruning.svg"].count("<polyline") for one in (run, no_curve)
    )
    assert lines > fewer


def test_speeds_beside_the_published_ones() -> None:
    table = speed_table(found(speeds={"plain": Speed(1.0, 1.0), "bbb": Speed(0.812, 1.51)}))
    rows = [list(row) for row in table.rows]
    assert rows == [["plain", "1.00x", "1.00x", "-"], ["bbb", "0.81x", "1.51x", "0.7x"]]


# The files


@pytest.fixture
def whole(reproduced: Reproduced) -> Reproduction:
    levels = (GapLevel(0, 4.5, 4.1, 0.3111, 0.29), GapLevel(10, 4.4, 4.2, 0.3666, 0.33))
    bbb = reproduced(
        gaps=levels,
        pruning=pruned(),
        unlike_published=("epochs 30 (published: 70)",),
        unlike_asked=("epochs 30 (asked for: 12)",),
        dynamic="sgd, lr 0.1, segments of 5 (default)",
    )
    plain = reproduced("plain-seed1", "plain", perplexities={"test-mean": 117.29}, epochs=13)
    speeds = {"bbb": Speed(0.812, 1.51)}
    about = {"missing": ["bbb-seed2"], "skipped": ["bench"], "made_with": "bayesrnn 9.9, torch 8.8"}
    return found(bbb, plain, speeds=speeds, **about)


SAID = (
    *("98.24", "117.29", "0.311", "76.5%", "0.81x", "78.8", "bbb-seed2", "3/13", "epochs 30"),
    *("asked for: 12", "published: 70", "lr 0.1", "left out: bench", "3 of 13 epochs done"),
)


def test_the_markdown_says_it_all(whole: Reproduction) -> None:
    text = reproduction_markdown(whole)
    for words in SAID:
        assert words in text
    assert text.endswith("\nWritten by bayesrnn 9.9, torch 8.8.\n")
    tables = re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE)
    assert len(tables) == 5
    for table in tables:
        cells = {len(re.findall(r"(?<!\\)\|", line)) for line in table.splitlines()}
        assert len(cells) == 1, "every line of a table has as many cells"


def test_the_markdown_shows_every_chart(whole: Reproduction) -> None:
    shown = re.findall(r"!\[[^]]+\]\(([^)]+)\)", reproduction_markdown(whole))
    assert shown == ["curves.svg", "entropy-gap.svg", "likelihood.svg", "pruning.svg"]
    assert sorted(shown) == sorted(reproduction_charts(whole))


def test_a_chart_needs_no_other_file_and_shows_the_runs(whole: Reproduction) -> None:
    for name, chart in reproduction_charts(whole).items():
        picture = ElementTree.fromstring(chart)
        assert picture.tag.endswith("svg")
        written = " ".join(picture.itertext())
        assert "bbb-seed1" in written, name


def test_the_values_are_those_of_the_runs(whole: Reproduction) -> None:
    values = json.loads(json.dumps(reproduction_values(whole)))
    bbb, plain = values["runs"]
    assert bbb["perplexities"] == PERPLEXITIES
    assert [point["epoch"] for point in bbb["epoch_by_epoch"]] == [1, 2, 3]
    assert bbb["entropy_gaps"][1]["gap"] == 0.3666
    assert bbb["pruning"]["by_ratio"][2] == [0.8, 99.25]
    assert plain["pruning"] is None
    assert (plain["epochs_done"], plain["epochs"]) == (3, 13)
    assert values["speeds"]["bbb"]["ratio"] == 0.812


def test_the_page_says_it_all(whole: Reproduction, read_page: Callable[[str], Any]) -> None:
    page = read_page(reproduction_page(whole))
    for words in (*SAID[:-1], "Written by bayesrnn 9.9, torch 8.8."):
        assert words in page.text
    assert page.tags.count("table") == 5
    assert page.tags.count("svg") == 4  # learning curves, gap, likelihood, pruning
    outside = [v for n, v in page.attributes if n in ("src", "href") and not v.startswith("data:")]
    assert outside == []
    assert "80% dropped" in page.text


def test_nothing_that_was_not_measured_has_a_section(
    reproduced: Reproduced, read_page: Callable[[str], Any]
) -> None:
    page = read_page(reproduction_page(found(reproduced(perplexities={}))))
    assert page.tags.count("table") == 2  # results, epochs
    assert page.tags.count("svg") == 1
    assert "Entropy" not in page.text
    assert "##" not in reproduction_markdown(found()).replace("## Settings", "")
