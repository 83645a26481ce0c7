"""The few exceptions that a user can meet.

The command line prints their message as one line, without a traceback, so a message says what was
given, what is allowed and what to do.
"""


class BayesRNNError(Exception):
    """The base of every error that bayesrnn raises on purpose."""


class ConfigError(BayesRNNError):
    """An option, or a combination of options, that cannot work."""


class CorpusError(BayesRNNError):
    """A corpus that is missing, empty, of the wrong size or not readable as text."""


class CheckpointError(BayesRNNError):
    """A checkpoint that is missing, damaged, truncated or foreign."""


class RunError(BayesRNNError):
    """A run directory that cannot be used: busy, missing, not writable, or without space."""


class TrainingDivergedError(BayesRNNError):
    """The loss or a gradient is no longer a finite number."""


class PeerError(BayesRNNError):
    """Another process of the same training is gone, or does not answer."""


class MissingExtraError(BayesRNNError):
    """A feature needs an optional dependency that is not installed."""


class BayesRNNWarning(UserWarning):
    """Something that works, though not as well as it could; the program prints it as one line."""


class Interrupted(Exception):  # noqa: N818, stopping on request is no error
    """Training was stopped by a signal, and everything is saved."""

    def __init__(self, signal_number: int, message: str) -> None:
        super().__init__(message)
        self.signal_number = signal_number
