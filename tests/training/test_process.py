import signal

import pytest
import torch

from bayesrnn.training.process import denormals_flushed, stop_request


def flushes():
    small = torch.full((4,), 1e-40)
    return not bool((small + small).any())


@pytest.mark.skipif(not torch.set_flush_denormal(False), reason="this processor cannot")
def test_only_inside_the_block():
    assert not flushes()
    with denormals_flushed():
        assert flushes()
        with denormals_flushed():
            assert flushes()
        assert flushes(), "a block inside leaves it as it was"
    assert not flushes()
    with pytest.raises(KeyError), denormals_flushed():
        raise KeyError
    assert not flushes()


def test_a_closed_terminal_asks_to_stop_unless_that_is_ignored():
    before = signal.getsignal(signal.SIGHUP)
    try:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
        with stop_request() as request:
            signal.raise_signal(signal.SIGHUP)
            assert request.signal_number == signal.SIGHUP
        assert signal.getsignal(signal.SIGHUP) == signal.SIG_DFL
        signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as under nohup
        with stop_request() as request:
            signal.raise_signal(signal.SIGHUP)
            assert request.signal_number is None
    finally:
        signal.signal(signal.SIGHUP, before)
