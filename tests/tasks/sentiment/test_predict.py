from typing import Any

from bayesrnn.tasks.sentiment.predict import predicted_labels_table, predicted_numbers_table

NUMBER = {
    "text": "a fine film",
    "unknown": 0.125,
    "words": 8,
    "score": 0.61249,
    "low": -0.2,
    "high": 1234.5,
    "deviation": 0.2,
    "epistemic_share": 0.0625,
}


def result(texts: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    return {"interval": 0.9, "samples": 20, "texts": texts, **more}


def label(count: int) -> dict[str, Any]:
    probabilities = {f"kind {n}": 0.5 if n == 1 else 0.5 / (count - 1) for n in range(count)}
    about = {"text": "a film", "unknown": 0.0, "words": 2}
    found = {"label": "kind 1", "entropy": 0.6931, "mutual_information": 0.0519}
    return {**about, **found, "probabilities": probabilities}


def test_numbers() -> None:
    table = predicted_numbers_table(result([NUMBER]))
    assert list(table.header) == ["text", "score", "90% interval", "epistemic", "unknown words"]
    assert table.rows == [["a fine film", "0.612", "-0.200 to 1234", "6.2%", "12.5%"]]
    assert "mean over 20 draws of the network" in table.notes[0]


def test_an_interval_of_another_share_and_one_network() -> None:
    table = predicted_numbers_table(result([NUMBER], interval=0.995, samples=0))
    assert table.header[2] == "99.5% interval"
    assert "a single network (no model uncertainty)" in table.notes[0]
    assert "1 draw of" in predicted_numbers_table(result([NUMBER], samples=1)).notes[0]


def test_labels_have_a_column_each_while_they_are_few() -> None:
    table = predicted_labels_table(result([label(3)]))
    assert list(table.header)[1:5] == ["label", "p(kind 0)", "p(kind 1)", "p(kind 2)"]
    assert table.rows[0][1:7] == ["kind 1", "0.250", "0.500", "0.250", "0.693", "0.052"]
    many = predicted_labels_table(result([label(9)]))
    assert list(many.header)[1:4] == ["label", "probability", "entropy"]
    assert many.rows[0][1:3] == ["kind 1", "0.500"]


def test_a_text_cannot_give_orders_to_the_terminal() -> None:
    table = predicted_numbers_table(result([{**NUMBER, "text": "a \x1b[31mfilm"}]))
    assert "\x1b" not in table.text()
