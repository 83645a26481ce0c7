"""Pictures of predictions."""

import sys

import pytest
import torch
from torch import nn

import bayesrnn as br
from bayesrnn.errors import ConfigError, MissingExtraError


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def predicted(outputs, head, count=30):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        net = br.Bayesian(nn.Linear(1, outputs), sigma_init=0.3)
    x = torch.linspace(-1, 1, count)[:, None]
    return x, br.predict(net, x, samples=20, generator=seeded(), head=head)


@pytest.fixture
def axes():
    """Axes of a figure, without a display."""
    pytest.importorskip("matplotlib", reason="the extra `plot` brings it")
    from matplotlib.figure import Figure

    return Figure().subplots()


def band(collection):
    """The lower and upper edge of a filled area, at its distinct places."""
    (path,) = collection.get_paths()
    corners = torch.as_tensor(path.vertices)
    places = corners[:, 0].unique()
    at = [corners[corners[:, 0] == place, 1] for place in places]
    return torch.stack([ys.min() for ys in at]), torch.stack([ys.max() for ys in at])


def test_numbers_have_a_band_with_the_epistemic_part_inside(axes):
    x, found = predicted(1, br.Regression(noise=0.5))
    order = torch.randperm(30, generator=seeded(1))
    y = found.mean + 0.1
    assert found.plot(x, y, ax=axes) is axes
    low, high = found.interval(0.95)
    outer, inner = axes.collections
    for mine, theirs in zip(band(outer), (low, high), strict=True):
        torch.testing.assert_close(mine, theirs[:, 0].double())
    away = 1.959964 * found.epistemic.sqrt()[:, 0].double()
    for mine, sign in zip(band(inner), (-1, 1), strict=True):
        torch.testing.assert_close(mine, found.mean[:, 0].double() + sign * away)
    line, points = axes.lines
    torch.testing.assert_close(torch.as_tensor(points.get_ydata()), y[:, 0].double())
    # In whatever order they are given, they stand in that of x.
    assert torch.as_tensor(line.get_xdata()).diff().min() > 0
    found.plot(x[order], ax=axes, share=0.5)
    assert torch.as_tensor(axes.lines[2].get_xdata()).diff().min() > 0
    assert [text.get_text() for text in axes.get_legend().get_texts()][1] == "95% of values"


def test_probabilities_of_one_example_are_bars(axes):
    _, found = predicted(3, br.Classes(spread=True), count=1)
    found.plot(ax=axes, names=["a", "b", "c"])
    heights = torch.tensor([patch.get_height() for patch in axes.patches])
    torch.testing.assert_close(heights.float(), found.mean[0])
    assert [text.get_text() for text in axes.get_xticklabels()] == ["a", "b", "c"]
    assert "sd over draws" in axes.get_ylabel()


@pytest.mark.parametrize("spread", [False, True])
def test_probabilities_of_several_examples_are_lines(axes, spread):
    _, found = predicted(12, br.Classes(spread=spread))
    found.plot(ax=axes)
    assert len(axes.lines) == 10
    assert len(axes.collections) == (10 if spread else 0)
    if spread:
        low, high = band(axes.collections[0])
        assert low.min() >= 0
        assert high.max() <= 1


@pytest.mark.parametrize(
    ("outputs", "head", "lines"), [(1, br.Binary(True), 1), (3, br.MultiLabel(True), 3)]
)
def test_answers_of_yes_or_no_are_lines(axes, outputs, head, lines):
    _, found = predicted(outputs, head)
    found.plot(ax=axes)
    assert len(axes.lines) == len(axes.collections) == lines
    first = torch.as_tensor(axes.lines[0].get_ydata())
    torch.testing.assert_close(first.float(), found.mean.reshape(30, -1)[:, 0])


def test_the_spread_is_that_of_the_probabilities_over_draws():
    class Given(nn.Module):
        """Another logit at each call."""

        def __init__(self):
            super().__init__()
            self.dropout = nn.Dropout(0.5)
            self.logits = [-1.0, 0.5, 2.0]

        def forward(self, x):
            return self.logits.pop() + 0 * x

    x = torch.zeros(1, 1)
    expected = torch.tensor([-1.0, 0.5, 2.0]).sigmoid().std(correction=0)
    for head in (br.Binary(spread=True), br.MultiLabel(spread=True)):
        found = br.predict(Given(), x, samples=3, head=head)
        torch.testing.assert_close(found.spread.flatten()[0], expected)
    found = br.predict(
        Given(), x, samples=3, head=br.Classes(spread=True),
        output=lambda out: torch.cat([torch.zeros(1, 1), out], -1),
    )  # fmt: skip
    torch.testing.assert_close(found.spread, expected.expand(1, 2))
    assert br.predict(Given(), x, samples=3, head=br.Binary()).spread is None


def test_mistakes(axes):
    x, found = predicted(2, br.Regression(noise=0.5))
    with pytest.raises(ConfigError, match=r"shape \[30, 2\]"):
        found.plot(x, ax=axes)
    x, found = predicted(1, br.Regression(noise=0.5))
    with pytest.raises(ConfigError, match="y has 5 numbers for 30"):
        found.plot(x, y=x[:5], ax=axes)
    _, found = predicted(3, br.Classes())
    with pytest.raises(ConfigError, match="2 names for 3 classes"):
        found.plot(names=["a", "b"], ax=axes)


def test_the_error_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingExtraError, match=r"bayesrnn\[plot\]"):
        predicted(3, br.Classes())[1].plot()
