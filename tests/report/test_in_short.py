"""Sentences at the top of pages."""

from bayesrnn.report.in_short import telling_sentence, winner_sentence


def test_who_tells_best_and_whether_that_may_be_chance():
    sure = telling_sentence(
        [("a", (0.7, 0.6, 0.8)), ("b", (0.95, 0.9, 0.99))], "reversed text", "regular text"
    )
    assert sure == (
        "b tells reversed text from regular text best: AUROC 0.950 (0.900-0.990), well; next a, "
        "0.700 (0.600-0.800)."
    )
    chance = telling_sentence([("a", (0.7, 0.6, 0.8)), ("b", (0.75, 0.65, 0.85))], "x", "y")
    assert "this may be chance" in chance
    assert chance.startswith("b tells x from y best")


def test_a_single_run():
    for auroc, words in (
        ((0.95, 0.9, 0.99), "well"),
        ((0.8, 0.7, 0.9), "often right"),
        ((0.6, 0.55, 0.65), "a little over guessing"),
        ((0.52, 0.45, 0.6), "no better than guessing"),
        ((0.3, 0.2, 0.4), "the wrong way round"),
    ):
        assert words in telling_sentence([("a", auroc)], "x", "y")


def test_the_winner_and_by_how_much():
    said = winner_sentence("a", 81.0, "b", 90.0, "perplexity", 2)
    assert said == "a wins: perplexity 81.00, 10.0% less than b (90.00)"
    assert "the same perplexity, 81.00" in winner_sentence("a", 81.0, "b", 81.0, "perplexity", 2)
