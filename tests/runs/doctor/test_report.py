"""What is shown of an examination."""

import json

import pytest

from bayesrnn.runs.doctor.report import doctor_json, doctor_page, doctor_text
from bayesrnn.runs.verdict import Finding

from .examinations import (
    BINS,
    course,
    examination,
    tensor,
    validation,
    verdict,
    without_posterior,
)

SICK = {
    "tensors": (tensor(sd=0.05, name="a <b>"), tensor(sd=0.05, name="bias")),
    "validation": validation(draws=3.95),
    "course": course(clipped=0.93),
}


@pytest.mark.parametrize("width", [60, 100])
def test_the_text_fits_its_terminal_and_begins_with_what_is_wrong(width):
    text = doctor_text(examination(**SICK), width)
    assert max(map(len, text.replace("…", " ").splitlines())) <= max(width, 90)
    places = [text.index(words) for words in ("sigma did not learn", "Try: ", "Nats a prediction")]
    assert places == sorted(places)
    assert "0.2 to 9" in text
    assert "[" + " ▁" in text


def test_a_healthy_run_is_called_so():
    text = doctor_text(examination())
    assert "This run keeps no verdict" in text
    assert "Nothing that is measured here looks wrong" in text
    assert "Try:" not in text


def test_the_verdict_comes_first_and_is_explained(read_page):
    bad = Finding("90% intervals hold 67%", {"coverage_90": 0.67}, good=False)
    found = examination(**SICK, kept_verdict=verdict(bad, unit="text"))
    text = doctor_text(found)
    order = ("Verdict (on 2,000", "- 90% intervals hold 67%: even", "What is wrong", "sigma did")
    places = [text.index(words) for words in order]
    assert places == sorted(places)
    page = read_page(doctor_page(found)).text
    assert "do not trust its uncertainty." in page
    assert "Even calibrated, they are too narrow" in page
    values = json.loads(json.dumps(doctor_json(found), allow_nan=False))
    assert values["kept_verdict"]["step"] == 300
    assert values["verdict"]["trusted"] is False
    assert values["verdict"]["explanations"][0]["title"] == bad.words
    alone = doctor_text(examination(kept_verdict=verdict(bad, unit="text")))
    assert "Nothing else that is measured here looks wrong" in alone


def test_what_does_not_apply_is_left_out_with_a_word_why():
    text = doctor_text(without_posterior())
    assert "not measured: widths, prior and KL: dropout has no posterior over weights" in text
    assert "The posterior by tensor" not in text
    assert "free energy" not in text
    assert "steps clipped at 5" in text


def test_the_page_has_findings_tables_and_histograms(read_page):
    page = read_page(doctor_page(examination(**SICK)))
    assert page.tags.count("svg") == 2
    assert "b" not in page.tags
    for words in ("sigma did not learn", "Try: ", "a <b>", "KL in full", "Most steps are clipped"):
        assert words in page.text
    bare = read_page(doctor_page(without_posterior()))
    assert bare.tags.count("svg") == 0
    assert "has no posterior" in bare.text


def test_json_has_every_figure():
    found = json.loads(json.dumps(doctor_json(examination(**SICK)), allow_nan=False))
    assert found["findings"][0]["title"] == "sigma did not learn"
    assert len(found["histogram_edges"]) == BINS + 1 == len(found["tensors"][0]["signal"]) + 1
    assert found["nats"]["gained"] == pytest.approx(2.1)
    assert found["nats"]["free_energy"] == pytest.approx(3.9 + 0.8)
    assert found["lost_on_validation"] == pytest.approx(0.1 / 2.2)
    assert found["tensors"][0]["widths"]["ratio"] == [0.2, 1.6, 9.0]
