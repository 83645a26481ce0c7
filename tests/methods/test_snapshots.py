import copy

import pytest
import torch

from bayesrnn.methods.snapshots import Snapshots


@pytest.fixture
def kept(make_model):
    """A network with two copies, all of whose trained weights are 1 and 2; today's are 3."""
    net = Snapshots(make_model(tied=True))
    for value in (1.0, 2.0, 3.0):
        for weight in net.parameters():
            if weight.requires_grad:
                weight.data.fill_(value)
        if value < 3:
            net.keep(limit=5)
    return net


def values(module):
    return {weight.unique().item() for weight in module.parameters() if weight.requires_grad}


def test_copies_are_no_parameters_and_do_not_follow_the_training(kept):
    assert len(list(kept.parameters())) == len(list(kept.module.parameters()))
    assert values(kept.copy(0)) == {1.0}
    assert values(kept.copy(1)) == {2.0}
    assert values(kept.average()) == {1.5}
    assert values(kept.module) == {3.0}


def test_a_copy_is_an_ordinary_module_with_the_frozen_weights_of_today(kept, make_model, words):
    copied = kept.copy(0)
    assert type(copied) is type(kept.module)
    assert copied.output.weight is copied.embedding.weight
    assert not copied.recurrent.bias_hh_l0.any()
    copied.output.weight.data.fill_(9.0)
    assert values(kept.copy(0)) == {1.0}
    assert values(kept.module) == {3.0}
    expected = make_model(tied=True)
    expected.load_state_dict(kept.copy(1).state_dict())
    assert torch.equal(kept.copy(1)(words)[0], expected(words)[0])


def test_the_latest_stay(kept):
    kept.keep(limit=2)
    assert [values(kept.copy(number)) for number in range(len(kept))] == [{2.0}, {3.0}]


def test_state_dict_and_back(kept, make_model):
    state = kept.state_dict()
    names = {name for name, weight in kept.module.named_parameters() if weight.requires_grad}
    assert {key for key in state if not key.startswith("module.")} == {
        f"snapshots.{number}.{name}" for number in (0, 1) for name in names
    }
    before = copy.deepcopy(state)
    other = Snapshots(make_model(tied=True))
    other.keep(limit=5)  # gives way to those in the state
    other.load_state_dict(state)
    assert state.keys() == before.keys()
    assert [values(other.copy(number)) for number in range(len(other))] == [{1.0}, {2.0}]
    assert values(other.module) == {3.0}
    state["snapshots.0.output.bias"].fill_(7.0)
    assert values(other.copy(0)) == {1.0}
    other.load_state_dict(Snapshots(make_model(tied=True)).state_dict())
    assert len(other) == 0


def test_more_than_nine_copies_keep_their_order(make_model):
    net = Snapshots(make_model())
    for value in range(12):
        for weight in net.module.output.parameters():
            weight.data.fill_(value)
        net.keep(limit=20)
    other = Snapshots(make_model())
    other.load_state_dict(net.state_dict())
    assert [other.copy(n).output.bias[0].item() for n in range(12)] == list(range(12))


@pytest.mark.parametrize("harm", ["missing", "shape"])
def test_a_state_with_a_damaged_copy_is_refused(kept, make_model, harm):
    state = kept.state_dict()
    if harm == "missing":
        del state["snapshots.1.output.bias"]
    else:
        state["snapshots.1.output.bias"] = torch.zeros(2)
    with pytest.raises(RuntimeError, match="snapshot 1"):
        Snapshots(make_model(tied=True)).load_state_dict(state)


def test_copies_move_with_the_module(kept):
    kept.double()
    assert all(weight.dtype is torch.double for weight in kept.copy(1).parameters())
    assert kept.state_dict()["snapshots.0.output.bias"].dtype is torch.double
    assert kept.average().output.bias.dtype is torch.double
