"""The page and the table of a search."""

import re

import pytest

from bayesrnn.studies.search.findings import best_sentence, read_findings, trials_table
from bayesrnn.studies.search.page import best_chart, importance_chart, search_page, settings_chart


@pytest.fixture
def found(search, opened):
    """What a search of seven trials found, one of which a worker still trains."""
    folder, _ = search(trials=6)
    with opened(folder).claim(7).lease:
        yield read_findings(opened(folder))


def test_the_table_has_the_best_first_and_the_running_last(found):
    table = trials_table(found)
    losses = [float(row[2].strip("*")) for row in table.rows[:-1]]
    assert losses == sorted(losses)
    assert [row[1] for row in table.rows] == ["complete"] * 6 + ["running"]
    assert table.header[5:] == ["prior_per", "antithetic", "sigma_scale"]
    assert table.header[3] == "RMSE"
    best = found.best
    assert table.rows[0][0] == str(best.record.number)
    # The toy's loss is its squared error.
    assert float(table.rows[0][3]) ** 2 == pytest.approx(best.record.value, abs=1e-3)
    assert any("heard of" in note and "trial 6" in note for note in table.notes)


def test_the_sentence_says_how_far_it_is_from_the_recipe(found):
    gain = found.trials[0].record.value - found.best.record.value
    said = best_sentence(found)
    if found.best.record.number:
        assert f"{gain:.4f} below the recipe's {found.trials[0].record.value:.4f}" in said
    else:
        assert "recipe" not in said


def test_the_page_shows_all_trials_and_needs_no_other_file(found):
    page = search_page(found, "bayesrnn search toy --out here")
    assert "<script" not in page
    assert not re.search(r'(href|src)="', page)
    for title in ("In short", "The best so far", "What mattered", "All settings", "Trials"):
        assert f"<h2>{title}</h2>" in page
    assert "bayesrnn search toy --out here" in page
    assert "7 trials: 6 complete, 1 running" in page


def test_charts_have_a_mark_for_each_trial(found):
    chart = str.__str__(best_chart(found))
    assert len(re.findall(r"<title>trial, trial \d", chart)) == 6
    assert len(re.findall(r"<title>best so far, trial \d", chart)) == 6
    lines = str.__str__(settings_chart(found))
    assert lines.count("<polyline") == 6
    # Three options and the loss are as many points of each line.
    (points, *_) = re.findall(r'<polyline points="([^"]*)"', lines)
    assert len(points.split()) == 4


def test_the_importances_are_shares_of_one_and_are_shown(found):
    assert set(found.importances) == {"prior_per", "antithetic", "sigma_scale"}
    assert sum(found.importances.values()) == pytest.approx(1)
    chart = str.__str__(importance_chart(found))
    for name, share in found.importances.items():
        assert f">{name}</text>" in chart
        assert f">{share:.0%}</text>" in chart


def test_a_search_without_a_finished_trial_has_a_page(search, opened):
    folder, _ = search(trials=1, given={"lr": 1e18, "clip": 0.0})
    found = read_findings(opened(folder))
    assert best_sentence(found) == "No trial has been trained to its end yet."
    page = search_page(found, "again")
    assert "no trial has been trained to its end yet" in page
    assert "it takes five trials" in page
