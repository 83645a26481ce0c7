import pytest
import torch
from torch import nn

from bayesrnn.errors import ConfigError
from bayesrnn.training.optimisation import Schedule, clip_gradients, default_lr, make_optimiser


def test_schedule_holds_then_decays():
    schedule = Schedule(lr=1.0, hold=2, decay=0.5)
    assert [schedule.at(epoch) for epoch in range(5)] == [1.0, 1.0, 0.5, 0.25, 0.125]


@pytest.mark.parametrize("limit", [None, 0.1, 1e6])
@pytest.mark.parametrize("known", [False, True])
def test_clipping_is_that_of_torch(limit, known):
    def parameters():
        generator = torch.Generator().manual_seed(0)
        made = [nn.Parameter(torch.randn(shape, generator=generator)) for shape in ((3, 4), (5,))]
        for parameter in made:
            parameter.grad = torch.randn(parameter.shape, generator=generator)
        return [*made, nn.Parameter(torch.ones(2))]  # the last one has no gradient

    ours, theirs = parameters(), parameters()
    expected = nn.utils.clip_grad_norm_(theirs, float("inf") if limit is None else limit)
    norm = clip_gradients(ours, limit, expected.item() if known else None)
    assert norm == pytest.approx(expected.item(), rel=1e-6)
    for one, other in zip(ours[:2], theirs[:2], strict=True):
        torch.testing.assert_close(one.grad, other.grad)


def test_optimisers_by_name():
    parameters = [nn.Parameter(torch.ones(3))]
    assert isinstance(make_optimiser("AdamW", parameters, 0.1, 0.0), torch.optim.AdamW)
    sgd = make_optimiser("sgd", parameters, 0.1, 0.01)
    assert sgd.param_groups[0]["weight_decay"] == 0.01
    assert default_lr("adam") == 1e-3
    for name in ("lbfgs", "sparseadam", "magic", "Optimizer"):
        with pytest.raises(ConfigError, match="--optimizer"):
            make_optimiser(name, parameters, 0.1, 0.0)
