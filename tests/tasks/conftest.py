"""What the tests of several tasks share."""

import signal
from contextlib import contextmanager

import pytest

from bayesrnn.errors import Interrupted
from bayesrnn.training.loop import Trainer


@pytest.fixture
def stop_after(monkeypatch):
    """A context in which training saves and stops after so many steps, as by a signal."""
    take_step = Trainer.step

    @contextmanager
    def stopping(steps):
        def step(trainer):
            if trainer.position.step == steps:
                trainer.save()
                raise Interrupted(signal.SIGTERM, "stopped")
            return take_step(trainer)

        with monkeypatch.context() as patch:
            patch.setattr(Trainer, "step", step)
            yield

    return stopping
