"""What a window knows: nothing of what comes after, and nothing of the unit of the series."""

import numpy as np
import pytest
import torch

from bayesrnn.core.init import absolute
from bayesrnn.methods.base import Hints
from bayesrnn.methods.bbb import BayesByBackprop
from bayesrnn.methods.plain import Plain, PlainOptions
from bayesrnn.methods.variational import PosteriorOptions
from bayesrnn.random import RandomStreams, seeded
from bayesrnn.tasks.forecast.data import WindowBatches, Wishes, prepare, training_targets
from bayesrnn.tasks.forecast.likelihood import steps_of
from bayesrnn.tasks.forecast.model import ForecastNetwork
from bayesrnn.tasks.forecast.panel import filled
from bayesrnn.tasks.forecast.paths import draw_paths, mean_path
from bayesrnn.tasks.forecast.slices import Places
from bayesrnn.uncertainty.draws import Draws

from .made_up import daily, noisy_week

WISHES = Wishes(horizon=5, valid=2, calibration=2, test=2, base="seasonal")
START = 150


def windows_of(*targets, wishes=WISHES, start=START, **covariates):
    data = prepare(daily(*targets, **covariates), wishes)
    numbers = torch.arange(len(targets))
    return data, data.windows(Places(numbers, torch.full_like(numbers, start)))


def network_of(layout, seed=3):
    net = ForecastNetwork(layout.inputs, 8, 1, "gru", layout.likelihood)
    net.initialise(seeded(seed))
    return net.eval()


def paths_of(data, windows, count=3):
    net = network_of(data.layout)
    draws = Draws(Plain(PlainOptions(), RandomStreams(1)), net, 0, seeded(1))
    return draw_paths(draws, windows, data.layout.likelihood, count, seeded(2)).values


@pytest.mark.parametrize("base", ["seasonal", "last", "none"])
def test_nothing_at_or_after_the_start_reaches_a_forecast(base):
    target = noisy_week()
    changed = target.copy()
    changed[START:] = changed[START:][::-1] * 7 + 1000
    wishes = Wishes(**{**vars(WISHES), "base": base})
    (data, before), (_, after) = (windows_of(t, wishes=wishes) for t in (target, changed))
    assert torch.equal(before.level, after.level)
    assert torch.equal(before.spread, after.spread)
    assert torch.equal(paths_of(data, before), paths_of(data, after))
    first = before.steps(0, 1)
    for windows in (before, after):
        assert torch.equal(
            windows.network_inputs(windows.values, first),
            before.network_inputs(before.values, first),
        )


def test_what_lies_just_before_the_start_does_reach_it():
    target = noisy_week()
    changed = target.copy()
    changed[START - 1] += 20
    (data, before), (_, after) = windows_of(target), windows_of(changed)
    assert not torch.equal(paths_of(data, before), paths_of(data, after))


def test_past_covariates_end_at_the_start_and_known_ones_go_on():
    target = noisy_week()
    covariate = np.random.default_rng(1).normal(size=len(target))
    later = covariate.copy()
    later[175:] += 5  # after the training part, which standardises
    for kind, is_same in (("past", True), ("known", False)):
        data, before = windows_of(target, start=175, **{kind: {"x": covariate}})
        _, after = windows_of(target, start=175, **{kind: {"x": later}})
        context = data.layout.context
        assert torch.equal(before.inputs[:, :context], after.inputs[:, :context])
        assert torch.equal(before.inputs, after.inputs) == is_same
        assert before.inputs[:, :context].abs().sum() > 0


def test_a_thousand_times_the_series_has_a_thousand_times_the_forecast():
    target = noisy_week()
    (data, small), (_, large) = windows_of(target), windows_of(1000 * target)
    torch.testing.assert_close(
        1000 * paths_of(data, small), paths_of(data, large), rtol=1e-5, atol=1e-3
    )


