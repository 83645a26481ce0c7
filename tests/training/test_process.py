import pytest
import torch

from bayesrnn.training.process import denormals_flushed


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
