import pytest
import torch
from torch.nn import functional as F

from bayesrnn.random import RandomStreams


def numbers(generator, count=20):
    return torch.randn(count, generator=generator)


def test_one_seed_and_name_give_the_same_numbers():
    assert torch.equal(numbers(RandomStreams(1)["a"]), numbers(RandomStreams(1)["a"]))


def test_order_of_first_use_does_not_matter():
    one, other = RandomStreams(1), RandomStreams(1)
    numbers(one["a"])
    numbers(one["b"])
    first = numbers(one["c"])
    assert torch.equal(numbers(other["c"]), first)


def test_other_names_and_seeds_give_other_numbers():
    drawn = {
        tuple(numbers(RandomStreams(seed)[name]).tolist())
        for seed in (0, 1, 2**32, 2**32 + 1, 2**63)
        for name in ("a", "b", "ab", "ba", "")
    }
    assert len(drawn) == 25


def test_streams_are_uncorrelated():
    streams = RandomStreams(0)
    table = torch.stack([numbers(streams[str(n)], 10_000) for n in range(8)])
    off_diagonal = torch.corrcoef(table) - torch.eye(8)
    assert off_diagonal.abs().max() < 5 / 100


def test_a_stream_goes_on():
    streams = RandomStreams(1)
    assert streams["a"] is streams["a"]
    assert not torch.equal(numbers(streams["a"]), numbers(streams["a"]))


def test_using_streams_leaves_the_global_generator_alone():
    before = torch.get_rng_state()
    numbers(RandomStreams(1)["a"])
    assert torch.equal(torch.get_rng_state(), before)


def test_as_default_gives_the_numbers_of_the_stream_and_goes_on():
    plain = RandomStreams(1)["a"]
    expected = torch.cat([numbers(plain) for _ in range(3)])
    streams = RandomStreams(1)
    drawn = [numbers(streams["a"])]
    for _ in range(2):
        with streams.as_default("a"):
            drawn.append(torch.randn(20))
    assert torch.equal(torch.cat(drawn), expected)


def test_as_default_restores_the_global_state():
    with torch.random.fork_rng():
        torch.manual_seed(5)
        before = torch.get_rng_state()
        with RandomStreams(1).as_default("a"):
            torch.randn(7)
        assert torch.equal(torch.get_rng_state(), before)


def test_a_stream_changes_only_when_the_block_ends_where_other_devices_are_seeded(monkeypatch):
    fork_rng, seeds = torch.random.fork_rng, []
    monkeypatch.setattr(torch.random, "fork_rng", lambda devices: fork_rng([]))
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "manual_seed_all", seeds.append)
    streams, plain = RandomStreams(1), RandomStreams(1)["a"]
    before = streams["a"].get_state()
    for _ in range(2):
        with streams.as_default("a"):
            assert torch.equal(streams["a"].get_state(), before)
            found = torch.randn(20)
        assert torch.equal(found, numbers(plain))  # as on the CPU
        before = streams["a"].get_state()
    assert len(set(seeds)) == 2


def test_as_default_restores_the_global_state_after_an_error():
    def fail():
        with RandomStreams(1).as_default("a"):
            torch.randn(7)
            raise ValueError("on purpose")

    before = torch.get_rng_state()
    with pytest.raises(ValueError, match="on purpose"):
        fail()
    assert torch.equal(torch.get_rng_state(), before)


def test_dropout_masks_are_those_of_the_stream():
    def masks():
        streams = RandomStreams(3)
        drawn = []
        for step in range(3):
            torch.randn(step + 1)  # what goes on outside does not matter
            with streams.as_default("dropout"):
                drawn.append(F.dropout(torch.ones(50), 0.5))
        return drawn

    with torch.random.fork_rng():
        first, second = masks(), masks()
    for one, other in zip(first, second, strict=True):
        assert torch.equal(one, other)
    assert not torch.equal(first[0], first[1])
    assert not torch.equal(first[1], first[2])


def test_streams_inside_one_another():
    expected = numbers(RandomStreams(1)["b"])
    streams = RandomStreams(1)
    with streams.as_default("a"):
        first = torch.randn(10)
        with streams.as_default("b"):
            inner = torch.randn(20)
        second = torch.randn(10)
    again = RandomStreams(1)["a"]
    assert torch.equal(torch.cat([first, second]), torch.cat([numbers(again, 10) for _ in "12"]))
    assert torch.equal(inner, expected)


def test_state_and_restore_go_on_where_it_was_taken():
    streams = RandomStreams(1)
    numbers(streams["a"], 7)  # an odd count: half a pair of normals is kept for later
    numbers(streams["b"])
    state = streams.state()
    assert set(state) == {"a", "b"}
    expected = {name: numbers(streams[name]) for name in "ab"}
    fresh = RandomStreams(1)
    fresh.restore(state)
    for name in "ab":
        assert torch.equal(numbers(fresh[name]), expected[name])
    # A stream that was not used yet starts as it would have.
    assert torch.equal(numbers(fresh["c"]), numbers(RandomStreams(1)["c"]))
    # The same streams can be taken back as well.
    streams.restore(state)
    assert torch.equal(numbers(streams["a"]), expected["a"])


def test_a_state_is_a_snapshot():
    streams = RandomStreams(1)
    numbers(streams["a"])
    state = streams.state()
    kept = state["a"].clone()
    numbers(streams["a"])
    assert torch.equal(state["a"], kept)