def test_base_and_scales_of_a_window():
    target = noisy_week()
    _, windows = windows_of(target)
    layout = windows.layout
    past = target[:START]
    span = past[-layout.span :]
    moves = np.abs(span - target[START - layout.span - 7 : START - 7])
    assert windows.level.item() == pytest.approx(np.abs(span).mean())
    assert windows.spread.item() == pytest.approx(moves.mean())
    base = windows.base(windows.values, windows.steps(0, 5))
    assert base[0].tolist() == pytest.approx(past[-7:-2].tolist())


class Level(torch.nn.Module):
    """Says one level, its only weight, and next to no noise."""

    def __init__(self):
        super().__init__()
        self.level = torch.nn.Parameter(torch.ones(1))

    def forward(self, inputs, state=None):
        level = self.level.expand(inputs.shape[:2])
        return torch.stack([level, torch.full_like(level, 1e-9)], -1), torch.zeros(1, len(level), 1)


def test_all_values_of_a_draw_are_by_one_network():
    wishes = Wishes(**{**vars(WISHES), "base": "none", "likelihood": "gaussian"})
    _, windows = windows_of(noisy_week(), noisy_week(seed=2), wishes=wishes)
    method = BayesByBackprop(PosteriorOptions(), RandomStreams(1))
    net = method.build(Level(), Hints(sigma_init={"*": absolute(0.3, 0.3)}))
    draws = Draws(method, net, 4, seeded(1))
    found = draw_paths(draws, windows, "gaussian", 3, seeded(2))
    levels = found.values / windows.unit[:, None, None, None]
    held = levels[:, :, :1, :1].expand_as(levels)
    torch.testing.assert_close(levels, held, rtol=1e-6, atol=1e-6)
    assert len(levels[0, :, 0, 0].unique()) == 4
    torch.testing.assert_close(levels[0], levels[1], rtol=1e-6, atol=1e-6)
    assert found.epistemic_share.min() > 0.99


def test_forecasts_of_a_window_do_not_depend_on_the_others():
    one, two = noisy_week(seed=1), noisy_week(seed=2, level=3.0)
    data, both = windows_of(one, two)
    net = network_of(data.layout)
    together = mean_path(net, both, data.layout.likelihood)
    for number in range(2):
        alone = mean_path(net, both.part(slice(number, number + 1)), data.layout.likelihood)
        torch.testing.assert_close(together[number : number + 1], alone, rtol=1e-5, atol=1e-5)


def test_missing_values_are_no_targets_and_are_told():
    target = noisy_week()
    target[[START - 1, START + 2]] = np.nan
    _, windows = windows_of(target)
    steps = steps_of(windows, 0, 5)
    assert steps.is_there[:, 0].tolist() == [True, True, False, True, True]
    lags = len(windows.layout.lags) + len(windows.layout.differences)
    assert steps.inputs[:, 0, lags].tolist() == [1, 0, 0, 1, 0]


def test_gaps_are_filled_from_a_season_before():
    found = filled(np.array([np.nan, 1, 2, np.nan, np.nan, np.nan, 6]), 3)
    assert found.tolist() == [0, 1, 2, 0, 1, 2, 6]


def test_slices_follow_each_other_and_training_stops_before_them():
    data = prepare(daily(noisy_week()), WISHES)
    starts = {part: data.places(part).starts.tolist() for part in ("valid", "calibration", "test")}
    assert starts == {"valid": [170, 175], "calibration": [180, 185], "test": [190, 195]}
    assert data.slices.train().starts.max() + 5 == 170
    assert data.slices.train().starts.min() == data.layout.fewest


def test_an_epoch_says_how_often_it_meets_each_target():
    data = prepare(daily(noisy_week()), WISHES)
    batches = WindowBatches(data, 8, 64, seed=1, epoch=0)
    met = sum(int(windows.scored(windows.steps(-28, 33)).sum()) for windows in batches)
    assert training_targets(data) == 170 - 7
    assert batches.passes == pytest.approx(met / 163)
    assert sum(map(batches.length, range(len(batches)))) * 8 == pytest.approx(met)
    again = WindowBatches(data, 8, 64, seed=1, epoch=0)
    assert torch.equal(batches[3].values, again[3].values)
    other = WindowBatches(data, 8, 64, seed=1, epoch=1)
    assert not torch.equal(batches[3].values, other[3].values)
