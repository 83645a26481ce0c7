"""What a server says instead of an answer."""


class Refusal(Exception):  # noqa: N818, most of them are no errors of ours
    """A request that is not answered: its HTTP status, and why, in words for the user.

    retry_after: seconds after which the same request may be answered.
    """

    def __init__(self, status: int, message: str, retry_after: int | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.retry_after = retry_after
