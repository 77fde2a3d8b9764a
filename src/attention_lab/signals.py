"""Being told to stop."""


class Interrupted(BaseException):
    """A signal asked the process to stop.

    Not an Exception, so that nobody who handles errors takes it for one.
    """

    def __init__(self, signum: int) -> None:
        super().__init__(signum)
        self.signum = signum
