from itertools import product

import pytest
import torch
from torch import nn

from bayesrnn.errors import ConfigError
from bayesrnn.training.optimisation import (
    WEIGHTINGS,
    Schedule,
    clipped_step,
    default_lr,
    gradient_norms,
    kl_weight,
    make_optimiser,
    minibatch_kl_scale,
    problem_kl_scale,
)


def test_schedule_holds_then_decays():
    schedule = Schedule(lr=1.0, hold=2, decay=0.5)
    assert [schedule.at(epoch) for epoch in range(5)] == [1.0, 1.0, 0.5, 0.25, 0.125]


def two_groups():
    """Two groups of parameters with gradients, one parameter without."""
    generator = torch.Generator().manual_seed(0)
    made = [nn.Parameter(torch.randn(shape, generator=generator)) for shape in ((3, 4), (5,), (2,))]
    for parameter in made:
        parameter.grad = torch.randn(parameter.shape, generator=generator)
    return [[*made[:2], nn.Parameter(torch.ones(2))], made[2:]]


@pytest.mark.parametrize(
    ("name", "options"),
    [("SGD", {}), ("SGD", {"momentum": 0.9}), ("SGD", {"weight_decay": 0.1}), ("Adam", {})],
    ids=["plain", "momentum", "decay", "adam"],
)
def test_a_clipped_step_is_that_of_torch(name, options):
    """Each group is clipped by itself, over two steps, and the rates stay as they were."""
    for limit, known in product((None, 0.1, 1e6), (False, True)):
        ours, theirs = two_groups(), two_groups()

        def optimiser(groups):
            made = [
                {"params": group, "lr": lr} for group, lr in zip(groups, (0.3, 0.02), strict=True)
            ]
            return getattr(torch.optim, name)(made, **options)

        mine, reference = optimiser(ours), optimiser(theirs)
        for _ in range(2):
            bound = float("inf") if limit is None else limit
            expected = [nn.utils.clip_grad_norm_(group, bound).item() for group in theirs]
            norms = gradient_norms(mine, expected[0] if known else None)
            assert norms == pytest.approx(expected, rel=1e-6)
            clipped_step(mine, limit, norms)
            reference.step()
            for parameter in (p for groups in (ours, theirs) for group in groups for p in group):
                if parameter.grad is not None:
                    parameter.grad = torch.full_like(parameter.grad, 0.7)
        assert [group["lr"] for group in mine.param_groups] == [0.3, 0.02]
        for mine_group, their_group in zip(ours, theirs, strict=True):
            torch.testing.assert_close(mine_group, their_group)


def test_optimisers_by_name():
    parameters = [nn.Parameter(torch.ones(3))]
    adamw = make_optimiser("AdamW", [{"params": parameters}], 0.1, 0.0)
    assert isinstance(adamw, torch.optim.AdamW)
    sgd = make_optimiser("sgd", [{"params": parameters}], 0.1, 0.01)
    assert sgd.param_groups[0]["weight_decay"] == 0.01
    assert default_lr("adam") == 1e-3
    for name in ("lbfgs", "sparseadam", "magic", "Optimizer"):
        with pytest.raises(ConfigError, match="--optimizer"):
            make_optimiser(name, [{"params": parameters}], 0.1, 0.0)
    with pytest.raises(ConfigError, match="rprop has no option weight_decay"):
        make_optimiser("rprop", [{"params": parameters}], 0.1, 0.01)


def test_an_epoch_charges_the_kl_once():
    for weighting, count in product(WEIGHTINGS, (1, 2, 7, 1327)):
        shares = [kl_weight(weighting, number, count) for number in range(count)]
        assert sum(shares) == pytest.approx(1)
        assert all(share >= 0 for share in shares)


def test_the_weights_of_the_kl():
    assert kl_weight("uniform", 3, 8) == 1 / 8
    for count in (1, 3, 10):
        for i in range(1, count + 1):
            expected = 2 ** (count - i) / (2**count - 1)
            assert kl_weight("geometric", i - 1, count) == pytest.approx(expected)


def test_kl_scales_are_on_the_scale_of_a_mean_over_sequences():
    epoch = [minibatch_kl_scale("uniform", number, 5, sequences=20) for number in range(5)]
    assert sum(share.epoch for share in epoch) == pytest.approx(1 / 20)
    assert {share.minibatch for share in epoch} == {1 / 20}
    first = minibatch_kl_scale("geometric", 0, 2, sequences=10)
    assert first.epoch == pytest.approx(2 / 3 / 10)


def test_an_epoch_that_meets_targets_three_times_is_charged_the_kl_as_often():
    class Overlapping:
        sequences, steps, passes = 20, 1, 3.0

        def __len__(self):
            return 5

    once = minibatch_kl_scale("uniform", 2, 5, sequences=20)
    found = problem_kl_scale("uniform", 2, Overlapping())
    assert found.epoch == pytest.approx(3 * once.epoch)
    assert found.minibatch == once.minibatch
