import pytest
import torch

from bayesrnn.core.kernel import reference as blocks
from bayesrnn.core.kernel.reference import row_blocks


@pytest.fixture
def set_block_size(monkeypatch):
    """A function that makes the block-wise arithmetic use blocks of about so many numbers."""

    def set_size(size):
        monkeypatch.setattr(blocks, "BLOCK_SIZE", size)
        assert len(list(row_blocks(torch.empty(4 * size)))) == 4

    return set_size


@pytest.fixture
def set_threads():
    """A function that sets the number of torch's threads for the test."""
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


@pytest.fixture
def seeded():
    """The same random numbers from torch's own generator in each test."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        yield
