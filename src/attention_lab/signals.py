"""Being told to stop."""


class Interrupted(BaseException):
    """A signal asked the process to stop, and what must not be lost has been saved."""

    def __init__(self, signum: int) -> None:
        super().__init__(signum)
        self.signum = signum
